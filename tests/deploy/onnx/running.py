"""Running exported graphs beside the models they were made from."""

from typing import Any

import numpy as np
import onnxruntime

from demur.deploy.onnx import GraphAgreement, compare_onnx, onnx_inputs, onnx_model

TOLERANCE = 1e-6
"""How far probabilities may be from those of the model."""


def assert_agrees(
    model: Any, rows: Any, tolerance: float = TOLERANCE, costs: tuple[float, ...] = (), proto: Any = None
) -> GraphAgreement:
    """Check every row, all together and, for some, alone."""
    proto = proto or onnx_model(model)
    agreement = compare_onnx(model, proto, rows)
    for one in (agreement, *(compare_onnx(model, proto, rows, cost) for cost in costs)):
        assert one.decisions_agree, one
        assert one.confidence <= tolerance, one
        assert one.proba <= tolerance, one
    alone = compare_onnx(model, proto, rows[:1])
    assert alone.decisions_agree, alone
    return agreement


def session(model: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(onnx_model(model).SerializeToString(), options)


def run(model: Any, rows: Any, **more: Any) -> dict[str, Any]:
    ready = session(model)
    names = [output.name for output in ready.get_outputs()]
    return dict(zip(names, ready.run(names, {**onnx_inputs(model, rows), **more}), strict=True))


def mixed_rows(X: Any, n: int, seed: int = 0) -> Any:
    """Return rows, rows with the columns of several, points halfway between those, and whole numbers."""
    rng = np.random.default_rng(seed)
    first, second = (np.take_along_axis(X, rng.integers(len(X), size=(n, X.shape[1])), 0) for _ in range(2))
    return np.vstack([X, first, (first + second) / 2, np.round(first)])
