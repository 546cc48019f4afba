"""An ONNX graph while it is built: operators, and parts that torch and skl2onnx translate."""

import warnings
from collections.abc import Callable, Mapping
from copy import copy
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np
import torch
from sklearn.base import is_classifier

from demur import __version__
from demur.array_types import AnyArray, Estimator
from demur.errors import InputError, MissingExtraError, one_line
from demur.estimators.torch_classifier import OnnxNetwork, TorchClassifier

Operand: TypeAlias = "str | AnyArray | np.generic"
"""The name of a value in the graph, or a constant."""

OPSET, ML_OPSET, IR_VERSION = 18, 3, 8
"""Operator set versions of the end of 2022, which current runtimes support."""

DOMAIN_ML = "ai.onnx.ml"

_LARGEST_GAP = 1e-4
"""Difference in probability between a module and its graph that rounding in single precision explains."""


class ExportError(InputError):
    """A model has no ONNX form; the message says which part, why, and what to do.

    Examples
    --------
    >>> from demur.deploy.onnx import onnx_model
    >>> onnx_model("a model")
    Traceback (most recent call last):
        ...
    demur.deploy.onnx.onnx_graph.ExportError: only a fitted RejectClassifier, RejectOption or TableModel can be ...
    """


def require(package: str) -> Any:
    """Return a package of the extra ``onnx``, or say how to install it."""
    try:
        return import_module(package)
    except ImportError:
        raise MissingExtraError(f"this needs the package {package}; install it with: pip install demur[onnx]") from None


def session(content: str | bytes) -> Any:
    """Return a graph, given its path or its bytes, ready to run."""
    runtime = require("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1  # threads that share the work of a few rows take longer
    options.log_severity_level = 3  # it warns of every optional input
    return runtime.InferenceSession(content, options)


def translated(module: torch.nn.Module, examples: tuple[torch.Tensor, ...]) -> Any:
    """Return a module as an ONNX model, by torch; the first axis of each input may have another size when it runs."""
    onnx, names = require("onnx"), [f"x{number}" for number in range(len(examples))]
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that shapes are constants in a trace
        torch.onnx.export(
            module,
            examples,
            path := Path(folder, "part.onnx"),
            input_names=names,
            dynamic_axes={name: {0: "rows"} for name, one in zip(names, examples, strict=True) if one.ndim},
            opset_version=OPSET,
            dynamo=False,  # the other exporter needs one more package
        )
        return onnx.load(path)


def stored_network(model: TorchClassifier) -> OnnxNetwork:
    """Return a torch module as the ONNX graph that a saved model holds, compared with the module on random rows.

    Examples
    --------
    >>> stored_network(TorchClassifier(torch.nn.Linear(2, 3), ["a", "b", "c"]))
    Traceback (most recent call last):
        ...
    demur.deploy.onnx.onnx_graph.ExportError: the network has seen no rows, so that the shape of a row is not known; ...
    """
    if not hasattr(model, "input_shape_"):
        raise ExportError(
            "the network has seen no rows, so that the shape of a row is not known; call predict_proba on one first."
        )
    whole = torch.nn.Module()
    whole.module, whole.forward = model.module.eval(), model.proba_of
    example = torch.zeros((2, *model.input_shape_), dtype=getattr(torch, model.dtype))
    try:
        content = translated(whole, (example,)).SerializeToString()
        stored = OnnxNetwork(np.frombuffer(content, dtype=np.uint8), model.classes_, model.batch_size, model.dtype)
        # three rows, which are not as many as the module was traced with
        rows = np.random.default_rng(0).normal(size=(3, *model.input_shape_)) * (model.dtype != "int64")
        if hasattr(model, "feature_names_in_"):
            stored.feature_names_in_ = model.feature_names_in_
        gap = float(np.abs(stored.predict_proba(rows) - model.predict_proba(rows)).max())
    except MissingExtraError:
        raise
    except Exception as error:  # torch and ONNX Runtime have types of their own
        words = one_line(error)[:300]
        raise ExportError(
            f"the module cannot be translated to ONNX ({words}); use other operators, or call module.float()."
        ) from error
    if gap > _LARGEST_GAP:
        raise ExportError(
            f"the module and its ONNX graph differ by {gap:.2g} in probability; a module must compute the same "
            "operations for all rows, without Python conditions on their values, and in at least single precision."
        )
    return stored


class Graph:
    """Operators, constants, inputs and outputs, each value with a unique name.

    Examples
    --------
    >>> graph = Graph()
    >>> doubled = graph.op("Mul", graph.input("x", np.float64, ["rows"]), np.array(2.0))
    >>> [node.op_type for node in graph.nodes]
    ['Mul']
    """

    def __init__(self) -> None:
        self.onnx = require("onnx")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.schema: Any = None  # of the table whose columns are the inputs
        self.scale = 1.0  # of the scores of a classifier without probabilities

    def _name(self, what: str) -> str:
        """Return a new name that is not the name of a column."""
        return f"demur/{len(self.nodes) + len(self.constants)}/{what}"

    def constant(self, values: AnyArray | np.generic, name: str | None = None) -> str:
        """Store an array, in its own type."""
        name, array = name or self._name("constant"), np.asarray(values)
        self.constants.append(
            self.onnx.numpy_helper.from_array(array.astype(object) if array.dtype.kind == "U" else array, name)
        )
        return name

    def op(self, kind: str, *operands: Operand, domain: str = "", **attributes: Any) -> str:
        """Apply an operator and return the name of its result."""
        names = [operand if isinstance(operand, str) else self.constant(operand) for operand in operands]
        result = self._name(kind)
        self.nodes.append(self.onnx.helper.make_node(kind, names, [result], domain=domain, **attributes))
        return result

    def cast(self, value: str, dtype: Any) -> str:
        """Convert to the type that NumPy calls ``dtype``."""
        return self.op("Cast", value, to=self._type(dtype))

    def input(self, name: str, dtype: Any, shape: list[Any]) -> str:
        """Declare an input; ``dtype=str`` is text."""
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, self._type(dtype), shape))
        return name

    def output(self, value: str, name: str, dtype: Any, shape: list[Any]) -> None:
        """Declare a value as an output under this name."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))
        self.outputs.append(self.onnx.helper.make_tensor_value_info(name, self._type(dtype), shape))

    def traced(self, function: Callable[..., Any], *inputs: tuple[str, tuple[int, ...]]) -> list[str]:
        """Add the operations of a function of tensors in double precision, and return the names of its results.

        torch translates the operations that the function applies to tensors of the given shapes. The first dimension
        of a shape may have another size when the graph runs.
        """
        module = torch.nn.Module()
        module.forward = function
        examples = tuple(torch.zeros(shape, dtype=torch.float64) for _, shape in inputs)
        return self.added(translated(module, examples), [name for name, _ in inputs])

    def converted(self, model: Estimator, X: str) -> str:
        """Add an estimator by skl2onnx; return the probabilities of a classifier, or the output of a transformer."""
        skl2onnx = require("skl2onnx")
        options = None
        if is_classifier(model):
            model = copy(model)
            model.classes_ = np.arange(len(model.classes_))  # labels are added at the end
            options = {id(model): {"zipmap": False}}
        features = skl2onnx.common.data_types.DoubleTensorType([None, model.n_features_in_])
        opsets = {"": OPSET, DOMAIN_ML: ML_OPSET}
        proto = skl2onnx.to_onnx(model, initial_types=[("X", features)], options=options, target_opset=opsets)
        return self.added(proto, [X])[-1]

    def added(self, proto: Any, inputs: list[str]) -> list[str]:
        """Add the operators of another graph, fed with values of this one."""
        part = self.onnx.compose.add_prefix_graph(proto.graph, self._name("part") + "/")
        for value, inner in zip(inputs, part.input, strict=False):  # an input that nothing reads may be missing
            self.nodes.append(self.onnx.helper.make_node("Identity", [value], [inner.name]))
        self.nodes.extend(part.node)
        self.constants.extend(part.initializer)
        return [one.name for one in part.output]

    def model(self, doc: str, metadata: Mapping[str, str]) -> Any:
        """Return the finished model."""
        helper = self.onnx.helper
        model = helper.make_model(
            helper.make_graph(self.nodes, "demur", self.inputs, self.outputs, self.constants),
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN_ML, ML_OPSET)],
            ir_version=IR_VERSION,
            producer_name="demur",
            producer_version=__version__,
            doc_string=doc,
        )
        helper.set_model_props(model, dict(metadata))
        return model

    def _type(self, dtype: Any) -> int:
        if dtype is str:
            return int(self.onnx.TensorProto.STRING)
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
