"""The pictures show what was computed."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from demur.losses import get
from demur.theory import calibration_function
from demur.theory.pictures import draw_calibration_functions, draw_check, plain_xi, save


def curves(axis):
    return {line.get_label(): line.get_xydata() for line in axis.get_lines()}


def test_the_cross_entropy_figure_has_the_papers_two_curves_and_the_tightest():
    xi = calibration_function("ce", 3, 0.3, n_nodes=8)
    drawn = curves(draw_calibration_functions([xi]).axes[0])
    z, paper = drawn["paper's bound (Theorem 8)"].T
    assert paper == pytest.approx(z**2 / 2)
    assert drawn["xi_CE, without rejection"][:, 1] == pytest.approx(plain_xi(z))
    assert np.all(drawn["tightest xi, c = 0.3"][:, 1] >= paper - 1e-9)


def test_the_decisions_cross_where_the_check_says(tmp_path):
    figure = draw_check(get("apc+log", beta=2.0), 2, 0.2)  # 3.2 would be right
    drawn = curves(figure.axes[0])
    top, r = drawn["rest spread evenly"].T
    assert r[np.argmin(np.abs(top - 0.8))] < 0, "false rejects just above 0.8"
    save(figure, tmp_path / "check.png")
    assert (tmp_path / "check.png").stat().st_size > 10_000
