"""From a checked request to its answer: decisions of the model, the draw for review, and the counts."""

import asyncio
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from demur.columns import Column, TableError
from demur.deploy.request_types import RequestError, column_array, request_table
from demur.deploy.service_metrics import ServiceMetrics
from demur.novelty import UNSEEN
from demur.rules import chow_acceptance
from demur.tabular import ANSWER_COLUMNS, TableModel
from demur.tabular.class_labels import as_column
from demur.tabular.review_queue import AUDIT, DECLINED, WHY, check_audit, draw_audit
from demur.tabular.table_model import LARGEST

__all__ = ["Answerer", "GraphModel"]

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
        Draws them.

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
        except TableError as error:
            raise error if isinstance(error, RequestError) else RequestError(str(error)) from error
        except Exception as error:  # whatever a model may raise: the service goes on
            _log.exception("a request failed")
            raise RequestError("the service failed on this request; its log says why.", 500) from error
        for number, one in enumerate(decisions, 1):
            if not math.isfinite(one["confidence"]):  # a column of tiny numbers can make any other overflow once scaled
                raise RequestError(f"row {number:,} holds a number too far from the training data: give null instead.")
        n_audited = self._draw(decisions) if self.audit else 0
        self.metrics.count_decisions(decisions, n_audited)
        cost = question.get("cost")
        document = {"decisions": decisions, "cost": self.model.cost if cost is None else cost, "model": self._about}
        if self.model.asks_experts:
            document["prices"] = {**self.model.experts.prices, **(question.get("prices") or {})}
        return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()

    async def _decisions(self, question: Mapping[str, Any]) -> list[Decision]:
        rows = _rows(question)
        if question.get("proba") and len(rows) * len(self.model.classes) > _MOST_PROBA:
            problem = f"{len(rows):,} rows of {len(self.model.classes):,} classes have more than {_MOST_PROBA:,}"
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
        drawn = draw_audit([one["rejected"] for one in decisions], self.audit, self._rng)
        for one, audited in zip(decisions, drawn.tolist(), strict=True):
            one[WHY] = DECLINED if one["rejected"] else AUDIT if audited else None
        return int(drawn.sum())


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
        self._session.run(["label", "reject", "confidence", "proba"], {"features": np.zeros((1, len(numbers)))})
        self._encoders = [(column.name, _encoder(column)) for column in model.schema.columns]
        self._classes = as_column(model.classes, model.label_type).to_pylist()
        self._position = {name: k for k, name in enumerate(self._classes)}
        self._categorical, self._cost = model.schema.categorical, model.cost if model.cost_adjustable else None

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
        """Return the decisions of several requests, or None for those with a novel row or a new category."""
        model, sizes = self.model, [len(_rows(question)) for question in questions]
        codes = np.array(
            [[encode(row[name]) for name, encode in self._encoders] for one in questions for row in _rows(one)]
        )
        novel = np.zeros(len(codes), dtype=bool) if model.novelty is None else model.novelty.novel(codes)
        unseen = (codes == UNSEEN) & self._categorical
        novel |= unseen.any(axis=1)  # their reason names the columns
        codes[unseen] = np.nan
        codes[np.abs(codes) > LARGEST] = np.nan
        label, reject, confidence, proba = self._session.run(
            ["label", "reject", "confidence", "proba"], {"features": codes}
        )
        first = np.array([self._position[name] for name in label.tolist()])
        if self._cost is not None:
            costs = [self._cost if one.get("cost") is None else one["cost"] for one in questions]
            reject = ~(chow_acceptance(confidence, np.repeat(costs, sizes)) > 0)
        else:
            confidence = proba[np.arange(len(proba)), first]
        others = proba.copy()
        others[np.arange(len(proba)), first] = -np.inf
        found = self._written(first, reject, confidence, others.argmax(axis=1))
        ends = np.cumsum(sizes)
        results: list[list[Decision] | None] = []
        for question, start, end in zip(questions, ends - sizes, ends, strict=True):
            if question.get("proba"):
                for one, values in zip(found[start:end], proba[start:end].tolist(), strict=True):
                    one["proba"] = dict(zip(model.classes.tolist(), values, strict=True))
            results.append(None if novel[start:end].any() else found[start:end])
        return results

    def _written(
        self, first: NDArray[Any], reject: NDArray[Any], confidence: NDArray[Any], second: NDArray[Any]
    ) -> list[Decision]:
        named, decisions = self._classes, []
        for one, declined, sure, other in zip(
            *map(np.ndarray.tolist, (first, reject, confidence, second)), strict=True
        ):
            reason = "ambiguous" if declined else None
            values = (None if declined else named[one], declined, sure, named[one], named[other], reason)
            decisions.append(dict(zip(ANSWER_COLUMNS, values, strict=True)))
        return decisions


def _encoder(column: Column) -> Callable[[Any], float]:
    """Return the function from a value of a request to its code, as :meth:`Column.encode` makes it."""
    if column.kind == "category":
        codes = {text: float(code) for code, text in enumerate(column.categories)}
        other = float(len(codes)) if column.other else UNSEEN
        return lambda value: math.nan if value is None else codes.get(str(value), other)
    if column.kind in ("number", "boolean"):
        return lambda value: math.nan if value is None else float(value)
    return lambda value: float(column.encode(column_array(column, [value]), "the request")[0])
