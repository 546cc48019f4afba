"""The stacked engine: many networks as one tensor program."""

from demur.training.architecture import Architecture
from demur.training.engine import train, train_all
from demur.training.jobs import Job, NetworkSpec, TrainingData
from demur.training.mlp import MLP
from demur.training.planning import resolve_device
from demur.training.torch_module import ModuleArchitecture, ModuleFactory
from demur.training.trained import Trained

__all__ = [
    "MLP",
    "Architecture",
    "Job",
    "ModuleArchitecture",
    "ModuleFactory",
    "NetworkSpec",
    "Trained",
    "TrainingData",
    "resolve_device",
    "train",
    "train_all",
]
