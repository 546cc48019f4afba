"""Data sets: synthetic ones, whose class probabilities are known exactly, and the paper's five from UCI."""

from demur.datasets.gaussian_classes import (
    BayesSummary,
    Estimate,
    GaussianClasses,
    make_gaussian_classes,
    paper_gaussians,
)
from demur.datasets.linear_deferral import DeferralRows, LinearDeferral, make_linear_deferral
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
