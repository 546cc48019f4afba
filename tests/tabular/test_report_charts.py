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


def test_thinning_keeps_the_ends_and_stays_close():
    x = np.linspace(0, 1, 50_000)
    y = np.sin(20 * x)
    kept_x, kept_y = thin(x, y)
    assert len(kept_x) <= 400
    assert (kept_x[0], kept_x[-1]) == (x[0], x[-1])
    assert np.abs(np.interp(x, kept_x, kept_y) - y).max() < 1e-3
    short, _ = thin(np.array([0.1, 0.5, 1.0]), np.array([1.0, 0.0, 0.5]))
    assert short.tolist() == [0.1, 0.5, 1.0]
