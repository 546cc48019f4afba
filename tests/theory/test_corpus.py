"""The corpus: no wrong verdict, and every refutation minimised again by code that the checker does not use."""

import warnings

import numpy as np
import pytest
import torch
from corpus import CALIBRATED, CASES, INCONCLUSIVE, REFUTED
from scipy.optimize import minimize

from demur.theory import FunctionLoss, RuleWarning, check_calibration

ALL = [pytest.param(case, id=case.name, marks=[] if case.quick else [pytest.mark.slow]) for case in CASES]


def check(case):
    loss = FunctionLoss(case.loss, case.rule, case.outputs, title=case.name, differentiable=case.smooth)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuleWarning)
        return check_calibration(loss, case.classes, case.cost)


def costs_of(case):
    """The cost matrix of a case, true class by answer, rejecting last."""
    if np.ndim(case.cost) == 2:
        return case.cost
    return np.c_[1 - np.eye(case.classes), np.broadcast_to(case.cost, case.classes)]


def risk_of(case, eta, scores):
    """The pointwise risk, by summing the loss over the classes."""
    cost = case.cost if np.ndim(case.cost) == 0 else torch.from_numpy(np.asarray(case.cost))
    rows = torch.from_numpy(np.asarray(scores, dtype=np.float64)).repeat(case.classes, 1)
    values = case.loss(rows, torch.arange(case.classes), cost)
    return sum(p * float(v) for p, v in zip(eta, values, strict=True) if p > 0)


def decision_of(case, scores):
    """What the rule does with scores: a class, or the number of classes for rejecting."""
    row = torch.from_numpy(np.asarray(scores, dtype=np.float64))[None]
    if case.rule == "softmax":
        expected = torch.softmax(row, -1).numpy()[0] @ costs_of(case)
        return int(expected[::-1].argmin() * -1 + case.classes)  # ties reject
    if case.rule == "rejector":
        return int(row[0, :-1].argmax()) if row[0, -1] > 0 else case.classes
    cost = case.cost if np.ndim(case.cost) == 0 else torch.from_numpy(np.asarray(case.cost))
    label, reject = case.rule(row, cost)
    return case.classes if bool(reject[0]) else int(label[0])


def least_right_risk(case, eta, right, around):
    """The least risk of scores that decide rightly: free descents that end there, and descents barred from leaving."""
    rng = np.random.default_rng(7)
    starts = [scale * rng.normal(size=len(around)) for scale in (1.0, 3.0, 10.0, 30.0) for _ in range(12)]
    starts += [around + rng.normal(size=len(around)) for _ in range(12)]
    starts += [size * row for size in (3.0, 30.0, 300.0) for row in np.eye(len(around))]
    found = [np.inf]

    def barred(scores):
        value = risk_of(case, eta, scores) if decision_of(case, scores) == right else np.inf
        return value if np.isfinite(value) else 1e300

    inside = sorted((s for s in starts if decision_of(case, s) == right), key=barred)
    found += [minimize(barred, start, method="Nelder-Mead", options={"maxfev": 300}).fun for start in inside[:3]]
    for start in starts[::12]:
        free = minimize(lambda s: risk_of(case, eta, s), start, method="BFGS", options={"maxiter": 30})
        if decision_of(case, free.x) == right:
            found.append(risk_of(case, eta, free.x))
    return min(found)


def assert_it_stands(case, witness):
    expected = witness.eta @ costs_of(case)
    right, taken = int(expected.argmin()), decision_of(case, witness.scores)
    assert expected[taken] > expected[right] + 1e-8
    assert witness.gap > witness.error > 0
    risk = risk_of(case, witness.eta, witness.scores)
    assert risk == pytest.approx(witness.least_risk, rel=1e-9, abs=1e-300)
    least = least_right_risk(case, witness.eta, right, witness.scores)
    assert least > risk
    assert least >= witness.chow_least_risk - witness.error


@pytest.mark.parametrize("case", ALL)
def test_every_verdict_of_the_corpus_is_right(case):
    report = check(case)
    assert report.verdict == case.verdict, str(report)
    assert report.refuted == bool(report.witnesses) == bool(report.fails)
    if case.name == "constant":
        assert (report.witness.gap, report.witness.taken_risk > report.witness.chow_risk) == (0.0, True)
        return
    assert bool(report.would_settle) == (report.verdict == INCONCLUSIVE)
    for witness in report.witnesses[: case.quick or CASES.index(case) % 4 == 0]:  # minimising again takes longest
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # BFGS on a function with kinks complains
            assert_it_stands(case, witness)


def test_the_corpus_is_large_and_names_what_stays_open():
    counts = {
        verdict: sum(case.verdict == verdict for case in CASES) for verdict in (CALIBRATED, REFUTED, INCONCLUSIVE)
    }
    assert sum(counts.values()) == len(CASES) == len({case.name for case in CASES})
    assert len(CASES) >= 200
    assert counts[CALIBRATED] >= 80
    assert counts[REFUTED] >= 80
    assert counts[INCONCLUSIVE] <= 9
