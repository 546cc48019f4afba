"""The verdicts: the paper's losses, wrong losses, and the numbers behind each refutation."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from demur.losses import available, get
from demur.losses.pairwise import PairwiseLoss
from demur.theory import check_calibration, pointwise_risk

PAIRWISE = [name for name in available(n_classes=3) if isinstance(get(name), PairwiseLoss)]
SIDES = {"acc": {"false_accept"}, "rej": {"false_reject"}, "mean": {"false_accept", "false_reject"}}


@pytest.mark.parametrize("n_classes", [2, 3, 8])
@pytest.mark.parametrize("name", available())
def test_the_verdict_is_what_the_loss_claims(name, n_classes):
    loss = get(name)
    if loss.binary_only and n_classes > 2:
        pytest.skip("binary only")
    report = check_calibration(name, n_classes, cost=0.2)
    assert report.calibrated == loss.calibrated_for(n_classes)
    assert report.calibrated == (not report.fails) == (report.counterexample is None)
    assert report.routes_agree in (True, None)
    assert (report.theorem_four is not None) == loss.has_rejector
    assert report.search.n_unresolved == 0


@pytest.mark.parametrize(("n_classes", "cost"), [(5, 0.05), (4, 0.45)])
@pytest.mark.parametrize("name", [name for name in available(n_classes=3) if get(name).smooth])
def test_the_verdict_does_not_depend_on_the_cost(name, n_classes, cost):
    report = check_calibration(name, n_classes, cost)
    assert report.calibrated == get(name).calibrated_for(n_classes)
    assert report.routes_agree in (True, None)


@pytest.mark.parametrize("name", ["ce", "ova+log"])
def test_many_classes(name):
    assert check_calibration(name, 26, 0.2).calibrated


@pytest.mark.parametrize("n_classes", [3, 5, 8, 26])
@pytest.mark.parametrize("name", PAIRWISE)
def test_no_beta_is_calibrated_for_more_than_two_classes(name, n_classes):
    for beta in ("acc", "rej", {3: "mean", 5: 0.3, 8: 6.0, 26: 60.0}[n_classes]):
        report = check_calibration(get(name, beta=beta), n_classes, 0.2)
        assert not report.calibrated
        assert report.routes_agree
        assert report.fails == SIDES.get(beta, report.fails)
        assert not report.beta.some_beta_works
        witness = report.witness
        assert witness.kind in report.fails
        assert witness.gap > 1e-9
        assert "mpmath" in witness.precision
        assert witness.taken_risk > witness.chow_risk + 1e-3


@pytest.mark.parametrize("name", [*PAIRWISE, "pb+log", "pb+exp"])
def test_two_classes_have_one_calibrated_beta(name):
    right = check_calibration(name, 2, 0.2)
    assert right.calibrated
    assert right.beta.some_beta_works
    assert right.theorem_four.corollary_holds
    above, below = (check_calibration(get(name, beta=right.beta.value * f), 2, 0.2) for f in (1.05, 0.95))
    assert (above.fails, below.fails) == ({"false_accept"}, {"false_reject"})


def independent_minimum(loss, eta, cost, hold_r=None):
    """Minimise the pointwise risk with scipy, over all scores or with the rejector held."""
    n_outputs = loss.n_outputs(len(eta))
    target = torch.from_numpy(eta)

    def risk(free):
        scores = torch.from_numpy(np.append(free, hold_r) if hold_r is not None else free)
        return float(pointwise_risk(loss, scores, target, cost))

    start = np.zeros(n_outputs - (hold_r is not None))
    return minimize(risk, start, method="BFGS", options={"gtol": 1e-9}).fun


@pytest.mark.parametrize("name", ["apc+log", "mpc+log", "apc+exp"])
@pytest.mark.parametrize("beta", ["acc", "rej"])
def test_the_risks_of_a_counterexample_are_those_scipy_finds(name, beta):
    loss = get(name, beta=beta)
    witness = check_calibration(loss, 3, 0.2).witness
    assert independent_minimum(loss, witness.eta, 0.2) == pytest.approx(witness.least_risk, abs=1e-6)
    assert independent_minimum(loss, witness.eta, 0.2, hold_r=0.0) == pytest.approx(witness.chow_least_risk, abs=1e-6)


def test_sup_and_inf_by_hand():
    """APC+exp, K = 3, c = 0.2, beta = 4: (sum of square roots)^2 - 1 - c beta at the two extremes."""
    report = check_calibration("apc+exp", 3, 0.2)
    spread = (0.8**0.5 + 2 * 0.1**0.5) ** 2 - 1
    assert report.sup == pytest.approx(spread - 0.8)
    assert report.inf == pytest.approx(0.0, abs=1e-9)


def test_costs_from_one_half_on_are_checked_with_a_warning():
    from demur.costs import CostWarning

    with pytest.warns(CostWarning, match="1/2 or more"):
        report = check_calibration("ce", 4, 0.6)
    assert report.calibrated
    assert report.bound is None


def test_the_report_tells_the_story():
    refuted = str(check_calibration("apc+log", 8, 0.2))
    assert refuted.startswith("REFUTED: apc+log (beta = 3.2) with 8 classes at c = 0.2")
    for words in ("counterexample", "no beta works", "9.86", "The two routes agree", "false rejects", "Corollary 5"):
        assert words in refuted
    passed = str(check_calibration("ce", 3, 0.2))
    assert passed.startswith("CALIBRATED: ce")
    assert "A search refutes; it does not prove." in passed
    assert "Theorem 8" in passed
