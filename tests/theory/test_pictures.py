"""The pictures show what was computed."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from demur.losses import get
from demur.theory.pictures import draw_check


def curves(axis):
    return {line.get_label(): line.get_xydata() for line in axis.get_lines()}


def test_the_decisions_cross_where_the_check_says():
    figure = draw_check(get("apc+log", beta=2.0), 2, 0.2)  # 3.2 would be right
    drawn = curves(figure.axes[0])
    top, r = drawn["rest spread evenly"].T
    assert r[np.argmin(np.abs(top - 0.8))] < 0, "false rejects just above 0.8"
    assert np.all(curves(figure.axes[1])["tightest xi, c = 0.2"][:, 1] >= 0)
