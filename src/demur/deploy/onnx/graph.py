"""A graph of ONNX operators while it is being built."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.deploy.onnx.errors import require_onnx

__all__ = ["DOMAIN_ML", "IR_VERSION", "ML_OPSET", "OPSET", "Graph", "Operand"]

Operand: TypeAlias = "str | NDArray[Any] | np.generic"
"""The name of a value in the graph, or a constant."""

OPSET, ML_OPSET, IR_VERSION = 18, 3, 8
"""Versions of the end of 2022, which every runtime in use reads; nothing here needs a later one."""

DOMAIN_ML = "ai.onnx.ml"


class Graph:
    """Operators, constants, inputs and outputs, each value under a name of its own.

    Parameters
    ----------
    reserved : names
        Names that inputs and outputs will have.

    Examples
    --------
    >>> graph = Graph(reserved=["x"])
    >>> doubled = graph.op("Mul", graph.input("x", np.float64, ["rows"], "a number"), np.array(2.0))
    >>> [node.op_type for node in graph.nodes]
    ['Mul']
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self.onnx = require_onnx()
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.schema: Any = None  # of the table whose columns are the inputs
        self._taken = set(reserved)
        self._count = 0

    def reserve(self, names: Iterable[str]) -> None:
        """Keep names for inputs to come."""
        self._taken.update(names)

    def name(self, what: str) -> str:
        """Return a new name."""
        while True:
            self._count += 1
            name = f"{what}_{self._count}"
            if name not in self._taken:
                self._taken.add(name)
                return name

    def constant(self, values: ArrayLike, name: str | None = None) -> str:
        """Store an array, in its own type."""
        name = name or self.name("constant")
        array = np.asarray(values)
        if array.dtype.kind == "U":
            array = array.astype(object)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def ops(self, kind: str, n_outputs: int, *operands: Operand, domain: str = "", **attributes: Any) -> list[str]:
        """Apply an operator with several results."""
        names = [operand if isinstance(operand, str) else self.constant(operand) for operand in operands]
        results = [self.name(kind) for _ in range(n_outputs)]
        self.nodes.append(self.onnx.helper.make_node(kind, names, results, domain=domain, **attributes))
        return results

    def op(self, kind: str, *operands: Operand, domain: str = "", **attributes: Any) -> str:
        """Apply an operator and return the name of its result."""
        return self.ops(kind, 1, *operands, domain=domain, **attributes)[0]

    def product(self, left: Operand, right: Operand) -> str:
        """Return a matrix product in double precision.

        It is not ``MatMul``, into which onnxruntime moves a neighbouring factor, rounded to single precision.
        """
        return self.op("Gemm", left, right)

    def cast(self, value: str, dtype: Any) -> str:
        """Convert to the type that NumPy calls ``dtype``."""
        return self.op("Cast", value, to=self._type(dtype))

    def input(self, name: str, dtype: Any, shape: list[Any], doc: str) -> str:
        """Declare an input; ``dtype=str`` is text."""
        self._taken.add(name)
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, self._type(dtype), shape, doc_string=doc))
        return name

    def optional_input(self, name: str, default: ArrayLike, doc: str) -> str:
        """Declare an input with a default: a constant of the same name, which a caller may override."""
        array = np.asarray(default)
        self.constant(array, name)
        return self.input(name, array.dtype, list(array.shape), doc)

    def output(self, value: str, name: str, dtype: Any, shape: list[Any], doc: str) -> None:
        """Declare a value as an output under this name."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))
        self.outputs.append(self.onnx.helper.make_tensor_value_info(name, self._type(dtype), shape, doc_string=doc))

    def model(self, doc: str, metadata: Mapping[str, str], producer_version: str) -> Any:
        """Return the finished model."""
        helper = self.onnx.helper
        graph = helper.make_graph(self.nodes, "demur", self.inputs, self.outputs, self.constants)
        opsets = [helper.make_opsetid("", OPSET)]
        if any(node.domain == DOMAIN_ML for node in self.nodes):
            opsets.append(helper.make_opsetid(DOMAIN_ML, ML_OPSET))
        model = helper.make_model(
            graph,
            opset_imports=opsets,
            ir_version=IR_VERSION,
            producer_name="demur",
            producer_version=producer_version,
            doc_string=doc,
        )
        helper.set_model_props(model, dict(metadata))
        return model

    def _type(self, dtype: Any) -> int:
        if dtype is str:
            return int(self.onnx.TensorProto.STRING)
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
