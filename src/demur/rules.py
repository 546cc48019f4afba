"""Decisions, and the rules that turn class probabilities into them.

The tie convention of the whole package is in :meth:`Decision.from_acceptance`: an example is accepted
where the acceptance r(x) is positive and rejected where it is zero or negative, as in the paper.
"""

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from demur.array_types import AnyArray, AnyMapping, CostLike, FloatArray, Floats, Label
from demur.costs import check_cost, cost_per_row
from demur.errors import InputError, InputTypeError
from demur.named_classes import NamedClasses

__all__ = [
    "Chow",
    "CostMatrix",
    "Decision",
    "Relinked",
    "Rule",
    "Threshold",
    "ThresholdRule",
    "available_rules",
    "get_rule",
    "register_rule",
    "unregister_rule",
]

Array = TypeVar("Array")
"""NumPy array or torch tensor."""


@dataclass(frozen=True)
class Decision(Generic[Array]):
    """What to do with each example: answer with a class, or decline.

    Parameters
    ----------
    label : array of int
        The class that would be answered, also where the example is rejected.
    reject : array of bool
        True where the example is declined.
    acceptance : array of float
        r(x): positive where accepted, zero or negative where rejected.
    confidence : array of float
        Higher means keep; orders the examples for a risk-coverage curve.
    ask : array of int, optional
        Number of the expert who is asked about a rejected example, -1 where the model answers. None if
        the model has no experts.
    costs : array of shape (n, n_classes + n_experts), optional
        Expected cost of each action: answering each class, then asking each expert.
    novel : array of bool, optional
        Where the example is out of distribution. None if novelty was not checked.
    in_scope : array of float, optional
        The probability that the example belongs to one of the classes. None if that was not estimated.

    Examples
    --------
    >>> decision = Chow(cost=0.2).decide([[0.9, 0.1], [0.6, 0.4]])
    >>> decision.label, decision.reject
    (array([0, 0]), array([False,  True]))
    >>> decision.labels(["cat", "dog"], reject_label="ask").tolist()
    ['cat', 'ask']
    """

    label: Array
    reject: Array
    acceptance: Array
    confidence: Array
    ask: Array | None = None
    costs: Array | None = None
    novel: Array | None = None
    in_scope: Array | None = None

    @classmethod
    def from_acceptance(cls, label: Array, acceptance: Array, confidence: Array | None = None) -> Self:
        """Accept where ``acceptance > 0``; ties and undefined values reject."""
        comparable: Any = acceptance
        reject = ~(comparable > 0)
        return cls(label, reject, acceptance, acceptance if confidence is None else confidence)

    @property
    def reason(self) -> NDArray[np.str_]:
        """Why each example is declined: "novel" (unlike the training rows), "out of scope", "ambiguous", or "".

        It is out of scope if that is likelier than not, or if it would be answered if it were known to be in scope;
        otherwise it is ambiguous, between classes.

        Examples
        --------
        >>> decision = Chow(cost=0.2).decide([[0.9, 0.1], [0.6, 0.4], [1.0, 0.0]])
        >>> decision.declining([False, False, True]).reason.tolist()
        ['', 'ambiguous', 'novel']
        """
        decision = self.numpy()
        reason = np.where(decision.reject, "ambiguous", "")
        if decision.in_scope is not None:
            lost = decision.confidence / np.maximum(decision.in_scope, 1e-12) - decision.confidence
            outside = decision.reject & ((decision.in_scope < 0.5) | (decision.acceptance + lost > 0))
            reason = np.where(outside, "out of scope", reason)
        return reason if decision.novel is None else np.where(decision.novel, "novel", reason)

    def declining(self, novel: ArrayLike) -> "Decision[AnyArray]":
        """Return the same decisions, but decline these examples as novel, regardless of the rule.

        Their confidence and acceptance are set to at most 0, so they are declined at every cost.
        """
        decision, mask = self.numpy(), np.asarray(novel, dtype=bool)
        acceptance = np.where(mask, np.fmin(decision.acceptance, 0), decision.acceptance)
        confidence = np.where(mask, np.fmin(decision.confidence, 0), decision.confidence)
        declined = Decision.from_acceptance(decision.label, acceptance, confidence)
        return replace(declined, ask=decision.ask, costs=decision.costs, novel=mask, in_scope=decision.in_scope)

    def within(self, in_scope: ArrayLike, loss: ArrayLike | None = None) -> "Decision[AnyArray]":
        """Return the decisions if each example is in scope with this probability, and any answer is wrong otherwise.

        The confidence is multiplied by the probability, and the acceptance decreases by the same amount. For rules
        whose confidence is not a probability, both decrease by ``loss``.

        Examples
        --------
        >>> decision = Chow(cost=0.2).decide([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4]]).within([1.0, 0.5, 0.9])
        >>> decision.confidence, decision.reason.tolist()
        (array([0.9 , 0.45, 0.54]), ['', 'out of scope', 'ambiguous'])
        """
        decision, share = self.numpy(), np.asarray(in_scope, dtype=np.float64)
        confidence = decision.confidence * share if loss is None else decision.confidence - np.asarray(loss)
        acceptance = decision.acceptance - (decision.confidence - confidence)
        found = Decision.from_acceptance(decision.label, acceptance, confidence)
        return replace(found, novel=decision.novel, in_scope=share)

    def numpy(self) -> "Decision[AnyArray]":
        """Return the same decision with NumPy arrays, whatever it held before."""
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        return Decision(**{name: _to_numpy(value) for name, value in held.items() if value is not None})

    def labels(self, classes: ArrayLike, reject_label: Label = -1) -> AnyArray:
        """Write the decisions as class names, with ``reject_label`` where declined."""
        decision = self.numpy()
        names = np.asarray(classes)
        if names.dtype == np.uint64:  # beside -1, NumPy would turn it into floats
            names = names.astype(np.int64 if names.max() < 2**63 else object)
        answers: AnyArray = names[decision.label]
        is_text = [array.dtype.kind in "US" for array in (answers, np.asarray(reject_label))]
        if is_text[0] == is_text[1] and answers.dtype != bool and reject_label is not None:
            joined = np.where(decision.reject, np.asarray(reject_label), answers)
            known = np.asarray(classes).tolist() if answers.dtype.kind in "iu" and joined.dtype.kind == "f" else []
            if all(int(float(one)) == one for one in known):  # as floats, large integers would become others
                return joined
        answers = answers.astype(object)  # NumPy would turn a -1 among names into the name "-1"
        answers[decision.reject] = reject_label
        return answers


class Parametrised(BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """An estimator whose constructor checks its parameters.

    It equals another of its class with equal parameters and equal fitted state.
    """

    def set_params(self, **params: Any) -> Self:
        """Set parameters, and check them as the constructor does."""
        present = self.get_params(deep=False)
        if params.keys() <= present.keys():
            type(self)(**{**present, **params})  # raises before anything has changed
        super().set_params(**params)
        return self

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and _same_state(vars(self), vars(other))

    __hash__: ClassVar[None]  # type: ignore[assignment] # parameters may change


class Rule(Parametrised, ABC):
    """A rule turns class probabilities into a :class:`Decision`.

    Rules are scikit-learn estimators: the constructor stores its parameters unchanged, ``clone`` and ``set_params``
    work (``rule__target_risk`` in a grid search over :class:`~demur.RejectOption`), and the names of fitted attributes
    end in an underscore. A user-defined rule implements ``_decide`` and preferably :meth:`explain`;
    :func:`register_rule` registers it.

    Two rules are equal if they have the same class, equal parameters and equal fitted state.
    """

    name: ClassVar[str]
    """The name in the registry."""
    needs_fit: ClassVar[bool] = False
    """Whether ``fit(proba, y)`` must come first, on rows that the model was not trained on."""
    cost: CostLike = None
    """The price of one rejection that the rule decides by, where it has a single one; None otherwise."""

    def decide(self, proba: ArrayLike) -> Decision[AnyArray]:
        """Decide for each row of ``proba``, an array of shape (..., n_classes)."""
        return self._decide(check_proba(proba))

    @abstractmethod
    def _decide(self, proba: FloatArray) -> Decision[AnyArray]: ...

    def explain(self) -> str:
        """Describe how the rule decides, and what it guarantees."""
        return f"It decides by the rule {self!r}."


R = TypeVar("R", bound=Rule)

_rules: NamedClasses[Rule] = NamedClasses("rule")


def register_rule(cls: type[R]) -> type[R]:
    """Register a rule under its ``name``, so that models that use it can be saved and listed; a class decorator.

    Raises
    ------
    InputError
        If another class already has the name.

    Examples
    --------
    A rule that answers only where the second class is far behind the first:

    >>> @register_rule
    ... class Lead(Rule):
    ...     "Answer iff the two largest probabilities differ by more than ``lead``."
    ...     name = "lead"
    ...     def __init__(self, lead):
    ...         self.lead = lead
    ...     def _decide(self, proba):
    ...         second, first = np.sort(proba, axis=-1)[..., -2:].T
    ...         return Decision.from_acceptance(proba.argmax(axis=-1), first - second - self.lead)
    ...     def explain(self):
    ...         return f"It answers where the likeliest class leads by more than {self.lead}."
    >>> get_rule("lead", lead=0.5).decide([[0.8, 0.1, 0.1], [0.6, 0.4, 0.0]]).reject
    array([False,  True])
    >>> unregister_rule("lead")
    """
    _rules.add(cls.name, cls)
    return cls


def unregister_rule(name: str) -> None:
    """Remove a rule from the registry."""
    del _all_rules()[name]


def get_rule(name: str, **params: Any) -> Rule:
    """Return the registered rule of that name, with these parameters.

    Examples
    --------
    >>> get_rule("chow", cost=0.2)
    Chow(cost=0.2)
    >>> get_rule("cow", cost=0.2)
    Traceback (most recent call last):
        ...
    demur.errors.InputError: unknown rule 'cow'. Did you mean 'chow'? Available: chow, cost-matrix, coverage, ...
    """
    return _all_rules().make(name, **params)


def available_rules() -> dict[str, type[Rule]]:
    """Return the class of each registered rule by its name, in alphabetical order.

    Examples
    --------
    >>> list(available_rules())
    ['chow', 'cost-matrix', 'coverage', 'relinked', 'risk-control', 'threshold']
    """
    return {name: _rules[name] for name in _all_rules()}


def _all_rules() -> NamedClasses[Rule]:
    import_module("demur.guarantees")  # it registers rules and builds on this module
    return _rules


def chow_acceptance(confidence: Any, cost: CostLike) -> Any:
    """Return r = max_y eta_y - (1 - c), the Bayes-optimal rejector (Section 2.1 and Eq. 10 of the paper)."""
    return confidence - (1 - cost)


@register_rule
class Chow(Rule):
    """Chow's rule, optimal for the 0-1-c loss: answer iff max_y eta_y > 1 - c.

    Parameters
    ----------
    cost : float, or array of one per row
        Cost c of one rejection, in [0, 1); a wrong answer costs 1.

    Notes
    -----
    Ties reject. At c = 0 declining is free, and every row is rejected: a probability of exactly 1 is a tie.

    Examples
    --------
    >>> Chow(cost=0.25).decide([[0.75, 0.25], [0.8, 0.2]]).reject
    array([ True, False])
    """

    name = "chow"

    def __init__(self, cost: float | FloatArray) -> None:
        check_cost(cost)
        self.cost = cost

    def _decide(self, proba: FloatArray) -> Decision[AnyArray]:
        confidence = proba.max(axis=-1)
        cost = cost_per_row(self.cost, confidence.shape)
        return Decision.from_acceptance(proba.argmax(axis=-1), chow_acceptance(confidence, cost), confidence)

    def explain(self) -> str:
        if np.ndim(self.cost):
            return "It answers where its confidence exceeds 1 - cost, with a cost for each row; it guarantees nothing."
        return (
            f"It answers where its confidence exceeds {1 - float(self.cost):.6g}: declining costs "
            f"{float(self.cost):g}, a wrong answer 1; it guarantees nothing."
        )


class ThresholdRule(Rule):
    """A rule that answers iff the largest class probability exceeds ``threshold_``; ties reject.

    Subclasses have the attribute ``threshold_``, a number or an array that broadcasts against the rows. Nothing else
    is needed to decide, or to export the rule.
    """

    threshold_: Any

    def _decide(self, proba: FloatArray) -> Decision[AnyArray]:
        confidence = proba.max(axis=-1)
        # In double precision, as where the threshold was fitted: 0.8 in single precision exceeds 0.8.
        acceptance = np.subtract(confidence, self.threshold_, dtype=np.float64)
        return Decision.from_acceptance(proba.argmax(axis=-1), acceptance, confidence)


@register_rule
class Threshold(ThresholdRule):
    """Answer iff max_y eta_y > t, for a threshold the user has chosen.

    Parameters
    ----------
    threshold : float, or array broadcasting against the rows
        Threshold in [0, 1]. ``Threshold(1 - c)`` decides as ``Chow(c)``.

    Examples
    --------
    >>> Threshold(0.5).decide([[0.4, 0.3, 0.3], [0.6, 0.2, 0.2]]).reject
    array([ True, False])
    """

    name = "threshold"

    def __init__(self, threshold: float | FloatArray) -> None:
        values = np.asarray(threshold, dtype=np.float64)
        if not np.all((values >= 0) & (values <= 1)):
            raise InputError(f"threshold must be in [0, 1], got {threshold}.")
        self.threshold = threshold

    @property
    def threshold_(self) -> Any:
        """The threshold itself."""
        return self.threshold

    def explain(self) -> str:
        return f"It answers where its confidence exceeds {np.asarray(self.threshold).tolist()}; it guarantees nothing."


@register_rule
class CostMatrix(Rule):
    """The Bayes decision for costs that depend on the true class and on the answer.

    With eta the class probabilities, answer j costs sum_y eta_y C[y, j] on average and rejecting costs
    sum_y eta_y C[y, K]; the cheapest is chosen, and a tie rejects. The acceptance is what answering saves.

    Parameters
    ----------
    costs : array of shape (n_classes, n_classes + 1), or (n_rows, n_classes, n_classes + 1)
        Rows are true classes, columns answers; the last column is the cost of rejecting that class. An array with three
        axes has one cost matrix per example.

    Examples
    --------
    Missing a disease (row 1) is ten times worse than a false alarm (row 0), and asking costs 0.3:

    >>> triage = CostMatrix([[0, 1, 0.3], [10, 0, 0.3]])
    >>> triage.decide([[0.99, 0.01], [0.9, 0.1], [0.1, 0.9]]).reject
    array([False,  True, False])
    """

    name = "cost-matrix"

    def __init__(self, costs: ArrayLike) -> None:
        self.costs = costs
        self._matrix()  # raises if this is not a cost matrix

    def explain(self) -> str:
        return "It takes the action of least expected cost, an answer or declining; it guarantees nothing."

    def _matrix(self) -> Floats:
        matrix = np.asarray(self.costs, dtype=np.float64)
        if matrix.ndim not in (2, 3) or matrix.shape[-1] != matrix.shape[-2] + 1 or matrix.shape[-2] < 2:
            raise InputError(
                f"a cost matrix has shape (K, K + 1) or (n, K, K + 1), with rejection last; got {matrix.shape}."
            )
        if not np.isfinite(matrix).all():
            raise InputError("a cost matrix must be finite; use a large number instead of infinity.")
        return matrix

    def _decide(self, proba: FloatArray) -> Decision[AnyArray]:
        matrix = self._matrix()
        n_classes = matrix.shape[-2]
        if proba.shape[-1] != n_classes:
            raise InputError(f"the cost matrix is for {n_classes} classes, the probabilities have {proba.shape[-1]}.")
        if matrix.ndim == 3 and proba.shape[:-1] != matrix.shape[:1]:
            raise InputError(
                f"the cost matrix is for {matrix.shape[0]} rows, the probabilities have {proba.shape[:-1]}."
            )
        expected = np.einsum("...k,...kj->...j", proba, matrix)
        answers, rejecting = expected[..., :-1], expected[..., -1]
        return Decision.from_acceptance(answers.argmin(axis=-1), rejecting - answers.min(axis=-1))


@register_rule
class Relinked(Rule):
    """Chow's rule on probabilities that are first corrected for the loss that a model was trained with.

    If a loss is not proper, the softmax of the scores does not estimate the class probabilities.
    :func:`demur.theory.check_calibration` finds the correction (``report.repair().rule``). Most forms take the softmax
    p and give probabilities eta:

    - "power": eta_k is proportional to exp(offset_k) p_k^slope (a temperature, a power, or a logit adjustment);
    - "affine": eta = p @ slope, cut at 0 and normalised (label smoothing, noisy labels);
    - "monotone": eta_k is proportional to exp f(log(p_k / (1 - p_k))); offset has the values of f at equally spaced
      points from slope[0] to slope[1], and f is linear between them and beyond.

    Two forms take a score g_k of each class instead of p, and give probabilities that need not sum to 1:

    - "linear": eta_k = slope g_k + offset;
    - "sigmoid": eta_k = 1 / (1 + exp(-slope g_k - offset)).

    Parameters
    ----------
    cost : float
        The price c of one rejection.
    form : {"power", "affine", "monotone", "linear", "sigmoid"}
    slope, offset : float or array
        As above.

    Examples
    --------
    A network whose softmax p is proportional to eta^2:

    >>> rule = Relinked(cost=0.2, form="power", slope=0.5)
    >>> rule.link(np.array([[0.81, 0.18, 0.01]])).round(3)
    array([[0.632, 0.298, 0.07 ]])
    >>> rule.decide([[0.81, 0.18, 0.01], [0.98, 0.01, 0.01]]).reject
    array([ True, False])
    """

    name = "relinked"

    def __init__(self, cost: float, form: str, slope: Any = 1.0, offset: Any = 0.0) -> None:
        check_cost(cost)
        if form not in ("power", "affine", "monotone", "linear", "sigmoid"):
            raise InputError(f"form must be 'power', 'affine', 'monotone', 'linear' or 'sigmoid', got {form!r}.")
        self.cost = cost
        self.form = form
        self.slope = slope
        self.offset = offset

    @property
    def of_scores(self) -> bool:
        """Whether the rule takes scores instead of probabilities."""
        return self.form in ("linear", "sigmoid")

    def decide(self, proba: ArrayLike) -> Decision[AnyArray]:
        """Decide for each row of probabilities, or of scores for a rule that takes these."""
        return self._decide(as_floats(proba)) if self.of_scores else super().decide(proba)

    def link(self, proba: Any) -> Any:
        """Return the corrected probabilities, as an array or as the tensor that was given."""
        library = library_of(proba)
        slope, offset = (library.asarray(np.asarray(value), dtype=proba.dtype) for value in (self.slope, self.offset))
        if self.of_scores:
            worth = slope * proba + offset
            return worth if self.form == "linear" else 1 / (1 + library.exp(-worth))
        if self.form == "affine":
            eta = (proba @ slope).clip(min=0)
            return eta / eta.sum(-1)[..., None]
        tiny = library.finfo(proba.dtype).tiny  # at temperature 7 the p of a rare class is its eta to the power 7
        p = proba.clip(min=tiny)
        if self.form == "power":
            worth = slope * library.log(p) + offset
        else:
            odds = library.log(p) - library.log((1 - p).clip(min=tiny))
            place = (odds - slope[0]) / (slope[1] - slope[0]) * (len(offset) - 1)
            below = library.floor(place).clip(0, len(offset) - 2)
            cell = below.astype(np.int64) if library is np else below.long()
            worth = offset[cell] + (place - cell) * (offset[cell + 1] - offset[cell])
        eta = library.exp(worth - library.amax(worth, -1)[..., None])
        return eta / eta.sum(-1)[..., None]

    def _decide(self, proba: FloatArray) -> Decision[AnyArray]:
        return Chow(self.cost)._decide(self.link(proba))

    def explain(self) -> str:
        return f"It corrects the probabilities ({self.form}), then answers where the largest exceeds {1 - self.cost:g}."


def library_of(values: Any) -> Any:
    """Return NumPy for an array and torch for a tensor, for code that computes with either.

    Examples
    --------
    >>> library_of(np.zeros(2)) is np
    True
    """
    return sys.modules[type(values).__module__]


def check_proba(proba: ArrayLike) -> FloatArray:
    """Check class probabilities of shape (..., n_classes): finite, in [0, 1], rows summing to 1.

    Examples
    --------
    >>> check_proba([[0.5, 0.6]])
    Traceback (most recent call last):
        ...
    demur.errors.InputError: probabilities must sum to 1 in each row; row 1 sums to 1.1. Normalise them first.
    """
    values = as_floats(proba)
    if values.ndim == 0 or values.shape[-1] < 2:
        raise InputError(f"probabilities need shape (..., n_classes) with at least two classes, got {values.shape}.")
    slack = 1e-3  # room for numbers that were float16, and for sums over many classes
    if values.size and not (values.min() >= -slack and values.max() <= 1 + slack):  # NaN compares as False
        if not np.isfinite(values).all():
            raise InputError("probabilities contain NaN or infinity; remove or impute those rows first.")
        bad = values[(values < -slack) | (values > 1 + slack)].flat[0]
        raise InputError(f"probabilities must lie in [0, 1], got {bad:g}. Scores need an inverse link first.")
    sums = np.einsum("...k->...", values)  # far quicker than sum for few classes
    if values.size and not (sums.min() >= 1 - slack and sums.max() <= 1 + slack):
        row = int(np.flatnonzero(np.abs(sums - 1) > slack)[0])
        raise InputError(
            f"probabilities must sum to 1 in each row; row {row + 1} sums to {sums.flat[row]:g}. Normalise them first."
        )
    return values


def check_rows(proba: ArrayLike) -> FloatArray:
    """Check class probabilities of a sample, of shape (n, n_classes) with at least one row.

    Examples
    --------
    >>> check_rows([0.5, 0.5])
    Traceback (most recent call last):
        ...
    demur.errors.InputError: proba must have shape (n, n_classes) with at least one row, got (2,).
    """
    values = check_proba(proba)
    if values.ndim != 2 or len(values) == 0:
        raise InputError(f"proba must have shape (n, n_classes) with at least one row, got {values.shape}.")
    return values


def check_classes(y: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.integer[Any]]:
    """Check true classes, given as column numbers of probabilities of this shape (n, n_classes): one integer per row.

    Examples
    --------
    >>> check_classes(["cat"], (1, 2))
    Traceback (most recent call last):
        ...
    demur.errors.InputTypeError: y must hold column numbers of proba (integers), got dtype <U3.
    """
    true = np.asarray(y)
    if true.shape != shape[:1]:
        raise InputError(f"y must have shape {shape[:1]}, one class per row of proba, got {true.shape}.")
    if len(true) and true.dtype.kind not in "iu":
        raise InputTypeError(f"y must hold column numbers of proba (integers), got dtype {true.dtype}.")
    if ((true < 0) | (true >= shape[1])).any():
        outside = true[(true < 0) | (true >= shape[1])][0]
        raise InputError(f"y must hold column numbers from 0 to {shape[1] - 1}, got {outside}.")
    return true


def check_weights(sample_weight: ArrayLike | None, n_examples: int) -> Floats:
    """Return one weight per example: finite, not negative, not all zero; equal weights by default.

    Examples
    --------
    >>> check_weights([1, 2, 3], 3)
    array([1., 2., 3.])
    """
    if sample_weight is None:
        return np.ones(n_examples)
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n_examples,):
        raise InputError(f"sample_weight must have shape ({n_examples},), one per example, got {weights.shape}.")
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise InputError(f"sample_weight must be finite and not negative, got {weights.min():g}.")
    if not weights.any():
        raise InputError("sample_weight is zero for every example; at least one must count.")
    return weights


def _same_state(one: AnyMapping, other: AnyMapping) -> bool:
    """Return whether two objects have equal attributes, arrays included."""
    return one.keys() == other.keys() and all(
        np.array_equal(value, other[name]) if np.ndim(value) or np.ndim(other[name]) else bool(value == other[name])
        for name, value in one.items()
    )


def _to_numpy(array: Any) -> AnyArray:
    """Return an array or a tensor as an array; half precision becomes single, because NumPy has no bfloat16."""
    if hasattr(array, "detach"):
        array = array.detach().cpu()
        array = array.float() if array.is_floating_point() and array.element_size() < 4 else array
    return np.asarray(array)


def as_floats(values: ArrayLike) -> FloatArray:
    """Return numbers in single or double precision, NaN where they are masked.

    Half precision becomes single, because it cannot distinguish 0.997 from 0.9975.
    """
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    array = _to_numpy(values)
    if array.dtype == np.float16:
        return array.astype(np.float32)
    return array if np.issubdtype(array.dtype, np.floating) else array.astype(np.float64)
