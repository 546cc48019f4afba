"""The paper's experiments: declared as data, run unit by unit, kept in a store, shown beside the published numbers."""

from demur.experiments.paper import BENCHMARK, EXPERIMENTS, SYNTHETIC, quick
from demur.experiments.plan import Plan, make_plan
from demur.experiments.problems import DataPlace
from demur.experiments.protocol import Experiment, Method, Protocol
from demur.experiments.runner import run_here
from demur.experiments.store import Store

__all__ = [
    "BENCHMARK",
    "EXPERIMENTS",
    "SYNTHETIC",
    "DataPlace",
    "Experiment",
    "Method",
    "Plan",
    "Protocol",
    "Store",
    "make_plan",
    "quick",
    "run_here",
]
