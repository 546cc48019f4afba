"""The verdicts: the paper's losses, wrong losses, and the numbers behind each refutation."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from samples import PAPER
from scipy.optimize import minimize

from demur.losses import AdditivePairwise, available, get
from demur.losses.pairwise import PairwiseLoss
from demur.theory import FunctionLoss, RuleWarning, check_calibration, pointwise_risk
from demur.theory.bayes import as_target
from demur.theory.examined_loss import examine
from demur.theory.witness import verify

PAIRWISE = [name for name in available(n_classes=3) if isinstance(get(name), PairwiseLoss)]
SIDES = {"acc": {"false_accept"}, "rej": {"false_reject"}, "mean": {"false_accept", "false_reject"}}


def some_slow(values, quick):
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]


PROBLEMS = [(name, k) for name in PAPER for k in (2, 3, 8) if k == 2 or not get(name).binary_only]
QUICK = {("ce", 3), ("ova+log", 3), ("ova+sqhin", 3), ("cs+hin", 2), ("apc+log", 3), ("margin+exp", 2)}
"""One of each kind."""


@pytest.mark.parametrize(
    ("name", "n_classes"),
    [pytest.param(*problem, marks=[] if problem in QUICK else pytest.mark.slow) for problem in PROBLEMS],
)
def test_the_verdict_is_what_the_loss_claims(name, n_classes):
    loss = get(name)
    report = check_calibration(name, n_classes, cost=0.2)
    assert report.verdict == ("calibrated" if loss.calibrated_for(n_classes) else "refuted")
    assert report.calibrated == (not report.fails) == (report.counterexample is None)
    assert report.routes_agree in (True, None)
    assert (report.theorem_four is not None) == loss.has_rejector
    assert (report.evidence == "theorem") == (report.calibrated and (loss.smooth or name in ("ova+hin", "mh")))
    if report.calibrated:
        found = report.search
        assert found.n_right == found.n_eta >= (20 if loss.smooth else 8)  # kinks are slow


@pytest.mark.slow
@pytest.mark.parametrize(("n_classes", "cost"), [(5, 0.05), (4, 0.45)])
@pytest.mark.parametrize("name", [name for name in PAPER if get(name).smooth and not get(name).binary_only])
def test_the_verdict_does_not_depend_on_the_cost(name, n_classes, cost):
    report = check_calibration(name, n_classes, cost)
    assert report.calibrated == get(name).calibrated_for(n_classes)
    assert report.routes_agree in (True, None)


@pytest.mark.parametrize("name", ["ce", "ova+log"])
def test_many_classes(name):
    assert check_calibration(name, 26, 0.2).calibrated


@pytest.mark.parametrize(
    ("name", "n_classes"),
    [
        pytest.param(name, k, marks=[] if (name, k) == ("apc+log", 3) else [pytest.mark.slow])
        for name, k in [*itertools.product(PAIRWISE, (3, 5, 8, 26)), ("apc+log", 100)]
    ],
)
def test_no_beta_is_calibrated_for_more_than_two_classes(name, n_classes):
    for beta in ("acc", "rej", {3: "mean", 5: 0.3, 8: 6.0, 26: 60.0, 100: "mean"}[n_classes]):
        report = check_calibration(get(name, beta=beta), n_classes, 0.2)
        assert report.refuted
        assert report.routes_agree
        assert report.fails == SIDES.get(beta, report.fails)
        assert not report.beta.some_beta_works
        witness = report.witness
        assert witness.kind in report.fails
        assert witness.gap > max(witness.error, 1e-9)
        assert "float64" in witness.precision
        assert witness.taken_risk > witness.chow_risk + 1e-3


@pytest.mark.parametrize("name", some_slow([*PAIRWISE, "pb+log", "pb+exp"], quick=("pb+log",)))
@pytest.mark.slow
def test_two_classes_have_one_calibrated_beta(name):
    right = check_calibration(name, 2, 0.2)
    assert right.calibrated
    assert right.beta.some_beta_works
    found = right.theorem_four
    assert max(abs(found.sup_boundary), abs(found.inf_boundary)) <= found.tolerance
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


@pytest.mark.parametrize(
    ("name", "beta"),
    [("apc+log", "acc"), *(pytest.param(*v, marks=pytest.mark.slow) for v in (("mpc+log", "rej"), ("apc+exp", "rej")))],
)
def test_the_risks_of_a_counterexample_are_those_scipy_finds(name, beta):
    loss = get(name, beta=beta)
    witness = check_calibration(loss, 3, 0.2).witness
    assert independent_minimum(loss, witness.eta, 0.2) == pytest.approx(witness.least_risk, abs=1e-6)
    assert independent_minimum(loss, witness.eta, 0.2, hold_r=0.0) == pytest.approx(witness.chow_least_risk, abs=1e-6)


def test_sup_and_inf_by_hand():
    """APC+exp, K = 3, c = 0.2, beta = 4: (sum of square roots)^2 - 1 - c beta at the two extremes."""
    report = check_calibration("apc+exp", 3, 0.2)
    spread = (0.8**0.5 + 2 * 0.1**0.5) ** 2 - 1
    assert report.theorem_four.sup_answer == pytest.approx(spread - 0.8)
    assert report.theorem_four.inf_reject == pytest.approx(0.0, abs=1e-9)


def test_costs_from_one_half_on_are_checked_with_a_warning():
    from demur.costs import CostWarning

    with pytest.warns(CostWarning, match="1/2 or more"):
        report = check_calibration("ce", 4, 0.6)
    assert report.calibrated
    assert report.bound is None


def test_the_report_has_all_parts():
    refuted = str(check_calibration("apc+log", 3, 0.2))
    assert refuted.startswith("REFUTED: apc+log (beta = 3.2) with 3 classes at c = 0.2")
    for words in ("counterexample", "no beta works", "4.55", "Both methods agree", "false rejects", "Corollary 5"):
        assert words in refuted
    proved = str(check_calibration("ce", 3, 0.2))
    assert proved.startswith("CALIBRATED: ce with 3 classes at c = 0.2: a theorem, by one minimum on the simplex.")
    assert "Theorem 8" in proved
    searched = str(check_calibration("cs+hin", 3, 0.2))
    assert "a search, not a proof" in searched.splitlines()[0]
    assert "A search refutes; it does not prove: a threshold misplaced by less than" in searched


@pytest.mark.slow
def test_the_report_says_what_refutes_and_what_would_settle():
    constant = str(check_calibration(lambda scores, y, cost: 1 + 0 * scores.sum(-1), 2, 0.2))
    assert constant.startswith("REFUTED: <lambda>")
    assert "the loss is the same for all scores" in constant
    open_ = str(check_calibration(lambda s, y, cost: torch.relu(get("ce").forward(s, y, cost) - 3), 2, 0.2))
    assert open_.startswith("INCONCLUSIVE: <lambda>")
    assert "What would settle it" in open_
    assert "would have passed" in open_


@pytest.mark.slow  # the corpus has one scaled loss that is checked quickly
@pytest.mark.parametrize(("factor", "plus"), [(1e-9, 0.0), (1e9, 7.0), (1e-4, -1.0), (1e5, 0.0), (1.0, 1e6)])
def test_scale_and_offset_never_change_the_verdict(factor, plus):
    def scaled(loss):
        return lambda scores, y, cost: factor * loss(scores, y, cost) + plus

    def smoothed(scores, y, cost):
        return 0.9 * get("ce").forward(scores, y, cost) - 0.1 * torch.log_softmax(scores, -1).mean(-1)

    assert check_calibration(scaled(get("ova+log").forward), 3, 0.2, rule=sigmoid_rule).verdict == "calibrated"
    assert check_calibration(scaled(brier), 3, 0.2).verdict == "calibrated"
    assert check_calibration(scaled(smoothed), 3, 0.2).fails == {"false_reject"}
    pairwise = check_calibration(scaled(get("apc+log").forward), 3, 0.2, rule="rejector")
    assert pairwise.fails == {"false_reject"}
    assert pairwise.routes_agree
    assert pairwise.witness.gap / factor == pytest.approx(0.0044, rel=0.1)


def brier(scores, y, cost):
    return (torch.softmax(scores, -1) - torch.nn.functional.one_hot(y, scores.shape[-1])).square().sum(-1)


def sigmoid_rule(scores, cost):
    p = torch.sigmoid(scores)
    return p.argmax(-1), p.amax(-1) <= 1 - cost


@dataclass(frozen=True)
class HalvedRejection(AdditivePairwise):
    """Half the rejection term: not its parent's formula."""

    def forward(self, scores, y, cost):
        return super().forward(scores, y, cost) - self._rejecting(scores[..., -1], scores.shape[-1] - 1, cost) / 2


def test_a_subclass_is_not_proved_with_the_formula_of_its_parent():
    loss = HalvedRejection()
    report = check_calibration(loss, 2, 0.2)
    assert report.fails == {"false_reject"}
    witness = report.witness
    assert independent_minimum(loss, witness.eta, 0.2) == pytest.approx(witness.least_risk, abs=1e-6)
    assert independent_minimum(loss, witness.eta, 0.2, hold_r=0.0) == pytest.approx(witness.chow_least_risk, abs=1e-6)
    assert report.beta.acc == pytest.approx(2 * 3.2, abs=1e-6)


def test_a_subclass_is_proved_by_its_own_code_and_has_no_bound():
    @dataclass(frozen=True)
    class Tilted(type(get("ce"))):
        def forward(self, scores, y, cost):
            return super().forward(scores, y, cost) + 0.0

    report = check_calibration(Tilted(), 3, 0.2)
    assert (report.verdict, report.evidence, report.bound) == ("calibrated", "theorem", None)


def test_too_few_scores_are_not_assumed_in_silence():
    """A loss over K + 1 scores called with K: a warning, no refutation, and what to say."""

    def over_four(scores, y, cost):
        log_p = torch.log_softmax(scores, -1)
        return -log_p.gather(-1, y[:, None])[:, 0] - (1 - cost) * log_p[:, -1]

    def last_wins(scores, cost):
        label = scores.argmax(-1)
        return label, label == scores.shape[-1] - 1

    with pytest.warns(RuleWarning, match="never answered class 2.*outputs"):
        report = check_calibration(over_four, 3, 0.2, rule=last_wins)
    assert report.verdict != "calibrated"
    assert report.never_answers == (2,)
    assert check_calibration(over_four, 3, 0.2, rule=last_wins, outputs=4).verdict == "calibrated"


def test_a_rule_blind_to_the_cost_has_the_gap_of_a_divergence():
    def fixed_threshold(scores, cost):
        best = torch.softmax(scores, -1).max(-1)
        return best.indices, best.values <= 0.6

    report = check_calibration(get("ce").forward, 3, 0.2, rule=fixed_threshold)
    assert report.fails == {"false_accept"}
    p = report.counterexample.max()
    divergence = p * np.log(p / 0.6) + (1 - p) * np.log((1 - p) / 0.4)
    assert report.witness.gap == pytest.approx(divergence, rel=1e-4)


def shifted_for_one_class(number, by):
    def rule(scores, cost):
        best = torch.softmax(scores, -1).max(-1)
        return best.indices, best.values <= 1 - cost + by * (best.indices == number)

    return rule


@pytest.mark.parametrize("n_classes", [3, 26])
def test_a_threshold_that_is_off_for_one_class_is_no_symmetric_rule(n_classes):
    for by in (1e-4, -1e-4):
        loss = FunctionLoss(get("brier").forward, shifted_for_one_class(n_classes // 2, by))
        assert not examine(loss, as_target(0.2, n_classes)).symmetric
    assert examine(
        FunctionLoss(get("brier").forward, shifted_for_one_class(-1, 0.1)), as_target(0.2, n_classes)
    ).symmetric


@pytest.mark.slow
@pytest.mark.parametrize(("by", "fails"), [(2e-3, "false_reject"), (-2e-3, "false_accept")])
def test_a_threshold_that_is_off_for_one_class_of_26_is_refuted(by, fails):
    report = check_calibration(get("ce").forward, 26, 0.2, rule=shifted_for_one_class(13, by))
    assert report.fails == {fails}
    assert report.counterexample.argmax() == 13


def test_time_that_is_up_is_said():
    report = check_calibration("cs+hin", 3, 0.2, seconds=0.0)
    assert report.verdict == "inconclusive"
    assert report.search.n_untried > 0
    assert any("More time" in reason for reason in report.would_settle)


def test_without_time_nothing_is_refuted_and_a_theorem_stays_one():
    cut_short = check_calibration("apc+log", 3, 0.2, seconds=0.0)
    assert (cut_short.verdict, cut_short.theorem_four) == ("inconclusive", None)
    assert cut_short.no_theorem_four == "the time was up"
    proved = check_calibration("ce", 3, 0.2, seconds=0.0)
    assert (proved.evidence, proved.search.n_right) == ("theorem", 0)


@pytest.mark.slow
def test_a_staircase_is_left_open_and_said_to_be_one():
    """Of its many steps the best right one may be missed: what a search finds there refutes nothing."""

    def rounded(scores, y, cost):
        return (10 * get("ce").forward(scores, y, cost)).round() / 10

    report = check_calibration(rounded, 2, 0.2)
    assert report.verdict == "inconclusive"
    assert any("piecewise constant" in reason for reason in report.would_settle)


def test_a_failure_that_does_not_stand_is_dropped():
    subject = examine(get("ce"), as_target(0.2, 2))
    eta = torch.tensor([0.9, 0.1], dtype=torch.float64)
    for made_up in (torch.zeros(2, dtype=torch.float64), torch.tensor([1.3, 0.0], dtype=torch.float64)):
        witness, right = verify(subject, eta, made_up, eta.log()[None])
        assert witness is None
        assert float(get("ce").proba(right.scores).amax()) > 0.8
