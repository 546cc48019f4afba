"""Laws that hold for every registered loss."""

from dataclasses import dataclass, fields, replace
from math import log

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from demur.losses import Margin, OneVsAll, available, get
from demur.losses.loss import Trainable
from demur.losses.pairwise import AdditivePairwise, MultiplicativePairwise, PairwiseLoss
from demur.margins import Exponential, Hinge, Logistic, MarginFunction, Squared, SquaredHinge

ALL = available()
MULTICLASS = available(n_classes=3)
WITH_LINK = [name for name in ALL if get(name).has_link]
PAIRWISE = [name for name in ALL if isinstance(get(name), PairwiseLoss)]
COSTS = st.floats(0.01, 0.49)


def classes_of(name):
    return 2 if get(name).binary_only else 5


def random_scores(name, shape, seed=0, dtype=torch.float64, scale=2.0):
    loss = get(name).for_classes(classes_of(name))
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(*shape, loss.n_outputs(classes_of(name)), generator=generator, dtype=dtype)
    y = torch.randint(classes_of(name), shape, generator=generator)
    return loss, scores, y


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ALL)
def test_finite_at_scores_of_a_thousand(name, dtype):
    loss, _, y = random_scores(name, (64,))
    generator = torch.Generator().manual_seed(1)
    signs = torch.randint(0, 3, (64, loss.n_outputs(classes_of(name))), generator=generator) - 1
    scores = (1000.0 * signs).to(dtype).requires_grad_()
    for cost in (0.05, 0.4):
        value = loss(scores, y, cost)
        assert value.dtype == dtype
        assert value.isfinite().all()
        (slope,) = torch.autograd.grad(value.sum(), scores)
        assert slope.isfinite().all()
    decision = loss.decide(scores, 0.2)
    assert decision.acceptance.isfinite().all()
    if loss.has_link:
        proba = loss.proba(scores)
        assert proba.isfinite().all()
        assert ((proba >= 0) & (proba <= 1)).all()


@pytest.mark.parametrize("phi", ["apc+exp", "mpc+exp"])
def test_the_exponential_keeps_its_sign_where_it_is_guarded(phi):
    scores = torch.tensor([-1000.0, 1000.0, 0.0], requires_grad=True)
    (slope,) = torch.autograd.grad(get(phi)(scores, torch.tensor(0), 0.2), scores)
    assert slope[0] < 0 < slope[1]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shape", [(), (7,), (3, 7)])
def test_any_leading_shape(name, shape):
    loss, scores, y = random_scores(name, shape)
    assert loss(scores, y, 0.2).shape == shape
    decision = loss.decide(scores, 0.2)
    for field in fields(decision):
        value = getattr(decision, field.name)
        assert value is None or value.shape == shape  # who is asked is for deferral
    if loss.has_link:
        assert loss.proba(scores).shape == (*shape, classes_of(name))


@pytest.mark.parametrize("name", ALL)
def test_gradient_is_that_of_finite_differences(name):
    loss, scores, y = random_scores(name, (8,))
    scores.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: loss(s, y, 0.2), scores)


@pytest.mark.parametrize("name", ALL)
def test_a_stack_equals_its_networks_one_by_one(name):
    loss, scores, y = random_scores(name, (4, 9))
    cost = torch.tensor([0.05, 0.1, 0.3, 0.4], dtype=torch.float64)
    stacked, singles = loss, [loss] * 4
    for field in fields(loss):
        values = {"alpha": [0.5, 1.0, 1.5, 2.0], "beta": [1.0, 2.0, 3.0, 4.0], "tau": [0.1, 0.2, 0.5, 0.9]}.get(
            field.name
        )
        if values:
            stacked = replace(stacked, **{field.name: torch.tensor(values, dtype=torch.float64)[:, None]})
            singles = [replace(one, **{field.name: value}) for one, value in zip(singles, values, strict=True)]
    together = stacked(scores, y, cost[:, None])
    decisions = stacked.decide(scores, cost[:, None])
    for m, single in enumerate(singles):
        assert torch.allclose(together[m], single(scores[m], y[m], float(cost[m])), rtol=1e-12)
        alone = single.decide(scores[m], float(cost[m]))
        assert torch.equal(decisions.label[m], alone.label)
        assert torch.equal(decisions.reject[m], alone.reject)


@pytest.mark.parametrize("side", ["acc", "rej", "mean"])
@pytest.mark.parametrize("name", PAIRWISE)
def test_named_betas_follow_the_cost_of_each_network(name, side):
    _, scores, y = random_scores(name, (4, 9))
    loss = get(name, beta=side)
    cost = torch.tensor([0.05, 0.1, 0.3, 0.4], dtype=torch.float64)
    together = loss(scores, y, cost[:, None])
    for m in range(4):
        assert torch.allclose(together[m], loss(scores[m], y[m], float(cost[m])), rtol=1e-12)


@pytest.mark.parametrize("name", [name for name in MULTICLASS if name != "bep"])
def test_permuting_classes_permutes_everything(name):
    loss, scores, y = random_scores(name, (50,))
    order = torch.tensor([3, 0, 4, 1, 2])
    columns = torch.cat([order, torch.arange(5, loss.n_outputs(5))])  # what is no class's score stays in its place
    new_name = torch.argsort(order)  # class k is now called new_name[k]
    assert torch.allclose(loss(scores[:, columns], new_name[y], 0.2), loss(scores, y, 0.2))
    before, after = loss.decide(scores, 0.2), loss.decide(scores[:, columns], 0.2)
    assert torch.equal(new_name[before.label], after.label)
    assert torch.equal(before.reject, after.reject)
    if loss.has_link:
        assert torch.allclose(loss.proba(scores)[:, order], loss.proba(scores[:, order]))


def test_swapping_the_bits_of_the_binary_code_swaps_its_scores():
    loss, scores, y = get("bep", n_classes=4), torch.randn(30, 2), torch.randint(4, (30,))
    swapped = torch.tensor([0, 2, 1, 3])
    assert torch.allclose(loss(scores.flip(-1), swapped[y], 0.2), loss(scores, y, 0.2))
    assert torch.equal(loss.decide(scores.flip(-1), 0.2).label, swapped[loss.decide(scores, 0.2).label])


def zero_one_c(decision, y, cost):
    return torch.where(decision.reject, cost, (decision.label != y).double())


@given(cost=COSTS, seed=st.integers(0, 2**16), beta=st.floats(0.1, 20), alpha=st.floats(0.1, 5))
@pytest.mark.parametrize(
    ("name", "factor"),
    [("apc+log", log(2)), ("apc+exp", 1), ("mpc+log", log(2) ** 2), ("mpc+exp", 1), ("pb+log", log(2)), ("pb+exp", 1)],
)
def test_pairwise_losses_dominate_the_zero_one_c_loss(name, factor, cost, seed, beta, alpha):
    """Lemma 14, with the natural logarithm: the logistic is log 2 at zero, so that factor remains."""
    _, scores, y = random_scores(name, (200,), seed=seed, scale=1.0)
    loss = get(name, alpha=alpha, beta=beta)
    target = factor * zero_one_c(loss.decide(scores, cost), y, cost)
    assert (loss(scores, y, cost) >= target - 1e-9).all()


@pytest.mark.parametrize(("name", "factor"), [("apc+log", log(2)), ("mpc+log", log(2) ** 2)])
def test_the_factor_cannot_be_raised(name, factor):
    scores = torch.zeros(4, dtype=torch.float64)
    scores[1], scores[2], scores[3] = 1e-9, -50.0, 1e-9
    loss, y = get(name, beta=100.0), torch.tensor(0)
    assert loss.decide(scores, 0.01).label == 1
    value = float(loss(scores, y, cost=1e-6))
    assert factor <= value < factor * 1.001


@pytest.mark.parametrize("beta", ["acc", "rej", "mean", 1.7])
def test_multiplicative_exponential_is_additive_exponential(beta):
    _, scores, y = random_scores("apc+exp", (100,))
    assert torch.allclose(get("mpc+exp", beta=beta)(scores, y, 0.2), get("apc+exp", beta=beta)(scores, y, 0.2))


@pytest.mark.parametrize("margin", ["log", "exp"])
def test_additive_at_two_classes_is_plus_bound(margin):
    scores = torch.randn(100, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.randint(2, (100,))
    pair = torch.stack([scores[:, 1] - scores[:, 0], scores[:, 2]], -1)
    apc, pb = get(f"apc+{margin}"), get(f"pb+{margin}")
    assert torch.allclose(apc(scores, y, 0.2), pb(pair, y, 0.2))
    assert torch.equal(apc.decide(scores, 0.2).label, pb.decide(pair, 0.2).label)


@pytest.mark.parametrize("name", WITH_LINK)
@given(cost=COSTS, seed=st.integers(0, 2**16))
def test_decisions_are_chows_on_the_linked_scores(name, cost, seed):
    loss, scores, _ = random_scores(name, (100,), seed=seed, scale=1.0)
    proba, decision = loss.proba(scores), loss.decide(scores, cost)
    assert torch.equal(decision.reject, proba.amax(-1) - (1 - cost) <= 0)
    label = decision.label.unsqueeze(-1)
    assert torch.equal(proba.gather(-1, label).squeeze(-1), proba.amax(-1))
    # Where a link saturates several classes have the largest probability; then the scores decide between them.
    by_class = loss.class_scores(scores, classes_of(name))
    assert torch.equal(by_class.gather(-1, label).squeeze(-1), by_class.amax(-1))


@pytest.mark.parametrize("name", ["ova+sq", "ova+sqhin"])
def test_where_links_saturate_the_larger_score_answers(name):
    scores = torch.tensor([[1.5, 2.0, 0.0]])
    assert get(name).proba(scores)[0, :2].tolist() == [1.0, 1.0]
    assert get(name).decide(scores, 0.2).label.item() == 1


@pytest.mark.parametrize("name", PAIRWISE)
def test_psi_is_phi_unless_it_is_given_also_after_replace(name):
    loss, scores, y = random_scores(name, (30,))
    for phi in (Exponential(), Logistic(), Squared()):
        replaced = replace(loss, phi=phi, beta=2.0)
        assert replaced.psi_or_phi == phi
        assert replaced == type(loss)(phi, beta=2.0)
        assert torch.equal(replaced(scores, y, 0.2), type(loss)(phi, phi, beta=2.0)(scores, y, 0.2))
    assert replace(type(loss)(Logistic(), Squared()), phi=Exponential()).psi_or_phi == Squared()


def test_the_betas_of_a_replaced_phi_are_its_own():
    replaced = replace(get("apc+log"), phi=Exponential())
    assert replaced.beta_value(8, 0.2) == pytest.approx(get("apc+exp").beta_value(8, 0.2))


@pytest.mark.parametrize("name", PAIRWISE)
def test_a_pairwise_loss_is_as_smooth_as_its_margins(name):
    loss = get(name)
    assert loss.smooth
    assert not replace(loss, phi=Hinge()).smooth
    assert not replace(loss, psi=Hinge()).smooth
    assert replace(loss, phi=SquaredHinge()).smooth


@dataclass(frozen=True)
class KinkedLogistic(Logistic):
    """The logistic with a kink at 1, and the link of the logistic."""

    name = "kinked"
    smooth = False

    def __call__(self, z):
        return super().__call__(z) + torch.relu(z - 1) * 0.01


@pytest.mark.parametrize("cls", [OneVsAll, Margin])
def test_so_is_every_loss_made_of_a_margin(cls):
    assert cls(Logistic()).smooth
    assert not cls(KinkedLogistic()).smooth


@pytest.mark.parametrize("name", ALL)
def test_a_loss_that_calls_itself_smooth_has_no_kink(name):
    """In steps along a random line an eighth as long, the slope jumps an eighth as far; at a kink, as far as before."""
    loss, direction, _ = random_scores(name, (1,), seed=3)

    def largest_jump(n):
        leaf = torch.linspace(-1.5, 1.5, n + 1, dtype=torch.float64)[:, None] * direction
        leaf.requires_grad_()
        (slopes,) = torch.autograd.grad(loss(leaf, torch.zeros(n + 1, dtype=torch.int64), 0.2).sum(), leaf)
        return float(slopes.diff(dim=0).abs().max())

    ratio = largest_jump(1000) / largest_jump(8000)
    assert ratio == pytest.approx(8 if loss.smooth else 1, rel=0.1)


def test_cross_entropy_link_is_softmax():
    scores = torch.randn(10, 4)
    assert torch.allclose(get("ce").proba(scores), torch.softmax(scores, -1))
    assert torch.allclose(get("ce")(scores, torch.zeros(10).long()), -torch.log_softmax(scores, -1)[:, 0])


@pytest.mark.parametrize("name", ALL)
def test_ties_reject(name):
    """Scores exactly on the border of each family's rule."""
    loss, scores, _ = random_scores(name, (1,))
    border = torch.zeros_like(scores)
    if loss.family == "hinge" and name != "mh":
        border[..., 0] = loss.tau
        if name == "bep":
            border[:] = loss.tau
    elif name == "mh":
        border[:] = 0.5
    elif name == "gamblers":
        border, loss = torch.zeros(1, 4), get(name, tau=0.25)  # the four scores share alike
    elif loss.family == "confidence":
        border, cost = (border, 0.5) if name != "ce" else (torch.zeros(1, 4), 0.75)  # exact in binary
        with pytest.warns(UserWarning, match="1/2 or more"):
            assert loss.decide(border, cost).reject.all()
        return
    decision = loss.decide(border, 0.2)
    assert decision.acceptance.item() == 0
    assert decision.reject.all()


@pytest.mark.parametrize("name", WITH_LINK)
def test_free_rejection_rejects_all_that_is_uncertain(name):
    loss, scores, _ = random_scores(name, (50,))
    decision = loss.decide(scores, 0.0)
    assert decision.reject[decision.confidence <= 1].all()


@pytest.mark.parametrize("shape", [(), (3, 7)])
@pytest.mark.parametrize("name", ALL)
def test_the_gradient_of_the_scores_is_that_of_autograd(name, shape):
    loss, scores, y = random_scores(name, shape)
    weight = torch.rand(shape, dtype=torch.float64)
    expected = Trainable.score_gradient(loss, scores, y, 0.2, weight)
    assert torch.allclose(loss.score_gradient(scores, y, 0.2, weight), expected, rtol=1e-10, atol=1e-12)


def test_a_changed_formula_has_the_gradient_of_its_own():
    class Shifted(Logistic):
        def __call__(self, z):
            return super().__call__(z - 1)

    class Doubled(AdditivePairwise):
        def forward(self, scores, y, cost):
            return 2 * super().forward(scores, y, cost)

    _, scores, y = random_scores("apc+log", (7,))
    weight = torch.rand(7, dtype=torch.float64)
    for loss in (AdditivePairwise(Shifted(), beta=1.0), Doubled(beta=1.0)):
        expected = Trainable.score_gradient(loss, scores, y, 0.2, weight)
        assert torch.allclose(loss.score_gradient(scores, y, 0.2, weight), expected)


@pytest.mark.parametrize("kind", [AdditivePairwise, MultiplicativePairwise])
def test_a_margin_function_may_return_what_it_was_given(kind):
    @dataclass(frozen=True)
    class Straight(MarginFunction):
        name = "straight"

        def __call__(self, z):
            return z

    loss, (_, scores, y) = kind(Straight(), beta=1.0), random_scores("apc+log", (7,))
    before, weight = scores.clone(), torch.rand(7, dtype=torch.float64)
    leaf = scores.clone().requires_grad_()
    (expected,) = torch.autograd.grad((loss.forward(leaf, y, 0.2) * weight).sum(), leaf)
    assert torch.allclose(loss.score_gradient(scores, y, 0.2, weight), expected)
    assert torch.equal(scores, before)


@pytest.mark.parametrize("name", ALL)
def test_the_largest_class_score_is_the_answer(name):
    loss, scores, _ = random_scores(name, (40,))
    by_class = loss.class_scores(scores, classes_of(name))
    assert by_class.shape == (40, classes_of(name))
    assert torch.equal(by_class.argmax(-1), loss.decide(scores, 0.2).label)
