"""Whether RejectOption("auto").fit keeps its time budget: wall time on tables that are long, wide or of many classes.

The limit is at most 1.15 times the budget plus 3 seconds.
"""

import argparse
import time

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import make_classification

from demur import RejectOption

SHAPES = {
    "344,000 x 54": (344_000, 54, 7, 40.0),
    "4,800 x 20, 60 classes": (4_800, 20, 60, 30.0),
    "1,300 x 20": (1_300, 20, 4, 15.0),
    "200 x 2,000": (200, 2_000, 3, 15.0),
}


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks budget", description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    options, _ = parser.parse_known_args(arguments)
    console = Console()
    table = Table(title='RejectOption("auto").fit: seconds against its budget')
    for heading in ("rows x columns", "budget", "wall", "cpu", "allowed", "kept", "what there was time for"):
        table.add_column(heading, justify="left" if heading.startswith(("rows", "what")) else "right")
    for name in options.shapes:
        n_rows, n_columns, n_classes, budget = SHAPES[name]
        informative = int(np.ceil(np.log2(2 * n_classes))) + 4
        X, y = make_classification(
            n_rows, n_columns, n_informative=informative, n_redundant=4, n_classes=n_classes,
            n_clusters_per_class=1, flip_y=0.05, random_state=0,
        )  # fmt: skip
        started, cpu = time.perf_counter(), time.process_time()
        model = RejectOption("auto", time_budget=budget).fit(X, y)
        wall, cpu = time.perf_counter() - started, time.process_time() - cpu
        allowed = 1.15 * budget + 3
        tried = "; ".join(f"{one.name} {one.seconds:.0f} s: {one.outcome}" for one in model.estimator_.tried_)
        kept = "yes" if wall <= allowed else "NO"
        table.add_row(name, f"{budget:.0f}", f"{wall:.1f}", f"{cpu:.1f}", f"{allowed:.1f}", kept, tried)
        console.print(f"{name}: {wall:.1f} s of {allowed:.1f} s allowed")
    console.print(table)


if __name__ == "__main__":
    main()
