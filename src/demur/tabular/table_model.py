"""TableModel: decisions for the rows of a table."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from demur.array_types import AnyArray, ByName, Estimator, FloatArray, Floats, Ints, Mask, Names, Prices
from demur.columns.frames import Rows, Values, as_table, check_columns
from demur.columns.schema import LARGEST, Column, Schema, as_type
from demur.costs import check_cost
from demur.deferral.experts import Expert, check_prices
from demur.errors import InputError, MissingExtraError
from demur.novelty import UNSEEN, Novelty
from demur.rules import Decision
from demur.tabular.expert_columns import ASKING_COLUMNS, SYSTEM_ANSWER, ExpertColumns
from demur.tabular.table_files import as_column, class_texts

ANSWER_COLUMNS = ("prediction", "rejected", "confidence", "first_choice", "second_choice", "reason")
"""The columns of :meth:`TableModel.answers`."""

CALL_COLUMNS = ("decision", "service", "answer", "confidence", "spent", "reason")
"""The columns of the answers of a cascade."""

PROBA = "proba:"
"""The prefix of the columns of class probabilities."""

Reads: TypeAlias = Literal["codes", "numbers", "objects", "frame", "texts"]
"""The input of a classifier: codes of the schema, or the input of a classifier that was fitted elsewhere."""

_MOST_NAMED = 8
"""Maximum number of columns that a reason names."""

_MOST_BLAMED = 3
"""Maximum number of columns that explain one declined row."""
_LEAST_MOVED = 0.2
"""A column explains a declined row if it closes this share of the gap to an answer."""
_MOST_TRIED = 60
"""Maximum number of columns that are tried for one row: those whose values differ most from the typical ones of two
classes."""
_Decided: TypeAlias = tuple[Decision[AnyArray], Floats]


@dataclass(frozen=True, eq=False)
class TableModel:
    """A fitted classifier that may decline or ask experts, and the columns it reads.

    Made by :func:`fit_table` or :meth:`wrap`.

    Parameters
    ----------
    schema : Schema
        The columns it was fitted on, and the target.
    classifier : RejectOption, RejectClassifier or DeferOption
    label_type : {"text", "integer", "number", "boolean"}
        Type in which classes are written. Internally they are text.
    facts : dict
        Facts about the fit: ``model``, ``rows``, ``classes`` with their counts, and so on.
    experts : ExpertColumns
        Experts, the columns with their answers, their prices and limits; none by default.
    reads : {"codes", "numbers", "objects", "frame", "texts"}
        The input of the classifier: the codes of the schema, or for a classifier that was fitted elsewhere a matrix of
        numbers or of any values, a data frame, or a list of texts.
    novelty : Novelty or None
        Finds out-of-distribution rows by the codes of the schema.
    typical : array of shape (2 + n_classes, n_columns), or None
        The smallest and largest code of each column, and its typical code in each class: :func:`typical_rows`.

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
    label_type: str = "text"
    facts: ByName = field(default_factory=dict)
    experts: ExpertColumns = field(default_factory=ExpertColumns)
    reads: Reads = "codes"
    novelty: Novelty | None = None
    typical: FloatArray | None = None

    @staticmethod
    def wrap(
        estimator: Estimator,
        schema: Any,
        **options: Any,
    ) -> "TableModel":
        """Return a classifier that was fitted elsewhere as a model of a table, to save, serve, evaluate and report on.

        Parameters
        ----------
        estimator : fitted classifier
            Estimator with scikit-learn's interface: a classifier, a pipeline, a search, a :class:`~demur.RejectOption`,
            a :class:`~demur.RejectClassifier`.
        schema : Schema or table
            The columns, as :meth:`Schema.from_frame <demur.columns.Schema.from_frame>` finds them; or some rows as a
            data frame or Arrow table, such as :func:`read_table` returns of a CSV file. A classifier that was fitted on
            a data frame takes its columns by their names, and the others are set aside; one that was fitted on a matrix
            takes them in their order.
        **options
            ``target``, the name of the column with the labels: the schema's target by default, else ``"class"``;
            ``cost``, that of declining, for a classifier without a reject option: 0.2 by default; ``rule``, a
            :class:`~demur.rules.Rule` instead of Chow's at ``cost``; ``calibrate``, a table of labelled rows that the
            classifier was not trained on, to calibrate its probabilities, and to fit a rule that needs it. Without
            them its probabilities are used as they are.

        Raises
        ------
        InputError, InputTypeError, TableError
            If it is not a fitted classifier, or the columns are not those that it was fitted on.

        Examples
        --------
        >>> import pandas as pd
        >>> from sklearn.linear_model import LogisticRegression
        >>> frame = pd.DataFrame({"size": [1.0, 1.2, 5.0, 5.2] * 9, "pet": ["cat", "cat", "dog", "dog"] * 9})
        >>> own = LogisticRegression().fit(frame[["size"]], frame["pet"])
        >>> model = TableModel.wrap(own, frame, target="pet", cost=0.1)
        >>> model.answers(pd.DataFrame({"size": [1.1, 3.0]})).column("prediction").to_pylist()
        ['cat', None]
        """
        from demur.tabular.external_models import wrap_estimator

        return wrap_estimator(estimator, schema, **options)

    @property
    def target(self) -> str:
        """The name of the column with the labels."""
        return str(self.schema.target)

    @property
    def classes(self) -> AnyArray:
        """The class names, as text."""
        classes: AnyArray = self.classifier.classes_
        if classes.dtype.kind == "U":
            return classes
        return class_texts(pa.array(classes.tolist())).astype(str)

    @property
    def cost(self) -> float | None:
        """The cost of declining that decisions use; None if the rule has no single cost."""
        price: float | None = self.classifier.effective_cost
        return price

    @property
    def cost_adjustable(self) -> bool:
        """Whether another cost needs no refit."""
        return bool(self.classifier.cost_adjustable)

    @property
    def why_cost_fixed(self) -> str | None:
        """The reason why another cost needs a refit, or None."""
        why: str | None = self.classifier.why_cost_fixed
        return why

    @property
    def has_proba(self) -> bool:
        """Whether it has class probabilities, and not only trained scores."""
        return bool(self.classifier.has_proba)

    @property
    def asks_experts(self) -> bool:
        """Whether the model has experts to ask."""
        return bool(self.experts.columns)

    def explain(self) -> str | None:
        """Return how the rule decides and what it guarantees; None for Chow's rule and the rules of losses."""
        words: str | None = self.classifier.explain()
        return words

    def check_cost(self, cost: ArrayLike) -> None:
        """Refuse an invalid cost, or a cost other than the model's if that is fixed."""
        prices = check_cost(cost)
        if not self.cost_adjustable and (self.cost is None or not np.all(prices == self.cost)):
            raise InputError(f"this model cannot decide for another cost: {self.why_cost_fixed}.")

    def check_prices(self, prices: Prices | None) -> None:
        """Refuse prices of unknown experts, and values that are not prices."""
        if prices and not self.asks_experts:
            raise InputError("this model has no experts, so there are no prices to change: fit it with experts.")
        if prices:
            check_prices(prices, {name: Expert(price) for name, price in self.experts.prices.items()}, 1)

    def check_proba(self) -> None:
        """Raise an error if the model has no probabilities."""
        if not self.has_proba:
            raise InputError(
                "this model has no class probabilities: ask without them, or fit another model such as ce."
            )

    def __repr__(self) -> str:
        model = self.facts.get("model", type(self.classifier).__name__)
        shape = f"{len(self.classes)} classes, {len(self.schema.columns)} columns"
        return f"TableModel({model!r} for {self.target!r}: {shape})"

    def decide(self, table: Any, cost: ArrayLike | None = None, prices: Prices | None = None) -> Decision[AnyArray]:
        """Decide for each row of a table.

        Parameters
        ----------
        table : pyarrow.Table, RecordBatch, or a pandas or polars DataFrame
        cost : float or one per row, optional
            Cost of declining, if it differs from the model's and is adjustable.
        prices : mapping of names to float, optional
            Prices of asking experts, if they differ from the model's.
        """
        return self.decide_and_score(table, cost, prices=prices)[0]

    def predict_proba(self, table: Any) -> Floats | None:
        """Return class probabilities, or None for losses that have none."""
        return self.decide_and_score(table)[1] if self.has_proba else None

    def decide_and_score(
        self,
        table: Any,
        cost: ArrayLike | None = None,
        *,
        prices: Prices | None = None,
        where: str = "the table",
        first: int = 0,
    ) -> _Decided:
        """Return the decisions and one score per class: probabilities, or trained scores where there are none.

        ``first`` is the number of rows before the table, for messages.
        """
        return self._decide(as_table(table), cost, prices, where, first)[:2]

    def _decide(
        self, table: Rows, cost: ArrayLike | None, prices: Prices | None, where: str, first: int = 0
    ) -> tuple[Decision[AnyArray], Floats, Floats | None]:
        """Return decisions, scores, and the codes of the schema, with a mark for new categories."""
        if cost is not None:
            self.check_cost(cost)
        self.check_prices(prices)
        costs = None if cost is None or not self.cost_adjustable else np.asarray(cost, dtype=np.float64)
        if self.reads != "codes" and self.facts.get("proba_kind") != "answers":
            return *self._decide_elsewhere(table, costs, where, first), None
        codes = self.schema.encode(table, where=where, unseen=UNSEEN)
        if self.reads != "codes":  # a reason names an answer that is new
            return *self._decide_elsewhere(table, costs, where, first), codes
        features = self._features(codes, table)
        if self.asks_experts:
            return *self.classifier.decide_and_score(features, {**self.experts.prices, **(prices or {})}), codes
        decision, scores = self.classifier.decide_and_score(features, costs)
        if self.novelty is not None:
            decision = decision.declining(self.novelty.novel(codes))
        return decision, scores, codes

    def _features(self, codes: Floats, table: Rows) -> AnyArray:
        """Return the input of the classifier: new categories and numbers that are too large count as missing."""
        known = np.where(self._unseen(codes) | (np.abs(codes) > LARGEST), np.nan, codes)
        return self.schema.with_texts(known, table)

    def _unseen(self, codes: Floats) -> Mask:
        return np.asarray((codes == UNSEEN) & self.schema.categorical)

    def _decide_elsewhere(self, table: Rows, costs: Floats | None, where: str, first: int) -> _Decided:
        """Decide by a classifier that was fitted elsewhere."""
        from joblib import parallel_config

        from demur.tabular.external_models import refusal

        rows = model_input(self.schema, table, self.reads, where)
        try:
            with parallel_config(backend="sequential"):  # threads add trees up in any order: the last digits would vary
                decided: _Decided = self.classifier.decide_and_score(rows, costs)
        except Exception as error:  # estimators raise what they like about values that they cannot take
            raise refusal(error, self.classifier, where, first) from error
        return decided

    def answer_columns(self, columns: Names = ()) -> tuple[str, ...]:
        """Return the names of the columns of :meth:`answers` for a table that has ``columns``."""
        if not self.asks_experts:
            return ANSWER_COLUMNS
        own = (*ANSWER_COLUMNS, *ASKING_COLUMNS)
        return (*own, SYSTEM_ANSWER) if self.experts.present(columns) else own

    def answers(
        self,
        table: Any,
        cost: ArrayLike | None = None,
        *,
        proba: bool = False,
        prices: Prices | None = None,
        ask: Ints | None = None,
        review: Mask | None = None,
        where: str = "the table",
        first: int = 0,
    ) -> pa.Table:
        """Return the decisions as an Arrow table, as ``demur predict`` writes them.

        ``prediction`` is empty if the model declines, so that it cannot be mistaken for an answer; ``first_choice`` and
        ``second_choice`` help the person who handles a declined row. ``confidence`` is the probability of the first
        choice, or a trained score for losses without probabilities; it is at most 0 for a novel row. ``reason`` of a
        declined row is "ambiguous", "out of scope", or "novel" and the columns whose values are outside the range of
        the training rows. It also names the columns with a category that training did not have.

        A model with experts also returns the expert to ``ask``, and the expected cost of the row. If the table holds
        the experts' answers, ``system_answer`` is the model's answer, or that of the expert who is asked.

        Parameters
        ----------
        table, cost, prices
            As for :meth:`decide`.
        proba : bool, default False
            Whether to add a column ``proba:<class>`` for each class, with its calibrated probability.
        ask : array of int, optional
            The number of the expert to ask for each row, -1 for none, instead of the model's own choice.
        review : array of bool, optional
            Which rows to decline, instead of the model's own choice.
        where : str
            The name of the table in messages.
        first : int
            The number of rows before the first one, for messages.

        Examples
        --------
        >>> table = pa.table({"size": [1.0, 1.1, 1.2, 5.0, 5.1, 5.2] * 9, "y": [0, 0, 0, 1, 1, 1] * 9})
        >>> from demur.tabular import fit_table
        >>> model = fit_table(table, "y", model="lr")
        >>> model.answers(pa.table({"size": [1.1, 1e6]}))["reason"].to_pylist()
        [None, 'novel: size']
        """
        if proba:
            self.check_proba()
        table = as_table(table)
        decision, scores, codes = self._decide(table, cost, prices, where, first)
        if ask is not None:
            decision = replace(decision, ask=ask, reject=ask >= 0)
        if review is not None:
            decision = replace(decision, reject=review)
        names, top = as_column(self.classes, self.label_type), top_scores(scores, decision.label)
        answers = {
            "prediction": names.take(pa.array(decision.label, mask=decision.reject)),
            "rejected": decision.reject,
            "confidence": answer_confidence(decision, top[:, 0] if self.has_proba else None, self.cost_adjustable),
            "first_choice": names.take(pa.array(decision.label)),
            "second_choice": names.take(pa.array(top[:, 1].astype(np.int64))),
            "reason": pa.array(self._reasons(decision, codes), pa.string()),
        }
        if self.asks_experts and codes is not None:
            answers |= self._asking(decision)
            if self.experts.present(table.schema.names):
                said = self.experts.answers(table, self.classes.tolist(), where=where, first=first)
                system = self.classifier.final_answers(self._features(codes, table), decision, said)
                answers[SYSTEM_ANSWER] = names.take(pa.array(np.maximum(system, 0), mask=system < 0))
        if proba:
            answers |= dict(zip(self.proba_columns, scores.T, strict=True))
        return pa.table(answers)

    def because(self, table: Any, declined: ArrayLike, cost: float | None = None) -> list[list[dict[str, str]] | None]:
        """Return for each declined row the columns that make it ambiguous or unusual, each with a note.

        The values of an ambiguous row are replaced one at a time by the typical value of either of its two likeliest
        classes. The columns whose replacement brings the row closest to an answer are named, with the resulting
        probability of the class. For a novel row, the columns whose typical value would make it least unusual are
        named. At most three columns are named, without columns of little effect.

        Parameters
        ----------
        table : pyarrow.Table, RecordBatch, or a pandas or polars DataFrame
        declined : array of bool, shape (n,)
        cost : float, optional
            As for :meth:`decide`.

        Examples
        --------
        >>> table = pa.table({"size": [1.0, 1.1, 1.2, 5.0, 5.1, 5.2] * 9, "y": [0, 0, 0, 1, 1, 1] * 9})
        >>> from demur.tabular import fit_table
        >>> model = fit_table(table, "y", model="lr")
        >>> model.because(pa.table({"size": [1.1, 1e6]}), [False, True])
        [None, [{'column': 'size', 'note': '1e+06, in training 1 to 5.2'}]]
        """
        if self.typical is None:
            raise InputError("this model has no typical values to explain a row with: fit it on a table.")
        rows = as_table(table)
        decision, scores, codes = self._decide(rows, cost, None, "the table")
        assert codes is not None
        pairs = np.column_stack([decision.label, top_scores(scores, decision.label)[:, 1]]).astype(np.int64)
        options = self.experts.prices if self.asks_experts else cost if self.cost_adjustable else None
        found: list[list[dict[str, str]] | None] = [None] * len(pairs)
        for row in np.flatnonzero(declined).tolist():
            if decision.novel is not None and decision.novel[row]:
                found[row] = self._unusual(codes[row])
            else:
                before = float(decision.acceptance[row])
                found[row] = self._ambiguous(rows.slice(row, 1), codes[row], pairs[row], before, options)
        return found

    def _ambiguous(self, row: Rows, codes: Floats, pair: Ints, before: float, options: Any) -> list[dict[str, str]]:
        """Name the columns that bring a row nearest to an answer if their value is typical of one of two classes."""
        assert self.typical is not None
        (low, high), typical = self.typical[:2], self.typical[2 + pair]
        differs = np.abs(typical - codes) / np.maximum(high - low, 1e-300)
        tried = np.argsort(-np.nan_to_num(differs, nan=1.0).max(axis=0), kind="stable")[:_MOST_TRIED]
        every, places = np.arange(2 * len(tried)), np.tile(tried, 2)
        changed = np.tile(codes, (len(every), 1))
        changed[every, places] = typical[:, tried].ravel()
        features = self._features(changed, row.take(pa.array(np.zeros_like(every))))
        texts = self.schema.text[places]
        if texts.any():
            features[every[texts], places[texts]] = ""
        decision, scores = self.classifier.decide_and_score(features, options)
        # 1 is all that is missing for an answer with the class whose typical value it is
        moved = (decision.acceptance - before) / max(-before, 1e-12)
        moved = np.where(decision.label == pair.repeat(len(tried)), moved, 0.0).reshape(2, -1)
        proba, notes = scores.reshape(2, len(tried), -1), []
        for k in _most_moved(moved.max(axis=0)):
            column, words = self.schema.columns[tried[k]], []
            for side in np.flatnonzero(moved[:, k] > _LEAST_MOVED):
                share = f" {proba[side, k, pair[side]]:.0%}" if self.has_proba else ""
                words.append(f"{self.classes[pair[side]]}{share} with {_shown(column, typical[side, tried[k]])}")
            notes.append({"column": column.name, "note": ", ".join(words)})
        return notes

    def _unusual(self, codes: FloatArray) -> list[dict[str, str]]:
        """Name the columns whose typical value would make a novel row less unusual, with their range in training."""
        assert self.novelty is not None
        changed = np.tile(codes, (1 + len(codes), 1))
        np.fill_diagonal(changed[1:], np.nan)  # stands for the median
        before, *after = self.novelty.score(changed)
        blamed = _most_moved(1 - np.array(after) / before)
        shown = [_shown(self.schema.columns[k], codes[k]) for k in blamed]
        return [
            {
                "column": self.schema.names[k],
                "note": text + (f", in training {self.ranges[k]}" if self.ranges[k] else ""),
            }
            for k, text in zip(blamed, shown, strict=True)
        ]

    @property
    def ranges(self) -> list[str]:
        """The range of each column in training as text; empty for categories, text and booleans."""
        if self.typical is None:
            return [""] * len(self.schema.columns)
        return [
            "" if column.kind in ("category", "boolean", "text") else f"{_shown(column, low)} to {_shown(column, high)}"
            for column, low, high in zip(self.schema.columns, *self.typical[:2], strict=True)
        ]

    @property
    def examples(self) -> list[ByName]:
        """A row of medians and most frequent values for each class, as a request has it."""
        rows = [] if self.typical is None else self.typical[2:].tolist()
        return [
            {one.name: one.decode(code) for one, code in zip(self.schema.columns, row, strict=True)} for row in rows
        ]

    def _asking(self, decision: Decision[AnyArray]) -> ByName:
        """Return the expert to ask, and the expected cost."""
        asked, costs = decision.ask, decision.costs
        assert asked is not None
        assert costs is not None
        action = np.where(asked < 0, decision.label, len(self.classes) + asked)
        experts = pa.array(list(self.experts.columns)).take(pa.array(np.maximum(asked, 0), mask=asked < 0))
        return dict(zip(ASKING_COLUMNS, (experts, costs[np.arange(len(action)), action]), strict=True))

    def _reasons(self, decision: Decision[AnyArray], codes: Floats | None) -> list[str | None]:
        reasons: list[str | None] = np.where(decision.reject, decision.reason.astype(object), np.array(None)).tolist()
        if codes is None:
            return reasons
        novel = decision.reject & (False if decision.novel is None else decision.novel)
        unseen = self._unseen(codes)
        rows = np.flatnonzero(novel | unseen.any(axis=1))
        outside = unseen[rows] if self.novelty is None else self.novelty.outside(codes[rows])
        for row, cells in zip(rows.tolist(), np.where(novel[rows, None], outside, unseen[rows]), strict=True):
            names = [self.schema.names[k] for k in np.flatnonzero(cells)]
            words = "; ".join(filter(None, [reasons[row], None if novel[row] else "new category"]))
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            reasons[row] = f"{words}: {', '.join(names[:_MOST_NAMED])}{more}" if names else words
        return reasons

    @property
    def proba_columns(self) -> tuple[str, ...]:
        """The names of the probability columns of :meth:`answers`, in the order of the classes."""
        return tuple(f"{PROBA}{name}" for name in self.classes.tolist())


def _most_moved(share: FloatArray) -> list[int]:
    """Return the positions of the largest shares, without those that are small."""
    best = np.argsort(-share, kind="stable")[:_MOST_BLAMED]
    return [k for k in best.tolist() if share[k] > _LEAST_MOVED]


def _shown(column: Column, code: float) -> str:
    value = column.decode(code)
    if value is None:
        return "no value" if np.isnan(code) else "another value"
    return f"{code + 0.0:.4g}" if column.kind == "number" else str(value).removesuffix("T00:00:00")


_MOST_TYPICAL = 1 << 20
"""Numbers in the typical rows; a model of more columns times classes has none."""


def typical_rows(codes: Floats, categorical: Mask, labels: AnyArray, classes: AnyArray) -> FloatArray | None:
    """Return the smallest and largest code of each column, then its median or most frequent code in each class.

    Examples
    --------
    >>> codes = np.array([[1.0, 0], [2.0, 0], [9.0, 1], [5.0, 1]])
    >>> typical_rows(codes, np.array([False, True]), np.array(["a", "a", "a", "b"]), np.array(["a", "b"]))
    array([[1., 0.],
           [9., 1.],
           [2., 0.],
           [5., 1.]])
    """
    if len(classes) * codes.shape[1] > _MOST_TYPICAL:
        return None
    found = [np.fmin.reduce(codes), np.fmax.reduce(codes)]
    for name in classes:
        own = np.sort(codes[labels == name], axis=0)  # NaN comes last
        middle = np.maximum((~np.isnan(own)).sum(axis=0) - 1, 0) // 2
        found.append(own[middle, np.arange(codes.shape[1])])
        for k in np.flatnonzero(categorical & ~np.isnan(found[-1])):
            found[-1][k] = np.bincount(own[~np.isnan(own[:, k]), k].astype(np.int64)).argmax()
    return np.array(found)


def model_input(schema: Schema, table: Rows, reads: Reads, where: str = "the table") -> Any:
    """Return rows as an estimator takes them.

    Parameters
    ----------
    schema : Schema
    table : pyarrow.Table or RecordBatch
    reads : {"numbers", "objects", "frame", "texts"}
        A matrix of numbers, a matrix of any values, a data frame, or one list of texts.
    where : str
        The name of the table in messages.

    Examples
    --------
    >>> schema = Schema((Column("size", "number"), Column("pet", "category", ("cat",))))
    >>> model_input(schema, pa.table({"pet": ["cat", "newt"], "size": [1, None]}), "objects")
    array([[1.0, 'cat'],
           [nan, 'newt']], dtype=object)
    """
    if reads == "numbers":
        numbers = schema.encode(table, where=where)
        return np.where(np.abs(numbers) > LARGEST, np.nan, numbers)
    check_columns(schema.names, table.schema.names, where)
    values = {column.name: _values(column, table.column(column.name), where) for column in schema.columns}
    if reads == "texts":
        return next(iter(values.values()))
    if reads == "objects":
        return np.column_stack([column.astype(object) for column in values.values()])
    try:
        import pandas as pd  # type: ignore[import-untyped,unused-ignore] # it has no type hints
    except ImportError:
        raise MissingExtraError("this model reads a data frame: pip install pandas where it is used.") from None
    return pd.DataFrame(values)


def _values(column: Column, values: Values, where: str) -> AnyArray:
    """Return a column as pandas reads it from a file: NaN for what is missing, in text as well."""
    if column.kind == "number":
        return column.encode(values, where)
    typed = as_type(values, column.arrow_type, column.name, where)
    if column.kind in ("date", "time"):
        return np.asarray(typed)
    found = np.array([np.nan if value is None else value for value in typed.to_pylist()], dtype=object)
    return found if column.kind in ("category", "text") or typed.null_count else found.astype(bool)


def top_scores(scores: FloatArray, label: AnyArray) -> FloatArray:
    """Return the score of each row's label, the position of the best other class, and its score.

    Examples
    --------
    >>> top_scores(np.array([[0.7, 0.1, 0.2]]), np.array([0]))
    array([[0.7, 2. , 0.2]])
    """
    rows, others = np.arange(len(scores)), np.array(scores, dtype=np.float64)
    others[rows, label] = -np.inf
    return np.column_stack([scores[rows, label], others.argmax(axis=1), others.max(axis=1)])


def answer_confidence(decision: Decision[AnyArray], proba: FloatArray | None, cost_adjustable: bool) -> Floats:
    """Return the confidence in each row's first choice, as predictions, reports and the service show it.

    It is the confidence that the decision compares with 1 - c if the cost is adjustable, and the probability of the
    first choice for other rules, whose own confidence may be measured in costs; a trained score if there are no
    probabilities. It is at most 0 for a novel row, whose probabilities are not reliable.

    Examples
    --------
    >>> from demur.rules import Chow
    >>> proba = np.array([[0.9, 0.1], [0.4, 0.6]])
    >>> decision = Chow(0.2).decide(proba).declining(np.array([True, False]))
    >>> answer_confidence(decision, proba.max(axis=1), cost_adjustable=True)
    array([0. , 0.6])
    """
    found = np.asarray(decision.confidence, dtype=np.float64)
    if proba is not None and not cost_adjustable:
        found = np.asarray(proba, dtype=np.float64)
    return found if decision.novel is None else np.where(decision.novel, np.fmin(found, 0.0), found)


def is_rejected(answers: Rows) -> pa.Array:
    """Return which rows of :meth:`TableModel.answers` have no answer yet: declined, or passed to an expert.

    Examples
    --------
    >>> is_rejected(pa.table({"decision": ["ask", "answer"]})).to_pylist()
    [True, False]
    """
    return answers["rejected"] if "rejected" in answers.schema.names else pc.equal(answers["decision"], "ask")


def free_label(classes: AnyArray) -> str | None:
    """Return a reject label if a class has the name of the default one, else None; tables never show it.

    Examples
    --------
    >>> free_label(np.array(["accept", "reject"])), free_label(np.array([0, 1]))
    ('reject!', None)
    """
    known, label = set(np.asarray(classes).tolist()), "reject"
    while label in known:
        label += "!"
    return None if label == "reject" else label
