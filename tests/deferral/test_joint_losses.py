"""Laws that hold for every registered joint loss."""

import re
from dataclasses import fields
from itertools import product
from math import log
from pathlib import Path

import pytest
import torch

from demur.deferral import JointLoss, available_joint, get_joint, resolve_joint
from demur.deferral.joint_losses import AsymmetricDeferral, RealizableDeferral
from demur.errors import InputError, InputTypeError
from demur.losses import get

ALL = available_joint()
WITH_ESTIMATES = [name for name in ALL if get_joint(name).has_estimates]
K, J = 4, 3
PRICES = [0.0, 0.1, 0.3]


def examples(shape, seed=0, gaps=0.3, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(*shape, K + J, generator=generator, dtype=torch.float64)
    y = torch.randint(K, shape, generator=generator)
    right = torch.randint(2, (*shape, J), generator=generator).double()
    right[torch.rand(right.shape, generator=generator) < gaps] = torch.nan
    right[torch.rand(right.shape, generator=generator) < 0.1] = 0.25  # several people behind one expert
    return scores, y, right


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ALL)
def test_finite_at_scores_of_a_thousand(name, dtype):
    loss, (_, y, right) = get_joint(name), examples((200,))
    signs = torch.randint(0, 3, (200, K + J), generator=torch.Generator().manual_seed(1)) - 1
    scores = (1000.0 * signs).to(dtype).requires_grad_()
    value = loss(scores, y, right, PRICES)
    assert value.dtype == dtype
    assert value.isfinite().all()
    (slope,) = torch.autograd.grad(value.sum(), scores)
    assert slope.isfinite().all()
    decision = loss.decide(scores, PRICES)
    assert decision.acceptance.isfinite().all()
    if loss.has_estimates:
        for estimate in loss.inverse_link(scores, J):
            assert ((estimate >= 0) & (estimate <= 1)).all()


@pytest.mark.parametrize("name", ALL)
def test_gradient_is_that_of_finite_differences(name):
    loss, (scores, y, right) = get_joint(name), examples((8,))
    scores.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: loss(s, y, right, PRICES), scores)


@pytest.mark.parametrize("name", ALL)
def test_the_engine_gets_the_same_gradient(name):
    loss, (scores, y, right) = get_joint(name), examples((3, 9))
    weight = torch.rand(3, 9, dtype=torch.float64)
    scores.requires_grad_()
    (slope,) = torch.autograd.grad((weight * loss(scores, y, right, PRICES)).sum(), scores)
    torch.testing.assert_close(loss.score_gradient(scores, loss.targets(y, right, PRICES), None, weight), slope)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shape", [(), (7,), (3, 7)])
def test_any_leading_shape(name, shape):
    loss, (scores, y, right) = get_joint(name), examples(shape)
    assert loss(scores, y, right, PRICES).shape == shape
    decision = loss.decide(scores, PRICES)
    for field in fields(decision):
        value = getattr(decision, field.name)
        assert value is None or value.shape[: len(shape)] == shape
    assert ((decision.ask >= 0) == decision.reject).all()


@pytest.mark.parametrize("name", ALL)
def test_a_stack_equals_its_networks_one_by_one(name):
    loss, (scores, y, right) = get_joint(name), examples((4, 9))
    together = loss(scores, y, right, PRICES)
    for m in range(4):
        torch.testing.assert_close(together[m], loss(scores[m], y[m], right[m], PRICES))


@pytest.mark.parametrize("name", ALL)
def test_permuting_classes_and_experts_permutes_everything(name):
    loss, (scores, y, right) = get_joint(name), examples((50,))
    classes, experts = torch.tensor([2, 0, 3, 1]), torch.tensor([1, 2, 0])
    moved = scores[:, torch.cat([classes, K + experts])]
    new_name, new_number = torch.argsort(classes), torch.argsort(experts)
    prices = [PRICES[j] for j in experts.tolist()]
    torch.testing.assert_close(loss(moved, new_name[y], right[:, experts], prices), loss(scores, y, right, PRICES))
    before, after = loss.decide(scores, PRICES), loss.decide(moved, prices)
    assert torch.equal(new_name[before.label], after.label)
    assert torch.equal(torch.where(before.ask < 0, before.ask, new_number[before.ask]), after.ask)


@pytest.mark.parametrize("name", ALL)
def test_a_missing_answer_does_not_change_the_loss(name):
    loss, (scores, y, right) = get_joint(name), examples((30,), gaps=0.0)
    right[:, 1] = torch.nan
    without = scores[:, [0, 1, 2, 3, 4, 6]]
    expected = loss(without, y, right[:, [0, 2]], [PRICES[0], PRICES[2]])
    torch.testing.assert_close(loss(scores, y, right, PRICES), expected)
    scores.requires_grad_()
    (slope,) = torch.autograd.grad(loss(scores, y, right, PRICES).sum(), scores)
    assert (slope[:, 5] == 0).all()


def scores_of(name, eta, rho):
    """The scores whose estimates are eta and rho, where a score of 0 is left free."""
    if name == "ova":
        return torch.cat([torch.logit(eta), torch.logit(rho)])
    d = {
        "ms": rho.log(),
        "decoupled": torch.logit(rho),
        "two-stage": (rho / eta.max()).log(),
        "asm": torch.logit(rho) + (1 - eta.max()).log(),
    }[name]
    return torch.cat([eta.log(), d])


@pytest.mark.parametrize("name", WITH_ESTIMATES)
def test_the_risk_is_stationary_at_the_truth_whichever_answers_are_missing(name):
    """The gradient of the pointwise risk is zero where the estimates are eta and rho; experts err by the class."""
    loss = get_joint(name)
    eta = torch.tensor([0.5, 0.2, 0.18, 0.12], dtype=torch.float64)
    able = torch.tensor([[0.9, 0.2, 0.5, 0.7], [0.3, 0.9, 0.9, 0.1], [0.6, 0.6, 0.6, 0.6]], dtype=torch.float64)
    rho = able @ eta
    scores = scores_of(name, eta, rho)
    for estimate, truth in zip(loss.inverse_link(scores, J), (eta, rho), strict=True):
        torch.testing.assert_close(estimate, truth)
    leaf = scores.clone().requires_grad_()
    risk = torch.zeros((), dtype=torch.float64)
    for seen in ((True, True, True), (False, True, True), (True, False, False)):
        for label in range(K):
            for right in product([0.0, 1.0], repeat=J):
                answers = torch.tensor(right, dtype=torch.float64)
                chance = eta[label] * torch.where(answers > 0, able[:, label], 1 - able[:, label]).prod()
                shown = torch.where(torch.tensor(seen), answers, torch.nan)
                risk = risk + chance * loss(leaf, torch.tensor(label), shown, PRICES)
    (slope,) = torch.autograd.grad(risk, leaf)
    assert slope.abs().max() < 1e-12
    decision = loss.decide(scores, PRICES)
    worth = torch.cat([eta, rho - torch.tensor(PRICES, dtype=torch.float64)])
    best = int(worth.argmax())
    assert int(decision.ask) == (best - K if best >= K else -1)
    torch.testing.assert_close(decision.costs, 1 - worth)


@pytest.mark.parametrize("name", WITH_ESTIMATES)
def test_a_perfect_expert_is_chows_rule(name):
    """With rho = 1 the rows are answered whose best class is above 1 - c, and no others."""
    loss = get_joint(name)
    for row in torch.distributions.Dirichlet(torch.ones(K)).sample((50,)).double():
        rho = torch.tensor([1 - 1e-9], dtype=torch.float64)
        decision = loss.decide(scores_of(name, row, rho), [0.3])
        assert bool(decision.reject) == (float(row.max()) <= 0.7)


def test_one_perfect_expert_at_price_zero_is_the_constant_cost_loss():
    scores, y, _ = examples((20,), gaps=0.0)
    five = scores[:, : K + 1]
    right = torch.ones(20, 1, dtype=torch.float64)
    for joint, alone in (("ms", "ms"), ("ova", "vn"), ("asm", "asm")):
        torch.testing.assert_close(get_joint(joint)(five, y, right, [0.0]), get(alone).forward(five, y, 0.0))


def test_rs_is_the_logarithm_of_pooled_probability():
    scores, y, right = examples((20,), gaps=0.0)
    right = (right > 0.5).double()
    p = torch.softmax(scores, -1)
    pooled = p.gather(-1, y[:, None])[:, 0] + (right * p[:, K:]).sum(-1)
    torch.testing.assert_close(get_joint("rs")(scores, y, right, [0.0] * J), -pooled.log())
    torch.testing.assert_close(get_joint("rl2d")(scores, y, right, [0.0] * J), 1 - pooled)
    expected = (1 - pooled**0.7) / 0.7
    torch.testing.assert_close(get_joint("rl2d-0.7")(scores, y, right, [0.0] * J), expected)


@pytest.mark.parametrize("q", [0.0, 0.3, 1.0])
def test_the_realizable_family_takes_prices(q):
    """One expert: (1 - u) Psi(p_y) + u Psi(p_y + p_e) with u = right - price; at q = 1 linear for several."""
    scores, y, right = examples((20,), gaps=0.0)
    loss, one = RealizableDeferral(q), scores[:, : K + 1]
    p = torch.softmax(one, -1)
    own, asked = p.gather(-1, y[:, None])[:, 0], p[:, K]
    worth = right[:, 0] - 0.3

    def psi(u):
        return -u.log() if q == 0 else (1 - u**q) / q

    expected = (1 - worth) * psi(own) + worth * psi(own + asked)
    torch.testing.assert_close(loss(one, y, right[:, :1], [0.3]), expected)
    if q == 1:
        p = torch.softmax(scores, -1)
        worth = right - torch.tensor(PRICES, dtype=torch.float64)
        expected = 1 - p.gather(-1, y[:, None])[:, 0] - (worth * p[:, K:]).sum(-1)
        torch.testing.assert_close(loss(scores, y, right, PRICES), expected)


@pytest.mark.parametrize("q", [0.0, 0.7])
def test_the_realizable_family_never_falls_below_zero(q):
    scores, y, right = examples((500,), scale=8.0)
    assert (RealizableDeferral(q)(scores, y, right, PRICES) >= -1e-12).all()


def test_rs_asks_too_seldom():
    """Its least risk for eta = (1/2, 1/2), rho = 0.6 is at p = (0.4, 0.4, 0.2): it answers where asking is better."""
    loss = get_joint("rs")
    leaf = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64).log().requires_grad_()
    risk = sum(
        0.5 * chance * loss(leaf, torch.tensor(label), torch.tensor([right], dtype=torch.float64), [0.0])
        for label in (0, 1)
        for right, chance in ((1.0, 0.6), (0.0, 0.4))
    )
    (slope,) = torch.autograd.grad(risk, leaf)
    assert slope.abs().max() < 1e-12
    assert int(loss.decide(leaf.detach(), [0.0]).ask) == -1


def test_the_second_stage_by_hand():
    """Expert scores of 0: log 2 for each that is right, the class chosen by the largest score or the expert."""
    scores, right = torch.tensor([9.0, 0.0, 0.0]), torch.tensor
    loss, first = get_joint("two-stage"), get("ce")
    for label, answer, expected in ((0, 0.0, log(2)), (0, 1.0, 2 * log(2)), (1, 1.0, log(2)), (1, torch.nan, 0.0)):
        value = loss(scores, torch.tensor(label), right([answer]), [0.0]) - first(scores[:2], torch.tensor(label))
        torch.testing.assert_close(value, torch.tensor(expected), atol=1e-5, rtol=0)


def test_the_price_decides_without_another_training():
    scores = scores_of("decoupled", torch.tensor([0.7, 0.3]).double(), torch.tensor([0.8, 0.9]).double())
    loss = get_joint("decoupled")
    assert [int(loss.decide(scores, prices).ask) for prices in ([0, 0], [0, 0.15], [0.2, 0.25])] == [1, 0, -1]


def test_ties_ask_the_first():
    scores = torch.zeros(2 + 2)
    assert int(get_joint("ova").decide(scores, [0.0, 0.0]).ask) == 0


class _Incomplete:
    pass


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda loss: loss(torch.zeros(2), torch.tensor(0), torch.ones(1), [0.0]), InputError, "at least two classes"),
        (lambda loss: loss(torch.zeros(3), torch.tensor(2), torch.ones(1), [0.0]), InputError, "labels must be in"),
        (lambda loss: loss(torch.zeros(3), torch.tensor(0), torch.ones(2), [0.0]), InputError, "right must be"),
        (lambda loss: loss(torch.zeros(3), torch.tensor(0), 2 * torch.ones(1), [0.0]), InputError, r"in \[0, 1\]"),
        (lambda loss: loss(torch.zeros(3), torch.tensor(0), torch.ones(1), [-0.1]), InputError, "at least 0"),
        (lambda loss: loss(torch.zeros(3), torch.tensor(0.0), torch.ones(1), [0.0]), InputTypeError, "integer"),
        (lambda loss: loss.decide(torch.zeros(3), []), InputError, "for each expert"),
        (lambda loss: loss.decide(torch.full((3,), torch.nan), [0.0]), InputError, "NaN"),
        (lambda loss: get_joint("rs").inverse_link(torch.zeros(3), 1), InputError, "no inverse link"),
        (lambda loss: resolve_joint(_Incomplete), InputTypeError, "a joint loss is one of"),
        (lambda loss: RealizableDeferral(2.0), InputError, r"q must be in \[0, 1\]"),
        (lambda loss: get_joint("decoupled", weight=0.0), InputError, r"weight must be in \(0, inf\)"),
    ],
)
def test_invalid_scores_raise_clear_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(get_joint("ms"))


def test_a_loss_of_ones_own(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from demur.deferral.joint_losses import DecoupledDeferral\nclass Mine(DecoupledDeferral):\n    name = 'mine'\n"
    )
    assert resolve_joint(f"{file}:Mine").name == "mine"
    assert isinstance(resolve_joint(AsymmetricDeferral), JointLoss)


def test_the_page_on_deferral_has_a_row_for_each_joint_loss():
    page = (Path(__file__).parents[2] / "docs" / "deferral.md").read_text().split("## On a problem")[0]
    rows = {re.findall("`(.+?)`", row)[0]: row.split("|") for row in page.splitlines() if row.startswith("| `")}
    assert sorted(rows) == ALL
    for name, row in rows.items():
        loss = get_joint(name)
        assert row[3].strip().startswith("calibrated" if loss.calibrated else "refuted")
        assert row[4].strip() == ("in the training" if loss.trained_for_prices else "when deciding")
        assert (row[5].strip() == "none") != loss.has_estimates
