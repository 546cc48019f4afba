"""Scope: the probability that a row belongs to any of the classes."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.extmath import row_norms

from demur.array_types import Floats, Ints

DEFAULT_SHARE = 0.1
"""Expected share of out-of-scope rows of text, if nothing else is known."""

FEWEST_OUTSIDE = 10
"""Least number of out-of-scope rows to learn from; fewer are not used."""

_SHAPE = 0.1
"""The density of the p-values u of out-of-scope rows is a u^(a - 1), with this a."""

_MOST_KEPT, _MOST_OUTSIDE = 20_000, 2_000
"""The most training rows, and the most out-of-scope rows, that new rows are compared with."""
_NEAREST = 3
_LEAST = 1e-9
_SAME = 1e-5
"""Relative squared distance below which two rows are the same; single precision is not more exact."""
_DISTANCE, _DISTANCE_IN_SVD = 0.7, 0.2
"""Weight of the distance without out-of-scope rows, chosen on validation rows of CLINC150, with embeddings or not."""


class ScopeInput(NamedTuple):
    """The inputs from which the scope of rows is estimated.

    Parameters
    ----------
    proba : array of shape (n, n_classes)
        Calibrated probabilities, out of fold for training rows.
    points : array of shape (n, n_dimensions), or None
        Coordinates in which distances between rows are computed.
    top : array of shape (n,), or None
        The largest one-versus-rest score.
    ngrams : sparse matrix of shape (n, n_terms), or None
        The n-grams of text.
    """

    proba: Floats
    points: Floats | None = None
    top: Floats | None = None
    ngrams: Any = None

    @property
    def linear(self) -> Any:
        """The input of the linear model of out-of-scope rows: n-grams, or else the points."""
        return self.points if self.ngrams is None else self.ngrams


@dataclass(frozen=True, eq=False)
class Scope:
    r"""The probability that a row belongs to one of the classes, from scores and distances.

    The scores are the log odds of the likeliest class, the largest one-versus-rest score of a linear model, and the
    distance to the nearest training row *of the predicted class*. With out-of-scope rows in training there are two more
    scores: the mean distance to the three nearest of them, and a ridge regression on the n-grams or points. A logistic
    regression on these scores, in which both kinds of rows have the same total weight, gives the probability, after a
    shift by the log odds of the expected share.

    Without out-of-scope rows, rows are compared by the sum of two standardised scores: the one-versus-rest score, or
    else the log odds, and 0.7 times the distance (0.2 times in an SVD of n-grams, where it is less informative). The
    p-value u of a row is the share of training rows that are at least as unusual. It is uniform in scope; with the
    density :math:`a u^{a-1}`, a = 0.1, out of scope, and :math:`\pi` the expected share,

    .. math:: P(\text{in scope} \mid u) = \frac{1 - \pi}{1 - \pi + \pi a u^{a-1}}.

    Parameters
    ----------
    share : float
        The expected share of out-of-scope rows.
    kept : array or None
        Points of training rows, ordered by their classes.
    starts : array of shape (n_classes + 1,)
        Where the rows of each class start among them.
    outside : array or None
        Points of out-of-scope rows.
    linear : array or None
        Weights, and then the intercept, of a model that separates rows in scope from others by their n-grams or points.
    head : array or None
        The same for a model of the scores.
    center, scale : arrays
        Means and standard deviations of the scores of training rows.
    usual : array
        The sums of the standardised scores of training rows, ascending.
    distance : float
        The weight of the distance in these sums.

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
    starts: Ints
    outside: NDArray[np.float32] | None
    linear: NDArray[np.float32] | None = None
    head: NDArray[np.float32] | None = None
    center: Any = 0.0
    scale: Any = 1.0
    usual: Any = ()
    distance: float = _DISTANCE

    @classmethod
    def learn(cls, inside: ScopeInput, y: Ints, outside: ScopeInput | None, share: float, in_svd: bool = False) -> Self:
        """Learn from training rows, whose scores are out of fold, and from out-of-scope rows if there are enough.

        ``in_svd`` says that the points are an SVD of n-grams.
        """
        chosen = np.sort(np.random.default_rng(0).permutation(len(y))[:_MOST_KEPT])
        chosen = chosen[np.argsort(y[chosen], kind="stable")]
        starts = np.searchsorted(y[chosen], np.arange(inside.proba.shape[1] + 1))
        kept = theirs = linear = evidence = of_outside = None
        if inside.points is not None:
            kept = inside.points[chosen].astype(np.float32)
            if outside is not None and outside.points is not None:
                theirs = outside.points[:: -(-len(outside.points) // _MOST_OUTSIDE)].astype(np.float32)
                linear, evidence, of_outside = _learned(inside.linear, outside.linear)
        scope = cls(share, kept, starts, theirs, linear, distance=_DISTANCE_IN_SVD if in_svd else _DISTANCE)
        scores = scope._scores(inside, own=True, evidence=evidence)
        center, scale = scores.mean(axis=0), np.maximum(scores.std(axis=0), _LEAST)
        scores, head = (scores - center) / scale, None
        if outside is not None:
            others = scope._scores(outside, own=True, evidence=of_outside)
            both, counts = np.concatenate([scores, (others - center) / scale]), [len(y), len(others)]
            # The rows in scope together weigh as much as the others: with few of these, the penalty matters more.
            weight = np.repeat([len(others) / len(y), 1.0], counts)
            head = _weights(LogisticRegression().fit(both, np.repeat([1, 0], counts), weight))
        usual = () if outside is not None else np.sort(scope._total(scores))
        return replace(scope, head=head, center=center, scale=scale, usual=usual)

    def probability(self, rows: ScopeInput) -> Floats:
        """Return the probability that each row is in scope."""
        if not len(rows.proba):
            return np.empty(0)
        scores = (self._scores(rows) - self.center) / self.scale
        if self.head is not None:
            return np.asarray(expit(_linear(scores, self.head) - logit(self.share)))
        at_least = np.searchsorted(self.usual, self._total(scores), side="right")
        u = (at_least + 1) / (len(self.usual) + 1)
        return np.asarray((1 - self.share) / (1 - self.share + self.share * _SHAPE * u ** (_SHAPE - 1)))

    def _scores(self, rows: ScopeInput, own: bool = False, evidence: Floats | None = None) -> Floats:
        """Return the scores, higher in scope; ``own`` rows are among those that they are compared with."""
        columns = [logit(np.clip(rows.proba.max(axis=1), _LEAST, 1 - _LEAST))]
        if rows.top is not None:
            columns.append(rows.top)
        if self.kept is not None and rows.points is not None:
            points = rows.points.astype(np.float32)
            columns.append(-self._own_class(points, rows.proba.argmax(axis=1), own))
            if self.outside is not None and self.linear is not None:
                columns.append(_distance(points, self.outside, _NEAREST, own))
                columns.append(_linear(rows.linear, self.linear) if evidence is None else evidence)
        return np.column_stack(columns).astype(np.float64)

    def _own_class(self, points: NDArray[np.float32], predicted: Ints, own: bool) -> Floats:
        """Return the distance to the nearest kept row of the predicted class."""
        assert self.kept is not None
        found = np.empty(len(points))
        for label in np.unique(predicted):
            rows, known = predicted == label, self.kept[self.starts[label] : self.starts[label + 1]]
            found[rows] = _distance(points[rows], known, 1, own) if len(known) else 2.0 * np.abs(self.kept).max()
        return found

    def _total(self, scores: Floats) -> Floats:
        """Return the sum by which rows are compared if there are no out-of-scope rows."""
        return scores[:, -1] if self.kept is None else np.asarray(scores[:, -2] + self.distance * scores[:, -1])


def _learned(inside: Any, outside: Any) -> tuple[NDArray[np.float32], Floats, Floats]:
    """Return a linear model that separates rows in scope from others, and its scores of both, out of fold."""
    join = partial(sparse.vstack, format="csr") if sparse.issparse(inside) else np.concatenate
    X, y = join([inside, outside]), np.repeat([1, 0], [inside.shape[0], outside.shape[0]])
    # A penalty of 1 was chosen for rows of n-grams, whose squared length is 2.
    penalty = max(row_norms(X, squared=True).mean() / 2, _LEAST)
    model = RidgeClassifier(alpha=penalty, class_weight="balanced", solver="lsqr")
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    scores = cross_val_predict(model, X, y, cv=folds, method="decision_function")
    return _weights(model.fit(X, y)), scores[y == 1], scores[y == 0]


def _weights(model: Any) -> NDArray[np.float32]:
    """Return the weights of a fitted linear model, and its intercept after them."""
    return np.append(model.coef_, model.intercept_).astype(np.float32)


def _linear(X: Any, weights: NDArray[np.float32]) -> Floats:
    return np.asarray(X @ weights[:-1] + weights[-1], dtype=np.float64)


def _distance(points: NDArray[np.float32], others: NDArray[np.float32], count: int, own: bool) -> Floats:
    """Return the mean distance to the nearest ``count`` other rows; an ``own`` row is not its own neighbour."""
    neighbours = NearestNeighbors(n_neighbors=min(count + 1, len(others)), algorithm="brute").fit(others)
    distances = neighbours.kneighbors(points)[0]
    found = distances[:, :count].mean(axis=1)
    if own and len(others) > 1:
        is_known = distances[:, 0] ** 2 <= _SAME * np.maximum(row_norms(points, squared=True), _LEAST)
        found = np.where(is_known, distances[:, 1:].mean(axis=1), found)
    return np.asarray(found, dtype=np.float64)
