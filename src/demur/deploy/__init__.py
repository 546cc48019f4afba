"""What happens to a fitted model: model folders, ONNX graphs, an HTTP service."""

from demur.deploy.app import create_app
from demur.deploy.errors import ModelFileError, ModelVersionWarning
from demur.deploy.persistence import load, save

__all__ = [
    "ModelFileError",
    "ModelVersionWarning",
    "create_app",
    "load",
    "save",
]
