"""DeferClassifier: networks trained with a joint loss over classes and experts, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from demur.array_types import AnyArray, Features, Floats, Ints, Label
from demur.deferral.capacity import Capacity
from demur.deferral.experts import (
    DeferringClassifier,
    Expert,
    check_prices,
    read_answers,
    read_experts,
)
from demur.deferral.joint_losses import JointLoss, resolve_joint
from demur.errors import InputError
from demur.estimators.base import TrainsNetworks, checked_examples, row_weights
from demur.estimators.network_selection import (
    FoldData,
    Rows,
    ScaledNetworks,
    all_diverged,
    recipe_for,
    train_for_tables,
)
from demur.estimators.reject_classifier import EPOCHS, train_plain
from demur.estimators.splitting import folds_of
from demur.lazy_torch import Tensor, torch
from demur.losses import CrossEntropy
from demur.losses.loss import Hyper, Trainable
from demur.rules import Decision
from demur.training import MLP, NetworkSpec, TabularTraining, resolve_device

_FOLDS = 5


def _has_estimates(self: DeferClassifier) -> bool:
    loss = resolve_joint(self.loss)
    if not loss.has_estimates:
        raise AttributeError(f"{loss.name} has no inverse link, so there are no probabilities; use decide().")
    return True


@dataclass(eq=False, repr=False)
class DeferClassifier(TrainsNetworks, DeferringClassifier):
    r"""Networks with a score for each class and each expert, trained together with a joint loss.

    Like :class:`~demur.DeferOption`, but trained with one of the published joint losses. Networks with K + J scores are
    trained on the classes and on whether each expert was right. Their estimates, averaged over the networks, give the
    expected cost of every action, :math:`1 - \eta_k(x)` or :math:`c_e + P(M_e \ne Y \mid x)`, and the cheapest is
    taken; in a tie an expert is asked.

    Parameters
    ----------
    loss : str or JointLoss, default="decoupled"
        Loss to train with: a name from :func:`demur.deferral.available_joint`, "file.py:Class", or a
        :class:`~demur.deferral.JointLoss`.
    experts : mapping
        Price of each expert by its name, or an :class:`~demur.deferral.Expert`. If two experts have the same expected
        cost, the first in alphabetical order is asked.
    hidden_units : int or sequence of int, optional
        Hidden layers of a plain perceptron, which is trained on all rows; an empty sequence for a linear model. By
        default the network is a :class:`~demur.training.TabularNet`, whose best epoch is chosen on held-out rows.
    epochs, batch_size : int, optional
        As in :class:`~demur.RejectClassifier`.
    learning_rate, weight_decay : float, optional
        Learning rate and weight decay; by default 0.04 on a cyclic schedule and 0.02, for a plain perceptron 0.001 and
        1e-4.
    n_members : int, optional
        Number of networks, with different seeds, whose estimates are averaged: by default five, each of which holds out
        one of five folds, and one for a plain perceptron.
    validation_fraction : float, default=0.2
        Share of the rows that a single network holds out to choose its best epoch.
    reject_label : object, optional
        Label that ``predict`` returns if the expert to ask has not answered the row yet; see
        :class:`~demur.RejectClassifier`.
    standardize : bool, default=True
        Whether to centre and scale the features with medians and quartiles of the training rows.
    device : str, default="auto"
    random_state : int, RandomState or None
    verbose : int, default=0
        1 shows a progress bar on a terminal.

    Attributes
    ----------
    classes_ : array
    experts_ : dict
        The experts by name, in the given order.
    loss_ : JointLoss
    networks_ : tuple of ScaledNetworks
        Networks of the joint loss; with two stages, those of the classes and those of the experts.
    reject_label_ : object

    Notes
    -----
    Prices are used at prediction time and can change without a refit, unless ``loss_.trained_for_prices`` is true. The
    realizable family is trained for its prices and has no probabilities: it decides by the largest mean softmax.

    Answers may be missing (see :class:`~demur.DeferOption`): the loss then leaves out the term of that expert. An
    expert with a known accuracy needs no answers.

    Examples
    --------
    The first feature determines the class, the second whether the nurse knows it:

    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> y = (X[:, 0] + np.random.default_rng(1).normal(size=400) > 0).astype(int)
    >>> nurse = np.where(X[:, 1] > 0, y, 1 - y)
    >>> model = DeferClassifier("ms", {"nurse": 0.05}, hidden_units=(), learning_rate=0.05, epochs=30, random_state=0)
    >>> model.fit(X, y, answers=nurse).route([[0.0, 2.0], [0.0, -2.0], [3.0, -2.0]])
    array(['nurse', 'model', 'model'], dtype='<U5')
    >>> bool(model.decide([[0.0, 2.0]], prices={"nurse": 0.6}).reject[0])  # too dear: answer with a coin toss
    False
    """

    loss: Any = "decoupled"
    experts: Any = None
    _: KW_ONLY
    hidden_units: int | Sequence[int] | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    n_members: int | None = None
    validation_fraction: float = 0.2
    reject_label: Label = None
    standardize: bool = True
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        answers: Any = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Train the networks on the classes and on which experts were right.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_rows, n_features)
            Values may be missing (NaN). A sparse matrix is converted to a dense one.
        y : array-like of shape (n_rows,)
        answers : as in :meth:`DeferOption.fit <demur.DeferOption.fit>`
            Not needed if every expert has a known accuracy.
        sample_weight : array-like of shape (n_rows,), optional
            Weight of each row's loss; rows of weight 0 are ignored.
        groups : array-like of shape (n_rows,), optional
            Group of each row; the rows of a group are either all trained on or all held out.
        """
        loss, experts = resolve_joint(self.loss), self._check_parameters()
        device, rng = resolve_device(self.device), check_random_state(self.random_state)
        features, _, codes = self._learn_classes(X, y)
        right = self._right(answers, experts, codes)
        examples = checked_examples(features, codes, row_weights(features, sample_weight), groups, right)
        prices = np.array([one.price for one in experts.values()])
        rows = Rows.of(examples)
        n_members = self.n_members or (5 if self.hidden_units is None else 1)
        seeds, everything = _seeds(rng, n_members), [(np.arange(len(rows.y)), np.empty(0, dtype=np.int64))]
        parts = self._folds(examples, rng) if self.hidden_units is None else []
        target = loss.targets(torch.from_numpy(rows.y), torch.from_numpy(examples.more).float(), prices).numpy()
        n_classes, n_experts = len(self.classes_), len(experts)
        trained_loss: Trainable = loss
        networks, n_outputs = [], n_classes + n_experts
        if loss.stages:
            enough = len(np.unique(examples.blocks.of_row)) > 3
            folds = folds_of(_FOLDS, rows.X, rows.y, blocks=examples.blocks) if enough else everything
            data = FoldData(rows, folds, scaled=self.standardize)
            more_seeds = _seeds(rng, max(len(folds), n_members))
            first, part_of = self._trained(CrossEntropy(), data, n_classes, more_seeds, device)
            classes = first.of_scores(rows.X, _mean_log_proba)
            for part, (_, test) in enumerate(folds):  # by the networks that have not seen these rows
                own = np.flatnonzero(np.array(part_of) == part).tolist()
                if len(test) and own:
                    unseen = ScaledNetworks(first.networks.take(own), **data.scaling([part] * len(own)))
                    classes[test] = unseen.of_scores(rows.X[test], _mean_log_proba)
            networks, target = [first], np.column_stack([classes, target]).astype(np.float32)
            trained_loss, n_outputs = _SecondStage(loss, n_classes), n_experts
        data = FoldData(rows, parts or everything, target, scaled=self.standardize)
        networks.append(self._trained(trained_loss, data, n_outputs, seeds, device)[0])
        self.networks_: tuple[ScaledNetworks, ...] = tuple(networks)
        self.loss_, self.experts_, self.fit_prices_ = loss, experts, prices
        return self

    @available_if(_has_estimates)  # type: ignore[untyped-decorator] # scikit-learn is untyped
    def predict_proba(self, X: Features) -> Floats:
        """Return class probabilities, rows summing to 1; one-versus-all estimates are divided by their sum."""
        proba = self._estimates(X)[1]
        total = proba.sum(axis=1, keepdims=True)
        return np.asarray(np.divide(proba, total, out=np.full_like(proba, 1 / proba.shape[1]), where=total > 0))

    @available_if(_has_estimates)  # type: ignore[untyped-decorator] # scikit-learn is untyped
    def predict_right(self, X: Features) -> Floats:
        """Return P(expert right) for each row and expert, of shape (n_rows, n_experts)."""
        return self._estimates(X)[2]

    def _estimates(self, X: Features) -> tuple[Floats, Floats, Floats]:
        """Return the class probabilities twice, and P(expert right); or the mean softmax of classes and experts."""
        check_is_fitted(self)
        array, n_experts = self._validated(X), len(self.experts_)

        def values(scores: Tensor) -> Tensor:
            return torch.cat(self.loss_.values(scores.double(), [0.0] * n_experts), -1)

        if self.loss_.stages:
            first, second = self.networks_
            classes = first.of_scores(array, _mean_log_proba)
            experts = second.of_scores(array, lambda scores: scores.double().mean(0))
            found = values(torch.from_numpy(np.column_stack([classes, experts]))).numpy()
        else:
            found = self.networks_[0].of_scores(array, lambda scores: values(scores).mean(0))
        proba, right = found[:, :-n_experts], found[:, -n_experts:]
        return proba, proba, right

    def _decide(
        self, proba: Floats, right: Floats, prices: Any, capacity: Capacity | None = None
    ) -> Decision[AnyArray]:
        if not self.loss_.trained_for_prices:
            return super()._decide(proba, right, prices, capacity)
        if capacity is not None:
            raise InputError(
                f"a capacity needs the expected cost of every action, which {self.loss_.name} does not have; use a "
                "loss with probabilities such as 'decoupled'."
            )
        asked = check_prices(prices, self._priced(), len(proba))
        if not (asked == self.fit_prices_).all():
            raise InputError(
                f"{self.loss_.name} was trained for the prices {self.fit_prices_.tolist()} and cannot decide for "
                "others: fit again, or use a loss that serves every price, such as 'decoupled'."
            )
        return replace(self._best(proba, right), costs=None)

    def _trained(
        self, loss: Trainable, data: FoldData, n_outputs: int, seeds: Sequence[int], device: torch.device
    ) -> tuple[ScaledNetworks, list[int]]:
        """Train one network per seed, each on all rows but those of one part, as one stack; return the parts too."""
        plain = self.hidden_units is not None
        decay = self.weight_decay if self.weight_decay is not None else (1e-4 if plain else 0.02)
        part_of = [number % len(data.parts) for number in range(len(seeds))]
        specs = [
            data.spec(NetworkSpec(np.empty(0, dtype=np.int64), seed, decay), part)
            for seed, part in zip(seeds, part_of, strict=True)
        ]
        recipe = recipe_for(
            len(data.parts[0][0]), epochs=self.epochs, batch_size=self.batch_size, learning_rate=self.learning_rate
        )
        epochs = (self.epochs or EPOCHS) if plain else recipe.epochs
        with self._progress(epochs * len(specs)) as progress:
            train = train_for_tables(recipe=recipe, device=device, progress=progress)
            if plain:
                hidden = self._hidden_units() or ()
                train = train_plain(self, lambda n, n_outputs: MLP((n, *hidden, n_outputs)), device, progress)
            run = train(loss, data, n_outputs, specs)
        trained = (run.trained if isinstance(run, TabularTraining) else run).to("cpu")
        kept = np.flatnonzero(~trained.failed.numpy()).tolist()
        if not kept:
            raise all_diverged(resolve_joint(self.loss).name)
        own_parts = [part_of[member] for member in kept]
        return ScaledNetworks(trained.take(kept), **data.scaling(own_parts)), own_parts

    def _right(self, answers: Any, experts: Mapping[str, Expert], codes: Ints) -> Floats:
        """Return the share of each expert's answers to each row that were right, NaN for a gap."""
        known = np.array([np.nan if one.accuracy is None else one.accuracy for one in experts.values()])
        to_learn = [name for name, one in experts.items() if one.accuracy is None]
        right = read_answers(answers, experts, self.classes_, len(codes), to_learn).right(codes)
        return np.where(np.isnan(known), right, known)

    def _check_parameters(self) -> dict[str, Expert]:
        experts = read_experts(self.experts)
        own = [name for name, one in experts.items() if one.model is not None]
        if own:
            raise InputError(
                f"the expert {own[0]!r} has its own model, which only DeferOption can use; a joint loss learns all "
                "experts by the same networks: leave it out."
            )
        self._check_training()
        decay = self.weight_decay
        if decay is not None and not (isinstance(decay, Real) and 0 <= float(decay) < np.inf):
            raise InputError(f"weight_decay must be a number of at least 0, got {decay!r}.")
        return experts


@dataclass(frozen=True)
class _SecondStage(Trainable):
    """The experts' scores of a loss of two stages, with the class scores given as the first part of the targets."""

    loss: JointLoss
    n_classes: int

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper | None) -> Tensor:
        return self.loss.forward(torch.cat([y[..., : self.n_classes], scores], -1), y[..., self.n_classes :])


def _mean_log_proba(scores: Tensor) -> Tensor:
    """Return the logarithm of the mean softmax over the networks of a stack, which is finite."""
    return torch.softmax(scores.double(), -1).mean(0).clamp(min=1e-30).log()


def _seeds(rng: np.random.RandomState, n: int) -> list[int]:
    return [int(seed) for seed in rng.randint(np.iinfo(np.int32).max, size=n)]
