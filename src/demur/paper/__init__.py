"""The paper's experiments: declared as data, run unit by unit, kept in a store, shown beside the published numbers."""

from demur.paper.methods import BENCHMARK, EXPERIMENTS, SYNTHETIC, quick
from demur.paper.plan import Plan, make_plan
from demur.paper.problems import DataPlace
from demur.paper.protocol import Experiment, Method, Protocol
from demur.paper.runner import run_here
from demur.paper.store import Store

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
