"""Every 95 % interval that an evaluation prints holds the true figure in 93 % of samples or more, at the extremes too.

Confidences are uniform, the least confident fifth is declined, and an answer is wrong with a probability that is the
same for every row, or grows with its rank; so every figure is known.
"""

from collections import Counter

import numpy as np
import pytest

from demur import CostMatrix, Decision
from demur.tabular import Evaluation

COST, DECLINED, COSTS = 0.2, 0.2, np.array([[0, 1, 0.3], [4, 0, 0.3]])
SIZES, RATES = (10, 20, 100, 1000), (0.0, 0.01, 0.1, 0.5)


def draw(rng, n_rows, rate, depends):
    """Return an evaluation of fresh rows: rank u, 0 for the surest, is wrong with probability rate or 2 u rate."""
    u = rng.uniform(size=n_rows)
    wrong = rng.uniform(size=n_rows) < (2 * rate * u if depends else rate)
    label = rng.integers(2, size=n_rows)
    confidence = 1 - u / 2
    proba = np.where(label[:, None] == np.arange(2), confidence[:, None], 1 - confidence[:, None])
    decision = Decision.from_acceptance(label, 1 - DECLINED - u, confidence)
    y = np.where(wrong, 1 - label, label)
    return Evaluation.of(y, decision, classes=[0, 1], cost=COST, proba=proba, rule=CostMatrix(COSTS))


def truth(rate, depends):
    answered = 1 - DECLINED
    wrong = rate * (answered**2 if depends else answered)
    shares = {
        "rejection_rate": DECLINED,
        "accepted_accuracy": 1 - wrong / answered,
        "precision": 1 - wrong / answered,
        "recall": answered - wrong,
    }
    bins = np.arange(5, 10)  # of width 0.1 in the confidence, 0.2 in u
    in_bins = 1 - (2 * rate * (1.9 - bins / 5) if depends else np.full(5, rate))
    aurc = rate / 2 if depends else rate
    figures = {
        "risk": wrong + COST * DECLINED,
        "coverage": answered,
        "accepted_accuracy": 1 - wrong / answered,
        "risk_if_all_answered": rate,
        "mean_cost": 0.3 * DECLINED + 2.5 * wrong,
        "aurc": aurc,
        "aurc_ranked": aurc,
        "augrc": rate / 3 if depends else rate / 2,
    }
    return figures, shares, dict(zip(bins.tolist(), in_bins.tolist(), strict=True))


def misses(n_rows, rate, depends, n_draws):
    """Count, for every figure, how many intervals were printed and how many missed the truth."""
    rng = np.random.default_rng([n_rows, int(100 * rate), depends])
    figures, shares, in_bins = truth(rate, depends)
    printed, missed = Counter(), Counter()

    def look(name, low, high, true):
        if low == low:
            printed[name] += 1
            missed[name] += not (low - 1e-12 <= true <= high + 1e-12)

    for _ in range(n_draws):
        result = draw(rng, n_rows, rate, depends)
        for name, true in figures.items():
            look(name, result.figures[name].low, result.figures[name].high, true)
        for one in result.by_class:
            for name, found in one.intervals.items():
                look(f"{name} of a class", found.low, found.high, shares[name])
        low, high = result.reliability.accuracy.low, result.reliability.accuracy.high
        for k, true in in_bins.items():
            look("accuracy of a bin", low[k], high[k], true)
    return {name: (missed[name], printed[name]) for name in printed}


def check(n_rows, rate, depends, n_draws, slack):
    for name, (missed, printed) in misses(n_rows, rate, depends, n_draws).items():
        assert missed <= 0.07 * printed + slack, (name, n_rows, rate, depends, missed, printed)


@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize("n_rows", [10, 100])
def test_every_printed_interval_covers(n_rows, rate):
    """Few draws, so that a few more misses than 7 % are no surprise; many draws are taken below."""
    for depends in sorted({False, rate > 0}):
        check(n_rows, rate, depends, n_draws=40, slack=4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "depends"), [(rate, depends) for rate in RATES for depends in sorted({False, rate > 0})]
)
@pytest.mark.parametrize("n_rows", SIZES)
def test_every_printed_interval_covers_in_many_draws(n_rows, rate, depends):
    """It holds for 2,000 draws too, which take three minutes."""
    check(n_rows, rate, depends, n_draws=500, slack=0)


def test_no_interval_collapses():
    """20 of 20 right: 83.2 % to 100 %, exactly."""
    proba = np.tile([0.9, 0.1], (20, 1))
    decision = Decision.from_acceptance(np.zeros(20, dtype=int), np.ones(20), proba[:, 0])
    result = Evaluation.of(np.zeros(20, dtype=int), decision, classes=[0, 1], cost=0.2, proba=proba)
    for name in ("coverage", "accepted_accuracy"):
        assert result.figures[name].low == pytest.approx(0.025 ** (1 / 20))
        assert result.figures[name].high == 1
    assert all(found.low < found.high for found in result.figures.values())
    assert result.to_json()["by_class"][0]["intervals"]["recall"]["low"] == pytest.approx(0.8316, abs=1e-4)
