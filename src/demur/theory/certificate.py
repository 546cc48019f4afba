"""Proofs of calibration: what makes the verdict CALIBRATED a theorem.

A loss states its argument itself (:mod:`demur.losses.proof`). What is tested here is that the loss, its rule and its
margin functions are those that the argument is about: no method was replaced.
"""

from dataclasses import dataclass

from demur.losses import Loss
from demur.losses.proof import Proof
from demur.margins import is_unchanged, own_fact

__all__ = ["Certificate", "certify"]


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
    unchanged = all(is_unchanged(part) for part in (loss, *loss.margin_functions()))
    checked = ("no method of the loss or of its margin functions was replaced" if unchanged else None, *proof.checked)
    kept = tuple(line for line in checked if line is not None)
    return Certificate(proof.method, proof.statement, kept) if len(kept) == len(checked) else None
