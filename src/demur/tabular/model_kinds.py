"""The models that can be asked for by name: a blend, the paper's losses, scikit-learn's classifiers."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline, make_pipeline

from demur.array_types import ByName
from demur.deferral import DeferOption
from demur.errors import InputError, MissingExtraError
from demur.estimators import AutoClassifier, RejectClassifier, RejectOption
from demur.estimators.candidates import CANDIDATES, Task, candidate_named, dense_view
from demur.losses import available, resolve
from demur.rules import Rule

__all__ = ["ModelKind", "model_kind", "model_names"]


@dataclass(frozen=True)
class ModelKind:
    """A model that was asked for by name.

    Parameters
    ----------
    name : str
    words : str
        What it is, for people.
    """

    name: str
    words: str

    def classifier(
        self,
        n_rows: int,
        categorical: NDArray[np.bool_],
        *,
        cost: float,
        rule: Rule | None = None,
        with_rule: bool = False,
        time_budget: float | None = 90.0,
        seed: int = 0,
        verbose: int = 0,
    ) -> Any:
        """Return the unfitted classifier for a table of this size, which takes what :meth:`dense` makes of codes.

        Parameters
        ----------
        n_rows : int
        categorical : array of bool
            Which columns hold codes of categories.
        cost : float
        rule : Rule, optional
        with_rule : bool
            Whether a rule will be there, now or later: it needs probabilities.
        time_budget, verbose
            For "auto".
        seed : int
            The same table and seed give the same model.
        """
        options: ByName = {"cost": cost, "rule": rule, "novelty": None}  # the table's own columns tell
        if self.name == "auto":
            auto = AutoClassifier(
                time_budget=time_budget, categorical_features=categorical, random_state=seed, verbose=verbose
            )
            return RejectOption(auto, **options)
        candidate = candidate_named(self.name)
        if candidate is not None:
            return RejectOption(candidate.prepared(Task(n_rows, categorical, seed, -1)), **options)
        networks = self._networks(cost, with_rule, seed, verbose)
        return RejectOption(make_pipeline(dense_view(categorical), networks), **options) if with_rule else networks

    def deferring(
        self,
        n_rows: int,
        categorical: NDArray[np.bool_],
        prices: Mapping[str, float],
        *,
        time_budget: float | None = 90.0,
        seed: int = 0,
        verbose: int = 0,
    ) -> tuple[Any, Any]:
        """Return the unfitted classifier with experts to ask, and what must turn codes into numbers for all its parts.

        Parameters
        ----------
        n_rows, categorical, time_budget, seed, verbose
            As for :meth:`classifier`.
        prices : mapping of names to float
            The experts.
        """
        if self.name == "auto":
            budget = None if time_budget is None else time_budget / (1 + len(prices))
            estimator: Any = AutoClassifier(
                time_budget=budget, categorical_features=categorical, random_state=seed, verbose=verbose
            )
        else:
            prepared = self.classifier(n_rows, categorical, cost=0.2, with_rule=True, seed=seed, verbose=verbose)
            estimator = prepared.estimator
        dense = None
        if isinstance(estimator, Pipeline):
            dense, estimator = estimator[0], estimator[-1]
        return DeferOption(estimator, dict(prices)), dense

    def dense(self, categorical: NDArray[np.bool_], with_rule: bool) -> ColumnTransformer | None:
        """Return what must turn codes into numbers on one scale beforehand; None where the classifier does it itself.

        Networks alone choose between themselves on rows of their own, and see the scale of those.
        """
        return dense_view(categorical) if self.is_network and not with_rule else None

    @property
    def is_network(self) -> bool:
        """Whether it is trained with one of the paper's losses."""
        return self.name != "auto" and candidate_named(self.name) is None

    def _networks(self, cost: float, with_rule: bool, seed: int, verbose: int) -> RejectClassifier:
        loss = resolve(self.name)
        if with_rule and not loss.has_link:
            raise InputError(
                f"{self.name} gives no probabilities, which a rule needs; use a cost, or another model such as ce."
            )
        return RejectClassifier(
            loss if ":" in self.name else self.name,
            cost=cost,
            calibration=None if with_rule else "auto",
            novelty=None,
            random_state=seed,
            verbose=verbose,
        )


_OWN_NAMES = {"auto": "a blend of several models (the default)"} | {
    candidate.key: candidate.name for candidate in CANDIDATES
}


def model_names() -> dict[str, str]:
    """Return each name that a model can be asked for by, with what it stands for.

    Examples
    --------
    >>> model_names()["hgb"]
    'gradient boosting'
    """
    return _OWN_NAMES | {name: f"networks trained with {name}" for name in available()}


def model_kind(name: str) -> ModelKind:
    """Return the model of that name; "file.py:Class" names a loss of one's own, whose file is run.

    Examples
    --------
    >>> model_kind("hbg")
    Traceback (most recent call last):
        ...
    demur.errors.InputError: there is no model 'hbg'; did you mean 'hgb'?
    """
    candidate = candidate_named(name)
    own = name if candidate is None else candidate.key
    if candidate is not None and not candidate.is_installed:
        raise MissingExtraError(f"the model {name!r} needs a package: pip install demur[boost]")
    if own in _OWN_NAMES:
        return ModelKind(own, _OWN_NAMES[own])
    if ":" in name:
        return ModelKind(name, f"networks trained with {resolve(name).name}")
    names = model_names()
    if name not in names:
        close = get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(names)}."
        raise InputError(f"there is no model {name!r}; {hint}")
    return ModelKind(name, names[name])
