"""Axes and lines of a chart as the numbers that an SVG needs."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Axis", "path", "thin"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    """A straight scale from values to positions in the drawing.

    Parameters
    ----------
    title : str
    high : float
        The largest value; the smallest is 0.
    start, end : float
        Where 0 and ``high`` lie.
    factor : float
        What a value is multiplied by where it is written: 100 for per cent.
    unit : str
        Written after each number.

    Examples
    --------
    >>> axis = Axis("coverage", 1.0, 0, 100, factor=100, unit=" %")
    >>> axis.at(0.25), axis.ticks[1]
    (25.0, (20.0, '20 %'))
    """

    title: str
    high: float
    start: float
    end: float
    factor: float = 1.0
    unit: str = ""

    def at(self, value: float) -> float:
        """Return the position of a value, to a hundredth."""
        return round(self.start + (self.end - self.start) * value / self.high, 2)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Position and text of the marks, at round values, at least five and at most eleven."""
        written_high = self.high * self.factor
        power = 10.0 ** math.floor(math.log10(written_high / 4))
        step = max(m * power for m in (1, 2, 5) if m * power <= written_high / 4)
        digits = max(0, -math.floor(math.log10(power) + 0.5))
        written = [k * step for k in range(int(written_high / step + 1e-9) + 1)]
        return [(self.at(value / self.factor), f"{value:.{digits}f}{self.unit}") for value in written]


def path(xs: Floats, ys: Floats, x: Axis, y: Axis) -> str:
    """Return the line through the points as SVG path data.

    Examples
    --------
    >>> path(np.array([0.0, 1.0]), np.array([0.0, 0.5]), Axis("", 1, 0, 10), Axis("", 1, 10, 0))
    'M0 10L10 5'
    """
    points = [f"{x.at(a):g} {y.at(b):g}" for a, b in zip(xs.tolist(), ys.tolist(), strict=True)]
    return "M" + "L".join(points)


def thin(xs: Floats, ys: Floats, n_buckets: int = 100) -> tuple[Floats, Floats]:
    """Keep at most four points in each of ``n_buckets`` strips: the first, the last, the lowest and the highest.

    What lies between those is drawn over by the line through them, so that the curve looks the same.

    Parameters
    ----------
    xs : array of shape (n,)
        Ascending.
    ys : array of shape (n,)
    n_buckets : int, default 100

    Examples
    --------
    >>> x = np.linspace(0, 1, 100_000)
    >>> kept, _ = thin(x, np.sin(5000 * x))
    >>> len(kept)
    400
    """
    if len(xs) <= 4 * n_buckets:
        return xs, ys
    width = (xs[-1] - xs[0]) / n_buckets or 1.0
    bucket = np.minimum(((xs - xs[0]) / width).astype(np.int64), n_buckets - 1)
    starts = np.flatnonzero(np.diff(bucket, prepend=-1))
    ends = np.append(starts[1:], len(xs))
    order = np.lexsort((ys, bucket))
    kept = np.unique(np.concatenate([starts, ends - 1, order[starts], order[ends - 1]]))
    return xs[kept], ys[kept]
