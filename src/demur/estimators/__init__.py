"""Estimators in scikit-learn's conventions.

Every name is imported on first use, so that a saved model loads only what it needs. ``__init__.pyi`` beside this file
is the list of public names.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
