"""The paper's experiments: declared as data, run job by job, stored, and compared with the published numbers."""

from demur.paper.experiments import BENCHMARK, EXPERIMENTS, MODERN, SYNTHETIC, Experiment, Method, Protocol, quick
from demur.paper.problems import DataPlace
from demur.paper.records import Store
from demur.paper.trial_jobs import Plan, Watch, compute_records, make_plan, run_here

__all__ = [
    "BENCHMARK",
    "EXPERIMENTS",
    "MODERN",
    "SYNTHETIC",
    "DataPlace",
    "Experiment",
    "Method",
    "Plan",
    "Protocol",
    "Store",
    "Watch",
    "compute_records",
    "make_plan",
    "quick",
    "run_here",
]
