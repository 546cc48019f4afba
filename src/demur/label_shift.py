"""Label shift: class frequencies at prediction that differ from those in training, found without labels and undone."""

import warnings
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted

from demur.errors import InputError
from demur.rules import check_proba

__all__ = ["LabelShift", "LabelShiftWarning", "correct_proba", "estimate_prior"]

Floats = NDArray[np.float64]


class LabelShiftWarning(UserWarning):
    """An estimate of class frequencies that should not be trusted as it is."""


def correct_proba(proba: ArrayLike, train_prior: ArrayLike, new_prior: ArrayLike) -> Floats:
    r"""Return the probabilities that hold under other class frequencies (Saerens et al. 2002, Eq. 2.4).

    If only the class frequencies change, from :math:`\pi` to q, and the inputs of each class do not, then

    .. math:: \eta'_y(x) \propto \eta_y(x)\, q_y / \pi_y.

    Parameters
    ----------
    proba : array of shape (n, n_classes)
    train_prior : array of shape (n_classes,)
        The class frequencies under which ``proba`` hold.
    new_prior : array of shape (n_classes,)
        Those under which they shall hold.

    Examples
    --------
    Even odds become three to one where the first class is three times as frequent:

    >>> correct_proba([[0.5, 0.5]], [0.5, 0.5], [0.75, 0.25])
    array([[0.75, 0.25]])
    """
    values, old = _check(proba, train_prior)
    new = _check_prior("new_prior", new_prior, values.shape[1], positive=False)
    weighted = values * (new / old)
    sums = weighted.sum(axis=1, keepdims=True)
    if not (sums > 0).all():
        row = int(np.flatnonzero(sums[:, 0] <= 0)[0])
        raise InputError(
            f"row {row + 1} is certain of a class that new_prior says does not occur, so that nothing is left of it; "
            "give that class a positive frequency, or calibrate the probabilities."
        )
    return np.asarray(weighted / sums)


def estimate_prior(
    proba: ArrayLike, train_prior: ArrayLike, *, tolerance: float = 1e-3, max_iter: int = 10_000
) -> Floats:
    """Return the class frequencies among unlabelled rows; :class:`LabelShift` gives its diagnostics too.

    Parameters
    ----------
    proba, train_prior, tolerance, max_iter
        As for :class:`LabelShift`.

    Examples
    --------
    Certain probabilities are simply counted:

    >>> estimate_prior([[1, 0], [0, 1], [0, 1], [0, 1]], [0.5, 0.5])
    array([0.25, 0.75])
    """
    values, old = _check(proba, train_prior)
    return _expectation_maximisation(values / old, old, tolerance, max_iter)[0]


class LabelShift(BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    r"""A correction for changed class frequencies, with what it takes to judge it.

    The new frequencies q maximise the likelihood of the unlabelled rows,
    :math:`\sum_i \log \sum_y q_y \eta_y(x_i) / \pi_y`, by expectation maximisation (Saerens et al. 2002). The
    probabilities must be calibrated under the training frequencies; the estimate inherits their bias.

    Parameters
    ----------
    train_prior : array of shape (n_classes,)
        The class frequencies in training; positive.
    tolerance : float, default 1e-3
        Stop when the log-likelihood is provably this close to its maximum: 0.045 standard errors by default.
    max_iter : int, default 10000

    Attributes
    ----------
    new_prior_ : array of shape (n_classes,)
        The class frequencies estimated among the new rows.
    standard_error_ : array of shape (n_classes,)
        Of the new frequencies, from the observed information; zero for a class without mass.
    n_rows_ : int
        The number of unlabelled rows.
    effective_sample_size_ : float
        How many labelled rows would tell the frequencies as precisely: ``n_rows_`` if every row were certain, few
        where the classes overlap.
    p_value_ : float
        Of the likelihood-ratio test that nothing has shifted.
    n_iter_ : int
    converged_ : bool
        Whether the likelihood is within the tolerance of its maximum.

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

    __metadata_request__fit: ClassVar = {"proba": UNUSED}
    __metadata_request__transform: ClassVar = {"proba": UNUSED}

    def __init__(self, train_prior: ArrayLike, *, tolerance: float = 1e-3, max_iter: int = 10_000) -> None:
        self.train_prior = train_prior
        self.tolerance = tolerance
        self.max_iter = max_iter

    def fit(self, proba: ArrayLike, y: None = None) -> Self:
        """Estimate the class frequencies among unlabelled rows.

        Parameters
        ----------
        proba : array of shape (n, n_classes)
            Calibrated probabilities of the new rows, as the model gives them.
        y : ignored
            The rows have no labels; here so that all calibrators are called alike.

        Warns
        -----
        LabelShiftWarning
            If a class is left without mass, if most rows are exactly certain (which looks uncalibrated), or if the
            iteration has not converged.
        """
        values, old = _check(proba, self.train_prior)
        ratios = values / old
        new, self.n_iter_, self.converged_ = _expectation_maximisation(ratios, old, self.tolerance, self.max_iter)
        gain = float(np.log(ratios @ new).sum())
        self.new_prior_ = new
        self.standard_error_, self.effective_sample_size_ = _precision(ratios, new)
        from scipy.stats import chi2  # it takes a while to import

        self.p_value_ = float(chi2.sf(max(2 * gain, 0.0), len(old) - 1))
        self.n_rows_ = len(values)
        self._warn(share_certain=float(np.mean(values.max(axis=1) >= 1)))
        return self

    def transform(self, proba: ArrayLike) -> Floats:
        """Return the probabilities under the new class frequencies."""
        check_is_fitted(self)
        return correct_proba(proba, self.train_prior, self.new_prior_)

    @property
    def distance_(self) -> float:
        """How far the frequencies moved: the total variation distance, from 0 to 1."""
        return float(np.abs(self.new_prior_ - self._old).sum() / 2)

    @property
    def _old(self) -> Floats:
        prior = np.asarray(self.train_prior, dtype=np.float64)
        return np.asarray(prior / prior.sum())

    def explain(self) -> str:
        """Say in words how far the class frequencies moved, and how sure that is."""
        if not hasattr(self, "new_prior_"):
            return "Will estimate how far the class frequencies have moved from those in training; not fitted yet."
        old = self._old
        moved = self.new_prior_ / old
        most = int(np.argmax(np.abs(self.new_prior_ - old)))
        found = "a shift" if self.p_value_ < 0.05 else "no significant shift"
        return (
            f"Among {self.n_rows_:,} unlabelled rows there is {found} of class frequencies (p = {self.p_value_:.2g}): "
            f"they moved by {self.distance_:.3f} in total variation, most of all class {most}, from "
            f"{old[most]:.3f} to {self.new_prior_[most]:.3f} ± {self.standard_error_[most]:.3f} (times "
            f"{moved[most]:.2f}). The rows tell as much as {self.effective_sample_size_:,.0f} labelled ones would. "
            "This holds if the probabilities were calibrated in training and the inputs within each class have not "
            "changed."
        )

    def _warn(self, share_certain: float) -> None:
        complaints = []
        if not self.converged_:
            complaints.append(
                f"expectation maximisation has not converged in {self.n_iter_} iterations; raise max_iter"
            )
        empty = np.flatnonzero(self.new_prior_ * self.n_rows_ < 0.5)
        if len(empty):
            complaints.append(
                f"class {', '.join(map(str, empty.tolist()))} is left with less than one of {self.n_rows_} rows: the "
                "correction all but rules it out; check it, or give the frequencies yourself to correct_proba"
            )
        if share_certain > 0.5:
            complaints.append(
                f"{share_certain:.0%} of the rows have a probability of exactly 1, which looks uncalibrated; calibrate "
                "first, for example with TemperatureScaling"
            )
        for complaint in complaints:
            warnings.warn(complaint + ".", LabelShiftWarning, stacklevel=3)


def _expectation_maximisation(
    ratios: Floats, start: Floats, tolerance: float, max_iter: int
) -> tuple[Floats, int, bool]:
    """Maximise sum log(ratios @ q) over the simplex: q_y <- q_y g_y, with g the gradient of its mean.

    The objective is concave, so n (max g - 1) bounds its distance to the maximum: the iteration knows when to stop.
    Plain steps crawl where classes overlap; every third one starts from an extrapolation of the two before it
    (SQUAREM, Varadhan and Roland 2008), unless the likelihood is lower there.
    """
    path, plain = [start], start
    n_rows, best = len(ratios), -np.inf
    for iteration in range(1, max_iter + 1):
        mixture = ratios @ path[-1]
        likelihood = float(np.log(mixture).sum())
        if likelihood < best - tolerance:  # the extrapolation went too far
            path, best = [plain], -np.inf
            continue
        gradient = (1 / mixture) @ ratios / n_rows
        if n_rows * (gradient.max() - 1) <= tolerance:
            return path[-1], iteration, True
        best = likelihood
        path.append(path[-1] * gradient / np.sum(path[-1] * gradient))
        if len(path) == 3:
            plain, path = path[-1], [_extrapolated(*path)]
    return path[-1], max_iter, False


def _extrapolated(first: Floats, second: Floats, third: Floats) -> Floats:
    step, turn = second - first, third - 2 * second + first
    size = np.linalg.norm(turn)
    if size == 0:
        return third
    length = max(1.0, float(np.linalg.norm(step) / size))
    point = first + 2 * length * step + length**2 * turn
    point = np.where(point > 0, point, third / 2)
    return np.asarray(point / point.sum())


def _precision(ratios: Floats, prior: Floats) -> tuple[Floats, float]:
    """Return standard errors, and the number of labelled rows of equal precision (in total variance)."""
    n_rows, n_classes = ratios.shape
    present = prior > 1e-9
    errors = np.zeros(n_classes)
    kept = prior[present]
    if len(kept) < 2:
        return errors, float(n_rows)
    scores = ratios[:, present] / (ratios @ prior)[:, None]
    directions = np.linalg.svd(np.ones((1, len(kept))))[2][1:]  # frequencies move within the plane of sum 1
    information = directions @ (scores.T @ scores / n_rows) @ directions.T
    covariance = directions.T @ np.linalg.pinv(information, hermitian=True) @ directions
    errors[present] = np.sqrt(np.maximum(np.diag(covariance), 0) / n_rows)
    of_labels = float(np.sum(kept * (1 - kept)))
    return errors, n_rows * min(1.0, of_labels / float(np.trace(covariance)))


def _check(proba: ArrayLike, train_prior: ArrayLike) -> tuple[Floats, Floats]:
    values = check_proba(proba).astype(np.float64)
    if values.ndim != 2 or len(values) == 0:
        raise InputError(f"proba must have shape (n, n_classes) with at least one row, got {values.shape}.")
    values = np.clip(values, 0, None)
    values /= values.sum(axis=1, keepdims=True)
    return values, _check_prior("train_prior", train_prior, values.shape[1], positive=True)


def _check_prior(name: str, prior: ArrayLike, n_classes: int, *, positive: bool) -> Floats:
    frequencies = np.asarray(prior, dtype=np.float64)
    if frequencies.shape != (n_classes,):
        raise InputError(f"{name} must have one entry for each of the {n_classes} classes, got {frequencies.shape}.")
    if not np.isfinite(frequencies).all() or (frequencies < 0).any() or abs(frequencies.sum() - 1) > 1e-6:
        raise InputError(f"{name} must be frequencies that sum to 1, got {frequencies.tolist()}.")
    if positive and not (frequencies > 0).all():
        raise InputError(f"{name} must be positive for every class, got {frequencies.tolist()}; remove the others.")
    return np.asarray(frequencies / frequencies.sum())
