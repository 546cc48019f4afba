"""Model files that load safely elsewhere: no pickle, every byte checked."""

from demur.persistence.errors import ModelFileError, ModelVersionWarning
from demur.persistence.model import load, save

__all__ = ["ModelFileError", "ModelVersionWarning", "load", "save"]
