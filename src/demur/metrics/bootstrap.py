"""Bootstrap intervals for any statistic: how much it varies over resampled rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.errors import InputError
from demur.metrics.intervals import Interval

__all__ = ["bootstrap"]


def bootstrap(
    statistic: Callable[..., Any],
    *arrays: ArrayLike,
    n_resamples: int = 1000,
    confidence_level: float = 0.95,
    seed: Any = None,
) -> Interval:
    """Resample rows with replacement and return the percentile interval of a statistic (Efron 1979).

    This is for statistics of your own. For shares, risks and areas :mod:`demur.metrics.intervals` is faster, and right
    where a bootstrap is not: with few rows, and where all of them agree.

    Parameters
    ----------
    statistic : callable
        Takes the arrays, resampled together, and returns a number, or an array of one fixed shape: a curve read
        off at given points gets a band.
    *arrays : arrays with the same first axis
        One row per example.
    n_resamples : int, default 1000
    confidence_level : float, default 0.95
        In (0, 1).
    seed : int, numpy.random.Generator or None
        As for :func:`numpy.random.default_rng`; equal integers give equal intervals.

    Returns
    -------
    Interval
        Where the statistic is NaN in some resamples (the risk of no accepted row, say), those are left out and
        counted. Where the estimate itself is NaN, so are the ends.

    Examples
    --------
    >>> from demur.metrics import RiskCoverage
    >>> rng = np.random.default_rng(0)
    >>> confidence = rng.uniform(size=500)
    >>> wrong = rng.uniform(size=500) > confidence
    >>> aurc = bootstrap(lambda s, w: RiskCoverage.from_confidence(s, w).aurc, confidence, wrong, seed=0)
    >>> bool(aurc.low < aurc.estimate < aurc.high)
    True
    >>> at = [0.2, 0.5, 1.0]
    >>> band = bootstrap(lambda s, w: RiskCoverage.from_confidence(s, w).risk_at(at), confidence, wrong, seed=0)
    >>> band.low.shape
    (3,)
    """
    rows = _check_arrays(arrays)
    if not isinstance(n_resamples, (int, np.integer)) or isinstance(n_resamples, bool) or n_resamples < 1:
        raise InputError(f"n_resamples must be a positive integer, got {n_resamples!r}.")
    if not 0 < confidence_level < 1:
        raise InputError(f"confidence_level must be in (0, 1), got {confidence_level!r}.")
    rng = np.random.default_rng(seed)
    n_rows = len(rows[0])
    estimate = np.asarray(statistic(*rows), dtype=np.float64)
    resamples = np.empty((n_resamples, *estimate.shape))
    for resample in resamples[:, None] if estimate.ndim == 0 else resamples:
        chosen = rng.integers(n_rows, size=n_rows)
        value = np.asarray(statistic(*(array[chosen] for array in rows)), dtype=np.float64)
        if value.shape != estimate.shape:
            raise InputError(
                f"statistic must return one fixed shape, got {estimate.shape} for all rows and {value.shape} for a "
                "resample; read a curve off at fixed points."
            )
        resample[...] = value
    undefined = np.isnan(resamples)
    tail = (1 - confidence_level) / 2
    ends = _quantiles(resamples, undefined | np.isnan(estimate), (tail, 1 - tail))
    return Interval(
        _plain(estimate), _plain(ends[0]), _plain(ends[1]), confidence_level, resamples, _plain(undefined.sum(axis=0))
    )


def _quantiles(
    resamples: NDArray[np.float64], left_out: NDArray[np.bool_], levels: tuple[float, float]
) -> NDArray[np.float64]:
    ends = np.full((2, *resamples.shape[1:]), np.nan)
    for where in np.ndindex(resamples.shape[1:]):
        kept = resamples[(slice(None), *where)][~left_out[(slice(None), *where)]]
        if len(kept):
            ends[(slice(None), *where)] = np.quantile(kept, levels)
    return ends


def _check_arrays(arrays: tuple[ArrayLike, ...]) -> list[NDArray[Any]]:
    rows = [np.asarray(array) for array in arrays]
    lengths = [len(array) if array.ndim else None for array in rows]
    if not rows or lengths[0] in (None, 0) or len(set(lengths)) > 1:
        raise InputError(f"give one or more arrays with the same number of rows, at least one; got lengths {lengths}.")
    return rows


def _plain(value: NDArray[Any]) -> Any:
    return value.item() if np.ndim(value) == 0 else value
