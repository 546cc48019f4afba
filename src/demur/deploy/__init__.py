"""What happens to a fitted model: model folders, ONNX graphs, an HTTP service."""

from demur.deploy.app import create_app
from demur.deploy.model_folder import ModelVersionWarning, load, save
from demur.deploy.model_parts import ModelFileError

__all__ = [
    "ModelFileError",
    "ModelVersionWarning",
    "create_app",
    "load",
    "save",
]
