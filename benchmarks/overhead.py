"""What a reject option costs at prediction: RejectOption.predict against the bare classifier's predict, same rows."""

import argparse
import time

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import make_classification
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from demur import RejectOption

N_TRAIN, N_CALIBRATION = 5000, 5000
N_SLOW = 40_000
"""Rows for the nearest neighbours, which take a second for so many."""

CLASSIFIERS = (
    LogisticRegression(),
    ExtraTreesClassifier(100, n_jobs=-1, random_state=0),
    RandomForestClassifier(100, n_jobs=-1, random_state=0),
    HistGradientBoostingClassifier(max_iter=50, random_state=0),
    KNeighborsClassifier(),
)


def best_times(functions, repeats):
    """Return the least time of each, taken in turn so that a busy moment hits all alike."""
    times = [[] for _ in functions]
    for _ in range(repeats):
        for function, taken in zip(functions, times, strict=True):
            started = time.perf_counter()
            function()
            taken.append(time.perf_counter() - started)
    return [min(taken) for taken in times]


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks overhead", description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--repeats", type=int, default=5)
    options, _ = parser.parse_known_args(arguments)

    n_fit = N_TRAIN + N_CALIBRATION
    X, y = make_classification(
        n_fit + options.rows, n_features=20, n_informative=10, n_classes=7, flip_y=0.05, random_state=0
    )
    table = Table(title=f"{options.rows:,} rows, 20 features, 7 classes; least of {options.repeats} runs")
    for heading in ("classifier", "rows", "predict", "predict_proba", "RejectOption.predict", "overhead"):
        table.add_column(heading, justify="left" if heading == "classifier" else "right")
    for classifier in CLASSIFIERS:
        fitted = classifier.fit(X[:N_TRAIN], y[:N_TRAIN])
        model = RejectOption(FrozenEstimator(fitted)).fit(X[N_TRAIN:n_fit], y[N_TRAIN:n_fit])
        rows = X[n_fit:][: N_SLOW if isinstance(fitted, KNeighborsClassifier) else None]
        bare, proba, ours = best_times(
            [lambda: fitted.predict(rows), lambda: fitted.predict_proba(rows), lambda: model.predict(rows)],  # noqa: B023
            options.repeats,
        )
        assert np.mean(model.decide(rows).label == np.searchsorted(fitted.classes_, fitted.predict(rows))) > 0.999
        table.add_row(
            type(fitted).__name__, f"{len(rows):,}", f"{bare:.3f} s", f"{proba:.3f} s", f"{ours:.3f} s",
            f"{ours / bare - 1:+.1%}",
        )  # fmt: skip
    Console().print(table)
    Console().print(
        "A linear model's predict compares scores and never computes probabilities, which a reject option needs."
    )


if __name__ == "__main__":
    main()
