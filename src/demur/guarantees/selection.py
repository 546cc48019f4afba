"""Choosing a threshold with a bound on the risk that holds in spite of the choice: two procedures."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from demur.errors import InputError
from demur.guarantees.binomial import p_value, rows_needed, upper_bound

__all__ = ["Certificate", "NoGuaranteeError", "fixed_sequence", "fixed_thresholds", "sgr"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Certificate:
    """A threshold, what it accepted on the calibration sample, and the bound that its test gives.

    Parameters
    ----------
    threshold : float
    n_rows, n_accepted, n_wrong : int
        Of the calibration sample.
    level : float
        The part of delta that this threshold was tested at.
    bound : float
        The Clopper-Pearson upper bound of the risk at that level: at most the target.
    method : str
    """

    threshold: float
    n_rows: int
    n_accepted: int
    n_wrong: int
    level: float
    bound: float
    method: str


class NoGuaranteeError(InputError):
    """No threshold keeps the risk at its target with the confidence asked for.

    Attributes
    ----------
    best : Certificate
        The threshold with the smallest bound, which is above the target.
    rows_needed : int
        The number of accepted rows that it takes at the least, if all of them are right.
    """

    best: Certificate
    rows_needed: int


def sgr(confidence: Floats, wrong: NDArray[np.bool_], target_risk: float, delta: float) -> Certificate:
    """Search for the largest number of accepted rows by bisection (Geifman and El-Yaniv 2017, Algorithm 1).

    Accepting the k most confident rows is tested by a Clopper-Pearson bound at level delta / ceil(log2(n + 1)), the
    number of tests that a bisection over k = 1, ..., n makes. Three points differ from the publication:

    - The threshold is the confidence of row k + 1, and rows are accepted strictly above it. Given that threshold the
      k rows are independent draws from the accepted population, as the bound needs; a row that sits on the threshold
      is not, and is not counted.
    - Accepting all rows is among the candidates.
    - Where no test succeeds there is no answer, instead of the last threshold tried.

    The union over the tests is valid where the true selective risk does not fall as the coverage grows: then, as
    long as no test has erred, the bisection is on its way to the true optimum, along one path of tests only.
    """
    sample = _Sample(confidence, wrong)
    level = delta / math.ceil(math.log2(sample.n_rows + 1))
    passed, failed = 0, sample.n_rows + 1
    accepted, refused = [], []
    while failed - passed > 1:
        k = (passed + failed) // 2
        n_accepted, n_wrong = (int(count) for count in sample.above(sample.threshold_of(k)))
        bound = float(upper_bound(n_wrong, n_accepted, level))
        tested = Certificate(sample.threshold_of(k), sample.n_rows, n_accepted, n_wrong, level, bound, "sgr")
        if bound <= target_risk:
            passed = k
            accepted.append(tested)
        else:
            failed = k
            refused.append(tested)
    if not accepted:
        best = min(refused, key=lambda tested: tested.bound)
        raise _no_guarantee(best, target_risk, delta, rows_needed(target_risk, level))
    return accepted[-1]


_STEPS = 32
"""Thresholds for each factor of two in 1 - t."""
_OCTAVES_BELOW = 20
"""The most cautious threshold is t = 1 - target_risk / 2^20."""
_DECAY = 0.7
"""Each octave away from t = 1 - target_risk starts with this much less of delta than the one before."""


def fixed_thresholds(target_risk: float) -> tuple[Floats, Floats]:
    """Return thresholds on a probability, descending, and the part of delta that each starts with.

    Both are fixed before any data are seen. 1 - t grows geometrically. Calibrated probabilities above
    t = 1 - target_risk have a risk below the target for certain, and the best threshold is not far below, so that
    the largest part of delta starts there, and less with every factor of two in 1 - t away from it.

    Examples
    --------
    >>> thresholds, parts = fixed_thresholds(0.1)
    >>> float(thresholds[parts.argmax()]), float(thresholds[-1])
    (0.9, 0.0)
    >>> float(parts.sum().round(12))
    1.0
    """
    steps = np.arange(-_OCTAVES_BELOW * _STEPS, math.ceil(-math.log2(target_risk) * _STEPS))
    thresholds = np.append(1 - target_risk * 2.0 ** (steps / _STEPS), 0.0)
    parts = np.append(np.where(steps % _STEPS == 0, _DECAY ** np.abs(steps / _STEPS), 0.0), 0.0)
    return thresholds, parts / parts.sum()


def fixed_sequence(confidence: Floats, wrong: NDArray[np.bool_], target_risk: float, delta: float) -> Certificate:
    """Test fixed thresholds from the most cautious down (learn then test, Angelopoulos et al. 2021).

    The hypothesis "the risk above t exceeds the target" is tested for each threshold of :func:`fixed_thresholds` by
    an exact binomial test. A threshold is tested at its own part of delta, plus, if the one before it was rejected,
    all that that one was tested at: the fallback procedure (Wiens 2003), fixed-sequence testing with several
    starts. The first wrong rejection, if any, is of a true hypothesis k at a level that is the sum of the parts since
    the last true one before k; these levels sum to at most delta over the true hypotheses, whatever they are.
    Given how many rows are accepted at a fixed threshold, their errors are binomial. So the guarantee is exact for
    every distribution, with ties and without a monotone risk. The order matters for power only: risk is expected to
    grow as the threshold falls, so that levels add up on the way to the lowest threshold that can be rejected.
    """
    thresholds, parts = fixed_thresholds(target_risk)
    accepted, errors = _Sample(confidence, wrong).above(thresholds)
    p_values = p_value(errors, accepted, target_risk)
    own = delta * parts
    level, chosen, chosen_level = 0.0, -1, 0.0
    for index, (part, p) in enumerate(zip(own.tolist(), p_values.tolist(), strict=True)):
        level += part
        if p <= level:
            chosen, chosen_level = index, level
        else:
            level = 0.0
    found = chosen >= 0
    if not found:
        bounds = upper_bound(errors, accepted, own)
        chosen = int(bounds.argmin() if bounds.min() < 1 else own.argmax())
        chosen_level = float(own[chosen])
    bound = float(upper_bound(errors[chosen], accepted[chosen], chosen_level))
    certificate = Certificate(
        float(thresholds[chosen]), len(confidence), int(accepted[chosen]), int(errors[chosen]), chosen_level, bound,
        "fixed-sequence",
    )  # fmt: skip
    if not found:
        raise _no_guarantee(certificate, target_risk, delta, rows_needed(target_risk, delta))
    return certificate


class _Sample:
    """A calibration sample, sorted once, to count what lies above any threshold."""

    def __init__(self, confidence: Floats, wrong: NDArray[np.bool_]) -> None:
        self.n_rows = len(confidence)
        self.confidence, self.of_wrong = np.sort(confidence), np.sort(confidence[wrong])

    def above(self, threshold: float | Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the number of rows, and of wrong rows, with a confidence above each threshold."""
        n_rows, n_wrong = (
            len(values) - np.searchsorted(values, threshold, side="right")
            for values in (self.confidence, self.of_wrong)
        )
        return np.asarray(n_rows), np.asarray(n_wrong)

    def threshold_of(self, k: int) -> float:
        """Return the threshold above which the k most confident rows lie, or fewer where row k + 1 ties."""
        if k < self.n_rows:
            return float(self.confidence[self.n_rows - k - 1])
        return 0.0 if self.confidence[0] > 0 else -math.inf


def _no_guarantee(best: Certificate, target_risk: float, delta: float, needed: int) -> NoGuaranteeError:
    error = NoGuaranteeError(
        f"no threshold guarantees a risk of at most {target_risk:g} with probability {1 - delta:g}: on these "
        f"{best.n_rows:,} calibration rows the smallest bound is {best.bound:.3g} (accepting {best.n_accepted:,} rows, "
        f"{best.n_wrong:,} of them wrong), and even without any error at least {needed:,} accepted rows are needed. "
        "More calibration rows, a higher target_risk, a larger delta or a better model would help."
    )
    error.best, error.rows_needed = best, needed
    return error
