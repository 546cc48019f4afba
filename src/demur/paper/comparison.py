"""Our figures against the paper's, counted method by method."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from demur.paper.numbers import Numbers

__all__ = ["Comparison", "compare"]

DEVIATIONS = 3


@dataclass(frozen=True)
class Comparison:
    """How one method's mean risks compare with the published ones.

    Parameters
    ----------
    method : str
    n : int
        The cells that both have.
    at_or_below : int
        Cells where our mean, rounded to the three decimals that the paper prints, is at most the published one.
    strictly : int
        The same without rounding.
    within : int
        Cells where the rounded mean is at most the published mean plus three published standard deviations.
    outside : tuple of str
        The other cells, with both figures.
    distance : float
        The mean absolute difference of the risks.
    rejection_distance : float
        The mean absolute difference of the rejection ratios.
    """

    method: str
    n: int
    at_or_below: int
    strictly: int
    within: int
    outside: tuple[str, ...]
    distance: float = 0.0
    rejection_distance: float = 0.0


def compare(numbers: Numbers, published: Numbers, methods: Sequence[str]) -> list[Comparison]:
    """Compare every method's risks with the published ones, cell by cell.

    Examples
    --------
    >>> from demur.paper.numbers import Value
    >>> cell = ("zoc_risk", "letter", 0.2, "CE")
    >>> ours, paper = (Numbers({cell: Value(mean, 0.01, 10)}) for mean in (0.0834, 0.083))
    >>> compare(ours, paper, ["CE"])
    [Comparison(method='CE', n=1, at_or_below=1, strictly=0, within=1, outside=(), distance=0.0004, ...)]
    """
    compared = []
    for method in methods:
        at_or_below = strictly = within = n = 0
        outside = []
        for (metric, problem, cost, name), ours in numbers.values.items():
            paper = published.get(metric, problem, cost, name)
            if metric != "zoc_risk" or name != method or paper is None or paper.mean is None or ours.mean is None:
                continue
            mean, limit = round(ours.mean, 3), paper.mean + DEVIATIONS * (paper.std or 0.0)
            n += 1
            at_or_below += mean <= paper.mean + 1e-9
            strictly += ours.mean <= paper.mean + 1e-9
            within += mean <= limit + 1e-9
            if mean > limit + 1e-9:
                outside.append(f"{problem} {cost:g}: {ours.mean:.3f}, paper {paper.mean:.3f} ({paper.std or 0:.4f})")
        distances = [_distance(numbers, published, metric, method) for metric in ("zoc_risk", "rejection_ratio")]
        compared.append(Comparison(method, n, at_or_below, strictly, within, tuple(outside), *distances))
    return compared


def _distance(numbers: Numbers, published: Numbers, metric: str, method: str) -> float:
    differences = []
    for key, ours in numbers.values.items():
        paper = published.values.get(key)
        if (key[0], key[3]) == (metric, method) and paper is not None and None not in (paper.mean, ours.mean):
            assert ours.mean is not None
            assert paper.mean is not None
            differences.append(abs(ours.mean - paper.mean))
    return round(float(np.mean(differences)), 6) if differences else 0.0
