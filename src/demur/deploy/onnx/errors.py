"""What can go wrong with an export."""

from typing import Any

from demur.errors import InputError, MissingExtraError

__all__ = ["ExportError", "require_onnx"]


class ExportError(InputError):
    """A model has no equal in the other format; the message says which part, why, and what to do.

    Examples
    --------
    >>> from demur.deploy.onnx import onnx_model
    >>> onnx_model("a model")
    Traceback (most recent call last):
        ...
    demur.deploy.onnx.errors.ExportError: only a fitted RejectClassifier, RejectOption or TableModel can be ...
    """


def require_onnx() -> Any:
    """Return the ``onnx`` package, or say how to install it."""
    try:
        import onnx
    except ImportError:
        raise MissingExtraError("exporting needs the package onnx; install it with: pip install demur[onnx]") from None
    return onnx
