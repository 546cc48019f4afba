"""Coverage, width and time of the 95 % intervals of risk, coverage, accuracy and areas.

Run it with ``python -m benchmarks intervals``. The suite holds a smaller version of the first table to 93 %.
"""

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from demur.metrics import area_intervals, proportion_interval, risk_interval
from demur.metrics.intervals import ranked_areas

SIZES, RATES, N_DRAWS = (10, 20, 100, 1000), (0, 0.01, 0.1, 0.5), 2000
COST, REJECTED = 0.2, 0.3


def share_covered(low, high, truth):
    defined = ~np.isnan(low)
    return float(np.mean((low <= truth + 1e-9)[defined] & (truth - 1e-9 <= high)[defined]))


def covered(n: int, rate: float, rng: np.random.Generator) -> dict[str, float]:
    """Return the share of draws in which each interval contains the truth; ``rate`` is the error rate."""
    draws = rng.multinomial(n, [(1 - rate) * (1 - REJECTED), REJECTED, rate * (1 - REJECTED)], size=N_DRAWS)
    risk = risk_interval(draws[:, 2], draws[:, 1], n, COST)
    answered = draws[:, 0] + draws[:, 2]
    coverage, accuracy = proportion_interval(answered, n), proportion_interval(draws[:, 0], answered)
    ranks = np.sort(rng.uniform(size=(N_DRAWS, n)), axis=1)
    found = {
        "risk": share_covered(risk.low, risk.high, rate * (1 - REJECTED) + COST * REJECTED),
        "coverage": share_covered(coverage.low, coverage.high, 1 - REJECTED),
        "accuracy": share_covered(accuracy.low, accuracy.high, 1 - rate),
    }
    populations = {
        "aurc, no order": (np.full_like(ranks, rate), rate),
        "aurc, some order": (2 * rate * ranks, rate / 2),
        "aurc, worst order": ((ranks < rate) * 1.0, rate - rate * np.log(rate) if rate else 0.0),
    }
    for name, (error, truth) in populations.items():
        wrong = (rng.uniform(size=ranks.shape) < error).astype(float)
        found[name] = share_covered(*ranked_areas(wrong, np.arange(n), 0.025)["aurc"][1:], truth)
    return found


def main(arguments: Sequence[str] = ()) -> None:
    """Print the coverage by size and error rate, and the time for 100,000 rows."""
    rng = np.random.default_rng(0)
    for n in SIZES:
        for rate in RATES:
            found = covered(n, rate, rng)
            if (n, rate) == (SIZES[0], RATES[0]):
                print(f"{'rows':>6}{'wrong':>7}" + "".join(f"{name:>19}" for name in found))
            print(f"{n:>6}{rate:>7}" + "".join(f"{share:>19.3f}" for share in found.values()))
    confidence = rng.uniform(size=100_000)
    wrong = rng.uniform(size=100_000) > confidence
    for name, call in {
        "risk of 100,000 rows": lambda: risk_interval(10_000, 20_000, 100_000, 0.2),
        "risk of 100,000 rows at 200 costs": lambda: risk_interval(10_000, 20_000, 100_000, np.arange(200) / 400),
        "three areas of 100,000 rows": lambda: area_intervals(confidence, wrong),
    }.items():
        times = []
        for _ in range(5):
            start = perf_counter()
            call()
            times.append(perf_counter() - start)
        print(f"{name}: {1000 * min(times):.2f} ms")


if __name__ == "__main__":
    main()
