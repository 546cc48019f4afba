"""RiskControl: the error among the accepted rows stays below a target, with a probability that is guaranteed."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.errors import InputError, InputTypeError
from demur.guarantees.fitted_threshold import FittedThreshold, check_confidence, check_share
from demur.guarantees.selection import Certificate, fixed_sequence, sgr
from demur.rules import check_proba

__all__ = ["RiskControl"]

_METHODS = {"auto": fixed_sequence, "fixed-sequence": fixed_sequence, "sgr": sgr}


@dataclass(frozen=True)
class RiskControl(FittedThreshold):
    r"""Answer as many rows as possible while the error among the answers stays at or below a target.

    With t the fitted threshold, and probability over the calibration sample,

    .. math:: P\big( P(\text{wrong} \mid \max_y \eta_y > t) \le \text{target\_risk} \big) \ge 1 - \delta,

    for any number of classes and any model, calibrated or not. :meth:`fit` refuses where no threshold can promise it.

    Parameters
    ----------
    target_risk : float
        In (0, 1): the largest acceptable share of errors among the accepted rows.
    delta : float, default 0.05
        In (0, 1): the probability, over the calibration sample, that the promise may fail.
    method : {"auto", "fixed-sequence", "sgr"}
        How the threshold is chosen; see Notes.
    certificate : Certificate, optional
        Set by :meth:`fit`: the threshold, what it accepted and its bound.

    Notes
    -----
    Testing many thresholds and keeping the best makes a bound at level delta too optimistic; both methods correct
    for it.

    - ``"fixed-sequence"`` tests thresholds that were fixed in advance, from the most cautious down, and passes the
      level of each success on to the next, so that near the threshold it ends at, most of delta is still available.
      It holds for every distribution. The confidence must be a probability.
    - ``"sgr"`` bisects over the rows at level delta / log2(n) for each test. It takes a confidence on any scale, and
      needs a true risk that does not fall as the coverage grows.
    - ``"auto"`` is ``"fixed-sequence"``, decided without looking at the data: looking at both and keeping the better
      would void the promise. It assumes less, and it is the sharper of the two: with calibrated probabilities its
      mean coverage is the higher one for every sample size and target tried in ``tests/test_guarantees.py``. Strong
      overconfidence with a few hundred rows can turn this around.

    The bound is not monotone in the threshold: a higher threshold lowers the risk but leaves fewer rows to show it.

    References
    ----------
    Geifman, El-Yaniv (2017), Selective classification for deep neural networks, NeurIPS.
    Angelopoulos, Bates, Candes, Jordan, Lei (2021), Learn then test, arXiv:2110.01052.
    Wiens (2003), A fixed sequence Bonferroni procedure for testing multiple endpoints, Pharmaceutical Statistics.

    Examples
    --------
    200 sure rows without an error and 100 doubtful ones, half of them wrong:

    >>> proba = np.repeat([[0.99, 0.01], [0.6, 0.4]], [200, 100], axis=0)
    >>> y = np.r_[np.zeros(250, dtype=int), np.ones(50, dtype=int)]
    >>> rule = RiskControl(0.05).fit(proba, y)
    >>> rule.decide([[0.99, 0.01], [0.6, 0.4]]).reject
    array([False,  True])
    >>> rule.certificate.n_accepted, rule.certificate.n_wrong, rule.certificate.bound <= 0.05
    (200, 0, True)
    >>> RiskControl(0.001).fit(proba, y)
    Traceback (most recent call last):
        ...
    demur.guarantees.selection.NoGuaranteeError: no threshold guarantees a risk of at most 0.001 ... 2,995 accepted ...
    """

    target_risk: float
    delta: float = 0.05
    method: Literal["auto", "fixed-sequence", "sgr"] = "auto"
    certificate: Certificate | None = None

    def __post_init__(self) -> None:
        check_share("target_risk", self.target_risk, closed=False)
        check_share("delta", self.delta, closed=False)
        if self.method not in _METHODS:
            raise InputError(f"method must be 'auto', 'fixed-sequence' or 'sgr', got {self.method!r}.")

    def fit(self, proba: ArrayLike, y: ArrayLike) -> "RiskControl":
        """Return the rule with the threshold that this calibration sample gives.

        Parameters
        ----------
        proba : array of shape (n, n_classes)
            Of rows that the model was not trained on, drawn independently from where new rows will come from.
        y : array of int, shape (n,)
            Their true classes, as column numbers.

        Raises
        ------
        NoGuaranteeError
            If no threshold can give the guarantee.
        """
        values = check_proba(proba)
        if values.ndim != 2:
            raise InputError(f"proba must have shape (n, n_classes), got {values.shape}.")
        true = _check_columns(y, values.shape)
        return self.fit_confidence(values.max(axis=1), values.argmax(axis=1) != true)

    def fit_confidence(self, confidence: ArrayLike, wrong: ArrayLike) -> "RiskControl":
        """Return the rule with the threshold that these confidences and errors give.

        Parameters
        ----------
        confidence : array of shape (n,)
            A probability, unless ``method="sgr"``.
        wrong : array of bool, shape (n,)
            Whether the answer to each row would be wrong.
        """
        scores, errors = check_confidence(confidence), np.asarray(wrong)
        if errors.dtype != np.bool_ or errors.shape != scores.shape:
            raise InputError(
                f"wrong must be a boolean array of shape {scores.shape}, True where the answer is wrong, got dtype "
                f"{errors.dtype} and shape {errors.shape}."
            )
        choose = _METHODS[self.method]
        if choose is fixed_sequence and not ((scores >= 0) & (scores <= 1 + 1e-3)).all():
            raise InputError(
                f"fixed-sequence testing needs confidences in [0, 1], got {scores.min():g} to {scores.max():g}; use "
                "method='sgr' for another scale."
            )
        return replace(self, certificate=choose(scores, errors, float(self.target_risk), float(self.delta)))

    @property
    def threshold(self) -> float:
        return self._fitted.threshold

    @property
    def _fitted(self) -> Certificate:
        if self.certificate is None:
            raise self._not_fitted()
        return self.certificate

    def explain(self) -> str:
        promise = (
            f"with probability at least {1 - self.delta:.4g} over the calibration sample, at most "
            f"{self.target_risk:.4g} of the answers given are wrong"
        )
        if self.certificate is None:
            return f"Will answer as many rows as it can such that {promise}; not fitted yet."
        seen = self.certificate
        condition = " and if the true risk does not fall as the coverage grows" if seen.method == "sgr" else ""
        return (
            f"Answers where the confidence exceeds {seen.threshold:.6g}: {seen.n_accepted:,} of {seen.n_rows:,} "
            f"calibration rows, {seen.n_wrong:,} of them wrongly. It promises that, {promise} (the upper bound is "
            f"{seen.bound:.4g}, by {seen.method} at level {seen.level:.4g}). This holds if new rows and "
            f"calibration rows are exchangeable, drawn independently from one source{condition}, and if the model was "
            "not trained on the calibration rows. It is a statement about all answers together, not about each class "
            "or group, and a shift of the data voids it."
        )


def _check_columns(y: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.integer]:
    true = np.asarray(y)
    if true.shape != shape[:1]:
        raise InputError(f"y must have shape {shape[:1]}, one class per row of proba, got {true.shape}.")
    if len(true) and true.dtype.kind not in "iu":
        raise InputTypeError(f"y must hold column numbers of proba (integers), got dtype {true.dtype}.")
    if ((true < 0) | (true >= shape[1])).any():
        outside = true[(true < 0) | (true >= shape[1])][0]
        raise InputError(f"y must hold column numbers from 0 to {shape[1] - 1}, got {outside}.")
    return true
