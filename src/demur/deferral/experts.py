"""Experts: who can be asked, at which price, and what they have answered so far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur.array_types import AnyArray, ByName, Estimator
from demur.errors import InputError, InputTypeError

__all__ = [
    "MODEL",
    "Ballots",
    "Expert",
    "Votes",
    "answers_to_learn_from",
    "check_names",
    "check_prices",
    "read_answers",
    "read_experts",
]

Floats = NDArray[np.float64]

MODEL = "model"
"""The entry of ``route`` for rows that the model answers."""


@dataclass(frozen=True)
class Expert:
    """A source of answers that can replace the model's: a person, a team, a service, another model.

    Parameters
    ----------
    price : float
        What one question costs; one wrong answer costs 1.
    accuracy : float, optional
        How often the expert is right, where that is known beforehand: 1 for one who is always right. None, the
        default, is for ``fit`` to learn from answers.
    model : classifier, str or int, optional
        How "the expert is right on this row" is learned from the rows' features: a classifier; or the name or number of
        a column of X that holds an estimate of it, made elsewhere. By default a clone of the classifier itself.
    majority : bool, default False
        Whether the question is put to all the people behind the expert and the majority answers (of equally many votes
        the first class), instead of one of them.

    Examples
    --------
    >>> Expert(0.05)
    Expert(price=0.05, accuracy=None, model=None, majority=False)
    >>> Expert(-1)
    Traceback (most recent call last):
        ...
    demur.errors.InputError: the price of asking must not be negative, got -1.
    """

    price: float
    accuracy: float | None = None
    model: Estimator = None
    majority: bool = False

    def __post_init__(self) -> None:
        if not np.isfinite(_price("the price of asking", self.price)):
            raise InputError(f"the price of asking must be a finite number, got {self.price!r}.")
        if self.price < 0:
            raise InputError(f"the price of asking must not be negative, got {self.price!r}.")
        if self.accuracy is not None and not 0 <= self.accuracy <= 1:
            raise InputError(f"accuracy must be in [0, 1], got {self.accuracy!r}.")


@dataclass(frozen=True, eq=False)
class Votes:
    """Counts of votes, for answers that were stored as counts.

    Parameters
    ----------
    counts : array of shape (n_rows, n_classes)
        How many people chose each class, in the order of the sorted classes.

    Examples
    --------
    >>> Votes([[3, 1], [0, 5]]).counts
    array([[3., 1.],
           [0., 5.]])
    """

    counts: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", np.asarray(self.counts, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class Ballots:
    """The answers of all experts, as counts.

    Parameters
    ----------
    counts : array of shape (n_rows, n_experts, n_classes)
        How often each class was answered.
    answer : array of int, shape (n_rows, n_experts)
        The number of the class that each expert is taken to answer; -1 for a gap.
    """

    counts: Floats
    answer: NDArray[np.int64]


def read_experts(experts: Any) -> dict[str, Expert]:
    """Read the experts from a mapping of names to prices or to :class:`Expert`.

    Examples
    --------
    >>> read_experts({"nurse": 0.05})
    {'nurse': Expert(price=0.05, accuracy=None, model=None, majority=False)}
    """
    if not isinstance(experts, Mapping):
        raise InputTypeError(
            f'experts must be a mapping from names to prices, such as {{"nurse": 0.05}}, got {experts!r}.'
        )
    if not experts:
        raise InputError('experts is empty; name at least one who can be asked, such as {"nurse": 0.05}.')
    if MODEL in experts:
        raise InputError(f"an expert cannot be called {MODEL!r}, the word for the classifier itself; rename it.")
    wrong = [name for name in experts if not isinstance(name, str)]
    if wrong:
        raise InputTypeError(f"experts are called by strings, got the name {wrong[0]!r}.")
    return {
        name: one if isinstance(one, Expert) else Expert(float(_price(f"the price of {name!r}", one)))
        for name, one in experts.items()
    }


def check_names(experts: Mapping[str, Expert], classes: AnyArray) -> None:
    """Refuse an expert who is named like a class: whether a name is an answer or somebody to ask must be clear.

    Examples
    --------
    >>> check_names({"cat": Expert(0.1)}, np.array(["cat", "dog"]))
    Traceback (most recent call last):
        ...
    demur.errors.InputError: the expert 'cat' is named like a class; give the expert another name.
    """
    named = [name for name in experts if name in set(classes.tolist())]
    if named:
        raise InputError(f"the expert {named[0]!r} is named like a class; give the expert another name.")


def check_prices(prices: Any, experts: Mapping[str, Expert], n_rows: int) -> Floats:
    """Return the price of each expert on each row, of shape (n_rows, n_experts).

    Parameters
    ----------
    prices : None, mapping, or array
        None for the experts' own; a mapping from some of their names to a number or one per row; an array of one price
        per expert, or of shape (n_rows, n_experts). Infinity is for an expert who cannot be asked.
    experts : mapping
    n_rows : int

    Examples
    --------
    >>> check_prices({"nurse": [0.1, np.inf]}, {"nurse": Expert(0.05), "doctor": Expert(0.2)}, 2)
    array([[0.1, 0.2],
           [inf, 0.2]])
    """
    own = np.array([one.price for one in experts.values()], dtype=np.float64)
    found = np.broadcast_to(own, (n_rows, len(experts))).copy()
    if prices is None:
        return found
    if isinstance(prices, Mapping):
        unknown = [name for name in prices if name not in experts]
        if unknown:
            raise InputError(f"a price was given for {unknown[0]!r}; the experts are {', '.join(experts)}.")
        for column, name in enumerate(experts):
            if name in prices:
                found[:, column] = _price(f"the price of {name!r}", prices[name], n_rows)
    else:
        values = _floats("prices", prices)
        if values.shape not in ((len(experts),), (n_rows, len(experts))):
            raise InputError(
                f"prices must have shape ({len(experts)},), one per expert, or ({n_rows}, {len(experts)}), one per row "
                f"and expert, got {values.shape}."
            )
        found[:] = values
    if np.isnan(found).any():
        row, column = np.argwhere(np.isnan(found))[0]
        raise InputError(
            f"the price of {list(experts)[column]!r} is NaN in row {row + 1}; give a number, or infinity for an expert "
            "who cannot be asked."
        )
    if (found < 0).any():
        raise InputError(f"the price of asking must not be negative, got {found.min():g}.")
    return found


def read_answers(answers: Any, experts: Mapping[str, Expert], classes: AnyArray, n_rows: int) -> Ballots:
    """Read what the experts said, and refuse what is not among the classes.

    Parameters
    ----------
    answers : array of shape (n_rows, n_experts), array of counts, table or mapping
        A column for each expert, in their order, with a gap (NaN, None, an empty string or a masked entry) where an
        expert has not seen the row. A table has columns of the experts' names. A mapping from names may also hold an
        array of shape (n_rows, n_people), for several people behind one expert, or :class:`Votes`. An array of shape
        (n_rows, n_experts, n_classes) holds counts of votes.
    experts : mapping
    classes : array
    n_rows : int

    Examples
    --------
    >>> ballots = read_answers([["a"], [None]], {"nurse": Expert(0.1)}, np.array(["a", "b"]), 2)
    >>> ballots.answer.ravel(), ballots.counts[:, 0]
    (array([ 0, -1]), array([[1., 0.], [0., 0.]]))
    """
    columns = _columns_by_expert(answers, list(experts), len(classes), n_rows)
    counts = np.zeros((n_rows, len(experts), len(classes)))
    answer = np.full((n_rows, len(experts)), -1, dtype=np.int64)
    for number, (name, expert) in enumerate(experts.items()):
        given = columns.get(name)
        if given is None:
            continue
        if isinstance(given, Votes):
            counts[:, number] = _checked_counts(name, given.counts, (n_rows, len(classes)))
            first = np.where(counts[:, number].any(axis=1), counts[:, number].argmax(axis=1), -1)
        else:
            codes = _codes(name, given, classes, n_rows)
            for person in codes.T:
                seen = np.flatnonzero(person >= 0)
                counts[seen, number, person[seen]] += 1
            first = codes[np.arange(n_rows), (codes >= 0).argmax(axis=1)]
        if expert.majority:
            seen = np.flatnonzero(counts[:, number].any(axis=1))
            winner = counts[seen, number].argmax(axis=1)
            counts[:, number] = 0
            counts[seen, number, winner] = 1
            first = np.full(n_rows, -1)
            first[seen] = winner
        answer[:, number] = first
    return Ballots(counts, answer)


def answers_to_learn_from(
    answers: Any, experts: Mapping[str, Expert], classes: AnyArray, n_rows: int, to_learn: Sequence[str]
) -> Ballots:
    """Read answers as :func:`read_answers`, and refuse where there are none of an expert in ``to_learn``."""
    if answers is None and to_learn:
        raise InputError(
            f"answers are missing: give answers= to learn when {', '.join(map(repr, to_learn))} is right, or an Expert "
            "with a known accuracy."
        )
    ballots = read_answers({} if answers is None else answers, experts, classes, n_rows)
    for number, name in enumerate(experts):
        if name in to_learn and not ballots.counts[:, number].any():
            raise InputError(
                f"the expert {name!r} has not answered a single row; leave it out, or give an Expert with a known "
                "accuracy."
            )
    return ballots


def _columns_by_expert(answers: Any, names: list[str], n_classes: int, n_rows: int) -> ByName:
    if isinstance(answers, Mapping):
        unknown = [name for name in answers if name not in names]
        if unknown:
            raise InputError(f"answers of {unknown[0]!r} were given; the experts are {', '.join(names)}.")
        return dict(answers)
    if hasattr(answers, "columns"):
        held = [str(name) for name in answers.columns]
        missing = [name for name in names if name not in held]
        if missing:
            raise InputError(f"answers has no column {missing[0]!r}; its columns are {', '.join(held)}.")
        return {name: answers[name].to_numpy() for name in names}
    table = _as_array(answers)
    if table.ndim == 1 and len(names) == 1:
        table = table.reshape(-1, 1)
    if table.ndim == 3:
        if table.shape != (n_rows, len(names), n_classes):
            raise InputError(
                f"counts of answers must have shape ({n_rows}, {len(names)}, {n_classes}), rows by experts by classes, "
                f"got {table.shape}."
            )
        return {name: Votes(table[:, number]) for number, name in enumerate(names)}
    if table.shape != (n_rows, len(names)):
        raise InputError(
            f"answers must have shape ({n_rows}, {len(names)}), a row for each row of X and a column for each of the "
            f"experts {', '.join(names)}, got {table.shape}."
        )
    return {name: table[:, number] for number, name in enumerate(names)}


def _codes(name: str, given: Any, classes: AnyArray, n_rows: int) -> NDArray[np.int64]:
    """Return class numbers of shape (n_rows, n_people), -1 for gaps."""
    if hasattr(given, "to_numpy"):
        given = given.to_numpy()
    labels = _as_array(given)
    if labels.ndim == 1:
        labels = labels.reshape(-1, 1)
    if labels.ndim != 2 or len(labels) != n_rows:
        raise InputError(
            f"the answers of {name!r} must have shape ({n_rows},), or ({n_rows}, n_people) for several people, got "
            f"{labels.shape}."
        )
    values = np.ma.getdata(labels).astype(object)
    values[np.ma.getmaskarray(labels)] = None
    number_of = {label: number for number, label in enumerate(classes.tolist())}
    codes = np.array([_code(entry, number_of) for entry in values.ravel().tolist()]).reshape(values.shape)
    if (codes == -2).any():
        row, person = np.argwhere(codes == -2)[0]
        raise InputError(
            f"the answer {values.tolist()[row][person]!r} of {name!r} in row {row + 1} is not among the classes "
            f"{_shortened(classes.tolist())}; leave a gap (NaN or None) where an expert gave no answer."
        )
    return codes


def _as_array(values: Any) -> AnyArray:
    """Return an array in which a gap among names stays a gap: NumPy would make the name "nan" of it."""
    if isinstance(values, np.ndarray):
        return values
    array = np.asarray(values)
    return np.array(values, dtype=object) if array.dtype.kind in "US" else array


def _is_gap(entry: Any) -> bool:
    if entry is None or type(entry).__name__ == "NAType":
        return True
    return isinstance(entry, float) and entry != entry


def _code(entry: Any, number_of: dict[Any, int]) -> int:
    if _is_gap(entry) or (entry == "" and "" not in number_of):
        return -1
    return number_of.get(entry, -2)


def _checked_counts(name: str, counts: Floats, shape: tuple[int, int]) -> Floats:
    if counts.shape != shape:
        raise InputError(f"the votes of {name!r} must have shape {shape}, rows by classes, got {counts.shape}.")
    if not np.isfinite(counts).all() or (counts < 0).any():
        raise InputError(f"the votes of {name!r} must be counts: finite and at least 0, and 0 where nobody voted.")
    return counts


def _price(what: str, price: Any, n_rows: int | None = None) -> Floats:
    """Return a price as one number, or with ``n_rows`` also one per row."""
    value = _floats(what, price)
    if value.ndim and value.shape != (n_rows,):
        per_row = "; decide() takes one per row" if n_rows is None else f" or one per row, ({n_rows},)"
        raise InputError(f"{what} must be one number{per_row}, got {price!r}.")
    return value


def _floats(what: str, values: Any) -> Floats:
    try:
        if isinstance(values, str):
            raise TypeError
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputTypeError(f"{what} must be numbers, got {values!r}.") from None


def _shortened(names: Sequence[Any]) -> str:
    return ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
