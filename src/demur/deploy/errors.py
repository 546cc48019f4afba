"""What can go wrong with a model file."""

from demur.errors import InputError

__all__ = ["ModelFileError", "ModelVersionWarning"]


class ModelFileError(InputError):
    """A model cannot be saved, or a path holds no model that can be loaded; the message says why in one sentence.

    Examples
    --------
    >>> from demur.deploy import load
    >>> load("no/such/model")
    Traceback (most recent call last):
        ...
    demur.deploy.errors.ModelFileError: there is no model at no/such/model; check the path.
    """


class ModelVersionWarning(UserWarning):
    """A model was written with another version of scikit-learn, which may make it decide otherwise.

    Examples
    --------
    Where that is not good enough, turn it into an error:

    >>> import warnings
    >>> from demur.deploy import load
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", ModelVersionWarning)
    ...     model = load("model")  # doctest: +SKIP
    """
