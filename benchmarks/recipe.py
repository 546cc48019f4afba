"""The recipe for tables against pytabkit's RealMLP, whose recipe it is: time and quality of five folds on the CPU.

Both train the same number of epochs on the same rows, one after the other. pytabkit is not a dependency of demur:
``pip install pytabkit`` to have the comparison, or set DEMUR_PYTABKIT to the Python of an environment that has it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import make_classification
from sklearn.model_selection import StratifiedKFold, train_test_split

from demur.calibration import TemperatureScaling
from demur.estimators.network_selection import scaled_inputs
from demur.losses import get
from demur.training import (
    NetworkSpec,
    PeriodicEmbeddings,
    Recipe,
    TabularNet,
    TrainingData,
    robust_scale,
    train_tabular,
)
from demur.training.robust_scaling import CLIP

RIVAL = """
import json, sys, time, warnings
warnings.filterwarnings("ignore")
import numpy as np
from pytabkit import RealMLP_TD_Classifier
data, options = np.load(sys.argv[1]), json.loads(sys.argv[2])
RealMLP_TD_Classifier(device="cpu", n_cv=2, n_epochs=1, verbosity=0).fit(data["X"][:512], data["y"][:512])
start = time.perf_counter(), time.process_time()
model = RealMLP_TD_Classifier(device="cpu", n_cv=5, random_state=0, verbosity=0, **options).fit(data["X"], data["y"])
seconds = time.perf_counter() - start[0], time.process_time() - start[1]
np.save(sys.argv[3], model.predict_proba(data["X_test"]))
print(json.dumps(seconds))
"""


def problem(n_rows):
    """Return a table with the shape of letter: 16 features, 26 classes, three quarters of the rows to train on."""
    X, y = make_classification(
        n_rows, 16, n_informative=12, n_redundant=2, n_classes=26, n_clusters_per_class=2, class_sep=2.0, random_state=0
    )
    return train_test_split(X.astype(np.float32), y, test_size=0.25, random_state=0, stratify=y)


def ours(X, y, X_test, epochs, embeddings):
    """Return the seconds, wall and CPU, and the probabilities of the mean scores, calibrated on held-out rows."""
    start = time.perf_counter(), time.process_time()
    center, scale = robust_scale(X.astype(np.float64), np.ones(len(X)))
    rows, test = (torch.from_numpy(scaled_inputs(part, center, scale, CLIP)) for part in (X, X_test))
    splits = StratifiedKFold(5, shuffle=True, random_state=0).split(X, y)
    specs = [NetworkSpec(train, seed=fold, validation=validation) for fold, (train, validation) in enumerate(splits)]
    net = TabularNet(X.shape[1], int(y.max()) + 1, embeddings=embeddings)
    run = train_tabular(get("ce"), net, TrainingData(rows, torch.from_numpy(y)), specs, recipe=Recipe(epochs=epochs))
    seconds = time.perf_counter() - start[0], time.process_time() - start[1]
    held_out = [run.trained.take([fold]).scores(rows[spec.validation])[0] for fold, spec in enumerate(specs)]
    labels = y[np.concatenate([spec.validation for spec in specs])]
    scaling = TemperatureScaling(from_logits=True).fit(torch.cat(held_out).numpy(), labels)
    return seconds, scaling.transform(run.trained.scores(test).mean(0).numpy())


def theirs(X, y, X_test, options):
    python = os.environ.get("DEMUR_PYTABKIT", sys.executable)
    with tempfile.TemporaryDirectory() as folder:
        data, proba = Path(folder, "data.npz"), Path(folder, "proba.npy")
        np.savez(data, X=X, y=y, X_test=X_test)
        call = [python, "-c", RIVAL, data, json.dumps(options), proba]
        result = subprocess.run(call, capture_output=True, text=True, check=False)
        if result.returncode:
            raise RuntimeError(result.stderr.strip().splitlines()[-1])
        return json.loads(result.stdout.strip().splitlines()[-1]), np.load(proba)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks recipe", description=__doc__)
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--epochs", type=int, default=32)
    options, _ = parser.parse_known_args(arguments)
    X, X_test, y, y_test = problem(options.rows)
    table = Table(title=f"Five networks, {len(y):,} x {X.shape[1]} rows of 26 classes, {options.epochs} epochs, CPU")
    for heading in ("", "seconds", "CPU seconds", "times ours", "log loss", "wrong"):
        table.add_column(heading, justify="right" if heading else "left")
    for title, embeddings, rival in (
        ("no embeddings", None, {"num_emb_type": "none", "use_ls": False}),
        ("periodic embeddings", PeriodicEmbeddings(), {"use_ls": False}),
    ):
        (wall, cpu), proba = ours(X, y, X_test, options.epochs, embeddings)
        table.add_row(f"demur, {title}", f"{wall:.1f}", f"{cpu:.1f}", "", *quality(proba, y_test))
        try:
            (their_wall, their_cpu), proba = theirs(X, y, X_test, {"n_epochs": options.epochs, **rival})
        except RuntimeError as error:
            print(f"RealMLP left out: {error}", file=sys.stderr)
            continue
        ratio = f"{their_wall / wall:.1f}, {their_cpu / cpu:.1f} of CPU"
        table.add_row(f"RealMLP, {title}", f"{their_wall:.1f}", f"{their_cpu:.1f}", ratio, *quality(proba, y_test))
    Console().print(table)


def quality(proba, y):
    log_loss = -np.log(np.maximum(proba[np.arange(len(y)), y], 1e-12)).mean()
    return f"{log_loss:.4f}", f"{(proba.argmax(1) != y).mean():.2%}"


if __name__ == "__main__":
    main()
