"""Deployment of fitted models: model folders, ONNX graphs, an HTTP service, a monitor."""

from demur.deploy.model_folder import ModelVersionWarning, load, save
from demur.deploy.model_parts import ModelFileError
from demur.deploy.monitored_tables import MonitoredTables
from demur.deploy.monitoring import Alarm, Monitor, Reference, risk_sequence
from demur.deploy.web_service import create_app

__all__ = [
    "Alarm",
    "ModelFileError",
    "ModelVersionWarning",
    "Monitor",
    "MonitoredTables",
    "Reference",
    "create_app",
    "load",
    "risk_sequence",
    "save",
]
