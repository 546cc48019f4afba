"""What is checked: a registered name, a loss object or a function with its rule, and what trying it shows about it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from demur.errors import InputError, InputTypeError
from demur.losses import Hyper, Loss, get
from demur.losses.pairwise import NoClosedFormError, PairwiseLoss
from demur.rules import Decision, chow_acceptance
from demur.theory.bayes import REJECT, LossContractError, Target

__all__ = [
    "Facts",
    "FunctionLoss",
    "LossLike",
    "RuleFunction",
    "RuleName",
    "Scale",
    "Subject",
    "as_loss",
    "decide",
    "examine",
    "scale_of",
    "wide_scores",
]

LossFunction: TypeAlias = Callable[[Tensor, Tensor, Any], Tensor]
RuleName: TypeAlias = Literal["softmax", "rejector"]
RuleFunction: TypeAlias = Callable[[Tensor, Any], Any]
LossLike: TypeAlias = str | Loss | type[Loss] | LossFunction


@dataclass(frozen=True)
class FunctionLoss(Loss):
    """A plain function of (scores, y, cost), made a loss by the rule that decides with its scores.

    Parameters
    ----------
    function : callable
        From scores (n, n_outputs), labels (n,) and the cost to one loss per row, (n,), in differentiable torch
        operations.
    decision_rule : "softmax", "rejector" or callable
        "softmax": one score per class, the decision of least cost on their softmax. "rejector": one score per class
        and a last score r; answer the largest, accept iff r > 0 (then Theorem 4 applies). Or a function of
        (scores, cost) that returns a :class:`~demur.rules.Decision`, or a pair (label, reject).
    outputs : int, optional
        How many scores there are; by default one per class, and one more with "rejector".
    title : str, optional
        The name to print; the function's own by default.
    differentiable : bool
        False for a function with kinks, which Newton's method alone cannot minimise.

    Examples
    --------
    >>> def brier(scores, y, cost):
    ...     target = torch.nn.functional.one_hot(y, scores.shape[-1])
    ...     return (torch.softmax(scores, -1) - target).square().sum(-1)
    >>> loss = FunctionLoss(brier)
    >>> loss(torch.zeros(1, 4), torch.tensor([2]), cost=0.2)  # (3/4)^2 + 3 (1/4)^2
    tensor([0.7500])
    >>> loss.decide(torch.tensor([[0.0, 5.0, 0.0, 0.0]]), cost=0.2).label
    tensor([1])
    """

    function: LossFunction
    decision_rule: RuleName | RuleFunction = "softmax"
    outputs: int | None = None
    title: str | None = None
    differentiable: bool = True

    family: ClassVar[Any] = "confidence"
    equation = "the user's own"
    why = "nothing is claimed: check_calibration finds out"
    trained_for_cost = True

    def __post_init__(self) -> None:
        if isinstance(self.decision_rule, str) and self.decision_rule not in get_args(RuleName):
            raise InputError(
                f"the decision rule must be 'softmax', 'rejector' or a function of (scores, cost), got "
                f"{self.decision_rule!r}."
            )
        if self.outputs is not None and (not isinstance(self.outputs, int) or self.outputs < 1):
            raise InputError(f"outputs is the number of scores, a whole number from 1 on, got {self.outputs!r}.")
        # Facts that a class of losses states once are, for a function, facts of this one object.
        object.__setattr__(self, "smooth", self.differentiable)
        object.__setattr__(self, "has_rejector", self.decision_rule == "rejector")
        object.__setattr__(self, "has_link", self.decision_rule == "softmax")

    @property
    def name(self) -> str:
        return self.title or str(getattr(self.function, "__name__", type(self.function).__name__))

    def n_outputs(self, n_classes: int) -> int:
        return self.outputs or n_classes + (self.decision_rule == "rejector")

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper | None) -> Tensor:
        if scores.ndim == 2:
            return self.function(scores, y, cost)
        each = cost.expand(y.shape).reshape(-1) if isinstance(cost, Tensor) else cost
        return self.function(scores.reshape(-1, scores.shape[-1]), y.reshape(-1), each).reshape(y.shape)

    def inverse_link(self, scores: Tensor) -> Tensor:
        return torch.softmax(scores, -1) if self.has_link else super().inverse_link(scores)

    def rule(self, scores: Tensor, cost: Hyper) -> Decision[Tensor]:
        if self.decision_rule == "softmax":
            top = torch.softmax(scores, -1).amax(-1)
            return Decision.from_acceptance(scores.argmax(-1), chow_acceptance(top, cost), top)
        if self.decision_rule == "rejector":
            return Decision.from_acceptance(scores[..., :-1].argmax(-1), scores[..., -1])
        assert callable(self.decision_rule)
        decision = self.decision_rule(scores, cost)
        if isinstance(decision, Decision):
            return decision
        label, reject = decision
        certain = torch.where(torch.as_tensor(reject), -1.0, 1.0).to(torch.float64)
        return Decision.from_acceptance(label, certain)

    def _check_scores(self, scores: Tensor) -> None:
        """Check nothing: how many scores a function takes cannot be told from one call."""

    def _check_labels(self, scores: Tensor, y: Tensor) -> None:
        """Check nothing, for the same reason."""


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
        A callable that is not a loss is taken as :class:`FunctionLoss`.
    n_classes : int
    cost : float, optional
        Used where the beta of a pairwise loss is the name of a side without closed form: it is then computed.
    rule : "softmax", "rejector" or callable, optional
        For a plain function only.
    outputs : int, optional
        How many scores a plain function takes.

    Examples
    --------
    >>> as_loss("ce", 3)
    CrossEntropy()
    >>> as_loss("bep", 3).n_classes
    3
    """
    subject: Any = get(loss) if isinstance(loss, str) else loss
    if isinstance(subject, type) and issubclass(subject, Loss):
        subject = subject()
    if not isinstance(subject, Loss):
        if not callable(subject):
            raise InputTypeError(
                f"a loss is a registered name, a Loss, or a function of (scores, y, cost), got {type(loss).__name__}."
            )
        subject = FunctionLoss(subject, rule or "softmax", outputs)
    elif rule is not None:
        raise InputTypeError(
            f"{subject.name} brings its own decision rule; a rule can be given for a plain function only."
        )
    elif outputs is not None and outputs != subject.n_outputs(n_classes):
        if not isinstance(subject, FunctionLoss):
            raise InputTypeError(
                f"{subject.name} says itself that it takes {subject.n_outputs(n_classes)} scores for {n_classes} "
                "classes; outputs can be given for a plain function only."
            )
        subject = replace(subject, outputs=outputs)
    return _with_number_for_beta(subject.for_classes(n_classes), n_classes, cost)


def _with_number_for_beta(loss: Loss, n_classes: int, cost: float | None) -> Loss:
    if cost is None or not isinstance(loss, PairwiseLoss) or not isinstance(loss.beta, str):
        return loss
    try:
        loss.beta_value(n_classes, cost)
    except NoClosedFormError:
        from demur.theory.theorem_four import beta_bounds

        acc, rej = beta_bounds(loss, n_classes, cost)
        return replace(loss, beta={"acc": acc, "rej": rej, "mean": (acc + rej) / 2}[loss.beta])
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
    """

    symmetric: bool
    convex: bool
    twice: bool
    answers_argmax: bool
    rejects_by_last_score: bool
    chow_on_link: bool
    never_answers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Subject:
    """A loss with its rule and the target they are held to, and what is known about them.

    Parameters
    ----------
    loss : Loss
    target : Target
    facts : Facts
    scale : Scale
    """

    loss: Loss
    target: Target
    facts: Facts
    scale: Scale

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
        """Return the pointwise risk of scores (m, n_outputs) at eta (n_classes,) or (m, n_classes), without gradient."""
        n_rows, n_classes = len(scores), self.n_classes
        with torch.no_grad():
            y = torch.arange(n_classes).repeat(n_rows)
            each = self.values(scores.repeat_interleave(n_classes, 0), y).reshape(n_rows, n_classes)
            weighted = torch.where(eta > 0, eta * each, torch.zeros_like(each))
        return weighted.sum(-1)

    def decide(self, scores: Tensor) -> Tensor:
        """Return what the rule does with scores (m, n_outputs): a class, or -1 for rejecting."""
        with torch.no_grad():
            return decide(self.loss, scores, self.target)


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


def examine(loss: Loss, target: Target, *, seed: int = 0) -> Subject:
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
    spread = torch.where(torch.arange(n_points) % 2 == 0, 1.0, 3.0).to(torch.float64).unsqueeze(-1)
    scores = torch.randn(n_points, n_outputs, generator=generator, dtype=torch.float64) * spread
    y = torch.arange(n_points) % n_classes
    values = _values(loss, scores, y, target)
    scale = _scale(values)
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
    )
    return Subject(loss, target, facts, scale)


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
        raise LossContractError(f"{loss.name} raised {type(error).__name__} on {shape}: {error}{hint}") from error
    if not isinstance(values, Tensor):
        raise LossContractError(f"{loss.name} must return a tensor, got {type(values).__name__}.")
    if values.shape != y.shape:
        raise LossContractError(
            f"{loss.name} must return one loss per row, shape {tuple(y.shape)}, for {shape}; got "
            f"{tuple(values.shape)}. Do not reduce over the rows.{hint}"
        )
    if not values.is_floating_point():
        raise LossContractError(f"{loss.name} must return floats, got {values.dtype}.")
    if not bool(values.isfinite().all()):
        raise LossContractError(f"{loss.name} returned NaN or infinity at ordinary scores.")
    return values


def _scale(values: Tensor) -> Scale:
    """Return the median and the typical distance from it, so that a loss times 1e9 or plus 1000 is the same loss."""
    plain = values.detach().to(torch.float64)
    offset = float(plain.median())
    distance = (plain - offset).abs()
    spread = float(plain.quantile(0.9) - plain.quantile(0.1))
    unit = max(float(distance.median()), 0.1 * spread) or float(distance.mean()) or 1.0
    precision = torch.finfo(values.dtype).eps
    return Scale(offset, unit, noise=max(1e-15, precision * float(plain.abs().median()) / unit))


def scale_of(loss: Loss, n_classes: int, cost: float | Tensor) -> Scale:
    """Return the scale of a loss, from its values at random scores."""
    generator = torch.Generator().manual_seed(0)
    scores = 2 * torch.randn(
        max(64, 2 * n_classes), loss.n_outputs(n_classes), generator=generator, dtype=torch.float64
    )
    with torch.no_grad():
        return _scale(loss.forward(scores, torch.arange(len(scores)) % n_classes, cost))


def _check_derivative(loss: Loss, scores: Tensor, y: Tensor, target: Target, scale: Scale) -> bool:
    """Refuse values without a gradient or with a wrong one; return whether there is a second derivative."""
    free = scores.clone().requires_grad_()
    values = _values(loss, free, y, target)
    if not values.requires_grad:
        raise LossContractError(
            f"{loss.name} is not differentiable: its values carry no gradient. Keep to torch operations, without "
            "detach(), item() or NumPy in between."
        )
    (gradient,) = torch.autograd.grad(values.sum(), free, create_graph=True, materialize_grads=True)
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
        raise LossContractError(
            f"the rule of {loss.name} must give labels in 0 ... {target.n_classes - 1}, got {int(answers.min())} ... "
            f"{int(answers.max())}."
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
        if bool(((moved - before).abs() > (1e-9 + 100 * trial.scale.noise) * (1 + before.abs())).any()):
            return False
    return True


def _convex(trial: _Trial, generator: torch.Generator) -> bool:
    room = 1e-9 + 100 * trial.scale.noise
    for spread in (0.3, 1.0, 1.0, 3.0, 3.0, 10.0):
        noise = torch.randn(trial.scores.shape, generator=generator, dtype=torch.float64) * spread
        other = trial.scores + noise
        share = torch.rand(len(noise), generator=generator, dtype=torch.float64)
        middle = trial.scaled(trial.scores + share[:, None] * noise, trial.y)
        chord = (1 - share) * trial.scaled(trial.scores, trial.y) + share * trial.scaled(other, trial.y)
        if bool((middle > chord + room * (1 + chord.abs())).any()):
            return False
    return True


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
    sizes = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 300.0)
    parts = [torch.randn(n_random, n_outputs, generator=generator, dtype=torch.float64) * size for size in sizes]
    one = torch.eye(n_outputs, dtype=torch.float64)
    for size in (0.3, 1.0, 3.0, 10.0, 40.0, 300.0):
        parts += [size * one, -size * one, size * (2 * one - 1), -size * (2 * one - 1)]
        if n_outputs <= 12:
            pairs = (one.unsqueeze(0) + one.unsqueeze(1)).reshape(-1, n_outputs)
            parts += [size * pairs, size * (one.unsqueeze(0) - one.unsqueeze(1)).reshape(-1, n_outputs)]
    return torch.cat(parts)
