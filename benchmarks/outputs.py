"""Stored outputs of networks: the order of confidence scores, and guarantees next to MAPIE's controllers.

Needs a folder with .npz files that hold ``predictions`` (probabilities) and ``ground_truth``. MAPIE is optional.
"""

import argparse
import io
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from demur import RiskControl
from demur.calibration import TemperatureScaling
from demur.guarantees import NoGuaranteeError
from demur.metrics import RiskCoverage
from demur.tabular import fit_proba

TARGETS = (0.02, 0.05)
DELTA = 0.05


def main(arguments: list[str] | None = None) -> None:
    """Print both tables for each file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks outputs")
    folder = os.environ.get("DEMUR_OUTPUTS")
    parser.add_argument("--data", default=folder, help="folder with .npz files (default: the variable DEMUR_OUTPUTS)")
    parser.add_argument("--splits", type=int, default=20, help="random halves to average over")
    options, _ = parser.parse_known_args(arguments)
    files = sorted(Path(options.data).glob("*.npz")) if options.data else []
    if not files:
        print("outputs: no .npz files; give a folder with --data")
        return
    for file in files:
        with np.load(file) as arrays:
            proba, y = arrays["predictions"].astype(np.float64), arrays["ground_truth"].ravel().astype(np.int64)
        proba /= proba.sum(axis=1, keepdims=True)
        print(
            f"\n{file.stem}: {len(y):,} rows, {proba.shape[1]} classes, {(proba.argmax(axis=1) != y).mean():.2%} wrong"
        )
        _print_areas(proba, y, options.splits)
        _print_guarantees(proba, y, options.splits)


def halves(n_rows: int, n_splits: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield random halves of the rows."""
    for seed in range(n_splits):
        order = np.random.default_rng(seed).permutation(n_rows)
        yield order[: n_rows // 2], order[n_rows // 2 :]


def scores(proba: np.ndarray) -> dict[str, np.ndarray]:
    """Return the usual confidence scores of probabilities."""
    two = np.partition(proba, -2, axis=1)[:, -2:]
    logs = np.log(np.maximum(proba, np.finfo(np.float64).tiny))
    return {
        "max-softmax": two[:, 1],
        "entropy": (proba * logs).sum(axis=1),
        "margin": two[:, 1] - two[:, 0],
        "sum of squares": (proba**2).sum(axis=1),
    }


def _print_areas(proba: np.ndarray, y: np.ndarray, n_splits: int) -> None:
    found: dict[str, list[tuple[float, float]]] = {}
    for fit, test in halves(len(y), n_splits):
        calibrated = TemperatureScaling().fit(proba[fit], y[fit]).transform(proba[test])
        wrong = proba[test].argmax(axis=1) != y[test]
        for name, confidence in {"demur": calibrated.max(axis=1), **scores(proba[test])}.items():
            curve = RiskCoverage.from_confidence(confidence, wrong)
            found.setdefault(name, []).append((curve.aurc, curve.augrc))
    print(f"\n{'confidence':<16} {'AURC':>8} {'AUGRC':>8}   (x 1,000; mean of {n_splits} halves)")
    for name, areas in found.items():
        aurc, augrc = 1000 * np.mean(areas, axis=0)
        print(f"{name:<16} {aurc:8.3f} {augrc:8.3f}")


Control = Callable[[np.ndarray, np.ndarray, np.ndarray, float], np.ndarray | None]
"""Returns which test rows are answered, or None without a guarantee."""


def _print_guarantees(proba: np.ndarray, y: np.ndarray, n_splits: int) -> None:
    controls: dict[str, Control] = {"demur": demur_answers, **mapie_controls()}
    title = "answered on average, error rate of the answers, halves above the target, halves without a guarantee"
    print(f"\nguarantee with probability {1 - DELTA:g}: {title}")
    for target in TARGETS:
        for name, control in controls.items():
            answered, errors, refused, started = [], [], 0, time.perf_counter()
            for fit, test in halves(len(y), n_splits):
                accept = control(proba[fit], y[fit], proba[test], target)
                refused += accept is None
                accept = np.zeros(len(test), dtype=bool) if accept is None else accept
                answered.append(accept.mean())
                if accept.any():
                    errors.append((proba[test].argmax(axis=1) != y[test])[accept].mean())
            error = f"{np.mean(errors):7.2%}" if errors else "      -"
            broken = sum(one > target for one in errors)
            seconds = (time.perf_counter() - started) / n_splits
            print(f"{target:4.0%} {name:<42} {np.mean(answered):7.1%} {error} {broken:4} {refused:4} {seconds:8.2f} s")


def demur_answers(proba: np.ndarray, y: np.ndarray, new: np.ndarray, target: float) -> np.ndarray | None:
    """Calibrate and fit the rule on the rows, by ``demur fit --proba --max-risk``."""
    file = io.BytesIO()
    np.savez(file, predictions=proba, y=y)
    try:
        fitted = fit_proba(io.BytesIO(file.getvalue()), "y", rule=RiskControl(target, DELTA), holdout=0)
    except NoGuaranteeError:
        return None
    classifier = fitted.model.classifier
    return ~classifier.decide(new[:, classifier.classes_.astype(int)]).reject


def mapie_controls(delta: float = DELTA) -> dict[str, Control]:
    """Return MAPIE's controllers of the same risk; none where MAPIE is not installed."""
    try:
        from mapie.risk_control import BinaryClassificationController, BinaryRisk, MultiClassificationLTTController
        from mapie.risk_control.risks import build_precision_ovr, precision
    except ImportError:
        print("\nMAPIE is not installed: pip install mapie")
        return {}
    error = BinaryRisk(lambda true, said: said != true, lambda true, said: ~np.isnan(said), higher_is_better=False)
    grid, fine = np.linspace(0, 0.99, 100), 1 - np.geomspace(1e-4, 1, 100)

    def multiclass(
        risks: Callable[[int], list], levels: Callable[[float], float], fwer: str, lambdas: np.ndarray
    ) -> Control:
        def control(proba: np.ndarray, y: np.ndarray, new: np.ndarray, target: float) -> np.ndarray | None:
            chosen = risks(proba.shape[1])
            controller = MultiClassificationLTTController(
                lambda rows: rows,
                chosen,
                [levels(target)] * len(chosen),
                confidence_level=1 - delta,
                list_predict_params=lambdas,
                classes=np.arange(proba.shape[1]),
                fwer_method=fwer,
            )
            return _threshold(controller, proba, y, new)

        return control

    def binary(proba: np.ndarray, y: np.ndarray, new: np.ndarray, target: float) -> np.ndarray | None:
        def is_right(rows: np.ndarray) -> np.ndarray:
            return np.column_stack([1 - rows.max(axis=1), rows.max(axis=1)])

        controller = BinaryClassificationController(
            is_right, precision, 1 - target, confidence_level=1 - delta, list_predict_params=grid[::-1],
            fwer_method="fixed_sequence",
        )  # fmt: skip
        return _threshold(controller, proba, (proba.argmax(axis=1) == y).astype(int), new)

    one, same = (lambda k: [error]), (lambda target: target)
    return {
        "MAPIE multiclass, error rate, Holm": multiclass(one, same, "bonferroni_holm", grid),
        "MAPIE multiclass, error rate, sequence": multiclass(one, same, "fixed_sequence", grid[::-1]),
        "MAPIE multiclass, sequence to 0.9999": multiclass(one, same, "fixed_sequence", fine),
        "MAPIE multiclass, precision of each class": multiclass(
            lambda k: build_precision_ovr(np.arange(k)), lambda target: 1 - target, "bonferroni_holm", grid
        ),
        "MAPIE binary, answer right, sequence": binary,
    }


def _threshold(controller: object, proba: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray | None:
    """Calibrate a controller and take the lowest of its valid thresholds, which answers most."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no threshold is valid
        controller.calibrate(proba, y)
    valid = np.ravel(controller.valid_predict_params)
    return None if not len(valid) else new.max(axis=1) >= valid.min()
