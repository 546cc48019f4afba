"""Bad input: a typed exception and a sentence that says what to do."""

import pytest
import torch

from demur.losses import get
from demur.theory import CostRangeError, FunctionLoss, LossContractError, check_calibration
from demur.theory.bayes import as_target
from demur.theory.examined_loss import examine

BROKEN = {
    "reduces over the rows": (lambda s, y, c: s.sum(), "one loss per row"),
    "one column too many": (lambda s, y, c: s[:, :1], "one loss per row"),
    "NaN": (lambda s, y, c: s[:, 0] * float("nan"), "NaN or infinity"),
    "integers": (lambda s, y, c: (s[:, 0] > 0).long(), "must return floats"),
    "no tensor": (lambda s, y, c: s.detach().numpy()[:, 0], "must return a tensor"),
    "detached": (lambda s, y, c: s[:, 0].detach(), "not differentiable"),
    "partly detached": (lambda s, y, c: s[:, 0].square() + 5 * s[:, 1].detach().square(), "disagrees with finite"),
    "raises": (lambda s, y, c: s[:, 99], "raised IndexError"),
    "gradient is infinite": (lambda s, y, c: torch.where(s > 0, torch.sqrt(s), 0.0).sum(-1), "NaN or infinite"),
    "without lower bound": (lambda s, y, c: s.gather(-1, y[:, None])[:, 0], "could not be minimised"),
    "depends on the batch": (lambda s, y, c: s.square().sum(-1) + s.mean(), "depends on the other rows"),
    "depends on chance": (lambda s, y, c: s.square().sum(-1) * torch.rand(len(s)), "random numbers"),
    "changes what it needs": (lambda s, y, c: torch.exp(s).mul_(2).sum(-1), "cannot be differentiated"),
    "one-hot labels": (lambda s, y, c: -(y * torch.log_softmax(s, -1)).sum(-1), "class numbers"),
    "wants four scores": (lambda s, y, c: s[:, 3] + 0 * s.sum(-1), "say how many"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_loss_is_refused_with_its_fault(fault):
    function, message = BROKEN[fault]
    with pytest.raises(LossContractError, match=message):
        check_calibration(function, 3, 0.2)


@pytest.mark.parametrize(
    "loss",
    [
        torch.nn.CrossEntropyLoss(reduction="none"),
        lambda s, y: torch.nn.functional.cross_entropy(s, y, reduction="none"),
    ],
)
def test_a_loss_without_a_cost_is_called_without_one(loss):
    assert check_calibration(loss, 3, 0.2).calibrated


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (torch.nn.CrossEntropyLoss(), "reduction='none'"),
        (torch.nn.functional.cross_entropy, "reduction='none'"),
        (lambda a, b, c, d: a[:, 0], "wrap it in a function"),
    ],
)
def test_what_torch_offers_is_refused_with_what_to_do(loss, message):
    with pytest.raises(LossContractError, match=message):
        check_calibration(loss, 3, 0.2)


def test_a_class_of_torch_is_refused_with_an_object():
    with pytest.raises(TypeError, match=r"CrossEntropyLoss\(reduction='none'\)"):
        check_calibration(torch.nn.CrossEntropyLoss, 3, 0.2)


def test_a_call_with_scores_and_labels_exchanged_gets_one_sentence(capfd):
    with pytest.raises(LossContractError, match="called with scores first"):
        check_calibration(lambda y, s: torch.log_softmax(s, -1).gather(-1, y[:, None])[:, 0], 3, 0.2)
    assert capfd.readouterr().err == ""


BROKEN_RULES = {
    "raises": (lambda s, c: s[:, 99], "raised IndexError"),
    "labels only": (lambda s, c: s.argmax(-1), "returns two tensors"),
    "labels of floats": (lambda s, c: (s[:, 0], s[:, 0] > 0), "integer label"),
    "labels out of range": (lambda s, c: (torch.full((len(s),), 7), s[:, 0] > 0), r"0 \.\.\. 2"),
    "reject of the wrong shape": (lambda s, c: (s.argmax(-1), s > 0), "one boolean 'reject' per row"),
}


@pytest.mark.parametrize("fault", BROKEN_RULES)
def test_a_broken_rule_is_refused_with_its_fault(fault):
    rule, message = BROKEN_RULES[fault]
    loss = FunctionLoss(get("ce").forward, rule)
    with pytest.raises(LossContractError, match=message):
        examine(loss, as_target(0.2, 3))


@pytest.mark.parametrize("cost", [0.0, -0.2, 1.0, 0.7, float("nan"), None, "cheap"])
def test_costs_without_a_rejection_are_refused(cost):
    with pytest.raises(CostRangeError, match=r"\(0, 0\.6666"):
        check_calibration("ce", 3, cost)


@pytest.mark.parametrize("n_classes", [1, 0, -3])
def test_fewer_than_two_classes_are_refused(n_classes):
    with pytest.raises(ValueError, match="at least two classes"):
        check_calibration("ce", n_classes, 0.2)


@pytest.mark.parametrize("n_classes", [2.5, True, "3", None])
def test_a_number_of_classes_that_is_none_is_refused(n_classes):
    with pytest.raises(ValueError, match="whole number"):
        check_calibration("ce", n_classes, 0.2)


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        ("no+such", ValueError, "unknown loss"),
        ("mh", ValueError, "two classes only"),
        (42, TypeError, "a registered name, a Loss, or a function"),
    ],
)
def test_what_is_no_loss_is_refused(loss, error, message):
    with pytest.raises(error, match=message):
        check_calibration(loss, 3, 0.2)


def test_a_rule_for_a_loss_that_has_one_is_refused():
    with pytest.raises(TypeError, match="brings its own decision rule"):
        check_calibration("ce", 3, 0.2, rule="softmax")
    with pytest.raises(ValueError, match="'softmax', 'rejector', 'reject-score' or a function"):
        check_calibration(get("ce").forward, 3, 0.2, rule="majority")
    with pytest.raises(ValueError, match="or a function of"):
        FunctionLoss(get("ce").forward, 3)


def test_a_loss_class_is_taken_with_its_defaults():
    assert check_calibration(type(get("ce")), 2, 0.2).calibrated


def test_threads_are_given_back():
    before = torch.get_num_threads()
    check_calibration("ce", 2, 0.2)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ([0.1, 0.2], "3 numbers"),
        ([[0, 1, 0.2], [1, 0, 0.2]], "shape"),
        ([[0, 1, 1, float("inf")], [1, 0, 1, 5], [1, 1, 0, 5]], "must be finite"),
    ],
)
def test_costs_of_the_wrong_shape_are_refused(cost, message):
    with pytest.raises(ValueError, match=message):
        check_calibration("ce", 3, cost)


@pytest.mark.filterwarnings("ignore::demur.theory.RuleWarning")
@pytest.mark.parametrize("cost", [[0.0, 0.0, 0.0], [[0, 1, 1, 9]] * 3])
@pytest.mark.parametrize("loss", ["ce", torch.nn.CrossEntropyLoss(reduction="none")])
def test_costs_at_which_one_decision_is_always_best_are_refused(loss, cost):
    with pytest.raises(CostRangeError, match="one decision is the best"):
        check_calibration(loss, 3, cost)


def test_a_loss_of_one_price_refuses_a_matrix():
    with pytest.raises(LossContractError, match="one price"):
        check_calibration("apc+log", 3, [0.1, 0.2, 0.3])


@pytest.mark.parametrize(
    ("loss", "outputs", "message"), [("ce", 5, "plain function only"), (get("ce").forward, 0, "whole number")]
)
def test_a_number_of_scores_that_cannot_be_is_refused(loss, outputs, message):
    with pytest.raises((TypeError, ValueError), match=message):
        check_calibration(loss, 3, 0.2, outputs=outputs)


def test_a_third_argument_with_a_default_is_not_the_cost():
    def smoothed(scores, y, smoothing=0.1):
        return torch.nn.functional.cross_entropy(scores, y, reduction="none", label_smoothing=smoothing)

    scores, y = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1])
    assert torch.equal(FunctionLoss(smoothed)(scores, y, cost=0.4), smoothed(scores, y))
    assert FunctionLoss(lambda scores, y, cost=0.1: 0 * scores[:, 0] + cost)(scores, y, cost=0.4)[0] == 0.4
