"""Fitted models in formats that run without Python: one ONNX graph from features to decisions."""

from demur.export.agreement import Agreement, compare_onnx
from demur.export.errors import ExportError
from demur.export.inputs import onnx_inputs
from demur.export.model import onnx_model
from demur.export.writing import export_onnx

__all__ = ["Agreement", "ExportError", "compare_onnx", "export_onnx", "onnx_inputs", "onnx_model"]
