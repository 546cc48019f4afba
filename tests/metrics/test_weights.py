"""Weights: no figure depends on their scale."""

import numpy as np
import pytest

from demur.metrics import (
    CostCurve,
    RiskCoverage,
    accepted_accuracy,
    confusion_matrix,
    coverage,
    precision_recall_f1,
    rejection_rate,
    zero_one_c_risk,
)

RNG = np.random.default_rng(0)
N = 60
TRUE = RNG.integers(3, size=N)
PROBA = RNG.dirichlet(np.ones(3), size=N)
CONFIDENCE = PROBA.max(axis=1)
REJECT = CONFIDENCE < 0.5
PRED = np.where(REJECT, -1, PROBA.argmax(axis=1))
WRONG = PROBA.argmax(axis=1) != TRUE
WEIGHTS = RNG.integers(1, 5, size=N).astype(float)


def scores(weights):
    return precision_recall_f1(TRUE, PRED, sample_weight=weights)


SCALE_FREE = {
    "zero_one_c_risk": lambda w: zero_one_c_risk(TRUE, PRED, cost=0.2, sample_weight=w),
    "coverage": lambda w: coverage(PRED, sample_weight=w),
    "rejection_rate": lambda w: rejection_rate(PRED, sample_weight=w),
    "accepted_accuracy": lambda w: accepted_accuracy(TRUE, PRED, sample_weight=w),
    "confusion_matrix": lambda w: confusion_matrix(TRUE, PRED, normalize="all", sample_weight=w),
    "precision_recall_f1": lambda w: [scores(w).precision, scores(w).recall, scores(w).f1, scores(w).coverage],
    "augrc": lambda w: RiskCoverage.from_confidence(CONFIDENCE, WRONG, w).augrc,
    "augrc of any loss": lambda w: RiskCoverage.from_confidence(CONFIDENCE, TRUE / 2, w).augrc,
    "risk curve": lambda w: RiskCoverage.from_confidence(CONFIDENCE, WRONG, w).risk,
    "cost curve": lambda w: CostCurve.from_proba(PROBA, TRUE, sample_weight=w).risk_at([0.1, 0.3]),
    "mean risk": lambda w: CostCurve.from_proba(PROBA, TRUE, sample_weight=w).mean_risk(),
}


@pytest.mark.parametrize("scale", [1e20, 1e-20])
@pytest.mark.parametrize("name", SCALE_FREE)
def test_no_figure_depends_on_the_scale_of_the_weights(name, scale):
    np.testing.assert_allclose(SCALE_FREE[name](WEIGHTS * scale), SCALE_FREE[name](WEIGHTS), rtol=1e-12, atol=1e-14)
