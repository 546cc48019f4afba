"""Which methods are as good as the best one: the test behind the bold figures."""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

__all__ = ["LEVEL", "ROUNDING", "TEST", "best_and_equivalent", "worse_than"]

LEVEL = 0.05

ROUNDING = 1e-9
"""Risks that differ by less are equal: trials that all reject everything differ by rounding errors alone."""

TEST = """\
The test is a two-sample Student t-test (equal variances), one-sided at the 5 % level: is the method's mean risk higher
than the lowest? The paper says only that it used a 5 % t-test; of the four kinds tried on its printed means and
deviations, this one gives most of its bold figures, 170 of 175 (one-sided Welch 169, both two-sided ones 167)."""


def best_and_equivalent(risks: Mapping[str, Sequence[float]]) -> set[str]:
    """Return the method with the lowest mean risk, and those whose risk is not significantly higher.

    Parameters
    ----------
    risks : mapping of method to the risks of its trials

    Examples
    --------
    >>> sorted(best_and_equivalent({"a": [0.10, 0.12], "b": [0.11, 0.13], "c": [0.30, 0.31]}))
    ['a', 'b']
    """
    if not risks:
        return set()
    moments = {method: _moments(values) for method, values in risks.items()}
    best = min(moments, key=lambda method: moments[method][:2])
    return {method for method in moments if method == best or not worse_than(*moments[method], *moments[best])}


def worse_than(mean: float, std: float, n: int, best_mean: float, best_std: float, best_n: int) -> bool:
    """Return whether a mean is higher than the best one beyond chance.

    Examples
    --------
    >>> worse_than(0.11, 0.01, 10, 0.10, 0.01, 10), worse_than(0.105, 0.01, 10, 0.10, 0.01, 10)
    (True, False)
    """
    if mean <= best_mean + ROUNDING:
        return False
    if min(n, best_n) < 2 or max(std, best_std) <= ROUNDING:
        return True
    result = stats.ttest_ind_from_stats(mean, std, n, best_mean, best_std, best_n, alternative="greater")
    return bool(result.pvalue < LEVEL)


def _moments(values: Sequence[float]) -> tuple[float, float, int]:
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return float(np.mean(values)), deviation, len(values)
