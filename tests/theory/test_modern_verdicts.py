"""The losses since the paper: each claim is the checker's verdict, and each refutation stands by itself."""

import numpy as np
import pytest
import torch
from samples import PAPER
from scipy.optimize import minimize

from demur.losses import available, get
from demur.theory import check_calibration, minimise_pointwise_risk
from demur.theory.bayes import as_target
from demur.theory.simplex import random_eta

MODERN = [name for name in available() if name not in PAPER]
QUICK = ("ms", "mao+exp", "vn", "csova+sqhin", "ls")


def cases(n_classes, quick):
    return [pytest.param(name, n_classes, marks=[] if name in quick else [pytest.mark.slow]) for name in MODERN]


def stands(loss, witness, cost=0.2):
    """Minimise again without the checker's code: free descents end at the witness's risk, none that is right below."""
    eta = witness.eta
    y = torch.arange(len(eta))

    def risk(scores):
        rows = torch.from_numpy(np.asarray(scores, dtype=np.float64)).expand(len(eta), -1)
        return float(torch.from_numpy(np.asarray(eta, dtype=np.float64)) @ loss(rows, y, cost))

    right = int(np.argmax(eta)) if eta.max() > 1 - cost else -1
    rng = np.random.default_rng(0)
    starts = [scale * rng.normal(size=loss.n_outputs(len(eta))) for scale in (1.0, 4.0) for _ in range(6)]
    for start in starts:
        found = minimize(risk, start, method="Nelder-Mead", options={"maxfev": 1500, "xatol": 1e-8, "fatol": 1e-12})
        decision = loss.decide(torch.from_numpy(found.x), cost)
        taken = -1 if bool(decision.reject) else int(decision.label)
        if taken == right and found.fun <= witness.least_risk:
            return False
    return risk(witness.scores) <= witness.least_risk + 1e-9


@pytest.mark.parametrize(("name", "n_classes"), [*cases(3, QUICK), *cases(2, ()), *cases(5, ())])
def test_the_claim_is_the_verdict(name, n_classes):
    loss = get(name)
    report = check_calibration(name, n_classes, cost=0.2)
    assert report.verdict == ("calibrated" if loss.calibrated_for(n_classes) else "refuted"), str(report)
    for witness in report.witnesses:
        assert stands(loss, witness)


@pytest.mark.slow
@pytest.mark.parametrize("cost", [0.05, 0.4])
@pytest.mark.parametrize("name", MODERN)
def test_the_verdict_does_not_depend_on_the_cost(name, cost):
    report = check_calibration(name, 3, cost)
    assert report.verdict == ("calibrated" if get(name).calibrated_for(3) else "refuted"), str(report)


@pytest.mark.parametrize("name", [name for name in MODERN if get(name).has_link])
def test_the_link_of_the_minimiser_is_eta(name):
    eta = 0.9 * random_eta(as_target(0.2, 4), 3, torch.Generator().manual_seed(0)) + 0.1 / 4
    proba = get(name).proba(minimise_pointwise_risk(get(name), eta, 0.2))
    assert torch.allclose(proba, eta, atol=1e-6)


def test_deep_gamblers_bet_as_kelly_says():
    """Just above max eta = 1 - c by t they bet t / c, so that a threshold tau declines up to t = c (1 - tau)."""
    loss, cost = get("gamblers"), 0.2
    eta = torch.tensor([[0.85, 0.1, 0.05], [0.95, 0.03, 0.02]], dtype=torch.float64)
    kept = torch.softmax(minimise_pointwise_risk(loss, eta, cost), -1)[:, -1]
    assert kept.tolist() == pytest.approx([1 - 0.05 / cost, 1 - 0.15 / cost], abs=1e-3)
    assert loss.decide(minimise_pointwise_risk(loss, eta, cost), cost).reject.tolist() == [True, False]
