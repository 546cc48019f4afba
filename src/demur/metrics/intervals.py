"""Confidence intervals of the metrics, from counts and ranks.

A bootstrap can only resample the rows it has: 20 right answers of 20 give 20 of 20 in every sample, whatever the true
rate. The intervals here extend the exact interval of a proportion (Clopper and Pearson 1934) to means and areas.
``tests/metrics/test_intervals.py`` checks the coverage of each, also at the extremes. For other metrics, use
:func:`scipy.stats.bootstrap`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from demur.array_types import AnyArray, Floats, Mask
from demur.errors import InputError
from demur.rules import as_floats


@dataclass(frozen=True, eq=False)
class Interval:
    """An estimate with a confidence interval.

    Parameters
    ----------
    estimate, low, high : float, or arrays of one shape
        NaN if there are no data, such as for the accuracy without answers.
    confidence_level : float
    """

    estimate: Any
    low: Any
    high: Any
    confidence_level: float

    def __str__(self) -> str:
        ends = np.broadcast_arrays(self.estimate, self.low, self.high)
        return "; ".join(f"{e:.4g} [{low:.4g}, {high:.4g}]" for e, low, high in zip(*map(np.ravel, ends), strict=True))


def proportion_interval(count: ArrayLike, n: ArrayLike, confidence_level: float = 0.95) -> Interval:
    """Return the Clopper-Pearson interval of a share, which covers the true share with at least the given confidence.

    Parameters
    ----------
    count : int, or array of int
        Number of rows with a property, such as being answered.
    n : int, or array that broadcasts against it
        Number of all rows. If it is 0, all results are NaN.
    confidence_level : float, default 0.95
        Confidence level, in (0, 1).

    Examples
    --------
    20 right of 20 do not prove that every answer is right:

    >>> print(proportion_interval(20, 20))
    1 [0.8316, 1]
    """
    counts, totals = np.broadcast_arrays(np.asarray(count, dtype=np.float64), np.asarray(n, dtype=np.float64))
    _check_counts("count", counts)
    if not (counts <= totals).all():
        raise InputError(f"count must not exceed n, got {count!r} of {n!r}.")
    return _mean_of_ascending(np.array([0.0, 1.0]), np.stack([totals - counts, counts], axis=-1), confidence_level)


def risk_interval(
    n_wrong: ArrayLike, n_rejected: ArrayLike, n_rows: ArrayLike, cost: ArrayLike, confidence_level: float = 0.95
) -> Interval:
    """Return an interval of the 0-1-c risk, the mean of 1 for a wrong answer, c for a rejection and 0 for a right one.

    All arguments broadcast, so one call can compute a grid of costs.

    Parameters
    ----------
    n_wrong, n_rejected, n_rows : int, or arrays of int
        Wrong answers, rejections, and all rows.
    cost : float, or array of float
        The price c of one rejection.
    confidence_level : float, default 0.95

    Notes
    -----
    As :func:`mean_interval`. Its least coverage at level 0.95, found by summing over all outcomes for n from 5 to 100
    rows, is 0.944.

    Examples
    --------
    20 rejected rows cost exactly 0.2 each, but some of the next rows may be answered:

    >>> print(risk_interval(n_wrong=0, n_rejected=20, n_rows=20, cost=0.2))
    0.2 [0.1663, 0.3347]
    """
    wrong, rejected, rows, price = np.broadcast_arrays(
        *(np.asarray(values, dtype=np.float64) for values in (n_wrong, n_rejected, n_rows, cost))
    )
    if not ((price >= 0) & (price < 1)).all():
        raise InputError(f"cost must be in [0, 1), got {cost!r}.")
    counts = np.stack([rows - wrong - rejected, rejected, wrong], axis=-1)
    _check_counts("right, rejected and wrong answers", counts)
    values = np.stack([np.zeros_like(price), price, np.ones_like(price)], axis=-1)
    return _mean_of_ascending(values, counts, confidence_level)


def mean_interval(values: ArrayLike, counts: ArrayLike, confidence_level: float = 0.95) -> Interval:
    r"""Return an interval of the mean of a variable that has finitely many possible values.

    Parameters
    ----------
    values : array
        All possible values, such as the entries of a cost matrix.
    counts : array of int, of the same shape
        Count of each value, such as a confusion matrix. Values with a count of zero matter: a mistake that costs 10 and
        did not occur in 20 rows may occur in the next one.
    confidence_level : float, default 0.95

    Notes
    -----
    With the values :math:`v_0 < \dots < v_m` the mean is :math:`v_0 + \sum_i (v_i - v_{i-1}) P(X \ge v_i)`. Each of
    these shares has a Clopper-Pearson interval, and the distances from the estimates to its ends are combined like
    standard errors, with the correlations of shares that contain each other, taken at those ends (MOVER, Zou and
    Donner 2008). For two values this is the Clopper-Pearson interval itself, for many rows the usual one.

    References
    ----------
    Zou, Donner (2008), Construction of confidence limits about effect measures: a general approach, Statistics in
    Medicine 27.

    Examples
    --------
    Ten cheap mistakes, and none of those that cost 10, in 100 rows:

    >>> print(mean_interval([0, 1, 10], [90, 10, 0]))
    0.1 [0.049, 0.4645]
    """
    support, seen = np.ravel(np.asarray(values, dtype=np.float64)), np.ravel(np.asarray(counts, dtype=np.float64))
    if np.shape(values) != np.shape(counts) or len(support) < 1:
        raise InputError(f"values and counts need one shape, got {np.shape(values)} and {np.shape(counts)}.")
    if not np.isfinite(support).all():
        raise InputError("values must be finite, got NaN or infinity.")
    _check_counts("counts", seen)
    order = np.argsort(support)
    return _mean_of_ascending(support[order], seen[order], confidence_level)


def area_intervals(confidence: ArrayLike, wrong: ArrayLike, confidence_level: float = 0.95) -> dict[str, Interval]:
    r"""Return intervals of the areas under the risk-coverage curve, by their names.

    They are ``"augrc"``, ``"aurc"`` and ``"aurc_ranked"``. Read the AUGRC first: its interval is always valid and a few
    times narrower than that of the AURC. ``"aurc_ranked"`` is the AURC again, with an interval for scores that rank
    errors: it is valid if the risk does not fall as the coverage grows. Mistakes with the highest confidence, such as
    mislabelled rows, break that.

    Parameters
    ----------
    confidence : array of shape (n,)
        As for :meth:`RiskCoverage.from_confidence <demur.metrics.RiskCoverage.from_confidence>`, whose areas are the
        estimates.
    wrong : array of bool, shape (n,)
    confidence_level : float, default 0.95

    Notes
    -----
    The AURC is a weighted mean of the errors: a row of rank i weighs :math:`(1/i + \dots + 1/n) / n`, so that one error
    at the very top weighs :math:`\log n` times as much as one in the middle. Its variance V is that of the influence
    function :math:`-\ell \log u + r(u) - \int_u^1 r(v) / v \, dv`, where u is the share of rows above the row and r the
    risk. The upper end is the quantile of a beta distribution whose mean and variance are those of the sample with one
    more error at the place where it weighs most, and the lower end that with one more right row there: the idea of Fay
    and Feuer (1997) for weighted rates. With equal weights it would be the Clopper-Pearson interval.

    Without any error the upper end is about :math:`3.7 \log(n) / n`. It cannot be much lower: confident mistakes that
    happen three times in n rows, which such a sample misses every twentieth time, have an area of
    :math:`3 \log(n) / n`.

    If the risk does not fall with the coverage, the area up to the coverage q is at most q times the risk at q. With
    that in its place, a row weighs at most :math:`1 + \log(1 / q)`, and the upper end is that of this larger area; q
    is a quarter.

    References
    ----------
    Fay, Feuer (1997), Confidence intervals for directly standardized rates: a method based on the gamma distribution,
    Statistics in Medicine 16.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(0.5, 1, size=500)
    >>> wrong = rng.uniform(size=500) > confidence
    >>> print(area_intervals(confidence, wrong)["aurc"])
    0.08633 [0.0646, 0.133]
    >>> print(area_intervals(confidence, wrong)["aurc_ranked"])
    0.08633 [0.0646, 0.1235]
    >>> print(area_intervals(confidence[:20], np.zeros(20, dtype=bool))["aurc"])
    0 [0, 0.485]
    """
    tail = _tail(confidence_level)
    scores, errors = check_losses(confidence, wrong)
    if errors.dtype != np.bool_:
        raise InputError(f"wrong must be boolean, got dtype {np.asarray(wrong).dtype}.")
    order = np.argsort(-scores, kind="stable")
    starts = np.flatnonzero(starts_of_ties(scores[order]))
    found = ranked_areas(errors[order].astype(np.float64), starts, tail)
    return {name: Interval(*(float(end) for end in (*ends, confidence_level))) for name, ends in found.items()}


_RANKED = 0.25
"""For scores that rank errors: up to this coverage, the risk is assumed to be at most that at this coverage."""

_NOISE = 1e-12
"""Relative differences below this are rounding errors, not differences between rows."""


def starts_of_ties(descending: Floats) -> Mask:
    """Return where a confidence differs from the one before it by more than rounding noise.

    Examples
    --------
    >>> starts_of_ties(np.array([0.9, 0.3, 0.1 + 0.2 - 1e-16, 0.1]))
    array([ True,  True, False,  True])
    """
    size = np.abs(descending)
    return np.append(True, descending[:-1] - descending[1:] > _NOISE * np.maximum(size[1:], size[:-1]))


def ranked_areas(loss: Floats, starts: NDArray[np.intp], tail: float) -> dict[str, tuple[Floats, Floats, Floats]]:
    """Return each area, and the ends of its interval, of errors from the most to the least confident row.

    Parameters
    ----------
    loss : array of shape (..., n)
    starts : array of int
        Where each group of tied rows begins.
    tail : float
        The probability beyond each end.
    """
    n_rows = loss.shape[-1]
    sizes = np.diff(np.append(starts, n_rows))

    def tied_mean(values: Floats) -> Floats:
        """Replace each value by the mean over the rows that tie with it: the mean over all orders of them."""
        return np.repeat(np.add.reduceat(values, starts, axis=-1) / sizes, sizes, axis=-1)

    rank = np.arange(1.0, n_rows + 1)
    risk = np.cumsum(tied_mean(loss), axis=-1) / rank
    harmonic, height = np.cumsum(1 / rank[::-1])[::-1], (n_rows - rank + 0.5) / n_rows
    below = np.cumsum((risk / rank)[..., ::-1], axis=-1)[..., ::-1]
    in_aurc, in_augrc = loss * tied_mean(harmonic), loss * tied_mean(height)
    aurc, influence = in_aurc.mean(axis=-1), in_aurc + tied_mean(risk - below)
    first = max(round(_RANKED * n_rows), 1) - 1  # the rows up to here weigh the same
    capped = np.minimum(harmonic, harmonic[first]) + (rank <= first + 1)
    moved = (risk - below)[..., np.maximum(np.arange(n_rows), first)]
    ranked = loss * tied_mean(capped)
    interval = _area(aurc, influence, harmonic[0], 1.0, tail)
    _, _, high = _area(ranked.mean(axis=-1), ranked + tied_mean(moved), capped[0], 1.0, tail)
    return {
        "augrc": _area(in_augrc.mean(axis=-1), in_augrc + tied_mean(risk * rank / n_rows), height[0], 0.5, tail),
        "aurc": interval,
        "aurc_ranked": (interval[0], interval[1], np.clip(high, interval[0], 1.0)),
    }


def _area(
    value: Floats, influence: Floats, heaviest: float, largest: float, tail: float
) -> tuple[Floats, Floats, Floats]:
    """Return an area and the ends of its interval, from the influences of the rows and the largest possible area."""
    n_rows = influence.shape[-1]
    share, weight = value / largest, heaviest / n_rows / largest  # the next row may be above all others
    variance = influence.var(axis=-1) / max(n_rows - 1, 1) / largest**2
    low, high = 1 - _upper(1 - share, variance, weight, tail), _upper(share, variance, weight, tail)
    return value, largest * np.minimum(low, share), largest * np.maximum(high, share)


def _upper(share: Floats, variance: Floats, weight: float, tail: float) -> Floats:
    """Return the upper end for a share in [0, 1] after one more error of this weight."""
    mean = np.clip((share + weight) / (1 + weight), 0, 1)
    spread = (variance + (weight * (1 - share)) ** 2) / ((1 + weight) ** 2 * (1 + 2 * weight))
    inside = (mean < 1) & (spread > 0)
    size = np.divide(mean * (1 - mean), spread, out=np.ones_like(mean), where=inside) - 1
    size = np.maximum(size, 1e-3)  # no share varies more than one of zeros and ones
    return np.where(inside, betaincinv(mean * size, np.maximum(1 - mean, 1e-16) * size, 1 - tail), mean)


def _mean_of_ascending(values: Floats, counts: Floats, confidence_level: float) -> Interval:
    """Return the interval of a mean; values ascend along the last axis, and lead the shape of the counts."""
    n_rows = counts.sum(axis=-1)
    total = np.maximum(n_rows, 1)
    reached = np.cumsum(counts[..., ::-1], axis=-1)[..., ::-1][..., 1:]
    share, steps = reached / total[..., None], np.diff(values, axis=-1)
    rest, tail = total[..., None] - reached, _tail(confidence_level)  # Clopper and Pearson
    low = np.where(reached > 0, betaincinv(np.maximum(reached, 1), rest + 1, tail), 0.0)
    high = np.where(rest > 0, betaincinv(reached + 1, np.maximum(rest, 1), 1 - tail), 1.0)
    estimate = (values * counts).sum(axis=-1) / total
    below, above = (_combined(steps * np.abs(end - share), end) for end in (low, high))
    numbers = [np.where(n_rows > 0, one, np.nan) for one in (estimate, estimate - below, estimate + above)]
    plain: list[Any] = [one if one.ndim else one.item() for one in numbers]
    return Interval(*[*plain, confidence_level])


def _combined(distance: Floats, share: Floats) -> Floats:
    """Combine distances like standard errors of nested shares, of which a later one has correlation q_i / q_j."""
    counts = distance > 0
    odds = np.sqrt(np.divide(1 - share, share, out=np.ones_like(share), where=counts))
    before = np.cumsum(distance * odds, axis=-1) - distance * odds
    return np.asarray(np.sqrt((distance**2 + 2 * distance * before / odds).sum(axis=-1)))


def _tail(confidence_level: float) -> float:
    if not 0 < confidence_level < 1:
        raise InputError(f"confidence_level must be in (0, 1), got {confidence_level!r}.")
    return (1 - confidence_level) / 2


def _check_counts(name: str, counts: Floats) -> None:
    whole = (counts >= 0) & (counts == np.floor(counts))
    if not whole.all():
        raise InputError(f"{name} must be numbers of rows, whole and not negative; got {counts[~whole].flat[0]:g}.")


def check_losses(confidence: ArrayLike, loss: ArrayLike) -> tuple[Floats, AnyArray]:
    """Check a confidence and a loss for each row: of one length, at least one, finite; booleans stay booleans.

    Examples
    --------
    >>> check_losses([0.9, 0.6], [0, 1])
    (array([0.9, 0.6]), array([0., 1.]))
    """
    scores = as_floats(confidence).astype(np.float64, copy=False)
    losses = as_floats(loss) if isinstance(loss, np.ma.MaskedArray) else np.asarray(loss)
    if losses.dtype != np.bool_:
        losses = losses.astype(np.float64, copy=False)
    if scores.ndim != 1 or scores.shape != losses.shape or len(scores) == 0:
        raise InputError(
            f"confidence and loss need the same shape (n,) with n >= 1, got {scores.shape} and {losses.shape}."
        )
    for name, values in (("confidence", scores), ("loss", losses)):
        if not np.isfinite(values).all():
            raise InputError(f"{name} contains NaN or infinity; remove those rows, or clip the values, first.")
    return scores, losses
