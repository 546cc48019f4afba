"""RejectOption("auto") and a temperature-scaled forest on the paper's data sets, beside the figures to beat.

The figures to beat are those of the best single scikit-learn model with temperature scaling, and of networks with one
hidden layer, whichever is lower. Nothing in demur was tuned on these data sets.
"""

import argparse
import time

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import ExtraTreesClassifier

from demur import RejectOption
from demur.costs import PAPER_COSTS
from demur.datasets import load
from demur.metrics import zero_one_c_risk

TO_BEAT = {
    "vehicle": (0.035, 0.058, 0.097, 0.143, 0.166),
    "satimage": (0.025, 0.040, 0.063, 0.077, 0.087),
    "yeast": (0.051, 0.099, 0.188, 0.264, 0.326),
    "covtype": (0.050, 0.095, 0.166, 0.211, 0.234),
    "letter": (0.008, 0.013, 0.020, 0.023, 0.026),
}


def risks(model, X, y):
    """Return the 0-1-c risk at each of the paper's costs, from one set of probabilities."""
    proba = model.predict_proba(X)
    answers = {cost: model.decide_proba(proba, cost).labels(model.classes_, -1) for cost in PAPER_COSTS}
    return np.array([zero_one_c_risk(y, answers[cost], cost=cost) for cost in PAPER_COSTS])


def geometric_mean(ratios):
    return float(np.exp(np.mean(np.log(ratios))))


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks auto", description=__doc__)
    parser.add_argument("--data", help="the folder with the data sets (default: downloads)")
    parser.add_argument("--sets", nargs="*", default=list(TO_BEAT), choices=list(TO_BEAT))
    options, _ = parser.parse_known_args(arguments)

    console, ratios = Console(), []
    table = Table(title='RejectOption("auto"): 0-1-c risk (ratio to the figure to beat)')
    for heading in ("data set", "test rows", "fit", *(f"c = {cost:g}" for cost in PAPER_COSTS), "mean ratio"):
        table.add_column(heading, justify="left" if heading == "data set" else "right")
    for name in options.sets:
        data = load(name, options.data)
        started = time.perf_counter()
        model = RejectOption("auto").fit(data.X_train, data.y_train)
        seconds = time.perf_counter() - started
        found = risks(model, data.X_test, data.y_test)
        ratio = found / TO_BEAT[name]
        ratios.append(ratio)
        cells = [f"{risk:.4f} ({one:.2f})" for risk, one in zip(found, ratio, strict=True)]
        table.add_row(name, f"{len(data.y_test):,}", f"{seconds:.0f} s", *cells, f"{geometric_mean(ratio):.3f}")
        tried = [f"{one.name} {one.weight:.0%} in {one.seconds:.0f} s" for one in model.estimator_.tried_]
        console.print(f"{name}: {', '.join(tried)}")
    console.print(table)
    console.print(f"geometric mean of {np.size(ratios)} ratios: {geometric_mean(ratios):.3f}")

    if "letter" in options.sets:
        data = load("letter", options.data)
        for calibration in (None, "auto"):
            forest = ExtraTreesClassifier(300, n_jobs=-1, random_state=0)
            model = RejectOption(forest, cost=0.1, calibration=calibration).fit(data.X_train, data.y_train)
            risk = -model.score(data.X_test, data.y_test)
            console.print(f"ExtraTrees on letter, c = 0.1, calibration {calibration}: risk {risk:.4f}")


if __name__ == "__main__":
    main()
