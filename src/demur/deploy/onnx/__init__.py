"""Fitted models in formats that run without Python: one ONNX graph from features to decisions."""

from demur.deploy.onnx.agreement import Agreement, compare_onnx
from demur.deploy.onnx.errors import ExportError
from demur.deploy.onnx.inputs import onnx_inputs
from demur.deploy.onnx.model import onnx_model
from demur.deploy.onnx.writing import export_onnx

__all__ = ["Agreement", "ExportError", "compare_onnx", "export_onnx", "onnx_inputs", "onnx_model"]
