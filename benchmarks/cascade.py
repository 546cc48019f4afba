"""What a cascade spends on new rows, as a multiple of its budget, in the mean over fits.

Three simulated services answer five classes. With ``--data`` (the folder ``deferral``), the stored answers of
FrugalML's services are used as well. Budgets lie at five places between the cheapest and the dearest policy.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from demur import Cascade

_PLACES = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
_SETS = ("ferplus", "yelp", "audiomnist")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks cascade", description=__doc__)
    parser.add_argument("--fits", type=int, default=30, help="fits of each set of services (default: 30)")
    parser.add_argument("--rows", type=int, default=1000, help="rows to fit on (default: 1000)")
    parser.add_argument("--data", type=Path, help="folder with frugal_*.csv.gz")
    given = parser.parse_args(arguments)
    for name in ("simulated", *(_SETS if given.data else ())):
        found = []
        for seed in range(given.fits):
            prices, answers, confidence, y = _simulated(seed) if name == "simulated" else _stored(given.data, name)
            order = np.random.default_rng(seed).permutation(len(y))
            train, test = order[: given.rows], order[given.rows :]
            cascade = Cascade(prices).fit(answers[train], confidence[train], y[train])
            least, most = (cascade.policies_[end].cost for end in (0, -1))
            budgets = least + _PLACES * (most - least)
            runs = [cascade.run(answers[test], confidence[test], budget=budget) for budget in budgets]
            found.append([run.spent.mean() / budget for run, budget in zip(runs, budgets, strict=True)])
        ratios = np.array(found)
        error = ratios.mean(axis=1).std(ddof=1) / np.sqrt(len(ratios)) if len(ratios) > 1 else np.nan
        print(f"{name:>10}: {ratios.mean():.4f} +- {error:.4f}; by budget {ratios.mean(axis=0).round(3)}", flush=True)


def _simulated(seed: int, n_rows: int = 20_000) -> tuple[dict[str, float], Any, Any, Any]:
    """Return prices, answers, confidences and labels of services of growing skill, which err on the same hard rows."""
    rng = np.random.default_rng(seed)
    y, hard = rng.integers(0, 5, n_rows), rng.random((n_rows, 1))
    skill = np.array([0.6, 0.75, 0.9]) + 0.5 * (0.5 - hard) + 0.1 * rng.standard_normal((n_rows, 3))
    skill = np.clip(skill, 0.05, 0.99)
    answers = np.where(rng.random((n_rows, 3)) < skill, y[:, None], rng.integers(0, 5, (n_rows, 3)))
    confidence = np.clip(skill + 0.05 * rng.standard_normal((n_rows, 3)), 0, 1)
    return {"small": 1.0, "medium": 3.0, "large": 10.0}, answers, confidence, y


def _stored(folder: Path, name: str) -> tuple[dict[str, float], Any, Any, Any]:
    services = pd.read_csv(folder / "frugal_services.csv.gz").query("set == @name").set_index("service")
    price = next(column for column in services if "price" in column or "usd" in column)
    rows, names = pd.read_csv(folder / f"frugal_{name}.csv.gz"), services.index.tolist()
    answers, confidence = (rows[[f"{one}_{kind}" for one in names]].to_numpy() for kind in ("pred", "conf"))
    return services[price].to_dict(), answers, confidence.astype(float), rows["label"].to_numpy()
