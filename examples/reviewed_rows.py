"""Fit again with reviewed rows: unweighted, and weighted for how the rows were selected."""

import numpy as np
import pyarrow as pa

from demur.tabular import evaluate_table, fit_table, refit_table

rng = np.random.default_rng(0)


def rows(n, shift=0.0):
    """Draw two classes that are not linearly separable: near a = 0 the effect of b has the opposite sign."""
    a, b = rng.normal(0, 2, n), rng.normal(shift, 1.5, n)
    logit = np.where(np.abs(a) < 0.5, -2 * b, 2 * a + b)
    y = rng.uniform(size=n) < 1 / (1 + np.exp(-logit))
    return pa.table({"a": a, "b": b, "y": np.where(y, "yes", "no")})


old, stream, test = rows(600), rows(4000, shift=2.0), rows(20_000, shift=2.0)
model = fit_table(old, "y", model="lr", cost=0.2)
declined = model.decide(stream).reject
audited = ~declined & (rng.uniform(size=4000) < 0.2)
reviewed = stream.filter(pa.array(declined | audited))

models = {
    "old": model,
    "reviewed rows as they are": fit_table(pa.concat_tables([old, reviewed]), "y", model="lr", cost=0.2),
    "corrected": refit_table(model, old, reviewed, audit=0.2).model,
}
for words, one in models.items():
    print(f"{words}: 100 rows cost {100 * evaluate_table(one, test).risk:.1f}")
