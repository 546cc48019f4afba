"""Axes with round marks, and curves that look the same with fewer points."""

import numpy as np
import pytest

from demur.tabular.html_report import Axis, thin


@pytest.mark.parametrize("high", [1e-4, 0.0123, 0.05, 0.1, 0.149, 0.5, 0.995, 1.0, 7.3])
def test_marks_are_round_distinct_and_within_the_axis(high):
    axis = Axis("", high, 0, 300, factor=100, unit=" %")
    positions, texts = zip(*axis.ticks, strict=True)
    assert 5 <= len(texts) <= 11
    assert len(set(texts)) == len(texts)
    assert (positions[0], max(positions) <= 300) == (0, True)
    for position, text in axis.ticks:  # each mark lies where its own text says
        assert axis.at(float(text.removesuffix(" %")) / 100) == pytest.approx(position, abs=0.02)


def test_thinning_keeps_ends_and_extremes_and_stays_close():
    rng = np.random.default_rng(0)
    x = np.linspace(0, 1, 50_000)
    y = np.cumsum(rng.normal(size=50_000)) / 200
    kept_x, kept_y = thin(x, y)
    assert len(kept_x) <= 400
    assert (kept_x[0], kept_x[-1], kept_y.min(), kept_y.max()) == (x[0], x[-1], y.min(), y.max())
    strip = np.minimum((x * 100).astype(int), 99)
    for k in range(100):  # within each strip the same range is drawn over
        own = np.minimum((kept_x * 100).astype(int), 99) == k
        assert (kept_y[own].min(), kept_y[own].max()) == (y[strip == k].min(), y[strip == k].max())


def test_short_curves_and_vertical_ones_stay_whole():
    x, y = np.array([0.1, 0.5, 1.0]), np.array([1.0, 0.0, 0.5])
    assert thin(x, y)[0] is x
    assert len(thin(np.full(1000, 0.5), np.arange(1000.0))[0]) == 2
