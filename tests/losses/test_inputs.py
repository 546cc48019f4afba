"""What losses accept: half precision, any integer labels, classes on another axis, any number of classes."""

import pytest
import torch

from demur.errors import InputError
from demur.losses import Loss, available, get

ALL = available()
HALVES = [torch.bfloat16, torch.float16]


def example(name, n_classes=5, n=400):
    loss = get(name)
    n_classes = 2 if loss.binary_only else n_classes
    generator = torch.Generator().manual_seed(0)
    scores = 6 * torch.randn(n, loss.n_outputs(n_classes), generator=generator)
    return loss.for_classes(n_classes), scores, torch.randint(n_classes, (n,), generator=generator)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ALL)
def test_half_precision_is_computed_in_single_precision(name, dtype):
    loss, scores, y = example(name)
    half = scores.to(dtype)
    single, cost = half.float(), torch.tensor(0.003)
    for autocast in (False, True):
        with torch.autocast("cpu", dtype=dtype, enabled=autocast):
            value, decision = loss(half, y, 0.003), loss.decide(half, 0.003)
            assert value.dtype == torch.float32
            assert torch.equal(value, loss(single, y, 0.003))
            assert torch.equal(loss(single, y, cost.to(dtype)), loss(single, y, cost.to(dtype).float()))
            assert torch.equal(decision.acceptance, loss.decide(single, 0.003).acceptance)
            if loss.has_link:
                assert torch.equal(loss.proba(half), loss.proba(single))
        assert torch.allclose(value, loss(single, y, 0.003))


def test_confident_scores_in_bfloat16_still_have_a_loss():
    scores = torch.tensor([[7.0, 0.0, 0.0]], dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert get("ce")(scores, torch.tensor([0])).item() == pytest.approx(0.001822, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("name", ALL)
def test_labels_of_any_integer_type(name, dtype):
    loss, scores, y = example(name)
    assert torch.equal(loss(scores, y.to(dtype), 0.2), loss(scores, y, 0.2))


@pytest.mark.parametrize("size", [(4, 4), (5, 7)])
@pytest.mark.parametrize("name", ALL)
def test_the_classes_of_images_are_on_a_named_axis(name, size):
    loss, scores, y = example(name, 4, n=2 * size[0] * size[1])
    last, labels = scores.reshape(2, *size, -1), y.reshape(2, *size)
    images = last.movedim(-1, 1)
    assert torch.allclose(loss(images, labels, 0.2, class_axis=1), loss(scores, y, 0.2).reshape(labels.shape))
    assert torch.equal(loss.decide(images, 0.2, class_axis=1).label, loss.decide(scores, 0.2).label.reshape(2, *size))
    assert torch.allclose(loss(last, labels, 0.2, class_axis=-1), loss(scores, y, 0.2).reshape(labels.shape))
    if loss.has_link:
        assert torch.allclose(loss.proba(images, class_axis=1).movedim(1, -1), loss.proba(last, class_axis=-1))


@pytest.mark.parametrize(
    ("shape", "labels"), [((4, 4, 4, 4), (4, 4, 4)), ((2, 3, 5, 5), (2, 5, 5)), ((2, 3, 3), (2, 3))]
)
def test_scores_whose_class_axis_is_not_clear_are_refused(shape, labels):
    scores, y = torch.zeros(shape), torch.zeros(labels, dtype=torch.long)
    with pytest.raises(InputError, match="class_axis=1"):
        get("ce")(scores, y)
    if len(shape) > 3:
        with pytest.raises(InputError, match="class_axis=1"):
            get("ce").decide(scores, 0.2)
        with pytest.raises(InputError, match="class_axis=1"):
            get("ce").proba(scores)
    with pytest.raises(IndexError, match="Dimension out of range"):
        get("ce").proba(scores, class_axis=9)


@pytest.mark.parametrize("name", ALL)
def test_the_number_of_classes_follows_from_the_number_of_scores(name):
    loss = get(name)
    for n_classes in (2,) if loss.binary_only else (2, 3, 4, 100, 100_000):
        found = loss._n_classes(loss.n_outputs(n_classes))
        assert loss.n_outputs(found) == loss.n_outputs(n_classes)
        assert found >= n_classes
        assert loss.binary_only or loss.n_outputs(found + 1) > loss.n_outputs(n_classes)


def test_counting_many_classes_asks_few_times():
    class Counting(type(get("ce"))):
        asked = 0

        def n_outputs(self, n_classes):
            Counting.asked += 1
            return n_classes

    loss: Loss = Counting()
    loss(torch.zeros(1, 100_000), torch.zeros(1, dtype=torch.long))
    assert Counting.asked < 200


def test_a_loss_with_exponentially_many_outputs_finds_its_number_of_classes():
    class Exhaustive(type(get("ce"))):
        def n_outputs(self, n_classes):
            assert n_classes < 100
            return 2 ** (n_classes - 1) - 1

    assert Exhaustive()._n_classes(7) == 4


def test_labels_may_be_of_a_wide_unsigned_type():
    labels = torch.zeros(3, dtype=torch.uint16)
    assert get("ce")(torch.zeros(3, 10), labels).shape == (3,)
