"""Losses as torch modules: the arguments of nn.CrossEntropyLoss, soft labels, autocast, compile and vmap."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F

from demur.errors import InputError, InputTypeError
from demur.losses import LabelSmoothing, as_module, available, get


def example(name, n_classes, n):
    loss = get(name)
    n_classes = 2 if loss.binary_only else n_classes
    generator = torch.Generator().manual_seed(0)
    scores = 6 * torch.randn(n, loss.n_outputs(n_classes), generator=generator)
    return loss.for_classes(n_classes), scores, torch.randint(n_classes, (n,), generator=generator)


def segmentation(n_classes=5):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, n_classes, 6, 7, generator=generator)
    return scores, torch.randint(n_classes, (3, 6, 7), generator=generator)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("loss", ["ce", LabelSmoothing(0.0)])  # the same loss, by torch and by the general way
def test_cross_entropy_is_torchs(loss, reduction, smoothing, weighted, soft):
    scores, y = segmentation()
    y[0, :2] = 4  # ignored
    target = torch.softmax(scores.flip(0), 1) if soft else y
    weight = torch.tensor([1.0, 2.0, 0.5, 0.0, 3.0]) if weighted else None
    named = {"reduction": reduction, "label_smoothing": smoothing}
    named |= {} if soft else {"ignore_index": 4}
    found = as_module(loss, class_weight=weight, **named)(scores, target)
    expected = F.cross_entropy(scores, target, weight=weight, **named)
    assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("name", available())
def test_a_soft_label_costs_the_expected_loss(name):
    loss, scores, y = example(name, 4, n=30)
    n_classes = 2 if loss.binary_only else 4
    criterion = as_module(loss, cost=0.2, reduction="none")
    hard = F.one_hot(y, n_classes).float()
    assert torch.allclose(criterion(scores, hard), loss(scores, y, 0.2), rtol=1e-4, atol=1e-4)
    half = (hard + 1 / n_classes) / 2
    every = torch.stack([loss(scores, torch.full_like(y, k), 0.2) for k in range(n_classes)], 1)
    assert torch.allclose(criterion(scores, half), (half * every).sum(1), rtol=1e-4, atol=1e-4)


def test_tokens_have_their_classes_last():
    scores, y = segmentation()
    tokens, labels = scores.flatten(2).movedim(1, -1), y.flatten(1)
    assert torch.allclose(as_module("ova+log", class_dim=-1)(tokens, labels), as_module("ova+log")(scores, y))
    with pytest.raises(InputError, match="set class_dim"):
        as_module("ce")(tokens, labels)
    with pytest.raises(IndexError, match="Dimension out of range"):
        as_module("ce", class_dim=3)(tokens, labels)


def test_the_probabilities_of_smoothed_cross_entropy_are_corrected():
    assert as_module("ce", label_smoothing=0.1).loss == LabelSmoothing(0.1)
    assert as_module("ce").loss == get("ce")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_in_single_precision(dtype):
    scores, y = segmentation()
    for module in (as_module("ce", label_smoothing=0.1), as_module("cao", cost=0.1), as_module("ova+exp")):
        expected = module(scores.to(dtype).float(), y.clamp(max=3))
        with torch.autocast("cpu", dtype=dtype):
            found = module(scores.to(dtype), y.clamp(max=3))
        assert found.dtype == torch.float32
        assert torch.allclose(found, expected)


@pytest.mark.parametrize("name", available())
def test_vmap_gives_each_example_its_loss_and_decision(name):
    loss, scores, y = example(name, 4, n=6)
    expected = loss(scores, y, 0.2)
    assert torch.allclose(torch.func.vmap(lambda s, k: loss(s, k, 0.2))(scores, y), expected, rtol=1e-5)
    n_classes = 2 if loss.binary_only else 4
    for named in ({}, {"label_smoothing": 0.1}, {"class_weight": torch.arange(1.0, n_classes + 1)}):
        module = as_module(loss, cost=0.2, reduction="none", **named)
        assert torch.allclose(torch.func.vmap(module)(scores, y), module(scores, y), rtol=1e-5)
    assert torch.allclose(torch.func.vmap(as_module(loss, cost=0.2))(scores, y), expected, rtol=1e-5)
    reject = torch.func.vmap(lambda s: loss.decide(s, 0.2).reject)(scores)
    assert torch.equal(reject, loss.decide(scores, 0.2).reject)


@pytest.mark.parametrize("name", available())
def test_no_value_is_read_so_that_nothing_waits_for_a_gpu(name):
    loss, scores, y = example(name, 4, n=6)
    n_classes = 2 if loss.binary_only else 4
    scores = scores.to("meta").requires_grad_()  # tensors without values
    for named in ({}, {"label_smoothing": 0.1}, {"class_weight": [1.0] * n_classes}):
        module = as_module(loss, cost=0.2, **named).to("meta")
        for target in (y.to("meta"), torch.zeros(6, n_classes, device="meta")):
            assert torch.autograd.grad(module(scores, target), scores)[0].shape == scores.shape


@pytest.mark.slow  # importing the compiler takes seconds
@pytest.mark.parametrize("name", available())
def test_compiles_as_one_graph(name):
    loss, scores, y = example(name, 4, n=6)
    module = as_module(loss, cost=0.2, label_smoothing=0.1)
    for function in (module, lambda s, k: loss.decide(s, 0.2).acceptance):
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True, backend="eager")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.allclose(compiled(scores, y), function(scores, y), rtol=1e-4, atol=1e-5)


def test_labels_out_of_range_are_no_crash_of_the_check():
    scores, y = torch.zeros(2, 3), torch.tensor([0, 3])
    with pytest.raises(InputError, match="labels must be in 0"):
        get("ce")(scores, y)
    both_infinite = torch.tensor([[float("inf"), float("-inf"), 0.0]])
    assert get("ova+sqhin").decide(both_infinite, 0.2).label == 0  # infinities are not NaN
    with pytest.raises(InputError, match="NaN"):
        get("ce")(scores * torch.nan, y)


def test_buffers_travel_and_modules_are_copied():
    module = as_module("cao", cost=torch.tensor([0.1, 0.2]), class_weight=[1.0, 2.0], reduction="none")
    assert set(module.state_dict()) == {"cost", "class_weight"}
    scores, y = torch.randn(2, 3), torch.tensor([0, 1])
    for again in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(again(scores, y), module(scores, y))


def test_a_module_in_half_precision_weighs_in_single_precision():
    scores, y = torch.randn(1000, 3), torch.arange(1000) % 3
    rounded = torch.tensor([0.1, 0.2, 0.3]).bfloat16()
    half = as_module("ova+log", class_weight=rounded.float()).bfloat16()
    assert torch.equal(half(scores, y), as_module("ova+log", class_weight=rounded.float())(scores, y))
    cost = torch.tensor([0.1, 0.2], dtype=torch.float64)
    assert as_module("cao", cost=cost)(scores[:2], y[:2]).dtype == torch.float32


@pytest.mark.parametrize("loss", ["ce", "focal", "ms"])
def test_soft_labels_and_class_weights_have_as_many_classes_as_the_scores(loss):
    n_outputs = get(loss).n_outputs(3)
    scores, y = torch.zeros(2, n_outputs), torch.tensor([0, 1])
    with pytest.raises(InputError, match=f"soft labels of 5 classes need {n_outputs + 2} scores with {loss}, got"):
        as_module(loss, cost=0.2)(scores, torch.full((2, 5), 0.2))
    with pytest.raises(InputError, match="class_weight of 4 classes need"):
        as_module(loss, cost=0.2, class_weight=[1.0, 2.0, 3.0, 4.0])(scores, y)
    with pytest.raises(InputError, match="one-hot labels as floats"):
        as_module(loss, cost=0.2)(scores, F.one_hot(y, 3))


def test_a_plain_function_without_a_cost_needs_none():
    scores, y = segmentation()
    plain = as_module(torch.nn.CrossEntropyLoss(reduction="none"), class_weight=[1.0, 2.0, 0.5, 0.0, 3.0])
    assert torch.allclose(plain(scores, y), F.cross_entropy(scores, y, weight=plain.class_weight))
    with pytest.raises(InputTypeError, match="needs a cost"):
        as_module(lambda scores, y, cost: cost * scores[:, 0])
    with pytest.raises(InputError, match="must return one loss per row: do not reduce"):
        as_module(torch.nn.CrossEntropyLoss())(scores, y)


def test_all_ignored_is_nan_as_in_torch_and_no_rows_sum_to_zero():
    y = torch.full((2,), -100)
    assert as_module("ce")(torch.zeros(2, 3), y).isnan()
    assert as_module("ce", reduction="sum")(torch.zeros(0, 3), y[:0]) == 0


@pytest.mark.parametrize(
    ("named", "words"),
    [({"reduction": "max"}, "reduction"), ({"label_smoothing": 1.0}, "label_smoothing"), ({"cost": 1.5}, "cost")],
)
def test_bad_arguments(named, words):
    with pytest.raises(InputError, match=words):
        as_module("ce", **named)
    with pytest.raises(InputTypeError, match="needs a cost"):
        as_module("cao")
