"""Whether an exported graph decides as the model does."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur.deploy.onnx.class_names import class_values
from demur.deploy.onnx.inputs import onnx_inputs
from demur.errors import MissingExtraError

__all__ = ["Agreement", "compare_onnx"]


@dataclass(frozen=True)
class Agreement:
    """How often a graph and its model differ.

    Parameters
    ----------
    n_rows, n_labels, n_rejects : int
        Rows compared, and among them those with another label, or another decision to reject.
    confidence, proba : float
        The largest differences; NaN in both counts as equal, and ``proba`` is 0 where there is none.
    """

    n_rows: int
    n_labels: int
    n_rejects: int
    confidence: float
    proba: float

    @property
    def decisions_agree(self) -> bool:
        """Whether every row has the same label and the same decision."""
        return not (self.n_labels or self.n_rejects)


def compare_onnx(model: Any, exported: Any, rows: Any, cost: float | None = None) -> Agreement:
    """Run rows through a model and through its exported graph, and compare.

    Parameters
    ----------
    model : RejectClassifier, RejectOption or TableModel
    exported : path or ModelProto
    rows : as the model takes them
    cost : float, optional
        Another than the model's.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from demur import RejectOption
    >>> from demur.deploy.onnx import onnx_model
    >>> model = RejectOption(GaussianNB(), calibration=None).fit([[0.0], [0.1], [1.0], [1.1]], [0, 0, 1, 1])
    >>> compare_onnx(model, onnx_model(model), [[0.4], [0.55], [0.9]]).decisions_agree
    True
    """
    try:
        import onnxruntime  # type: ignore[import-untyped,unused-ignore] # it has no type hints
    except ImportError:
        raise MissingExtraError(
            "running an exported model needs the package onnxruntime; install it with: pip install demur[onnx]"
        ) from None
    is_path = isinstance(exported, (str, os.PathLike))
    content = Path(exported).read_bytes() if is_path else exported.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of every optional input
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # threads that wait take no processor
    session = onnxruntime.InferenceSession(content, options)
    feeds = onnx_inputs(model, rows)
    if cost is not None:
        feeds["cost"] = np.array(float(cost))
    names = [output.name for output in session.get_outputs()]
    found: dict[str, NDArray[Any]] = dict(zip(names, session.run(names, feeds), strict=True))
    decision = model.decide(rows, cost)
    proba = 0.0
    if "proba" in found:
        proba = _largest_difference(found["proba"], model.predict_proba(rows))
    return Agreement(
        len(decision.label),
        int(np.sum(found["label"] != class_values(model)[decision.label])),
        int(np.sum(found["reject"] != decision.reject)),
        _largest_difference(found["confidence"], decision.confidence),
        proba,
    )


def _largest_difference(ours: NDArray[Any], theirs: Any) -> float:
    theirs = np.asarray(theirs, dtype=np.float64)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    difference = np.where(same, 0.0, np.abs(np.where(same, 0, ours) - np.where(same, 0, theirs)))
    return float(np.nan_to_num(difference, nan=np.inf).max(initial=0.0))
