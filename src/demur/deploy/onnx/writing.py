"""Storing an ONNX graph: whole or not at all."""

import os
from pathlib import Path
from typing import Any

from demur.deploy.onnx.model import onnx_model

__all__ = ["export_onnx"]


def export_onnx(model: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write a fitted model to one ONNX file and return its path.

    Parameters
    ----------
    model : RejectClassifier, RejectOption or TableModel
        Fitted; see :func:`onnx_model` for the inputs and outputs of the graph.
    path : path
        The file to write. Its folder must exist.
    overwrite : bool, default=False
        Whether a file that is there already may be replaced.

    Raises
    ------
    ExportError
        If a part of the model has no ONNX form.
    FileExistsError, FileNotFoundError, IsADirectoryError
        If the file cannot be written there.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from demur import RejectOption
    >>> model = RejectOption(GaussianNB(), calibration=None).fit([[0.0], [0.1], [1.0], [1.1]], [0, 0, 1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_onnx(model, f"{folder}/model.onnx").name
    'model.onnx'
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; name a file in it, such as {target / 'model.onnx'}.")
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists already; choose another name or allow it to be replaced.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist; make it first.")
    content = onnx_model(model).SerializeToString()
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return target
