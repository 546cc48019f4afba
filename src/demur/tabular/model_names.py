"""The models that can be asked for by name: a blend, the paper's losses, scikit-learn's classifiers."""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from demur.errors import InputError
from demur.estimators import AutoClassifier, RejectClassifier, RejectOption
from demur.estimators.candidates import CANDIDATES, Task, batch_size_for
from demur.losses import available, get
from demur.rules import Rule

__all__ = ["ModelKind", "model_kind", "model_names"]

_SEED = 0
"""The same table gives the same model."""


@dataclass(frozen=True)
class ModelKind:
    """A model that was asked for by name.

    Parameters
    ----------
    name : str
    view : {"codes", "dense"}
        What its classifier takes; see :class:`~demur.estimators.candidates.CandidateModel`.
    words : str
        What it is, for people.
    """

    name: str
    view: Literal["codes", "dense"]
    words: str

    def classifier(
        self,
        n_rows: int,
        categorical: NDArray[np.bool_],
        *,
        cost: float,
        rule: Rule | None = None,
        time_budget: float | None = 90.0,
        verbose: int = 0,
    ) -> Any:
        """Return the unfitted classifier for a table of this size."""
        options: dict[str, Any] = {"cost": cost, "rule": rule}
        if self.name == "auto":
            auto = AutoClassifier(
                time_budget=time_budget, categorical_features=categorical, random_state=_SEED, verbose=verbose
            )
            return RejectOption(auto, **options)
        for candidate in CANDIDATES:
            if candidate.key == self.name:
                return RejectOption(candidate.make(Task(n_rows, categorical, _SEED, -1)), **options)
        return self._networks(n_rows, cost, rule, verbose)

    def _networks(self, n_rows: int, cost: float, rule: Rule | None, verbose: int) -> Any:
        loss = get(self.name)
        if rule is not None and not loss.has_link:
            raise InputError(
                f"{self.name} gives no probabilities, which {type(rule).__name__} needs; use a cost, or another model "
                "such as ce."
            )
        with_temperature = loss.has_link and rule is None
        networks = RejectClassifier(
            self.name,
            cost=cost,
            n_members=5 if loss.has_link else 1,
            batch_size=batch_size_for(n_rows),
            calibration="temperature" if with_temperature else None,
            random_state=_SEED,
            verbose=verbose,
        )
        return networks if rule is None else RejectOption(networks, cost=cost, rule=rule)


def model_names() -> dict[str, str]:
    """Return each name that :func:`model_kind` knows, with what it stands for.

    Examples
    --------
    >>> model_names()["hgb"]
    'gradient boosting'
    """
    names = {"auto": "a blend of several models (the default)"}
    names |= {candidate.key: candidate.name for candidate in CANDIDATES if candidate.key}
    return names | {name: f"networks trained with {name}" for name in available()}


def model_kind(name: str) -> ModelKind:
    """Return the model of that name.

    Examples
    --------
    >>> model_kind("hbg")
    Traceback (most recent call last):
        ...
    demur.errors.InputError: there is no model 'hbg'; did you mean 'hgb'?
    """
    names = model_names()
    if name not in names:
        close = get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(names)}."
        raise InputError(f"there is no model {name!r}; {hint}")
    views = {candidate.key: candidate.view for candidate in CANDIDATES}
    view: Literal["codes", "dense"] = "codes" if name == "auto" else views.get(name, "dense")
    return ModelKind(name, view, names[name])
