"""Labels as positions among the classes, with one more position for labels that are no class."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.errors import InputError

__all__ = ["class_codes", "class_names"]


def class_codes(y: ArrayLike, classes: ArrayLike) -> NDArray[np.int64]:
    """Return the position of each label among the K classes, and K where it is none of them.

    Examples
    --------
    >>> class_codes(["dog", "cat", "cow"], ["cat", "dog"])
    array([1, 0, 2])
    >>> class_codes(["1", "0"], [0, 1])
    Traceback (most recent call last):
        ...
    demur.errors.InputError: none of the labels is a class of the model: y starts with '1', the classes with 0; ...
    classes are of one kind.
    """
    names, labels = _plain(classes), _plain(y)
    position = {name: code for code, name in enumerate(names)}
    if len(position) < len(names) or len(names) < 2:
        raise InputError(f"classes must be at least two distinct names, got {names[:10]}.")
    if not labels:
        raise InputError("y is empty; give at least one labelled row.")
    if any(label is None or label != label for label in labels):
        raise InputError("y contains missing labels (None or NaN); remove those rows first.")
    codes = np.array([position.get(label, len(names)) for label in labels], dtype=np.int64)
    if (codes == len(names)).all():
        raise InputError(
            f"none of the labels is a class of the model: y starts with {labels[0]!r}, the classes with {names[0]!r}; "
            "check that labels and classes are of one kind."
        )
    return codes


def class_names(classes: ArrayLike) -> tuple[str, ...]:
    """Return the classes as text for people: 1.0 is written 1.

    Examples
    --------
    >>> class_names([1.0, 2.5])
    ('1', '2.5')
    """
    return tuple(str(int(c)) if isinstance(c, float) and c.is_integer() else str(c) for c in _plain(classes))


def _plain(values: Any) -> list[Any]:
    """Return Python objects; a list keeps its types, which NumPy would merge into text."""
    if isinstance(values, (list, tuple)):
        return [value.item() if isinstance(value, np.generic) else value for value in values]
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"labels and classes must be one-dimensional, got shape {array.shape}.")
    plain: Iterable[Any] = array.tolist()
    return list(plain)
