"""ONNX operators: a graph while it is being built, and functions made of a few operators.

The functions round, saturate and treat NaN as NumPy and torch do. ONNX has operators for some of them, but runtimes are
free in how they compute those: onnxruntime's ``Sigmoid``, for one, never falls below 1.5e-8.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from demur.array_types import AnyArray
from demur.errors import InputError, MissingExtraError

__all__ = [
    "DOMAIN_ML",
    "IR_VERSION",
    "ML_OPSET",
    "OPSET",
    "ExportError",
    "Graph",
    "Operand",
    "argmax",
    "clip_to_unit",
    "column",
    "columns",
    "largest",
    "normalised",
    "require_onnx",
    "sigmoid",
    "softmax",
    "two_sided",
]

Operand: TypeAlias = "str | AnyArray | np.generic"
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


class ExportError(InputError):
    """A model has no equal in the other format; the message says which part, why, and what to do.

    Examples
    --------
    >>> from demur.deploy.onnx import onnx_model
    >>> onnx_model("a model")
    Traceback (most recent call last):
        ...
    demur.deploy.onnx.onnx_graph.ExportError: only a fitted RejectClassifier, RejectOption, DeferOption or ...
    """


def require_onnx() -> Any:
    """Return the ``onnx`` package, or say how to install it."""
    try:
        import onnx
    except ImportError:
        raise MissingExtraError("exporting needs the package onnx; install it with: pip install demur[onnx]") from None
    return onnx


_LAST = np.array([-1], dtype=np.int64)


def softmax(graph: Graph, x: str) -> str:
    """Return exp(x) / sum(exp(x)) over the last axis."""
    shifted = graph.op("Exp", graph.op("Sub", x, graph.op("ReduceMax", x, _LAST, keepdims=1)))
    return normalised(graph, shifted)


def normalised(graph: Graph, x: str) -> str:
    """Return x divided by its sum over the last axis."""
    return graph.op("Div", x, graph.op("ReduceSum", x, _LAST, keepdims=1))


def sigmoid(graph: Graph, x: str, dtype: Any) -> str:
    """Return 1 / (1 + exp(-x))."""
    one = np.array(1, dtype=dtype)
    return graph.op("Div", one, graph.op("Add", graph.op("Exp", graph.op("Neg", x)), one))


def clip_to_unit(graph: Graph, x: str, dtype: Any) -> str:
    """Return x cut off at 0 and 1; NaN stays."""
    zero, one = (np.array(value, dtype=dtype) for value in (0, 1))
    above = graph.op("Where", graph.op("Less", x, zero), zero, x)
    return graph.op("Where", graph.op("Greater", above, one), one, above)


def column(graph: Graph, x: str, number: int) -> str:
    """Return one entry along the last axis, which goes."""
    return graph.op("Gather", x, np.array(number, dtype=np.int64), axis=-1)


def columns(graph: Graph, x: str, numbers: Any) -> str:
    """Return some entries along the last axis."""
    return graph.op("Gather", x, np.asarray(numbers, dtype=np.int64), axis=-1)


def two_sided(graph: Graph, x: str) -> str:
    """Return (-x, x) along the last axis."""
    return graph.op("Concat", graph.op("Neg", x), x, axis=-1)


def largest(graph: Graph, x: str, dtype: Any) -> str:
    """Return the maximum over the last axis, which goes; NaN if there is one."""
    best = graph.op("ReduceMax", x, _LAST, keepdims=0)
    return graph.op("Where", _any_nan(graph, x), np.array(np.nan, dtype=dtype), best)


def argmax(graph: Graph, x: str) -> str:
    """Return the place of the first maximum over the last axis; NaN counts as the largest number."""
    best = graph.op("ArgMax", x, axis=-1, keepdims=0)
    nan = graph.op("ArgMax", _nan_as_float(graph, x), axis=-1, keepdims=0)
    return graph.op("Where", _any_nan(graph, x), nan, best)


def _any_nan(graph: Graph, x: str) -> str:
    share = graph.op("ReduceMax", _nan_as_float(graph, x), _LAST, keepdims=0)
    return graph.op("Greater", share, np.array(0, dtype=np.float32))


def _nan_as_float(graph: Graph, x: str) -> str:
    return graph.cast(graph.op("IsNaN", x), np.float32)


def with_complement(graph: Graph, second: str) -> str:
    """Return the probabilities of two classes from that of the second, of shape (rows, 1)."""
    return graph.op("Concat", graph.op("Sub", np.array(1.0), second), second, axis=-1)
