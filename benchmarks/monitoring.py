"""How often the monitor raises a false alarm, how late a true one, and how late and how often other tests do.

Run it with ``python -m benchmarks monitoring`` (1,000 runs of 100,000 rows, twenty minutes on one core), or with
``--runs 100 --rows 10000`` for a first look. The rivals: a binomial test on windows of a fixed size, corrected for the
number of windows in 100,000 rows and not, and a lower confidence sequence for the mean risk by predictable plug-in
empirical Bernstein bounds (Waudby-Smith and Ramdas 2024), as Podkopaev and Ramdas (2022) track the risk of a deployed
model.
"""

import argparse
from collections.abc import Sequence
from time import perf_counter

import numpy as np
from scipy.stats import binom

from demur.deploy.monitoring import DriftBets, RiskBets, risk_sequence

DELTA, MAX_RISK, N_REFERENCE = 0.05, 0.05, 500
KINDS = {
    "rejected share": np.array([0.85, 0.15]),
    "confidence": binom.pmf(np.arange(66), 65, 0.7),
    "class mix": np.array([0.4, 0.3, 0.15, 0.1, 0.05]),
}


def draw_kinds(shares: np.ndarray, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    return np.searchsorted(np.cumsum(shares)[:-1], rng.uniform(size=shape), side="right")


def first_alarms(shares, later, n_runs, n_rows, change, level, rng) -> np.ndarray:
    """Return the row of each run's alarm, n_rows where there is none; ``later`` replaces ``shares`` from a row on."""
    reference = draw_kinds(shares, (n_runs, N_REFERENCE), rng)
    counts = (reference[..., None] == np.arange(len(shares))).sum(axis=1)
    bets, alarm = DriftBets(counts), np.full(n_runs, n_rows)
    for start in range(0, n_rows, 25):
        kinds = draw_kinds(shares if start < change else later, (n_runs, 25), rng)
        high = bets.bet(kinds, rng.uniform(size=kinds.shape)) >= np.log(1 / level)
        found = high.any(axis=1) & (alarm == n_rows)
        alarm[found] = start + high[found].argmax(axis=1)
        if change < n_rows and (alarm < n_rows).all():
            break
    return alarm


class Bernstein:
    """A lower bound of the mean risk, all runs at once: alarm where it exceeds the allowed one."""

    def __init__(self, n_runs: int) -> None:
        self.n, self.total, self.spread = 0, np.full(n_runs, 0.5), np.full(n_runs, 0.25)
        self.weighted, self.weights, self.cost = np.zeros(n_runs), np.zeros(n_runs), np.zeros(n_runs)

    def lower(self, x: np.ndarray) -> np.ndarray:
        t = self.n + 1
        mean, variance = self.total / t, self.spread / t
        bet = np.minimum(np.sqrt(2 * np.log(1 / DELTA) / (variance * t * np.log(1 + t))), 0.5)
        self.weighted += bet * x
        self.weights += bet
        self.cost += (x - mean) ** 2 * (-np.log1p(-bet) - bet)
        self.n, self.total = t, self.total + x
        self.spread += (x - self.total / (t + 1)) ** 2
        return (self.weighted - np.log(1 / DELTA) - self.cost) / self.weights


def risk_alarms(change: int, worse: float, n_runs: int, n_rows: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the audited row of each run's alarm by each test; ``worse`` multiplies the risk from a row on."""
    windows = (250, 1000)
    bets, bernstein = RiskBets(np.full((n_runs, 1), MAX_RISK)), Bernstein(n_runs)
    alarms = {name: np.full(n_runs, n_rows) for name in ("demur", "demur, delta / 2", "empirical Bernstein")}
    sums = {w: np.zeros(n_runs) for w in windows}
    limits = {}
    for w in windows:
        for name, level in ((f"window of {w}", DELTA / (100_000 // w)), (f"window of {w}, naive", DELTA)):
            alarms[name] = np.full(n_runs, n_rows)
            limits[name] = (w, binom.isf(level, w, MAX_RISK))
    for row in range(n_rows):
        wrong = rng.uniform(size=n_runs) < MAX_RISK * (worse if row >= change else 1)
        capital = bets.bet(wrong[:, None])[:, 0]
        raised = {
            "demur": capital >= np.log(1 / DELTA),
            "demur, delta / 2": capital >= np.log(2 / DELTA),
            "empirical Bernstein": bernstein.lower(wrong) > MAX_RISK,
        }
        for w in windows:
            sums[w] += wrong
        for name, (w, limit) in limits.items():
            raised[name] = (sums[w] > limit) & ((row + 1) % w == 0)
        for w in windows:
            if (row + 1) % w == 0:
                sums[w][:] = 0
        for name, now in raised.items():
            # in a run with a change an alarm before it is left out, and the test goes on
            alarms[name] = np.where(now & (alarms[name] == n_rows) & (row >= change or worse == 1), row, alarms[name])
        if worse > 1 and all((found < n_rows).all() for found in alarms.values()):
            break
    return alarms


def against_mapie(change: int, n_runs: int, n_rows: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return how late demur and MAPIE's risk monitoring raise their alarm on the same streams; both at level delta.

    MAPIE halves its level between the reference and the stream. The threshold is given here, as it is to demur, so that
    it gets twice the level and spends all of delta on the stream. It looks once at each stream, whose bounds it keeps.
    """
    from mapie.exchangeability_testing import RiskMonitoring

    wrong = rng.uniform(size=(n_runs, n_rows)) < np.where(np.arange(n_rows) >= change, 2 * MAX_RISK, MAX_RISK)
    capital = RiskBets(np.full((n_runs, 1), MAX_RISK)).bet(wrong)
    raised = {"demur": capital >= np.log(1 / DELTA), "demur, delta / 2": capital >= np.log(2 / DELTA)}
    bounds = []
    for run in wrong:
        watch = RiskMonitoring("accuracy", test_level=2 * DELTA, threshold=MAX_RISK, warn=False)
        watch.update(np.ones(n_rows, dtype=int), np.where(run, 0, 1))
        bounds.append(watch.online_risk_lower_bound_sequence_history)
    raised["MAPIE"] = np.array(bounds) > MAX_RISK
    late = {name: now[:, change:] for name, now in raised.items()}
    return {name: np.where(now.any(axis=1), now.argmax(axis=1) + 1, n_rows) for name, now in late.items()}


def misses(n_runs: int, n_rows: int, rng: np.random.Generator) -> float:
    """Return the share of runs whose confidence sequence ever misses the mean risk, which drifts up and down."""
    missed, wrong, total = np.zeros(n_runs, dtype=bool), np.zeros(n_runs), 0.0
    for row in range(1, n_rows + 1):
        risk = MAX_RISK * (1 + np.sin(row / 1000))
        total += risk
        wrong += rng.uniform(size=n_runs) < risk
        if row < 20 or row % max(row // 5, 1) == 0:
            found = [risk_sequence(one, row, DELTA) for one in wrong.tolist()]
            missed |= np.array([not one.low <= total / row <= one.high for one in found])
    return float(missed.mean())


def main(arguments: Sequence[str] = ()) -> None:
    """Print false alarms, delays, and how often the confidence sequence misses."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks monitoring", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--only", choices=("drift", "risk", "mapie"), help="a part of it; mapie needs that package")
    asked = parser.parse_args(list(arguments))
    n_runs, n_rows, rng = asked.runs, asked.rows, np.random.default_rng(0)
    start = perf_counter()
    if asked.only in (None, "drift"):
        print(f"\nDrift: {n_runs:,} runs of {n_rows:,} rows, {N_REFERENCE} reference rows; each check at {DELTA} alone")
        for name, shares in KINDS.items():
            false = (first_alarms(shares, shares, n_runs, n_rows, n_rows, DELTA, rng) < n_rows).mean()
            print(f"{name:>16}: false alarms in {false:.3f} of the runs", flush=True)
        fewer = min(n_runs, 100)
        more = {
            "rejected share": np.array([0.7, 0.3]),
            "confidence": binom.pmf(np.arange(66), 65, 0.65),
            "class mix": np.array([0.3, 0.3, 0.15, 0.1, 0.15]),
        }
        for name, shares in KINDS.items():
            delays = []
            for change in (0, 1000, 10_000):
                alarm = first_alarms(shares, more[name], fewer, change + 5000, change, DELTA / 6, rng)
                delays.append(f"{np.median(alarm[alarm >= change] - change + 1):,.0f} after {change:,}")
            print(f"{name:>16}: median delay in rows, at delta / 6: {', '.join(delays)}", flush=True)
    if asked.only == "mapie":
        for change in (0, 1000, 10_000):
            print(f"the risk doubles after {change:,} audited rows; median delay, and that of nine in ten")
            for name, late in against_mapie(change, 100, change + 12_000, rng).items():
                print(f"{name:>28}: {np.median(late):>8,.0f} {np.quantile(late, 0.9):>8,.0f}", flush=True)
    elif asked.only in (None, "risk"):
        print(f"\nRisk: {n_runs:,} runs of {n_rows:,} audited rows, allowed {MAX_RISK}")
        for name, alarm in risk_alarms(0, 1, n_runs, n_rows, rng).items():
            print(f"{name:>28}: false alarms in {(alarm < n_rows).mean():.3f} of the runs", flush=True)
        for change in (0, 1000, 10_000):
            print(f"the risk doubles after {change:,} audited rows; median delay, and that of nine in ten")
            for name, alarm in risk_alarms(change, 2, min(n_runs, 200), change + 40_000, rng).items():
                late = alarm - change + 1
                print(f"{name:>28}: {np.median(late):>8,.0f} {np.quantile(late, 0.9):>8,.0f}", flush=True)
        print(f"confidence sequence misses in {misses(n_runs, n_rows, rng):.3f} of the runs (allowed {DELTA})")
    print(f"{perf_counter() - start:,.0f} s")


if __name__ == "__main__":
    main()
