"""Axes with round marks, and curves that look the same with fewer points."""

import numpy as np
import pytest

from demur.tabular.html_report import Axis, Chart


@pytest.mark.parametrize("high", [1e-4, 0.0123, 0.05, 0.1, 0.149, 0.5, 0.995, 1.0, 7.3])
def test_marks_are_round_distinct_and_within_the_axis(high):
    axis = Axis("", high, 0, 300, factor=100, unit=" %")
    positions, texts = zip(*axis.ticks, strict=True)
    assert 5 <= len(texts) <= 11
    assert len(set(texts)) == len(texts)
    assert (positions[0], max(positions) <= 300) == (0, True)
    for position, text in axis.ticks:  # each mark lies where its own text says
        assert axis.at(float(text.removesuffix(" %")) / 100) == pytest.approx(position, abs=0.02)


def test_a_long_line_keeps_its_ends_and_stays_close():
    x = np.linspace(0, 1, 50_000)
    y = np.sin(20 * x) / 2 + 0.5
    axes = Axis("", 1, 0, 1000), Axis("", 1, 0, 1000)
    ((kind, path),) = Chart("", "", *axes, {"model": (x, y)}).paths()
    kept = np.array([point.split() for point in path[1:].split("L")], dtype=float) / 1000
    assert kind == "model"
    assert len(kept) <= 400
    assert kept[[0, -1], 0].tolist() == [0, 1]
    assert np.abs(np.interp(x, *kept.T) - y).max() < 1e-3
