"""Probability that an expert is right on a row, and that the model is right given the estimates for the experts.

Every estimate is out of fold: the class probabilities, the estimates from features, and the choice between several ways
of estimating, which is by log loss.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logit
from sklearn.linear_model import LogisticRegression

from demur.array_types import Floats, Ints
from demur.estimators.splitting import Fold

_SMALLEST = 1e-6
"""Estimates are kept this far from 0 and 1 before log odds are taken of them."""
_TINY = 1e-200
"""Other probabilities are at least this: where all of them are 0, they share equally."""
_ENOUGH = 30
"""So many answers without a mistake count as those of an expert who is always right."""


class ExpertRows(NamedTuple):
    """Data about one expert on the rows of one fit.

    Parameters
    ----------
    right : array of shape (n,)
        The share of the expert's answers that were right; 0 on rows without answers.
    weight : array of shape (n,)
        Weight of each row: the number of answers, times the row's own weight.
    proba : array of shape (n, n_classes)
        Calibrated class probabilities from models that have not seen the row.
    y : array of int, shape (n,)
        The true class.
    estimates : mapping
        Out-of-fold estimates that the expert is right, by the name of what made them.
    folds : sequence
        Train and test rows, as positions.
    """

    right: Floats
    weight: Floats
    proba: Floats
    y: Ints
    estimates: Mapping[str, Floats]
    folds: Sequence[Fold]


@dataclass(frozen=True, eq=False)
class ExpertReliability:
    """A fitted estimate of P(expert right | row).

    Parameters
    ----------
    kind : str
        Method of the estimate: "share", one number; "confusion", a share for each class, mixed by the class
        probabilities; "confidence", logistic regression on the model's confidence; "features", that and an estimate by
        a classifier on the features.
    share : float
        The share of right answers.
    by_class : array of shape (n_classes,)
        The share of right answers on rows of each class.
    model : LogisticRegression or None
    log_loss : mapping
        Out-of-fold log loss of every way of estimating that was tried.
    """

    kind: str
    share: float
    by_class: Floats
    model: LogisticRegression | None
    log_loss: Mapping[str, float]

    def predict(self, proba: Floats, given: Floats | None) -> Floats:
        """Return P(expert right) for each row.

        Parameters
        ----------
        proba : array of shape (n, n_classes)
        given : array of shape (n,), or None
                The estimate from features, where the expert has one.
        """
        if self.kind == "share":
            return np.full(len(proba), self.share)
        if self.model is None:
            return proba @ self.by_class
        return chance(self.model, evidence(proba) if given is None else evidence(proba, given))


def fit_reliability(rows: ExpertRows) -> ExpertReliability:
    """Try the ways of estimating that there are, and keep that of least log loss on rows it has not seen."""
    everything = np.arange(len(rows.y))
    by_class = _by_class(rows, everything)
    wrong, total = float(rows.weight @ (1 - rows.right)), float(rows.weight.sum())
    if wrong == 0 and (rows.weight > 0).sum() >= _ENOUGH:
        return ExpertReliability("share", 1.0, by_class, None, {"share": 0.0})
    inputs = {name: evidence(rows.proba, estimate) for name, estimate in rows.estimates.items()}
    if 0 < wrong < total:  # without a mistake, or a right answer, a regression would be certain after a single answer
        inputs["confidence"] = evidence(rows.proba)
    tried = {name: np.empty(len(rows.y)) for name in ("share", "confusion", *inputs)}
    for train, test in rows.folds:
        share, is_answered = _share(rows, train), rows.weight[train].any()
        tried["share"][test] = share
        tried["confusion"][test] = rows.proba[test] @ _by_class(rows, train)
        for name, z in inputs.items():
            tried[name][test] = chance(_regression(rows, z, train), z[test]) if is_answered else share
    losses = {name: _log_loss(found, rows) for name, found in tried.items()}
    kind = min(losses, key=lambda name: losses[name])
    model = _regression(rows, inputs[kind], everything) if kind in inputs else None
    return ExpertReliability(kind, _share(rows, everything), by_class, model, losses)


def log_odds_of_best(proba: Floats) -> Floats:
    """Return the log odds of the largest probability against the sum of the others, which keeps its precision near 1.

    Examples
    --------
    >>> log_odds_of_best(np.array([[0.5, 0.5], [0.25, 0.75]])).round(4)
    array([0.    , 1.0986])
    """
    others = np.sort(proba, axis=1)[:, :-1]
    return np.asarray(0.0 - log_odds(others.sum(axis=1)))


def recalibrated(proba: Floats, right: Floats) -> Floats:
    """Set the probability of the likeliest class to ``right``, and scale the others to the remaining probability.

    Examples
    --------
    >>> recalibrated(np.array([[0.5, 0.3, 0.2]]), np.array([0.8])).round(2)
    array([[0.8 , 0.12, 0.08]])
    """
    best = proba.argmax(axis=1)[:, None]
    found: Floats = np.maximum(proba, _TINY)
    np.put_along_axis(found, best, 0.0, axis=1)
    found *= ((1 - right) / found.sum(axis=1))[:, None]
    np.put_along_axis(found, best, right[:, None], axis=1)
    return found


def fit_shares(z: Floats, share: Floats, weight: Floats) -> LogisticRegression:
    """Fit a logistic regression to shares: each row counts as right and as wrong, by its share.

    Examples
    --------
    >>> from scipy.special import expit
    >>> z = np.linspace(-2, 2, 2000)[:, None]
    >>> model = fit_shares(z, expit(0.5 + z[:, 0]), np.ones(2000))
    >>> chance(model, np.array([[0.0], [1.0]])).round(2), expit([0.5, 1.5]).round(2)
    (array([0.62, 0.82]), array([0.62, 0.82]))
    """
    is_right, counts = np.repeat([1, 0], len(z)), np.r_[weight * share, weight * (1 - share)]
    return LogisticRegression(tol=1e-6).fit(np.tile(z, (2, 1)), is_right, counts)


def chance(model: LogisticRegression, z: Floats) -> Floats:
    """Return the share that the regression expects for each row."""
    return np.asarray(model.predict_proba(z)[:, 1])


def _regression(rows: ExpertRows, z: Floats, some: Ints) -> LogisticRegression:
    """Fit the logistic regression on those of the rows that the expert has answered."""
    seen = some[rows.weight[some] > 0]
    return fit_shares(z[seen], rows.right[seen], rows.weight[seen])


def _by_class(rows: ExpertRows, some: Ints) -> Floats:
    """Return the share of right answers on rows of each class, drawn to the share overall by one answer."""
    n_classes, weight = rows.proba.shape[1], rows.weight[some]
    right = np.bincount(rows.y[some], weight * rows.right[some], minlength=n_classes)
    answers = np.bincount(rows.y[some], weight, minlength=n_classes)
    return (right + _share(rows, some)) / (answers + 1)


def evidence(proba: Floats, *estimates: Floats) -> Floats:
    """Return inputs of a logistic regression: log odds of the model's confidence, and of estimates."""
    return np.column_stack([log_odds_of_best(proba), *map(log_odds, estimates)])


def _log_loss(estimate: Floats, rows: ExpertRows) -> float:
    odds = log_odds(estimate)
    return float(np.average(np.logaddexp(0, odds) - rows.right * odds, weights=rows.weight))


def _share(rows: ExpertRows, some: Ints) -> float:
    """Return the share of right answers, with half an answer more of each kind."""
    return float((rows.weight[some] @ rows.right[some] + 0.5) / (rows.weight[some].sum() + 1))


def log_odds(share: Any) -> Any:
    """Return log(p / (1 - p)) of shares, kept away from 0 and 1."""
    return logit(np.clip(share, _SMALLEST, 1 - _SMALLEST))
