"""Intents of CLINC150 with out-of-scope rows: accuracy in scope, AUROC of out-of-scope detection, and the mean cost.

Declining costs c, a wrong answer 1, and every answer to an out-of-scope row is wrong. The model is
``RejectOption("auto")`` with all its defaults. Its settings for text were chosen on the validation rows of these data,
while their figures on the test rows were seen as well. Out-of-scope rows to learn from are those of the training and
validation files. Seconds of the fit are of the processor and of the clock, and those of one
row of the processor.
"""

import argparse
import os
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from demur import RejectOption

_COSTS = (0.1, 0.3)
_OUTSIDE = "oos"
_SERVED = 100
"""Rows that are decided one by one."""


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks text", description=__doc__)
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(os.environ.get("DEMUR_DATA", "data")) / "text",
        help="folder with clinc150_train.csv.gz, clinc150_val.csv.gz and clinc150_test.csv.gz",
    )
    parser.add_argument("--time-budget", type=float, default=90.0, help="seconds of each training; 0 for no limit")
    parser.add_argument("--classes", type=int, help="use this many intents only")
    given = parser.parse_args(arguments)
    if not (given.data / "clinc150_train.csv.gz").exists():
        print(f"text: there is no CLINC150 in {given.data}; name its folder with --data.")
        return
    train, val, test = (pd.read_csv(given.data / f"clinc150_{part}.csv.gz") for part in ("train", "val", "test"))
    if given.classes:
        kept = {_OUTSIDE, *sorted(set(train["intent"]) - {_OUTSIDE})[: given.classes]}
        train, val, test = (part[part["intent"].isin(kept)] for part in (train, val, test))
    inside = train[train["intent"] != _OUTSIDE]
    learned = pd.concat([train, val[val["intent"] == _OUTSIDE]])
    print(
        f"{'':44}accuracy  AUROC  {'  '.join(f'J({c:g})' for c in _COSTS)}  processor (s)  clock (s)  a row (ms)",
        flush=True,
    )
    with mock.patch("demur.estimators.text_features.is_installed", return_value=False):
        _line("no extra package, no out-of-scope rows", inside, test, given.time_budget)
    _line("with demur[text]", inside, test, given.time_budget)
    _line("with demur[text] and out-of-scope rows", learned, test, given.time_budget)


def _line(words: str, train: pd.DataFrame, test: pd.DataFrame, budget: float) -> None:
    """Train, decide for the test rows, and print the figures."""
    started, used = time.perf_counter(), time.process_time()
    model = RejectOption("auto", time_budget=budget or None, out_of_scope=_OUTSIDE)
    model.fit(train[["text"]], train["intent"])
    seconds, used = time.perf_counter() - started, time.process_time() - used
    true, outside = test["intent"].to_numpy(), (test["intent"] == _OUTSIDE).to_numpy()
    found = model.decide(test[["text"]])
    wrong = model.classes_[found.label] != true
    costs = [np.where(found.confidence > 1 - c, wrong, c).mean() for c in _COSTS]
    rows = [test[["text"]].iloc[row : row + 1] for row in range(_SERVED)]
    before = time.process_time()
    for row in rows:
        model.decide(row)
    each = (time.process_time() - before) / _SERVED
    figures = f"{1 - wrong[~outside].mean():8.4f}  {roc_auc_score(~outside, found.in_scope):.4f}  "
    costs_written = "  ".join(f"{cost:.4f}" for cost in costs)
    print(f"{words:44}{figures}{costs_written}  {used:13.0f}  {seconds:9.0f}  {1000 * each:10.1f}", flush=True)
