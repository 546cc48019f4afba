"""The report of a calibration check: a verdict, its reasons, and how it prints."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur.theory.bounds import ExcessRiskBound
from demur.theory.conditions import TheoremFour
from demur.theory.search import SearchFindings
from demur.theory.witness import Witness

__all__ = ["BetaFindings", "CalibrationReport", "describe_eta"]

IN_WORDS = {"false_reject": "false rejects", "false_accept": "false accepts", "misclassify": "wrong answers"}


@dataclass(frozen=True)
class BetaFindings:
    """The beta of a pairwise loss beside the two bounds of Corollary 5.

    Parameters
    ----------
    value : float
    acc, rej : float
        The least beta without false rejects and the greatest without false accepts.
    """

    value: float
    acc: float
    rej: float

    @property
    def some_beta_works(self) -> bool:
        """Whether any beta meets both bounds."""
        return self.acc <= self.rej + 1e-9 * (1 + abs(self.rej))

    def __str__(self) -> str:
        needs = f"no false rejects needs beta >= {self.acc:.6g}, no false accepts needs beta <= {self.rej:.6g}"
        if self.some_beta_works:
            return f"beta is {self.value:.6g}; {needs}: the one value that works is {self.acc:.6g}."
        return f"beta is {self.value:.6g}, and no beta works: {needs}."


@dataclass(frozen=True)
class CalibrationReport:
    """What :func:`demur.theory.check_calibration` found.

    Parameters
    ----------
    loss : str
    n_classes : int
    cost : float
    calibrated : bool
        False if refuted. True means that no counterexample was found: a search refutes and does not prove.
    fails : frozenset of str
        Out of "false_reject", "false_accept" and "misclassify".
    witness : Witness or None
        The counterexample with the risks of both decisions.
    search : SearchFindings
        Route (a), by the definition.
    theorem_four : TheoremFour or None
        Route (b), for losses with a rejector.
    no_theorem_four : str or None
        Why route (b) was not taken.
    beta : BetaFindings or None
        For the pairwise losses.
    bound : ExcessRiskBound or None
        The paper's bound, which proves calibration where there is one.
    """

    loss: str
    n_classes: int
    cost: float
    calibrated: bool
    fails: frozenset[str]
    witness: Witness | None
    search: SearchFindings
    theorem_four: TheoremFour | None
    no_theorem_four: str | None
    beta: BetaFindings | None
    bound: ExcessRiskBound | None

    @property
    def counterexample(self) -> NDArray[np.float64] | None:
        """The eta that refutes calibration, or None."""
        return None if self.witness is None else self.witness.eta

    @property
    def routes_agree(self) -> bool | None:
        """Whether both routes find the same sides failing; None where only one was taken."""
        if self.theorem_four is None:
            return None
        return self.theorem_four.fails == self.search.fails - {"misclassify"}

    @property
    def sup(self) -> float | None:
        """The supremum of dW/dr at r = 0 over max eta >= 1 - c; positive means false rejects."""
        return None if self.theorem_four is None else self.theorem_four.sup_answer

    @property
    def inf(self) -> float | None:
        """The infimum of dW/dr at r = 0 over max eta <= 1 - c; negative means false accepts."""
        return None if self.theorem_four is None else self.theorem_four.inf_reject

    @property
    def verdict(self) -> str:
        """One line."""
        where = f"{self.loss} with {self.n_classes} classes at c = {self.cost:g}"
        if self.calibrated:
            return f"CALIBRATED: {where}: no counterexample found."
        kinds = ", ".join(IN_WORDS[kind] for kind in sorted(self.fails))
        return f"REFUTED: {where} is not calibrated for rejection: {kinds}."

    def __str__(self) -> str:
        parts = [[self.verdict], self._by_definition(), self._by_theorem_four()]
        if self.beta is not None:
            parts.append(["Beta (Corollary 5)", f"  {self.beta}"])
        parts.append(["Bounds", f"  {self._bound()}"])
        return "\n\n".join("\n".join(part) for part in parts)

    def as_dict(self) -> dict[str, Any]:
        """Return the whole report as plain numbers, lists and strings, for JSON."""
        found, theorem, witness = self.search, self.theorem_four, self.witness
        return {
            "loss": self.loss,
            "n_classes": self.n_classes,
            "cost": self.cost,
            "calibrated": self.calibrated,
            "fails": sorted(self.fails),
            "counterexample": None if witness is None else witness.eta.tolist(),
            "witness": None if witness is None else {k: _plain(v) for k, v in vars(witness).items()},
            "search": {
                "n_eta": found.n_eta,
                "n_unresolved": found.n_unresolved,
                "fails": sorted(found.fails),
                "margin": found.margin,
                "nearest": found.nearest,
                "stopped_early": found.stopped_early,
            },
            "theorem_four": None
            if theorem is None
            else {**{k: _plain(v) for k, v in vars(theorem).items()}, "fails": sorted(theorem.fails)},
            "no_theorem_four": self.no_theorem_four,
            "routes_agree": self.routes_agree,
            "beta": None if self.beta is None else {**vars(self.beta), "some_beta_works": self.beta.some_beta_works},
            "bound": None if self.bound is None else vars(self.bound),
        }

    def _by_definition(self) -> list[str]:
        found, witness = self.search, self.witness
        lines = ["By definition: minimise the pointwise risk, decide, compare with Chow's rule"]
        if witness is None:
            lines.append(
                f"  {found.n_eta:,} class probabilities tried, as near as {found.nearest:.0e} to max eta = 1 - c"
            )
            if found.margin is not None:
                lines.append(
                    f"  every decision right; the smallest distance of r from its threshold was {found.margin:.1e}"
                )
            lines.append("  A search refutes; it does not prove.")
        else:
            lines += [
                f"  counterexample   eta = {describe_eta(witness.eta)}",
                f"  Chow's rule      {witness.chow}: 0-1-c risk {witness.chow_risk:.6g}",
                f"  the minimiser    {witness.taken}: 0-1-c risk {witness.taken_risk:.6g}",
                f"  least risk       {witness.least_risk:.10g}, that of the minimiser",
                f"  and if it had to decide as Chow's rule, {witness.chow_least_risk:.10g}: {_gap_in_words(witness)}",
                f"  ({witness.precision})",
            ]
        if found.n_unresolved:
            lines.append(f"  {found.n_unresolved} more could not be decided: their minimisation did not converge")
        return lines

    def _by_theorem_four(self) -> list[str]:
        theorem = self.theorem_four
        if theorem is None:
            return ["By Theorem 4", f"  not applicable: {self.no_theorem_four}"]
        top, bottom = theorem.sup_answer, theorem.inf_reject
        rejects = "> 0: false rejects" if "false_reject" in theorem.fails else "<= 0: no false rejects"
        accepts = "< 0: false accepts" if "false_accept" in theorem.fails else ">= 0: no false accepts"
        threshold = f"{1 - self.cost:g}"
        lines = [
            "By Theorem 4: the slope of the risk in the rejector r, at r = 0",
            f"  sup over max eta >= {threshold}   {_zero(top, theorem):>10} {rejects}",
            f"  inf over max eta <= {threshold}   {_zero(bottom, theorem):>10} {accepts}",
            f"  at max eta = {threshold}         from {_zero(theorem.inf_boundary, theorem)} to "
            f"{_zero(theorem.sup_boundary, theorem)}; Corollary 5 asks for 0 and 0",
        ]
        if not theorem.assumptions_hold:
            lines.append("  the theorem's assumption fails: the second derivative in r is not positive everywhere")
        return [*lines, f"  {self._agreement(theorem)}"]

    def _agreement(self, theorem: TheoremFour) -> str:
        if self.routes_agree:
            return "The two routes agree."
        if theorem.fails > self.search.fails:
            near = f"{self.search.nearest:.0e}"
            return (
                f"The search did not see all of this: the failing eta are within {near} of max eta = {1 - self.cost:g}."
            )
        return (
            "THE TWO ROUTES DISAGREE: is the loss convex and continuously differentiable in r, as the theorem assumes?"
        )

    def _bound(self) -> str:
        if self.bound is not None:
            return f"{self.bound}\n  This theorem proves what the search could only fail to refute."
        if self.calibrated:
            return "the paper proves none for this loss."
        return "none: where a loss prefers wrong decisions, no small risk of it promises right ones."


def describe_eta(eta: NDArray[np.float64]) -> str:
    """Print class probabilities, equal ones together.

    Examples
    --------
    >>> describe_eta(np.array([0.85, 0.05, 0.05, 0.05]))
    '(0.85, 3 x 0.05)'
    """
    counts = Counter(f"{value:.6g}" for value in eta)
    return "(" + ", ".join(v if n == 1 else f"{n} x {v}" for v, n in counts.items()) + ")"


def _gap_in_words(witness: Witness) -> str:
    if witness.gap > 1e-9 * (1 + abs(witness.least_risk)):
        return f"{witness.gap:.6g} more"
    return "no more: it does not tell the two decisions apart"


def _zero(value: float, theorem: TheoremFour) -> str:
    return "0" if abs(value) <= theorem.tolerance else f"{value:.4g}"


def _plain(value: Any) -> Any:
    """Return lists for arrays, and None for an infinity, which JSON cannot write."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return None if isinstance(value, float) and not np.isfinite(value) else value
