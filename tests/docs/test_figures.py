"""The figure of the home page shows what it says, exactly."""

import importlib.util

import numpy as np
import pytest
from page_blocks import ROOT

from demur.datasets import GaussianClasses

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def figure():
    path = ROOT / "docs" / "figures" / "reject_option.py"
    spec = importlib.util.spec_from_file_location("reject_option", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_numbers_are_those_of_the_best_rule(figure):
    population = GaussianClasses([[-1.0], [1.0]], variance=1.0)
    for cost in (0.05, 0.2, 0.45):
        best = population.bayes_summary(cost)
        assert figure.average_cost(cost) == pytest.approx(best.risk.value, abs=1e-6)
        assert 1 - figure.declined(cost) == pytest.approx(best.coverage.value, abs=5 * best.coverage.error)


def test_declining_never_costs_more_than_either_extreme(figure):
    costs = np.linspace(0.001, 0.499, 200)
    assert (figure.average_cost(costs) <= np.minimum(costs, figure.average_cost(0.4999)) + 1e-12).all()


def test_the_committed_drawing_is_what_the_script_draws(figure, tmp_path):
    from matplotlib import rc_context

    with rc_context(figure.STYLE):
        figure.draw().savefig(tmp_path / "again.svg", metadata={"Date": None}, facecolor="white")
    committed = (ROOT / "docs" / "figures" / "reject-option.svg").read_text()
    assert sizes(committed) == sizes((tmp_path / "again.svg").read_text())


def sizes(svg):
    """What is drawn, without the digits that another version of a font or of matplotlib may move."""
    return svg.count("<path"), svg.count("<use"), svg.count("clip-path")
