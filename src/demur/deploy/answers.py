"""From a checked request to its answer: decisions of the model, the draw for review, and the counts."""

import asyncio
import json
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from demur import __version__
from demur.columns import Column
from demur.deploy.request_types import RequestError, column_array, request_table
from demur.errors import InputError
from demur.rules import chow_acceptance
from demur.tabular import ANSWER_COLUMNS, TableModel
from demur.tabular.class_labels import as_column
from demur.tabular.review_queue import AUDIT, DECLINED, WHY, check_audit, draw_audit

__all__ = ["Answerer", "GraphModel", "ServiceMetrics"]

_log = logging.getLogger("demur.deploy")

Row: TypeAlias = Mapping[str, Any]
Decision: TypeAlias = dict[str, Any]

_FEW_ROWS = 64
"""Requests with more rows are decided alone and in a thread, so that the others do not wait."""

_MOST_PROBA = 1_000_000
"""Probabilities in one answer."""


class Answerer:
    """Answers the requests to a model.

    Small requests that arrive at the same time are decided together, with ONNX Runtime where the model can be exported.

    Parameters
    ----------
    model : TableModel
    audit : float, default 0
        Share of the answered rows to draw for review.
    rng : numpy.random.Generator, optional
        Random numbers for the draw.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from demur.tabular import fit_table
    >>> table = pa.table({"size": [1.0, 1.1, 1.2, 5.0, 5.1, 5.2] * 9, "y": list("aaabbb") * 9})
    >>> answerer = Answerer(fit_table(table, "y", model="lr"))
    >>> json.loads(asyncio.run(answerer.answer({"row": {"size": 5.1}})))["decisions"][0]["prediction"]
    'b'
    """

    def __init__(self, model: TableModel, audit: float = 0.0, rng: np.random.Generator | None = None) -> None:
        check_audit(audit)
        self.model, self.audit = model, audit
        self._rng = np.random.default_rng() if rng is None else rng
        self._about = {"name": str(model.facts.get("model", "model")), "target": model.target}
        self.metrics = ServiceMetrics(self._about["name"], model.target, len(model.classes))
        self._graph = GraphModel.of(model)
        self._waiting: list[tuple[Mapping[str, Any], asyncio.Future[list[Decision]]]] = []

    async def answer(self, question: Mapping[str, Any]) -> bytes:
        """Return the answer to a question that was checked, as JSON."""
        try:
            decisions = await self._decisions(question)
        except InputError as error:
            raise error if isinstance(error, RequestError) else RequestError(str(error)) from error
        except Exception as error:  # whatever a model may raise: the service goes on
            _log.exception("a request failed")
            raise RequestError("the service failed on this request; its log says why.", 500) from error
        n_audited = self._draw(decisions) if self.audit else 0
        cost = question.get("cost")
        document = {"decisions": decisions, "cost": self.model.cost if cost is None else cost, "model": self._about}
        if self.model.asks_experts:
            document["prices"] = {**self.model.experts.prices, **(question.get("prices") or {})}
        try:
            answer = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
        except ValueError:  # a column of tiny numbers can make any other overflow once scaled
            raise RequestError("a number is too far from the training data: give null instead.") from None
        self.metrics.count_decisions(decisions, n_audited)
        return answer

    async def _decisions(self, question: Mapping[str, Any]) -> list[Decision]:
        rows, n_classes = _rows(question), len(self.model.classes)
        if question.get("proba") and len(rows) * n_classes > _MOST_PROBA:
            problem = f"{len(rows):,} rows of {n_classes:,} classes have more than {_MOST_PROBA:,}"
            raise RequestError(f"{problem} probabilities: send the rows in several requests.", 413)
        if len(rows) > _FEW_ROWS:
            return await asyncio.to_thread(self._by_table, question)
        if self._graph is None:
            return self._by_table(question)
        loop = asyncio.get_running_loop()
        decided: asyncio.Future[list[Decision]] = loop.create_future()
        self._waiting.append((question, decided))
        if len(self._waiting) == 1:
            loop.call_soon(self._decide_waiting)
        return await decided

    def _decide_waiting(self) -> None:
        """Decide the requests that have arrived so far."""
        assert self._graph is not None
        waiting, self._waiting = self._waiting, []
        found: Sequence[list[Decision] | None]
        try:
            found = self._graph.decisions([question for question, _ in waiting])
        except Exception:  # one of them spoils it: each by itself
            found = [None] * len(waiting)
        for (question, decided), decisions in zip(waiting, found, strict=True):
            if decided.cancelled():
                continue
            try:
                decided.set_result(self._by_table(question) if decisions is None else decisions)
            except Exception as error:
                decided.set_exception(error)

    def _by_table(self, question: Mapping[str, Any]) -> list[Decision]:
        """Decide with the model itself."""
        table, proba = request_table(self.model, _rows(question)), bool(question.get("proba"))
        answers = self.model.answers(
            table, question.get("cost"), proba=proba, prices=question.get("prices"), where="the request"
        )
        decisions: list[Decision] = answers.select(list(self.model.answer_columns())).to_pylist()
        if proba:
            columns = [answers.column(name).to_pylist() for name in self.model.proba_columns]
            for one, *values in zip(decisions, *columns, strict=True):
                one["proba"] = dict(zip(self.model.classes.tolist(), values, strict=True))
        return decisions

    def _draw(self, decisions: list[Decision]) -> int:
        """Say of each decision why it is to be reviewed, and return how many were drawn."""
        drawn = draw_audit([_is_rejected(one) for one in decisions], self.audit, self._rng)
        for one, audited in zip(decisions, drawn.tolist(), strict=True):
            one[WHY] = DECLINED if _is_rejected(one) else AUDIT if audited else None
        return int(drawn.sum())


def _is_rejected(one: Mapping[str, Any]) -> bool:
    """Return whether a decision is not an answer yet."""
    return bool(one["decision"] == "ask" if "decision" in one else one["rejected"])


def _rows(question: Mapping[str, Any]) -> Sequence[Row]:
    rows: Sequence[Row] = (question["row"],) if "row" in question else question["rows"]
    return rows


class GraphModel:
    """A model that decides a few rows with ONNX Runtime, which takes a tenth of the time of scikit-learn.

    Parameters
    ----------
    model : TableModel
        One that :func:`~demur.deploy.onnx.onnx_model` can export with probabilities.
    """

    def __init__(self, model: TableModel) -> None:
        import onnxruntime

        from demur.columns import Schema
        from demur.deploy.onnx import onnx_model

        self.model = model
        numbers = tuple(Column(f"x{k}", "number") for k in range(len(model.schema.columns)))
        graph = onnx_model(replace(model, schema=Schema(numbers, model.target)))  # from the codes of the columns
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # threads that share the work of a few rows take longer
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(graph.SerializeToString(), options)
        self._encoders = [(column.name, _encoder(column)) for column in model.schema.columns]
        self._classes = as_column(model.classes, model.label_type).to_pylist()
        self._names: list[str] = model.classes.tolist()
        self._position = {name: k for k, name in enumerate(self._classes)}

    @classmethod
    def of(cls, model: TableModel) -> "GraphModel | None":
        """Return the model, or None for one that cannot be exported."""
        from demur.errors import MissingExtraError

        detects_novelty = getattr(model.classifier, "known_rows_", None) is not None  # which no graph does
        if model.reads != "codes" or model.asks_experts or not model.has_proba or detects_novelty:
            return None
        try:
            from demur.deploy.onnx import ExportError

            return cls(model)
        except (ImportError, MissingExtraError, ExportError):
            return None

    def decisions(self, questions: Sequence[Mapping[str, Any]]) -> list[list[Decision] | None]:
        """Return the decisions of several requests, or None for those that the model itself has to decide.

        These have a novel row or a new category, whose reason names columns, or a cost where that is fixed.
        """
        found: list[list[Decision] | None] = [None] * len(questions)
        encoded = {k: rows for k, one in enumerate(questions) if (rows := self._encoded(one)) is not None}
        codes = np.array([row for rows in encoded.values() for row in rows])
        if not len(codes):
            return found
        novel = np.zeros(len(codes), dtype=bool) if self.model.novelty is None else self.model.novelty.novel(codes)
        label, reject, confidence, proba = self._session.run(
            ["label", "reject", "confidence", "proba"], {"features": codes}
        )
        every, first = np.arange(len(codes)), [self._position[name] for name in label.tolist()]
        if self.model.cost_adjustable:
            given = [questions[k].get("cost") for k, rows in encoded.items() for _ in rows]
            costs = np.array([self.model.cost if cost is None else cost for cost in given], dtype=np.float64)
            reject = ~(chow_acceptance(confidence, costs) > 0)
        else:
            confidence = proba[every, first]
        others = proba.copy()
        others[every, first] = -np.inf
        columns = (reject.tolist(), confidence.tolist(), others.argmax(axis=1).tolist())
        decisions = [self._written(*one) for one in zip(first, *columns, strict=True)]
        start = 0
        for k, rows in encoded.items():
            own, start = slice(start, start + len(rows)), start + len(rows)
            if novel[own].any():
                continue
            found[k] = decisions[own]
            if questions[k].get("proba"):
                for one, values in zip(decisions[own], proba[own].tolist(), strict=True):
                    one["proba"] = dict(zip(self._names, values, strict=True))
        return found

    def _encoded(self, question: Mapping[str, Any]) -> list[list[float]] | None:
        if question.get("cost") is not None and not self.model.cost_adjustable:
            return None
        try:
            return [[encode(row[name]) for name, encode in self._encoders] for row in _rows(question)]
        except KeyError:  # a new category
            return None

    def _written(self, first: int, reject: bool, confidence: float, second: int) -> Decision:
        label, other = self._classes[first], self._classes[second]
        values = (None if reject else label, reject, confidence, label, other, "ambiguous" if reject else None)
        return dict(zip(ANSWER_COLUMNS, values, strict=True))


def _encoder(column: Column) -> Callable[[Any], float]:
    """Return the function from a value of a request to its code, as :meth:`Column.encode` makes it."""
    if column.kind == "category":
        codes = {text: float(code) for code, text in enumerate(column.categories)}
        if column.other:
            return lambda value: math.nan if value is None else codes.get(str(value), float(len(codes)))
        return lambda value: math.nan if value is None else codes[str(value)]
    if column.kind in ("number", "boolean"):
        return lambda value: math.nan if value is None else float(value)
    return lambda value: float(column.encode(column_array(column, [value]), "the request")[0])


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
            rejected = "true" if _is_rejected(one) else "false"
            choice = one.get("first_choice", one.get("answer"))  # a cascade that asks has none yet
            name = "(none)" if choice is None else str(choice) if self._names_classes else "(any)"
            self._decisions.labels(name, rejected).inc()
            self._confidence.observe(one["confidence"])
        self._rows.inc(len(decisions))
        self._rejected.inc(sum(map(_is_rejected, decisions)))
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
