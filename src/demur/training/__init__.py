"""The stacked engine: many networks as one tensor program.

:func:`train` takes any architecture with AMSGrad at a constant rate, as in the paper. :func:`train_tabular` takes a
:class:`TabularNet` through the recipe of RealMLP, which is the better classifier for most tables.
"""

from demur.training.architecture import Architecture, ModuleArchitecture, ModuleFactory
from demur.training.engine import resolve_device, train, train_all
from demur.training.jobs import Job, NetworkSpec, Trained, TrainingData, TrainingOptions
from demur.training.mlp import MLP
from demur.training.recipe import Recipe, TabularTraining, train_tabular
from demur.training.robust_scaling import Pieces, robust_scale
from demur.training.tabular_net import PeriodicEmbeddings, TabularNet

__all__ = [
    "MLP",
    "Architecture",
    "Job",
    "ModuleArchitecture",
    "ModuleFactory",
    "NetworkSpec",
    "PeriodicEmbeddings",
    "Pieces",
    "Recipe",
    "TabularNet",
    "TabularTraining",
    "Trained",
    "TrainingData",
    "TrainingOptions",
    "resolve_device",
    "robust_scale",
    "train",
    "train_all",
    "train_tabular",
]
