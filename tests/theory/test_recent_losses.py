"""The recent objectives of ``examples/recent_rejection_losses.py`` have the verdicts that the docs state."""

from pathlib import Path

import numpy as np
import pytest

from demur.losses.registry import load_object
from demur.metrics import RiskCoverage
from demur.theory import LossContractError, check_calibration

FILE = Path(__file__).parents[2] / "examples" / "recent_rejection_losses.py"


def check(name, rule=None, n_classes=3, outputs=None):
    made = None if rule is None else load_object(f"{FILE}:{rule}")
    return check_calibration(f"{FILE}:{name}", n_classes, 0.2, rule=made, outputs=outputs)


@pytest.mark.slow
def test_the_verdicts_are_those_of_the_docs():
    for kind in ("kl", "alpha"):
        assert check("cross_entropy", f"{kind}_of_zero_one_loss").calibrated
        assert check("cross_entropy", f"{kind}_of_log_loss", n_classes=2).calibrated
        report = check("cross_entropy", f"{kind}_of_log_loss")
        assert (report.verdict, report.fails) == ("refuted", {"false_reject"})
        assert report.counterexample == pytest.approx([0.85, 0.1125, 0.0375])
    report = check("aurc_with_a_fixed_weight")
    assert (report.verdict, report.fails) == ("refuted", {"false_reject"})
    assert check("regression_of_mistakes", "too_uncertain", n_classes=2, outputs=3).calibrated
    assert not check("regression_of_mistakes", "too_uncertain", outputs=4).refuted
    for name in ("aurc", "sele"):
        with pytest.raises(LossContractError, match="depends on the other rows"):
            check(name)


def test_sele_with_ties_halved_is_the_area_under_the_generalised_risk_coverage_curve():
    """SELE is the mean over pairs (i, j) of loss i where row i is at most as uncertain as row j."""
    rng = np.random.default_rng(0)
    uncertainty, mistake = rng.integers(0, 20, 60) / 20, rng.integers(0, 2, 60)
    below = uncertainty[:, None] < uncertainty
    tied = uncertainty[:, None] == uncertainty
    sele = float((mistake[:, None] * (below + 0.5 * tied)).mean())
    assert RiskCoverage.from_confidence(-uncertainty, mistake).augrc == pytest.approx(sele, abs=1e-12)
