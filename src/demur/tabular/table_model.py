"""TableModel: from a table to decisions."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from demur.array_types import AnyArray, ByName, Estimator
from demur.columns.frames import as_table
from demur.columns.schema import Schema
from demur.costs import check_cost
from demur.deferral.experts import Expert, check_prices
from demur.errors import InputError
from demur.rules import Decision
from demur.tabular.class_labels import as_column
from demur.tabular.expert_columns import ASKING_COLUMNS, SYSTEM_ANSWER, ExpertColumns

__all__ = ["ANSWER_COLUMNS", "TableModel"]

ANSWER_COLUMNS = ("prediction", "rejected", "confidence", "first_choice", "second_choice")
"""The columns of :meth:`TableModel.answers`."""

LARGEST = 1e30
"""Numbers beyond this count as infinite, and so as missing: trees and networks compute in single precision."""

_PIECE = 64


@dataclass(frozen=True, eq=False)
class TableModel:
    """A fitted classifier that may decline or ask experts, and the columns it reads; made by :func:`fit_table`.

    Parameters
    ----------
    schema : Schema
        The columns it was fitted on, and the target.
    classifier : RejectOption, RejectClassifier or DeferOption
    dense : fitted transformer or None
        Turns the codes of the schema into numbers on one scale, for classifiers that need it.
    label_type : {"text", "integer", "number", "boolean"}
        How classes are written. Inside they are text.
    facts : dict
        What there is to know about the fit: ``model``, ``rows``, ``classes`` with their counts, and so on.
    experts : ExpertColumns
        Who can be asked, which columns hold their answers, at which prices, and the limits; nobody by default.

    Examples
    --------
    >>> table = pa.table({"size": [1.0, 1.1, 1.2, 5.0, 5.1, 5.2] * 20, "pet": ["cat"] * 60 + ["dog"] * 60})
    >>> from demur.tabular import fit_table
    >>> model = fit_table(table.append_column("y", pa.array([0, 0, 0, 1, 1, 1] * 20)), "y", model="lr")
    >>> model.answers(pa.table({"size": [1.05, 5.1], "pet": ["cat", "dog"]})).column("prediction").to_pylist()
    [0, 1]
    """

    schema: Schema
    classifier: Estimator
    dense: Any = None
    label_type: str = "text"
    facts: ByName = field(default_factory=dict)
    experts: ExpertColumns = field(default_factory=ExpertColumns)

    @property
    def target(self) -> str:
        """The name of the column with the labels."""
        return str(self.schema.target)

    @property
    def classes(self) -> AnyArray:
        """The class names, as text."""
        classes: AnyArray = self.classifier.classes_
        return classes

    @property
    def cost(self) -> float | None:
        """The price of one rejection by which it decides; None where its rule has no single one."""
        price: float | None = self.classifier.effective_cost
        return price

    @property
    def cost_adjustable(self) -> bool:
        """Whether another cost needs no refit."""
        return bool(self.classifier.cost_adjustable)

    @property
    def why_cost_fixed(self) -> str | None:
        """Say in words why another cost needs a refit, or return None."""
        why: str | None = self.classifier.why_cost_fixed
        return why

    @property
    def has_proba(self) -> bool:
        """Whether it has class probabilities, and not only trained scores."""
        return bool(self.classifier.has_proba)

    def explain(self) -> str | None:
        """Return what the rule chose and promises, in words; None for Chow's rule and for the losses' own."""
        words: str | None = self.classifier.explain()
        return words

    def check_cost(self, cost: ArrayLike) -> None:
        """Refuse a cost that cannot be one, or another than the model's where it cannot move."""
        prices = check_cost(cost)
        if not self.cost_adjustable and (self.cost is None or not np.all(prices == self.cost)):
            raise InputError(f"this model cannot decide for another cost: {self.why_cost_fixed}.")

    def check_prices(self, prices: Mapping[str, float] | None) -> None:
        """Refuse prices for somebody who cannot be asked, and what can be no price."""
        if not prices:
            return
        if not self.experts:
            raise InputError("this model asks nobody, so that there are no prices to change: fit it with experts.")
        check_prices(prices, {name: Expert(price) for name, price in self.experts.prices.items()}, 1)

    def features(self, table: Any, *, where: str = "the table") -> NDArray[np.float64]:
        """Return the numbers that the classifier takes."""
        if not isinstance(table, (pa.Table, pa.RecordBatch)):
            table = as_table(table)
        codes = self.schema.encode(table, where=where)
        codes[np.abs(codes) > LARGEST] = np.nan
        return codes if self.dense is None else np.asarray(self.dense.transform(codes), dtype=np.float64)

    def __repr__(self) -> str:
        model = self.facts.get("model", type(self.classifier).__name__)
        shape = f"{len(self.classes)} classes, {len(self.schema.columns)} columns"
        return f"TableModel({model!r} for {self.target!r}: {shape})"

    def decide(
        self, table: Any, cost: ArrayLike | None = None, prices: Mapping[str, float] | None = None
    ) -> Decision[AnyArray]:
        """Decide for each row of a table.

        Parameters
        ----------
        table : pyarrow.Table, RecordBatch, or a pandas or polars DataFrame
        cost : float or one per row, optional
            Another than the model was fitted with, where it may move.
        prices : mapping of names to float, optional
            Of asking experts, other than those that the model was fitted with.
        """
        return self.decide_and_score(table, cost, prices=prices)[0]

    def predict_proba(self, table: Any) -> NDArray[np.float64] | None:
        """Return class probabilities, or None for losses that have none."""
        return self.decide_and_score(table)[1] if self.has_proba else None

    def decide_and_score(
        self,
        table: Any,
        cost: ArrayLike | None = None,
        *,
        prices: Mapping[str, float] | None = None,
        where: str = "the table",
    ) -> tuple[Decision[AnyArray], NDArray[np.float64]]:
        """Return the decisions and one score per class: probabilities, or trained scores where there are none.

        Neither depends, to the last bit, on how many rows are asked for at once: products of a few rows use other
        kernels, so that what needs numbers on one scale gets full pieces of rows. Trees do not mind.
        """
        if cost is not None:
            self.check_cost(cost)
        self.check_prices(prices)
        features = self.features(table, where=where)
        n_rows, missing = len(features), -len(features) % _PIECE
        costs = None if cost is None or not self.cost_adjustable else np.asarray(cost, dtype=np.float64)
        if self.dense is not None and missing:
            features = np.concatenate([features, np.zeros((missing, features.shape[1]))])
            if costs is not None and costs.ndim:
                costs = np.concatenate([costs, np.zeros(missing)])
        if self.experts:
            decision, scores = self.classifier.decide_and_score(features, {**self.experts.prices, **(prices or {})})
        else:
            asked = float(costs) if costs is not None and not costs.ndim else costs
            decision, scores = self.classifier.decide_and_score(features, asked)
        parts = {one.name: getattr(decision, one.name) for one in fields(decision)}
        return Decision(**{name: part[:n_rows] for name, part in parts.items() if part is not None}), scores[:n_rows]

    def answer_columns(self, columns: Collection[str] = ()) -> tuple[str, ...]:
        """Return the names of the columns of :meth:`answers` for a table that has ``columns``."""
        if not self.experts:
            return ANSWER_COLUMNS
        own = (*ANSWER_COLUMNS, *ASKING_COLUMNS)
        return (*own, SYSTEM_ANSWER) if self.experts.present(columns) else own

    def answers(
        self,
        table: Any,
        cost: ArrayLike | None = None,
        *,
        prices: Mapping[str, float] | None = None,
        ask: NDArray[np.int64] | None = None,
        where: str = "the table",
        first: int = 0,
    ) -> pa.Table:
        """Return the decisions as an Arrow table, in the words of ``demur predict``.

        ``prediction`` is empty where the model declines, so that it cannot be taken for an answer by mistake;
        ``first_choice`` and ``second_choice`` are there for whoever takes over. ``confidence`` is the probability of
        the first choice, or a trained score for losses without probabilities.

        A model with experts also says whom to ``ask``, and what the row is expected to cost then. Where the table holds
        what the experts said, ``system_answer`` is the model's answer, or that of the expert who is asked.

        Parameters
        ----------
        table, cost, prices
            As for :meth:`decide`.
        ask : array of int, optional
            Who is asked instead, as numbers of experts, where something else than the expected cost decides.
        where : str
        first : int
            How many rows came before the first, for messages.
        """
        if not isinstance(table, (pa.Table, pa.RecordBatch)):
            table = as_table(table)
        decision, scores = self.decide_and_score(table, cost, prices=prices, where=where)
        if ask is not None:
            decision = replace(decision, ask=ask, reject=ask >= 0)
        label, rows = decision.label, np.arange(len(scores))
        # A cost matrix measures its confidence in costs; a loss's own estimate is what it compares with 1 - c.
        by_rule = self.has_proba and not self.cost_adjustable
        confidence = scores[rows, label] if by_rule else np.asarray(decision.confidence, dtype=np.float64)
        others = np.array(scores, dtype=np.float64)
        others[rows, label] = -np.inf
        names = as_column(self.classes, self.label_type)
        columns = [
            names.take(pa.array(label, mask=decision.reject)),
            pa.array(decision.reject),
            pa.array(confidence),
            names.take(pa.array(label)),
            names.take(pa.array(others.argmax(axis=1))),
        ]
        if self.experts:
            columns += self._asking(table, decision, names, where, first)
        return pa.table(columns, names=list(self.answer_columns(table.schema.names)))

    def _asking(
        self, table: pa.Table, decision: Decision[AnyArray], names: pa.Array, where: str, first: int
    ) -> list[pa.Array]:
        """Return who is asked, the expected cost, and the system's answer where the experts' are in the table."""
        asked, costs = decision.ask, decision.costs
        assert asked is not None
        assert costs is not None
        experts = pa.array(list(self.experts.columns))
        action = np.where(asked < 0, decision.label, len(self.classes) + asked)
        columns = [
            experts.take(pa.array(np.maximum(asked, 0), mask=asked < 0)),
            pa.array(costs[np.arange(len(action)), action]),
        ]
        if self.experts.present(table.schema.names):
            said = self.experts.answers(table, self.classes.tolist(), where=where, first=first)
            features = self.features(table, where=where)
            system = self.classifier.final_answers(features, decision, said)
            columns.append(names.take(pa.array(np.maximum(system, 0), mask=system < 0)))
        return columns
