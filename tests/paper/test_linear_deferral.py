"""The synthetic setting for deferral: its figures, and what trained systems reach of its optimum."""

import numpy as np
import pytest

from demur import DeferClassifier
from demur.deferral import available_joint, get_joint
from demur.errors import InputError

problems = pytest.importorskip("research.joint_deferral.linear_deferral", reason="research is not part of this copy")
LinearDeferral, make_linear_deferral = problems.LinearDeferral, problems.make_linear_deferral


@pytest.mark.parametrize(
    ("setting", "rho", "pair", "human"),
    [
        ({"errors": (0.0, 0.3, 0.0)}, 0.48, 1.0, 0.842),
        ({"n_features": 10, "errors": (0.1, 0.3, 0.2)}, 0.46, 0.9, 0.791),
    ],
)
def test_means_over_draws_are_those_of_another_implementation(setting, rho, pair, human):
    """Twenty draws each; means of rho differ by what 20 draws of a spread of about 0.17 differ by."""
    shares, bests, people = [], [], []
    for seed in range(20):
        problem = make_linear_deferral(**setting, seed=seed)
        X, y, said = problem.sample(4000, seed=100 + seed)
        shares.append(problem.needs_human(X).mean())
        bests.append(1 - problem.bayes_risk(X))
        people.append((said == y).mean())
        e_d, e_n, e_m = problem.errors
        expected = shares[-1] * (1 - e_d) + (1 - shares[-1]) * (1 - e_m / 2)
        assert bests[-1] == pytest.approx(expected, abs=1e-12)
        assert people[-1] == pytest.approx(shares[-1] * (1 - e_d) + (1 - shares[-1]) * (1 - e_n), abs=0.03)
    assert np.mean(shares) == pytest.approx(rho, abs=0.12)
    assert np.mean(bests) == pytest.approx(pair, abs=0.01)
    assert np.mean(people) == pytest.approx(human, abs=0.04)


def test_the_class_is_as_likely_as_it_says():
    problem = make_linear_deferral(5, errors=(0.1, 0.3, 0.2), seed=0)
    X, y, human = problem.sample(40_000, seed=1)
    side = problem.posterior(X)[:, 1]
    for value in np.unique(side):
        assert y[side == value].mean() == pytest.approx(value, abs=0.02)
    able = problem.human_accuracy(X)
    for value in np.unique(able):
        assert (human == y)[able == value].mean() == pytest.approx(value, abs=0.02)


def test_risk_of_decisions_by_hand():
    problem = LinearDeferral(np.array([1, 0, -0.5]), np.array([0, 1, -0.5]), errors=(0.1, 0.3, 0.2))
    X = [[0.9, 0.9], [0.1, 0.9], [0.1, 0.1]]
    assert problem.system_risk(X, [1, 1, 1], [-1, -1, -1]) == pytest.approx((0.5 + 0.1 + 0.9) / 3)
    assert problem.system_risk(X, [1, 1, 1], [0, 0, 0], price=0.05) == pytest.approx((0.15 + 0.35 + 0.35) / 3)
    assert problem.bayes_risk(X, price=0.45) == pytest.approx((0.5 + 0.1 + 0.1) / 3)


@pytest.mark.parametrize("arguments", [{"errors": (0, 2, 0)}, {"errors": (0, 0)}])
def test_refusals(arguments):
    with pytest.raises(InputError):
        make_linear_deferral(**arguments)
    with pytest.raises(InputError, match="must have shape"):
        make_linear_deferral(3, seed=0).posterior([[0.0, 1.0]])


@pytest.mark.slow
def test_consistent_joint_losses_reach_the_optimum_and_others_do_not():
    """Relative to the Bayes risk, exactly counted: within 3 % with 60,000 rows and two layers of 32, or 10 % above.

    The person is right with probability 0.6 where the class is a coin toss. The realizable family asks there only from
    a probability on that grows as q falls: 0.552 at q = 0.7, which this setting does not tell from 1, 0.619 at q = 0.3
    and 2/3 at q = 0.
    """
    problem = make_linear_deferral(2, errors=(0.4, 0.45, 0.4), seed=3)
    X, y, human = problem.sample(60_000, seed=0)
    new = problem.features(20_000, seed=1)
    best = problem.bayes_risk(new)
    lines, excess = [], {}
    for loss in [*map(get_joint, available_joint()), get_joint("rl2d", q=0.3)]:
        model = DeferClassifier(
            loss, {"person": 0.0}, hidden_units=(32, 32), epochs=10, batch_size=512, learning_rate=0.005,
            weight_decay=0.0, n_members=2, random_state=0,
        ).fit(X, y, answers=human)  # fmt: skip
        decision = model.decide(new)
        risk = problem.system_risk(new, decision.label, decision.ask)
        excess[loss] = risk / best - 1
        lines.append(f"{loss.name:10} risk {risk:.4f}  Bayes {best:.4f}  excess {excess[loss]:.1%}")
    print("\n".join(lines))
    for loss, share in excess.items():
        if loss.calibrated:
            assert share < 0.03, loss.name
        elif loss.name in ("rs", "rl2d-0.3"):
            assert share > 0.1, loss.name
