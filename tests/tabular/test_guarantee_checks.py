"""Guarantees compared with what is seen: kept, within chance or broken, and the chance is exact."""

import numpy as np
import pytest
from scipy.stats import binom

from demur import Coverage, RiskControl, Threshold
from demur.tabular import AnswerCounts, Evaluation
from demur.tabular.evaluation_figures import check_guarantee


def test_a_kept_guarantee_is_reported_with_numbers():
    kept = check_guarantee(RiskControl(0.3), AnswerCounts(500, 412, 110))
    assert kept.sentence.startswith("Guaranteed: at most 30.0 % of the answers wrong. Observed: 26.7 % of 412.")
    assert (kept.verdict, kept.chance) == ("kept", None)


def test_a_broken_guarantee_says_how_surprising_it_is():
    broken = check_guarantee(RiskControl(0.05), AnswerCounts(1000, 800, 283))
    assert broken.verdict == "broken"
    assert "if it held, as many wrong answers or more would come up in <0.1 % of such samples" in broken.sentence
    assert "may fail in 5.0 % of fits" in broken.sentence
    by_chance = check_guarantee(RiskControl(0.3), AnswerCounts(100, 100, 33))
    assert by_chance.verdict == "within chance"
    assert by_chance.chance == pytest.approx(sum(binom.pmf(k, 100, 0.3) for k in range(33, 101)))
    assert "in 28.9 % of such samples" in by_chance.sentence
    nothing = check_guarantee(RiskControl(0.3), AnswerCounts(100, 0, 0))
    assert (nothing.seen, nothing.verdict) == (None, "kept")
    assert "cannot confirm" in nothing.sentence


def test_a_valid_guarantee_is_seldom_called_broken_however_often_one_looks():
    """At the border of the guarantee, one look in a hundred at most calls it broken."""
    rng = np.random.default_rng(0)
    wrong = rng.binomial(200, 0.3, size=5000)
    verdicts = [check_guarantee(RiskControl(0.3), AnswerCounts(250, 200, int(k))).verdict for k in wrong]
    assert 0.003 < verdicts.count("broken") / 5000 <= 0.013


def test_coverage_counts_the_luck_of_both_samples():
    """The chance is that of a simulation: calibration rows and new rows drawn from one source."""
    rng = np.random.default_rng(0)
    few = 0
    for _ in range(4000):
        calibration, new = rng.uniform(size=100), rng.uniform(size=1000)
        threshold = np.sort(calibration)[::-1][90]  # 90 of 100 accepted
        few += (new > threshold).sum() <= 850
    rule = Coverage(0.9)
    rule.n_accepted_, rule.n_rows_ = 90, 100
    found = check_guarantee(rule, AnswerCounts(1000, 850, 0))
    assert found.chance == pytest.approx(few / 4000, abs=0.015)
    assert found.verdict == "within chance"
    assert check_guarantee(rule, AnswerCounts(1000, 500, 0)).verdict == "broken"


def test_the_guarantee_is_read_off_the_fitted_rule():
    rng = np.random.default_rng(0)
    largest = rng.uniform(0.5, 1, size=400)
    proba, y = np.column_stack([largest, 1 - largest]), (rng.uniform(size=400) > largest).astype(int)
    coverage = Coverage(0.9).fit(proba)
    result = Evaluation.of(y, coverage.decide(proba), classes=[0, 1], rule=coverage)
    assert result.guarantee_check.sentence == "Target: at least 90.0 % of the rows answered. Observed: 90.0 % of 400."
    assert result.to_json()["guarantee"]["verdict"] == "kept"
    assert check_guarantee(Threshold(0.5), result.counts) is None
    assert check_guarantee(None, result.counts) is None


def test_a_guarantee_about_one_answer_per_group_is_not_called_one_about_all_answers():
    rule = RiskControl(0.06)
    rule.per_cluster_ = True
    check = check_guarantee(rule, AnswerCounts(1000, 800, 166))
    assert "at most 6.0 % of the answers wrong, for one answer per group" in check.sentence
    assert "20.8 % of 800. The guarantee is not about this share" in check.sentence
    assert check.verdict == "not comparable"
