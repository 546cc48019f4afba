"""Coverage: answer a given share of the rows, the most confident ones; and the checks that all fitted rules share."""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtrc
from sklearn.utils.validation import check_is_fitted

from demur.array_types import AnyArray, Floats
from demur.errors import InputError, InputTypeError
from demur.rules import Decision, ThresholdRule, as_floats, check_proba, register_rule


class FittedThreshold(ThresholdRule):
    """A rule that answers iff the confidence exceeds a threshold found on a calibration sample.

    ``fit`` sets ``threshold_`` and returns the rule itself.
    """

    needs_fit = True
    about_answers: ClassVar[bool] = True
    """Whether ``fit`` looks at answers only, so that rows that are declined in any case are left out."""

    def decide(self, proba: ArrayLike) -> Decision[AnyArray]:
        check_is_fitted(self)
        return super().decide(proba)


@register_rule
class Coverage(FittedThreshold):
    """Answer the most confident rows: at least the share ``target``, and more only because of ties.

    Of the n calibration rows it accepts the smallest number k with k / n >= target. A threshold cannot separate rows of
    equal confidence, so where the k-th most confident row ties with others, all of these are accepted: at least the
    target, at most the target plus the tied rows. New rows are accepted where their confidence
    exceeds that of the most confident calibration row left out.

    With ``delta``, at least the share ``target`` of *new* rows is answered, with probability 1 - delta over the
    calibration rows. A few more of these are then accepted: the smallest k with P(Bin(n, target) >= k) <= delta, or all
    rows where there is none. This is exact for every distribution, also with ties: if the share of new rows with at
    least the confidence of the k-th calibration row is below the target, then at least k calibration rows lie in a set
    of confidences whose probability is at most the target.

    Parameters
    ----------
    target : float
        Share of rows to answer, in (0, 1].
    delta : float, optional
        Probability, over the calibration sample, that fewer of the new rows are answered; in (0, 1). Without it, the
        target is reached on average.

    Attributes
    ----------
    threshold_ : float
        New rows with a larger confidence are answered.
    n_accepted_, n_rows_ : int
        Number of accepted rows and of all rows in the calibration sample.

    Examples
    --------
    Half of four rows are two; where the second and third tie, three:

    >>> rule = Coverage(0.5).fit_confidence([0.9, 0.8, 0.7, 0.6])
    >>> rule.threshold_
    0.7
    >>> Coverage(0.5).fit_confidence([0.9, 0.8, 0.8, 0.6]).threshold_
    0.6
    >>> print(rule.explain())
    Answers where the confidence exceeds 0.7: 2 of 4 calibration rows (50.0 %), at least the 50.0 % asked for. New rows
    are answered about as often if they come from the same source. The error rate is not bounded.

    To be 90 % sure of a half, 57 of 100 calibration rows are accepted:

    >>> Coverage(0.5, delta=0.1).fit_confidence(np.arange(100) / 100).n_accepted_
    57
    """

    name = "coverage"
    about_answers = False

    def __init__(self, target: float, delta: float | None = None) -> None:
        check_share("target", target, closed=True)
        if delta is not None:
            check_share("delta", delta, closed=False)
        self.target = target
        self.delta = delta

    def fit(self, proba: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Find the threshold from probabilities of a calibration sample.

        Parameters
        ----------
        proba : array of shape (n, n_classes)
            Probabilities of rows that the model was not trained on.
        y : ignored
            Not used; present so that all fitted rules have the same signature.
        """
        return self.fit_confidence(check_proba(proba).max(axis=-1))

    def fit_confidence(self, confidence: ArrayLike, wrong: ArrayLike | None = None) -> Self:
        """Find the threshold from confidences on any scale; ``wrong`` is ignored, as is ``y`` in ``fit``."""
        descending = np.sort(check_confidence(confidence))[::-1]
        n_rows = len(descending)
        counts = np.arange(1, n_rows + 1)
        enough = counts / n_rows >= self.target
        if self.delta is not None:
            enough &= bdtrc(counts - 1, n_rows, self.target) <= self.delta
        lowest_accepted = descending[enough.argmax() if enough.any() else -1]
        n_accepted = int(np.searchsorted(-descending, -lowest_accepted, side="right"))
        # New rows may have a confidence below all of these; probabilities are positive.
        below_all = 0.0 if descending[-1] > 0 and enough.any() else -np.inf
        self.threshold_ = float(descending[n_accepted]) if n_accepted < n_rows else below_all
        self.n_accepted_, self.n_rows_ = n_accepted, n_rows
        return self

    def explain(self) -> str:
        if not hasattr(self, "threshold_"):
            return f"Will answer at least {self.target:.1%} of the rows, the most confident ones; not fitted yet."
        new = "New rows are answered about as often"
        if self.delta is not None:
            new = (
                f"With probability at least {1 - self.delta:.4g} over the calibration rows, at least {self.target:.1%} "
                "of new rows are answered,"
            )
        return (
            f"Answers where the confidence exceeds {self.threshold_:.6g}: {self.n_accepted_:,} of {self.n_rows_:,} "
            f"calibration rows ({self.n_accepted_ / self.n_rows_:.1%}), at least the {self.target:.1%} asked for. "
            f"{new} if they come from the same source. The error rate is not bounded."
        ).replace("%", " %")


def check_share(name: str, value: Any, *, closed: bool) -> float:
    """Check a number in (0, 1), or in (0, 1] where ``closed``, and return it as a float."""
    interval = "(0, 1]" if closed else "(0, 1)"
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InputTypeError(f"{name} must be a number in {interval}, got {value!r}.")
    if not (0 < value < 1 or (closed and value == 1)):
        raise InputError(f"{name} must be in {interval}, got {value!r}.")
    return float(value)


def check_confidence(confidence: ArrayLike) -> Floats:
    """Check the confidences of a calibration sample: one per row, at least one row, all finite."""
    values = as_floats(confidence).astype(np.float64, copy=False)
    if values.ndim != 1:
        raise InputError(f"the calibration sample needs one confidence per row, got shape {values.shape}.")
    if len(values) == 0:
        raise InputError("the calibration sample is empty; set rows aside that the model was not trained on.")
    if not np.isfinite(values).all():
        raise InputError("the confidences contain NaN or infinity; remove those rows first.")
    return values
