"""Data sets: synthetic ones, whose class probabilities are known exactly, and the paper's five from UCI."""

from demur.datasets.synthetic import (
    BayesSummary,
    DeferralRows,
    Estimate,
    GaussianClasses,
    LinearDeferral,
    make_gaussian_classes,
    make_linear_deferral,
    paper_gaussians,
)
from demur.datasets.uci import Dataset, DatasetError, available_datasets, load

__all__ = [
    "BayesSummary",
    "Dataset",
    "DatasetError",
    "DeferralRows",
    "Estimate",
    "GaussianClasses",
    "LinearDeferral",
    "available_datasets",
    "load",
    "make_gaussian_classes",
    "make_linear_deferral",
    "paper_gaussians",
]
