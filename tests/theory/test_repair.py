"""Repairs: the rule that makes a loss calibrated, for known losses, or two distributions that share a minimiser."""

import functools
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from corpus import (
    CASES,
    asymmetric_softmax,
    brier,
    cao,
    ce,
    chow_on,
    crammer_singer,
    exponential,
    exponential_pairs,
    focal,
    focal_link,
    gce,
    hinge,
    last_wins,
    logistic,
    mae,
    masked_last_class,
    one_hot,
    ova,
    positive,
    reject_weighted,
    scaled,
    smoothed_ce,
    softmax,
    squared,
    squared_error,
    swapped_labels,
    tilted,
    tsallis,
    verma_nalisnick,
    weighted_classes,
    weighted_ova,
)
from test_check_calibration import some_slow

from demur import RejectOption, load, save
from demur.deploy.onnx.onnx_export import compare_onnx, export_onnx
from demur.errors import InputError
from demur.rules import Relinked
from demur.theory import FunctionLoss, check_calibration
from demur.theory.calibration_report import operations

PRIOR = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
WRONG = chow_on(lambda s: softmax(1.2 * s))


def unadjusted(p):
    eta = p / PRIOR.numpy()
    return eta / eta.sum(-1, keepdims=True)


def powered(power):
    def link(p):
        eta = p**power
        return eta / eta.sum(-1, keepdims=True)

    return link


def separable(slope):
    """eta proportional to -1 / l'(p)."""

    def link(p):
        eta = -1 / slope(p)
        return eta / eta.sum(-1, keepdims=True)

    return link


def margin_slope(p):
    """The derivative of -log(q / (q + 1 - p)), q = p exp(-1/2)."""
    return -1 / p + (np.exp(-0.5) - 1) / (p * np.exp(-0.5) + 1 - p)


LINKS = {
    "focal": (focal(2.0), "softmax", lambda p: focal_link(2.0)(torch.from_numpy(p).log()).numpy()),
    "focal 1": (focal(1.0), "softmax", lambda p: focal_link(1.0)(torch.from_numpy(p).log()).numpy()),
    "gce": (gce(0.7), "softmax", powered(0.3)),
    "gce .5": (gce(0.5), "softmax", powered(0.5)),
    "label smoothing": (smoothed_ce(3, 0.3), "softmax", lambda p: (p - 0.1) / 0.7),
    "poly-1": (lambda s, y, c: ce(s, y, c) + 2 * mae(s, y, c), "softmax", separable(lambda p: -1 / p - 2)),
    "symmetric ce": (
        lambda s, y, c: 0.1 * ce(s, y, c) + 4 * mae(s, y, c),
        "softmax",
        separable(lambda p: -0.1 / p - 4),
    ),
    "logit adjustment": (
        lambda s, y, c: ce(s + PRIOR.log(), y, c),
        "softmax",
        lambda p: unadjusted(p * PRIOR.numpy() ** 2),
    ),
    "class weights": (weighted_classes, "softmax", lambda p: unadjusted(p * PRIOR.numpy() / np.array([1, 3, 0.5]))),
    "tilted": (tilted(0.5), "softmax", powered(1.5)),
    "temperature": (lambda s, y, c: ce(s / 2, y, c), "softmax", powered(0.5)),
    "exponential pairs": (exponential_pairs, "softmax", powered(2.0)),
    "labels swapped": (swapped_labels, "softmax", lambda p: p[:, [1, 0, 2]]),
    "margins": (lambda s, y, c: ce(s - 0.5 * one_hot(y, s), y, c), "softmax", separable(margin_slope)),
    "brier read wrongly": (brier, WRONG, powered(1.0)),
    "tsallis read wrongly": (tsallis(1.5), WRONG, powered(1.0)),
    "ms with weight 1": (reject_weighted(lambda c: 1.0), last_wins, powered(1.0)),
    "cao .5, not the last": (cao(0.5), lambda s, c: (s[:, :-1].argmax(-1), s[:, -1] > 0), powered(0.5)),
}
"""Losses that a link repairs, with the known map from the softmax of the class scores to eta."""

SCORES = {
    "ova+log read as softmax": (ova(logistic), "softmax", lambda s: 1 / (1 + np.exp(-s))),
    "ova+exp read with a sigmoid": (ova(exponential), chow_on(torch.sigmoid), lambda s: 1 / (1 + np.exp(-2 * s))),
    "ova+sq read as softmax": (ova(squared), "softmax", lambda s: (1 + s) / 2),
    "squared error read as softmax": (squared_error, "softmax", lambda s: s),
}
NONE = {
    "clamped ce": (lambda s, y, c: ce(s, y, c).clamp(max=5.0), "softmax"),
    "mae": (mae, "softmax"),
    "softmax twice": (lambda s, y, c: ce(softmax(s), y, c), "softmax"),
    "last class masked": (masked_last_class, "softmax"),
    "one-versus-all hinge": (ova(hinge), positive),
    "crammer-singer": (crammer_singer, positive),
}
"""Losses for which no rule on the scores is right at c = 0.2."""


def repair_of(loss, rule, **options):
    outputs = 4 if rule is last_wins or options.pop("last", False) else None
    report = check_calibration(loss, 3, 0.2, rule=rule, outputs=outputs)
    assert not report.calibrated
    return report.repair()


@functools.cache
def repaired(name):
    loss, rule, _ = LINKS[name]
    return repair_of(loss, rule, last=name.startswith("cao"))


@pytest.mark.parametrize("name", some_slow(LINKS, quick=("label smoothing",)))
def test_the_link_is_the_known_one(name):
    found, link = repaired(name), LINKS[name][2]
    assert (found.found, found.check.verdict) == ("link", "calibrated"), str(found)
    p = np.random.default_rng(0).dirichlet(np.ones(3), size=50) * 0.97 + 0.01
    expected = link(p).clip(0)
    assert found.rule.link(p) == pytest.approx(expected / expected.sum(-1, keepdims=True), abs=1e-5)


@pytest.mark.parametrize("name", some_slow(SCORES, quick=("ova+log read as softmax",)))
def test_a_link_of_each_score_is_the_known_one(name):
    loss, rule, link = SCORES[name]
    found = repair_of(loss, rule)
    assert (found.found, found.check.verdict) == ("link", "calibrated"), str(found)
    assert found.rule.of_scores
    s = np.random.default_rng(0).normal(size=(50, 3))
    assert found.rule.link(s) == pytest.approx(link(s), abs=1e-5)


@pytest.mark.parametrize("name", some_slow(NONE, quick=("clamped ce",)))
def test_two_distributions_with_one_minimiser_leave_no_rule(name):
    loss, rule = NONE[name]
    found = repair_of(loss, rule)
    assert found.found == "none", str(found)
    one, other = found.pair
    assert (one.max() > 0.8) != (other.max() > 0.8) or one.argmax() != other.argmax()
    assert "minimise the risk at both" in str(found)


def test_distributions_that_a_capped_loss_confuses_differ_in_a_class_that_it_ignores():
    """At its minimiser the loss of a rare class is at the cap, so that only the shares of the others count."""
    one, other = repair_of(*NONE["clamped ce"]).pair
    kept = np.minimum(one, other) > 0.05
    assert one[kept] / one[kept].sum() == pytest.approx(other[kept] / other[kept].sum(), abs=1e-6)


@pytest.mark.parametrize("q", [0.9, 0.98])
def test_a_strictly_convex_loss_of_one_probability_is_never_without_a_rule(q):
    """p is proportional to eta^10 or eta^50: risks differ by less than they can be computed, but the link exists."""
    assert repair_of(gce(q), "softmax").found != "none"


def test_the_power_of_a_high_temperature_holds_for_rare_classes():
    """p is proportional to eta^7, 1e-35 for a class of probability 1e-5."""
    eta = np.array([0.95, 0.05 - 1e-5, 1e-5])
    assert Relinked(0.05, "power", 1 / 7).link(eta**7 / (eta**7).sum()) == pytest.approx(eta)


@pytest.mark.slow
def test_a_threshold_for_one_cost():
    found = repair_of(weighted_ova(hinge), lambda s, c: (s.argmax(-1), s.amax(-1) <= 1.5))
    assert (found.found, found.check.verdict) == ("threshold", "calibrated")
    assert "exceeds 0" in found.formula


@pytest.mark.slow
@pytest.mark.parametrize(("name", "what"), [("apc+log", "unknown"), ("mpc+log", "link"), ("apc+exp", "link")])
def test_pairwise_losses_with_three_classes(name, what):
    """No sign of r decides; of mpc and of exponentials, the class scores alone still give eta."""
    found = check_calibration(name, 3, 0.2).repair()
    assert found.found == what, str(found)
    if what == "unknown":
        assert "the last score: up to" in str(found)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [asymmetric_softmax, verma_nalisnick])
def test_other_losses_of_deferral_have_a_rule_too(loss):
    found = repair_of(loss, lambda s, c: (s[:, :-1].argmax(-1), s[:, -1] > 0), last=True)
    assert found.found in ("link", "threshold")
    assert found.check.verdict == "calibrated"


RULES = {
    "power": Relinked(0.2, "power", 0.5, np.array([0.0, 0.1, 0.2])),
    "affine": Relinked(0.2, "affine", 1.2 * np.eye(3) - 0.2 / 3),
    "monotone": Relinked(
        0.2, "monotone", np.array([-20.0, 20.0]), np.linspace(-30, 30, 81) + np.sin(np.linspace(0, 6, 81))
    ),
}


@pytest.mark.parametrize("form", RULES)
def test_a_repaired_rule_is_saved_and_exported(form, tmp_path):
    from sklearn.datasets import load_iris
    from sklearn.naive_bayes import GaussianNB

    X, y = load_iris(return_X_y=True)
    model = RejectOption(GaussianNB(), rule=RULES[form], calibration=None).fit(X, y)
    decision = model.decide(X)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.rule == RULES[form]
    assert np.array_equal(again.decide(X).reject, decision.reject)
    export_onnx(model, tmp_path / "model.onnx")
    assert compare_onnx(model, tmp_path / "model.onnx", X).decisions_agree


def test_the_repaired_pair_can_be_trained():
    from demur import RejectClassifier

    found = repaired("label smoothing")
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = (X[:, 0] + 0.5 * np.random.default_rng(1).normal(size=300) > 0).astype(int) + (X[:, 1] > 1)
    model = RejectClassifier(found.loss, cost=0.2, epochs=3, random_state=0).fit(X, y)
    assert model.predict_proba(X).sum(1) == pytest.approx(1.0, abs=1e-5)


def test_a_repair_is_json():
    assert json.loads(json.dumps(repair_of(scaled(0.5), "softmax").as_dict()))["rule"]["slope"] == pytest.approx(0.5)


def test_a_theorem_in_latex():
    text = check_calibration("ce", 3, 0.2).latex()
    assert r"\begin{proposition}" in text
    assert "is calibrated for rejection" in text
    assert r"\textbar{}max eta - 0.8\textbar{} \textgreater{}= 1e-09" in text


def test_a_counterexample_in_latex_has_powers_of_ten_and_escaped_names():
    text = check_calibration(FunctionLoss(mae, title="my_loss, 50% {x}"), 2, 0.2).latex()
    assert r"The loss my\_loss, 50\% \{x\} with $K = 2$" in text
    assert r"\cdot 10^{-" in text


@pytest.mark.parametrize("case", some_slow({case.name: case for case in CASES}, quick=("brier", "crammer-singer")))
def test_the_operations_of_a_loss_are_written_out_with_its_values(case):
    case = next(each for each in CASES if each.name == case)
    loss = FunctionLoss(case.loss, case.rule, case.outputs)
    cost = case.cost if np.ndim(case.cost) == 0 else torch.as_tensor(case.cost)
    y, n_outputs = torch.arange(case.classes), loss.n_outputs(case.classes)
    scores, others = torch.randn(2, case.classes, n_outputs, dtype=torch.float64)
    names = {
        "torch": torch,
        "inf": torch.inf,
        "nan": torch.nan,
        "device": torch.device,
        "SimpleNamespace": SimpleNamespace,
    }
    exec("def losses(s_1, y_1):\n" + operations(lambda s, y: loss.forward(s, y, cost), scores, y), names)
    assert torch.equal(names["losses"](others, y), loss.forward(others, y, cost))


def test_a_loss_with_a_branch_on_values_has_no_script():
    def branching(scores, y):
        return mae(scores, y, 0.2) if float(scores.detach().abs().max()) < 1e9 else scores[:, 0]

    with pytest.raises(InputError, match="more than torch operations"):
        check_calibration(branching, 2, 0.2).script()


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["apc+log", "gamblers", ce, brier, crammer_singer])
def test_the_script_checks_a_counterexample_without_demur(loss, tmp_path):
    own = chow_on(lambda s: softmax(1.1 * s)) if callable(loss) else None
    report = check_calibration(loss, 3, 0.2, rule=own)
    assert r"\eta" in report.latex()
    (tmp_path / "proof.py").write_text(report.script())
    assert "demur" not in report.script().replace(report.headline, "")
    done = subprocess.run([sys.executable, tmp_path / "proof.py"], capture_output=True, text=True, check=False)
    assert "is confirmed" in done.stdout, done.stderr
