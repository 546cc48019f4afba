"""The label that stands for "declined" in what ``predict`` returns."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur.errors import InputError

__all__ = ["choose_reject_label"]


def choose_reject_label(classes: NDArray[Any], wanted: Any = None) -> Any:
    """Return the reject label for these classes, or refuse one that is a class.

    Examples
    --------
    >>> choose_reject_label(np.array([0, 1]))
    -1
    >>> choose_reject_label(np.array([-1, 1]))
    -2
    >>> choose_reject_label(np.array(["cat", "dog"]))
    'reject'
    >>> choose_reject_label(np.array([0, 1]), wanted=1)
    Traceback (most recent call last):
        ...
    demur.errors.InputError: reject_label 1 is also a class; choose another label for declined rows.
    """
    known = set(classes.tolist())
    if wanted is not None:
        if wanted in known:
            raise InputError(f"reject_label {wanted!r} is also a class; choose another label for declined rows.")
        return wanted
    if classes.dtype.kind in "biuf":
        return -1 if -1 not in known else int(np.floor(min(known))) - 1
    if "reject" in known:
        raise InputError("one of the classes is called 'reject'; set reject_label to another label for declined rows.")
    return "reject"
