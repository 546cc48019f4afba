"""Evaluations to report on."""

from functools import cache

import numpy as np

from demur import Chow, CostMatrix, Decision
from demur.tabular import Evaluation

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</script><script>alert(3)</script>",
    "]]><!-- {{ 7 * 7 }} \u2028 & \u202e \x00 \ud800",
    "' onmouseover='alert(4)",
    "x" * 300,
)


@cache  # the bootstrap of an evaluation is kept with it
def free(n_rows=600, classes=("ant", "bee", "cow", "doe"), cost=0.2, unknown=(), seed=0, sharpness=0.4):
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.full(len(classes), sharpness), size=n_rows)
    drawn = (proba.cumsum(axis=1) > rng.uniform(size=(n_rows, 1))).argmax(axis=1)
    y = [classes[code] for code in drawn]
    for row in unknown:
        y[row] = "none of these"
    # Some rows lie exactly on the border of a cost of the grid: ties, which reject.
    proba[:20] = np.eye(len(classes))[0] * 0.75 + np.eye(len(classes))[1] * 0.25
    return Evaluation.of(
        y, Chow(cost).decide(proba), classes=list(classes), cost=cost, proba=proba, cost_adjustable=True,
        rows={"<b>age</b>": np.arange(n_rows), "note": ["<img src=x onerror=alert(5)>"] * n_rows},
    )  # fmt: skip


@cache
def fixed():
    rng = np.random.default_rng(0)
    acceptance = rng.normal(0.5, 1, size=300)
    label = rng.integers(3, size=300)
    y = np.where(rng.uniform(size=300) < 0.8, label, (label + 1) % 3)
    return Evaluation.of(y, Decision.from_acceptance(label, acceptance), classes=[0, 1, 2], cost=0.15)


@cache
def by_matrix(n_rows=300):
    """Missing a disease is ten times worse than a false alarm, and asking costs 0.3."""
    rng = np.random.default_rng(0)
    sick = rng.beta(0.6, 1.2, size=n_rows)
    proba = np.column_stack([1 - sick, sick])
    y = np.where(rng.uniform(size=n_rows) < sick, "sick", "well")
    rule = CostMatrix([[0, 1, 0.3], [10, 0, 0.3]])
    return Evaluation.of(
        y, rule.decide(proba), classes=["well", "sick"], proba=proba, explanation=rule.explain(), rule=rule
    )
