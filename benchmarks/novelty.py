"""Rows of a class that training did not hold: what Chow's rule, an isolation forest in front of it and novelty cost.

Each class is left out in turn. A model learns the others, and decides for new rows of these and for rows of the one
left out, as many as the others have on average. Declining costs c, a wrong answer 1, and every answer to a row of the
class left out is wrong. An isolation forest declines the share of rows that it is set to; novelty is set to the same.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier, IsolationForest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from demur import RejectOption

_RATES = (0.01, 0.05)
_WAYS = (
    "Chow's rule alone",
    *(f"isolation forest at {rate:g}, then Chow" for rate in _RATES),
    "novelty by default",
    *(f"novelty at {rate:g}" for rate in _RATES),
)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks novelty", description=__doc__)
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("DEMUR_DATA", "data")), help="folder with letter.csv.gz"
    )
    parser.add_argument("--cost", type=float, default=0.2)
    parser.add_argument("--every", type=int, default=1, help="leave out every so many-th class only")
    given = parser.parse_args(arguments)
    tables = {"digits": load_digits(return_X_y=True)}
    if (given.data / "letter.csv.gz").exists():
        letter = pd.read_csv(given.data / "letter.csv.gz")
        tables["letter"] = letter.iloc[:, :-1].to_numpy(float), pd.factorize(letter["class"])[0]
    models = {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
        "extra trees": ExtraTreesClassifier(100, random_state=0),
    }
    for name, (X, y) in tables.items():
        left_out = np.unique(y)[:: given.every]
        for words, model in models.items():
            trials = np.array([_trial(X, y, one, model, given.cost) for one in left_out])
            print(f"\n{name}, {words}: joint cost of 100 rows at c = {given.cost:g}, {len(trials)} classes left out")
            worse = trials - trials[:, :1]
            errors = worse.std(axis=0, ddof=1) / np.sqrt(len(trials))
            for way, cost, gain, error in zip(_WAYS, trials.mean(axis=0), worse.mean(axis=0), errors, strict=True):
                against = (
                    "" if way == _WAYS[0] else f"   {100 * gain:+6.2f} against Chow alone (s.e. {100 * error:.2f})"
                )
                print(f"  {way:38s} {100 * cost:6.2f}{against}")


def _trial(X: np.ndarray, y: np.ndarray, left_out: int, model: object, cost: float) -> list[float]:
    """Return the joint cost of each way where one class is left out."""
    rng = np.random.default_rng(left_out)
    known, novel = rng.permutation(np.flatnonzero(y != left_out)), rng.permutation(np.flatnonzero(y == left_out))
    train, test = np.split(known, [int(0.7 * len(known))])
    test = np.r_[test, novel[: len(test) // (len(np.unique(y)) - 1)]]
    fitted = RejectOption(model, cost=cost, cv=3).fit(X[train], y[train])
    chow = fitted.set_params(novelty=None).decide(X[test])
    forest = IsolationForest(random_state=0).fit(X[train])
    usual, score = forest.score_samples(X[train]), forest.score_samples(X[test])
    wrong = fitted.classes_[chow.label] != y[test]
    declined = [chow.reject, *(chow.reject | (score < np.quantile(usual, rate)) for rate in _RATES)]
    declined += [fitted.set_params(novelty=rate).decide(X[test]).reject for rate in ("auto", *_RATES)]
    return [float(np.where(reject, cost, wrong).mean()) for reject in declined]
