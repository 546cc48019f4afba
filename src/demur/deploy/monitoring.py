"""Monitor a deployed model: drift from unlabelled rows, risk from reviewed ones, with anytime-valid alarms.

Every check is a test martingale: a bet against the hypothesis that nothing has changed. Under that hypothesis the
capital of the bet is a nonnegative martingale that starts at 1, so the probability that it ever reaches 1 / delta is
at most delta (Ville's inequality), however long the monitor runs and however often it is read.
"""

import hashlib
import json
import math
import secrets
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit

from demur.array_types import ByName, FilePath, Floats, Ints, Mask
from demur.errors import InputError
from demur.guarantees import RiskControl
from demur.guarantees.coverage import check_share
from demur.metrics import Interval
from demur.tabular.evaluation import Evaluation
from demur.tabular.review_queue import check_audit, reviewed_rows
from demur.tabular.table_files import LabelledTable, class_texts
from demur.tabular.table_model import TableModel, answer_confidence
from demur.whole_file import write_whole

_EDGES = np.linspace(-4.0, 12.0, 65)
"""Bin edges of the confidence, in log odds. They are fixed: edges chosen on the reference rows would make those rows
more regular than new ones, and the test would no longer be exact."""
_TINY = 1e-9
_NOTHING = 1e-300
"""Logarithm of an empty stake: finite, because JSON has no infinity."""

DRIFTS = ("rejected share", "confidence", "class mix")
RISK = "risk"
_FORMAT = 6

_FORECAST, _AUDITS = 10_000, 100
"""Audited answers within which an alarm is predicted, and simulated audits of which the median is taken."""


@dataclass(frozen=True)
class Reference:
    """Counts of a model's decisions on held-out rows: the baseline of a monitor.

    Parameters
    ----------
    classes : tuple of str
    n_rows, n_rejected : int
    class_counts : tuple of int
        Number of rows in which each class is the first choice.
    confidence_counts : tuple of int
        Number of rows in each (fixed) bin of the confidence.
    is_probability : bool
        Whether the confidence is a probability rather than a trained score.
    n_wrong : int
        Number of wrong answers among the ``n_rows - n_rejected`` answered rows.

    Examples
    --------
    >>> known = Reference.of([False, True, False], [0.9, 0.6, 0.8], [0, 1, 1], [False, True, False], classes=["a", "b"])
    >>> known.n_rows, known.n_rejected, known.class_counts, known.n_wrong
    (3, 1, (1, 2), 0)
    """

    classes: tuple[str, ...]
    n_rows: int
    n_rejected: int
    class_counts: tuple[int, ...]
    confidence_counts: tuple[int, ...]
    is_probability: bool
    n_wrong: int

    @classmethod
    def of(
        cls,
        reject: ArrayLike,
        confidence: ArrayLike,
        label: ArrayLike,
        wrong: ArrayLike,
        *,
        classes: ArrayLike,
        is_probability: bool = True,
    ) -> Self:
        """Count decisions on labelled rows; ``label`` is the index of each row's first choice in ``classes``."""
        names = tuple(str(name) for name in np.asarray(classes).tolist())
        rejected, errors = np.asarray(reject, dtype=bool), np.asarray(wrong, dtype=bool)
        bins = _bins(np.asarray(confidence, dtype=np.float64), is_probability)
        return cls(
            names,
            len(rejected),
            int(rejected.sum()),
            tuple(np.bincount(np.asarray(label), minlength=len(names)).tolist()),
            tuple(np.bincount(bins, minlength=len(_EDGES) + 1).tolist()),
            is_probability,
            int((errors & ~rejected).sum()),
        )

    @classmethod
    def of_evaluation(cls, judged: Evaluation, *, is_probability: bool) -> Self:
        """Count the decisions of an evaluation on rows that the model was not trained on."""
        figures = (judged.decision.reject, judged.answer_confidence, judged.decision.label, judged.wrong)
        return cls.of(*figures, classes=judged.class_names, is_probability=is_probability)

    @classmethod
    def from_json(cls, found: Any) -> Self:
        """Restore the reference that :meth:`to_json` returned."""
        plain: ByName = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
        return cls(**plain)

    def to_json(self) -> ByName:
        """Return plain numbers and tuples of them."""
        return asdict(self)

    @property
    def n_answered(self) -> int:
        """Number of answered rows."""
        return self.n_rows - self.n_rejected


def _looks(model: TableModel, table: Any, where: str) -> tuple[Mask, Floats, Ints]:
    """Return the inputs of the drift checks: rejection, confidence and first choice of each row."""
    decision, scores = model.decide_and_score(table, where=where)
    label = np.asarray(decision.label, dtype=np.int64)
    first = scores[np.arange(len(label)), label] if model.has_proba else None
    return np.asarray(decision.reject), answer_confidence(decision, first, model.cost_adjustable), label


def _bins(confidence: Floats, is_probability: bool) -> Ints:
    """Return the bin of each confidence: by its log odds, or for a score by 4 + its inverse hyperbolic sine."""
    values = logit(np.clip(confidence, _TINY, 1 - _TINY)) if is_probability else np.arcsinh(confidence) + 4.0
    return np.digitize(values, _EDGES).astype(np.int64)


_BLOCK = 25
"""Rows between two updates of the bets, when some more of the capital is put at stake."""
_CASH_ROWS = 300.0
"""Rows after which 70 % of the capital for later changes is left; it falls with the square root of their number."""
_PIECES = 10
"""Bins of the histogram of p-values, of equal width."""
_MEMORIES = np.array([100.0, 1000.0, 10_000.0])
"""Number of past rows that each drift bet weighs, roughly (exponential forgetting)."""
_PRIOR = 5.0
"""Pseudo-count in each bin of the histogram before the first row."""


class _Bets:
    """A test martingale: several bets that share one capital, which is invested gradually, block by block.

    Subclasses define the gain of each bet on the rows of a block. All arrays may have leading axes: independent
    streams.
    """

    _state: ClassVar[tuple[str, ...]]
    _at_once: ClassVar[float] = 0.0
    """Share of the capital at stake from the first row."""

    def __init__(self, shares: Floats, streams: tuple[int, ...]) -> None:
        self.n_rows = 0
        self._log_shares = np.log(shares / shares.sum())
        self._log_stakes = np.full((*streams, len(shares)), math.log(self._at_once or _NOTHING) + self._log_shares)

    def _gains(self, *columns: NDArray[Any]) -> Floats:
        """Return the logarithm of the gain of each bet on rows of one block, of shape (..., n_bets, n)."""
        raise NotImplementedError  # each kind of bet has its own

    def _cash(self, block: int) -> float:
        """Return the capital not yet invested; it decreases slowly, to keep some for late changes."""
        return (1 - self._at_once) / math.sqrt(1 + block * _BLOCK / _CASH_ROWS)

    def _evidence(self, log_capital: Floats) -> Floats:
        """Return the logarithm of the evidence, of shape (..., n)."""
        return log_capital

    def _capital(self, log_stakes: Floats) -> Floats:
        """Return the logarithm of the evidence, of shape (..., n), for the stakes after each of n rows."""
        cash = math.log(self._cash(self.n_rows // _BLOCK))
        return self._evidence(np.logaddexp(cash, np.logaddexp.reduce(log_stakes, axis=-2)))

    @property
    def log_capital(self) -> Floats:
        """Logarithm of the current capital; it starts at 0."""
        return self._capital(self._log_stakes[..., None])[..., 0]

    def bet(self, *columns: ArrayLike) -> Floats:
        """Process rows in order, shape (..., n); return the log capital after each."""
        arrays = [np.asarray(one) for one in columns]
        capital: Floats = np.empty(arrays[0].shape)
        start = 0
        while start < capital.shape[-1]:
            stop = start + _BLOCK - self.n_rows % _BLOCK
            gains = self._gains(*(one[..., start:stop] for one in arrays))
            stakes = self._log_stakes[..., None] + np.cumsum(gains, axis=-1)
            capital[..., start:stop] = self._capital(stakes)
            self._log_stakes, start = stakes[..., -1], stop
            self.n_rows += gains.shape[-1]
            self._end_block()
        return capital

    def _end_block(self) -> None:
        """Put more of the capital at stake where a block has ended."""
        if self.n_rows % _BLOCK == 0:
            block = self.n_rows // _BLOCK
            fresh = math.log(self._cash(block - 1) - self._cash(block))
            self._log_stakes = np.logaddexp(self._log_stakes, fresh + self._log_shares)

    def to_json(self) -> ByName:
        """Return the state of a single stream."""
        return {name: np.asarray(getattr(self, name)).tolist() for name in self._state}

    def restore(self, found: ByName) -> None:
        """Continue from the state that :meth:`to_json` returned."""
        for name in self._state:
            value = np.asarray(found[name])
            setattr(self, name, value if value.ndim else value.item())


class DriftBets(_Bets):
    r"""Conformal test martingale against a change in how often rows of each kind occur.

    Each row is given as its kind and a uniform number u. A row of kind k gets the p-value (rows of earlier kinds + u
    (rows of kind k, itself included)) / (all rows, itself included), among the reference rows *and all rows before it*.
    If new rows and reference rows are exchangeable, these p-values are independent and uniform (Vovk et al. 2005),
    whatever the frequencies of the kinds and the number of reference rows. Three bets with memories of 100, 1,000 and
    10,000 rows follow the histogram of past p-values. Their capital is invested gradually, so that late changes are
    still detected.

    Parameters
    ----------
    counts : array of int, shape (..., n_kinds)
        Number of reference rows of each kind. Leading axes are independent streams.

    Attributes
    ----------
    log_capital : array of shape (...)
        Logarithm of the current capital; it starts at 0.

    References
    ----------
    Vovk, Nouretdinov, Gammerman (2003), Testing exchangeability on-line, ICML.
    Shafer, Vovk (2019), Game-theoretic foundations for probability and finance.

    Examples
    --------
    >>> bets, rng = DriftBets([400, 100]), np.random.default_rng(0)
    >>> float(np.exp(bets.bet(rng.choice(2, size=500, p=[0.8, 0.2]), rng.uniform(size=500))).max()) < 5
    True
    >>> float(np.exp(bets.bet(rng.choice(2, size=500, p=[0.5, 0.5]), rng.uniform(size=500))).max()) > 1e6
    True
    """

    _state = ("n_rows", "counts", "_memory", "_pending", "_log_stakes")

    def __init__(self, counts: ArrayLike) -> None:
        self.counts = np.asarray(counts, dtype=np.int64)
        streams = self.counts.shape[:-1]
        super().__init__(np.ones(len(_MEMORIES)), streams)
        self._memory = np.zeros((*streams, len(_MEMORIES), _PIECES))
        self._pending = np.zeros((*streams, _PIECES), dtype=np.int64)

    def _gains(self, *columns: NDArray[Any]) -> Floats:
        pieces = np.minimum((self._p_values(*columns) * _PIECES).astype(np.int64), _PIECES - 1)
        weight = self._memory + _PRIOR
        density = np.log(_PIECES * weight / weight.sum(axis=-1, keepdims=True))
        self._pending = self._pending + (pieces[..., None] == np.arange(_PIECES)).sum(axis=-2)
        return np.take_along_axis(density, pieces[..., None, :], axis=-1)

    def _end_block(self) -> None:
        super()._end_block()
        if self.n_rows % _BLOCK == 0:
            self._memory = self._memory * np.exp(-_BLOCK / _MEMORIES)[:, None] + self._pending[..., None, :]
            self._pending = np.zeros_like(self._pending)

    def _p_values(self, codes: Ints, ties: Floats) -> Floats:
        kinds, code = np.arange(self.counts.shape[-1]), codes[..., None]
        known = self.counts[..., None, :] + (code == kinds).cumsum(axis=-2)  # up to each row, itself included
        self.counts = known[..., -1, :]
        below, equal = (np.sum(known * which, axis=-1) for which in (kinds < code, kinds == code))
        return np.asarray((below + ties * equal) / known.sum(axis=-1))


_WORSE = np.array([1.2, 1.5, 2.0, 3.0, 6.0])
"""Odds of a wrong answer that each bet is optimal for, as multiples of the odds at the allowed error rate."""
_SHARES = np.array([0.1, 0.2, 0.45, 0.15, 0.1])
"""Share of the capital of each bet: most for a doubling."""
_LEVELS = np.linspace(-1.0, 5.0, 61)
"""Error rates of the reference that are considered, in standard deviations from the observed one."""
_DEVIATIONS = 3.0
"""Distance from the observed rate at which the reference rows are the strongest evidence."""
_RESERVE = 0.5
"""Share of the capital that is never at stake, where the reference rows are evidence on their own."""
_FLOOR = 0.1
"""Part of that evidence that does not depend on the reference rows, so that it is never zero."""


class RiskBets(_Bets):
    r"""Test martingale against the hypothesis that the error rate is at most r.

    Bet j multiplies its stake by :math:`(r_j / r)^x ((1 - r_j) / (1 - r))^{1 - x}`, where x is 1 for a wrong answer.
    That is :math:`1 + \lambda_j (x - r)` with :math:`\lambda_j \ge 0`, a supermartingale as long as the risk given
    the past is at most r. A part of the capital is at stake from the first row, the rest is invested gradually.

    The error rate r of the reference may be unknown. Then the evidence is the smallest product, over all r, of the
    capital against r and of the reference rows' own evidence against r, :math:`e^{-\lambda k} / (1 - r + r
    e^{-\lambda})^n` for k wrong answers of n, whose mean is 1 if r is the rate of the reference. The first factor
    falls with r and the second one grows, so that a grid of r gives a lower bound.

    Parameters
    ----------
    risks : array of shape (..., n_levels)
        Error rates r. Leading axes are independent streams.
    log_factors : array of shape (..., n_levels), default 0
        Logarithm of the evidence against each of them that there is already.
    reserve : float, default 0
        Share of the capital that is never at stake.

    Examples
    --------
    >>> bets, rng = RiskBets([0.02]), np.random.default_rng(0)
    >>> float(np.exp(bets.bet(rng.uniform(size=2000) < 0.02)).max()) < 20
    True
    >>> int(np.argmax(bets.bet(rng.uniform(size=2000) < 0.06) > np.log(20)))
    146
    """

    _state = ("n_rows", "_log_stakes")
    _at_once = 0.15

    def __init__(self, risks: ArrayLike, log_factors: ArrayLike = 0.0, reserve: float = 0.0) -> None:
        allowed = np.asarray(risks, dtype=np.float64)[..., None]
        super().__init__(_SHARES, allowed.shape[:-1])
        self._log_factors, self._reserve = np.asarray(log_factors)[..., None], reserve
        self._log_right = -np.log1p((_WORSE - 1) * allowed)[..., None]
        self._log_worse = np.log(_WORSE)[:, None]

    @classmethod
    def of_reference(cls, n_wrong: ArrayLike, n_rows: ArrayLike) -> Self:
        """Return bets that the error rate is higher than that of rows of which ``n_wrong`` are wrong."""
        from scipy.special import ndtr
        from scipy.stats import beta

        wrong, rows = np.asarray(n_wrong)[..., None], np.asarray(n_rows)[..., None]
        risks = np.asarray(beta.ppf(ndtr(_LEVELS), wrong + 0.5, rows - wrong + 0.5))
        tilts = _DEVIATIONS / np.sqrt((rows + 1) * risks)
        evidence = np.exp(-tilts * wrong - rows * np.log1p(risks * np.expm1(-tilts)))
        factors = np.log(_FLOOR + (1 - _FLOOR) * evidence)
        ends = [(0, 0)] * (risks.ndim - 1)  # between two rates: the capital of the higher, the factor of the lower one
        return cls(
            np.pad(risks, [*ends, (0, 1)], constant_values=1.0),
            np.pad(factors, [*ends, (1, 0)], constant_values=math.log(_FLOOR)),
            _RESERVE,
        )

    def rows_until(self, log_capital: float, risk: float) -> int | None:
        """Return the median number of further rows until the capital is so high, in simulated audits of this risk.

        From the 100th row on, an alarm is only looked for at the end of a block. None if the median is above 10,000.
        """
        audits, rng = deepcopy(self), np.random.default_rng(0)
        high = np.zeros(_AUDITS, dtype=bool)
        while (passed := audits.n_rows - self.n_rows) < _FORECAST:
            n = 1 if passed < 100 else _BLOCK - audits.n_rows % _BLOCK
            n_wrong = rng.binomial(n, risk, size=(_AUDITS, 1, 1))
            audits._log_stakes = audits._log_stakes + n * self._log_right[..., 0] + self._log_worse[:, 0] * n_wrong
            audits.n_rows += n
            audits._end_block()
            high |= audits.log_capital >= log_capital
            if high.mean() >= 0.5:
                return audits.n_rows - self.n_rows
        return None

    def _gains(self, *columns: NDArray[Any]) -> Floats:
        return np.asarray(self._log_right + self._log_worse * columns[0][..., None, None, :])

    def _evidence(self, log_capital: Floats) -> Floats:
        kept = np.logaddexp(log_capital + math.log1p(-self._reserve), math.log(self._reserve or _NOTHING))
        return np.asarray((kept + self._log_factors).min(axis=-2))


_TILTS = np.geomspace(0.01, 5, 40)


def risk_sequence(n_wrong: int, n_rows: int, delta: float = 0.05) -> Interval:
    r"""Return a confidence sequence for the mean risk: an interval that is valid at every row at once.

    With probability 1 - delta it contains the mean of the rows' risks for all n simultaneously, also where the risk
    changes from row to row: for each tilt :math:`\lambda` of a fixed mixture,
    :math:`e^{\lambda k} / (1 + \mu_n (e^\lambda - 1))^n` is a supermartingale, by the concavity of the logarithm,
    where :math:`\mu_n` is the mean of the risks of the n rows and k of them were wrong.

    Parameters
    ----------
    n_wrong, n_rows : int
    delta : float, default 0.05

    Examples
    --------
    It is wider than an interval for a single n, which would be [0.0124, 0.0376]:

    >>> print(risk_sequence(14, 620))
    0.02258 [0.007731, 0.04849]
    >>> print(risk_sequence(0, 0))
    nan [0, 1]
    """
    from scipy.optimize import brentq

    def evidence(risk: float, tilts: Floats) -> float:
        logs = tilts * n_wrong - n_rows * np.log1p(risk * np.expm1(tilts))
        return float(np.logaddexp.reduce(logs)) - math.log(2 * len(tilts) / delta)

    low = brentq(evidence, 0, 1, args=(_TILTS,)) if evidence(0, _TILTS) > 0 else 0.0
    high = brentq(evidence, 0, 1, args=(-_TILTS,)) if evidence(1, -_TILTS) > 0 else 1.0
    return Interval(n_wrong / n_rows if n_rows else math.nan, low, high, 1 - delta)


@dataclass(frozen=True)
class Alarm:
    """A change that a check has detected.

    Parameters
    ----------
    check : str
        "rejected share", "confidence", "class mix" or "risk".
    row : int
        Number of the row that raised it, counted from 1 among the rows that the check uses.
    capital : float
        Capital of the check's bets at that row: the evidence for a change.
    """

    check: str
    row: int
    capital: float

    def __str__(self) -> str:
        rows = "audited row" if self.check == RISK else "row"
        words = {
            "rejected share": "the share of declined rows has changed from the reference",
            "confidence": "the distribution of the confidence has changed from the reference",
            "class mix": "the class frequencies have changed from the reference",
            RISK: "the error rate of the answers exceeds the allowed one",
        }
        return f"ALARM at {rows} {self.row:,}: {words[self.check]} (evidence {self.capital:,.0f} : 1)."


class Monitor:
    """Monitor a model with four checks; the probability of any false alarm, ever, is at most delta.

    Parameters
    ----------
    reference : Reference
        Decisions on rows that the model was not trained on.
    max_risk : float, optional
        Error rate of the answers above which the monitor raises an alarm. By default the rate of the reference rows,
        which is known only approximately: the check takes their number into account.
    delta : float, default 0.05
        Largest probability of a false alarm, over all four checks and all time. Half of it is for the risk.
    audit : float, default 0.02
        Share of the answered rows to draw for a review.
    seed : int, optional
        Seed of the audit's draws; by default random. It is saved with the state.

    Attributes
    ----------
    n_rows, n_rejected : int
        Number of rows seen, and of those that were declined.
    n_audited, n_wrong : int
        Number of audited answers, and of the wrong ones among them.
    n_reviewed, n_missed : int
        Number of reviewed declined rows, and of those whose first choice was wrong.
    alarms : list of Alarm
        At most one of each check, in the order in which they were raised.
    sources : list of dict
        The tables that were counted (see :class:`MonitoredTables`).

    Notes
    -----
    The drift checks test that new rows and reference rows are exchangeable. The risk check tests that each audited
    answer is wrong with probability at most ``max_risk``, or at most that of the reference's answers, given the earlier
    ones. The audit must be drawn at random among the answered rows, as :meth:`draw` and the service do; declined rows
    give no information about the answers.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def rows(n, sure):
    ...     confidence = rng.beta(sure, 2, size=n)
    ...     return confidence < 0.8, confidence, rng.integers(2, size=n)
    >>> known = Reference.of(*rows(500, 16), rng.uniform(size=500) < 0.05, classes=["a", "b"])
    >>> monitor = Monitor(known, max_risk=0.08)
    >>> monitor.watch(*rows(3000, 16))
    []
    >>> print(*monitor.watch(*rows(1000, 10)), sep=chr(10))
    ALARM at row 3,195: the distribution of the confidence has changed from the reference (evidence 177 : 1).
    ALARM at row 3,345: the share of declined rows has changed from the reference (evidence 123 : 1).
    """

    def __init__(
        self,
        reference: Reference,
        *,
        max_risk: float | None = None,
        delta: float = 0.05,
        audit: float = 0.02,
        seed: int | None = None,
    ) -> None:
        for name, share in (("max_risk", max_risk), ("delta", delta)):
            if share is not None:
                check_share(name, share, closed=False)
        check_audit(audit)
        if reference.n_rows < 1:
            raise InputError("the reference has no rows: give some that the model was not trained on.")
        self.reference, self.max_risk, self.delta, self.audit = reference, max_risk, delta, audit
        self.seed = secrets.randbits(32) if seed is None else int(seed)
        answered = reference.n_answered
        kinds = ((answered, reference.n_rejected), reference.confidence_counts, reference.class_counts)
        risk = RiskBets.of_reference(reference.n_wrong, answered) if max_risk is None else RiskBets([max_risk])
        self._checks: dict[str, _Bets] = {**dict(zip(DRIFTS, map(DriftBets, kinds), strict=True)), RISK: risk}
        self.n_rejected = self.n_audited = self.n_wrong = self.n_reviewed = self.n_missed = 0
        self.alarms: list[Alarm] = []
        self.sources: list[ByName] = []

    @property
    def n_rows(self) -> int:
        """Number of rows seen."""
        return self._checks[DRIFTS[0]].n_rows

    @property
    def thresholds(self) -> dict[str, float]:
        """Evidence at which each check raises its alarm; half of delta is for the risk check."""
        return {name: (2 if name == RISK else 2 * len(DRIFTS)) / self.delta for name in self._checks}

    @property
    def reference_risk(self) -> float:
        """Allowed error rate: ``max_risk``, or that of the reference rows."""
        known = self.reference
        return known.n_wrong / max(known.n_answered, 1) if self.max_risk is None else self.max_risk

    @property
    def rows_to_doubling(self) -> int | None:
        """Number of audited answers until the alarm if the error rate were now twice :attr:`reference_risk`.

        It is the median of 100 simulated audits; None if it is above 10,000, or the error rate cannot double.
        """
        risk, bets = 2 * self.reference_risk, cast(RiskBets, self._checks[RISK])
        return bets.rows_until(math.log(self.thresholds[RISK]), risk) if 0 < risk <= 1 else None

    def watch(self, reject: ArrayLike, confidence: ArrayLike, label: ArrayLike) -> list[Alarm]:
        """Process decisions in the order of their rows; return the alarms that they raise.

        Parameters
        ----------
        reject : array of bool, shape (n,)
        confidence : array of float, shape (n,)
        label : array of int, shape (n,)
            Index of each row's first choice among the classes.
        """
        rejected, labels = np.asarray(reject, dtype=bool), np.asarray(label, dtype=np.int64)
        scores = np.asarray(confidence, dtype=np.float64)
        n_classes, shapes = len(self.reference.classes), {rejected.shape, scores.shape, labels.shape}
        if shapes != {(len(rejected),)} or np.isnan(scores).any() or not np.isin(labels, np.arange(n_classes)).all():
            raise InputError(
                "reject, confidence and label need one shape (n,), confidence without NaN, and label the positions of "
                f"{n_classes} classes, from 0."
            )
        kinds = (rejected, _bins(scores, self.reference.is_probability), labels)
        raised, first = [], self.n_rows
        for name, codes in zip(DRIFTS, kinds, strict=True):
            ties = _uniform(0, name, first, len(codes))  # any fixed numbers that do not depend on the rows
            raised += self._raised(name, codes, ties)
        self.n_rejected += int(rejected.sum())
        return sorted(raised, key=lambda alarm: alarm.row)

    def review(self, reject: ArrayLike, wrong: ArrayLike) -> list[Alarm]:
        """Process review results: declined rows, and answered rows that were drawn for the audit.

        Parameters
        ----------
        reject : array of bool, shape (n,)
        wrong : array of bool, shape (n,)
            Whether the first choice was wrong.
        """
        rejected, errors = np.asarray(reject, dtype=bool), np.asarray(wrong, dtype=bool)
        answered = errors[~rejected]
        raised = self._raised(RISK, answered)
        self.n_audited += len(answered)
        self.n_wrong += int(answered.sum())
        self.n_reviewed += int(rejected.sum())
        self.n_missed += int((errors & rejected).sum())
        return raised

    @classmethod
    def of_model(cls, model: TableModel, reference: Reference | None = None, **settings: Any) -> Self:
        """Return a monitor for a model, by default with the reference that ``demur fit`` kept in it.

        Parameters
        ----------
        model : TableModel
        reference : Reference, optional
        settings
            Parameters of the class. ``max_risk`` is by default the risk that the model's rule guarantees, if any.
        """
        if reference is None:
            if "reference" not in model.facts:
                raise InputError(
                    "this model was saved without results on held-out rows: give labelled rows that it was "
                    "not trained on as the reference."
                )
            reference = Reference.from_json(model.facts["reference"])
        rule = getattr(model.classifier, "rule_", None)
        max_risk = float(rule.target_risk) if isinstance(rule, RiskControl) else None
        return cls(reference, **{"max_risk": max_risk, **settings})

    def watch_table(self, model: TableModel, table: Any, *, where: str = "the table") -> list[Alarm]:
        """Predict the rows of a table, and :meth:`watch` the decisions."""
        self.check_model(model)
        return self.watch(*_looks(model, table, where))

    def review_table(self, model: TableModel, table: Any, *, where: str = "the table") -> list[Alarm]:
        """Predict the labelled rows of a table, compare with the labels, and :meth:`review`.

        A column ``why`` says which rows were declined and which were drawn for the audit; other rows are ignored (see
        :func:`demur.tabular.reviewed_rows`). Without it, the model's own decisions show which rows were declined.
        """
        self.check_model(model)
        labelled = LabelledTable.of(table, model.target, where).rows
        rows, declined = reviewed_rows(labelled, model, where=where)
        reject, _, label = _looks(model, rows, where)
        wrong = np.asarray(model.classes)[label] != class_texts(rows[model.target]).astype(str)
        return self.review(reject if declined is None else declined, wrong)

    def check_model(self, model: TableModel) -> None:
        """Raise an error if the model has other classes than the reference."""
        if tuple(str(name) for name in model.classes.tolist()) != self.reference.classes:
            raise InputError("the monitor was started for a model with other classes: start a new one.")

    def draw(self, source: str, first: int, n_rows: int) -> Mask:
        """Draw rows for the audit, each with probability ``audit``; the same rows again for the same arguments.

        Parameters
        ----------
        source : str
            Name of the rows' source, such as a date.
        first, n_rows : int
            Index of the first row in the source, and the number of rows.
        """
        return _uniform(self.seed, f"audit {source}", first, n_rows) < self.audit

    def _raised(self, check: str, *columns: NDArray[Any]) -> list[Alarm]:
        """Bet on rows; record and return the alarm that the check raises, at most one in all."""
        first = self._checks[check].n_rows
        capital = self._checks[check].bet(*columns)
        high = np.flatnonzero(capital >= math.log(self.thresholds[check]))
        if not len(high) or any(alarm.check == check for alarm in self.alarms):
            return []
        alarm = Alarm(check, first + int(high[0]) + 1, _capital(capital[high[0]]))
        self.alarms.append(alarm)
        return [alarm]

    @property
    def risk(self) -> Interval:
        """Error rate of the answers, estimated from the audit, with an interval that is valid at any time.

        The estimate is unbiased because the audit is drawn at random. The confidence of the interval is 1 - delta.
        """
        return risk_sequence(self.n_wrong, self.n_audited, self.delta)

    def to_json(self) -> ByName:
        """Return all figures as plain numbers."""
        risk = self.risk
        return {
            "rows": self.n_rows,
            "rejected_share": self.n_rejected / self.n_rows if self.n_rows else None,
            "reference_rejected_share": self.reference.n_rejected / self.reference.n_rows,
            "audited": self.n_audited,
            "risk": None if not self.n_audited else {"estimate": risk.estimate, "low": risk.low, "high": risk.high},
            "max_risk": self.max_risk,
            "reference_risk": self.reference_risk,
            "rows_to_doubling": self.rows_to_doubling,
            "reviewed_declined": self.n_reviewed,
            "declined_rightly": self.n_missed / self.n_reviewed if self.n_reviewed else None,
            "delta": self.delta,
            "evidence": {name: _capital(float(bets.log_capital)) for name, bets in self._checks.items()},
            "thresholds": self.thresholds,
            "alarms": [asdict(alarm) for alarm in self.alarms],
        }

    def save(self, path: FilePath) -> Path:
        """Write the state to a small JSON file, atomically."""
        state = {
            "format": _FORMAT,
            "reference": self.reference.to_json(),
            "settings": {name: getattr(self, name) for name in _SETTINGS},
            "counts": {name: getattr(self, name) for name in _COUNTS},
            "checks": {name: bets.to_json() for name, bets in self._checks.items()},
            "alarms": [asdict(alarm) for alarm in self.alarms],
            "sources": self.sources,
        }
        state["digest"] = _digest(state)
        return write_whole(path, json.dumps(state) + "\n", overwrite=True)

    @classmethod
    def load(cls, path: FilePath) -> Self:
        """Restore a monitor from the file that :meth:`save` wrote."""
        try:
            state = json.loads(Path(path).read_text())
            if state["format"] != _FORMAT:
                raise ValueError(f"format {state['format']!r}")
            if state.pop("digest") != _digest(state):
                raise ValueError("its content was changed")
            monitor = cls(Reference.from_json(state["reference"]), **state["settings"])
            for name, bets in monitor._checks.items():
                bets.restore(state["checks"][name])
            vars(monitor).update(state["counts"])
            monitor.alarms = [Alarm(**alarm) for alarm in state["alarms"]]
            monitor.sources = state["sources"]
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"{path} is not a state that this version of demur can read ({error!r}): restore a copy of it, or "
                "start another state."
            ) from None
        return monitor


def _digest(state: ByName) -> str:
    """Return a digest of a state, which shows that the file is as it was written."""
    return hashlib.sha256(json.dumps(state).encode()).hexdigest()


def _capital(logarithm: float) -> float:
    return math.exp(min(logarithm, 700.0))  # larger ones overflow


_SETTINGS = ("max_risk", "delta", "audit", "seed")
_COUNTS = ("n_rejected", "n_audited", "n_wrong", "n_reviewed", "n_missed")


def _uniform(seed: int, purpose: str, first: int, n: int) -> Floats:
    """Return uniform numbers that depend only on the seed, the purpose and each row's number."""
    bits = np.random.Philox(np.random.SeedSequence([seed, *purpose.encode()]))
    bits.advance(first // 4)  # one step of Philox gives four numbers
    return np.random.Generator(bits).random(first % 4 + n)[first % 4 :]
