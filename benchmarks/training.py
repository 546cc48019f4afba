"""Training and prediction against other implementations, on data of the shape of letter and covtype.

All methods train the same rows, epochs and batch size in the same run, one after another on an otherwise idle
machine. With --data DIR the real letter and covtype are read from that folder.
"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.rivals import ANY_LOSS, BATCH, RIVALS, lean_torch, random_data
from demur import RejectClassifier
from demur.costs import PAPER_COSTS
from demur.losses import get
from demur.paper.trial_jobs import NETWORKS_PER_JOB
from demur.training import MLP, Job, NetworkSpec, TrainingData, train, train_all
from demur.workers import n_cores, process_pool

WEIGHT_DECAYS = (1e-7, 1e-4, 1e-1)


def splits(n_rows, n_trials=10):
    return [np.random.default_rng(trial).permutation(n_rows)[: int(0.8 * n_rows)] for trial in range(n_trials)]


def ce_grid(rows):
    return [NetworkSpec(rows[t], seed=t, weight_decay=w) for t in range(len(rows)) for w in WEIGHT_DECAYS]


def apc_grid(rows, n_classes):
    betas = {
        (c, side): float(get("apc+log", beta=side).beta_value(n_classes, c))
        for c in PAPER_COSTS
        for side in ("acc", "rej", "mean")
    }
    return [
        NetworkSpec(rows[t], seed=t, weight_decay=w, cost=c, hyper={"beta": beta})
        for t in range(len(rows)) for (c, _), beta in betas.items() for w in WEIGHT_DECAYS
    ]  # fmt: skip


def seconds(function):
    start = time.perf_counter()
    function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def ours(name, X, y, networks, epochs, device):
    loss = get(name)
    data = TrainingData(torch.from_numpy(X), torch.from_numpy(y))
    architecture = MLP((X.shape[1], 50, loss.n_outputs(int(y.max()) + 1)))
    return train(loss, architecture, data, networks, epochs=epochs, batch_size=BATCH, device=device)


def rival_times(X, y, networks, epochs, device, names=tuple(RIVALS)):
    """Train cross-entropy networks one by one; return the time per network."""
    n_classes, times = int(y.max()) + 1, {}
    ce = torch.nn.CrossEntropyLoss(reduction="none")
    for name in names:
        try:
            times[name] = seconds(
                lambda name=name: [
                    RIVALS[name](X[one.rows], y[one.rows], n_classes, epochs, one.weight_decay, ce, device)
                    for one in networks
                ]
            ) / len(networks)  # fmt: skip
        except ImportError as error:
            print(f"{name} left out: {error}", file=sys.stderr)
    return times


def rival_apc_times(X, y, networks, epochs, device):
    n_classes, times = int(y.max()) + 1, {}
    for name in ANY_LOSS:

        def train_all(name=name):
            for one in networks:
                loss = get("apc+log", beta=one.hyper["beta"])
                RIVALS[name](
                    X[one.rows], y[one.rows], n_classes + 1, epochs, one.weight_decay,
                    lambda s, t, loss=loss, one=one: loss.forward(s, t, one.cost), device,
                )  # fmt: skip

        times[name] = seconds(train_all) / len(networks)
    return times


def prediction_times(X_train, y_train, X_test, device):
    from sklearn.neural_network import MLPClassifier

    small = slice(0, 4000)
    mlp = MLPClassifier((50,), max_iter=5, early_stopping=False, tol=0.0, n_iter_no_change=99)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mlp.fit(X_train[small].astype(np.float64), y_train[small])
    plain = {"hidden_units": 50, "n_members": 1, "epochs": 2, "weight_decay": 1e-4}  # the same network as the rival's
    model = RejectClassifier(**plain, device=device, random_state=0).fit(X_train[small], y_train[small])
    wide = X_test.astype(np.float64)
    model.predict_proba(wide[:10000])
    best = lambda f: min(seconds(f) for _ in range(3))  # noqa: E731
    return {
        "scikit-learn MLPClassifier": best(lambda: mlp.predict_proba(wide)),
        "demur": best(lambda: model.predict_proba(wide)),
    }


def read(folder, name, n_train):
    from sklearn.preprocessing import StandardScaler

    table = np.genfromtxt(f"{folder}/{name}.csv.gz", delimiter=",", skip_header=1, dtype=str)
    _, y = np.unique(table[:, -1], return_inverse=True)
    X = table[:, :-1].astype(np.float32)
    scaler = StandardScaler().fit(X[:n_train])
    X = scaler.transform(X).astype(np.float32)
    return X[:n_train], y[:n_train], X[n_train:]


def load(folder):
    if folder:
        letter, covtype = read(folder, "letter", 15000), read(folder, "covtype", 15120)
        return letter[:2], covtype[:2], covtype[2][:400_000]
    return random_data(15000, 16, 26), random_data(15120, 54, 7), random_data(400_000, 54, 7, seed=1)[0]


SHAPES = {"vehicle": (700, 18, 4), "satimage": (4435, 36, 6), "yeast": (1000, 8, 10), "covtype": (15120, 54, 7),
          "letter": (15000, 16, 26)}  # fmt: skip


def paper_networks(name, rows, n_classes):
    """List the networks that the paper's benchmark trains with one loss on one data set."""
    if get(name).has_rejector:
        betas = [
            (c, float(get(name, beta=b).beta_value(n_classes, c))) for c in PAPER_COSTS for b in ("acc", "rej", "mean")
        ]
        hypers = [(c, {"beta": beta}) for c, beta in betas]
    else:
        hypers = [(c, {}) for c in (PAPER_COSTS if get(name).trained_for_cost else (0.2,))]
    return [NetworkSpec(rows[t], t, w, c, hyper) for t in range(10) for c, hyper in hypers for w in WEIGHT_DECAYS]


def paper_jobs(shape):
    """Return the jobs of the paper's seven methods, on random data of a data set's shape."""
    names = ("apc+log", "apc+exp", "mpc+log", "ova+log", "ova+exp", "ce", "ova+hin")
    n_rows, n_features, n_classes = SHAPES[shape]
    X, y = random_data(n_rows, n_features, n_classes)
    rows, data = splits(n_rows), TrainingData(torch.from_numpy(X), torch.from_numpy(y))
    return [
        Job(
            get(name),
            MLP((n_features, 50, get(name).n_outputs(n_classes))),
            data,
            paper_networks(name, rows, n_classes),
        )
        for name in names
    ]


def floor_seconds(jobs, epochs, rate):
    """Return the time of the matrix products alone at a given rate: forward, and twice as much backward."""
    operations = sum(
        6 * len(network.rows) * epochs * sum(a * b for a, b in pairwise(job.architecture.sizes))
        for job in jobs
        for network in job.networks
    )
    return operations / rate


def product_rate(device):
    """Measure the rate of large single-precision matrix products, with the rounding of the kernels."""
    if not device.startswith("cuda"):
        a = torch.randn(2048, 2048)
        a @ a
        return 5 * 2 * 2048**3 / seconds(lambda: [a @ a for _ in range(5)])
    torch.backends.cuda.matmul.allow_tf32 = True
    a = torch.randn(8192, 8192, device=device)
    a @ a
    torch.cuda.synchronize()
    spent = seconds(lambda: [a @ a for _ in range(10)])
    torch.backends.cuda.matmul.allow_tf32 = False
    return 10 * 2 * 8192**3 / spent


@cache
def jobs_of_shape(shape):
    return paper_jobs(shape)


def train_part(shape, number, start, epochs):
    """Train some networks of a job in a process of the pool."""
    job = jobs_of_shape(shape)[number]
    part = replace(job, networks=job.networks[start : start + NETWORKS_PER_JOB["cpu"]])
    return shape, seconds(lambda: train_all([part], epochs=epochs, batch_size=BATCH, n_workers=1))


def seconds_in_processes(jobs, epochs):
    """Train all jobs as ``demur reproduce`` does on a CPU, and return the wall time and each data set's share."""
    parts = [
        (shape, number, start)
        for shape, own in jobs.items()
        for number, job in enumerate(own)
        for start in range(0, len(job.networks), NETWORKS_PER_JOB["cpu"])
    ]
    parts.sort(key=lambda part: -floor_seconds([jobs[part[0]][part[1]]], 1, 1.0))
    spent = dict.fromkeys(jobs, 0.0)
    with process_pool(n_cores()) as pool:
        list(pool.map(jobs_of_shape, jobs))  # the processes have started

        def run():
            for future in [pool.submit(train_part, *part, epochs) for part in parts]:
                shape, time = future.result()
                spent[shape] += time / n_cores()

        wall = seconds(run)
    return wall, spent


def paper_grid(console, epochs, device) -> None:
    """Time all 7,950 networks of the paper's benchmark, on random data of the right shapes."""
    jobs = {shape: paper_jobs(shape) for shape in SHAPES}
    if not device.startswith("cuda"):
        wall, in_processes = seconds_in_processes(jobs, epochs)
    first = 0.0
    if device.startswith("cuda"):
        first = seconds(lambda: [train_all(own, epochs=1, batch_size=BATCH, device=device) for own in jobs.values()])
    rate = product_rate(device)
    table = Table(title=f"All networks of the paper's benchmark, {epochs} epochs, {device}", title_justify="left")
    for heading in ("data set", "networks", "seconds", "floor"):
        table.add_column(heading, justify="right")
    total = [0, 0.0, 0.0]
    for shape, own in jobs.items():
        if device.startswith("cuda"):
            spent = seconds(lambda own=own: train_all(own, epochs=epochs, batch_size=BATCH, device=device))
        else:
            spent = in_processes[shape]
        networks, floor = sum(len(job.networks) for job in own), floor_seconds(own, epochs, rate)
        table.add_row(shape, f"{networks:,}", f"{spent:.2f}", f"{floor:.2f}")
        total = [one + more for one, more in zip(total, (networks, spent, floor), strict=True)]
    table.add_row("all", f"{total[0]:,}", f"{total[1]:.2f}", f"{total[2]:.2f}")
    console.print(table)
    rounded = f"{rate / 1e12:.0f} TFLOP/s" if rate > 1e13 else f"{rate / 1e9:.0f} GFLOP/s"
    console.print(f"The floor is the products alone at the {rounded} that large ones reach here.")
    if not device.startswith("cuda"):
        console.print(f"A process per core: {n_cores()}. The seconds of a data set are its share of their time.")
        total[1] = wall
    console.print(f"Wall time of the whole benchmark: {total[1]:.1f} s, {total[1] / total[2]:.1f} times the floor.")
    if device.startswith("cuda"):
        console.print(f"One epoch of each before that, with whatever is compiled on first use: {first:.1f} s.")
        everything = [job for own in jobs.values() for job in own]
        together = seconds(lambda: train_all(everything, epochs=epochs, batch_size=BATCH, device=device))
        console.print(f"All data sets in one call: {together:.2f} s.")


def show(console, title, times, base="demur"):
    table = Table(title=title, title_justify="left")
    for heading in ("method", "ms per network and epoch", f"times slower than {base}"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for name, value in times.items():
        table.add_row(name, f"{value:.2f}", f"{value / times[base]:.1f}")
    console.print(table)


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="folder with letter.csv.gz and covtype.csv.gz; synthetic stand-ins without")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--paper-grid", action="store_true", help="time all 7,950 networks of the paper instead")
    parser.add_argument("--memory-probe", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.memory_probe:
        return memory_probe()
    console = Console(width=110)
    if options.paper_grid:
        return paper_grid(console, options.epochs, options.device)
    (X, y), (Xc, yc), X_test = load(options.data)
    source = (
        f"real data from {options.data}" if options.data else "synthetic stand-ins of the shapes of letter and covtype"
    )
    machine = torch.cuda.get_device_name() if options.device.startswith("cuda") else f"{os.cpu_count()} cores"
    console.print(f"[bold]Training[/bold]: {source}; {machine}; torch {torch.__version__}; {options.epochs} epochs\n")
    epochs, device = options.epochs, options.device
    per = 1e3 / epochs
    rows = splits(len(X))
    ours("ce", X, y, ce_grid(rows)[:2], 1, device)
    lean_torch(X[:1000], y[:1000], 26, 1, 0.0, torch.nn.CrossEntropyLoss(), device)

    one = ce_grid(rows)[:1]
    times = {name: per * t for name, t in rival_times(X, y, one, epochs, device).items()}
    times["demur"] = per * seconds(lambda: ours("ce", X, y, one, epochs, device))
    show(console, "One cross-entropy network, letter (12,000 x 16, 26 classes)", times)

    grid = ce_grid(rows)
    times = {name: per * t for name, t in rival_times(X, y, grid, epochs, device).items()}
    times["demur"] = per * seconds(lambda: ours("ce", X, y, grid, epochs, device)) / len(grid)
    show(console, "Grid of 30 cross-entropy networks (10 splits x 3 weight decays), letter", times)

    grid = apc_grid(rows, 26)
    sample = grid[::50]
    times = {
        f"{name} ({len(sample)} of 450)": per * t for name, t in rival_apc_times(X, y, sample, epochs, device).items()
    }
    times["demur"] = per * seconds(lambda: ours("apc+log", X, y, grid, epochs, device)) / len(grid)
    show(console, "APC+log grid of 450 (10 splits x 5 costs x 3 betas x 3 weight decays), letter", times)

    times = prediction_times(Xc, yc, X_test, device)
    table = Table(title=f"Probabilities of {len(X_test):,} x 54 rows", title_justify="left")
    for heading in ("method", "seconds", "times slower than demur"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for name, value in times.items():
        table.add_row(name, f"{value:.3f}", f"{value / times['demur']:.1f}")
    console.print(table)

    if device == "cpu":
        command = [sys.executable, "-m", "benchmarks", "training", "--memory-probe"]
        probe = subprocess.run(
            command + (["--data", options.data] if options.data else []), capture_output=True, text=True
        )
        console.print(probe.stdout.strip() or probe.stderr[-500:])
    return None


def memory(entry: str) -> float:
    """Read this process's memory from the system (Linux), in MiB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(entry))
    return int(line.split()[1]) / 1024


def memory_probe() -> None:
    """Measure the peak memory of training 450 networks on 15,120 x 54, in a separate process."""
    X, y = random_data(15120, 54, 7)
    ours("apc+log", X[:256], y[:256], apc_grid([np.arange(256)], 7)[:1], 1, "cpu")
    grid = apc_grid(splits(len(X)), 7)
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = memory("VmRSS")
    ours("apc+log", X, y, grid, 1, "cpu")
    peak = memory("VmHWM") - before
    print(f"Peak memory of 450 networks on {X.shape[0]:,} x {X.shape[1]}: {peak:.0f} MiB")
    print("above what the loaded program and data take.")


if __name__ == "__main__":
    main()
