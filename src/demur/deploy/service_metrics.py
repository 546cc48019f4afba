"""What a service counts, and how Prometheus reads it."""

import json
import math
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from demur._version import __version__
from demur.array_types import ByName

__all__ = ["CONTENT_TYPE", "ServiceMetrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of Prometheus's text format."""

_Labels: TypeAlias = tuple[tuple[str, str], ...]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_CONFIDENCE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999, 1.0)

_COUNTERS = {
    "demur_requests_total": "Requests by path and HTTP status.",
    "demur_rows_total": "Rows that were decided for.",
    "demur_rows_rejected_total": "Rows among them that the model declined.",
    "demur_rows_audited_total": "Answered rows among them that were drawn for a review.",
    "demur_decisions_total": "Rows by their first choice and by whether they were declined.",
    "demur_model_reloads_total": "Models that were loaded while the service ran, by outcome.",
    "demur_log_lines_dropped_total": "Log lines that were not written because nobody reads the log.",
}
_FROM_THE_START = (
    "demur_rows_total",
    "demur_rows_rejected_total",
    "demur_rows_audited_total",
    "demur_log_lines_dropped_total",
)
"""Counters that are told before there is anything to count."""
_HISTOGRAMS = {
    "demur_request_seconds": ("How long requests took, from their first byte to the end of the answer.", _SECONDS),
    "demur_confidence": ("Confidence in the first choice of each row.", _CONFIDENCE),
}

_MOST_CLASSES = 1000
"""Classes that are counted by name."""

_OTHER = "(other)"


class ServiceMetrics:
    r"""Counts of one service: requests, rows, classes, confidence; safe to use from several threads.

    Parameters
    ----------
    shared : path, optional
        A folder in which several processes of one service put their counts, so that each tells the sum of all. What
        others have counted is up to a second old.

    Examples
    --------
    >>> metrics = ServiceMetrics()
    >>> metrics.answered("/decide", 200, 0.003)
    >>> metrics.decided(["cat", 'the "dog"'], [False, True], [0.97, 0.6])
    >>> text = metrics.text()
    >>> print(*[line for line in text.splitlines() if line.startswith("demur_decisions")], sep="\n")
    demur_decisions_total{class="cat",rejected="false"} 1
    demur_decisions_total{class="the \"dog\"",rejected="true"} 1
    """

    def __init__(self, shared: Path | None = None) -> None:
        self.started = time.time()
        self.shared = shared
        self.model: dict[str, str] = {}
        self.loaded = self.started
        self.ready = True
        self.reload_failing = False
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, _Labels], float] = {}
        self._requests: dict[tuple[str, int], int] = {}
        self._decisions: dict[tuple[object, bool], int] = {}
        self._histograms: dict[tuple[str, str], list[float]] = {}
        self._classes: frozenset[str] | None = None
        self._in_progress = 0
        self._changed = False
        self._own_file = f"{os.getpid()}-{os.urandom(4).hex()}.json"

    def serves(self, name: str, target: str, classes: Collection[str]) -> None:
        """Say which model answers from now on."""
        self.model = {"name": name, "target": target, "version": __version__}
        self.loaded = time.time()
        few = len(classes) <= _MOST_CLASSES
        self._classes = None if few else frozenset(sorted(map(str, classes))[:_MOST_CLASSES])

    def begun(self) -> None:
        """Count a request that has arrived."""
        with self._lock:
            self._in_progress += 1

    def ended(self) -> None:
        """Count it off again."""
        with self._lock:
            self._in_progress -= 1

    def answered(self, path: str, status: int, seconds: float) -> None:
        """Count a request, and how long it took."""
        with self._lock:
            key = (path, status)
            self._requests[key] = self._requests.get(key, 0) + 1
            self._observe("demur_request_seconds", path, (seconds,))

    def decided(self, choices: Sequence[object], rejected: Sequence[bool], confidence: Sequence[float]) -> None:
        """Count rows: the first choice of each, whether it was declined, and how sure the model was."""
        with self._lock:
            decisions = self._decisions
            for one in zip(choices, rejected, strict=True):
                decisions[one] = decisions.get(one, 0) + 1
            self._observe("demur_confidence", "", confidence)

    def audited(self, n_rows: int) -> None:
        """Count answered rows that were drawn for a review."""
        with self._lock:
            self._add("demur_rows_audited_total", (), n_rows)

    def reloaded(self, outcome: str) -> None:
        """Count a model that was loaded, or that could not be."""
        self.reload_failing = outcome != "loaded"
        with self._lock:
            self._add("demur_model_reloads_total", (("outcome", outcome),))

    def dropped(self, lines: int = 1) -> None:
        """Count lines that the log could not take."""
        with self._lock:
            self._add("demur_log_lines_dropped_total", (), lines)

    def _add(self, name: str, labels: _Labels, amount: float = 1) -> None:
        key = (name, labels)
        self._counts[key] = self._counts.get(key, 0) + amount
        self._changed = True

    def _observe(self, name: str, path: str, values: Sequence[float]) -> None:
        bounds = _HISTOGRAMS[name][1]
        key = (name, path)
        counts = self._histograms.get(key)
        if counts is None:
            counts = self._histograms[key] = [0.0] * (len(bounds) + 2)  # buckets, those above all, the sum
        for value in values:
            counts[bisect_left(bounds, value)] += 1
            counts[-1] += value
        self._changed = True

    def share(self, seconds: float = 1.0) -> None:
        """Write the own counts every so often, in a thread, where there is a folder for them."""
        if self.shared is None:
            return

        def write() -> None:
            while True:
                time.sleep(seconds)
                try:
                    self.flush()
                except OSError:  # the folder goes when the service ends
                    return

        threading.Thread(target=write, name="demur-metrics", daemon=True).start()

    # What several processes share ------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write the own counts where the other processes of the service look, if there are new ones."""
        if self.shared is None or not self._changed:
            return
        with self._lock:
            document = self._document()
            self._changed = False
        part = self.shared / f".{self._own_file}.part"
        part.write_text(json.dumps(document), encoding="utf-8")
        part.replace(self.shared / self._own_file)

    def _document(self) -> ByName:
        """Return the own counts, with labels as they are told."""
        counts = [[name, labels, value] for (name, labels), value in self._counts.items()]
        for (path, status), number in self._requests.items():
            counts.append(["demur_requests_total", (("path", path), ("status", str(status))), number])
        for (choice, declined), number in self._decisions.items():
            labels = (("class", self._class_name(choice)), ("rejected", "true" if declined else "false"))
            counts.append(["demur_decisions_total", labels, number])
            counts.append(["demur_rows_total", (), number])
            counts.append(["demur_rows_rejected_total", (), number if declined else 0])
        histograms = [
            [name, (("path", path),) if path else (), list(values)] for (name, path), values in self._histograms.items()
        ]
        return {"counts": counts, "histograms": histograms}

    def _class_name(self, choice: object) -> str:
        name = str(choice).lower() if isinstance(choice, bool) else str(choice)
        return name if self._classes is None or name in self._classes else _OTHER

    def _documents(self) -> Iterator[ByName]:
        with self._lock:
            yield self._document()
        if self.shared is None:
            return
        for file in sorted(self.shared.glob("*.json")):
            if file.name != self._own_file:
                yield json.loads(file.read_text(encoding="utf-8"))

    # The text --------------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """Return all counts in Prometheus's text format, those of the service's other processes included."""
        counts: dict[tuple[str, _Labels], float] = {}
        histograms: dict[tuple[str, _Labels], list[float]] = {}
        for document in self._documents():
            for name, labels, value in document["counts"]:
                key = (name, tuple((one, other) for one, other in labels))
                counts[key] = counts.get(key, 0) + value
            for name, labels, values in document["histograms"]:
                key = (name, tuple((one, other) for one, other in labels))
                before = histograms.get(key, [0.0] * len(values))
                histograms[key] = [one + other for one, other in zip(before, values, strict=True)]
        lines: list[str] = []
        for name, words in _COUNTERS.items():
            found = {labels: value for (of, labels), value in counts.items() if of == name}
            if name in _FROM_THE_START:
                found = found or {(): 0}
            lines += _family(name, "counter", words, found)
        for name, (words, bounds) in _HISTOGRAMS.items():
            of_name = {labels: values for (of, labels), values in histograms.items() if of == name}
            lines += _histogram(name, words, bounds, of_name)
        rows, rejected = counts.get(("demur_rows_total", ()), 0), counts.get(("demur_rows_rejected_total", ()), 0)
        share = rejected / rows if rows else math.nan
        lines += _family("demur_rejected_share", "gauge", "Share of the rows so far that were declined.", {(): share})
        for name, words, value in self._gauges():
            lines += _family(name, "gauge", words, {(): value})
        about = tuple(self.model.items())
        lines += _family("demur_model_info", "gauge", "The model that answers.", {about: 1} if about else {})
        return "\n".join(lines) + "\n"

    def _gauges(self) -> Iterator[tuple[str, str, float]]:
        yield "demur_ready", "Whether requests are welcome.", float(self.ready)
        yield "demur_requests_in_progress", "Requests that this process works on.", self._in_progress
        yield "demur_model_loaded_timestamp_seconds", "When the model that answers was loaded.", self.loaded
        failing = "Whether a newer model in the folder could not be loaded, so that an older one answers."
        yield "demur_model_reload_failing", failing, float(self.reload_failing)
        yield "demur_start_timestamp_seconds", "When this process began to serve.", self.started


def _family(name: str, kind: str, words: str, values: dict[_Labels, float]) -> list[str]:
    if not values:
        return []
    rows = [f"{name}{_labels(labels)} {_number(value)}" for labels, value in values.items()]
    return [f"# HELP {name} {words}", f"# TYPE {name} {kind}", *rows]


def _histogram(name: str, words: str, bounds: Sequence[float], found: dict[_Labels, list[float]]) -> list[str]:
    if not found:
        return []
    lines = [f"# HELP {name} {words}", f"# TYPE {name} histogram"]
    for labels, values in found.items():
        total = 0.0
        for bound, count in zip((*bounds, math.inf), values, strict=False):
            total += count
            lines.append(f"{name}_bucket{_labels((*labels, ('le', _number(bound))))} {_number(total)}")
        lines.append(f"{name}_sum{_labels(labels)} {_number(values[-1])}")
        lines.append(f"{name}_count{_labels(labels)} {_number(total)}")
    return lines


def _labels(labels: _Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}" if labels else ""


def _escaped(value: str) -> str:
    r"""Return the value of a label as it is written between quotes, whatever a class is called.

    Examples
    --------
    >>> print(_escaped('a "b"\nc'))
    a \"b\"\nc
    """
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))
