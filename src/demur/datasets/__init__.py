"""Data sets: synthetic ones, whose class probabilities are known exactly, and the paper's five from UCI."""

from demur.datasets.synthetic import (
    BayesSummary,
    Estimate,
    GaussianClasses,
    make_gaussian_classes,
    paper_gaussians,
)
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
