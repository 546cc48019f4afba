"""The two values of beta that Corollary 5 asks for at once (Eqs. 6 and 9)."""

from dataclasses import replace

import torch
from torch import Tensor

from demur.errors import InputError, InputTypeError
from demur.losses import get
from demur.losses.pairwise import NoClosedFormError, PairwiseLoss
from demur.theory.conditions import rejector_slope
from demur.theory.errors import require_cost, require_n_classes
from demur.theory.extremes import extreme_over
from demur.workers import single_threaded_kernels

__all__ = ["beta_bounds", "numeric_beta_bounds"]


def beta_bounds(loss: str | PairwiseLoss, n_classes: int, cost: float) -> tuple[float, float]:
    """Return the least beta without false rejects and the greatest without false accepts, (acc, rej).

    A calibrated loss needs a beta that is at least the first and at most the second. At K = 2 they are equal, and
    that value is Cortes et al.'s; for K > 2 the first is larger, so that no beta will do.

    Parameters
    ----------
    loss : str or PairwiseLoss
        Any ``apc``, ``mpc`` or ``pb`` loss; its alpha counts, its beta does not.
    n_classes : int
    cost : float
        In (0, 1/2).

    Returns
    -------
    acc, rej : float
        In closed form where one is known (logistic and exponential pairs), else computed.

    Examples
    --------
    >>> beta_bounds("apc+exp", 2, 0.2)  # 2 sqrt((1-c)/c), twice
    (4.0, 4.0)
    >>> acc, rej = beta_bounds("apc+log", 8, 0.2)
    >>> round(acc, 4), round(rej, 4)
    (9.8621, 3.2)
    """
    subject, n_classes, cost = _pairwise(loss, n_classes, cost)
    try:
        acc, rej = (subject.beta_ratio(side, n_classes, cost) for side in ("acc", "rej"))
    except NoClosedFormError:
        return numeric_beta_bounds(subject, n_classes, cost)
    alpha = float(subject.alpha)
    return float(acc) * alpha, float(rej) * alpha


@single_threaded_kernels()
def numeric_beta_bounds(
    loss: str | PairwiseLoss, n_classes: int, cost: float, *, rounds: int = 2
) -> tuple[float, float]:
    """Compute both bounds for any differentiable phi and psi from the slope of the risk at r = 0.

    At r = 0 the best class scores do not depend on beta, and the slope is A(eta) + c beta psi'(0): each eta has
    one beta at which it vanishes. The bounds are the largest of these where Chow's rule answers and the least
    where it rejects, over structured eta and ``rounds`` rounds of local search around the best.

    Examples
    --------
    >>> from demur.losses import AdditivePairwise
    >>> from demur.margins import Exponential, Logistic
    >>> acc, rej = numeric_beta_bounds(AdditivePairwise(Logistic(), Exponential()), 4, 0.2)
    >>> round(acc, 4), round(rej, 4)
    (2.8462, 1.6)
    """
    subject, n_classes, cost = _pairwise(loss, n_classes, cost)
    if not (subject.phi.smooth and subject.psi_or_phi.smooth):
        raise InputError(
            f"beta has no bounds for {subject.name}: Corollary 5 needs differentiable phi and psi, got {subject.phi} "
            f"and {subject.psi_or_phi}."
        )
    zero = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (psi_slope,) = torch.autograd.grad(subject.psi_or_phi(zero), zero)
    per_beta = cost * psi_slope
    if per_beta == 0:
        raise InputError(f"beta has no effect at r = 0 for psi = {subject.psi_or_phi}: its slope there is zero.")
    unit = replace(subject, beta=1.0)
    symmetric = unit.n_outputs(n_classes) > n_classes

    def beta_of(eta: Tensor) -> Tensor:
        slope, _ = rejector_slope(unit, eta, cost, symmetric=symmetric)
        return (slope - per_beta) / -per_beta

    acc, _ = extreme_over(beta_of, n_classes, cost, "answer", symmetric=symmetric, rounds=rounds)
    rej, _ = extreme_over(lambda eta: -beta_of(eta), n_classes, cost, "reject", symmetric=symmetric, rounds=rounds)
    return acc, -rej


def _pairwise(loss: str | PairwiseLoss, n_classes: int, cost: float) -> tuple[PairwiseLoss, int, float]:
    subject = get(loss) if isinstance(loss, str) else loss
    if not isinstance(subject, PairwiseLoss):
        name = getattr(subject, "name", type(subject).__name__)
        raise InputTypeError(f"{name} has no beta; beta_bounds is for the losses apc+..., mpc+... and pb+....")
    n_classes = require_n_classes(n_classes)
    if subject.binary_only and n_classes != 2:
        raise InputError(f"{subject.name} is for two classes only, got {n_classes}.")
    return subject, n_classes, require_cost(cost)
