"""RejectClassifier: a neural network trained with a rejection loss, as a scikit-learn estimator."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted, validate_data

from demur.costs import check_cost, cost_per_row
from demur.errors import InputError, InputTypeError
from demur.estimators.base import RejectingClassifier, choose_reject_label
from demur.estimators.network_selection import FittedNetworks, grid_of, select
from demur.estimators.splitting import Blocks, blocks_from, validation_rows
from demur.losses import Loss, resolve
from demur.progress import no_progress, progress_bar
from demur.rules import Decision
from demur.training import MLP, Architecture, ModuleArchitecture, ModuleFactory, TrainingData, resolve_device, train

__all__ = ["RejectClassifier"]


@dataclass(frozen=True, eq=False)
class _Examples:
    """Examples with the weight that each has, and which of them stay on one side of a split."""

    X: NDArray[Any]
    y: NDArray[np.int64]
    weight: NDArray[np.float64]
    blocks: Blocks


_MOST_REPETITIONS = 10
_FEW_ROWS = 100_000
"""Whole-number weights become repetitions while the rows grow at most ten times, or to a hundred thousand."""


def _in_canonical_order(
    X: NDArray[Any], y: NDArray[np.int64], weight: NDArray[np.float64] | None, groups: ArrayLike | None = None
) -> _Examples:
    """Sort the examples by the bytes of their values, weights turned into repetitions where they are whole numbers.

    So a weight of 2 is the same as the row twice, a weight of 0 the same as no row, and the order in which the rows
    come does not matter. Other weights multiply the loss.

    Examples
    --------
    >>> rows, weight = np.array([[1.0], [2.0], [0.0]]), np.array([1.0, 2.0, 1.0])
    >>> examples = _in_canonical_order(rows, np.array([0, 1, 0]), weight)
    >>> examples.X.ravel(), examples.y, examples.weight, examples.blocks.of_row
    (array([0., 2., 2., 1.]), array([0, 1, 1, 0]), array([1., 1., 1., 1.]), array([0, 1, 1, 2]))
    """
    weights = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=np.float64)
    kept = weights > 0
    X, y, weights = X[kept] + 0.0, y[kept], weights[kept]  # + 0.0 turns -0.0 into 0.0
    most = max(_MOST_REPETITIONS * len(X), _FEW_ROWS)
    whole = np.array_equal(weights, np.round(weights)) and weights.sum() <= most
    repetitions = weights.astype(np.int64) if whole else np.ones(len(X), dtype=np.int64)
    order = np.argsort(_as_bytes(np.column_stack([X, y.astype(X.dtype), weights.astype(X.dtype)])), kind="stable")
    order = np.repeat(order, repetitions[order])
    X, y = X[order], y[order]
    as_bytes = _as_bytes(X)
    equal = np.cumsum(np.r_[0, as_bytes[1:] != as_bytes[:-1]])
    if groups is not None:
        groups = np.asarray(groups)[kept][order]
    return _Examples(X, y, np.ones(len(order)) if whole else weights[order], blocks_from(equal, y, groups))


def _as_bytes(rows: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(rows).view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()


def _has_link(self: "RejectClassifier") -> bool:
    if not self.has_proba:
        raise AttributeError(f"{self._loss().name} has no inverse link, so there are no probabilities; use decide().")
    return True


class RejectClassifier(RejectingClassifier):
    """A classifier that declines to answer where answering would cost more than asking.

    It trains small neural networks with one of the paper's losses. The whole grid of hyper-parameters (weight
    decay; beta for the pairwise losses; the threshold tau for the hinge losses) and all members of an ensemble
    train as one stack; the 0-1-c risk on held-out rows chooses.

    Parameters
    ----------
    loss : str or Loss, default="ce"
        A name from :func:`demur.losses.available`, or "file.py:Class" (:func:`demur.losses.resolve`), whose
        hyper-parameters are then chosen by validation; or a :class:`~demur.losses.Loss` that is used as it is.
    cost : float, default=0.2
        The price c of one rejection; one wrong answer costs 1. Losses with a link read it when they predict, so
        ``set_params(cost=...)`` needs no refit; the others are trained for it.
    hidden_units : int or sequence of int, default=(50,)
    epochs : int, default=150
    batch_size : int, default=128
        The paper's protocol. With a few hundred rows an epoch has only a few steps: take a smaller batch (16) or
        more epochs, or the network stays unsure and declines too much.
    learning_rate : float, default=1e-3
    weight_decay : float or sequence of float, default=(1e-7, 1e-4, 1e-1)
        Candidates of the L2 penalty.
    validation_fraction : float, default=0.2
        The share of rows that chooses. Nothing is held out where there is nothing to choose or to calibrate. Rows with
        equal features stay on one side, and so do rows of one group where ``fit`` is told the groups.
    n_members : int, default=1
        The number of networks, with different seeds, whose probabilities are averaged.
    calibration : {None, "temperature"}, default=None
        Temperature scaling on the held-out rows, for losses with a link.
    reject_label : object, optional
        What ``predict`` returns where it declines. By default -1 for numbers (or the next integer below all
        classes if -1 is a class) and "reject" for strings. A label that is a class is an error.
    standardize : bool, default=True
        Centre and scale the features with the training rows' statistics. It is part of the estimator because a
        network trained on raw features fails silently, and because the statistics then travel with the model;
        after a scaler in a Pipeline it changes nothing.
    module : callable, optional
        ``module(n_features, n_outputs)`` returns a torch module to train instead of the perceptron.
    device : str, default="auto"
        "cpu", "cuda", or "auto" for a GPU where there is one.
    random_state : int, RandomState or None
    verbose : int, default=0
        Shows a progress bar on a terminal.

    Attributes
    ----------
    classes_ : array
    loss_ : Loss
        The loss with the chosen hyper-parameters.
    reject_label_ : object
    candidates_ : list of Candidate
        What was tried: hyper-parameters, validation risk and coverage, and whether training failed.
    best_candidate_ : Candidate
        The one that was chosen.
    networks_ : FittedNetworks
        Its networks.
    equal_rows_ : int
        How many rows had the features of an earlier row, a weight of 2 counting as two rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=False)
    >>> model = RejectClassifier(cost=0.1, epochs=100, random_state=0).fit(X, y)
    >>> model.predict([[5.0, 3.4, 1.5, 0.2]])
    array([0])
    >>> bool(model.decide([[5.9, 2.8, 4.9, 1.7]], cost=0.01).reject[0])  # between two species: dear mistakes, ask
    True
    """

    __metadata_request__fit: ClassVar = {"groups": True}  # asks for groups where metadata are routed

    def __init__(
        self,
        loss: str | Loss = "ce",
        *,
        cost: float = 0.2,
        hidden_units: int | Sequence[int] = (50,),
        epochs: int = 150,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        weight_decay: float | Sequence[float] = (1e-7, 1e-4, 1e-1),
        validation_fraction: float = 0.2,
        n_members: int = 1,
        calibration: str | None = None,
        reject_label: Any = None,
        standardize: bool = True,
        module: ModuleFactory | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.cost = cost
        self.hidden_units = hidden_units
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.n_members = n_members
        self.calibration = calibration
        self.reject_label = reject_label
        self.standardize = standardize
        self.module = module
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Train the grid and keep the networks of least 0-1-c risk on the held-out rows.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        y : array-like of shape (n_rows,)
            Class labels: numbers or strings.
        sample_weight : array-like of shape (n_rows,), optional
            A weight of 2 counts as the row twice, a weight of 0 as no row.
        groups : array-like of shape (n_rows,), optional
            Rows of one group (a patient, a machine) are either all trained on or all held out.
        """
        self._check_parameters()
        device = resolve_device(self.device)
        examples = self._examples(X, y, sample_weight, groups)
        rng = check_random_state(self.random_state)
        grid = grid_of(self.loss, len(self.classes_), self.weight_decay, float(self.cost))
        needs_validation = sum(len(entry.deciders) for entry in grid) > 1 or self.calibration is not None
        fraction = self.validation_fraction if needs_validation else 0.0
        train_rows, validation = validation_rows(examples.y, examples.blocks.of_row, fraction, rng)
        seeds = [int(seed) for seed in rng.randint(np.iinfo(np.int32).max, size=self.n_members)]
        networks = [entry.network(train_rows, seed, float(self.cost)) for entry in grid for seed in seeds]

        mean, scale = self._statistics(examples.X[train_rows], examples.weight[train_rows])
        scaled = torch.from_numpy(((examples.X - mean) / scale).astype(np.float32))
        weight = examples.weight / examples.weight[train_rows].mean()
        uniform = bool((examples.weight == examples.weight[0]).all())
        data = TrainingData(
            scaled, torch.from_numpy(examples.y), None if uniform else torch.from_numpy(weight.astype(np.float32))
        )
        loss = grid[0].loss
        architecture = self._architecture(scaled.shape[1], loss.n_outputs(len(self.classes_)))
        with self._progress(len(networks) * self.epochs) as progress:
            trained = train(
                loss, architecture, data, networks, epochs=self.epochs, batch_size=self.batch_size,
                learning_rate=self.learning_rate, device=device, progress=progress,
            )  # fmt: skip
        held_out = scaled[torch.from_numpy(validation)], examples.y[validation], weight[validation]
        self.candidates_, chosen = select(grid, trained, self.n_members, *held_out, float(self.cost))
        self.loss_, self.best_candidate_ = chosen.loss, chosen
        self.networks_ = FittedNetworks(chosen.loss, trained.take(chosen.members), mean, scale)
        if self.calibration == "temperature":
            self.networks_ = self.networks_.calibrated(*held_out)
        self.fit_cost_ = float(self.cost)
        self.equal_rows_ = examples.blocks.equal_rows
        return self

    def _examples(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, groups: ArrayLike | None
    ) -> _Examples:
        """Check what is to be learnt from, and learn the classes."""
        features, labels = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"y holds only one class, {self.classes_[0]!r}; a classifier needs at least two.")
        self.reject_label_ = choose_reject_label(self.classes_, self.reject_label)
        given = None
        if sample_weight is not None:
            given = _check_sample_weight(sample_weight, features, dtype=np.float64, ensure_non_negative=True)
        if groups is not None:
            check_consistent_length(features, groups)
        examples = _in_canonical_order(features, codes.astype(np.int64), given, groups)
        if len(np.unique(examples.y)) < 2:
            raise InputError("only one class has rows with a positive weight; a classifier needs at least two.")
        return examples

    def decide(self, X: ArrayLike, cost: Any = None) -> Decision[NDArray[Any]]:
        check_is_fitted(self)
        cost = self.cost if cost is None else cost
        array = self._validated(X)
        cost = cost_per_row(cost, (len(array),))
        if self.loss_.trained_for_cost and not np.all(cost == self.fit_cost_):
            raise InputError(
                f"{self.loss_.name} was trained for cost {self.fit_cost_:g} and cannot decide for cost {cost}: refit "
                f"with that cost, or use a loss that serves every cost, such as 'ce'."
            )
        return self.networks_.decide(array, cost)

    def decide_and_score(self, X: ArrayLike, cost: Any = None) -> tuple[Decision[NDArray[Any]], NDArray[np.float64]]:
        return self.decide(X, cost), self._scores(X)

    @property
    def has_proba(self) -> bool:
        return bool(self._loss().has_link)

    @property
    def effective_cost(self) -> float | None:
        return float(self.fit_cost_ if self.why_cost_fixed else self.cost)

    @property
    def why_cost_fixed(self) -> str | None:
        loss = getattr(self, "loss_", None)
        if loss is None or not loss.trained_for_cost:
            return None
        return f"{loss.name} was trained for the cost {self.fit_cost_:g}; fit again for another"

    def explain(self) -> str | None:
        return None

    @available_if(_has_link)  # type: ignore[untyped-decorator] # scikit-learn is untyped
    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return class probabilities, rows summing to 1.

        One-versus-all losses estimate each class by itself (Eq. 12); their estimates are divided by their sum
        here, while :meth:`decide` uses them as they are, as the paper does.
        """
        check_is_fitted(self)
        return self.networks_.proba(self._validated(X), normalised=True)

    def _scores(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self)
        if self.has_proba:
            proba: NDArray[np.float64] = self.predict_proba(X)
            return proba
        return self.networks_.class_scores(self._validated(X), len(self.classes_))

    def _loss(self) -> Any:
        """Return the chosen loss, or before fit the one that was asked for."""
        return getattr(self, "loss_", None) or resolve(self.loss)

    def _validated(self, X: ArrayLike) -> NDArray[Any]:
        array: NDArray[Any] = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return array

    def _architecture(self, n_features: int, n_outputs: int) -> Architecture:
        if self.module is not None:
            return ModuleArchitecture(self.module, n_features, n_outputs)
        return MLP((n_features, *self._hidden_units(), n_outputs))

    def _hidden_units(self) -> Sequence[int]:
        return (
            self.hidden_units if isinstance(self.hidden_units, Sequence) else np.atleast_1d(self.hidden_units).tolist()
        )

    def _statistics(
        self, X: NDArray[Any], weight: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if not self.standardize:
            return np.zeros(X.shape[1]), np.ones(X.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            scaler = StandardScaler().fit(X.astype(np.float64), sample_weight=weight)
        if not (np.isfinite(scaler.mean_).all() and np.isfinite(scaler.scale_).all()):
            raise InputError(
                "a feature is too large to be standardised in double precision; rescale the features first."
            )
        return scaler.mean_, scaler.scale_

    def _progress(self, total: int) -> Any:
        return progress_bar("training", total) if self.verbose and sys.stderr.isatty() else no_progress()

    def _check_parameters(self) -> None:
        if check_cost(self.cost).ndim:
            raise InputError(f"cost must be one number to fit, got {self.cost!r}; decide() takes one per row.")
        for name in ("epochs", "batch_size", "n_members"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}.")
        for name in ("learning_rate", "validation_fraction"):
            if not isinstance(getattr(self, name), Real):
                raise InputTypeError(f"{name} must be a number, got {getattr(self, name)!r}.")
        if not self.learning_rate > 0:
            raise InputError(f"learning_rate must be positive, got {self.learning_rate!r}.")
        if not 0 < self.validation_fraction < 1:
            raise InputError(f"validation_fraction must lie between 0 and 1, got {self.validation_fraction!r}.")
        units = self._hidden_units()
        if any(isinstance(one, bool) or not isinstance(one, (int, np.integer)) or one < 1 for one in units):
            raise InputError(f"hidden_units must be whole numbers of at least 1, got {self.hidden_units!r}.")
        if self.calibration not in (None, "temperature"):
            raise InputError(f"calibration must be None or 'temperature', got {self.calibration!r}.")
        loss = resolve(self.loss)
        if not loss.defined_at_zero_cost() and self.cost == 0:
            loss.check_cost(self.cost)
        if not loss.has_link and (self.n_members > 1 or self.calibration):
            what = "n_members > 1" if self.n_members > 1 else "calibration"
            raise InputError(
                f"{what} needs probabilities, which {loss.name} does not have; use a loss with a link such as 'ce'."
            )
