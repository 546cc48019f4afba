"""Data sets: synthetic ones, whose class probabilities are known exactly, and the paper's five from UCI."""

from demur.datasets.bayes_summary import BayesSummary, Estimate
from demur.datasets.gaussian_classes import GaussianClasses
from demur.datasets.synthetic import make_gaussian_classes, paper_gaussians
from demur.datasets.uci import Dataset, DatasetError, available_datasets, load

__all__ = [
    "BayesSummary",
    "Dataset",
    "DatasetError",
    "Estimate",
    "GaussianClasses",
    "available_datasets",
    "load",
    "make_gaussian_classes",
    "paper_gaussians",
]
