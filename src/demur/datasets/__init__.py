"""Data sets: synthetic ones, whose class probabilities are known exactly."""

from demur.datasets.bayes_summary import BayesSummary, Estimate
from demur.datasets.gaussian_classes import GaussianClasses
from demur.datasets.synthetic import make_gaussian_classes, paper_gaussians

__all__ = ["BayesSummary", "Estimate", "GaussianClasses", "make_gaussian_classes", "paper_gaussians"]
