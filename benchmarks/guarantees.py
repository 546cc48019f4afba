"""Guarantees of a risk head to head: demur, SGR (Geifman and El-Yaniv 2017), MAPIE, and what could be known at best.

24 settings, each fitted many times: 19 with normal classes of several numbers and distances, and, with a folder of
tables, five with real rows. n rows are given; a fifth of them is the calibration sample of every method, and the others
train the model, whose temperature is chosen out of fold. New rows measure how many are answered, and whether the risk
is above its target. MAPIE is optional.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from benchmarks.outputs import mapie_controls
from demur import RejectOption, RiskControl
from demur.guarantees import NoGuaranteeError
from demur.guarantees.risk_control import upper_bound

DELTA = 0.1
N_NEW, N_NEW_REAL = 20_000, 5_000
MODELS: dict[str, ClassifierMixin] = {
    "bayes": GaussianNB(),
    "linear": LinearDiscriminantAnalysis(),
    "tree": DecisionTreeClassifier(min_samples_leaf=5, random_state=0),
    "neighbours": KNeighborsClassifier(15),
    "forest": ExtraTreesClassifier(20, random_state=0),
}


class Setting(NamedTuple):
    """Classes and their distance, or a data set; rows; the target risk; and a model."""

    source: int | str
    distance: float
    n_rows: int
    target: float
    model: str


SETTINGS = [
    *(Setting(2, *rest) for rest in ((0.6, 300, 0.2, "bayes"), (0.6, 600, 0.1, "linear"), (0.4, 1000, 0.2, "linear"))),
    *(
        Setting(2, *rest)
        for rest in ((0.7, 2000, 0.1, "tree"), (0.7, 5000, 0.02, "bayes"), (1.1, 1500, 0.02, "linear"))
    ),
    *(Setting(3, *rest) for rest in ((0.6, 300, 0.2, "neighbours"), (0.55, 600, 0.1, "bayes"))),
    *(Setting(3, *rest) for rest in ((0.7, 1500, 0.05, "linear"), (0.8, 3000, 0.02, "bayes"))),
    *(Setting(5, *rest) for rest in ((1.2, 600, 0.1, "linear"), (1.2, 1000, 0.05, "bayes"))),
    *(Setting(5, *rest) for rest in ((1.2, 2000, 0.2, "tree"), (1.2, 5000, 0.05, "neighbours"))),
    *(Setting(10, *rest) for rest in ((1.2, 600, 0.2, "bayes"), (1.4, 1500, 0.1, "linear"))),
    *(Setting(10, *rest) for rest in ((1.4, 3000, 0.05, "neighbours"),)),
    *(Setting(20, *rest) for rest in ((1.0, 1000, 0.2, "linear"), (1.1, 5000, 0.05, "bayes"))),
    Setting("letter", 0, 3000, 0.05, "forest"),
    Setting("letter", 0, 5000, 0.1, "linear"),
    Setting("covtype", 0, 2000, 0.2, "forest"),
    Setting("covtype", 0, 5000, 0.2, "tree"),
    Setting("satimage", 0, 1000, 0.05, "neighbours"),
]
"""From 300 to 5,000 rows, targets from 2 to 20 %, and models from weak to strong."""


class Rows(NamedTuple):
    """Confidences and errors of calibration rows, out-of-fold training rows, and new rows."""

    calibration: tuple[np.ndarray, np.ndarray]
    out_of_fold: tuple[np.ndarray, np.ndarray]
    new: tuple[np.ndarray, np.ndarray]


def main(arguments: list[str] | None = None) -> None:
    """Print a line for each setting, and the means."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks guarantees")
    parser.add_argument("--data", help="folder with letter, covtype and satimage (default: synthetic settings only)")
    parser.add_argument("--fits", type=int, default=100, help="fits in each setting")
    options, _ = parser.parse_known_args(arguments)
    methods, shown = all_methods(), [one for one in SETTINGS if options.data or not isinstance(one.source, str)]
    if len(shown) < len(SETTINGS):
        print(
            f"guarantees: {len(SETTINGS) - len(shown)} settings with real rows are left out; give a folder with --data"
        )
    print(f"share of new rows answered / share of {options.fits} fits with a risk above the target, at delta = {DELTA}")
    print(f"{'setting':<40}" + "".join(f"{name:>16}" for name in methods) + f"{'best':>8}")
    found = []
    for setting in shown:
        line = _measure(setting, methods, options)
        found.append(line)
        words = f"{setting.source} {setting.distance or ''} n={setting.n_rows} {setting.target:.0%} {setting.model}"
        cells = "".join(f"{covered:9.3f} / {broken:.2f}" for covered, broken in line[:-1])
        print(f"{words:<40}{cells}{line[-1][0]:8.3f}", flush=True)
    covered, broken = np.array(found)[:, :, 0], np.array(found)[:, :, 1]
    se = np.sqrt(DELTA * (1 - DELTA) / options.fits)
    print(f"{'mean':<40}" + "".join(f"{mean:9.3f}       " for mean in covered.mean(axis=0)[:-1]), end="")
    print(f"{covered[:, -1].mean():8.3f}")
    print(f"{'most violations':<40}" + "".join(f"{most:16.3f}" for most in broken.max(axis=0)[:-1]))
    print(f"{'least, compared with spread delta':<40}" + "".join(f"{d:+16.3f}" for d in _least(covered)))
    print(f"delta plus two standard errors of one setting: {DELTA + 2 * se:.3f}")
    _print_shares(options.fits)


def _least(covered: np.ndarray) -> np.ndarray:
    return (covered[:, :-1] - covered[:, [1]]).min(axis=0)


Method = Callable[[Rows, float], float]
"""Returns a threshold; above 1 without a guarantee."""


def all_methods() -> dict[str, Method]:
    """Return the methods to compare, by their names."""
    found: dict[str, Method] = {"demur": guided, "spread delta": spread, "SGR": sgr}
    for name, control in mapie_controls(DELTA).items():
        if name in ("MAPIE multiclass, error rate, Holm", "MAPIE multiclass, sequence to 0.9999"):
            found["MAPIE " + name.split(", ")[-1].split(" ")[0]] = _of_control(control)
    return found


def spread(rows: Rows, target: float) -> float:
    """Spread delta over all thresholds, as without out-of-fold rows."""
    try:
        return RiskControl(target, DELTA).fit_confidence(*rows.calibration).threshold_
    except NoGuaranteeError:
        return 2.0


def guided(rows: Rows, target: float) -> float:
    """Spend most of delta where the out-of-fold rows tell."""
    try:
        return RiskControl(target, DELTA).fit_confidence(*rows.calibration, out_of_fold=rows.out_of_fold).threshold_
    except NoGuaranteeError:
        return 2.0


def sgr(rows: Rows, target: float) -> float:
    """Search by bisection, with delta divided by the number of steps (Geifman and El-Yaniv 2017, algorithm 1)."""
    order = np.argsort(rows.calibration[0])
    confidence, wrong = (values[order] for values in rows.calibration)
    low, high, found = 0, len(order) - 1, 2.0
    steps = int(np.ceil(np.log2(len(order))))
    for _ in range(steps):
        middle = (low + high + 1) // 2
        accepted = confidence >= confidence[middle]
        if upper_bound(wrong[accepted].sum(), accepted.sum(), DELTA / steps) < target:
            found, high = min(found, float(np.nextafter(confidence[middle], 0))), middle
        else:
            low = middle
    return found


def _of_control(control: Callable) -> Method:
    def threshold(rows: Rows, target: float) -> float:
        confidence, wrong = rows.calibration
        grid = np.unique(rows.new[0])
        accept = control(_columns(confidence), wrong.astype(int), _columns(grid), target)
        return 2.0 if accept is None or not accept.any() else float(np.nextafter(grid[accept.argmax()], 0))

    return threshold


def _columns(confidence: np.ndarray) -> np.ndarray:
    """Return probabilities of many classes of which the first is the likeliest, with this confidence."""
    return np.column_stack([confidence, np.tile((1 - confidence[:, None]) / 39, 39)])


def _measure(setting: Setting, methods: dict[str, Method], options: argparse.Namespace) -> list[tuple[float, float]]:
    """Return for each method, and at last for the best threshold, the coverage and the share of violations."""
    answered: list[list[float]] = []
    broken: list[list[bool]] = []
    for rows in fits(setting, options.fits, options.data):
        confidence, wrong = rows.new
        order = np.argsort(-confidence)
        risk = np.cumsum(wrong[order]) / np.arange(1, len(wrong) + 1)
        accepted = [confidence > method(rows, setting.target) for method in methods.values()]
        best = np.flatnonzero(risk <= setting.target)
        answered.append([one.mean() for one in accepted] + [(best[-1] + 1) / len(wrong) if len(best) else 0.0])
        broken.append([one.any() and wrong[one].mean() > setting.target for one in accepted] + [False])
    return list(zip(np.mean(answered, axis=0), np.mean(broken, axis=0), strict=True))


def fits(setting: Setting, n_fits: int, data: str | None, share: float = 0.2) -> Iterator[Rows]:
    """Fit the model of a setting again and again, on other rows."""
    table = _table(setting.source, data) if isinstance(setting.source, str) else None
    for seed in range(n_fits):
        rng = np.random.default_rng(seed)
        if table is None:
            X, y = _normal(rng, setting, setting.n_rows + N_NEW)
        else:
            rows = rng.permutation(len(table[1]))[: setting.n_rows + N_NEW_REAL]
            X, y = table[0][rows], table[1][rows]
        n_aside = int(share * setting.n_rows)
        own, aside, new = slice(n_aside, setting.n_rows), slice(n_aside), slice(setting.n_rows, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kept = np.isin(y, np.unique(y[own]))  # a class without training rows cannot be learned
            model = RejectOption(MODELS[setting.model], calibration="temperature", novelty=None).fit(X[own], y[own])
        codes = np.searchsorted(model.classes_, y)

        def judged(part: slice, X=X, kept=kept, codes=codes, model=model) -> tuple[np.ndarray, np.ndarray]:
            proba = model.predict_proba(X[part])
            return proba.max(axis=1), (proba.argmax(axis=1) != codes[part]) | ~kept[part]

        yield Rows(judged(aside), model.out_of_fold_, judged(new))


def _normal(rng: np.random.Generator, setting: Setting, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return normal classes in eight dimensions; every second class is wider."""
    centres = np.random.default_rng(setting.source).normal(size=(setting.source, 8)) * setting.distance
    y = rng.integers(setting.source, size=n_rows)
    return centres[y] + rng.normal(size=(n_rows, 8)) * (1 + 0.3 * (y % 2))[:, None], y


def _table(name: str, folder: str) -> tuple[np.ndarray, np.ndarray]:
    from demur.datasets import load

    data = load(name, folder)
    if name == "covtype":  # whose training rows have equally many of each class
        return data.X_test, data.y_test
    return np.vstack([data.X_train, data.X_test]), np.append(data.y_train, data.y_test)


def _print_shares(n_fits: int) -> None:
    """Print what a larger calibration sample brings where rows are few."""
    setting = Setting(3, 0.55, 600, 0.1, "bayes")
    print(f"\nn = {setting.n_rows}, target {setting.target:.0%}: rows answered by the share that is set aside")
    for share in (0.2, 0.35, 0.5, 0.65):
        found = [(rows.new[0] > guided(rows, setting.target)).mean() for rows in fits(setting, n_fits, None, share)]
        print(f"{share:6.2f} {np.mean(found):8.3f} +- {np.std(found) / np.sqrt(n_fits):.3f}")
