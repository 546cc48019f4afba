"""Multiclass classification with a reject option.

Every name is imported on first use: ``import demur`` itself loads neither torch nor matplotlib.
``__init__.pyi`` beside this file is the list of public names.
"""

import lazy_loader as _lazy

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
