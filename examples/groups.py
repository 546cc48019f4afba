"""A guarantee for all answers together, and one that holds at every site."""

import numpy as np

from demur import RiskControl

rng = np.random.default_rng(0)


def rows(n):
    site, y = rng.choice(["north", "south"], n), rng.integers(2, size=n)
    x = 2 * y - 1 + rng.normal(size=n) * np.where(site == "south", 1.15, 0.6)  # the south has an older machine
    p = 1 / (1 + np.exp(-2 * x))
    return np.column_stack([1 - p, p]), y, site


proba, y, site = rows(4000)
new_proba, new_y, new_site = rows(20_000)
for words, rule in {"all": RiskControl(0.05), "each site": RiskControl(0.05, groups=site)}.items():
    decision = rule.fit(proba, y).decide(new_proba)
    for name in ("north", "south"):
        own = (new_site == name) & ~decision.reject
        wrong = (decision.label[own] != new_y[own]).mean()
        print(f"guaranteed for {words}: {name} answers {own.sum() / (new_site == name).sum():.1%}, {wrong:.1%} wrong")
