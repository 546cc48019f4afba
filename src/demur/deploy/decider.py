"""From the body of a request to the body of its answer: alone, or several requests in one go.

A request of a few rows does not pass through Arrow: its values become codes one by one, requests that wait are decided
together, and the answers are written as they are. That this gives what :meth:`TableModel.answers` gives is tried out
when a model is taken into service, on rows of its own columns; where it does not, every request takes the long way.
"""

import asyncio
import json
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped] # it has no types

from demur.columns import Column, TableError
from demur.deploy.service_metrics import ServiceMetrics
from demur.deploy.service_schema import Asked, RefusedError, Requests, Row, column_array
from demur.errors import InputError
from demur.novelty import UNSEEN
from demur.tabular import ANSWER_COLUMNS, TableModel
from demur.tabular.class_labels import as_column
from demur.tabular.review_queue import AUDIT, DECLINED, WHY, check_audit, draw_audit
from demur.tabular.table_model import LARGEST

__all__ = ["Decider", "Lanes"]

_FEW_ROWS = 64
"""Rows of a request that is decided together with others."""

_MOST_TOGETHER = 64
"""Requests that are decided in one go."""

_QUICK_SECONDS = 1e-2
"""A model that needs longer for a row decides in a thread of its own."""

_Answered = bytes | Exception

_WRITER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


class Decider:
    """Answers requests with a model; it knows nothing of HTTP.

    Parameters
    ----------
    model : TableModel
    max_rows : int
    metrics : ServiceMetrics, optional
        Counts what was decided.
    audit : float, default 0
        The share of answered rows to draw for a review; above 0, each decision says ``why`` it is to be reviewed.
    rng : numpy.random.Generator, optional
        Draws them; by default one that is seeded by the system.

    Attributes
    ----------
    is_quick : bool
        Whether small requests take the short way, after having been compared with the long one.
    seconds : float
        What one row took when that was tried out.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from demur.tabular import fit_table
    >>> table = pa.table({"size": [1.0, 1.1, 1.2, 5.0, 5.1, 5.2] * 9, "y": list("aaabbb") * 9})
    >>> decider = Decider(fit_table(table, "y", model="lr"), max_rows=10)
    >>> answer = json.loads(decider.answer(b'{"row": {"size": 5.1}}'))
    >>> answer["decisions"][0]["prediction"], answer["cost"], decider.is_quick
    ('b', 0.2, True)
    """

    def __init__(
        self,
        model: TableModel,
        max_rows: int,
        metrics: ServiceMetrics | None = None,
        *,
        audit: float = 0.0,
        rng: np.random.Generator | None = None,
    ) -> None:
        check_audit(audit)
        self.model, self.audit = model, audit
        self._rng = np.random.default_rng() if rng is None else rng  # its methods lock it: threads may share it
        self.metrics = ServiceMetrics() if metrics is None else metrics
        self.requests = Requests(model, max_rows)
        self.about = {"name": str(model.facts.get("model", "model")), "target": model.target}
        self._encoders = [_encoder(column) for column in model.schema.columns]
        self._classes = as_column(model.classes, model.label_type).to_pylist()
        self._names = model.classes.tolist()
        self._cost, self._cost_adjustable = model.cost, model.cost_adjustable
        self._by_rule = model.has_proba and not model.cost_adjustable
        self._categorical = model.schema.categorical
        self._end = _WRITER.encode({"model": self.about})[1:]
        self.is_quick, self.seconds = self._try_out()

    def answer(self, body: bytes) -> bytes:
        """Return the answer to the body of a request as JSON, or raise a :class:`RefusedError`."""
        (answer,) = self.answers([self.prepare(body)])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def prepare(self, body: bytes) -> Asked:
        """Read a request, or raise a :class:`RefusedError` that says what is wrong with it."""
        asked = self.requests.read_rows(body)
        try:
            if asked.cost is not None and not (self._cost_adjustable and 0 <= asked.cost < 0.5):  # right at a glance
                self.model.check_cost(asked.cost)
            if asked.prices is not None:
                self.model.check_prices(asked.prices)
        except InputError as error:
            raise RefusedError(str(error)) from error
        is_few = self.is_quick and len(asked.rows) <= _FEW_ROWS and asked.prices is None
        return replace(asked, codes=self._codes(asked.rows)) if is_few else asked

    def answers(self, asked: Sequence[Asked]) -> list[_Answered]:
        """Return the answer to each of several requests, or what went wrong with it."""
        together = [one for one in asked if one.codes is not None]
        found: dict[int, list[dict[str, Any]] | Exception] = {}
        if together:
            try:
                found = dict(zip(map(id, together), self._together(together), strict=True))
            except Exception:  # one of them spoils it for all: each for itself, then
                found = {}
        return [self._told(one, found[id(one)] if id(one) in found else self._alone(one)) for one in asked]

    def _alone(self, asked: Asked) -> list[dict[str, Any]] | Exception:
        """Decide the long way."""
        try:
            question = self.requests.question(asked)
            options: dict[str, Any] = {"proba": question.proba, "prices": question.prices, "where": "the request"}
            answers = self.model.answers(question.table, question.cost, **options)
            _check_certain(answers["confidence"].to_numpy())
        except TableError as error:
            return error if isinstance(error, RefusedError) else RefusedError(str(error))
        except Exception as error:  # for the log
            return error
        decisions: list[dict[str, Any]] = answers.select(list(self.model.answer_columns())).to_pylist()
        if asked.proba:
            columns = [answers.column(name).to_pylist() for name in self.model.proba_columns]
            for decision, *values in zip(decisions, *columns, strict=True):
                decision["proba"] = dict(zip(self._names, values, strict=True))
        return decisions

    def _together(self, asked: Sequence[Asked]) -> list[list[dict[str, Any]] | Exception]:
        """Decide the short way, all rows in one go."""
        codes = np.concatenate([one.codes for one in asked if one.codes is not None])
        sizes = [len(one.rows) for one in asked]
        own, costs = self._cost, None
        if own is not None and self._cost_adjustable:
            costs = np.repeat(np.array([own if one.cost is None else one.cost for one in asked], dtype=float), sizes)
        novel = np.zeros(len(codes), dtype=bool) if self.model.novelty is None else self.model.novelty.novel(codes)
        codes[(codes == UNSEEN) & self._categorical] = np.nan
        decisions, confidence, scores = self._decisions(codes, costs, novel)
        found: list[list[dict[str, Any]] | Exception] = []
        start = 0
        for one, size in zip(asked, sizes, strict=True):
            part = slice(start, start + size)
            start += size
            if novel[part].any():  # what is to say about it takes the long way
                found.append(self._alone(one))
                continue
            try:
                _check_certain(confidence[part])
            except RefusedError as error:
                found.append(error)
                continue
            if one.proba:
                for decision, values in zip(decisions[part], scores[part].tolist(), strict=True):
                    decision["proba"] = dict(zip(self._names, values, strict=True))
            found.append(decisions[part])
        return found

    def _decisions(
        self, codes: NDArray[np.float64], costs: NDArray[np.float64] | None, novel: NDArray[np.bool_]
    ) -> tuple[list[dict[str, Any]], NDArray[np.float64], NDArray[np.float64]]:
        """Return what :meth:`TableModel.answers` does, as plain values, the confidences, and the scores.

        Rows that the classifier itself finds novel are added to ``novel``.
        """
        quick = self.model.quick()
        codes[np.abs(codes) > LARGEST] = np.nan
        decision, scores = quick.classifier.decide_and_score(quick.features(codes), costs)
        if decision.novel is not None:
            novel |= decision.novel
        label, rows = decision.label, np.arange(len(scores))
        confidence = scores[rows, label] if self._by_rule else np.asarray(decision.confidence, dtype=np.float64)
        others = np.array(scores, dtype=np.float64)
        others[rows, label] = -np.inf
        parts = (label, decision.reject, confidence, others.argmax(axis=1))
        named, decisions = self._classes, []
        for first, reject, sure, second in zip(*(part.tolist() for part in parts), strict=True):
            reason = "ambiguous" if reject else None
            values = (None if reject else named[first], reject, sure, named[first], named[second], reason)
            decisions.append(dict(zip(ANSWER_COLUMNS, values, strict=True)))
        return decisions, confidence, scores

    def _told(self, asked: Asked, decisions: list[dict[str, Any]] | Exception) -> _Answered:
        """Count what was decided, and write it; the cost is the one that decided, None where there is none."""
        if isinstance(decisions, Exception):
            return decisions
        self.metrics.decided(*([one[name] for one in decisions] for name in ("first_choice", "rejected", "confidence")))
        if self.audit:
            self._draw(decisions)
        document: dict[str, Any] = {"decisions": decisions}
        document["cost"] = self._cost if asked.cost is None else asked.cost
        if self.model.asks_experts:
            document["prices"] = {**self.model.experts.prices, **(asked.prices or {})}
        try:
            text = _WRITER.encode(document)
        except ValueError as error:
            return error
        return f"{text[:-1]},{self._end}".encode()

    def _draw(self, decisions: list[dict[str, Any]]) -> None:
        """Say of each decision why it is to be reviewed: declined, drawn for the audit, or not at all."""
        drawn = draw_audit([one["rejected"] for one in decisions], self.audit, self._rng)
        for one, audited in zip(decisions, drawn.tolist(), strict=True):
            one[WHY] = DECLINED if one["rejected"] else AUDIT if audited else None
        self.metrics.audited(int(drawn.sum()))

    def _codes(self, rows: Sequence[Row]) -> NDArray[np.float64]:
        codes = np.empty((len(rows), len(self._encoders)))
        for number, row in enumerate(rows):
            for position, (name, encode) in enumerate(self._encoders):
                codes[number, position] = encode(number, row[name])
        return codes

    def _try_out(self) -> tuple[bool, float]:
        """Compare both ways on rows of this model's columns, and time the short one."""
        if self.model.asks_experts or self.model.reads != "codes":
            return False, math.inf
        rows, spent = _rows_to_try(self.model), math.inf
        try:
            asked = [
                Asked(part, None, proba=self.model.has_proba and n_rows > 1, codes=self._codes(part))
                for part, n_rows in ((rows[:1], 1), (rows[1:3], 2), (rows[3:], len(rows)))
            ]
            for _ in range(3):
                started = time.thread_time()
                self._together(asked[:1])
                spent = min(spent, time.thread_time() - started)
            short = [*self._together(asked), *(self._together([one])[0] for one in asked)]
        except Exception:  # whatever a model may raise: the long way says what it is
            return False, math.inf
        long = [self._alone(one) for one in asked]
        return all(_alike(one, other) for one, other in zip(short, [*long, *long], strict=True)), spent


def _alike(one: list[dict[str, Any]] | Exception, other: list[dict[str, Any]] | Exception) -> bool:
    if isinstance(one, Exception) or isinstance(other, Exception):
        return type(one) is type(other) and str(one) == str(other)
    return one == other


def _check_certain(confidence: NDArray[np.float64]) -> None:
    certain = np.isfinite(confidence)
    if not certain.all():  # a column of tiny numbers can make any other overflow once it is scaled
        row = int(np.argmin(certain)) + 1
        problem = f"row {row:,} holds a number too far from those that the model was fitted on"
        raise RefusedError(f"{problem}: correct it or give null")


_Encode = Callable[[int, Any], float]


def _encoder(column: Column) -> tuple[str, _Encode]:
    """Return the name of a column, and from the number of a row and its value to the code of the value."""
    if column.kind in ("number", "boolean"):
        return column.name, lambda row, value: math.nan if value is None else float(value)
    if column.kind == "category":
        codes = {text: float(code) for code, text in enumerate(column.categories)}
        other = float(len(codes)) if column.other else UNSEEN

        def of_text(row: int, value: Any) -> float:
            if value is None:
                return math.nan
            text = value if isinstance(value, str) else str(value)
            code = codes.get(text)
            if code is None:
                _refuse_half_characters(column, row, text)
                return other
            return code

        return column.name, of_text

    def by_arrow(row: int, value: Any) -> float:
        values: list[Any] = [None] * row
        return float(column.encode(column_array(column, [*values, value])[row:], "the request")[0])

    return column.name, by_arrow


def _refuse_half_characters(column: Column, row: int, text: str) -> None:
    if not text.isascii():
        column_array(column, [*[None] * row, text])


def _rows_to_try(model: TableModel) -> list[Row]:
    """Return rows as requests give them: usual and unusual numbers, all kinds of categories, and missing values."""
    rng = np.random.default_rng(0)
    n_rows = 24
    values = {column.name: _values_to_try(column, model, position, rng, n_rows)
              for position, column in enumerate(model.schema.columns)}  # fmt: skip
    rows: list[Row] = [{name: own[number] for name, own in values.items()} for number in range(n_rows)]
    rows[3] = dict.fromkeys(values)
    return rows


def _values_to_try(column: Column, model: TableModel, position: int, rng: Any, n_rows: int) -> list[Any]:
    values: list[Any]
    if column.kind == "boolean":
        values = rng.choice([True, False], n_rows).tolist()
    elif column.kind == "category":
        known = [*column.categories, "no such category"]
        values = [known[k] for k in rng.integers(len(known), size=n_rows)]
    elif column.kind == "number":
        centre, scale = _usual(model, position)
        values = (centre + scale * rng.normal(size=n_rows)).tolist()
        values[-2:] = [-LARGEST / 10, LARGEST / 10]
    elif column.kind == "time":
        values = [round(one, 3) for one in rng.uniform(0, 86_400, n_rows).tolist()]
    else:
        days = np.datetime64("2024-01-01") + rng.integers(-20_000, 20_000, n_rows)
        values = [f"{day}T12:30:00Z" if column.zoned else str(day) for day in days]
    for gap in rng.integers(n_rows, size=2):
        values[gap] = None
    return values


def _usual(model: TableModel, position: int) -> tuple[float, float]:
    """Return about where the numbers of a column lie, as far as the ranges of training or the dense view tell."""
    try:
        space = model.novelty.space_ if model.novelty is not None else None
        if space is not None:
            place = space.numeric.tolist().index(position)
            return float(space.low[place] + space.high[place]) / 2, float(space.high[place] - space.low[place]) / 8
        _, steps, columns = model.dense.transformers_[0]
        place = columns.tolist().index(position)
        return float(steps[1].mean_[place]), float(steps[1].scale_[place])
    except (AttributeError, TypeError, ValueError, IndexError):
        return 0.0, 1.0


class Lanes:
    """Who computes: small requests that wait are decided together, large ones one by one in a thread of their own.

    A model that is quick decides small requests where they arrive, which saves their way to a thread and back, and at
    once where no other has come. One thread for each lane is enough: deciding is bound by the processor, and what is
    large uses the cores by itself.

    Parameters
    ----------
    decider : Decider
    is_alone : callable, optional
        Says of a request whether no other is known to have come with it.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from demur.tabular import fit_table
    >>> table = pa.table({"size": [1.0, 1.1, 1.2, 5.0, 5.1, 5.2] * 9, "y": list("aaabbb") * 9})
    >>> lanes = Lanes(Decider(fit_table(table, "y", model="lr"), max_rows=10))
    >>> json.loads(asyncio.run(lanes.run(b'{"row": {"size": 5.1}}')))["decisions"][0]["prediction"]
    'b'
    """

    MOST_WAITING = 128
    """Requests under way; what each holds in memory is bounded by the largest body."""

    _SMALL = 1 << 16
    """The bytes of a body that is small."""

    def __init__(self, decider: Decider, is_alone: Callable[[], bool] = lambda: False) -> None:
        self.decider, self.is_alone = decider, is_alone
        self.under_way = 0
        self._here = decider.is_quick and decider.seconds < _QUICK_SECONDS
        self._waiting: list[tuple[Asked, asyncio.Future[bytes]]] = []
        self._is_busy = False
        self._small = ThreadPoolExecutor(1, "demur-small", initializer=_one_thread)
        self._large = ThreadPoolExecutor(1, "demur-large")
        # Threads that share a product of a few rows wait for each other longer than one alone needs for it.
        threadpool_limits(1, user_api="blas")

    async def run(self, body: bytes) -> bytes:
        """Return the answer to a body that has arrived; errors come through."""
        if self.under_way >= self.MOST_WAITING:
            problem = f"the service is busy with {self.under_way:,} requests"
            raise RefusedError(f"{problem}: try again in a second", status=503)
        self.under_way += 1
        try:
            loop = asyncio.get_running_loop()
            if len(body) > self._SMALL:
                return await loop.run_in_executor(self._large, self.decider.answer, body)
            asked = self.decider.prepare(body)
            if asked.codes is None:
                return await loop.run_in_executor(self._small, self._alone, asked)
            if self._here and not self._is_busy and self.is_alone():
                return self._alone(asked)
            answered: asyncio.Future[bytes] = loop.create_future()
            self._waiting.append((asked, answered))
            if not self._is_busy:
                self._is_busy = True
                loop.call_soon(self._decide)
            return await answered
        finally:
            self.under_way -= 1

    def _alone(self, asked: Asked) -> bytes:
        (answer,) = self.decider.answers([asked])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _decide(self) -> None:
        """Decide what waits, after all that has just arrived was read."""
        now, self._waiting = self._waiting[:_MOST_TOGETHER], self._waiting[_MOST_TOGETHER:]
        asked = [one for one, _ in now]
        if self._here:
            self._done(now, self.decider.answers(asked))
            return
        loop = asyncio.get_running_loop()
        computing = loop.run_in_executor(self._small, self.decider.answers, asked)
        computing.add_done_callback(lambda done: self._done(now, done.result()))

    def _done(self, now: list[tuple[Asked, "asyncio.Future[bytes]"]], answers: list[_Answered]) -> None:
        for (_, answered), answer in zip(now, answers, strict=True):
            if answered.cancelled():
                continue
            if isinstance(answer, Exception):
                answered.set_exception(answer)
            else:
                answered.set_result(answer)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._decide)
        else:
            self._is_busy = False


def _one_thread() -> None:
    """Keep the few rows of a small request from being divided among threads, which takes longer than deciding."""
    threadpool_limits(1, user_api="openmp")
