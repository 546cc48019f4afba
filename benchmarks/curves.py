"""Risk-coverage curve and its areas against other implementations, on the same points.

scikit-fallback and torch-uncertainty take part where they are installed; neither is needed for anything else. The
points come twice: with distinct confidences, and rounded to three decimals, where a row order decides the areas of
whoever does not treat ties.
"""

import argparse
import importlib.util
import pathlib
import resource
import subprocess
import sys
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from demur.metrics import RiskCoverage

N_SLOW = 3000
"""Points for scikit-fallback, whose time grows with the square of their number."""


def points(n, decimals=None, seed=0):
    """Probabilities of two classes, and labels that follow them."""
    rng = np.random.default_rng(seed)
    positive = rng.random(n) if decimals is None else rng.random(n).round(decimals)
    y = (rng.random(n) < positive).astype(np.int64)
    return np.c_[1 - positive, positive], y


def demur(proba, y):
    curve = RiskCoverage.from_confidence(proba.max(axis=1), proba.argmax(axis=1) != y)
    curve.coverage_at(risk=0.05), curve.risk_at(coverage=0.8)
    return curve.aurc


def numpy_sort_and_sum(proba, y):
    """Compute the same figures with a few lines of NumPy; tied rows stay in their order."""
    n = len(y)
    wrong = (proba.argmax(axis=1) != y).astype(float)
    ranks = np.arange(1, n + 1)
    order = np.argsort(-proba.max(axis=1), kind="stable")
    risk = np.cumsum(wrong[order]) / ranks
    aurc = risk.mean()
    aurc - (np.cumsum(np.sort(wrong)) / ranks).mean()
    np.trapezoid(np.append(0, risk * ranks / n), np.append(0, ranks / n))
    good = np.flatnonzero(risk <= 0.05)
    (good[-1] + 1) / n if len(good) else 0.0, risk[int(np.ceil(0.8 * n)) - 1]
    return aurc


def torch_uncertainty():
    """Load the one file that is needed: the package itself imports torchvision and more."""
    package = importlib.util.find_spec("torch_uncertainty")
    if package is None:
        raise ImportError("not installed")
    path = pathlib.Path(package.submodule_search_locations[0]) / "metrics" / "classification" / "risk_coverage.py"
    spec = importlib.util.spec_from_file_location("risk_coverage_of_torch_uncertainty", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    import torch

    def areas(proba, y):
        rows, labels = torch.from_numpy(proba), torch.from_numpy(y)
        values = []
        for make in (module.AURC, module.AUGRC, module.CovAt5Risk, module.RiskAt80Cov):
            metric = make()
            metric.update(rows, labels)
            values.append(float(metric.compute()))
        return values[0]

    return areas


def scikit_fallback():
    from skfb.metrics import fallback_quality_curve

    def area(proba, y):
        _, accuracies, _ = fallback_quality_curve(y, proba, max_fallback_rate=1.0, raise_warning=False)
        return float(np.mean(1 - np.array(accuracies)))

    return area


def seconds(function, *arguments, repeat=3):
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        value = function(*arguments)
        times.append(time.perf_counter() - start)
    return min(times), value


def shuffled(proba, y, seed=1):
    order = np.random.default_rng(seed).permutation(len(y))
    return proba[order], y[order]


def compare(console, title, methods, data):
    table = Table(title=title, title_justify="left")
    for heading in ("method", "seconds", "times demur's", "AURC", "same rows, shuffled"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    base = None
    for name, method in methods.items():
        try:
            spent, aurc = seconds(method, *data)
            again = method(*shuffled(*data))
        except Exception as error:  # a rival that fails on these points is reported as such
            table.add_row(name, f"fails: {type(error).__name__}", "", "", "")
            continue
        base = base or spent
        moved = "equal" if aurc == again else f"differs by {abs(aurc - again):.1g}"
        table.add_row(name, f"{spent:.4f}", f"{spent / base:.1f}", f"{aurc:.8f}", moved)
    console.print(table)


def available():
    """Return the rivals that are installed; print why the others are left out."""
    methods = {"demur": demur, "NumPy, sort and sum": numpy_sort_and_sum}
    for name, load in (("torch-uncertainty", torch_uncertainty), ("scikit-fallback", scikit_fallback)):
        try:
            methods[name] = load()
        except ImportError as error:
            print(f"{name} left out: {error}", file=sys.stderr)
    return methods


def large(n) -> None:
    """Time one curve of many points in a separate process, and print its peak memory, including the points."""
    rng = np.random.default_rng(0)
    confidence = rng.random(n)
    wrong = rng.random(n) > confidence
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    RiskCoverage.from_confidence(confidence, wrong)
    spent = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{n:,} points: {spent:.2f} s, peak memory {peak / 1e6:.2f} GB (before: {before / 1e6:.2f} GB)")


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--large", type=int, default=10_000_000, help="points of the memory probe; 0 leaves it out")
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    options, _ = parser.parse_known_args(arguments)
    if options.probe:
        return large(options.large)
    console = Console(width=110)
    if options.large:  # first: a new process starts with the peak memory of the one that starts it
        command = [sys.executable, "-m", "benchmarks.curves", "--probe", "--large", str(options.large)]
        console.print(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    methods = available()
    fast = {name: method for name, method in methods.items() if name != "scikit-fallback"}
    compare(console, f"{options.points:,} points, curve and areas", fast, points(options.points))
    compare(console, f"{options.points:,} points with ties", fast, points(options.points, decimals=3))
    if "scikit-fallback" in methods:
        compare(console, f"{N_SLOW:,} points (scikit-fallback is quadratic)", methods, points(N_SLOW))
        compare(console, f"{N_SLOW:,} points with ties", methods, points(N_SLOW, decimals=3))
    return None


if __name__ == "__main__":
    main()
