"""Proofs of calibration: what makes the verdict CALIBRATED a theorem.

A loss states its argument itself (:mod:`demur.losses.proof`). What is tested here is that its code is what the argument
is about: the value, the inverse link through the acceptance, and the rule.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from demur.losses import Loss
from demur.losses.proof import Proof
from demur.margins import own_fact
from demur.rules import Decision

__all__ = ["Certificate", "certify"]

AGREE = 1e-9
"""How far code and formula may be apart, relative to 1 + their size: they differ by rounding only."""


@dataclass(frozen=True)
class Certificate:
    """A proof that every minimiser of a loss decides as Chow's rule.

    Parameters
    ----------
    method : str
        How it was proved.
    statement : str
        What exactly was proved.
    checked : tuple of str
        What was verified about the code and about the hypotheses.
    """

    method: str
    statement: str
    checked: tuple[str, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """The statement and what was checked, to print."""
        return (self.statement, *self.checked)


def certify(loss: Loss, n_classes: int, cost: float | None) -> Certificate | None:
    """Return a proof that a loss is calibrated, or None where it states none or does not meet its hypotheses.

    A subclass is not covered by the proof of its parent: it may have changed the formula.

    Parameters
    ----------
    loss : Loss
    n_classes : int
    cost : float or None
        One price of rejecting, in (0, 1/2); there are no proofs for other costs.

    Examples
    --------
    >>> from demur.losses import get
    >>> certificate = certify(get("ova+log"), 4, 0.2)
    >>> certificate.method
    'the slopes of one score'
    >>> print(certificate.checked[-1])
    w' falls as p grows at both scores, and the code's link crosses 1 - c between them
    """
    stated = own_fact(loss, "proof")
    if cost is None or not 0 < cost < 0.5 or stated is None:
        return None
    proof: Proof | None = stated(n_classes, cost)
    if proof is None:
        return None
    with torch.no_grad():
        checked = (_code_is_formula(loss, proof, n_classes, cost), *proof.checked)
    kept = tuple(line for line in checked if line is not None)
    return Certificate(proof.method, proof.statement, kept) if len(kept) == len(checked) else None


def _code_is_formula(loss: Loss, proof: Proof, n_classes: int, cost: float) -> str | None:
    """Compare value and rule with the formulas of the argument at 1,000 random scores; None if any differs."""
    generator = torch.Generator().manual_seed(0)
    scores = 4 * torch.randn(1000, loss.n_outputs(n_classes), generator=generator, dtype=torch.float64)
    y = torch.arange(len(scores)) % n_classes
    decision = loss.rule(scores, cost)
    expected = Decision.from_acceptance(loss.class_scores(scores, n_classes).argmax(-1), proof.acceptance(scores))
    apart = (
        _apart(loss.forward(scores, y, cost), proof.value(scores, y)),
        _apart(decision.acceptance, expected.acceptance),
    )
    clear = expected.acceptance.abs() > AGREE
    same = torch.equal(decision.label, expected.label) and torch.equal(decision.reject[clear], expected.reject[clear])
    if not (same and all(difference <= AGREE for difference in apart)):  # NaN is not <= anything
        return None
    return f"loss and rule of the code are those of the argument to within {max(apart):.0e} at 1,000 random scores"


def _apart(one: Tensor, other: Tensor) -> float:
    """Return the largest difference relative to 1 + the size; NaN if there is one."""
    return float(((one - other).abs() / (1 + other.abs())).max())
