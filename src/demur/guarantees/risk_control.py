"""RiskControl: the error rate of the answers stays at or below a target, with a guaranteed probability.

First the rule, then the procedure that chooses its threshold with a bound that accounts for the choice, then the exact
binomial tests that it uses.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtrik, betainc, betainccinv, logsumexp, ndtr

from demur.array_types import AnyArray, Floats, Mask
from demur.errors import InputError
from demur.guarantees.coverage import FittedThreshold, check_confidence, check_share
from demur.rules import check_classes, check_rows, register_rule


@dataclass(frozen=True)
class RiskCertificate:
    """A threshold, its counts on the calibration sample, and the bound of its test.

    Parameters
    ----------
    threshold : float
    n_rows, n_accepted, n_wrong : int
        Numbers of rows, accepted rows and wrong accepted rows in the calibration sample.
    level : float
        The part of delta at which this threshold was tested.
    bound : float
        The Clopper-Pearson upper bound of the risk at that level: at most the target.
    """

    threshold: float
    n_rows: int
    n_accepted: int
    n_wrong: int
    level: float
    bound: float


class NoGuaranteeError(InputError):
    """No threshold keeps the risk at or below its target with the required confidence.

    Attributes
    ----------
    best : RiskCertificate
        The threshold with the smallest bound, which is above the target.
    rows_needed : int
        The smallest number of accepted rows that could suffice, if all of them are right.
    """

    best: RiskCertificate
    rows_needed: int


@register_rule
class RiskControl(FittedThreshold):
    r"""Answer as many rows as possible while the error rate of the answers stays at or below a target.

    With t the fitted threshold, and probability over the calibration sample,

    .. math:: P\big( P(\text{wrong} \mid \max_y \eta_y > t) \le \text{target\_risk} \big) \ge 1 - \delta,

    for any number of classes and any model, calibrated or not. :meth:`fit` raises an error if no threshold satisfies
    this.

    Parameters
    ----------
    target_risk : float
        Largest acceptable error rate of the answers; in (0, 1).
    delta : float, default 0.05
        Probability, over the calibration sample, that the guarantee fails; in (0, 1).
    groups : array of shape (n,), optional
        Group (a site, a machine, a sex) of each row that :meth:`fit` gets. One threshold then satisfies the guarantee
        in all groups at once, so the group of a new row need not be known. For a rule in a
        :class:`~demur.RejectOption`, one group for each row of its ``fit``.
    unit : {"cluster", "row"}, default "cluster"
        Unit of the guarantee if rows come in clusters: the answer to one row of each cluster (a patient), drawn at
        random and counted if it is answered, or all answers, so that a cluster of many rows counts as often as it has
        rows. Without clusters both are the same.

    Attributes
    ----------
    certificate_ : RiskCertificate
        The threshold, its counts on the calibration sample, and its bound (with groups, the largest bound of a group).
    group_certificates_ : dict of str to RiskCertificate
        The same for each group; empty without groups. With probability 1 - delta the risk is at most the target in
        all of them. Bounds below the target would hold together as often if the threshold had been fixed in advance.
    per_cluster_ : bool
        Whether the guarantee is about one answer per cluster, not about all answers.
    largest_cluster_ : int
        The number of rows of the largest cluster, where all answers of clusters count; otherwise 1.
    threshold_ : float
        Threshold of the certificate: new rows with a larger confidence are answered.

    Notes
    -----
    Testing many thresholds and keeping the best would make a bound at level delta too optimistic. The thresholds are
    therefore fixed in advance and tested from the highest down. Each successful test passes its level on to the next,
    so most of delta is still available near the final threshold. This is valid for every distribution. If
    ``out_of_fold`` rows predict the threshold, 80 % of delta starts there.

    With ``unit="row"``, the risk of clustered rows is tested by betting on bounded means (Waudby-Smith and Ramdas
    2024): the sums over clusters of errors minus target are independent, and they are bounded if no cluster has more
    rows than the largest of the calibration sample, which is assumed.

    With ``groups``, a threshold passes only if it passes in *each* group at its level. This tests the hypothesis "the
    risk is too large in some group" with the largest p-value of the groups, so delta need not be divided among them.
    The smallest group must have enough rows alone.

    The bound is not monotone in the threshold: a higher threshold lowers the risk, but leaves fewer rows as evidence.

    The rule cannot detect whether the model was trained on the calibration rows. Such a model is right about nearly all
    of them, and the guarantee does not hold: use other rows, and keep the rows of one patient on one side of the split.

    References
    ----------
    Angelopoulos, Bates, Candes, Jordan, Lei (2021), Learn then test, arXiv:2110.01052.
    Waudby-Smith, Ramdas (2024), Estimating means of bounded random variables by betting, JRSS B 86.
    Berger (1982), Multiparameter hypothesis testing and acceptance sampling, Technometrics.
    Wiens (2003), A fixed sequence Bonferroni procedure for testing multiple endpoints, Pharmaceutical Statistics.

    Examples
    --------
    200 confident rows without an error and 100 uncertain ones, half of them wrong:

    >>> proba = np.repeat([[0.99, 0.01], [0.6, 0.4]], [200, 100], axis=0)
    >>> y = np.r_[np.zeros(250, dtype=int), np.ones(50, dtype=int)]
    >>> rule = RiskControl(0.05).fit(proba, y)
    >>> rule.decide([[0.99, 0.01], [0.6, 0.4]]).reject
    array([False,  True])
    >>> rule.certificate_.n_accepted, rule.certificate_.n_wrong, rule.certificate_.bound <= 0.05
    (200, 0, True)
    >>> RiskControl(0.001).fit(proba, y)
    Traceback (most recent call last):
        ...
    demur.guarantees.risk_control.NoGuaranteeError: no threshold guarantees a risk of at most 0.001 ... 2,995 ac...
    """

    name = "risk-control"

    def __init__(
        self, target_risk: float, delta: float = 0.05, groups: ArrayLike | None = None, unit: str = "cluster"
    ) -> None:
        check_share("target_risk", target_risk, closed=False)
        check_share("delta", delta, closed=False)
        if unit not in ("cluster", "row"):
            raise InputError(f"unit must be 'cluster' or 'row', got {unit!r}.")
        self.target_risk = target_risk
        self.delta = delta
        self.groups = groups
        self.unit = unit

    def of_rows(self, rows: NDArray[np.integer[Any]]) -> "RiskControl":
        """Return the same rule for some of the rows: only their groups are kept."""
        groups = None if self.groups is None else np.asarray(self.groups)[rows]
        return RiskControl(self.target_risk, self.delta, groups, self.unit)

    def fit(
        self,
        proba: ArrayLike,
        y: ArrayLike,
        clusters: ArrayLike | None = None,
        copies: ArrayLike | None = None,
        out_of_fold: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> Self:
        """Find the threshold from probabilities of a calibration sample.

        Parameters
        ----------
        proba : array of shape (n, n_classes)
            Probabilities of rows that the model was not trained on, drawn independently from the source of the new
            rows.
        y : array of int, shape (n,)
            Their true classes, as column numbers.
        clusters, copies, out_of_fold
            As for :meth:`fit_confidence`.

        Raises
        ------
        NoGuaranteeError
            If no threshold satisfies the guarantee.
        """
        values = check_rows(proba)
        true = check_classes(y, values.shape)
        return self.fit_confidence(values.max(axis=1), values.argmax(axis=1) != true, clusters, copies, out_of_fold)

    def fit_confidence(
        self,
        confidence: ArrayLike,
        wrong: ArrayLike,
        clusters: ArrayLike | None = None,
        copies: ArrayLike | None = None,
        out_of_fold: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> Self:
        """Find the threshold from confidences and errors of a calibration sample.

        Parameters
        ----------
        confidence : array of shape (n,)
            Probabilities.
        wrong : array of bool, shape (n,)
            Whether the answer to each row would be wrong.
        clusters : array of shape (n,), optional
            Cluster (a patient, a machine) of each row, if rows of one cluster resemble each other. One row of each
            cluster, drawn at random, is then counted, and the guarantee is about one answer per cluster, or with
            ``unit="row"`` about all answers.
        copies : array of bool, shape (n,), optional
            True for rows that may be copies of others. The guarantee must then hold with and without them.
        out_of_fold : pair of arrays, optional
            Confidences and errors of other rows, such as out-of-fold predictions of the training rows. They only
            determine where most of delta is spent: the guarantee holds for any values that are independent of the
            calibration rows. Not used with ``groups``.
        """
        scores, errors = check_confidence(confidence), np.asarray(wrong)
        if errors.dtype != np.bool_ or errors.shape != scores.shape:
            raise InputError(
                f"wrong must be a boolean array of shape {scores.shape}, True where the answer is wrong, got dtype "
                f"{errors.dtype} and shape {errors.shape}."
            )
        if not ((scores >= 0) & (scores <= 1 + 1e-3)).all():
            raise InputError(f"RiskControl needs confidences in [0, 1], got {scores.min():g} to {scores.max():g}.")
        for name, one in (("groups", self.groups), ("clusters", clusters), ("copies", copies)):
            if one is not None and np.shape(one) != scores.shape:
                raise InputError(f"{name} must have shape {scores.shape}, one for each row, got {np.shape(one)}.")
        names = np.zeros(len(scores), dtype="U1") if self.groups is None else np.asarray(self.groups).astype(str)
        own = np.ones(len(scores), dtype=bool) if copies is None else ~np.asarray(copies, dtype=bool)
        of_row = None if clusters is None else np.unique(np.asarray(clusters).astype(str), return_inverse=True)[1]
        self.per_cluster_ = of_row is not None and self.unit == "cluster"
        if of_row is not None and self.per_cluster_:
            rows, of_row = one_row_of_each(of_row), None
            scores, errors, names, own = scores[rows], errors[rows], names[rows], own[rows]
        self.largest_cluster_ = 1 if of_row is None else int(np.bincount(of_row).max())
        counted_as = [own] if own.all() else [np.ones_like(own), own]
        groups = np.unique(names).tolist()
        parts = [(name, rows & (names == name)) for name in groups for rows in counted_as]
        sample = Sample(scores, errors, of_row, self.largest_cluster_)
        known = None
        if out_of_fold is not None and self.groups is None:
            known = Sample(np.asarray(out_of_fold[0]), np.asarray(out_of_fold[1], dtype=bool))
        self.certificate_ = fixed_sequence(sample, self.target_risk, self.delta, parts, known)
        by_group = {name: self._of_group(sample.take(names == name), len(groups)) for name in groups}
        self.group_certificates_: dict[str, RiskCertificate] = {} if self.groups is None else by_group
        return self

    def _of_group(self, sample: "Sample", n_groups: int) -> RiskCertificate:
        """Return the certificate of one group; each bound has its share of the level of the threshold."""
        found = self.certificate_
        bound = min(float(self.target_risk), sample.bound(found.threshold, found.level / n_groups))
        return sample.certificate(found.threshold, found.level, bound)

    def unit_in_words(self) -> str:
        """Return the unit of the guarantee as a part of a sentence; empty if it is a row."""
        if getattr(self, "per_cluster_", False):
            return ", for one answer per group (a patient, a machine), to a row drawn at random"
        largest = getattr(self, "largest_cluster_", 1)
        return f", counting all rows of each group, if no group has more than {largest:,} rows" if largest > 1 else ""

    @property
    def threshold_(self) -> float:
        """The threshold found by ``fit``: rows with a larger confidence are answered, ties reject."""
        return self.certificate_.threshold

    def explain(self) -> str:
        guarantee = (
            f"with probability at least {1 - self.delta:.4g} over the calibration sample, at most "
            f"{self.target_risk:.4g} of the answers given are wrong{self.unit_in_words()}"
        )
        if not hasattr(self, "certificate_"):
            return f"Will answer as many rows as it can such that {guarantee}; not fitted yet."
        seen, by_group = self.certificate_, getattr(self, "group_certificates_", {})
        together = "together, not about each class or group"
        if by_group:
            together = f"in each of {len(by_group)} groups, not about each class"
        return (
            f"Answers where the confidence exceeds {seen.threshold:.6g}: {seen.n_accepted:,} of {seen.n_rows:,} "
            f"calibration rows, {seen.n_wrong:,} of them wrongly. It guarantees that, {guarantee} (the upper bound is "
            f"{seen.bound:.4g}, at level {seen.level:.4g}). This holds if new rows and calibration rows are "
            "exchangeable, drawn independently from one source, and if the model was not trained on the calibration "
            f"rows. It is a statement about all answers {together}, and a shift of the data voids it."
        )


def one_row_of_each(clusters: ArrayLike) -> NDArray[np.intp]:
    """Return the position of one row of each cluster, drawn at random but always the same, in order.

    Examples
    --------
    >>> one_row_of_each(["ann", "bob", "ann", "bob", "cid"])
    array([1, 2, 4])
    """
    values = np.asarray(clusters)
    shuffled = np.random.RandomState(0).permutation(len(values))
    return np.sort(shuffled[np.unique(values[shuffled], return_index=True)[1]])


_STEPS = 32
"""Number of thresholds for each factor of two in 1 - t."""
_OCTAVES_BELOW = 20
"""The most cautious threshold is t = 1 - target_risk / 2^20."""
_DECAY = 0.7
"""Factor between the parts of delta of one octave of 1 - t and the next one away from t = 1 - target_risk."""


def fixed_thresholds(target_risk: float) -> tuple[Floats, Floats]:
    """Return thresholds on a probability, descending, and the part of delta that each starts with.

    Both are fixed before any data are seen. 1 - t grows geometrically. If the probabilities are calibrated, the risk
    above t = 1 - target_risk is below the target, and the best threshold is only slightly lower. The largest part of
    delta therefore starts there, and less with every factor of two in 1 - t away from it.

    Examples
    --------
    >>> thresholds, parts = fixed_thresholds(0.1)
    >>> float(thresholds[parts.argmax()]), float(thresholds[-1])
    (0.9, 0.0)
    >>> float(parts.sum().round(12))
    1.0
    """
    steps = np.arange(-_OCTAVES_BELOW * _STEPS, math.ceil(-math.log2(target_risk) * _STEPS))
    thresholds = np.append(1 - target_risk * 2.0 ** (steps / _STEPS), 0.0)
    parts = np.append(np.where(steps % _STEPS == 0, _DECAY ** np.abs(steps / _STEPS), 0.0), 0.0)
    return thresholds, parts / parts.sum()


def fixed_sequence(
    sample: "Sample",
    target_risk: float,
    delta: float,
    parts: Sequence[tuple[str, Mask]] = (),
    out_of_fold: "Sample | None" = None,
) -> RiskCertificate:
    """Test fixed thresholds from the most cautious down (learn then test, Angelopoulos et al. 2021).

    The hypothesis "the risk above t exceeds the target" is tested for each threshold of :func:`fixed_thresholds` by
    an exact binomial test. A threshold is tested at its own part of delta plus, if the threshold before it was
    rejected, the whole level of that test: the fallback procedure (Wiens 2003), fixed-sequence testing with several
    starts. The first wrong rejection, if any, is of a true hypothesis k at a level that is the sum of the parts since
    the last true one before k; these levels sum to at most delta over the true hypotheses, whatever they are.
    Given how many rows are accepted at a fixed threshold, their errors are binomial. So the guarantee is exact for
    every distribution, with ties and without a monotone risk. The order matters for power only: risk is expected to
    grow as the threshold falls, so that levels add up on the way to the lowest threshold that can be rejected.

    With ``out_of_fold``, 80 % of delta starts at the threshold at which these rows predict that a test succeeds, and
    the rest is distributed as without them. These rows are independent of the calibration rows: given them, thresholds
    and parts are fixed, and the argument above holds. If the prediction is wrong, 20 % of delta is left.

    With ``parts``, pairs of a name and a mask of rows, the hypothesis is "the risk above t exceeds the target in some
    part". It is a union, and rejecting each member at a level rejects the union at that level (Berger 1982): the
    largest p-value is one for the union.
    """
    thresholds, shares = fixed_thresholds(target_risk)
    if out_of_fold is not None and len(out_of_fold.wrong):
        start = _expected_start(out_of_fold, len(sample.wrong), target_risk, _AT_START * delta)
        shares = (1 - _AT_START) * shares + _AT_START * (np.arange(len(shares)) == start)
    own = delta * shares
    samples = [sample.take(rows) for _, rows in parts] or [sample]
    p_values = np.max([one.p_values(thresholds, target_risk) for one in samples], axis=0)
    level, chosen, chosen_level = 0.0, -1, 0.0
    for index, (part, p) in enumerate(zip(own.tolist(), p_values.tolist(), strict=True)):
        level += part
        if p <= level:
            chosen, chosen_level = index, level
        else:
            level = 0.0
    found = chosen >= 0
    if not found:
        starts = np.flatnonzero(own)
        bounds = [max(one.bound(thresholds[start], own[start]) for one in samples) for start in starts.tolist()]
        chosen = int(starts[np.argmin(bounds)])
        chosen_level = float(own[chosen])
    threshold = float(thresholds[chosen])
    by_part = [one.bound(threshold, chosen_level) for one in samples]
    worst = int(np.argmax(by_part))
    certificate = sample.certificate(threshold, chosen_level, by_part[worst])
    if not found:
        where = ""
        if len({name for name, _ in parts}) > 1:
            where = f" in every group (the weakest, {parts[worst][0]!r}, has {parts[worst][1].sum():,} of the rows)"
        raise _no_guarantee(certificate, target_risk, delta, where)
    return certificate


_AT_START = 0.8
"""The share of delta that starts at the threshold at which out-of-fold rows predict that a test succeeds."""
_CAUTION = 4
"""Exponent of the probability that the first test succeeds; it counts more than the coverage, because further tests
follow a success."""


def _expected_start(known: "Sample", n_rows: int, target_risk: float, level: float) -> int:
    """Return the number of the threshold to start at, with ``n_rows`` calibration rows.

    It has the largest product of the coverage and a power of the probability that the test succeeds, by the normal
    approximation and with the uncertainty of the known rows.
    """
    thresholds, _ = fixed_thresholds(target_risk)
    accepted, wrong = known.above(thresholds)
    share, risk = accepted / len(known.wrong), (wrong + 0.5) / (accepted + 1)
    n = n_rows * share
    # The largest number of errors that passes the test, and -1 where none does.
    passing = np.where((1 - target_risk) ** n <= level, np.maximum(bdtrik(level, np.maximum(n, 1), target_risk), 0), -1)
    spread = np.sqrt(n * risk * (1 - risk) * (1 + n_rows / len(known.wrong)) + 1e-12)
    power = np.where(passing >= 0, ndtr((np.floor(passing) + 0.5 - n * risk) / spread), 0.0)
    return int((power**_CAUTION * share).argmax())


class Sample(NamedTuple):
    """Confidences and errors of rows, and their cluster numbers if all rows of a cluster count."""

    confidence: Floats
    wrong: Mask
    cluster: NDArray[np.intp] | None = None
    largest_cluster: int = 1

    def take(self, rows: Mask) -> "Sample":
        """Return some of the rows."""
        cluster = None if self.cluster is None else self.cluster[rows]
        return Sample(self.confidence[rows], self.wrong[rows], cluster, self.largest_cluster)

    def above(self, threshold: float | Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the number of rows, and of wrong rows, with a confidence above each threshold."""
        n_rows, n_wrong = (
            len(values) - np.searchsorted(np.sort(values), threshold, side="right")
            for values in (self.confidence, self.confidence[self.wrong])
        )
        return n_rows, n_wrong

    def certificate(self, threshold: float, level: float, bound: float) -> RiskCertificate:
        """Return what a threshold accepts, with the bound of its test."""
        n_accepted, n_wrong = (int(count) for count in self.above(threshold))
        return RiskCertificate(threshold, len(self.wrong), n_accepted, n_wrong, level, bound)

    def p_values(self, thresholds: Floats, risk: float) -> Floats:
        """Return a p-value of the hypothesis that the risk above a threshold exceeds ``risk``, for each threshold."""
        if self.cluster is None:
            n_rows, n_wrong = self.above(thresholds)
            return p_value(n_wrong, n_rows, risk)
        largest, excess = (1 - risk) * self.largest_cluster, self.wrong - risk
        return np.array(
            [
                mean_p_value(np.bincount(self.cluster, excess * (self.confidence > one)), largest)
                for one in thresholds.tolist()
            ]
        )

    def bound(self, threshold: float, level: float) -> float:
        """Return an upper bound of the risk above the threshold."""
        n_rows, n_wrong = self.above(threshold)
        if self.cluster is None or not n_rows:
            return float(upper_bound(n_wrong, n_rows, level))
        low, high = float(n_wrong / n_rows), 1.0
        while high - low > 1e-4:
            middle = (low + high) / 2
            passes = self.p_values(np.array([threshold]), middle)[0] <= level
            low, high = (low, middle) if passes else (middle, high)
        return high


def mean_p_value(values: ArrayLike, largest: float) -> float:
    """Return a p-value of the hypothesis that the mean of independent values, none above ``largest``, is at least 0.

    It is the inverse of the capital of a betting strategy against the hypothesis (Waudby-Smith and Ramdas 2024).
    Betting a fixed share b of the capital gives the product of 1 - b x over the values x, whose expectation is at most
    1 if the hypothesis is true; the capital is the mean over 16 shares.

    Examples
    --------
    >>> mean_p_value(np.full(100, -0.1), 0.9) < 0.01, mean_p_value(np.full(100, 0.1), 0.9)
    (True, 1.0)
    """
    different, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    parts = 0.95 / largest * 1.5 ** -np.arange(16.0)
    capital = logsumexp(np.log1p(-parts[:, None] * different) @ counts) - np.log(len(parts))
    return float(np.exp(-max(capital, 0.0)))


def _no_guarantee(best: RiskCertificate, target_risk: float, delta: float, where: str) -> NoGuaranteeError:
    needed = rows_needed(target_risk, delta)
    error = NoGuaranteeError(
        f"no threshold guarantees a risk of at most {target_risk:g} with probability {1 - delta:g}{where}: on these "
        f"{best.n_rows:,} calibration rows the smallest bound is {best.bound:.3g} (accepting {best.n_accepted:,} rows, "
        f"{best.n_wrong:,} of them wrong), and even without any error at least {needed:,} accepted rows are needed"
        f"{' in each group' if where else ''}. "
        "More calibration rows, a higher target risk (--max-risk), a larger delta or a better model would help."
    )
    error.best, error.rows_needed = best, needed
    return error


def p_value(errors: ArrayLike, n: ArrayLike, risk: float) -> Floats:
    """Return P(Bin(n, risk) <= errors): small if so few errors are unlikely at that risk.

    It is a valid p-value for the hypothesis that the error rate exceeds ``risk``; 1 if nothing was accepted.

    Examples
    --------
    No error in 59 rows is just enough to reject a risk above 5 % at the 5 % level: 0.95^59 = 0.0485.

    >>> round(float(p_value(0, 59, 0.05)), 4)
    0.0485
    """
    right = np.subtract(n, errors)
    return np.where(right > 0, betainc(np.maximum(right, 1), np.add(errors, 1), 1 - risk), 1.0)


def upper_bound(errors: ArrayLike, n: ArrayLike, delta: ArrayLike) -> AnyArray:
    """Return the Clopper-Pearson upper bound: the largest risk at which P(Bin(n, risk) <= errors) is still delta.

    With probability at least 1 - delta it is not below the true error rate. It is 1 if all rows are wrong or none was
    accepted.

    Examples
    --------
    Without errors it solves (1 - b)^n = delta, the "rule of three" b = 3 / n:

    >>> round(float(upper_bound(0, 100, 0.05)), 4), round(1 - 0.05 ** (1 / 100), 4)
    (0.0295, 0.0295)
    """
    right = np.subtract(n, errors)
    bound = betainccinv(np.add(errors, 1), np.maximum(right, 1), np.asarray(delta, dtype=np.float64))
    return np.where((right > 0) & np.greater(delta, 0), bound, 1.0)


def rows_needed(risk: float, delta: float) -> int:
    """Return the number of rows, all answered correctly, at which the upper bound falls to ``risk``.

    Examples
    --------
    >>> rows_needed(0.05, 0.05)
    59
    """
    return math.ceil(math.log(delta) / math.log1p(-risk))
