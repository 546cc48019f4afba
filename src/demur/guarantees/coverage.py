"""Coverage: answer a given share of the rows, the most confident ones."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from demur.guarantees.fitted_threshold import FittedThreshold, check_confidence, check_share
from demur.rules import check_proba

__all__ = ["Coverage"]


@dataclass(frozen=True)
class _Fit:
    """What was seen on the calibration sample."""

    threshold: float
    n_accepted: int
    n_rows: int


@dataclass(frozen=True)
class Coverage(FittedThreshold):
    """Answer at least the share ``target`` of the rows, the most confident ones, and as little more as ties allow.

    Of the n calibration rows it accepts the smallest number k with k / n >= target. Rows of equal confidence cannot
    be told apart by a threshold, so where the k-th most confident row ties with others the whole tied group is
    accepted: at least the target, at most the target plus that group. New rows are accepted where their confidence
    exceeds that of the most confident calibration row left out.

    Parameters
    ----------
    target : float
        In (0, 1].

    Examples
    --------
    Half of four rows are two; where the second and third tie, three:

    >>> rule = Coverage(0.5).fit_confidence([0.9, 0.8, 0.7, 0.6])
    >>> rule.threshold
    0.7
    >>> Coverage(0.5).fit_confidence([0.9, 0.8, 0.8, 0.6]).threshold
    0.6
    >>> print(rule.explain())
    Answers where the confidence exceeds 0.7: 2 of 4 calibration rows (50.0 %), at least the 50.0 % asked for. New rows
    are answered about as often if they come from where the calibration rows came from. Nothing is said about their
    errors.
    """

    target: float
    fitted: _Fit | None = None

    def __post_init__(self) -> None:
        check_share("target", self.target, closed=True)

    def fit(self, proba: ArrayLike, y: ArrayLike | None = None) -> "Coverage":
        """Return the rule with the threshold that these probabilities give.

        Parameters
        ----------
        proba : array of shape (n, n_classes)
            Of rows that the model was not trained on.
        y : ignored
            Coverage needs no labels; here so that all fitted rules are called alike.
        """
        return self.fit_confidence(check_proba(proba).max(axis=-1))

    def fit_confidence(self, confidence: ArrayLike) -> "Coverage":
        """Return the rule with the threshold that these confidences, on any scale, give."""
        descending = np.sort(check_confidence(confidence))[::-1]
        n_rows = len(descending)
        shares = np.arange(1, n_rows + 1) / n_rows
        lowest_accepted = descending[np.searchsorted(shares, self.target)]
        n_accepted = int(np.searchsorted(-descending, -lowest_accepted, side="right"))
        below_all = 0.0 if descending[-1] > 0 else -np.inf
        threshold = float(descending[n_accepted]) if n_accepted < n_rows else below_all
        return replace(self, fitted=_Fit(threshold, n_accepted, n_rows))

    @property
    def threshold(self) -> float:
        if self.fitted is None:
            raise self._not_fitted()
        return self.fitted.threshold

    def explain(self) -> str:
        if self.fitted is None:
            return f"Will answer at least {self.target:.1%} of the rows, the most confident ones; not fitted yet."
        seen = self.fitted
        return (
            f"Answers where the confidence exceeds {seen.threshold:.6g}: {seen.n_accepted:,} of {seen.n_rows:,} "
            f"calibration rows ({seen.n_accepted / seen.n_rows:.1%}), at least the {self.target:.1%} asked for. New "
            "rows are answered about as often if they come from where the calibration rows came from. Nothing is said "
            "about their errors."
        ).replace("%", " %")
