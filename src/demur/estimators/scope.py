"""Scope: the probability that a row belongs to one of the classes at all."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

__all__ = ["DEFAULT_SHARE", "FEWEST_OUTSIDE", "Scope", "ScopeInput"]

Floats = NDArray[np.float64]

DEFAULT_SHARE = 0.1
"""The share of out-of-scope rows that is expected of text where nothing else is known."""

FEWEST_OUTSIDE = 10
"""Out-of-scope rows from which they are learned; fewer are not used."""

_SHAPE = 0.1
"""The density of the p-values u of out-of-scope rows is a u^(a - 1), with this a."""

_MOST_KEPT = 20_000
"""The most rows of either kind that new rows are compared with."""
_NEAREST = 3
_LEAST = 1e-9


class ScopeInput(NamedTuple):
    """What the scope of rows is estimated from.

    Parameters
    ----------
    proba : array of shape (n, n_classes)
        Calibrated probabilities, out of fold for training rows.
    points : array of shape (n, n_dimensions), or None
        Coordinates in which distances say how unlike two rows are.
    top : array of shape (n,), or None
        The largest one-versus-rest score.
    """

    proba: Floats
    points: Floats | None = None
    top: Floats | None = None


@dataclass(frozen=True, eq=False)
class Scope:
    r"""The probability that a row belongs to one of the classes, from scores and distances.

    The scores are the log odds of the likeliest class, the largest one-versus-rest score of a linear model, and the
    distance to the nearest training row *of the predicted class*. Two more compare with out-of-scope rows, where
    there are some: the mean distance to the three nearest, and a logistic regression on the points. A balanced logistic
    regression on these scores, with the log odds of the expected share, is the probability.

    Without out-of-scope rows the sum of the standardised scores has a p-value u, the share of training rows that are at
    least as unusual. It is uniform in scope; with the density :math:`a u^{a-1}`, a = 0.1, out of scope, and
    :math:`\pi` the expected share,

    .. math:: P(\text{in scope} \mid u) = \frac{1 - \pi}{1 - \pi + \pi a u^{a-1}}.

    Parameters
    ----------
    share : float
        The expected share of out-of-scope rows.
    kept, class_of_kept : arrays or None
        Points of training rows, and their classes.
    outside : array or None
        Points of out-of-scope rows.
    linear : classifier or None
        Tells rows in scope from others by their points.
    head : classifier or None
        The same by the scores.
    center, scale : arrays
        Means and standard deviations of the scores of training rows.
    usual : array
        The sums of the standardised scores of training rows, ascending.

    Examples
    --------
    >>> points = np.repeat(np.eye(2), 50, axis=0) + np.linspace(0, 0.1, 100)[:, None]
    >>> proba = np.repeat([[0.9, 0.1], [0.1, 0.9]], 50, axis=0)
    >>> scope = Scope.learn(ScopeInput(proba, points), np.repeat([0, 1], 50), None, 0.1)
    >>> scope.probability(ScopeInput(proba[:2], np.array([[1.0, 0.0], [9.0, 9.0]]))).round(2)
    array([0.99, 0.59])
    """

    share: float
    kept: NDArray[np.float32] | None
    class_of_kept: NDArray[np.int64] | None
    outside: NDArray[np.float32] | None
    linear: Any
    head: Any
    center: Floats
    scale: Floats
    usual: Floats

    @classmethod
    def learn(cls, inside: ScopeInput, y: NDArray[np.int64], outside: ScopeInput | None, share: float) -> Self:
        """Learn from training rows, whose scores are out of fold, and from out-of-scope rows if there are enough."""
        rng = np.random.default_rng(0)
        none = np.empty(0)
        kept = of_kept = points_out = linear = head = evidence = None
        if inside.points is not None:
            chosen = np.sort(rng.permutation(len(y))[:_MOST_KEPT])
            kept, of_kept = inside.points[chosen].astype(np.float32), y[chosen]
        if outside is not None and outside.points is not None and inside.points is not None:
            points_out = outside.points[:_MOST_KEPT].astype(np.float32)
            points = np.concatenate([inside.points, outside.points])
            is_inside = np.repeat([1, 0], [len(y), len(outside.proba)])
            model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, class_weight="balanced", max_iter=200))
            folds = StratifiedKFold(5, shuffle=True, random_state=0)
            evidence = cross_val_predict(model, points, is_inside, cv=folds, method="decision_function")
            linear = model.fit(points, is_inside)
        scope = cls(share, kept, of_kept, points_out, linear, None, none, none, none)
        scores = scope._scores(inside, own=True, evidence=None if evidence is None else evidence[: len(y)])
        center, scale = scores.mean(axis=0), np.maximum(scores.std(axis=0), _LEAST)
        if outside is not None:
            theirs = scope._scores(outside, own=True, evidence=None if evidence is None else evidence[len(y) :])
            head = LogisticRegression(class_weight="balanced").fit(
                (np.concatenate([scores, theirs]) - center) / scale, np.repeat([1, 0], [len(scores), len(theirs)])
            )
        usual = np.sort(_total((scores - center) / scale))
        return cls(share, kept, of_kept, points_out, linear, head, center, scale, usual)

    def probability(self, rows: ScopeInput) -> Floats:
        """Return the probability that each row is in scope."""
        if not len(rows.proba):
            return np.empty(0)
        scores = (self._scores(rows) - self.center) / self.scale
        if self.head is not None:
            log_odds = self.head.decision_function(scores) + np.log((1 - self.share) / self.share)
            return np.asarray(1 / (1 + np.exp(-np.clip(log_odds, -500, 500))))
        at_least = np.searchsorted(self.usual, _total(scores), side="right")
        u = (at_least + 1) / (len(self.usual) + 1)
        return np.asarray((1 - self.share) / (1 - self.share + self.share * _SHAPE * u ** (_SHAPE - 1)))

    def _scores(self, rows: ScopeInput, own: bool = False, evidence: Floats | None = None) -> Floats:
        """Return the scores, higher in scope; ``own`` rows are among those that they are compared with."""
        best = np.clip(rows.proba.max(axis=1), _LEAST, 1 - _LEAST)
        columns = [np.log(best / (1 - best))]
        if rows.top is not None:
            columns.append(rows.top)
        if self.kept is not None and rows.points is not None:
            points = rows.points.astype(np.float32)
            columns.append(-self._own_class(points, rows.proba.argmax(axis=1), own))
            if self.outside is not None:
                distances = np.sort(_distances(points, self.outside), axis=1)
                is_outside = own and points.shape == self.outside.shape and np.array_equal(points, self.outside)
                columns.append(distances[:, int(is_outside) :][:, :_NEAREST].mean(axis=1))
                columns.append(self.linear.decision_function(rows.points) if evidence is None else evidence)
        return np.column_stack(columns).astype(np.float64)

    def _own_class(self, points: NDArray[np.float32], predicted: NDArray[np.int64], own: bool) -> Floats:
        """Return the distance to the nearest kept row of the predicted class; an own row is not near itself."""
        assert self.kept is not None
        found = np.full(len(points), 2.0 * float(np.abs(self.kept).max()))
        for label in np.unique(predicted):
            rows, known = np.flatnonzero(predicted == label), self.kept[self.class_of_kept == label]
            if len(known):
                distances = np.sort(_distances(points[rows], known), axis=1)
                is_known = own & (distances[:, 0] < 1e-3) & (distances.shape[1] > 1)
                found[rows] = np.where(is_known, distances[:, min(1, distances.shape[1] - 1)], distances[:, 0])
        return found


def _total(scores: Floats) -> Floats:
    """Return the sum of the scores. For text, the score of the linear model takes the place of the log odds.

    The weight of the distance was chosen on the validation rows of CLINC150, with and without embeddings.
    """
    return np.asarray(scores[:, 1] + 0.7 * scores[:, 2] if scores.shape[1] > 2 else scores.sum(axis=1))


def _distances(points: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float32]:
    squares = (points**2).sum(axis=1)[:, None] + (others**2).sum(axis=1) - 2 * points @ others.T
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)), dtype=np.float32)
