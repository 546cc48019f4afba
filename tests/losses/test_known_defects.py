"""What public code of these losses gets wrong, each as a test that the mistake would fail."""

import math

import pytest
import torch
import torch.nn.functional as F

from demur.losses import available, get
from demur.theory import check_calibration, minimise_pointwise_risk

PLUS_ONE = [name for name in available(n_classes=3) if get(name).n_outputs(3) == 4]
WITH_A_REJECT_SCORE = [name for name in PLUS_ONE if get(name).family in ("score-based", "heuristic")]


@pytest.mark.parametrize("name", [name for name in PLUS_ONE if not name.startswith(("apc", "mpc"))])
def test_a_score_of_zero_is_a_score(name):
    """The original one-versus-all code overwrites scores that are exactly 0 with infinities."""
    loss, y = get(name), torch.tensor([0, 1, 2])
    scores = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for column in range(4):
        zero, nearly = (scores.index_fill(1, torch.tensor(column), value) for value in (0.0, 1e-9))
        assert loss(zero, y, 0.2).isfinite().all()
        assert torch.allclose(loss(zero, y, 0.2), loss(nearly, y, 0.2), atol=1e-7)
        assert torch.equal(loss.decide(zero, 0.2).label, loss.decide(nearly, 0.2).label)


def test_one_versus_all_at_zero_and_far_out_by_hand():
    loss = get("vn")
    assert loss(torch.zeros(4), torch.tensor(1), 0.2) == pytest.approx(4 * math.log(2))
    far = torch.tensor([-100.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    assert loss(far, torch.tensor(0), 0.2) == pytest.approx(100 + 3 * math.log(2))


def test_asymmetric_softmax_by_its_definition():
    """Softmax once, over the right scores, and a binary loss that sees a probability."""
    scores = torch.tensor([[1.0, -0.5, 0.3, 0.8]], dtype=torch.float64)
    e = scores.exp()[0]
    p, s = e[:3] / e[:3].sum(), e[3] / (e.sum() - e[0])
    by_hand = -p[2].log() - 0.8 * s.log() - 0.2 * (1 - s).log()
    assert get("asm")(scores, torch.tensor([2]), 0.2).item() == pytest.approx(by_hand.item(), rel=1e-12)


def last_wins(scores, cost):
    label = scores.argmax(-1)
    return label, label == scores.shape[-1] - 1


def softmax_twice(scores, y, cost):
    """PODS: the loss takes the softmax of what is a softmax already."""
    return get("asm").forward(torch.softmax(scores, -1), y, cost)


def raw_score_as_probability(scores, y, cost):
    """BeyondDefer: the reject score goes into a binary loss by itself, without the classes it competes with."""
    binary = (1 - cost) * F.softplus(-scores[:, -1]) + cost * F.softplus(scores[:, -1])
    return F.cross_entropy(scores[:, :-1], y, reduction="none") + binary


def test_softmax_twice_can_never_be_certain():
    """A softmax of numbers between 0 and 1 gives no class more than e / (e + K - 1)."""
    certain, y = torch.tensor([[40.0, 0.0, 0.0, -40.0]], dtype=torch.float64), torch.tensor([0])
    nearly_none = 0.2 * math.log(1 / 0.2) + 0.8 * math.log(1 / 0.8)  # what the reject score costs at its best
    scores = torch.tensor([[40.0, 0.0, 0.0, math.log(4) + math.log(2)]], dtype=torch.float64)
    assert get("asm")(scores, y, 0.2).item() == pytest.approx(nearly_none, abs=1e-12)
    assert softmax_twice(certain, y, 0.2).item() > nearly_none + math.log(1 + 2 / math.e) - 1e-9


def test_a_raw_reject_score_in_a_binary_loss_does_not_decide():
    """Nothing ties it to the class scores, which cross-entropy leaves free to shift."""
    shifted = torch.tensor([[3.0, 0.0, 0.0, 1.4]], dtype=torch.float64)
    shifted = torch.cat([shifted, shifted - torch.tensor([5.0, 5.0, 5.0, 0.0])])
    values = raw_score_as_probability(shifted, torch.tensor([0, 0]), 0.2)
    assert values[0] == pytest.approx(values[1].item())
    assert last_wins(shifted, 0.2)[1].tolist() == [False, True]


@pytest.mark.parametrize("name", WITH_A_REJECT_SCORE)
@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_the_reject_score_is_the_last_whatever_the_number_of_classes(name, n_classes):
    """Public code has its index as the number 2."""
    loss, scores = get(name), torch.zeros(n_classes + 1, n_classes + 1)
    scores.fill_diagonal_(9.0)
    decision = loss.decide(scores, 0.2)
    assert decision.reject.tolist() == [False] * n_classes + [True]
    assert decision.label[:-1].tolist() == list(range(n_classes))
    for y in range(n_classes):
        values = loss(scores, torch.full((n_classes + 1,), y), 0.2)
        assert values.argmin() in (y, n_classes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", WITH_A_REJECT_SCORE)
def test_nothing_overflows_and_the_slope_keeps_its_sign(name, dtype):
    """A raw exp() overflows at a score of 89 in single precision."""
    scores = torch.tensor([[-900.0, 900.0, 0.0, 0.0]], dtype=dtype, requires_grad=True)
    value = get(name)(scores, torch.tensor([0]), 0.2)
    (slope,) = torch.autograd.grad(value.sum(), scores)
    assert value.isfinite().all()
    assert slope.isfinite().all()
    if name not in ("cao", "mao+mae", "dac", "gamblers"):  # which saturate: their slope is rightly 0 there
        assert slope[0, 0] < 0


@pytest.mark.parametrize("alpha", [0.8, 1.5])
def test_alpha_weights_lose_consistency(alpha):
    """Mozannar and Sontag's alpha moves the threshold from 1 - c to (1 - c) / (c + alpha (1 - c))."""
    loss = get("ms", alpha=alpha)
    assert not loss.calibrated_for(3)
    threshold = 0.8 / (0.2 + alpha * 0.8)
    for top, rejected in ((threshold - 0.01, True), (threshold + 0.01, False)):
        eta = torch.tensor([[top, 0.6 * (1 - top), 0.4 * (1 - top)]], dtype=torch.float64)
        assert loss.decide(minimise_pointwise_risk(loss, eta, 0.2), 0.2).reject.tolist() == [rejected]


def test_the_checker_refutes_them():
    report = check_calibration(get("ms", alpha=0.5), 3, 0.2)
    assert (report.verdict, report.fails) == ("refuted", {"false_reject"})


@pytest.mark.parametrize("beta", [0.7, 1.4])
def test_unequal_weights_of_predictor_and_rejector_lose_consistency(beta):
    loss = get("pr+mae", beta=beta)
    assert not loss.calibrated_for(3)
    assert get("pr+mae", alpha=2.0, beta=2.0).calibrated_for(3)
    threshold = 1 - 0.2 * beta
    for top, rejected in ((threshold - 0.02, True), (threshold + 0.02, False)):
        eta = torch.tensor([[top, 0.6 * (1 - top), 0.4 * (1 - top)]], dtype=torch.float64)
        assert loss.decide(minimise_pointwise_risk(loss, eta, 0.2), 0.2).reject.tolist() == [rejected]


@pytest.mark.parametrize("name", ["ls", "focal", "gce"])
def test_the_softmax_of_a_reshaped_loss_is_not_its_probability(name):
    loss = get(name)
    scores = torch.tensor([[2.0, 0.5, -1.0]], dtype=torch.float64)
    assert not torch.allclose(loss.proba(scores), torch.softmax(scores, -1), atol=1e-2)
    eta = torch.tensor([[0.79, 0.14, 0.07], [0.81, 0.12, 0.07]], dtype=torch.float64)
    minimum = minimise_pointwise_risk(loss, eta, 0.2)
    assert loss.decide(minimum, 0.2).reject.tolist() == [True, False]
    assert (torch.softmax(minimum, -1).amax(-1) <= 0.8).tolist() == ([False, False] if name == "gce" else [True, True])


def test_members_of_the_families_coincide():
    scores = torch.randn(50, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    y = torch.arange(50) % 4
    pairs = [
        (get("mao+mae", mu=1.0), get("ms")),
        (get("mao+mae", mu=1.7), get("cao")),
        (get("mao+mae", mu=1 + 1e-9), get("ms")),
    ]
    for one, other in pairs:
        assert torch.allclose(one(scores, y, 0.3), other(scores, y, 0.3), rtol=1e-6)
    nearly = get("gce", q=1e-9), get("focal", gamma=0.0), get("ls", epsilon=0.0)
    for loss in nearly:
        assert torch.allclose(loss(scores, y, 0.3), get("ce")(scores, y, 0.3), rtol=1e-6)
        assert torch.allclose(loss.proba(scores), get("ce").proba(scores), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("ms", {"alpha": 0.0}, r"alpha must be in \(0, inf\)"),
        ("mao+mae", {"mu": 2.1}, r"mu must be in \[0, 2\]"),
        ("gce", {"q": 0.0}, r"q must be in \(0, 1\)"),
        ("ls", {"epsilon": 1.0}, r"epsilon must be in \[0, 1\)"),
        ("focal", {"gamma": -0.1}, r"gamma must be in \[0, inf\)"),
        ("gamblers", {"tau": 1.0}, r"tau must be in \(0, 1\)"),
        ("dac", {"alpha": -1.0}, r"alpha must be in \(0, inf\)"),
        ("pr+mae", {"beta": 0.0}, r"beta must be in \(0, inf\)"),
    ],
)
def test_domains_of_the_hyper_parameters(name, fields, words):
    with pytest.raises(ValueError, match=words):
        get(name, **fields)


def test_dac_weighs_the_entropy_of_the_cost():
    alpha = get("dac").alpha_value(0.2)
    assert alpha == pytest.approx(-(0.2 * math.log(0.2) + 0.8 * math.log(0.8)) / 1.8)
    assert get("dac").alpha_value(torch.tensor([0.2, 0.2])).tolist() == pytest.approx([alpha, alpha])
    assert get("dac", alpha=0.5).alpha_value(0.2) == 0.5
