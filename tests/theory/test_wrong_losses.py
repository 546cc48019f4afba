"""Wrong losses are caught, each with a counterexample that stands."""

import numpy as np
import planted
import pytest
import torch

from demur.theory import FunctionLoss, check_calibration

WITH_REJECTOR = {
    planted.dropped_rejection_term: {"false_reject"},
    planted.rejector_with_the_wrong_sign: {"false_accept"},
}


@pytest.mark.parametrize("n_classes", [2, 3, 8])
@pytest.mark.parametrize("function", WITH_REJECTOR)
def test_a_wrong_rejector_is_caught_on_its_side(function, n_classes):
    report = check_calibration(function, n_classes, 0.2, rule="rejector")
    assert report.fails == WITH_REJECTOR[function]
    assert report.routes_agree
    assert report.witness.gap > 1e-3


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_loss_blind_to_the_cost_is_right_at_one_cost_only(n_classes):
    wrong = check_calibration(planted.blind_to_the_cost, n_classes, 0.2, rule="rejector")
    assert "false_accept" in wrong.fails
    assert check_calibration(planted.blind_to_the_cost, 2, 0.4, rule="rejector").calibrated


def test_a_rule_blind_to_the_cost_is_caught_without_its_gradient():
    report = check_calibration(planted.cross_entropy, 3, 0.2, rule=planted.fixed_threshold)
    assert report.fails == {"false_accept"}
    # The best rejecting probabilities are those with max = 0.6: the gap is a divergence, found from above.
    p = report.counterexample.max()
    divergence = p * np.log(p / 0.6) + (1 - p) * np.log((1 - p) / 0.4)
    assert report.witness.gap == pytest.approx(divergence, rel=0.05)
    assert report.witness.gap >= divergence - 1e-9
    assert "best one found" in report.witness.precision


@pytest.mark.parametrize("n_classes", [3, 8])
def test_the_wrong_link_is_caught(n_classes):
    report = check_calibration(planted.SigmoidLinkForExponential(), n_classes, 0.2)
    assert report.fails == {"false_reject"}
    assert report.bound is None


@pytest.mark.parametrize("n_classes", [2, 3, 8, 12])
def test_a_loss_constant_in_one_class_is_caught(n_classes):
    report = check_calibration(planted.constant_in_one_class, n_classes, 0.2)
    assert "misclassify" in report.fails
    assert report.counterexample.argmax() == n_classes - 1


def test_a_rule_against_the_rejector_is_caught():
    report = check_calibration(FunctionLoss(planted.binary_pairwise, planted.against_the_rejector, outputs=3), 2, 0.2)
    assert report.fails == {"false_reject", "false_accept"}


@pytest.mark.parametrize("differentiable", [True, False])
def test_a_wrong_loss_with_kinks_is_caught_even_if_called_smooth(differentiable):
    loss = FunctionLoss(planted.unweighted_hinge, planted.positive_score, differentiable=differentiable)
    assert check_calibration(loss, 3, 0.2).fails == {"false_accept"}


def test_an_indifferent_loss_is_refuted_and_said_to_be_indifferent():
    report = check_calibration(planted.indifferent, 3, 0.2)
    assert not report.calibrated
    assert report.witness.gap == pytest.approx(0.0, abs=1e-12)
    assert "does not tell the two decisions apart" in str(report)


def test_a_right_function_passes():
    assert check_calibration(planted.cross_entropy, 4, 0.2).calibrated


def test_a_loss_with_several_minima_is_minimised_from_several_starts():
    def bumpy(scores, y, cost):
        return planted.cross_entropy(scores, y, cost) + 0.05 * torch.sin(3 * scores).square().sum(-1)

    report = check_calibration(bumpy, 3, 0.2)
    assert not report.calibrated
