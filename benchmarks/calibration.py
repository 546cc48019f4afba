"""Calibration "auto" head to head with scikit-learn's temperature and sigmoid, by log loss on other rows.

Twelve pairs of data and model: five tables of the paper's benchmark (``--data``), scikit-learn's digits, and stored
outputs of networks (``--outputs``, as for ``python -m benchmarks outputs``), half of whose rows calibrate.
"""

import argparse
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from demur import RejectOption
from demur.metrics import zero_one_c_risk

MODELS = {
    "forest": RandomForestClassifier(100, min_samples_leaf=2, random_state=0),
    "trees": ExtraTreesClassifier(100, random_state=0),
    "bayes": GaussianNB(),
    "neighbours": make_pipeline(StandardScaler(), KNeighborsClassifier(15)),
    "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
}
PAIRS = [
    *(("vehicle", name) for name in ("forest", "bayes", "logistic")),
    *(("yeast", name) for name in ("forest", "trees")),
    *(("satimage", name) for name in ("forest", "bayes", "neighbours")),
    *(("letter", name) for name in ("trees", "bayes")),
    *(("digits", name) for name in ("forest", "bayes")),
]
MOST_TRAINING, MOST_TEST = 4000, 5000


class Stored(ClassifierMixin, BaseEstimator):
    """A classifier whose features are its probabilities."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Stored":
        self.classes_ = np.arange(X.shape[1])
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return X

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[X.argmax(axis=1)]


def main(arguments: list[str] | None = None) -> None:
    """Print the log losses of each pair."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks calibration")
    parser.add_argument("--data", help="folder with vehicle, yeast, satimage and letter (default: digits only)")
    parser.add_argument("--outputs", default=os.environ.get("DEMUR_OUTPUTS"), help="folder with .npz files")
    options, _ = parser.parse_known_args(arguments)
    print(
        f"{'log loss':<32}{'demur auto':>12}{'temperature':>13}{'sigmoid':>10}{'ratio to best':>15}{'cost at 0.05':>14}"
    )
    ratios = []
    for name, model, (X, y, X_test, y_test) in _problems(options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            own = RejectOption(model, cost=0.05, novelty=None).fit(X, y)
            losses = [log_loss(y_test, own.predict_proba(X_test), labels=own.classes_)]
            for method in ("temperature", "sigmoid"):
                other = CalibratedClassifierCV(
                    model,
                    method=method,
                    cv=min(5, int(np.bincount(np.unique(y, return_inverse=True)[1]).min())),
                    ensemble=False,
                ).fit(X, y)
                losses.append(log_loss(y_test, other.predict_proba(X_test), labels=other.classes_))
        ratios.append(losses[0] / min(losses[1:]))
        cost = zero_one_c_risk(y_test, own.predict(X_test), cost=0.05)
        numbers = "".join(f"{loss:{width}.4f}" for loss, width in zip(losses, (12, 13, 10), strict=True))
        print(f"{name:<32}{numbers}{ratios[-1]:15.3f}{cost:14.4f}  {_kind(own)}", flush=True)
    print(f"at most 1.01 times the best of both: {np.sum(np.array(ratios) <= 1.01)} of {len(ratios)}")


def _kind(model: RejectOption) -> str:
    if not hasattr(model.calibrator_, "temperature_"):
        return "sigmoid"
    return "none" if model.calibrator_.temperature == 1 else "biases" if model.calibrator_.biases else "temperature"


def _problems(options: argparse.Namespace) -> Iterator[tuple[str, ClassifierMixin, tuple[np.ndarray, ...]]]:
    rng = np.random.default_rng(0)
    for name, model in PAIRS:
        if name == "digits":
            X, y = load_digits(return_X_y=True)
            rows = rng.permutation(len(y))
            train, test = rows[:1200], rows[1200:]
            yield f"{name}, {model}", MODELS[model], (X[train], y[train], X[test], y[test])
        elif options.data:
            from demur.datasets import load

            data = load(name, options.data)
            train = rng.permutation(len(data.y_train))[:MOST_TRAINING]
            test = rng.permutation(len(data.y_test))[:MOST_TEST]
            parts = data.X_train[train], data.y_train[train], data.X_test[test], data.y_test[test]
            yield f"{name}, {model}", MODELS[model], parts
    for file in sorted(Path(options.outputs).glob("*.npz")) if options.outputs else ():
        with np.load(file) as arrays:
            proba, y = arrays["predictions"].astype(np.float64), arrays["ground_truth"].ravel().astype(np.int64)
        proba /= proba.sum(axis=1, keepdims=True)
        rows = rng.permutation(len(y))
        train, test = rows[: len(y) // 2], rows[len(y) // 2 :]
        stored = FrozenEstimator(Stored().fit(proba, y))
        yield file.stem[-30:], stored, (proba[train], y[train], proba[test], y[test])
