"""Class names as a constant of the graph, in the type that the user knows them by."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur.deploy.onnx.errors import ExportError
from demur.tabular import TableModel

__all__ = ["class_values"]


def class_values(model: Any) -> NDArray[Any]:
    """Return the classes as text, int64, float64 or bool.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from demur import RejectOption
    >>> model = RejectOption(GaussianNB(), calibration=None).fit([[0.0], [0.1], [1.0], [1.1]], [3, 3, 7, 7])
    >>> class_values(model)
    array([3, 7])
    """
    if isinstance(model, TableModel):
        names = [str(name) for name in model.classes]
        if model.label_type == "integer":
            return _integers([int(name) for name in names])
        if model.label_type == "number":
            return np.array([float(name) for name in names])
        return np.array([name == "true" for name in names]) if model.label_type == "boolean" else np.array(names)
    classes = np.asarray(model.classes_)
    if classes.dtype.kind in "iu":
        return _integers(classes.tolist())
    if classes.dtype.kind in "fb":
        return classes.astype(np.float64 if classes.dtype.kind == "f" else np.bool_)
    if all(isinstance(name, str) for name in classes.tolist()):
        return classes.astype(str)
    raise ExportError(
        f"the classes {classes.tolist()[:5]} are neither text nor numbers nor truth values; fit again with text labels."
    )


def _integers(numbers: list[int]) -> NDArray[np.int64]:
    limits = np.iinfo(np.int64)
    if min(numbers) < limits.min or max(numbers) > limits.max:
        raise ExportError(f"the class {max(numbers, key=abs)} does not fit into 64 bits; fit again with text labels.")
    return np.array(numbers, dtype=np.int64)
