"""RejectClassifier: a neural network trained with a rejection loss, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from demur.array_types import AnyArray, CostLike, Features, Floats, Label
from demur.calibration import TemperatureScaling
from demur.costs import cost_per_row
from demur.errors import InputError
from demur.estimators.base import (
    Examples,
    KnownRows,
    RejectingClassifier,
    TrainsNetworks,
    check_whole,
    checked_examples,
    checked_labels,
    choose_reject_label,
    is_frame,
    is_numeric,
    row_weights,
)
from demur.estimators.network_selection import (
    FittedNetworks,
    FoldData,
    FoldNetworks,
    GridEntry,
    Rows,
    Trainer,
    fit_fold_networks,
    grid_of,
    recipe_for,
    train_for_tables,
    warn_if_nothing_answered,
)
from demur.estimators.splitting import Blocks, Fold, usable_folds, validation_rows
from demur.lazy_torch import torch
from demur.losses import Loss, resolve
from demur.losses.loss import Trainable
from demur.rules import Decision
from demur.training import (
    MLP,
    Architecture,
    ModuleArchitecture,
    ModuleFactory,
    NetworkSpec,
    PeriodicEmbeddings,
    Trained,
    resolve_device,
    train,
)

if TYPE_CHECKING:
    from demur.estimators.auto_classifier import TableEncoding


def batch_size_for(n_rows: int) -> int:
    """Return the size of batches that gives small tables enough of them: 128, the paper's, from 6,400 rows on.

    Examples
    --------
    >>> batch_size_for(150), batch_size_for(15_000)
    (16, 128)
    """
    return int(np.clip(n_rows // 50, 16, 128))


EPOCHS = 150
"""Number of epochs of a plain perceptron, as in the paper."""

_MANY_ROWS, _LONGER = 10_000, 7 / 6
"""Number of rows from which three networks, each trained longer, are as good as five and take less time."""


def train_plain(
    estimator: TrainsNetworks, architecture: Callable[[int, int], Architecture], device: torch.device, progress: Any
) -> Trainer:
    """Return the trainer of perceptrons and user-defined modules, with the parameters of an estimator.

    Parameters
    ----------
    estimator : TrainsNetworks
    architecture : callable
        Makes the network from the numbers of inputs and outputs.
    device, progress
        As in :func:`demur.training.train`.
    """

    def trained(loss: Trainable, data: FoldData, n_outputs: int, specs: Sequence[NetworkSpec]) -> Trained:
        return train(
            loss, architecture(data.n_inputs, n_outputs), data.data, [replace(spec, validation=None) for spec in specs],
            epochs=estimator.epochs or EPOCHS,
            batch_size=estimator.batch_size or batch_size_for(len(data.parts[0][0])),
            learning_rate=estimator.learning_rate or 1e-3, device=device, progress=progress,
        )  # fmt: skip

    return trained


def _has_link(self: RejectClassifier) -> bool:
    if not self.has_proba:
        raise AttributeError(f"{self._loss().name} has no inverse link, so there are no probabilities; use decide().")
    return True


@dataclass(eq=False, repr=False)
class RejectClassifier(TrainsNetworks, RejectingClassifier):
    """A classifier that declines to answer where the expected cost of an answer exceeds that of a rejection.

    It trains neural networks with one of the paper's losses. Columns of a DataFrame may hold numbers, categories,
    booleans, dates or text, values may be missing, and no encoding is needed. For losses with an inverse link, the
    default is an ensemble of networks for tables (Holzmüller et al. 2024). Each is trained on four fifths of the rows,
    and the other fifth chooses its best epoch. The held-out rows of all networks together choose between the
    candidates, by log loss, and determine the temperature that calibrates the probabilities. For losses without a link,
    and if ``hidden_units`` is given, held-out rows choose the candidate (by 0-1-c risk, or by log loss if there is a
    link), which is then trained again on all rows.

    Parameters
    ----------
    loss : str or Loss, default="ce"
        Loss to train with. For a name from :func:`demur.losses.available` or "file.py:Class"
        (:func:`demur.losses.resolve`), its hyper-parameters are chosen by validation; a :class:`~demur.losses.Loss`
        object is used as it is.
    cost : float, default=0.2
        Cost c of declining a row; a wrong answer costs 1. Losses with a link use it at prediction time, so
        ``set_params(cost=...)`` needs no refit; the other losses are trained for it.
    hidden_units : int or sequence of int, optional
        Hidden layers of a plain perceptron, as in the paper. By default the network is a
        :class:`~demur.training.TabularNet`, or for losses without a link a perceptron with 50 hidden units.
    epochs : int, optional
        Number of epochs; by default 64, fewer on large tables, and 150 for a plain perceptron.
    batch_size : int, optional
        Rows in a minibatch; by default 16 to 256, depending on the number of rows.
    learning_rate : float, optional
        Learning rate of Adam; by default 0.04 on a cyclic schedule, and 0.001 for a plain perceptron.
    weight_decay : float or sequence of float, optional
        Weight decay, or candidates to choose from; by default 0.02, and for a plain perceptron the L2 penalties 1e-7,
        1e-4 and 1e-1 of the paper.
    validation_fraction : float, default=0.2
        Share of the rows that is held out to choose the candidate, if networks are trained again afterwards. Nothing is
        held out if there is nothing to choose or to calibrate. Rows with equal features stay on one side, as do rows of
        one group if ``fit`` gets ``groups``.
    n_members : int, optional
        Number of networks, with different seeds, whose scores are averaged (for plain perceptrons, their
        probabilities). The default is five; three, which are trained longer, on more than 10,000 rows; and one for
        losses without probabilities. Each member of the default ensemble holds out one of up to five folds; a single
        network holds out a fifth of the rows.
    calibration : {"auto", "temperature", None}, default="auto"
        Calibration of the probabilities on the held-out rows. "auto" is a temperature for losses with a link.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, as in scikit-learn: they multiply the weights of the rows. The probabilities are then
        those of a population with these class weights.
    reject_label : object, optional
        Label that ``predict`` returns for declined rows. By default -1 for numbers (or the next integer below all
        classes if -1 is a class) and "reject" for strings. A label that is a class is an error.
    novelty : "auto", float or None, default="auto"
        Out-of-distribution rows to decline, found by :class:`~demur.novelty.Novelty`. "auto": only rows far outside the
        training data. A number such as 0.01: rows more unusual than all but that share of ordinary rows. None: no
        detection. It is read when predicting, so changing it with ``set_params`` needs no refit unless it was None.
    standardize : bool, default=True
        Whether to centre and scale the features with the training rows' statistics (medians and quartiles; for a plain
        perceptron means and standard deviations). This is part of the estimator because a network trained on raw
        features fails silently, and because the statistics are then saved with the model.
    patience : int, optional
        Number of epochs without a lower loss on its held-out rows after which a default network stops. By default all
        epochs are trained. The best epoch is kept in either case.
    embeddings : PeriodicEmbeddings, optional
        Periodic functions of the features as further inputs of the default networks
        (:class:`~demur.training.PeriodicEmbeddings`).
    categorical_features : array of bool or of int, optional
        Columns of an array that hold codes 0, 1, ... of categories. In a DataFrame the column types decide.
    module : callable, optional
        Function that returns the torch module to train: ``module(n_features, n_outputs)``.
    device : str, default="auto"
        Device to train on: "cpu", "cuda", or "auto" for a GPU if there is one.
    random_state : int, RandomState or None
    verbose : int, default=0
        1 shows a progress bar on a terminal.

    Attributes
    ----------
    classes_ : array
    loss_ : Loss
        The loss with the chosen hyper-parameters.
    reject_label_ : object
    candidates_ : list of Candidate
        Results of all candidates: hyper-parameters, risk, coverage and log loss on held-out rows, and whether training
        failed.
    best_candidate_ : Candidate
        The chosen candidate. There is an :class:`AnswersNothingWarning` if it declined every held-out row.
    networks_ : FittedNetworks
        The networks that predict.
    loss_curve_, validation_curve_ : arrays of shape (n_members, n_epochs), or None
        The training loss (with dropout) and the loss on the held-out rows after each epoch; NaN if nothing was held
        out, and after a network has stopped. None for a plain perceptron.
    known_rows_ : KnownRows or None
        The detector of out-of-distribution rows.
    equal_rows_ : int
        Number of rows with the features of an earlier row.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=False)
    >>> model = RejectClassifier(cost=0.1, epochs=32, random_state=0).fit(X, y)
    >>> model.predict([[5.0, 3.4, 1.5, 0.2]])
    array([0])
    >>> bool(model.decide([[6.0, 2.8, 4.8, 1.6]], cost=0.01).reject[0])  # between two species
    True
    """

    fit_cost_: float = field(init=False)
    networks_: FittedNetworks = field(init=False)
    encoding_: TableEncoding | None = field(init=False, default=None)
    __metadata_request__fit: ClassVar = {"groups": True}  # asks for groups where metadata are routed

    loss: str | Loss = "ce"
    _: KW_ONLY
    cost: float = 0.2
    hidden_units: int | Sequence[int] | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | Sequence[float] | None = None
    validation_fraction: float = 0.2
    n_members: int | None = None
    calibration: str | None = "auto"
    class_weight: Any = None
    reject_label: Label = None
    novelty: float | str | None = "auto"
    standardize: bool = True
    patience: int | None = None
    embeddings: PeriodicEmbeddings | None = None
    categorical_features: ArrayLike | None = None
    module: ModuleFactory | None = None
    device: str = "auto"
    random_state: Any = None
    verbose: int = 0

    def fit(
        self, X: Features, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Train the candidates, and keep the networks with the best results on held-out rows.

        Parameters
        ----------
        X : DataFrame, Arrow table, or array-like or sparse matrix of shape (n_rows, n_features)
            Values may be missing (NaN). A sparse matrix is converted to a dense one.
        y : array-like of shape (n_rows,)
            Class labels: numbers or strings.
        sample_weight : array-like of shape (n_rows,), optional
            Weight of each row's loss; rows of weight 0 are ignored.
        groups : array-like of shape (n_rows,), optional
            Group of each row (a patient, a machine): the rows of a group are either all trained on or all held out.
        """
        self._check_parameters()
        device = resolve_device(self.device)
        examples = self._examples(X, y, sample_weight, groups)
        rng = check_random_state(self.random_state)
        plain = self._is_plain()
        decays = self.weight_decay
        if decays is None:
            decays = (1e-7, 1e-4, 1e-1) if plain else 0.02
        grid = grid_of(self.loss, len(self.classes_), decays, float(self.cost))
        rows = Rows.of(examples)
        if self.encoding_ is not None:
            from demur.estimators.candidates import numbers_view  # which imports this module

            self.numbers_ = numbers_view(self.encoding_.categorical).fit(rows.X)
            rows = replace(rows, X=self._numbers(rows.X))
        if plain:
            self._fit_held_out(rows, examples.blocks, grid, rng, device)
        else:
            folds = self._folds(examples, rng)
            self._fit_on_folds(rows, folds, grid, self._seeds(rng, many_rows=len(rows.y) > _MANY_ROWS), device)
        self.equal_rows_ = examples.blocks.equal_rows
        own, categorical = examples.X, None
        if self.encoding_ is not None:
            own, categorical = _safe_indexing(X, examples.rows), self.encoding_.categorical
        self.known_rows_ = KnownRows.learn(own, self.novelty, examples.blocks.of_row, categorical)
        warn_if_nothing_answered(self.best_candidate_, self.fit_cost_)
        return self

    def _is_plain(self) -> bool:
        """Say whether the networks are the paper's or the user's own; losses without a link have the paper's."""
        return self.module is not None or self.hidden_units is not None or not resolve(self.loss).has_link

    def _seeds(self, rng: np.random.RandomState, *, many_rows: bool = False) -> list[int]:
        n_members = self.n_members
        if n_members is None:
            n_members = (3 if many_rows else 5) if resolve(self.loss).has_link else 1
        return [int(seed) for seed in rng.randint(np.iinfo(np.int32).max, size=n_members)]

    def _fit_on_folds(
        self, rows: Rows, folds: Sequence[Fold], grid: Sequence[GridEntry], seeds: Sequence[int], device: torch.device
    ) -> None:
        """Train an ensemble whose members hold out one fold each."""
        recipe = recipe_for(
            len(folds[0][0]) if folds else len(rows.y),
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            patience=self.patience,
        )
        if self.epochs is None and self.n_members is None and len(rows.y) > _MANY_ROWS:
            recipe = replace(recipe, epochs=round(_LONGER * recipe.epochs))
        pieces = self.encoding_ is not None
        everything = np.arange(len(rows.y))
        parts = usable_folds(folds[: len(seeds)], rows.y) or [(everything, everything[:0])]
        data = FoldData(rows, parts, scaled=self.standardize, pieces=pieces)
        with self._progress(len(grid) * len(seeds) * recipe.epochs) as progress:
            train = train_for_tables(self.embeddings, recipe=recipe, device=device, progress=progress)
            found = fit_fold_networks(data, grid, seeds, len(self.classes_), float(self.cost), train)
        self._keep(found, None if self.calibration is None else found.temperature())

    def _fit_held_out(
        self, rows: Rows, blocks: Blocks, grid: Sequence[GridEntry], rng: np.random.RandomState, device: torch.device
    ) -> None:
        """Choose a candidate on held-out rows, and train it again on all rows."""
        calibrated = grid[0].loss.has_link and self.calibration is not None
        needed = sum(len(entry.deciders) for entry in grid) > 1 or calibrated
        part = validation_rows(rows.y, blocks.of_row, self.validation_fraction if needed else 0.0, rng)
        everything, seeds = np.arange(len(rows.y)), self._seeds(rng)
        again = needed and len(part[0]) < len(everything)
        epochs = self.epochs or EPOCHS

        def fit(part: Fold, grid: Sequence[GridEntry]) -> FoldNetworks:
            data = FoldData(rows, [part], scaled=self.standardize, robust=False)
            train = train_plain(self, self._architecture, device, progress)
            return fit_fold_networks(data, grid, seeds, len(self.classes_), float(self.cost), train, "proba")

        with self._progress((len(grid) + again) * len(seeds) * epochs) as progress:
            found = fit(part, grid)
            self._keep(found, found.temperature() if calibrated else None)
            if again:
                chosen = found.chosen
                (entry,) = [e for e in grid if chosen.loss in e.deciders and e.weight_decay == chosen.weight_decay]
                entry = replace(entry, deciders=(chosen.loss,))
                with suppress(InputError):  # all of them diverged: the first ones stay
                    final = fit((everything, everything[:0]), [entry])
                    self.networks_ = replace(final.networks, temperature=self.networks_.temperature)

    def _keep(self, found: FoldNetworks, temperature: TemperatureScaling | None) -> None:
        self.candidates_, self.best_candidate_, self.loss_ = found.candidates, found.chosen, found.chosen.loss
        self.networks_ = replace(found.networks, temperature=temperature)
        self.fit_cost_ = float(self.cost)
        self.loss_curve_: Floats | None = None
        self.validation_curve_: Floats | None = None
        if found.run is not None:
            members = list(found.chosen.members)
            self.loss_curve_, self.validation_curve_ = (
                curve[members] for curve in (found.run.training_loss, found.run.validation_loss)
            )

    def adopt(self, found: FoldNetworks, n_features: int, n_classes: int) -> Self:
        """Set the fitted state from networks that were trained elsewhere, for the classes 0, 1, ...

        Parameters
        ----------
        found : FoldNetworks
            Their probabilities are not calibrated: the caller, which cross-fits, does that.
        n_features, n_classes : int
        """
        self.classes_, self.n_features_in_ = np.arange(n_classes), n_features
        self.reject_label_ = choose_reject_label(self.classes_, self.reject_label)
        self._keep(found, None)
        self.equal_rows_, self.known_rows_ = 0, None
        return self

    def _examples(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, groups: ArrayLike | None
    ) -> Examples:
        """Check the training data, and set the classes."""
        features, labels, codes = self._learn_classes(X, y)
        weight, by_class = row_weights(features, sample_weight), compute_sample_weight(self.class_weight, labels)
        return checked_examples(features, codes, by_class if weight is None else weight * by_class, groups)

    def _read(self, X: Features, y: ArrayLike) -> tuple[AnyArray, AnyArray]:
        self.encoding_ = None
        if self.categorical_features is None and (not is_frame(X) or is_numeric(X)):
            return super()._read(X, y)
        from demur.estimators.auto_classifier import TableEncoding  # which imports this module

        labels = checked_labels(y)
        self.encoding_ = TableEncoding.learn(self, X, labels, self.categorical_features)
        return self.encoding_.encode(self, X).matrix, labels

    def _validated(self, X: Features) -> AnyArray:
        if self.encoding_ is None:
            return super()._validated(X)
        return self._numbers(self.encoding_.encode(self, X).matrix)

    def _numbers(self, codes: Floats) -> Floats:
        return np.asarray(self.numbers_.transform(codes), dtype=np.float64)

    def decide_and_score(self, X: Features, cost: CostLike = None) -> tuple[Decision[AnyArray], Floats]:
        check_is_fitted(self)
        cost = self.cost if cost is None else cost
        array = self._validated(X)
        cost = cost_per_row(cost, (len(array),))
        if self.loss_.trained_for_cost and not np.all(cost == self.fit_cost_):
            raise InputError(
                f"{self.loss_.name} was trained for cost {self.fit_cost_:g} and cannot decide for cost {cost}: refit "
                f"with that cost, or use a loss that serves every cost, such as 'ce'."
            )
        decision, scores = self.networks_.decide_and_score(array, cost, len(self.classes_))
        novel = self._novel(array if self.encoding_ is None else X)
        return (decision if novel is None else decision.declining(novel)), scores

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

    @available_if(_has_link)  # type: ignore[untyped-decorator] # scikit-learn is untyped
    def predict_proba(self, X: ArrayLike) -> Floats:
        """Return class probabilities, rows summing to 1.

        One-versus-all losses estimate the probability of each class separately (Eq. 12). Here these estimates are
        divided by their sum; :meth:`decide` uses them unchanged, as the paper does.
        """
        check_is_fitted(self)
        return self.networks_.proba(self._validated(X))

    def _loss(self) -> Any:
        """Return the chosen loss, or before fit the one that was asked for."""
        return getattr(self, "loss_", None) or resolve(self.loss)

    def _architecture(self, n_features: int, n_outputs: int) -> Architecture:
        if self.module is not None:
            return ModuleArchitecture(self.module, n_features, n_outputs)
        return MLP((n_features, *(self._hidden_units() or (50,)), n_outputs))

    def _check_parameters(self) -> None:
        self._check_cost()
        check_whole("patience", self.patience)
        self._check_training()
        if self.calibration not in (None, "auto", "temperature"):
            raise InputError(f"calibration must be 'auto', 'temperature' or None, got {self.calibration!r}.")
        for name in ("embeddings", "patience"):
            if getattr(self, name) is not None and self._is_plain():
                raise InputError(
                    f"{name} is for the default networks, of losses with a link; leave it out, or hidden_units and "
                    "module."
                )
        loss = resolve(self.loss)
        loss.check_cost(self.cost)
        several = self.n_members is not None and self.n_members > 1
        if not loss.has_link and (several or self.calibration == "temperature"):
            what = "n_members > 1" if several else "calibration"
            raise InputError(
                f"{what} needs probabilities, which {loss.name} does not have; use a loss with a link such as 'ce'."
            )
