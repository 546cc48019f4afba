"""The risk-coverage curve: the risk of the answers if only the most confident rows are answered."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma

from demur.array_types import AnyArray, Floats
from demur.errors import InputError
from demur.metrics.intervals import check_losses, starts_of_ties
from demur.rules import check_weights


@dataclass(frozen=True, eq=False, repr=False)
class RiskCoverage:
    r"""Risk and coverage at every threshold of a confidence, and the areas under them.

    Made by :meth:`from_confidence`. Point i of the curve accepts the rows with ``confidence > thresholds[i]``.
    A threshold cannot separate rows of equal confidence, so tied rows are accepted together: there is one point per
    distinct confidence.

    Parameters
    ----------
    groups : TiedGroups
        The rows in order of confidence.
    aurc : float
        Area under the risk-coverage curve. With the rows in order of confidence and their losses
        :math:`\ell_1, \dots, \ell_n`,

        .. math:: \mathrm{AURC} = \frac1n \sum_{k=1}^n \hat r_k, \qquad \hat r_k = \frac1k \sum_{i \le k} \ell_i,

        the usual empirical area (Geifman et al. 2019). Within a tied group the order is arbitrary; the area is the mean
        over all orders, in closed form: a group of m rows with losses summing to :math:`\ell`, after a rows with losses
        summing to L, adds :math:`(L - a \ell / m)(H_{a+m} - H_a) + \ell` to the sum, where H are the harmonic numbers.
        The area therefore does not depend on the order of the rows.
    eaurc : float
        Excess AURC: minus the AURC of the best possible order, smallest loss first. Zero at best.
    augrc : float
        Area under the generalized risk (Traub et al. 2024), accumulated loss over all rows, as a function of
        coverage; straight lines join the points and the origin. For 0-1 losses with error rate e it equals
        :math:`(1 - \mathrm{AUROC})\, e (1 - e) + e^2 / 2`.

    Notes
    -----
    A weight of 2 counts as two equal rows in every result. Weights that sum to less than the number of rows cannot be
    counts; for ``aurc`` they are scaled to a mean of one (the other results do not depend on their scale).

    References
    ----------
    Geifman, Uziel, El-Yaniv (2019), Bias-reduced uncertainty estimation for deep neural classifiers, ICLR.
    Traub et al. (2024), Overcoming common flaws in the evaluation of selective classification systems, NeurIPS.

    Examples
    --------
    Four rows, of which the third most confident one is answered wrongly. The running risks are 0, 0, 1/3, 1/4:

    >>> curve = RiskCoverage.from_confidence([0.9, 0.8, 0.7, 0.6], loss=[0, 0, 1, 0])
    >>> curve.coverage, curve.risk.round(3)
    (array([0.25, 0.5 , 0.75, 1.  ]), array([0.   , 0.   , 0.333, 0.25 ]))
    >>> round(curve.aurc, 4), round((0 + 0 + 1/3 + 1/4) / 4, 4)
    (0.1458, 0.1458)
    >>> curve.coverage_at(risk=0.25), curve.risk_at(coverage=0.5)
    (1.0, 0.0)
    >>> tied = RiskCoverage.from_confidence([0.9, 0.7, 0.7, 0.7], loss=[0, 0, 1, 0])
    >>> tied.coverage, tied.risk
    (array([0.25, 1.  ]), array([0.  , 0.25]))
    """

    groups: "TiedGroups"
    aurc: float
    eaurc: float
    augrc: float

    @classmethod
    def from_confidence(
        cls, confidence: ArrayLike, loss: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> "RiskCoverage":
        """Make the curve from confidences and losses.

        Parameters
        ----------
        confidence : array of shape (n,)
            Confidence on any scale, such as a probability, a margin or a negative entropy; rows with a higher
            confidence are answered first.
        loss : array of shape (n,)
            Loss of answering each row: 1 if the answer is wrong and 0 if it is right, or any finite number.
        sample_weight : array of shape (n,), optional
            Weight of each row.
        """
        scores, losses = check_losses(confidence, loss)
        weights = check_weights(sample_weight, len(scores))
        # The best possible order accepts the smallest losses first.
        best = TiedGroups.from_rows(-losses.astype(np.float64), losses, weights).area_under_risk()
        groups = TiedGroups.from_rows(scores, losses, weights)
        aurc = groups.area_under_risk()
        return cls(groups, aurc, max(aurc - best, 0.0), groups.area_under_generalized_risk())

    @cached_property
    def coverage(self) -> Floats:
        """The share of rows accepted at each point, ascending; the last is 1."""
        return np.asarray(self.groups.weight / self.groups.weight[-1])

    @cached_property
    def risk(self) -> Floats:
        """The mean loss of the accepted rows at each point (selective risk)."""
        return self.groups.loss / self.groups.weight

    @cached_property
    def generalized_risk(self) -> Floats:
        """Risk times coverage at each point: the loss of the accepted rows, over all rows."""
        return np.asarray(self.groups.loss / self.groups.weight[-1])

    @cached_property
    def thresholds(self) -> Floats:
        """Thresholds t, descending, such that ``confidence > t`` accepts the rows of each point: ties reject.

        Each is the next lower confidence; the last is 0 where all are positive, or else just below the lowest.
        """
        lowest = self.groups.confidence[-1]
        below = np.nextafter(lowest - 1e-9 * abs(lowest), -np.inf)  # also below the rows that tie with the lowest
        return np.append(self.groups.confidence[1:], 0.0 if lowest > 0 else below)

    def coverage_at(self, risk: ArrayLike) -> Any:
        """Return the largest coverage whose selective risk is at most ``risk``; 0 where no point is that good.

        The risk is not monotone in the coverage, so all points are considered, not only those before the first one
        above ``risk``.

        Parameters
        ----------
        risk : float or array
            The largest acceptable risk.
        """
        if np.isnan(risk).any():
            raise InputError("risk must be a number, got NaN.")
        least_from = np.minimum.accumulate(self.risk[::-1])[::-1]  # ascending, so that it can be searched
        found = np.searchsorted(least_from, risk, side="right")
        return as_given(np.append(0.0, self.coverage)[found], risk)

    def risk_at(self, coverage: ArrayLike) -> Any:
        """Return the risk if at least the share ``coverage`` of the rows is answered.

        That is the risk at the first point with at least this coverage; tied rows are accepted together.

        Parameters
        ----------
        coverage : float or array
            Share of rows answered, in (0, 1].
        """
        wanted = np.asarray(coverage, dtype=np.float64)
        if not ((wanted > 0) & (wanted <= 1)).all():
            raise InputError(f"coverage must be in (0, 1], got {coverage!r}: without answers there is no risk.")
        return as_given(self.risk[np.searchsorted(self.coverage, wanted)], coverage)

    def n_points_above(self, threshold: ArrayLike) -> NDArray[np.intp]:
        """Return how many distinct confidences lie above each threshold."""
        ascending = self.groups.confidence[::-1]
        return len(ascending) - np.searchsorted(ascending, threshold, side="right")

    def __repr__(self) -> str:
        areas = ", ".join(f"{name}={getattr(self, name):.4g}" for name in ("augrc", "aurc", "eaurc"))
        return f"RiskCoverage({self.groups.n_rows:,} rows, {len(self.groups.confidence):,} points, {areas})"


class TiedGroups(NamedTuple):
    """Distinct confidences from high to low, with the weight and loss of the rows accepted down to each of them.

    Confidences that differ by rounding noise only, such as 0.85 and 0.85 + 1e-16, are one: see :func:`starts_of_ties`.

    Parameters
    ----------
    confidence : array of shape (n_groups,)
        The distinct values, descending; the highest of a tied group, so that a threshold there rejects the whole group.
    weight : array of shape (n_groups,)
        The weight of all rows with at least this confidence.
    loss : array of shape (n_groups,)
        Their weighted loss.
    n_rows : int
        Number of rows with a positive weight.

    Examples
    --------
    >>> groups = TiedGroups.from_rows(np.array([0.9, 0.5, 0.9]), np.array([0.0, 1.0, 1.0]))
    >>> groups.confidence, groups.weight, groups.loss
    (array([0.9, 0.5]), array([2., 3.]), array([1., 2.]))
    """

    confidence: Floats
    weight: Floats
    loss: Floats
    n_rows: int

    @classmethod
    def from_rows(cls, confidence: Floats, loss: AnyArray, weight: Floats | None = None) -> "TiedGroups":
        """Sort the rows and join those that tie; rows of zero weight do not count."""
        weights = np.ones(len(confidence)) if weight is None else weight
        order = np.argsort(-confidence, kind="stable")
        order = order[weights[order] > 0]
        ordered, weights = confidence[order], weights[order]
        starts = starts_of_ties(ordered)
        is_last = np.append(starts[1:], True)
        totals = np.cumsum(weights), np.cumsum(weights * loss[order])
        return cls(ordered[starts], totals[0][is_last], totals[1][is_last], len(ordered))

    def area_under_risk(self) -> float:
        """Return the mean of the running risk; :class:`~demur.metrics.RiskCoverage` gives the formula."""
        total = self.weight[-1]
        scale = max(1.0, self.n_rows / total)  # weights that sum to less than the rows cannot be counts
        before, size, loss_before, loss_size = self._steps()
        harmonic = digamma((before + size) * scale + 1) - digamma(before * scale + 1)
        return float(np.sum((loss_before - before * (loss_size / size)) * harmonic + loss_size) / total)

    def area_under_generalized_risk(self) -> float:
        """Return the area under accumulated loss over accumulated weight, straight within a tied group."""
        _, size, before, loss = self._steps()
        total = self.weight[-1]
        return float(np.sum(size / total * (before + loss / 2)) / total)

    def _steps(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the weight before each group and of the group, the loss before it and of it."""
        weight, loss = (np.append(0.0, total[:-1]) for total in (self.weight, self.loss))
        return weight, self.weight - weight, loss, self.loss - loss


def as_given(values: AnyArray, like: ArrayLike) -> Any:
    """Return a number for a number, and an array otherwise."""
    return float(values) if np.ndim(like) == 0 else values
