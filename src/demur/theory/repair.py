"""Repair: the inverse link or threshold with which a loss is calibrated, from the minimisers of the pointwise risk.

If two distributions with different right decisions have the same minimiser, no rule can separate them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from demur.array_types import ByName, Floats
from demur.losses import FunctionLoss, Loss
from demur.losses.registry import RuleFunction
from demur.rules import Decision, Relinked
from demur.theory.bayes import REJECT
from demur.theory.calibration_report import CalibrationReport, describe_eta, plain
from demur.theory.examined_loss import ExaminedLoss
from demur.theory.pointwise_risk import find_minima
from demur.theory.simplex import over_all_classes, random_eta, structured_eta

EXACT = 1e-5
"""Largest error of eta at a minimiser with which a link fits."""
FAR = 1e4
CLEAR = 2e-3
"""Least cost difference between the best and the second best decision at which decisions are compared."""
ODDS = np.linspace(-14, 14, 2801)
"""The log-odds of p between which a tabulated link is straight: exact to about 1e-6, and linear beyond."""


@dataclass(frozen=True)
class Repair:
    """The rule under which a loss is calibrated, or the reason why there is none.

    Parameters
    ----------
    found : str
        "link" (probabilities for every cost), "threshold" (a rule for one cost), "none" (no rule exists) or "unknown".
    formula : str
        Description of the rule, or the proof that there is none.
    rule : Relinked or None
        Chow's rule after the link, for the softmax of any model trained with the loss.
    loss : Loss or None
        The loss with this rule, to train and to check.
    check : CalibrationReport or None
        The check of that pair.
    pair : tuple of two arrays or None
        Two eta with one minimiser and different right decisions.
    """

    found: str
    formula: str
    rule: Relinked | None = None
    loss: Loss | None = None
    check: CalibrationReport | None = None
    pair: tuple[Floats, Floats] | None = None

    def as_dict(self) -> ByName:
        """Return what was found as plain numbers, lists and strings, for JSON."""
        rule = self.rule and self.rule.get_params()
        parts = {"rule": rule, "verdict": self.check and self.check.verdict, "pair": self.pair}
        return {"found": self.found, "formula": self.formula, **plain(parts)}

    def __str__(self) -> str:
        heads = {
            "link": "A rule exists, for every cost",
            "threshold": "A rule exists, for this cost",
            "none": "No rule exists",
            "unknown": "No rule was found",
        }
        lines = [f"Repair: {heads[self.found]}.", f"  {self.formula}"]
        if self.check is not None:
            lines.append(f"  Checked: {self.check.headline}")
        return "\n".join(lines)


@dataclass(frozen=True)
class _Minimisers:
    """Class probabilities, the scores that minimise the risk there, the least risk, and the right decision."""

    subject: ExaminedLoss
    eta: Tensor
    scores: Tensor
    risk: Tensor

    @classmethod
    def of(cls, subject: ExaminedLoss) -> "_Minimisers":
        cost, n_classes = subject.target.single, subject.n_classes
        assert cost is not None
        near = torch.tensor([0.0025, -0.0025, 0.03, -0.03], dtype=torch.float64) * cost / 0.2 + 1 - cost
        rows = structured_eta(near, n_classes)
        rows = torch.cat([rows, *_with_less(rows)])
        rows = over_all_classes(rows, 12 * n_classes) if not subject.symmetric else rows
        drawn = random_eta(subject.target, 40 if subject.loss.smooth and subject.twice else 8, subject.generator())
        mixed = 0.9 * drawn + 0.1 / n_classes  # scores of certain classes may be infinite
        eta = torch.cat([rows, mixed, mixed.roll(1, -1)])
        eta = eta[subject.target.clearance(eta) > CLEAR]
        found = find_minima(subject, eta)
        kept = found.converged
        eta, scores = eta[kept], found.scores[kept]
        # Where there are several minima, that of another eta may be lower.
        risk, lowest = (eta @ subject.each_value(scores).nan_to_num(posinf=1e300).T).min(-1)
        better = risk < found.risk[kept] - subject.tolerance
        return cls(subject, eta, torch.where(better[:, None], scores[lowest], scores), risk)

    @property
    def best(self) -> Tensor:
        return self.subject.target.best(self.eta)

    @property
    def class_scores(self) -> Tensor:
        return self.scores[:, : self.subject.n_classes]

    @property
    def inner(self) -> Tensor:
        """Rows without a class so rare that its score may be infinite."""
        return (self.eta.amin(-1) > 1e-3) & (self.scores.abs().amax(-1) < FAR)

    def shared(self) -> tuple[int, int] | None:
        """Return the numbers of two eta with one minimiser but different right decisions, the clearest ones."""
        subject = self.subject
        excess = self.eta @ subject.each_value(self.scores).nan_to_num(posinf=1e300).T - self.risk[:, None]
        clear = subject.target.clearance(self.eta)
        clear = torch.minimum(clear[:, None], clear)
        same = (excess <= 0.1 * subject.tolerance) & (self.best[:, None] != self.best)
        if not bool(same.any()):
            return None
        return divmod(int(torch.where(same, clear, -1.0).argmax()), len(same))


def _with_less(eta: Tensor) -> Iterator[Tensor]:
    """Yield each row without one of its classes (except the largest), because a loss may ignore a rare class."""
    for k in range(1, min(eta.shape[-1], 4)):
        for kept in (0.0, 0.5):
            less = eta.clone()
            less[:, k] *= kept
            yield less / less.sum(-1, keepdim=True)


def find_repair(subject: ExaminedLoss) -> Repair:
    """Find the rule that makes a loss calibrated; see :meth:`demur.theory.CalibrationReport.repair`."""
    cost = subject.target.single
    if cost is None:
        return Repair("unknown", "Repairs are for one price of rejecting.")
    minima = _Minimisers.of(subject)
    worth = _worth(subject.loss, subject.n_classes, cost)
    # If it increases, p determines eta, however little two risks differ.
    pair = None if worth is not None and (np.diff(worth) > 1e-12).all() else minima.shared()
    if pair is not None:
        return _none(minima, pair)
    if subject.n_outputs < subject.n_classes:
        return Repair("unknown", "Repairs are for losses with a score for each class.")
    for rule, formula in _links(minima, cost, worth):
        error = float((_linked(rule, minima.class_scores) - minima.eta)[minima.inner].abs().max())
        if error < EXACT:
            loss = _paired(subject, rule)
            check = _check(loss, subject)
            if not check.refuted:
                return Repair("link", formula, rule, loss, check)
    return _threshold(minima, cost)


def _linked(rule: Relinked, scores: Tensor) -> Tensor:
    eta: Tensor = rule.link(scores if rule.of_scores else torch.softmax(scores, -1))
    return eta


def _check(loss: Loss, subject: ExaminedLoss) -> CalibrationReport:
    from demur.theory.calibration_check import check_calibration  # its reports import this module

    return check_calibration(loss, subject.n_classes, float(subject.target.cost), seed=subject.seed)


def _paired(subject: ExaminedLoss, rule: Relinked) -> FunctionLoss:
    """Return the loss with a rule on the softmax of its class scores."""
    loss, n_classes = subject.loss, subject.n_classes

    def decide(scores: Tensor, cost: float) -> Decision[Tensor]:
        eta = _linked(rule, scores[..., :n_classes])
        return Decision.from_acceptance(eta.argmax(-1), eta.amax(-1) - (1 - cost), eta.amax(-1))

    whole = subject.n_outputs == n_classes
    return FunctionLoss(
        loss.forward, rule if whole else decide, subject.n_outputs, f"{loss.name}, repaired", loss.smooth
    )


def _links(minima: _Minimisers, cost: float, worth: Floats | None) -> Iterator[tuple[Relinked, str]]:
    """Yield links that fit the minimisers, the simplest first."""
    n_classes = minima.subject.n_classes
    eta, scores = minima.eta[minima.inner], minima.class_scores[minima.inner]
    log_p = torch.log_softmax(scores, -1)
    centred, target = (rows - rows.mean(-1, keepdim=True) for rows in (log_p, eta.log()))
    yield Relinked(cost, "power"), "Chow's rule on the softmax of the class scores: answer iff it exceeds 1 - c."
    if len(target) > n_classes:
        columns = torch.eye(n_classes, dtype=torch.float64) - 1 / n_classes
        design = torch.cat([centred.reshape(-1, 1), columns.repeat(len(target), 1)], 1)
        fit = torch.linalg.lstsq(design, target.reshape(-1, 1), driver="gelsd").solution[:, 0].numpy()
        slope, offset = _rounded(fit[0]), np.array([_rounded(value) for value in fit[1:] - fit[1:].max()])
        power = "p" if slope == 1 else f"p^{slope:.8g} (temperature {1 / slope:.8g})"
        text = f"eta is proportional to {power}, p the softmax of the scores"
        if np.abs(offset).max() > EXACT:
            text += f", times exp of ({', '.join(f'{value:.8g}' for value in offset)}), a logit adjustment"
        else:
            offset = np.zeros(n_classes)
        yield Relinked(cost, "power", slope, offset), f"{text}; then Chow's rule."
        matrix = torch.linalg.lstsq(log_p.exp(), eta, driver="gelsd").solution.numpy()
        yield Relinked(cost, "affine", matrix), f"{_in_words(matrix)}; then Chow's rule."
        for form, wanted in (("linear", eta), ("sigmoid", torch.logit(eta))):
            line = torch.stack([scores.reshape(-1), scores.new_ones(scores.numel())], -1)
            a, b = torch.linalg.lstsq(line, wanted.reshape(-1, 1), driver="gelsd").solution[:, 0].tolist()
            text = f"{_rounded(a):.8g} g_k + {_rounded(b):.8g}, g_k the score of class k; then Chow's rule."
            yield (
                Relinked(cost, form, _rounded(a), _rounded(b)),
                f"eta_k is {'the sigmoid of ' * (form == 'sigmoid')}{text}",
            )
    if worth is not None and (np.diff(worth) >= -1e-9).all():
        yield (
            Relinked(cost, "monotone", ODDS[[0, -1]], worth),
            "the loss is l(p_y), p the softmax of the scores, and eta is proportional to -1 / l'(p), an increasing "
            f"function that the rule has at {len(ODDS):,} values of p; then Chow's rule.",
        )


def _worth(loss: Loss, n_classes: int, cost: float) -> Floats | None:
    """Return log(-1 / l'(p)) at the log-odds ``ODDS`` if the loss is l(p_y), p the softmax of all scores; else None."""
    n_outputs = loss.n_outputs(n_classes)

    def part(surprise: Tensor) -> Tensor:
        rest = torch.log(torch.expm1(surprise).clamp(min=1e-300)) - np.log(n_outputs - 1)
        scores = surprise.new_zeros(len(surprise), n_outputs)
        scores = torch.cat([scores[:, :1], scores[:, 1:] + rest[:, None]], 1)
        values: Tensor = loss.forward(scores, torch.zeros(len(surprise), dtype=torch.long), cost)
        return values.to(torch.float64)

    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(300, n_outputs, generator=generator, dtype=torch.float64)
    y = torch.arange(len(scores)) % n_classes
    with torch.no_grad():
        surprise = -torch.log_softmax(scores, -1)[torch.arange(len(y)), y]
        values, expected = loss.forward(scores, y, cost).to(torch.float64), part(surprise)
    if not bool(((values - expected).abs() <= 1e-9 * (1 + expected.abs())).all()):
        return None
    surprise = torch.from_numpy(np.logaddexp(0, -ODDS)).requires_grad_()
    (slope,) = torch.autograd.grad(part(surprise).sum(), surprise)
    worth: Floats = -(surprise.detach() + slope.log()).numpy()  # l' = -slope / p
    return worth if np.isfinite(worth).all() else None


def _in_words(matrix: Floats) -> str:
    n = len(matrix)
    off = (matrix.sum() - np.trace(matrix)) / (n * n - n)
    share = 1 - 1 / (np.trace(matrix) / n - off)
    smoothed = (np.eye(n) - share / n) / (1 - share)
    if np.abs(matrix - smoothed).max() < EXACT:
        words = f"eta = (p - {share / n:.8g}) / {1 - share:.8g}, p the softmax of the scores"
        return f"{words} (labels smoothed by {share:.8g})"
    return f"eta = p M, p the softmax of the scores, with M = {matrix.round(6).tolist()}"


def _rounded(value: float) -> float:
    """Return the nearest number of few digits, if it is as near as a minimisation can be."""
    near = float(f"{value:.5g}") if abs(value) > 1e-7 else 0.0
    return near if abs(near - value) < 1e-7 else float(value)


def _none(minima: _Minimisers, pair: tuple[int, int]) -> Repair:
    subject, (one, other) = minima.subject, (minima.eta[i].numpy() for i in pair)
    words = [subject.target.words(int(minima.best[i])) for i in pair]
    scores = ", ".join(f"{value:.6g}" for value in minima.scores[pair[1]].tolist())
    return Repair(
        "none",
        f"At eta = {describe_eta(one)} the right decision is to {words[0]}, at eta = {describe_eta(other)} to "
        f"{words[1]}, and the scores ({scores}) minimise the risk at both, to within "
        f"{0.1 * subject.tolerance * subject.scale.unit:.0e}: no rule on the scores is right at both.",
        pair=(one, other),
    )


def _threshold(minima: _Minimisers, cost: float) -> Repair:
    """Search for a score, or a difference of scores, that exceeds some number exactly when answering is right."""
    subject, n_classes = minima.subject, minima.subject.n_classes
    tops = torch.tensor([1 - cost + 4e-6, 1 - cost - 4e-6], dtype=torch.float64)
    beside = structured_eta(tops, n_classes)
    beside = beside if subject.symmetric else over_all_classes(beside, 8 * n_classes)
    eta = torch.cat([minima.eta, beside])
    scores = torch.cat([minima.scores, find_minima(subject, beside).scores])
    best, remains = subject.target.best(eta), []
    label, has_last = scores[:, :n_classes].argmax(-1), subject.n_outputs == n_classes + 1
    for name, statistic in list(STATISTICS.items())[0 if has_last else 2 :]:
        value = statistic(scores, n_classes)
        for n_rows in (len(eta), len(minima.eta)):  # at kinks, minimisers beside the boundary are not exact
            answers = best[:n_rows] != REJECT
            low, high = float(value[:n_rows][~answers].max()), float(value[:n_rows][answers].min())
            if low < high and torch.equal(label[:n_rows][answers], best[:n_rows][answers]):
                rounded = (float(f"{(low + high) / 2:.{digits}g}") for digits in range(1, 18))
                limit = next(number for number in (0.0, *rounded) if low < number < high)
                rule = _exceeding(statistic, limit, n_classes)
                loss = replace(_paired(subject, Relinked(cost, "power")), decision_rule=rule)
                check = _check(loss, subject)
                if check.calibrated:
                    formula = f"Answer the largest class score iff {name} exceeds {limit:.8g}."
                    return Repair("threshold", formula, loss=loss, check=check)
        remains.append(f"{name}: up to {low:.4g} where rejecting is right, from {high:.4g} on where answering is")
    return Repair(
        "unknown",
        "No two distributions were found to share a minimiser, so that the scores may determine eta, but by none of "
        "the known links (power, temperature, affine, logit adjustment, a function of each p or each score). No "
        f"threshold does it either. {'; '.join(remains)}.",
    )


def _exceeding(statistic: "Statistic", limit: float, n_classes: int) -> RuleFunction:
    def decide(scores: Tensor, cost: float) -> Decision[Tensor]:
        return Decision.from_acceptance(scores[..., :n_classes].argmax(-1), statistic(scores, n_classes) - limit)

    return decide


Statistic: TypeAlias = Callable[[Tensor, int], Tensor]
STATISTICS: dict[str, Statistic] = {
    "the last score": lambda s, k: s[..., -1],
    "the largest class score less the last score": lambda s, k: s[..., :k].amax(-1) - s[..., -1],
    "the largest score": lambda s, k: s[..., :k].amax(-1),
    "the lead of the largest score": lambda s, k: s[..., :k].topk(2, -1).values @ s.new_tensor([1.0, -1.0]),
}
"""Quantities that may be compared with a threshold; the first two need a score in addition to those of the classes."""
