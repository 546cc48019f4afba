"""RejectOption("auto") on development sets, beside AutoGluon and others, or on busy cores beside single models.

The sets are those that ship with scikit-learn, synthetic ones, and tables of the folder ``--mixed`` (CSV files with a
column "class"). Choices in demur may be made on them, so that the figures are somewhat optimistic.
"""

import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_breast_cancer, load_digits, make_classification, make_gaussian_quantiles
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from demur import RejectOption
from demur.costs import PAPER_COSTS
from demur.estimators.boosted_trees import BoostedTrees, is_installed
from demur.estimators.candidates import dense_view
from demur.metrics import zero_one_c_risk
from demur.rules import Chow
from demur.workers import BusyClock, n_cores

BUNDLED = ("digits", "breast cancer", "noisy", "gaussian")
MIXED = ("car", "eucalyptus", "hypothyroid", "nursery", "optdigits", "vowel")
SETS = (*BUNDLED, *MIXED)
MOST_TRAINING_ROWS = 10_000


def frame_of(name, folder):
    """Return the features as a data frame, and the labels."""
    if name == "noisy":
        made = make_classification(
            6000, 20, n_informative=8, n_redundant=4, n_classes=5, n_clusters_per_class=2, flip_y=0.1, random_state=0
        )
    elif name == "gaussian":
        made = make_gaussian_quantiles(n_samples=3000, n_features=10, n_classes=6, random_state=0)
    elif name in BUNDLED:
        made = {"digits": load_digits, "breast cancer": load_breast_cancer}[name](return_X_y=True)
    else:
        frame = pd.read_csv(Path(folder) / f"{name}.csv.gz")
        labels = frame.pop("class").to_numpy()
        text = [column for column in frame if frame[column].dtype.kind not in "iuf"]
        return frame.astype(dict.fromkeys(text, "category")), labels
    frame = pd.DataFrame(made[0])
    return frame.rename(columns="x{}".format), made[1]


def split(name, folder, seed):
    """Return training and test rows with labels 0, 1, ...; 60 % of the rows train, at most 10,000."""
    frame, labels = frame_of(name, folder)
    codes = np.unique(labels, return_inverse=True)[1]
    rows = np.random.RandomState(seed).permutation(len(codes))
    n_train = min(int(0.6 * len(codes)), MOST_TRAINING_ROWS)
    train, test = rows[:n_train], rows[n_train:]
    return frame.iloc[train], codes[train], frame.iloc[test], codes[test]


def costs_of(proba, classes, y):
    """Return the 0-1-c risk at each of the paper's costs; half a row at least, so that ratios are defined."""
    found = [zero_one_c_risk(y, Chow(c).decide(proba).labels(np.asarray(classes), -1), cost=c) for c in PAPER_COSTS]
    return [max(float(one), 0.5 / len(y)) for one in found]


def costs_of_rows(proba, classes, y):
    """Return the cost of each row, averaged over the paper's costs."""
    decided = [(c, Chow(c).decide(proba)) for c in PAPER_COSTS]
    return np.mean([np.where(one.reject, c, np.asarray(classes)[one.label] != y) for c, one in decided], axis=0)


def error_of_ratio(own, other):
    """Return the standard error of the ratio of two mean costs of the same rows, by bootstrap."""
    rng, own, other = np.random.default_rng(0), np.array(own), np.array(other)
    draws = (rng.integers(len(own), size=len(own)) for _ in range(500))
    return float(np.std([own[rows].mean() / max(other[rows].mean(), 1e-6) for rows in draws]))


def count_processor_time():
    """Let time budgets count the processor time per core, which other programs do not change."""
    BusyClock.__init__ = lambda self: vars(self).update(wall=time.monotonic(), own=time.process_time())
    BusyClock.__call__ = lambda self: (time.process_time() - self.own) / n_cores()
    BusyClock.in_wall_time = lambda self, seconds: seconds * (time.monotonic() - self.wall) / max(self(), 1e-3)


def encoded(train, test):
    """Return the rows as numbers for models that read no categories: codes, and one scale with indicators."""
    is_category = np.array([str(kind) == "category" for kind in train.dtypes])
    parts = [
        np.column_stack([rows[name].cat.codes.replace(-1, np.nan) if category else rows[name].to_numpy(float)
                         for name, category in zip(train, is_category, strict=True)])
        for rows in (train, test)
    ]  # fmt: skip
    empty = np.isnan(parts[0]).all(axis=0)  # scikit-learn's histograms fail on a column without any value
    return np.where(empty, 0.0, parts[0]), np.where(empty, 0.0, parts[1]), is_category


def singles(is_category, with_libraries):
    """Return the single models, which are calibrated by a temperature."""
    mask = is_category if is_category.any() else None
    models = {
        "logistic regression": make_pipeline(dense_view(is_category), LogisticRegression(max_iter=300)),
        "extra trees": ExtraTreesClassifier(300, n_jobs=-1, random_state=0),
        "random forest": RandomForestClassifier(300, n_jobs=-1, random_state=0),
        "HistGradientBoosting": HistGradientBoostingClassifier(
            categorical_features=mask, early_stopping=False, random_state=0
        ),
    }
    if not with_libraries:
        return models
    del models["logistic regression"], models["extra trees"]
    quiet = {"lightgbm": {"n_jobs": n_cores()}, "catboost": {"thread_count": n_cores()}}
    return models | {name: BoostedTrees(name, quiet[name]) for name in quiet if is_installed(name)}


def autogluon(python, seconds, X, y, Xt):
    """Return AutoGluon's probabilities and classes, fitted in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        pd.concat([X, pd.Series(y.astype(str), X.index, name="target")], axis=1).to_parquet(f"{folder}/train.parquet")
        Xt.to_parquet(f"{folder}/test.parquet")
        script = Path(__file__).with_name("autogluon_rival.py")
        command = [python, script, folder, str(seconds), "best_quality"]
        subprocess.run(command, check=True, env={"PATH": "/usr/bin:/bin", "HOME": folder})
        found = pd.read_parquet(f"{folder}/proba.parquet")
    proba = found.to_numpy(float)
    return proba / proba.sum(axis=1, keepdims=True), found.columns.astype(int)


def tried(name, options, seed, model):
    """Fit one model on one set; return its costs, and its seconds."""
    X, y, Xt, yt = split(name, options.mixed, seed)
    clock, started = BusyClock(), time.perf_counter()
    if model == "AutoGluon":
        proba, classes = autogluon(options.autogluon, options.time_budget, X, y, Xt)
        more = {}
    else:
        if model != "auto":
            X, Xt, is_category = encoded(X, Xt)
            fitted = RejectOption(singles(is_category, options.rivals)[model], calibration="temperature", novelty=None)
        else:
            fitted = RejectOption("auto", time_budget=options.time_budget, random_state=0)
        fitted.fit(X, y)
        more = {"starved": fitted.estimator_.starved} if model == "auto" else {}
    seconds, wall = clock(), time.perf_counter() - started
    if model != "AutoGluon":
        proba, classes = fitted.predict_proba(Xt), fitted.classes_
    rows = costs_of_rows(proba, classes, yt).round(4).tolist()
    return {"costs": costs_of(proba, classes, yt), "rows": rows, "seconds": seconds, "wall": wall, **more}


def tried_in_time(*arguments):
    """Return what :func:`tried` does, from a process that is stopped where it is too slow to count."""
    _, options, _, model = arguments
    if not options.busy or options.processor_time or model == "auto":
        return tried(*arguments)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        try:
            return pool.apply_async(tried, arguments).get(3 * options.time_budget + 30)
        except multiprocessing.TimeoutError:
            return {"costs": [1.0] * len(PAPER_COSTS), "seconds": np.inf, "wall": np.inf}


@contextmanager
def busy_cores():
    """Keep as many processes busy as there are cores."""
    load = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"  # ends with this process
    loads = [subprocess.Popen([sys.executable, "-c", load]) for _ in range(n_cores())]
    try:
        yield
    finally:
        for one in loads:
            one.kill()
            one.wait()


def compare(options):
    """Measure what is not yet among the results, and print the ratios."""
    console, path = Console(), Path(options.results)
    if options.processor_time:
        count_processor_time()
    stored = {}
    if path.exists():
        stored = {tuple(one["key"]): one for one in map(json.loads, path.read_text().splitlines())}
    names = list(singles(np.zeros(1, bool), options.rivals))
    models = ["auto", *names, *(["AutoGluon"] if options.rivals and options.autogluon else [])]
    mode = "rivals" if options.rivals else "busy"
    for name in options.sets:
        for seed in range(options.draws):
            for model in models:
                key = (mode, options.time_budget, name, seed, model)
                if key not in stored:
                    with busy_cores() if options.busy and not options.processor_time else open_cores():
                        stored[key] = {"key": key, **tried_in_time(name, options, seed, model)}
                    with path.open("a") as file:
                        file.write(json.dumps(stored[key]) + "\n")
                one = stored[key]
                shown = " ".join(f"{cost:.4f}" for cost in one["costs"])
                console.print(
                    f"{name}, {model}: {shown}; {one['seconds']:.0f} s, {one['wall']:.0f} s of wall time. "
                    f"{one.get('starved') or ''}"
                )
    report(console, options, stored, models, mode)


@contextmanager
def open_cores():
    """Leave the cores as they are."""
    yield


def report(console, options, stored, models, mode):
    """Print, per set, the mean cost and the ratios to the rivals."""
    in_time = 1.0 if mode == "busy" else np.inf  # on busy cores only what finishes in the time of auto
    table = Table(title=f"{mode}, {options.time_budget:g} s: mean cost over c (ratio of auto to it)")
    for heading in ("data set", *models, "ratio to the best", "worst cell"):
        table.add_column(heading, justify="right")
    best_ratios, of_model = [], {model: [] for model in models}
    for name in options.sets:
        rows, of_rows = {}, {}
        for model in models:
            found = [stored[(mode, options.time_budget, name, seed, model)] for seed in range(options.draws)]
            if model == "auto" or np.mean([one["seconds"] for one in found]) <= in_time * options.time_budget:
                rows[model] = np.mean([one["costs"] for one in found], axis=0)
                of_rows[model] = np.concatenate([one["rows"] for one in found])
        own = rows["auto"]
        ratios = {model: float(own.mean() / row.mean()) for model, row in rows.items()}
        for model, ratio in ratios.items():
            of_model[model].append(ratio)
        others = [row for model, row in rows.items() if model != "auto"]
        best = max((model for model in ratios if model != "auto"), key=lambda model: ratios[model])
        best_ratios.append(ratios[best])
        error = error_of_ratio(of_rows["auto"], of_rows[best])
        worst = float(np.max(own / np.min(others, axis=0)))
        cells = [f"{rows[model].mean():.4f} ({ratios[model]:.2f})" if model in rows else "late" for model in models]
        table.add_row(name, *cells, f"{best_ratios[-1]:.3f} ± {error:.3f}", f"{worst:.2f}")
    console.print(table)
    for model, ratios in of_model.items():
        if model != "auto" and ratios:
            console.print(f"geometric mean of the ratios to {model}: {np.exp(np.mean(np.log(ratios))):.3f}")
    mean = np.exp(np.mean(np.log(best_ratios)))
    console.print(f"to the best of all in hindsight: geometric mean {mean:.3f}, worst set {max(best_ratios):.3f}")
