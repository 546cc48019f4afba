"""Time of the forward and backward pass of cross-entropy, against torch's own."""

import argparse
import time

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

from demur.losses import as_module, get

SHAPES = ((128, 10), (256, 1000), (32, 100_000))


def step(loss, scores, y):
    """Return a function that computes the mean loss and its gradient."""

    def run():
        scores.grad = None
        loss(scores, y).backward()

    return run


def least_times(functions, repeats, device):
    """Return the shortest time of each; they are run in turn, so that other load affects all of them."""
    least = [float("inf")] * len(functions)
    for _ in range(repeats):
        for number, function in enumerate(functions):
            started = time.perf_counter()
            function()
            if device == "cuda":
                torch.cuda.synchronize()
            least[number] = min(least[number], time.perf_counter() - started)
    return least


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks losses", description=__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    options, _ = parser.parse_known_args(arguments)
    losses = {
        "F.cross_entropy": F.cross_entropy,
        'as_module("ce")': as_module("ce"),
        'get("ce"), values checked': lambda scores, y: get("ce")(scores, y).mean(),
    }
    table = Table(title=f"forward and backward pass in ms on {options.device}; least of {options.repeats} runs")
    for heading in ("rows x classes", *losses):
        table.add_column(heading, justify="right")
    for n_rows, n_classes in SHAPES:
        scores = torch.randn(n_rows, n_classes, device=options.device, requires_grad=True)
        y = torch.randint(n_classes, (n_rows,), device=options.device)
        steps = [step(loss, scores, y) for loss in losses.values()]
        times = least_times(steps, options.repeats, options.device)
        cells = [f"{1000 * one:.3f} ({one / times[0]:.2f})" for one in times]
        table.add_row(f"{n_rows:,} x {n_classes:,}", *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
