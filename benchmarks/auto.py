"""RejectOption("auto") or RejectClassifier() on the paper's data sets, beside the figures to beat.

The figures to beat are, cell by cell and in hindsight, the least of all models that were measured on the same splits:
pytabkit's RealMLP-TD and TabM, CatBoost, LightGBM with temperature, networks with one hidden layer, and the best single
scikit-learn model with temperature scaling; with --measure also RandomForest and HistGradientBoosting with temperature,
fitted here and now. Nothing in demur was tuned on the test rows of these data sets.

``--rivals`` and ``--busy`` measure on development sets instead: beside AutoGluon, CatBoost, LightGBM, RandomForest and
HistGradientBoosting, or on cores that other programs keep busy beside scikit-learn's models that finish in time.
"""

import argparse
import time
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

from benchmarks.auto_rivals import BUNDLED, SETS, compare
from demur import RejectClassifier, RejectOption
from demur.costs import PAPER_COSTS
from demur.datasets import load
from demur.metrics import zero_one_c_risk
from demur.rules import Chow

MEASURED = {
    "vehicle": {
        "scikit-learn": (0.035, 0.058, 0.097, 0.143, 0.166),
        "RealMLP-TD": (0.025, 0.044, 0.085, 0.123, 0.152),
        "TabM": (0.024, 0.060, 0.107, 0.158, 0.171),
        "CatBoost": (0.034, 0.056, 0.097, 0.148, 0.184),
        "LightGBM": (0.033, 0.054, 0.090, 0.160, 0.199),
    },
    "satimage": {
        "scikit-learn": (0.025, 0.040, 0.063, 0.077, 0.087),
        "RealMLP-TD": (0.022, 0.037, 0.054, 0.070, 0.080),
        "TabM": (0.024, 0.036, 0.056, 0.066, 0.075),
        "CatBoost": (0.020, 0.037, 0.060, 0.076, 0.083),
        "LightGBM": (0.024, 0.038, 0.059, 0.074, 0.085),
    },
    "yeast": {
        "one hidden layer": (0.051, 0.099, 0.188, 0.264, 0.326),
        "RealMLP-TD": (0.051, 0.099, 0.184, 0.261, 0.322),
        "TabM": (0.066, 0.122, 0.221, 0.302, 0.352),
        "CatBoost": (0.060, 0.122, 0.221, 0.305, 0.361),
    },
    "covtype": {
        "scikit-learn": (0.050, 0.095, 0.166, 0.211, 0.234),
        "RealMLP-TD": (0.056, 0.098, 0.158, 0.197, 0.220),
        "TabM": (0.061, 0.098, 0.151, 0.185, 0.206),
        "CatBoost": (0.051, 0.096, 0.167, 0.215, 0.244),
        "LightGBM": (0.050, 0.095, 0.167, 0.215, 0.246),
    },
    "letter": {
        "scikit-learn": (0.008, 0.013, 0.020, 0.023, 0.026),
        "RealMLP-TD": (0.0054, 0.0076, 0.0113, 0.0134, 0.0149),
        "TabM": (0.0065, 0.0096, 0.0135, 0.0150, 0.0160),
        "CatBoost": (0.0132, 0.0194, 0.0269, 0.0324, 0.0352),
        "LightGBM": (0.0099, 0.0160, 0.0237, 0.0286, 0.0307),
    },
}
"""0-1-c risk at the paper's costs."""

TEST_ROWS = {"covtype": 100_000}
"""The first so many test rows, where the figures to beat were measured on these."""


def risks(model, X, y):
    """Return the 0-1-c risk at each of the paper's costs, from one set of probabilities."""
    proba = model.predict_proba(X)
    answers = {cost: Chow(cost).decide(proba).labels(model.classes_, -1) for cost in PAPER_COSTS}
    return np.array([zero_one_c_risk(y, answers[cost], cost=cost) for cost in PAPER_COSTS])


def scikit_learns(data, X, y):
    """Return the risks of two models with temperature, fitted on the same rows."""
    forest = RandomForestClassifier(300, n_jobs=-1, random_state=0)
    boosting = HistGradientBoostingClassifier(early_stopping=False, random_state=0)
    return [risks(RejectOption(model).fit(data.X_train, data.y_train), X, y) for model in (forest, boosting)]


def drawn(data, n_rows, n_draws):
    """Yield the data, or so many draws of so many of its training rows."""
    for seed in range(n_draws if n_rows else 1):
        rows = np.random.default_rng(seed).permutation(len(data.y_train))[:n_rows] if n_rows else slice(None)
        yield replace(data, X_train=data.X_train[rows], y_train=data.y_train[rows])


def geometric_mean(ratios):
    return float(np.exp(np.mean(np.log(ratios))))


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks auto", description=__doc__)
    parser.add_argument("--data", help="the folder with the data sets (default: downloads)")
    parser.add_argument("--sets", nargs="*", choices=[*MEASURED, *SETS], help="default: all of the benchmark")
    parser.add_argument("--rivals", action="store_true", help="development sets, with AutoGluon and others")
    parser.add_argument("--busy", action="store_true", help="development sets, on busy cores")
    parser.add_argument("--processor-time", action="store_true", help="with both: count processor time per core")
    parser.add_argument("--autogluon", metavar="PYTHON", help="with --rivals: the Python that has AutoGluon")
    parser.add_argument("--mixed", metavar="DIR", help="folder of the development sets that are CSV files")
    parser.add_argument("--results", default="auto-results.jsonl", help="file of results; those in it are not repeated")
    parser.add_argument("--model", choices=["auto", "networks"], default="auto", help="networks: RejectClassifier()")
    parser.add_argument("--measure", action="store_true", help="fit scikit-learn's models here as well")
    parser.add_argument(
        "--time-budget", type=float, default=90.0, help="seconds for auto (default: 90, as the library)"
    )
    parser.add_argument("--train-rows", type=int, help="train on so many rows, drawn at random; rivals are fitted here")
    parser.add_argument("--draws", type=int, default=1, help="how often --train-rows are drawn; the means are shown")
    options, _ = parser.parse_known_args(arguments)
    if options.rivals or options.busy:
        options.sets = options.sets or list(SETS if options.mixed else BUNDLED)
        compare(options)
        return
    options.sets = options.sets or list(MEASURED)

    console, ratios, against = Console(), [], []
    table = Table(title=f"{options.model}: 0-1-c risk (ratio to the best of all others)")
    for heading in ("data set", "test rows", "fit", *(f"c = {cost:g}" for cost in PAPER_COSTS), "mean ratio"):
        table.add_column(heading, justify="left" if heading == "data set" else "right")
    for name in options.sets:
        data = load(name, options.data)
        X, y = data.X_test[: TEST_ROWS.get(name)], data.y_test[: TEST_ROWS.get(name)]
        seconds, found, own = 0.0, [], []
        for part in drawn(data, options.train_rows, options.draws):
            started = time.perf_counter()
            auto = RejectOption("auto", time_budget=options.time_budget, random_state=0)
            model = auto if options.model == "auto" else RejectClassifier(random_state=0)
            model.fit(part.X_train, part.y_train)
            seconds = max(seconds, time.perf_counter() - started)
            found.append(risks(model, X, y))
            if options.measure or options.train_rows:
                own.append(scikit_learns(part, X, y))
        found = np.mean(found, axis=0)
        rivals = [] if options.train_rows else [np.array(row) for row in MEASURED[name].values()]
        if own:
            rivals += list(np.mean(own, axis=0))
            against.append(found / np.min(np.mean(own, axis=0), axis=0))
        ratio = found / np.min(rivals, axis=0)
        ratios.append(ratio)
        cells = [f"{risk:.4f} ({one:.2f})" for risk, one in zip(found, ratio, strict=True)]
        table.add_row(name, f"{len(y):,}", f"{seconds:.0f} s", *cells, f"{geometric_mean(ratio):.3f}")
        if options.model == "auto":
            tried = [f"{one.name} {one.outcome} in {one.seconds:.0f} s" for one in model.estimator_.tried_]
            console.print(f"{name}: {', '.join(tried)}")
    console.print(table)
    at_or_below = int(np.sum(np.round(ratios, 3) <= 1))
    console.print(f"{at_or_below} of {np.size(ratios)} cells at or below the best of all others")
    console.print(f"geometric mean of the ratios: {geometric_mean(ratios):.3f}")
    if against:
        better = geometric_mean(against)
        console.print(f"against the better of RandomForest and HistGradientBoosting with temperature: {better:.3f}")


if __name__ == "__main__":
    main()
