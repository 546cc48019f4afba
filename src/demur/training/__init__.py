"""The stacked engine: many networks as one tensor program."""

from demur.training.architecture import Architecture
from demur.training.batches import TrainingData
from demur.training.engine import Job, train, train_all
from demur.training.machine import resolve_device
from demur.training.mlp import MLP
from demur.training.module import ModuleArchitecture, ModuleFactory
from demur.training.networks import Network
from demur.training.trained import Trained

__all__ = [
    "MLP",
    "Architecture",
    "Job",
    "ModuleArchitecture",
    "ModuleFactory",
    "Network",
    "Trained",
    "TrainingData",
    "resolve_device",
    "train",
    "train_all",
]
