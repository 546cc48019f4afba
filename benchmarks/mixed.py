"""RejectClassifier() on tables with categories, missing values and rare classes, beside boosting and forests.

The tables are the CSV files of a folder, whose last column is the class, and four synthetic ones. Every model gets the
same rows. The rivals read categories in their own way, and get a temperature from a fifth of the training rows before
they are fitted on all of them.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.model_selection import StratifiedShuffleSplit

from benchmarks.auto import geometric_mean, risks
from demur import AutoClassifier, RejectClassifier, RejectOption
from demur.costs import PAPER_COSTS
from demur.estimators.boosted_trees import BoostedTrees


def _labels(scores, noise, rng):
    return (scores + noise * rng.gumbel(size=scores.shape)).argmax(axis=1)


def _with_gaps(frame, share, rng):
    return frame.mask(rng.random(frame.shape) < share)


def cities(rng, n=3000):
    """Return a table where a column of 300 categories, some with a single row, tells most."""
    city = np.minimum(rng.zipf(1.3, n), 300) - 1
    effect, region = rng.normal(scale=1.5, size=(300, 4)), rng.integers(6, size=300)
    x = rng.lognormal(size=(n, 3))
    scores = effect[city] + rng.normal(size=(6, 4))[region[city]] + np.log(x) @ rng.normal(size=(3, 4))
    frame = pd.DataFrame(x, columns=["income", "rent", "size"])
    frame["city"], frame["region"] = [f"city {k}" for k in city], [f"region {k}" for k in region[city]]
    return _with_gaps(frame, 0.05, rng), _labels(scores, 0.6, rng)


def rare(rng, n=1500):
    """Return a table of 14 classes, of 5 to 400 rows."""
    y = rng.choice(14, n, p=np.geomspace(1, 0.012, 14) / np.geomspace(1, 0.012, 14).sum())
    frame = pd.DataFrame(np.exp(rng.normal(size=(14, 6))[y] + 0.5 * rng.normal(size=(n, 6))))
    for number in range(5):
        likely = rng.dirichlet(np.full(6, 0.3), size=14)
        frame[f"kind {number}"] = [f"{'abcdef'[rng.choice(6, p=likely[one])]}" for one in y]
    frame.columns = frame.columns.astype(str)
    return _with_gaps(frame, 0.1, rng), y


def thresholds(rng, n=3000):
    """Return a table whose classes depend on thresholds of skewed numbers; gaps tell something as well."""
    frame = pd.DataFrame(rng.lognormal(sigma=1.5, size=(n, 8)), columns=list("abcdefgh"))
    frame["unit"] = rng.choice(["north", "south", "east", "west"], n, p=[0.5, 0.3, 0.15, 0.05])
    high = frame["a"] > np.where(frame["unit"] == "south", 3.0, 6.0)
    y = np.where(high, np.where(frame["b"] < 0.7, 1, 2), np.where((frame["c"] > 8) & (frame["unit"] != "east"), 3, 0))
    y = np.where(rng.random(n) < 0.02, rng.integers(4, size=n), y)
    frame.loc[(y == 0) & (rng.random(n) < 0.4), "d"] = np.nan
    return _with_gaps(frame, 0.03, rng), y


def wide(rng, n=900):
    """Return a table of 120 columns, of which 12 matter."""
    numbers, codes = rng.normal(size=(n, 60)), rng.integers(8, size=(n, 60))
    effects = rng.normal(size=(6, 8, 3))
    scores = numbers[:, :6] @ rng.normal(size=(6, 3)) + sum(effects[k][codes[:, k]] for k in range(6))
    frame = pd.DataFrame(numbers, columns=[f"number {k}" for k in range(60)])
    for k in range(60):
        frame[f"kind {k}"] = [f"v{code}" for code in codes[:, k]]
    return frame, _labels(scores, 0.7, rng)


SYNTHETIC = {"cities": cities, "rare": rare, "thresholds": thresholds, "wide": wide}


def tables(folder):
    """Yield the name, the features and the labels of each table."""
    for path in sorted(Path(folder).glob("*.csv*")) if folder else []:
        frame = pd.read_csv(path)
        yield path.name.split(".")[0], frame.iloc[:, :-1], np.unique(frame.iloc[:, -1], return_inverse=True)[1]
    for name, make in SYNTHETIC.items():
        yield name, *make(np.random.default_rng(0))


def splits(y, rows, n_splits):
    """Yield training and test rows; a class of a single row is trained on."""
    for seed in range(n_splits):
        order = np.random.default_rng([seed, 7]).permutation(len(y))
        rank = np.empty(len(y))
        for one in np.unique(y):
            own = order[y[order] == one]
            rank[own] = (np.arange(len(own)) + 0.5) / len(own)
        train = np.flatnonzero(rank < 0.7)
        train = np.random.default_rng(seed).permutation(train)
        first = np.unique(y[train], return_index=True)[1]
        chosen = np.union1d(train[first], train[:rows])
        yield np.sort(chosen), np.flatnonzero(rank >= 0.7)


class CatBoost(ClassifierMixin, BaseEstimator):
    """CatBoost with the text of categories, which it takes as such."""

    def __init__(self, columns):
        self.columns = columns

    def fit(self, X, y):
        from catboost import CatBoostClassifier

        self.classes_ = np.unique(y)
        self.model_ = CatBoostClassifier(
            cat_features=self.columns, verbose=0, random_seed=0, thread_count=2, allow_writing_files=False
        ).fit(self._words(X), y)
        return self

    def predict_proba(self, X):
        return self.model_.predict_proba(self._words(X))

    def _words(self, codes):
        frame = pd.DataFrame(codes)
        for column in self.columns:
            frame[column] = frame[column].fillna(-1).astype(int).astype(str)
        return frame


class Rivals:
    """Boosting and forests, with categories as each of them takes them."""

    def __init__(self, frame):
        self.text = [k for k, name in enumerate(frame) if frame[name].dtype.kind not in "iufb"]
        self.codes = frame.copy()
        for name in frame.columns[self.text]:
            self.codes[name] = pd.Categorical(frame[name]).codes
            self.codes[name] = self.codes[name].where(self.codes[name] >= 0, np.nan)
        self.codes = self.codes.to_numpy(np.float64)
        self.codes[:, np.isnan(self.codes).all(axis=0)] = 0.0  # which scikit-learn's histograms do not take

    def models(self):
        """Return the models by name."""
        kinds, n_codes = self.text, np.nanmax(self.codes, axis=0)
        coded = [k for k in kinds if n_codes[k] < 255]  # the limit of scikit-learn's histograms
        return {
            "CatBoost": CatBoost(kinds),
            "LightGBM": BoostedTrees("lightgbm", {"random_state": 0, "n_jobs": 2}, categorical=kinds),
            "RandomForest": RandomForestClassifier(300, random_state=0, n_jobs=2),
            "HistGradientBoosting": HistGradientBoostingClassifier(
                categorical_features=coded or None, early_stopping=False, random_state=0
            ),
        }


def rival_risks(frame, y, train, test, names=None):
    """Return the risks and the processor seconds of each rival."""
    rivals, found = Rivals(frame), {}
    for name, model in rivals.models().items():
        if names is not None and name not in names:
            continue
        started = time.process_time()
        usual = y[train][np.isin(y[train], np.flatnonzero(np.bincount(y[train]) >= 5))]
        cv = StratifiedShuffleSplit(1, test_size=0.2, random_state=0) if len(usual) == len(train) else 3
        own = RejectOption(model, cv=cv, novelty=None, calibration="temperature").fit(rivals.codes[train], y[train])
        found[name] = (risks(own, rivals.codes[test], y[test]), time.process_time() - started)
    return found


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks mixed", description=__doc__)
    parser.add_argument("--data", help="a folder of CSV files whose last column is the class")
    parser.add_argument("--sets", nargs="*", help="only these tables")
    parser.add_argument("--rows", type=int, default=6000, help="the most training rows (default: 6000)")
    parser.add_argument("--splits", type=int, default=2, help="random splits of each table (default: 2)")
    parser.add_argument("--model", choices=["networks", "nn"], default="networks", help="nn: that candidate of auto")
    options, _ = parser.parse_known_args(arguments)
    out = Table(title="0-1-c risk (ratio to the best rival)")
    for heading in ("table", "best", *(f"c = {cost:g}" for cost in PAPER_COSTS), "mean", "CPU s", "rivals' CPU s"):
        out.add_column(heading)
    ratios = []
    for name, frame, y in tables(options.data):
        if options.sets and name not in options.sets:
            continue
        own, others, seconds = [], [], 0.0
        for train, test in splits(y, options.rows, options.splits):
            others.append(rival_risks(frame, y, train, test))
            started = time.process_time()
            if options.model == "networks":
                model = RejectClassifier(random_state=0)
            else:
                model = AutoClassifier([options.model], time_budget=None, random_state=0)
            model.fit(frame.iloc[train], y[train])
            seconds += (time.process_time() - started) / options.splits
            own.append(risks(model, frame.iloc[test], y[test]))
        of_rivals = {one: np.mean([split[one][0] for split in others], axis=0) for one in others[0]}
        times = [f"{np.mean([split[one][1] for split in others]):.0f}" for one in others[0]]
        ratio = np.mean(own, axis=0) / np.min(list(of_rivals.values()), axis=0)
        ratios.append(ratio)
        best = min(of_rivals, key=lambda one: of_rivals[one].mean())
        cells = [f"{risk:.4f} ({one:.2f})" for risk, one in zip(np.mean(own, axis=0), ratio, strict=True)]
        print(f"{name}: {geometric_mean(ratio):.3f} of the best rival", flush=True)
        out.add_row(name, best, *cells, f"{geometric_mean(ratio):.3f}", f"{seconds:.0f}", ", ".join(times))
    Console(width=150).print(out)
    print(f"geometric mean of the ratios: {geometric_mean(ratios):.3f}")


if __name__ == "__main__":
    main()
