"""Trained torch modules as scikit-learn classifiers, and the ONNX graphs that they are stored as."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_feature_names, _get_feature_names

from demur.array_types import AnyArray, ByName, Features, Floats
from demur.errors import InputError, InputTypeError, MissingExtraError
from demur.estimators.base import NothingToFit, check_whole
from demur.lazy_torch import Tensor, nn, torch
from demur.losses import Loss, resolve

_TYPES = ("float32", "float64", "int64")


class TrainedNetwork(NothingToFit):
    """A network that was trained elsewhere, for rows of one shape."""

    classes: Any
    batch_size: int
    dtype: str
    input_shape_: tuple[int, ...]
    feature_names_in_: AnyArray

    @property
    def classes_(self) -> AnyArray:
        """The classes, sorted as scikit-learn sorts them."""
        return np.unique(np.asarray(self.classes))

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the shape of a row, and the names of columns."""
        self.predict_proba(X[:1])
        return self

    def predict_proba(self, X: Features) -> Floats:
        """Return class probabilities of shape (n_rows, n_classes); uniform ones where the network returns NaN."""
        check_whole("batch_size", self.batch_size)
        if _get_feature_names(X) is not None:
            _check_feature_names(self, X, reset=not hasattr(self, "feature_names_in_"))
        rows = np.asarray(X)
        if rows.ndim < 2 or rows.dtype.kind not in "biuf":
            raise InputError(
                f"a network takes an array of numbers of shape (rows, ...), got {rows.shape} of type {rows.dtype}."
            )
        if rows.shape[1:] != self.__dict__.setdefault("input_shape_", rows.shape[1:]):
            raise InputError(
                f"rows must have the shape {self.input_shape_}, got {rows.shape[1:]}; pad sequences to one length."
            )
        if rows.ndim == 2:
            self.n_features_in_ = rows.shape[1]
        parts = [rows[start : start + self.batch_size] for start in range(0, len(rows), self.batch_size)]
        found = [self._proba(np.ascontiguousarray(part, dtype=self.dtype)) for part in parts]
        return np.concatenate([np.empty((0, len(self.classes_))), *found])

    def _proba(self, rows: AnyArray) -> AnyArray:
        raise NotImplementedError


@dataclass(eq=False, repr=False)
class TorchClassifier(TrainedNetwork):
    """A trained torch module as a scikit-learn classifier.

    :class:`~demur.RejectOption` calibrates it on rows that it was not trained on. ``demur.save`` stores the network as
    an ONNX graph, which ONNX Runtime computes after loading: your code is not needed, and nothing is pickled.

    Parameters
    ----------
    module : torch.nn.Module
        Trained network that maps a batch of rows to scores of shape (rows, n_outputs), or to an object or a dictionary
        with ``logits``, as in Hugging Face. It is used on the device of its parameters, in evaluation mode.
    classes : array of shape (n_classes,)
        Class of each score.
    loss : str or Loss, default="ce"
        Loss that the module was trained with; its inverse link maps scores to probabilities. For two classes, a single
        score is the log odds of the second class.
    batch_size : int, default=256
        Number of rows that are computed at a time.
    dtype : {"float32", "float64", "int64"}, default="float32"
        Data type of the module's input: "int64" for token numbers. Floats are then cast to the type of the module's
        parameters. Convert a module in half precision with ``module.float()`` before you save it.

    Attributes
    ----------
    classes_ : array
        The classes, sorted; the probabilities are in this order.
    input_shape_ : tuple of int
        The shape of one row: that of the first rows seen. An image is (channels, height, width).
    n_features_in_ : int
        The number of features, of a network that has seen a matrix.
    feature_names_in_ : array of str
        The columns of the first data frame seen: others must have the same columns in the same order.

    Examples
    --------
    >>> import torch
    >>> module = torch.nn.Linear(2, 3)
    >>> model = TorchClassifier(module, ["setosa", "versicolor", "virginica"])
    >>> model.predict_proba([[1.0, 2.0]]).shape
    (1, 3)
    """

    module: nn.Module
    classes: Any
    _: KW_ONLY
    loss: str | Loss = "ce"
    batch_size: int = 256
    dtype: str = "float32"

    def proba_of(self, rows: Tensor) -> Tensor:
        """Return the probabilities of a batch, in double precision and in the order of ``classes_``."""
        parameter = next(self.module.parameters(), rows)
        found = self.module(rows.to(parameter if rows.is_floating_point() else parameter.device))
        scores = found.get("logits", found) if isinstance(found, dict) else getattr(found, "logits", found)
        given, loss = np.asarray(self.classes), resolve(self.loss)
        if not isinstance(scores, Tensor) or scores.ndim != 2:
            shape = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise InputError(f"the module must return scores of shape (rows, n_outputs), got {shape}.")
        if scores.shape[1] == 1 and len(given) == 2 and loss.softmax_link:
            scores = torch.cat([torch.zeros_like(scores), scores], 1)
        if scores.shape[1] != (needed := loss.n_outputs(len(given))):
            raise InputError(
                f"{len(given)} classes need {needed} scores with the loss {loss.name!r}, and the "
                f"module returns {scores.shape[1]}."
            )
        proba = loss.inverse_link(scores.double())[:, torch.as_tensor(np.argsort(given), device=scores.device)]
        shares = proba / proba.sum(1, keepdim=True)
        return torch.where(shares.isnan(), 1 / len(given), shares)

    def check_parameters(self) -> None:
        """Refuse invalid parameters."""
        if not isinstance(self.module, torch.nn.Module):
            raise InputTypeError(f"module must be a torch.nn.Module, got {type(self.module).__name__}.")
        if not 1 < len(self.classes_) == np.size(self.classes):
            raise InputError(f"classes must be two or more different ones, got {self.classes!r}.")
        if self.dtype not in _TYPES:
            raise InputError(f"dtype must be one of {', '.join(_TYPES)}, got {self.dtype!r}.")

    def _proba(self, rows: AnyArray) -> AnyArray:
        self.check_parameters()
        with torch.inference_mode():
            self.module.eval()
            found: AnyArray = self.proba_of(torch.from_numpy(rows)).cpu().numpy()
        return found


@dataclass(eq=False, repr=False)
class OnnxNetwork(TrainedNetwork):
    """A network as an ONNX graph from rows to class probabilities, which ONNX Runtime computes.

    A :class:`TorchClassifier` is stored in this form.

    Parameters
    ----------
    content : array of uint8
        The graph in ONNX's format.
    classes, batch_size, dtype
        As of the :class:`TorchClassifier`; the classes are sorted.
    """

    content: NDArray[np.uint8]
    classes: Any
    batch_size: int = 256
    dtype: str = "float32"

    def _proba(self, rows: AnyArray) -> AnyArray:
        session = self._session()
        found: AnyArray = session.run(None, {session.get_inputs()[0].name: rows})[0]
        return found

    def _session(self) -> Any:
        if "_ready" not in self.__dict__:
            try:
                onnxruntime = import_module("onnxruntime")
            except ImportError:
                raise MissingExtraError(
                    "this model holds a network that ONNX Runtime computes: pip install demur[onnx]"
                ) from None
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3  # errors alone
            # A graph may name files with its weights. Those of saved models do not; a forged one finds no file.
            options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.devnull)
            self._ready = onnxruntime.InferenceSession(self.content.tobytes(), options)
        return self._ready

    def __getstate__(self) -> ByName:
        return {name: value for name, value in super().__getstate__().items() if name != "_ready"}
