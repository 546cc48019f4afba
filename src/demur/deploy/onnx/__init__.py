"""Fitted models in formats that run without Python: one ONNX graph from features to decisions."""

from demur.deploy.onnx.onnx_export import GraphAgreement, compare_onnx, export_onnx, onnx_inputs, onnx_model
from demur.deploy.onnx.onnx_graph import ExportError

__all__ = ["ExportError", "GraphAgreement", "compare_onnx", "export_onnx", "onnx_inputs", "onnx_model"]
