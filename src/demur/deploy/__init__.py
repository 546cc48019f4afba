"""What happens to a fitted model: model folders, ONNX graphs, an HTTP service."""

from demur.deploy.model_folder import ModelVersionWarning, load, save
from demur.deploy.model_parts import ModelFileError
from demur.deploy.service import create_app

__all__ = [
    "ModelFileError",
    "ModelVersionWarning",
    "create_app",
    "load",
    "save",
]
