"""What a service counts, for Prometheus."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from demur import __version__

__all__ = ["ServiceMetrics"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_CONFIDENCE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)

_MOST_CLASSES = 1000
"""With more classes than this, rows are not counted by class: each would be a time series."""


class ServiceMetrics:
    """Counts requests, rows, classes and confidence with ``prometheus_client``.

    Where the environment variable ``PROMETHEUS_MULTIPROC_DIR`` names a folder, the processes that share it report
    their sum.

    Parameters
    ----------
    model, target : str
        Name of the model and of the column that it predicts.
    n_classes : int

    Examples
    --------
    >>> metrics = ServiceMetrics("lr", "pet", 2)
    >>> metrics.count_decisions([{"first_choice": "cat", "rejected": False, "confidence": 0.97}])
    >>> b'demur_decisions_total{class="cat",rejected="false"} 1.0' in metrics.text()
    True
    """

    def __init__(self, model: str, target: str, n_classes: int) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self._registry = own = CollectorRegistry()
        self._names_classes = n_classes <= _MOST_CLASSES
        self._requests = Counter("demur_requests", "Requests.", ["path", "status"], registry=own)
        self._seconds = Histogram(
            "demur_request_seconds", "Duration of requests.", ["path"], buckets=_SECONDS, registry=own
        )
        self._rows = Counter("demur_rows", "Rows decided.", registry=own)
        self._rejected = Counter("demur_rows_rejected", "Rows that the model declined.", registry=own)
        self._audited = Counter("demur_rows_audited", "Answered rows drawn for review.", registry=own)
        words = "Rows by first choice and by whether the model declined."
        self._decisions = Counter("demur_decisions", words, ["class", "rejected"], registry=own)
        words = "Confidence in the first choice."
        self._confidence = Histogram("demur_confidence", words, buckets=_CONFIDENCE, registry=own)
        info = Gauge(
            "demur_model_info", "The model that answers.", ["name", "target", "version"], registry=own,
            multiprocess_mode="max",
        )  # fmt: skip
        info.labels(model, target, __version__).set(1)
        words = "When the model was loaded."
        loaded = Gauge("demur_model_loaded_timestamp_seconds", words, registry=own, multiprocess_mode="max")
        loaded.set_to_current_time()

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request and its duration."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_decisions(self, decisions: Sequence[Mapping[str, Any]], n_audited: int = 0) -> None:
        """Count the rows of an answer."""
        for one in decisions:
            rejected = "true" if one["rejected"] else "false"
            name = str(one["first_choice"]) if self._names_classes else "(any)"
            self._decisions.labels(name, rejected).inc()
            self._confidence.observe(one["confidence"])
        self._rows.inc(len(decisions))
        self._rejected.inc(sum(one["rejected"] for one in decisions))
        self._audited.inc(n_audited)

    def text(self) -> bytes:
        """Return all counts in Prometheus's text format."""
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call] # it registers itself
        return generate_latest(shared)
