"""The law every loss is held to: the minimiser of the pointwise risk, decided with the loss's own rule, is Chow's."""

import numpy as np
import pytest
import torch

from demur.costs import PAPER_COSTS
from demur.losses import available, get
from demur.losses.pairwise import PairwiseLoss
from demur.theory import minimise_pointwise_risk

CLASSES = (2, 3, 5, 8)
QUICK = (3,)
"""With how many classes each loss is tried in the quick suite."""


def random_etas(n_classes, cost, n, seed):
    """Distributions of every shape, half of them with max eta near 1 - c, none within 0.005 of it or of a tied top."""
    rng = np.random.default_rng(seed)
    shapes = rng.choice([0.1, 0.5, 2.0], size=4 * n)
    eta = np.stack([rng.dirichlet(np.full(n_classes, shape)) for shape in shapes])
    eta = np.sort(eta, axis=1)[:, ::-1]
    near = np.clip(1 - cost + rng.uniform(-0.1, 0.1, size=4 * n), 1 / n_classes + 0.02, 0.999)
    moved = np.where(rng.random(4 * n) < 0.5, near, eta[:, 0])
    eta = np.c_[moved, eta[:, 1:] / eta[:, 1:].sum(1, keepdims=True) * (1 - moved)[:, None]]
    eta = rng.permuted(eta, axis=1)
    best = np.sort(eta, axis=1)[:, ::-1]
    clear = (np.abs(best[:, 0] - (1 - cost)) > 0.005) & (best[:, 0] - best[:, 1] > 0.005)
    return torch.from_numpy(eta[clear][:n])


def problems(etas_at):
    """Stack the distributions for every cost of the paper."""
    parts = [etas_at(cost) for cost in PAPER_COSTS]
    costs = [torch.full((len(part),), cost, dtype=torch.float64) for part, cost in zip(parts, PAPER_COSTS, strict=True)]
    return torch.cat(parts), torch.cat(costs)


def mistakes(loss, eta, cost):
    """Which rows are decided wrongly, by the kind of mistake."""
    decision = loss.decide(minimise_pointwise_risk(loss, eta, cost), cost)
    chow_rejects = eta.amax(-1) <= 1 - cost
    answered = ~decision.reject & ~chow_rejects
    return {
        "false_reject": decision.reject & ~chow_rejects,
        "false_accept": ~decision.reject & chow_rejects,
        "misclassify": answered & (decision.label != eta.argmax(-1)),
    }


CALIBRATED = [(name, k) for name in available() for k in CLASSES if k == 2 or not get(name).binary_only]
CALIBRATED = [(name, k) for name, k in CALIBRATED if get(name).calibrated_for(k)]


HOLLOW = ("brier", "cao", "dac", "focal", "gce", "mao+mae", "pr+mae")
"""Not convex: minimising them takes many starts."""


LONG = ("bep", "csova+sqhin", "mh", "ova+hin")
"""Not smooth: minimising them takes longest. cs+hin and ova+sqhin stand for them in the quick suite."""


def some_slow(name, n_classes):
    quick = (n_classes in QUICK or get(name).binary_only) and name not in LONG
    return pytest.param(name, n_classes, marks=[] if quick else [pytest.mark.slow])


@pytest.mark.parametrize(("name", "n_classes"), [some_slow(*case) for case in CALIBRATED])
def test_calibrated_losses_decide_as_chow(name, n_classes):
    loss = get(name).for_classes(n_classes)
    n = 8 if loss.smooth and name not in HOLLOW else 2
    eta, cost = problems(lambda c: random_etas(n_classes, c, n=n, seed=n_classes))
    assert not any(rows.any() for rows in mistakes(loss, eta, cost).values())


def test_every_loss_but_the_pairwise_and_the_heuristic_claims_calibration():
    uncalibrated = {name for name in available(n_classes=3) if not get(name).calibrated_for(3)}
    assert uncalibrated == {"apc+exp", "apc+log", "mpc+exp", "mpc+log", "gamblers", "dac"}


def extremes(n_classes, cost, step=0.002):
    """The two distributions of Corollary 5's bounds, moved a little across max eta = 1 - c."""
    accept, reject = 1 - cost + step, 1 - cost - step
    flat = torch.full((n_classes,), (1 - accept) / (n_classes - 1), dtype=torch.float64)
    flat[0] = accept
    peaked = torch.zeros(n_classes, dtype=torch.float64)
    peaked[0], peaked[1] = reject, 1 - reject
    return torch.stack([flat, peaked])


PAIRWISE = [name for name in available(n_classes=3) if isinstance(get(name), PairwiseLoss)]


@pytest.mark.parametrize(
    "n_classes", [pytest.param(3, marks=pytest.mark.slow), 5, pytest.param(8, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("apc+log", "mpc+exp") else pytest.mark.slow) for name in PAIRWISE]
)
@pytest.mark.parametrize(
    ("beta", "expected"),
    [
        ("acc", {"false_accept"}),
        ("rej", {"false_reject"}),
        pytest.param("mean", {"false_accept", "false_reject"}, marks=pytest.mark.slow),
    ],
)
def test_pairwise_losses_fail_on_the_predicted_side_only(name, beta, expected, n_classes):
    loss = get(name, beta=beta)
    eta, cost = problems(lambda c: random_etas(n_classes, c, n=30, seed=n_classes))
    assert {side for side, rows in mistakes(loss, eta, cost).items() if rows.any()} <= expected
    eta, cost = problems(lambda c: extremes(n_classes, c))
    found = mistakes(loss, eta, cost)
    for at_cost in PAPER_COSTS:
        assert {side for side, rows in found.items() if rows[cost == at_cost].any()} == expected


@pytest.mark.parametrize("name", PAIRWISE)
def test_the_three_betas_agree_for_two_classes(name):
    for cost in PAPER_COSTS:
        values = [get(name, beta=side).beta_value(2, cost) for side in ("acc", "rej", "mean")]
        assert values == pytest.approx([values[0]] * 3)


def test_beta_by_hand():
    assert get("apc+exp", beta="acc").beta_value(8, 0.2) == pytest.approx(6 + 2 * 28**0.5)
    assert get("apc+exp", beta="rej").beta_value(8, 0.2) == pytest.approx(4.0)
    assert get("apc+log", beta="rej").beta_value(8, 0.25) == pytest.approx(3.0)
    assert get("apc+log", beta="acc", alpha=2.0).beta_value(3, 0.4) == pytest.approx(2 * (4 * 1.2 / 1.6 + 1))
    entropy = -0.2 * np.log(0.2) - 0.8 * np.log(0.8)
    assert get("mpc+log", beta="rej").beta_value(8, 0.2) == pytest.approx(entropy / 0.2)
    mean = get("mpc+exp", beta="mean").beta_value(8, 0.2)
    assert mean == pytest.approx((4 + 6 + 2 * 28**0.5) / 2)
