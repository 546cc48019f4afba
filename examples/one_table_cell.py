"""Reproduce one row of the paper's Table 6: the 0-1-c risk of cross-entropy on vehicle, ten trials, five costs.

The data set is read from the folder that DEMUR_DATA names, or downloaded once.
"""

import sys
from statistics import mean, stdev
from tempfile import TemporaryDirectory

import torch

from demur.datasets import DatasetError, load
from demur.paper import BENCHMARK, DataPlace, Store, make_plan, run_here

PUBLISHED = {0.05: 0.036, 0.1: 0.063, 0.2: 0.110, 0.3: 0.148, 0.4: 0.182}  # Ni et al. 2019, means over ten trials

try:
    load("vehicle")
except DatasetError as error:
    sys.exit(f"this example needs the data set vehicle: {error}")

experiment = BENCHMARK.only(problems=("vehicle",), methods=("CE",))
with TemporaryDirectory() as out:
    store = Store(out, experiment.name)
    store.check_writable()  # creates the folder
    run_here(make_plan(experiment, store, DataPlace()), torch.device("cpu"))
    scores = [score for record in store.records() for score in record.scores]

print("cross-entropy on vehicle, 146 test rows: mean 0-1-c risk (standard deviation over trials), and as published")
for cost, published in PUBLISHED.items():
    risks = [score.risk for score in scores if score.cost == cost]
    print(f"  c = {cost:<4}: {mean(risks):.3f} ({stdev(risks):.3f}), published {published:.3f}")
