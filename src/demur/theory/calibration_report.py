"""The report of a calibration check: the verdict, its evidence, open questions, and the printed form."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, is_dataclass
from typing import TYPE_CHECKING, Any, cast

import mpmath
import numpy as np
import torch
from torch import Tensor

from demur.array_types import ByName, Floats
from demur.errors import InputError
from demur.theory.excess_bounds import ExcessRiskBound
from demur.theory.structure import Certificate, NotProvedError, trace
from demur.theory.theorem_four import TheoremFour
from demur.theory.witness import Witness

if TYPE_CHECKING:
    from demur.theory.repair import Repair

IN_LATEX = str.maketrans({sign: rf"\{sign}" for sign in "_%&#${}"})
IN_LATEX |= str.maketrans({"|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}", "^": r"\^{}"})
IN_WORDS = {"false_reject": "false rejects", "false_accept": "false accepts", "misclassify": "wrong answers"}


@dataclass(frozen=True)
class BetaFindings:
    """The beta of a pairwise loss and the two bounds of Corollary 5.

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


@dataclass
class SearchFindings:
    """The results of the search over class probabilities.

    Parameters
    ----------
    n_eta : int
        Number of eta tried.
    n_right : int
        Number of eta at which the minimiser decides correctly.
    n_near : int
        Number of eta within 0.001 of a boundary between two decisions that could not be resolved.
    n_unresolved : int
        Number of other eta that could not be resolved: the minimisation did not converge, or a failure was not
        confirmed.
    n_indifferent : int
        Number of other eta at which right and wrong decisions have equally small risks.
    n_untried : int
        Number of eta left when the time was up.
    timed_out : bool
    resolution : float
        How far the threshold of a class may be misplaced without a wrong decision at the eta tried.
    """

    n_eta: int = 0
    n_right: int = 0
    n_near: int = 0
    n_unresolved: int = 0
    n_indifferent: int = 0
    n_untried: int = 0
    timed_out: bool = False
    resolution: float = float("inf")


@dataclass(frozen=True)
class CalibrationReport:
    """The result of :func:`demur.theory.check_calibration`.

    Parameters
    ----------
    loss : str
    n_classes : int
    cost : float or array
        The price of every rejection, the prices by class, or the matrix of all costs.
    verdict : str
        "calibrated", "refuted" or "inconclusive".
    fails : frozenset of str
        Out of "false_reject", "false_accept" and "misclassify": those with a witness.
    witnesses : tuple of Witness
        One counterexample of each kind, each with a gap larger than its error.
    search : SearchFindings
        Results of the first method, by the definition.
    certificate : Certificate or None
        A proof of calibration, where there is one.
    theorem_four : TheoremFour or None
        Results of the second method, for losses with a rejector.
    no_theorem_four : str or None
        The reason why the second method was not used.
    beta : BetaFindings or None
        For the pairwise losses.
    bound : ExcessRiskBound or None
        The paper's bound.
    n_outputs : int
        Number of scores of the loss.
    never_answers : tuple of int
        Classes that the rule cannot answer.
    convex : bool
        Whether the loss was convex at all scores tried.
    stepped : bool
        Whether the loss is piecewise constant, so its gradients do not lead to a minimum.
    subject : ExaminedLoss
        The loss itself.
    """

    loss: str
    n_classes: int
    cost: float | Floats
    verdict: str
    fails: frozenset[str]
    witnesses: tuple[Witness, ...]
    search: SearchFindings
    certificate: Certificate | None
    theorem_four: TheoremFour | None
    no_theorem_four: str | None
    beta: BetaFindings | None
    bound: ExcessRiskBound | None
    n_outputs: int
    never_answers: tuple[int, ...]
    convex: bool
    stepped: bool = False
    subject: Any = field(default=None, repr=False, compare=False)

    def repair(self) -> "Repair":
        """Return the rule under which the loss is calibrated, or two eta that no rule on its scores can distinguish.

        The inverse link eta(scores) is determined from the minimisers of the pointwise risk: a power of the softmax
        (temperature, logit adjustment), an affine map (label smoothing), or a function of each probability. A loss
        without one may still have a threshold for one cost. The pair of loss and rule is checked again.

        Examples
        --------
        >>> from demur.theory import check_calibration
        >>> def gce(scores, y, cost):
        ...     return (1 - torch.softmax(scores, -1).gather(-1, y[:, None])[:, 0] ** 0.5) / 0.5
        >>> repair = check_calibration(gce, 2, 0.2).repair()
        >>> repair.rule, repair.check.verdict
        (Relinked(cost=0.2, form='power', offset=array([0., 0.]), slope=0.5), 'calibrated')
        """
        from demur.theory.repair import find_repair  # it imports this module

        return find_repair(self.subject)

    def latex(self) -> str:
        """Return the statement and its proof, or its counterexample with every digit of its numbers, as LaTeX.

        Examples
        --------
        >>> from demur.theory import check_calibration
        >>> print(check_calibration("ce", 3, 0.2).latex().splitlines()[0])
        % CALIBRATED: ce with 3 classes at c = 0.2: a theorem, by one minimum on the simplex.
        """
        where = f"{self.loss.translate(IN_LATEX)} with $K = {self.n_classes}$ classes at {self._costs()}"
        if self.witness is None:
            lines = self.certificate.lines if self.certificate is not None else self._without_witness()
            claim = {"theorem": "is calibrated for rejection", "search": "was not refuted by a search"}
            text = rf"The loss {where} {claim.get(self.evidence, 'was neither refuted nor resolved')}."
            body = "\n\n".join(line.strip().translate(IN_LATEX) for line in lines)
            kind = "proposition" if self.certificate is not None else "remark"
            return f"% {self.headline}\n\\begin{{{kind}}}\n{text}\n\\end{{{kind}}}\n\n{body}\n"
        witness = self.witness
        return LATEX.format(
            headline=self.headline,
            where=where,
            eta=", ".join(map(_digits, witness.eta)),
            scores=", ".join(map(_digits, witness.scores)),
            w=witness,
            least=_digits(witness.least_risk),
            right=_digits(witness.chow_least_risk),
            gap=_digits(witness.gap, 10),
            error=_digits(witness.error, 1),
        )

    def script(self) -> str:
        """Return a Python program that checks the verdict with torch and scipy, without demur.

        The program contains the torch operations of the loss and of its rule.
        """
        subject, witness, n_classes = self.subject, self.witness, self.n_classes
        if witness is None:
            raise InputError(f"there is a script for a counterexample only, and this verdict is {self.verdict!r}.")
        rows = torch.from_numpy(witness.scores).expand(n_classes, -1).clone()
        loss, y = subject.loss, torch.arange(n_classes)
        try:
            losses = operations(lambda s, y: loss.forward(s, y, subject.target.cost), rows, y)
            decision = operations(lambda s: (subject.decide(s) % (n_classes + 1)).detach(), rows[:1])
        except NotProvedError as error:
            raise InputError(
                f"no script: {self.loss} or its rule uses more than torch operations, such as NumPy or a branch on "
                "values. Write it with torch.where for a script."
            ) from error
        values = {"eta": witness.eta, "scores": witness.scores, "costs": subject.target.matrix.numpy()}
        numbers = "\n".join(f"{name} = np.array({value.tolist()!r})" for name, value in values.items())
        claims = f"claimed, error = {witness.chow_least_risk!r}, {witness.error!r}".replace("inf", "np.inf")
        return SCRIPT.format(headline=self.headline, losses=losses, decision=decision, numbers=f"{numbers}\n{claims}")

    @property
    def calibrated(self) -> bool:
        """Whether the verdict is "calibrated"; False also where it is "inconclusive"."""
        return self.verdict == "calibrated"

    @property
    def refuted(self) -> bool:
        """Whether the verdict is "refuted"."""
        return self.verdict == "refuted"

    @property
    def evidence(self) -> str:
        """The evidence for the verdict: "theorem", "search", "witness" or "nothing decisive"."""
        if self.calibrated:
            return "search" if self.certificate is None else "theorem"
        return "witness" if self.refuted else "nothing decisive"

    @property
    def witness(self) -> Witness | None:
        """The clearest counterexample, or None."""
        return self.witnesses[0] if self.witnesses else None

    @property
    def counterexample(self) -> Floats | None:
        """The eta that refutes calibration, or None."""
        return None if self.witness is None else self.witness.eta

    @property
    def routes_agree(self) -> bool | None:
        """Whether both methods find the same failures; None if only one was used."""
        if self.theorem_four is None:
            return None
        return self.theorem_four.fails == self.fails - {"misclassify"}

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        where = f"{self.loss} with {self.n_classes} classes at {self._costs()}"
        if self.certificate is not None:
            return f"CALIBRATED: {where}: a theorem, by {self.certificate.method}."
        if self.calibrated:
            return f"CALIBRATED: {where}: no counterexample found; a search, not a proof."
        if self.refuted:
            kinds = ", ".join(IN_WORDS[kind] for kind in sorted(self.fails))
            return f"REFUTED: {where} is not calibrated for rejection: {kinds}."
        return f"INCONCLUSIVE: {where}: neither refuted nor resolved."

    @property
    def would_settle(self) -> tuple[str, ...]:
        """Sentences on what would settle an inconclusive verdict; empty for other verdicts."""
        if self.verdict != "inconclusive":
            return ()
        found, theorem = self.search, self.theorem_four
        reasons = {
            f"More time (seconds=, --seconds): {found.n_untried:,} class probabilities are untried.": found.timed_out,
            f"Minima at {found.n_unresolved:,} class probabilities that the search could not settle: a formula of the "
            "minimiser, or a smoother form of the loss.": found.n_unresolved,
            f"A formula of the minimiser near the boundary: at {found.n_near:,} class probabilities within 0.001 of it "
            "the decision seems wrong, by too little for a witness. The threshold may be slightly off.": found.n_near,
            f"A loss or a rule without ties: at {found.n_indifferent:,} class probabilities scores with right and with "
            "wrong decisions have equally small risks.": found.n_indifferent,
            "A loss with gradients: this one is piecewise constant, and a search may miss its minimum.": self.stepped,
            f"The number of scores (outputs=, --outputs): {self.n_outputs} were assumed.": self.never_answers,
            "A counterexample in higher precision: Theorem 4 finds the slopes below, but they are too small for a "
            "witness in float64.": theorem and theorem.fails,
        }
        return tuple(reason for reason, holds in reasons.items() if holds)

    def __str__(self) -> str:
        parts = [[self.headline], self._by_definition(), self._by_theorem_four()]
        if self.certificate is not None:
            parts.insert(1, ["Certificate", *(f"  {line}" for line in self.certificate.lines)])
        if self.would_settle:
            parts.insert(1, ["What would settle it", *(f"  {reason}" for reason in self.would_settle)])
        if self.beta is not None:
            parts.append(["Beta (Corollary 5)", f"  {self.beta}"])
        parts.append(["Bounds", f"  {self._bound()}"])
        return "\n\n".join("\n".join(part) for part in parts)

    def as_dict(self) -> ByName:
        """Return the whole report as plain numbers, lists and strings, for JSON."""
        derived = ("evidence", "calibrated", "counterexample", "witness", "would_settle", "routes_agree")
        found = plain({**vars(self), "subject": None, **{name: getattr(self, name) for name in derived}})
        if self.theorem_four is not None:
            found["theorem_four"]["fails"] = sorted(self.theorem_four.fails)
        if self.beta is not None:
            found["beta"]["some_beta_works"] = self.beta.some_beta_works
        return cast(ByName, found)

    def _costs(self) -> str:
        if isinstance(self.cost, float):
            return f"c = {self.cost:g}"
        if self.cost.ndim == 1:
            return f"rejection costs ({', '.join(f'{c:g}' for c in self.cost)})"
        return "the costs of the matrix"

    def _rule(self) -> str:
        return "Chow's rule" if isinstance(self.cost, float) else "the least cost"

    def _by_definition(self) -> list[str]:
        found = self.search
        lines = [f"By definition: minimise the pointwise risk, decide, compare with {self._rule()}"]
        if self.witness is None:
            lines += self._without_witness()
        for witness in self.witnesses:
            lines += self._of(witness)
        if self.witness is not None and found.n_unresolved:
            lines.append(f"  {found.n_unresolved:,} more class probabilities were unresolved when these were found")
        return lines

    def _without_witness(self) -> list[str]:
        found = self.search
        lines = [f"  {found.n_eta:,} class probabilities tried with {self.n_outputs} scores, {found.n_right:,} right"]
        if self.certificate is None and np.isfinite(found.resolution):
            lines.append(
                "  A search refutes; it does not prove: a threshold misplaced by less than "
                f"{found.resolution:.0e} would have passed."
            )
        return lines

    def _of(self, witness: Witness) -> list[str]:
        more = "infinitely more: no scores give this decision" if np.isinf(witness.gap) else f"{witness.gap:.6g} more"
        return [
            f"  counterexample   eta = {describe_eta(witness.eta)}",
            f"  {self._rule():<16} {witness.chow}: costs {witness.chow_risk:.6g}",
            f"  the minimiser    {witness.taken}: costs {witness.taken_risk:.6g}",
            f"  least risk       {witness.least_risk:.10g}, that of the minimiser",
            f"  least risk with the decision of {self._rule()}: {witness.chow_least_risk:.10g}, {more}",
            f"  ({witness.precision}; error of the difference below {witness.error:.0e})",
        ]

    def _by_theorem_four(self) -> list[str]:
        theorem = self.theorem_four
        if theorem is None:
            return ["By Theorem 4", f"  not applicable: {self.no_theorem_four}"]
        assert isinstance(self.cost, float)
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
        if self.routes_agree:
            return [*lines, "  Both methods agree."]
        if theorem.fails > self.fails:
            return [
                *lines,
                "  The search found no witness for some of these failures: their eta are too near the boundary.",
            ]
        return [*lines, "  The methods disagree; the witness above does not depend on the theorem."]

    def _bound(self) -> str:
        if self.bound is not None:
            return str(self.bound)
        if self.calibrated:
            return "the paper proves none for this loss at this cost."
        if self.refuted:
            return "none: if a loss prefers wrong decisions, a small risk does not guarantee right ones."
        return "none known."


def _digits(value: float, n: int = 50) -> str:
    """Return a number with n digits, for LaTeX."""
    digits, _, power = str(mpmath.nstr(mpmath.mpf(float(value)), n)).partition("e")
    return r"\infty" if digits == "+inf" else digits + rf" \cdot 10^{{{power}}}" * bool(power)


def operations(function: Callable[..., Tensor], *examples: Tensor) -> str:
    """Return the body of a Python function of the tensors s_1 and y_1 with the torch operations of another one."""
    graph = trace(function, *examples)
    constants = [
        f"{name}=torch.tensor({value.tolist()!r}, dtype={value.dtype})" for name, value in graph.named_buffers()
    ]
    code = graph.code.partition(":\n")[2].replace("self.", "constants.")
    lines = [f"    constants = SimpleNamespace({', '.join(constants)})", *code.splitlines()]
    return "\n".join(line for line in lines if line.strip())


LATEX = r"""% {headline}
\begin{{proposition}}
The loss {where} is not calibrated for rejection.
\end{{proposition}}
\begin{{proof}}
Let $\eta = ({eta})$. The decision of least cost is to {w.chow}, at ${w.chow_risk:.12g}$. At the scores
$g = ({scores})$
the decision is to {w.taken}, at a cost of ${w.taken_risk:.12g}$, and the pointwise risk of the loss is
$W(g; \eta) = {least}$.
Among all scores with the decision of least cost, the infimum of the risk is ${right}$, which is larger by
${gap}$ (computed by: {w.precision}; the error of this difference is below ${error}$).
So a minimiser of the risk takes a decision that costs more than the best one.
\end{{proof}}
"""
SCRIPT = '''r"""{headline}

Checks the counterexample: the scores take a wrong decision, and no scores found by 40 searches decide rightly with as
small a risk. It needs numpy, scipy and torch. Decisions are class numbers, and the number of classes for rejecting.
"""

from types import SimpleNamespace

import numpy as np
import torch
from scipy.optimize import minimize
from torch import device, inf, nan  # noqa: F401

{numbers}


def losses(s_1, y_1):
{losses}


def decision(s_1):
{decision}


def risk(scores):
    rows = torch.tensor(np.asarray(scores)).expand(len(eta), -1).clone()
    each = losses(rows, torch.arange(len(eta))).numpy()
    return float(sum(p * value for p, value in zip(eta, each) if p > 0))


def decided(scores):
    return int(decision(torch.tensor(np.asarray(scores))[None])[0])


expected = eta @ costs
best, taken, least = int(expected.argmin()), decided(scores), risk(scores)
assert expected[taken] > expected[best] + 1e-8, "the decision is right"


def barred(trial):
    value = risk(trial) if decided(trial) == best else np.inf
    return value if np.isfinite(value) else 1e300


rng = np.random.default_rng(0)
trials = [scale * rng.normal(size=len(scores)) for scale in (0.3, 1, 3, 10, 30) for _ in range(2000)]
trials += [scores + scale * rng.normal(size=len(scores)) for scale in (0.1, 0.3, 1, 3) for _ in range(2000)]
inside = sorted((trial for trial in trials if decided(trial) == best), key=risk)[:40]
found = min([np.inf, *(minimize(barred, trial, method="Nelder-Mead").fun for trial in inside)])
print(f"risk with the wrong decision {{least:.12g}}")
print(f"least risk with the right one {{found:.12g}} (claimed: {{claimed:.12g}})")
assert found >= least, "scores with the right decision have a smaller risk"
assert found >= claimed - error - 1e-9 * abs(claimed) if np.isfinite(claimed) else found == claimed
print("The counterexample is confirmed.")
'''


def describe_eta(eta: Floats) -> str:
    """Format class probabilities; equal ones are grouped.

    Examples
    --------
    >>> describe_eta(np.array([0.85, 0.05, 0.05, 0.05]))
    '(0.85, 3 x 0.05)'
    """
    counts = Counter(f"{value:.6g}" for value in eta)
    return "(" + ", ".join(v if n == 1 else f"{n} x {v}" for v, n in counts.items()) + ")"


def _zero(value: float, theorem: TheoremFour) -> str:
    return "0" if abs(value) <= theorem.tolerance else f"{value:.4g}"


def plain(value: Any) -> Any:
    """Return what JSON can write: lists for arrays and sets, fields for records, None for an infinity."""
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return None if isinstance(value, float) and not np.isfinite(value) else value
