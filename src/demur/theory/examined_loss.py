"""What is checked: a registered name, a loss object or a function with its rule, and what trying it shows about it."""

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from demur.errors import InputError, InputTypeError
from demur.losses import FunctionLoss, Loss, resolve
from demur.losses.pairwise import NoClosedFormError
from demur.losses.registry import LossFunction, RuleFunction, RuleName
from demur.theory.bayes import REJECT, LossContractError, Target
from demur.theory.descent import ENDLESS, Deadline

__all__ = [
    "ExaminedLoss",
    "Facts",
    "LossLike",
    "RuleFunction",
    "RuleName",
    "Scale",
    "as_loss",
    "decide",
    "examine",
    "scale_of",
    "weigh",
    "wide_scores",
]

LossLike: TypeAlias = str | Loss | type[Loss] | LossFunction


def as_loss(
    loss: LossLike,
    n_classes: int,
    cost: float | None = None,
    *,
    rule: RuleName | RuleFunction | None = None,
    outputs: int | None = None,
) -> Loss:
    """Return the loss object for ``n_classes`` classes that a name, a class, a function or an object means.

    Parameters
    ----------
    loss : str, Loss, Loss class or callable
        A callable that is not a loss is taken as :class:`~demur.losses.FunctionLoss`.
    n_classes : int
    cost : float, optional
        Used where the beta of a pairwise loss is the name of a side without closed form: it is then computed.
    rule : "softmax", "rejector", "reject-score" or callable, optional
        For a plain function only.
    outputs : int, optional
        How many scores a plain function takes. With one more than there are classes and no rule, the last is
        "reject-score": a softmax over them could answer a class that is not there.

    Examples
    --------
    >>> as_loss("ce", 3)
    CrossEntropy()
    >>> as_loss("bep", 3).n_classes
    3
    >>> as_loss(lambda scores, y, cost: scores.square().sum(-1), 3, outputs=4).decision_rule
    'reject-score'
    """
    subject = resolve(loss, rule=rule)
    if outputs is not None:
        if isinstance(outputs, bool) or not isinstance(outputs, int) or outputs < 1:
            raise InputError(f"outputs is the number of scores, a whole number from 1 on, got {outputs!r}.")
        if isinstance(subject, FunctionLoss):
            subject = replace(subject, outputs=outputs)
        elif outputs != subject.n_outputs(n_classes):
            raise InputTypeError(
                f"{subject.name} says itself that it takes {subject.n_outputs(n_classes)} scores for {n_classes} "
                "classes; outputs can be given for a plain function only."
            )
    if isinstance(subject, FunctionLoss) and subject.decision_rule == "softmax" and subject.outputs == n_classes + 1:
        subject = replace(subject, decision_rule="reject-score")
    return _with_number_for_beta(subject.for_classes(n_classes), n_classes, cost)


def _with_number_for_beta(loss: Loss, n_classes: int, cost: float | None) -> Loss:
    if cost is None:
        return loss
    try:
        loss.hyper_values(n_classes, cost)
    except NoClosedFormError:
        from demur.theory.theorem_four import with_number_for_beta

        return with_number_for_beta(loss, n_classes, cost)
    return loss


@dataclass(frozen=True)
class Scale:
    """How large the values of a loss are: what makes every tolerance independent of its unit and its zero.

    Parameters
    ----------
    offset, unit : float
        A typical value, and a typical difference of values.
    noise : float
        The rounding error of one value, in units.
    """

    offset: float = 0.0
    unit: float = 1.0
    noise: float = 1e-15


@dataclass(frozen=True)
class Facts:
    """What random scores say about a loss; a property that fails nowhere among them is taken to hold.

    Parameters
    ----------
    symmetric : bool
        Renaming the classes renames the scores and changes nothing else; tested with generators of all renamings.
    convex : bool
        Convex in the scores, for every label.
    twice : bool
        Torch can differentiate it twice.
    answers_argmax : bool
        The answer is the class with the largest score.
    rejects_by_last_score : bool
        An example is rejected iff the last score is not positive.
    chow_on_link : bool
        The rule is Chow's, on the loss's own inverse link.
    never_answers : tuple of int
        Classes that the rule answered for no scores that were tried.
    stepped : bool
        A staircase: different values, but no slope at most scores. Its minimum cannot be found by descending.
    """

    symmetric: bool
    convex: bool
    twice: bool
    answers_argmax: bool
    rejects_by_last_score: bool
    chow_on_link: bool
    never_answers: tuple[int, ...] = ()
    stepped: bool = False


@dataclass(frozen=True)
class ExaminedLoss:
    """A loss with its rule and the target they are held to, and what is known about them.

    Parameters
    ----------
    loss : Loss
    target : Target
    facts : Facts
    scale : Scale
    deadline : Deadline
        When everything that is computed about it returns what there is.
    """

    loss: Loss
    target: Target
    facts: Facts
    scale: Scale
    deadline: Deadline = ENDLESS

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return self.target.n_classes

    @property
    def n_outputs(self) -> int:
        """The number of scores."""
        return self.loss.n_outputs(self.target.n_classes)

    @property
    def tolerance(self) -> float:
        """How much smaller a risk must be to count as smaller, in units of the loss's scale."""
        return 1e-9 + 100 * self.scale.noise

    def values(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each example, (m,), in units of its scale; infinite where it is not a number."""
        raw = self.loss.forward(scores, y, self.target.cost).to(torch.float64)
        return ((raw - self.scale.offset) / self.scale.unit).nan_to_num(nan=torch.inf, posinf=torch.inf)

    def risk(self, scores: Tensor, eta: Tensor) -> Tensor:
        """Return the pointwise risk of scores (m, n_outputs) at eta, (n_classes,) or (m, n_classes)."""
        return weigh(self.each_value(scores), eta)

    def each_value(self, scores: Tensor) -> Tensor:
        """Return the loss of scores (m, n_outputs) for each class, (m, n_classes): what every risk is made of."""
        n_rows, n_classes = len(scores), self.n_classes
        with torch.no_grad():
            y = torch.arange(n_classes).repeat(n_rows)
            return self.values(scores.repeat_interleave(n_classes, 0), y).reshape(n_rows, n_classes)

    def decide(self, scores: Tensor) -> Tensor:
        """Return what the rule does with scores (m, n_outputs): a class, or -1 for rejecting."""
        with torch.no_grad():
            return decide(self.loss, scores, self.target)


def weigh(each: Tensor, eta: Tensor) -> Tensor:
    """Return the risk at eta of one loss per class, (..., n_classes); a class of probability 0 does not count.

    Examples
    --------
    >>> weigh(torch.tensor([[1.0, 2.0, torch.inf]]), torch.tensor([0.5, 0.5, 0.0]))
    tensor([1.5000])
    """
    return torch.where(eta > 0, eta * each, torch.zeros_like(each)).sum(-1)


def decide(loss: Loss, scores: Tensor, target: Target) -> Tensor:
    """Return what the rule of a loss does with scores, by the costs of the target."""
    if _linked(loss, target):
        costs = loss.inverse_link(scores) @ target.matrix.to(scores.dtype)
        rejects = costs[:, -1] <= costs[:, :-1].amin(-1)
        return torch.where(rejects, torch.full_like(rejects, REJECT, dtype=torch.long), costs[:, :-1].argmin(-1))
    taken = loss.rule(scores, target.cost)
    return torch.where(taken.reject, torch.full_like(taken.label, REJECT), taken.label).long()


def _linked(loss: Loss, target: Target) -> bool:
    """Return whether the costs are not one price and the loss decides on its own probabilities."""
    if target.single is not None:
        return False
    if loss.has_link:
        return True
    if isinstance(loss, FunctionLoss):
        return False
    raise LossContractError(
        f"{loss.name} knows one price of rejecting only and has no probabilities to decide with; give one cost, or a "
        "function with a rule of its own for these costs."
    )


def examine(loss: Loss, target: Target, *, seed: int = 0, deadline: Deadline = ENDLESS) -> ExaminedLoss:
    """Check that a loss keeps its contract and find its facts.

    Raises
    ------
    LossContractError
        If it raises, or returns the wrong shape, NaN, or values without a usable gradient.

    Examples
    --------
    >>> from demur.losses import get
    >>> from demur.theory.bayes import as_target
    >>> facts = examine(get("mpc+log"), as_target(0.2, 3)).facts
    >>> facts.symmetric, facts.convex, facts.answers_argmax, facts.rejects_by_last_score, facts.chow_on_link
    (True, False, True, True, False)
    """
    generator = torch.Generator().manual_seed(seed)
    n_classes = target.n_classes
    n_points = max(64, 2 * n_classes)
    n_outputs = loss.n_outputs(n_classes)
    if not isinstance(n_outputs, int) or n_outputs < 1:
        raise LossContractError(f"{loss.name} must need at least one score, n_outputs({n_classes}) is {n_outputs!r}.")
    _linked(loss, target)
    spread = torch.where(torch.arange(n_points) % 2 == 0, 1.0, 3.0).to(torch.float64).unsqueeze(-1)
    scores = torch.randn(n_points, n_outputs, generator=generator, dtype=torch.float64) * spread
    y = torch.arange(n_points) % n_classes
    values = _values(loss, scores, y, target)
    _refuse_batches(loss, scores, y, target, values)
    scale = scale_of(loss, n_classes, target.cost)
    twice = _check_derivative(loss, scores, y, target, scale)
    reject = _checked_decision(loss, scores, target)
    taken = decide(loss, scores, target)
    one_each = n_outputs >= n_classes
    answered = ~reject
    single = target.single
    trial = _Trial(loss, scores, y, target, values, scale)
    facts = Facts(
        symmetric=one_each and single is not None and _symmetric(trial, taken),
        convex=_convex(trial, generator),
        twice=twice,
        answers_argmax=one_each
        and bool(answered.any())
        and bool((taken == scores[:, :n_classes].argmax(-1))[answered].all()),
        rejects_by_last_score=bool((reject == (scores[:, -1] <= 0)).all()),
        chow_on_link=single is not None and loss.has_link and _is_chow_on_link(loss, scores, single),
        never_answers=_never_answered(loss, target, generator),
        stepped=_stepped(trial),
    )
    return ExaminedLoss(loss, target, facts, scale, deadline)


@dataclass(frozen=True)
class _Trial:
    """Random scores and labels with the values they gave."""

    loss: Loss
    scores: Tensor
    y: Tensor
    target: Target
    values: Tensor
    scale: Scale

    def scaled(self, scores: Tensor, y: Tensor) -> Tensor:
        raw = self.loss.forward(scores, y, self.target.cost).detach().to(torch.float64)
        return (raw - self.scale.offset) / self.scale.unit


def _values(loss: Loss, scores: Tensor, y: Tensor, target: Target) -> Tensor:
    shape = f"scores {tuple(scores.shape)} and y {tuple(y.shape)}"
    hint = ""
    if isinstance(loss, FunctionLoss) and loss.outputs is None:
        hint = f" If it does not take {scores.shape[-1]} scores, say how many (outputs=, --outputs)."
    try:
        values: Any = loss.forward(scores, y, target.cost)
    except Exception as error:  # a user's own loss may raise anything
        if isinstance(error, TypeError):
            hint = (
                " A loss is called with (scores, y, cost), or with (scores, y): wrap it in a function of these that "
                "returns one loss per row."
            )
        raise LossContractError(f"{loss.name} raised {type(error).__name__} on {shape}: {error}{hint}") from error
    if not isinstance(values, Tensor):
        raise LossContractError(f"{loss.name} must return a tensor, got {type(values).__name__}.")
    if values.shape != y.shape:
        raise LossContractError(
            f"{loss.name} must return one loss per row, shape {tuple(y.shape)}, for {shape}; got "
            f"{tuple(values.shape)}. Do not reduce over the rows (torch's own losses take reduction='none').{hint}"
        )
    if not values.is_floating_point():
        raise LossContractError(f"{loss.name} must return floats, got {values.dtype}.")
    if not bool(values.isfinite().all()):
        raise LossContractError(f"{loss.name} returned NaN or infinity at ordinary scores.")
    return values


def _refuse_batches(loss: Loss, scores: Tensor, y: Tensor, target: Target, values: Tensor) -> None:
    """Refuse a loss that gives a row another value in other company: it has no pointwise risk."""
    alone = _values(loss, scores[:5], y[:5], target).detach().to(torch.float64)
    together = values[:5].detach().to(torch.float64)
    size = float(values.detach().to(torch.float64).abs().max())
    if float((alone - together).abs().max()) > 1e3 * torch.finfo(values.dtype).eps * (size + 1e-300):
        raise LossContractError(
            f"the loss of a row depends on the other rows: {loss.name} gives the same scores and label another value "
            "in a smaller batch. Calibration is asked about at one input at a time; a statistic of the batch, or a "
            "random number, has no place in it."
        )


def scale_of(loss: Loss, n_classes: int, cost: float | Tensor) -> Scale:
    """Return the median and the spread of a loss at small scores, so that a loss times 1e9 or plus 1000 is the same.

    Large scores would not do: an exponential loss is astronomical there, and its minimum is not.
    """
    generator = torch.Generator().manual_seed(0)
    n_points = max(64, 2 * n_classes)
    y = torch.arange(n_points) % n_classes
    for size in (0.3, 1.0, 3.0, 30.0):
        scores = size * torch.randn(n_points, loss.n_outputs(n_classes), generator=generator, dtype=torch.float64)
        with torch.no_grad():
            values = loss.forward(scores, y, cost)
        precision = torch.finfo(values.dtype).eps
        plain = values.to(torch.float64)
        offset, spread = float(plain.median()), float(plain.quantile(0.9) - plain.quantile(0.1))
        # Upwards there may be no end to an exponential of a large multiple of a score; downwards there is.
        below = 2 * (offset - float(plain.quantile(0.1)))
        unit = min(below, spread) if below > 1e-3 * spread or below > 100 * precision * abs(offset) else spread
        if unit > 100 * precision * abs(offset):
            return Scale(offset, unit, noise=max(1e-15, precision * float(plain.abs().median()) / unit))
    return Scale(offset, 1.0, noise=max(1e-15, precision * abs(offset)))


def _check_derivative(loss: Loss, scores: Tensor, y: Tensor, target: Target, scale: Scale) -> bool:
    """Refuse values without a gradient or with a wrong one; return whether there is a second derivative."""
    free = scores.clone().requires_grad_()
    values = _values(loss, free, y, target)
    if not values.requires_grad:
        raise LossContractError(
            f"{loss.name} is not differentiable: its values carry no gradient. Keep to torch operations, without "
            "detach(), item() or NumPy in between."
        )
    try:
        (gradient,) = torch.autograd.grad(values.sum(), free, create_graph=True, materialize_grads=True)
    except RuntimeError as error:  # what torch raises, for example, after an operation in place
        raise LossContractError(f"{loss.name} cannot be differentiated: {error}") from error
    if not bool(gradient.isfinite().all()):
        raise LossContractError(f"the gradient of {loss.name} is NaN or infinite at ordinary scores.")
    step = 1e-5 * torch.sign(torch.sin(7.0 * torch.arange(scores.numel(), dtype=torch.float64))).reshape(scores.shape)
    rise = (_values(loss, scores + step, y, target) - _values(loss, scores - step, y, target)) / 2
    slope = (gradient.detach() * step).sum(-1)
    allowed = 1e-4 * 1e-5 * (scale.unit + gradient.detach().abs().sum(-1)) + 10 * scale.noise * scale.unit
    wrong = (rise - slope).abs() > allowed
    if wrong.float().mean() > 0.1:  # a kink may be near a few points, not near one in ten
        raise LossContractError(
            f"the gradient of {loss.name} disagrees with finite differences of its values: part of it is not "
            "differentiable (detach(), rounding, argmax) or is differentiated wrongly."
        )
    if not gradient.requires_grad:
        return True  # linear: the second derivative is zero
    try:
        (second,) = torch.autograd.grad(gradient.sum(), free, materialize_grads=True)
    except RuntimeError:
        return False
    return bool(second.isfinite().all())


def _checked_decision(loss: Loss, scores: Tensor, target: Target) -> Tensor:
    """Refuse a rule that does not decide; return where it rejects."""
    if _linked(loss, target):
        return decide(loss, scores, target) == REJECT
    try:
        decision = loss.rule(scores, target.cost)
        label, reject = decision.label, decision.reject
    except Exception as error:  # a user's own loss may raise anything
        raise LossContractError(
            f"the rule of {loss.name} raised {type(error).__name__} on scores {tuple(scores.shape)}: {error}"
        ) from error
    n_rows = (len(scores),)
    if not isinstance(label, Tensor) or label.shape != n_rows or label.is_floating_point():
        raise LossContractError(f"the rule of {loss.name} must give one integer label per row, shape {n_rows}.")
    if not isinstance(reject, Tensor) or reject.shape != n_rows or reject.dtype != torch.bool:
        raise LossContractError(f"the rule of {loss.name} must give one boolean 'reject' per row, shape {n_rows}.")
    answers = label[~reject]  # where it rejects, a rule over K + 1 scores may well give the number K
    if len(answers) and not 0 <= int(answers.min()) <= int(answers.max()) < target.n_classes:
        hint = ""
        if isinstance(loss, FunctionLoss) and loss.decision_rule == "softmax":
            hint = f" With {scores.shape[-1]} scores it needs a rule of its own (rule=, --rule)."
        raise LossContractError(
            f"the rule of {loss.name} must give labels in 0 ... {target.n_classes - 1}, got {int(answers.min())} ... "
            f"{int(answers.max())}.{hint}"
        )
    return reject


def _symmetric(trial: _Trial, taken: Tensor) -> bool:
    """Try a transposition and a cycle, which generate all renamings, and two more transpositions."""
    n_classes = trial.target.n_classes
    first = torch.arange(n_classes)
    swaps = [(0, 1), (0, n_classes - 1), (n_classes // 2, n_classes - 1)]
    renamings = [first.roll(1)]
    for a, b in swaps:
        swap = first.clone()
        swap[[a, b]] = swap[[b, a]]
        renamings.append(swap)
    for new_name in renamings:
        columns = torch.arange(trial.scores.shape[-1])
        columns[new_name] = first
        renamed = trial.scores[:, columns]
        expected = torch.where(taken == REJECT, taken, new_name[taken.clamp(min=0)])
        if not torch.equal(decide(trial.loss, renamed, trial.target), expected):
            return False
        moved, before = trial.scaled(renamed, new_name[trial.y]), trial.scaled(trial.scores, trial.y)
        if not bool(((moved - before).abs() <= (1e-9 + 100 * trial.scale.noise) * (1 + before.abs())).all()):
            return False
    return _symmetric_at_ties(trial)


def _symmetric_at_ties(trial: _Trial) -> bool:
    """Return whether classes with equal scores have equal losses; not so where a loss asks which score is largest."""
    n_classes = trial.target.n_classes
    rows = torch.arange(len(trial.scores))
    one, other = rows % n_classes, (rows + 1 + rows // n_classes % (n_classes - 1)) % n_classes
    tied = trial.scores.clone()
    top = tied[:, :n_classes].amax(-1) + torch.where(rows % 3 == 0, -0.5, 0.5)
    tied[rows, one] = tied[rows, other] = top
    first, second = trial.scaled(tied, one), trial.scaled(tied, other)
    room = (1e-9 + 100 * trial.scale.noise) * (1 + first.abs())
    return bool(((first - second).abs() <= room).all())


def _convex(trial: _Trial, generator: torch.Generator) -> bool:
    room = 1e-9 + 100 * trial.scale.noise
    for spread in (0.3, 1.0, 1.0, 3.0, 3.0, 10.0):
        noise = torch.randn(trial.scores.shape, generator=generator, dtype=torch.float64) * spread
        other = trial.scores + noise
        share = torch.rand(len(noise), generator=generator, dtype=torch.float64)
        middle = trial.scaled(trial.scores + share[:, None] * noise, trial.y)
        chord = (1 - share) * trial.scaled(trial.scores, trial.y) + share * trial.scaled(other, trial.y)
        if not bool((middle <= chord + room * (1 + chord.abs())).all()):  # NaN is not <= anything
            return False
    return True


def _stepped(trial: _Trial) -> bool:
    free = trial.scores.clone().requires_grad_()
    values = trial.loss.forward(free, trial.y, trial.target.cost)
    (gradient,) = torch.autograd.grad(values.sum(), free, materialize_grads=True)
    level = (gradient == 0).all(-1)
    return bool(level.double().mean() > 0.5) and len(set(values[level].detach().tolist())) > 1


def _is_chow_on_link(loss: Loss, scores: Tensor, cost: float) -> bool:
    expected = loss.inverse_link(scores).amax(-1) - (1 - cost)
    return bool(torch.allclose(loss.rule(scores, cost).acceptance, expected, rtol=1e-9, atol=1e-9))


def _never_answered(loss: Loss, target: Target, generator: torch.Generator) -> tuple[int, ...]:
    """Return the classes that no scores of many sizes and shapes are answered with."""
    decided = decide(loss, wide_scores(loss.n_outputs(target.n_classes), generator), target)
    missing = set(range(target.n_classes)) - set(decided.tolist())
    return tuple(sorted(missing))


def wide_scores(n_outputs: int, generator: torch.Generator, *, n_random: int = 200) -> Tensor:
    """Return scores of many sizes: random ones, single ones large or small, and pairs of large ones."""
    sizes = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 300.0, 3e4)
    parts = [torch.randn(n_random, n_outputs, generator=generator, dtype=torch.float64) * size for size in sizes]
    one = torch.eye(n_outputs, dtype=torch.float64)
    for size in (0.3, 1.0, 3.0, 10.0, 40.0, 300.0, 3e4):
        parts += [size * one, -size * one, size * (2 * one - 1), -size * (2 * one - 1)]
        if n_outputs <= 12:
            pairs = (one.unsqueeze(0) + one.unsqueeze(1)).reshape(-1, n_outputs)
            parts += [size * pairs, size * (one.unsqueeze(0) - one.unsqueeze(1)).reshape(-1, n_outputs)]
    return torch.cat(parts)
