"""Answers to checked requests: decisions of the model, the random audit, and the metrics."""

import asyncio
import json
import logging
import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from demur import __version__
from demur.array_types import AnyMapping, ByName
from demur.columns import Column
from demur.deploy.request_types import RequestError, column_array, request_table
from demur.errors import InputError
from demur.novelty import UNSEEN
from demur.rules import chow_acceptance
from demur.tabular import ANSWER_COLUMNS, TableModel
from demur.tabular.review_queue import AUDIT, DECLINED, WHY, check_audit, draw_audit
from demur.tabular.table_files import as_column
from demur.tabular.table_model import top_scores

_log = logging.getLogger("demur.deploy")

_Decided: TypeAlias = list[Any]
"""First and second choice, rejection, confidence and probabilities of a row."""

_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False)

_MOST_TOGETHER = 32
"""Maximum number of rows of a request that is decided together with other requests; more would delay these."""

_MOST_PROBA = 1_000_000
"""Maximum number of probabilities in one answer."""


class Answerer:
    """Answers the requests to a model.

    Where the model can be exported, requests of few rows that arrive at the same time are decided together, with ONNX
    Runtime. Others are decided in a thread, so that these do not wait.

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
        self.n_open = 0  # requests to decide, also those whose body has not arrived
        self._batch: tuple[list[list[float]], list[Any]] = [], []

    async def answer(self, question: AnyMapping) -> bytes:
        """Return the answer to a question that was checked, as JSON."""
        try:
            decisions = await self._decisions(question)
        except InputError:
            raise
        except Exception as error:  # whatever a model may raise: the service goes on
            _log.exception("a request failed")
            raise RequestError("the service failed on this request; its log has the reason.", 500) from error
        n_audited = self._draw(decisions) if self.audit else 0
        cost = question.get("cost")
        document = {"decisions": decisions, "cost": self.model.cost if cost is None else cost, "model": self._about}
        if self.model.asks_experts:
            document["prices"] = {**self.model.experts.prices, **(question.get("prices") or {})}
        try:
            answer = _JSON.encode(document).encode()
        except ValueError:  # a column of tiny numbers can make any other overflow once scaled
            raise RequestError("a number is too far from the training data: give null instead.") from None
        self.metrics.count_decisions(decisions, n_audited)
        return answer

    async def _decisions(self, question: AnyMapping) -> list[ByName]:
        rows, n_classes = question.get("rows") or [question["row"]], len(self.model.classes)
        if question.get("proba") and len(rows) * n_classes > _MOST_PROBA:
            problem = f"{len(rows):,} rows of {n_classes:,} classes have more than {_MOST_PROBA:,}"
            raise RequestError(f"{problem} probabilities: send the rows in several requests.", 413)
        graph, cost = self._graph, question.get("cost")
        if graph is not None and len(rows) <= _MOST_TOGETHER and (cost is None or self.model.cost_adjustable):
            codes = None if question.get("why") else graph.encoded(rows)
            if codes and None not in (found := await self._by_graph(graph, codes)):
                return [graph.decision(one, cost, question.get("proba")) for one in found]
        return await asyncio.to_thread(self._by_table, rows, question)

    async def _by_graph(self, graph: "GraphModel", codes: list[list[float]]) -> list[Any]:
        """Decide rows together with those of other requests that have arrived; None leaves one to the model."""
        waiting, found = batch = self._batch
        first = len(waiting)
        waiting += codes
        if self.n_open > 1:
            await asyncio.sleep(0)  # other requests add their rows, and the first that continues decides all of them
        if self._batch is batch:
            self._batch = [], []
            try:
                found += graph.decided(waiting)
            except Exception:  # one of the rows failed: the model itself decides each request
                found += [None] * len(waiting)
        return found[first : first + len(codes)]

    def _by_table(self, rows: list[AnyMapping], question: AnyMapping) -> list[ByName]:
        """Decide with the model itself."""
        table, cost, proba = request_table(self.model, rows), question.get("cost"), question.get("proba")
        answers = self.model.answers(table, cost, proba=bool(proba), prices=question.get("prices"), where="the request")
        decisions: list[ByName] = answers.to_pylist()
        if proba:
            names, columns = self.model.classes.tolist(), self.model.proba_columns
            for one in decisions:
                one["proba"] = dict(zip(names, map(one.pop, columns), strict=True))
        if question.get("why"):
            found = self.model.because(table, [_is_rejected(one) for one in decisions], cost)
            for one, because in zip(decisions, found, strict=True):
                one["because"] = because
        return decisions

    def _draw(self, decisions: list[ByName]) -> int:
        """Mark each decision that is to be reviewed with the reason, and return how many were drawn."""
        drawn = draw_audit([_is_rejected(one) for one in decisions], self.audit, self._rng)
        for one, audited in zip(decisions, drawn.tolist(), strict=True):
            one[WHY] = DECLINED if _is_rejected(one) else AUDIT if audited else None
        return int(drawn.sum())


def _is_rejected(one: AnyMapping) -> bool:
    """Return whether a decision is not an answer: declined, or to be asked."""
    return bool(one["decision"] == "ask" if "decision" in one else one["rejected"])


class GraphModel:
    """A model that decides single rows with ONNX Runtime, which takes a tenth of the time of scikit-learn.

    Parameters
    ----------
    model : TableModel
        One with probabilities that can be exported.
    """

    def __init__(self, model: TableModel) -> None:
        from demur.deploy.onnx.onnx_export import class_values, onnx_model
        from demur.deploy.onnx.onnx_graph import session

        self.model = model
        self._session = session(onnx_model(model.classifier).SerializeToString())
        self._encoders = [(column.name, _encoder(column)) for column in model.schema.columns]
        self._classes = as_column(model.classes, model.label_type).to_pylist()
        self._number = {name: k for k, name in enumerate(class_values(model.classifier).tolist())}

    @classmethod
    def of(cls, model: TableModel) -> "GraphModel | None":
        """Return the model, or None for one that cannot be exported."""
        if model.reads != "codes" or model.schema.text.any() or model.asks_experts or not model.has_proba:
            return None
        if getattr(model.classifier, "known_rows_", None) is not None:  # no graph detects novel rows
            return None
        try:
            return cls(model)
        except (ImportError, ValueError):  # no ONNX Runtime, or no ONNX form
            return None

    def encoded(self, rows: Sequence[AnyMapping]) -> list[list[float]] | None:
        """Return the codes of rows; None if a category is new, which the reason of the model itself names."""
        try:
            return [
                [math.nan if row[name] is None else encode(row[name]) for name, encode in self._encoders]
                for row in rows
            ]
        except KeyError:
            return None

    def decided(self, codes: list[list[float]]) -> list[_Decided | None]:
        """Decide rows given by their codes; None for a novel row, whose reason names columns as well."""
        rows, novelty = np.array(codes), self.model.novelty
        names, reject, confidence, proba = self._session.run(None, {"features": rows})
        label = [self._number[name] for name in names.tolist()]
        top = top_scores(proba, np.array(label))
        if not self.model.cost_adjustable:  # where the rule compares another number
            confidence = top[:, 0]
        novel = [False] * len(rows) if novelty is None else novelty.novel(rows)
        columns = label, top[:, 1].astype(int).tolist(), reject.tolist(), confidence.tolist(), proba
        return [None if is_novel else one for is_novel, *one in zip(novel, *columns, strict=True)]

    def decision(self, decided: _Decided, cost: float | None, proba: bool | None) -> ByName:
        """Return the decision for a row at the cost of its request."""
        label, second, rejected, confidence, likely = decided
        if cost is not None:
            rejected = not chow_acceptance(confidence, cost) > 0
        first = self._classes[label]
        values = (None if rejected else first, rejected, confidence, first, self._classes[second])
        decision = dict(zip(ANSWER_COLUMNS, (*values, "ambiguous" if rejected else None), strict=True))
        if proba:
            decision["proba"] = dict(zip(self.model.classes.tolist(), likely.tolist(), strict=True))
        return decision


def _encoder(column: Column) -> Callable[[Any], float]:
    """Return the function from a value of a request to its code, as :meth:`Column.encode` makes it."""
    if column.kind in ("number", "boolean"):
        return float
    codes = {text: float(code) for code, text in enumerate(column.categories)}

    def encode(value: Any) -> float:
        if (code := codes.get(str(value))) is None:
            code = float(column.encode(column_array(column, [value]), "the request", UNSEEN)[0])
            if column.kind == "category" and code == UNSEEN:
                raise KeyError(value)
        return code

    return encode


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
        self._registry = own = CollectorRegistry()
        self._names_classes = n_classes <= _MOST_CLASSES
        counter, histogram = partial(Counter, registry=own), partial(Histogram, registry=own)
        self._requests = counter("demur_requests", "Requests.", ["path", "status"])
        self._seconds = histogram("demur_request_seconds", "Duration of requests.", ["path"], buckets=_SECONDS)
        self._rows = counter("demur_rows", "Rows decided.")
        self._rejected = counter("demur_rows_rejected", "Rows that the model declined.")
        self._audited = counter("demur_rows_audited", "Answered rows drawn for review.")
        words = "Rows by first choice and by whether the model declined."
        self._decisions = counter("demur_decisions", words, ["class", "rejected"])
        self._confidence = histogram("demur_confidence", "Confidence in the first choice.", buckets=_CONFIDENCE)
        names = ["name", "target", "version"]
        info = Gauge("demur_model_info", "The model that answers.", names, registry=own, multiprocess_mode="max")
        info.labels(model, target, __version__).set(1)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request and its duration."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_decisions(self, decisions: Sequence[AnyMapping], n_audited: int = 0) -> None:
        """Count the rows of an answer."""
        for one in decisions:
            rejected = str(_is_rejected(one)).lower()
            choice = one.get("first_choice", one.get("answer"))  # a cascade that asks has none yet
            name = "(none)" if choice is None else str(choice) if self._names_classes else "(any)"
            self._decisions.labels(name, rejected).inc()
            self._confidence.observe(one["confidence"])
        self._rows.inc(len(decisions))
        self._rejected.inc(sum(map(_is_rejected, decisions)))
        self._audited.inc(n_audited)

    def text(self) -> bytes:
        """Return all counts in Prometheus's text format."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call] # it registers itself
        return generate_latest(shared)
