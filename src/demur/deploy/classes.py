"""The list of classes that a model file may hold, and how their objects are taken apart and put together."""

import dataclasses
import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from demur.deploy.errors import ModelFileError

__all__ = ["CLASSES", "class_named", "name_of", "restore", "state_of"]

_PATHS = (
    "demur.calibration.OneVsRestCalibration",
    "demur.calibration.TemperatureScaling",
    "demur.estimators.auto_classifier.AutoClassifier",
    "demur.estimators.candidates.Tried",
    "demur.estimators.reject_classifier.RejectClassifier",
    "demur.estimators.reject_option.RejectOption",
    "demur.estimators.network_selection.Candidate",
    "demur.estimators.network_selection.FittedNetworks",
    "demur.estimators.table_codes.TableCodes",
    "demur.guarantees.coverage.Coverage",
    "demur.guarantees.risk_control.RiskControl",
    "demur.guarantees.risk_control.Certificate",
    "demur.label_shift.LabelShift",
    "demur.losses.binary.Margin",
    "demur.losses.binary.ModifiedHinge",
    "demur.losses.binary.PlusBound",
    "demur.losses.confidence.CrossEntropy",
    "demur.losses.confidence.OneVsAll",
    "demur.losses.hinge.BinaryEncodedHinge",
    "demur.losses.hinge.CrammerSingerHinge",
    "demur.losses.hinge.OneVsAllHinge",
    "demur.losses.pairwise.AdditivePairwise",
    "demur.losses.pairwise.MultiplicativePairwise",
    "demur.margins.Exponential",
    "demur.margins.Hinge",
    "demur.margins.Logistic",
    "demur.margins.Squared",
    "demur.margins.SquaredHinge",
    "demur.rules.Chow",
    "demur.rules.CostMatrix",
    "demur.rules.Decision",
    "demur.rules.Threshold",
    "demur.tabular.table_model.TableModel",
    "demur.columns.column.Column",
    "demur.columns.schema.Schema",
    "demur.training.mlp.MLP",
    "demur.training.trained.Trained",
    "sklearn.frozen._frozen.FrozenEstimator",  # these two may hold one of the above, which skops cannot save
    "sklearn.pipeline.Pipeline",
)
"""Adding a class to the files is one line here, if its objects are their attributes and nothing else."""

CLASSES: Mapping[str, str] = {path.rpartition(".")[2]: path for path in _PATHS}
"""The name in the file, which stays when a class moves, and where the class is now."""

_NAMES = {path: name for name, path in CLASSES.items()}


def name_of(cls: type) -> str | None:
    """Return the name that a class has in the files, or None if it is not on the list.

    Examples
    --------
    >>> from demur.rules import Chow
    >>> name_of(Chow), name_of(dict)
    ('Chow', None)
    """
    return _NAMES.get(f"{cls.__module__}.{cls.__qualname__}")


def class_named(name: object) -> type:
    """Return the class of that name on the list; nothing else is ever imported.

    Examples
    --------
    >>> class_named("os.system")
    Traceback (most recent call last):
        ...
    demur.deploy.errors.ModelFileError: the model names the class 'os.system', which no model file may hold; ...
    """
    path = CLASSES.get(name) if isinstance(name, str) else None
    if path is None:
        raise ModelFileError(
            f"the model names the class {name!r}, which no model file may hold; a newer demur may know it."
        )
    module, _, attribute = path.rpartition(".")
    found: type = getattr(import_module(module), attribute)
    return found


def state_of(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, or all attributes of another object."""
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return dict(vars(value))


def restore(cls: type, state: Mapping[str, Any]) -> Any:
    """Return an object with these attributes, without running any code of its class.

    What the state does not mention gets its default, so that a class may gain a field or a parameter.

    Examples
    --------
    >>> from demur.rules import Chow
    >>> restore(Chow, {"cost": 0.2})
    Chow(cost=0.2)
    """
    defaults = _defaults(cls)
    if dataclasses.is_dataclass(cls):
        unknown = set(state) - {field.name for field in dataclasses.fields(cls)}
        if unknown:
            raise ModelFileError(f"{cls.__name__} has no field {min(unknown)!r}; a newer demur may know it.")
    missing = [name for name, default in defaults.items() if default is _NEEDED and name not in state]
    if missing:
        raise ModelFileError(f"the model holds a {cls.__name__} without its {missing[0]!r}; save it again.")
    restored: Any = object.__new__(cls)
    for name, value in {**defaults, **state}.items():
        if not name.isidentifier() or name.startswith("__"):
            raise ModelFileError(f"the model gives a {cls.__name__} the attribute {name!r}, which it cannot have.")
        object.__setattr__(restored, name, value)  # frozen dataclasses refuse any other way
    return restored


_NEEDED = inspect.Parameter.empty


def _defaults(cls: type) -> dict[str, Any]:
    """Return the default of each field or parameter, or ``_NEEDED`` where it has none."""
    if not dataclasses.is_dataclass(cls):
        parameters = inspect.signature(cls).parameters.values()
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {one.name: one.default for one in parameters if one.kind in named}
    defaults: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory()
        else:
            defaults[field.name] = _NEEDED if field.default is dataclasses.MISSING else field.default
    return defaults
