"""Label shift: class frequencies that differ from those in training, estimated without labels and corrected."""

import warnings
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from demur.array_types import Floats
from demur.errors import InputError
from demur.rules import check_rows

__all__ = ["LabelShift", "LabelShiftWarning", "correct_proba"]


_TOLERANCE = 1e-3
"""The estimate stops this close to the largest log-likelihood, which is 0.045 standard errors."""
_MOST_STEPS = 10_000


class LabelShiftWarning(UserWarning):
    """An estimate of class frequencies that may be unreliable."""


def correct_proba(proba: ArrayLike, train_prior: ArrayLike, new_prior: ArrayLike) -> Floats:
    r"""Return the probabilities corrected for other class frequencies (Saerens et al. 2002, Eq. 2.4).

    If only the class frequencies change, from :math:`\pi` to q, and the inputs of each class do not, then

    .. math:: \eta'_y(x) \propto \eta_y(x)\, q_y / \pi_y.

    Parameters
    ----------
    proba : array of shape (n, n_classes)
    train_prior : array of shape (n_classes,)
        Class frequencies to which ``proba`` belongs, such as those in training.
    new_prior : array of shape (n_classes,)
        Class frequencies to correct for.

    Examples
    --------
    Even odds become three to one where the first class is three times as frequent:

    >>> correct_proba([[0.5, 0.5]], [0.5, 0.5], [0.75, 0.25])
    array([[0.75, 0.25]])
    """
    values, old = _check(proba, train_prior)
    new = check_prior("new_prior", new_prior, values.shape[1], positive=False)
    weighted = values * (new / old)
    sums = weighted.sum(axis=1, keepdims=True)
    if not (sums > 0).all():
        row = int(np.flatnonzero(sums[:, 0] <= 0)[0])
        raise InputError(
            f"row {row + 1} has all its probability in classes whose new_prior is 0; give such a class a positive "
            "frequency, or calibrate the probabilities."
        )
    return np.asarray(weighted / sums)


class LabelShift(BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    r"""A correction for changed class frequencies, with its standard errors and a test.

    The new frequencies q maximise the likelihood of the unlabelled rows,
    :math:`\sum_i \log \sum_y q_y \eta_y(x_i) / \pi_y`, by expectation maximisation (Saerens et al. 2002). The
    probabilities must be calibrated under the training frequencies; the estimate inherits their bias.

    Parameters
    ----------
    train_prior : array of shape (n_classes,)
        The class frequencies in training; positive.

    Attributes
    ----------
    old_prior_, new_prior_ : arrays of shape (n_classes,)
        The class frequencies in training, and those estimated among the new rows.
    standard_error_ : array of shape (n_classes,)
        Standard error of the new frequencies, from the observed information; zero for a class without mass, and at most
        0.5, which it is where the rows do not tell classes apart.
    n_rows_ : int
        The number of unlabelled rows.
    p_value_ : float
        p-value of the likelihood-ratio test that nothing has shifted.

    References
    ----------
    Saerens, Latinne, Decaestecker (2002), Adjusting the outputs of a classifier to new a priori probabilities,
    Neural Computation 14.

    Examples
    --------
    >>> shift = LabelShift([0.5, 0.5]).fit([[0.9, 0.1]] * 30 + [[0.1, 0.9]] * 70)
    >>> shift.new_prior_.round(3), round(shift.distance_, 3)
    (array([0.25, 0.75]), 0.25)
    >>> shift.transform([[0.5, 0.5]]).round(3)
    array([[0.25, 0.75]])
    """

    def __init__(self, train_prior: ArrayLike) -> None:
        self.train_prior = train_prior

    def fit(self, proba: ArrayLike, y: None = None) -> Self:
        """Estimate the class frequencies among unlabelled rows.

        Parameters
        ----------
        proba : array of shape (n, n_classes)
            Calibrated probabilities of the new rows, as the model gives them.
        y : ignored
            Not used; present so that all calibrators have the same signature.

        Warns
        -----
        LabelShiftWarning
            If the estimated frequency of a class is nearly 0, or if most rows have a probability of exactly 1.
        """
        from scipy.stats import chi2  # it takes a while to import

        values, old = _check(proba, self.train_prior)
        ratios = values / old
        self.n_rows_, self.old_prior_, self.new_prior_ = len(values), old, _most_likely(ratios, old)
        self.standard_error_ = _standard_errors(ratios, self.new_prior_)
        gain = float(np.log(ratios @ self.new_prior_).sum())
        self.p_value_ = float(chi2.sf(max(2 * gain, 0.0), len(old) - 1))
        empty = np.flatnonzero(self.new_prior_ * self.n_rows_ < 0.5).tolist()
        if empty:
            warnings.warn(
                f"class {', '.join(map(str, empty))} is estimated to have less than one of {self.n_rows_} rows, so the "
                "correction nearly excludes it; check this, or give the frequencies yourself to correct_proba.",
                LabelShiftWarning,
                stacklevel=2,
            )
        certain = float(np.mean(values.max(axis=1) >= 1))
        if certain > 0.5:
            warnings.warn(
                f"{certain:.0%} of the rows have a probability of exactly 1, which looks uncalibrated; calibrate "
                "first, for example with TemperatureScaling.",
                LabelShiftWarning,
                stacklevel=2,
            )
        return self

    def transform(self, proba: ArrayLike) -> Floats:
        """Return the probabilities under the new class frequencies."""
        check_is_fitted(self)
        return correct_proba(proba, self.train_prior, self.new_prior_)

    @property
    def distance_(self) -> float:
        """The total variation distance between the old and the new frequencies, from 0 to 1."""
        return float(np.abs(self.new_prior_ - self.old_prior_).sum() / 2)

    def explain(self) -> str:
        """Describe the change of the class frequencies and its uncertainty."""
        check_is_fitted(self)
        old = self.old_prior_
        most = int(np.argmax(np.abs(self.new_prior_ - old).round(9)))
        found = "a shift" if self.p_value_ < 0.05 else "no significant shift"
        return (
            f"Among {self.n_rows_:,} unlabelled rows there is {found} of class frequencies (p = {self.p_value_:.2g}): "
            f"they moved by {self.distance_:.3f} in total variation, most of all class {most}, from "
            f"{old[most]:.3f} to {self.new_prior_[most]:.3f} ± {self.standard_error_[most]:.3f}. This holds if the "
            "probabilities were calibrated in training and the inputs within each class have not changed."
        )


def _most_likely(ratios: Floats, start: Floats) -> Floats:
    """Maximise sum log(ratios @ q) over the simplex by expectation maximisation.

    One step is q_y <- q_y g_y, with g the gradient of the mean. The objective is concave, so n (max g - 1) bounds its
    distance to the maximum.
    """
    prior = start
    for _ in range(_MOST_STEPS):
        gradient = (1 / (ratios @ prior)) @ ratios / len(ratios)
        if len(ratios) * (gradient.max() - 1) <= _TOLERANCE:
            break
        prior = prior * gradient
    return prior


def _standard_errors(ratios: Floats, prior: Floats) -> Floats:
    """Return the standard errors of the frequencies from the observed information; zero for a class without mass.

    None is above 0.5, the largest standard deviation of a share, which it is where the rows do not tell classes apart.
    """
    present = prior > 1e-9
    scores = ratios[:, present] / (ratios @ prior)[:, None]
    scores -= scores.mean(axis=1, keepdims=True)  # frequencies move in the plane of sum 1
    information = scores.T @ scores + 1.0 + 1e-9 * np.eye(present.sum())  # 1.0 fixes their sum
    errors = np.zeros(len(prior))
    variance = np.diag(np.linalg.inv(information)) - 1 / present.sum() ** 2
    errors[present] = np.sqrt(np.clip(variance, 0, 0.25))
    return errors


def _check(proba: ArrayLike, train_prior: ArrayLike) -> tuple[Floats, Floats]:
    values = np.clip(check_rows(proba).astype(np.float64), 0, None)
    values /= values.sum(axis=1, keepdims=True)
    return values, check_prior("train_prior", train_prior, values.shape[1])


def check_prior(name: str, prior: ArrayLike, n_classes: int, *, positive: bool = True) -> Floats:
    """Check class frequencies, and return them with a sum of exactly 1.

    Examples
    --------
    >>> check_prior("prior", [0.25, 0.75], 2)
    array([0.25, 0.75])
    """
    frequencies = np.asarray(prior, dtype=np.float64)
    if frequencies.shape != (n_classes,):
        raise InputError(f"{name} must have one entry for each of the {n_classes} classes, got {frequencies.shape}.")
    if not np.isfinite(frequencies).all() or (frequencies < 0).any() or abs(frequencies.sum() - 1) > 1e-6:
        raise InputError(f"{name} must be frequencies that sum to 1, got {frequencies.tolist()}.")
    if positive and not (frequencies > 0).all():
        raise InputError(f"{name} must be positive for every class, got {frequencies.tolist()}; remove the others.")
    return np.asarray(frequencies / frequencies.sum())
