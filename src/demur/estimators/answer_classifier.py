"""AnswerClassifier: class probabilities from another model's answer and its one confidence."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted

from demur.array_types import Features, Floats, Ints, Mask
from demur.columns.schema import label_of
from demur.errors import InputError
from demur.estimators.base import ProbabilityClassifier, check_two_classes, checked_labels

_SEGMENTS = 20
"""Maximum number of knots of the curve: quantiles of the confidences."""

_RISE = 4.0
"""Prior scale of the increase of the log odds from the smallest to the largest confidence."""

_SPREAD = 0.5
"""Prior scale of the differences between answers in log odds; it counts as much as two answers."""

_ROUNDS = 8
"""Number of iterations to estimate the scale of these differences."""

_LARGEST = 1e30
"""Larger confidences, including infinity, count as this value."""

_ROUNDING = 1e-3
"""Rounding errors by which a log-probability may exceed 0."""

_PRIOR = 4.0
"""Number of mistakes as which the class frequencies count when the mistakes of an answer are divided among the
classes."""


@dataclass(eq=False, repr=False)
class AnswerClassifier(ProbabilityClassifier):
    """Estimate class probabilities from another model's answer and its confidence.

    The log odds that an answer is right are a non-decreasing, piecewise linear function of the confidence, plus a term
    for each answer. Both are penalised, and the penalty of the terms is estimated from the rows, so with few rows the
    curve is nearly the same for all answers. The rest of the probability is divided among the other classes in
    proportion to the mistakes observed with that answer: if an answer is wrong most of the time, another class may be
    the likeliest. If an answer is missing or is not a class, all classes get the same probability.

    Parameters
    ----------
    confidence : bool, default True
        Whether the last column is the confidence, on any increasing scale, such as a probability, a percentage or the
        logarithm of a probability. Otherwise the confidence is the share of the columns that agree with the answer.

    Attributes
    ----------
    classes_ : array
    knots_, curve_ : arrays
        Confidences, and the log odds there for an average answer.
    missing_ : float
        The log odds without a confidence.
    effects_ : array of shape (n_classes,)
        Term added to the log odds for each answer.
    mistakes_ : array of shape (n_classes, n_classes)
        The probability of each class where an answer, the row number, is wrong.

    Notes
    -----
    Rows have one column of answers, or several samples, of which the most frequent one is the answer, the first of them
    in a tie; an empty cell agrees with no other. Texts of answers may differ from a class in case, in surrounding
    spaces, and by the ".0" of integers.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.choice(["bill", "card"], 2000)
    >>> sure = rng.uniform(50, 100, 2000)  # percentages, too high
    >>> wrong = rng.random(2000) > 1.2 * sure / 100 - 0.25
    >>> answer = np.where(wrong, np.where(truth == "bill", "card", "bill"), truth)
    >>> X = np.column_stack([answer.astype(object), sure])
    >>> AnswerClassifier().fit(X, truth).predict_proba([["bill", 97], ["card", 70], ["coat", 99]]).round(1)
    array([[0.9, 0.1],
           [0.4, 0.6],
           [0.5, 0.5]])

    With a rule, which may have a guarantee; because of ``groups``, equal rows do not count as copies:

    >>> from demur import RejectOption
    >>> model = RejectOption(AnswerClassifier(), cost=0.2, calibration=None)
    >>> model.fit(X, truth, groups=np.arange(2000)).predict([["bill", 97], ["card", 70]])
    array(['bill', 'reject'], dtype='<U6')
    """

    kind: ClassVar[str] = "answers"
    reads: ClassVar[str] = "objects"

    confidence: bool = True

    def fit(self, X: Features, y: ArrayLike) -> Self:
        """Learn from answered rows.

        Parameters
        ----------
        X : data frame or array of shape (n_rows, n_columns)
            One column of answers or more, and the confidence last.
        y : array of shape (n_rows,)
            The true classes.
        """
        labels = checked_labels(y)
        self.classes_, true = np.unique(labels, return_inverse=True)
        check_two_classes(self.classes_)
        n_classes = len(self.classes_)
        self.n_features_in_ = np.shape(X)[1]
        said, sure = self._read(X)
        answered = said < n_classes
        if not answered.any():
            raise InputError(
                f"no answer equals a true class such as {self.classes_.tolist()[0]!r}: write both in the same "
                "way, and give the answers first."
            )
        said, sure, true = said[answered], sure[answered], true[answered]
        self._fit_curve(said, sure, said == true)
        frequencies = np.bincount(true, minlength=n_classes) + 1.0
        mistakes = np.tile(_PRIOR * frequencies / frequencies.sum(), (n_classes, 1))
        np.add.at(mistakes, (said, true), 1.0)
        np.fill_diagonal(mistakes, 0.0)
        self.mistakes_ = mistakes / mistakes.sum(axis=1, keepdims=True)
        return self

    def predict_proba(self, X: Features) -> Floats:
        """Return the class probabilities; that of the answered class is the probability that the answer is right.

        Percentages are refused if the confidences of training were fractions, and numbers above 0 if all of them were
        below, such as log-probabilities.
        """
        check_is_fitted(self)
        said, sure = self._read(X)
        lowest, highest = self.knots_[[0, -1]]
        limit = _ROUNDING if lowest < 0 >= highest else 2 if 0 <= lowest <= highest <= 1 else np.inf
        beyond = np.flatnonzero(sure > limit)
        if len(beyond):
            raise InputError(
                f"row {beyond[0] + 1:,} has the confidence {sure[beyond[0]]:g}, but training confidences are at most "
                f"{highest:.3g}: use the same scale."
            )
        proba = np.full((len(said), len(self.classes_)), 1 / len(self.classes_))
        rows = np.flatnonzero(said < len(self.classes_))
        said, sure = said[rows], sure[rows]
        level = np.where(np.isnan(sure), self.missing_, np.interp(sure, self.knots_, self.curve_))
        right = expit(level + self.effects_[said])
        proba[rows] = (1 - right)[:, None] * self.mistakes_[said]
        proba[rows, said] = right
        return proba

    def _read(self, X: Features) -> tuple[Ints, Floats]:
        """Return the number of each row's answer, n_classes for none of the classes, and the confidence."""
        table = np.asarray(X, dtype=object)
        n_samples = self.n_features_in_ - self.confidence
        if table.ndim != 2 or table.shape[1] != self.n_features_in_ or n_samples < 1:
            columns = "answers and one of confidences" if self.confidence else "answers"
            raise InputError(f"rows have columns of {columns}, as many as in fit; got the shape {table.shape}.")
        numbers: dict[Any, int] = {label: code for code, label in enumerate(self.classes_.tolist())}
        named = (label_of(value, numbers) for value in table[:, :n_samples].ravel().tolist())
        said = [numbers.get(label, len(numbers)) for label in named]
        codes = np.array(said, dtype=np.int64).reshape(len(table), n_samples)
        votes = (codes[:, :, None] == codes[:, None, :]).sum(axis=2) * (codes < len(numbers))
        most = np.arange(len(codes)), votes.argmax(axis=1)
        if not self.confidence:
            return codes[most], votes[most] / n_samples
        try:
            sure = table[:, -1].astype(np.float64)
        except (TypeError, ValueError):
            raise InputError("the last column must hold the confidences, as numbers; see confidence=False.") from None
        return codes[most], np.clip(sure, -_LARGEST, _LARGEST)

    def _fit_curve(self, said: Ints, sure: Floats, right: Mask) -> None:
        """Fit log odds = base + curve(confidence) + effect of the answer, by penalised maximum likelihood.

        The scale of the effects is estimated by expectation maximisation, with a Laplace approximation of each effect.
        """
        gaps = np.isnan(sure)
        values = np.unique(np.append(sure[~gaps], [] if (~gaps).any() else 0.0))
        if len(values) > _SEGMENTS + 1:
            levels = np.quantile(sure[~gaps], np.linspace(0, 1, _SEGMENTS + 1), method="inverted_cdf")
            values = np.unique(levels)
        low, width = values[:-1], np.diff(values)
        ramps = np.clip((sure[:, None] - low) / width, 0.0, 1.0)
        centre = np.nansum(ramps, axis=0) / max((~gaps).sum(), 1)
        ramps = np.where(gaps[:, None], 0.0, ramps - centre)
        columns = np.column_stack([np.ones(len(sure)), gaps, ramps])
        n_fixed, n_classes = columns.shape[1], len(self.classes_)
        penalty = np.r_[0.0, 1.0, np.full(len(low), len(low) / _RISE**2), np.full(n_classes, _SPREAD**-2)]
        bounds = [(None, None)] * 2 + [(0.0, None)] * len(low) + [(None, None)] * n_classes
        found, sign = np.zeros(len(penalty)), np.where(right, -1.0, 1.0)

        def loss(theta: Floats) -> tuple[float, Floats]:
            odds = sign * (columns @ theta[:n_fixed] + theta[n_fixed:][said])
            slope = sign * expit(odds)
            gradient = np.r_[slope @ columns, np.bincount(said, slope, minlength=n_classes)] + penalty * theta
            gradient[0] += np.tanh(theta[0] / 2)  # as if one more row were right, and one wrong
            even = np.logaddexp(0, theta[0]) + np.logaddexp(0, -theta[0])
            return float(np.logaddexp(0, odds).sum() + even + penalty @ theta**2 / 2), gradient

        n_used = np.count_nonzero(np.bincount(said))
        for _ in range(_ROUNDS):
            found = minimize(loss, found, jac=True, method="L-BFGS-B", bounds=bounds).x
            chance, effects = expit(columns @ found[:n_fixed] + found[n_fixed:][said]), found[n_fixed:]
            seen = np.bincount(said, chance * (1 - chance), minlength=n_classes)
            variance = (effects**2 + 1 / (seen + penalty[n_fixed:]))[np.bincount(said, minlength=n_classes) > 0]
            penalty[n_fixed:] = (n_used + 2) / (variance.sum() + 2 * _SPREAD**2)
        self.knots_ = values
        self.curve_ = found[0] + np.r_[0.0, np.cumsum(found[2:n_fixed])] - centre @ found[2:n_fixed]
        self.missing_, self.effects_ = float(found[0] + found[1]), found[n_fixed:]
