"""The loss to check: a registered name, a loss object or a function with its rule, and the properties found."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from demur.errors import InputError, InputTypeError
from demur.losses import FunctionLoss, Loss, resolve
from demur.losses.pairwise import NoClosedFormError
from demur.losses.registry import LossFunction, RuleFunction, RuleName
from demur.theory.bayes import REJECT, WRONG, LossContractError, Target, chow_target
from demur.theory.descent import ENDLESS, Deadline

ELEMENTS_AT_ONCE = 400_000
"""Maximum number of scores in one evaluation: about 100 MB with the graph of two derivatives."""

LossLike: TypeAlias = str | Loss | type[Loss] | LossFunction


def as_loss(
    loss: LossLike,
    n_classes: int,
    cost: float | None = None,
    *,
    rule: RuleName | RuleFunction | None = None,
    outputs: int | None = None,
) -> Loss:
    """Return the loss object for ``n_classes`` classes given by a name, a class, a function or an object.

    Parameters
    ----------
    loss : str, Loss, Loss class or callable
        A callable that is not a loss is taken as :class:`~demur.losses.FunctionLoss`.
    n_classes : int
    cost : float, optional
        Cost for the beta of a pairwise loss, if it is computed because there is no closed form.
    rule : "softmax", "rejector", "reject-score" or callable, optional
        For a plain function only.
    outputs : int, optional
        Number of scores of a plain function. With one score more than there are classes and no rule, the rule is
        "reject-score", because a softmax over all scores could answer a class that does not exist.

    Examples
    --------
    >>> as_loss("ce", 3)
    CrossEntropy()
    >>> as_loss("bep", 3).n_classes
    3
    >>> as_loss(lambda scores, y, cost: scores.square().sum(-1), 3, outputs=4).decision_rule
    'reject-score'
    """
    made = resolve(loss, rule=rule)
    if outputs is not None:
        if isinstance(outputs, bool) or not isinstance(outputs, int) or outputs < 1:
            raise InputError(f"outputs is the number of scores, a whole number from 1 on, got {outputs!r}.")
        if isinstance(made, FunctionLoss):
            made = replace(made, outputs=outputs)
        elif outputs != made.n_outputs(n_classes):
            raise InputTypeError(
                f"{made.name} takes {made.n_outputs(n_classes)} scores for {n_classes} classes; outputs can be given "
                "for a plain function only."
            )
    if isinstance(made, FunctionLoss) and made.decision_rule == "softmax" and made.outputs == n_classes + 1:
        made = replace(made, decision_rule="reject-score")
    made = made.for_classes(n_classes)
    if cost is None:
        return made
    try:
        made.hyper_values(n_classes, cost)
    except NoClosedFormError:
        from demur.theory.theorem_four import with_number_for_beta

        return with_number_for_beta(made, n_classes, cost)
    return made


@dataclass(frozen=True)
class Scale:
    """Offset and unit of the values of a loss, so that tolerances do not depend on how it is shifted and scaled.

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

    @classmethod
    def of(cls, loss: Loss, n_classes: int, cost: float | Tensor) -> "Scale":
        """Return the median and the spread of a loss at small scores, because an exponential loss grows fast."""
        generator = torch.Generator().manual_seed(0)
        n_points = max(64, 2 * n_classes)
        y = torch.arange(n_points) % n_classes
        for size in (0.3, 1.0, 3.0, 30.0):
            scores = size * torch.randn(n_points, loss.n_outputs(n_classes), generator=generator, dtype=torch.float64)
            with torch.no_grad():
                values = loss.forward(scores, y, cost)
            precision, plain = torch.finfo(values.dtype).eps, values.to(torch.float64)
            low, offset, high = plain.quantile(torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)).tolist()
            # The exponential of a score has no upper bound, so the values below the median determine the scale.
            below, spread = 2 * (offset - low), high - low
            unit = min(below, spread) if below > 1e-3 * spread or below > 100 * precision * abs(offset) else spread
            if unit > 100 * precision * abs(offset):
                return cls(offset, unit, noise=max(1e-15, precision * float(plain.abs().median()) / unit))
        return cls(offset, 1.0, noise=max(1e-15, precision * abs(offset)))


@dataclass(frozen=True)
class ExaminedLoss:
    """A loss with its rule, the target decisions, and the properties that random scores show.

    A property counts as true if it holds at all scores tried.

    Parameters
    ----------
    loss : Loss
    target : Target
    scale : Scale
    deadline : Deadline
        Time at which all computations return their results so far.
    seed : int
        Random seed of every search.
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
    linked : bool
        The rule takes the decision of least cost on the loss's own probabilities.
    never_answers : tuple of int
        Classes that the rule answered for no scores that were tried.
    stepped : bool
        Piecewise constant: different values, but zero gradients at most scores, so descent cannot find the minimum.
    """

    loss: Loss
    target: Target
    scale: Scale
    deadline: Deadline = ENDLESS
    seed: int = 0
    symmetric: bool = False
    convex: bool = True
    twice: bool = True
    answers_argmax: bool = False
    rejects_by_last_score: bool = False
    linked: bool = False
    never_answers: tuple[int, ...] = ()
    stepped: bool = False

    @classmethod
    def untried(cls, loss: Loss, n_classes: int, cost: float, *, symmetric: bool = False) -> "ExaminedLoss":
        """Return a loss that is taken to be convex and smooth, without trying it."""
        return cls(loss, chow_target(cost, n_classes), Scale.of(loss, n_classes, cost), symmetric=symmetric)

    def generator(self) -> torch.Generator:
        """Return a new random generator with the seed."""
        return torch.Generator().manual_seed(self.seed)

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
        """Least difference of two different risks, in units of the loss's scale."""
        return 1e-9 + 100 * self.scale.noise

    @property
    def outputs_assumed(self) -> bool:
        """Whether the number of scores of a plain function was not given."""
        return isinstance(self.loss, FunctionLoss) and self.loss.outputs is None

    def values(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each example, (m,), in units of its scale."""
        raw = self.loss.forward(scores, y, self.target.cost).to(torch.float64)
        return (raw - self.scale.offset) / self.scale.unit

    def risk(self, scores: Tensor, eta: Tensor) -> Tensor:
        """Return the pointwise risk of scores (m, n_outputs) at eta, (n_classes,) or (m, n_classes)."""
        return weigh(self.each_value(scores), eta)

    def each_value(self, scores: Tensor) -> Tensor:
        """Return the loss of scores (m, n_outputs) for each class, (m, n_classes); infinite where it is NaN."""
        if not len(scores):
            return scores.new_zeros(0, self.n_classes)
        classes = torch.arange(self.n_classes)
        with torch.no_grad():
            parts = [
                self.values(part.repeat_interleave(self.n_classes, 0), classes.repeat(len(part)))
                for part in torch.split(scores, max(1, 10 * ELEMENTS_AT_ONCE // (self.n_classes * self.n_outputs)))
            ]
        return torch.cat(parts).nan_to_num(nan=torch.inf, posinf=torch.inf).reshape(-1, self.n_classes)

    def decide(self, scores: Tensor) -> Tensor:
        """Return the rule's decisions on scores (m, n_outputs): a class, or -1 for rejecting."""
        with torch.no_grad():
            if self.target.single is None and self.loss.has_link:
                return self.target.least(self.loss.inverse_link(scores) @ self.target.matrix.to(scores.dtype))
            taken = self.loss.rule(scores, self.target.cost)
            return torch.where(taken.reject, REJECT, taken.label).long()

    def is_wrong(self, scores: Tensor, eta: Tensor) -> Tensor:
        """Return where the decision on scores (m, n_outputs) costs more than the best one."""
        return self.target.excess(self.decide(scores), eta) > WRONG


def weigh(each: Tensor, eta: Tensor) -> Tensor:
    """Return the risk at eta of one loss per class, (..., n_classes); a class of probability 0 does not count.

    Examples
    --------
    >>> weigh(torch.tensor([[1.0, 2.0, torch.inf]]), torch.tensor([0.5, 0.5, 0.0]))
    tensor([1.5000])
    """
    return torch.where(eta > 0, eta * each, torch.zeros_like(each)).sum(-1)


def examine(loss: Loss, target: Target, *, deadline: Deadline = ENDLESS, seed: int = 0) -> ExaminedLoss:
    """Check that a loss satisfies the interface, and determine its properties.

    Raises
    ------
    LossContractError
        If it raises, or returns the wrong shape, NaN, or values without a usable gradient.

    Examples
    --------
    >>> from demur.losses import get
    >>> from demur.theory.bayes import as_target
    >>> found = examine(get("mpc+log"), as_target(0.2, 3))
    >>> found.symmetric, found.convex, found.answers_argmax, found.rejects_by_last_score, found.linked
    (True, False, True, True, False)
    """
    generator = torch.Generator().manual_seed(0)
    n_classes, single = target.n_classes, target.single
    n_points = max(64, 2 * n_classes)
    n_outputs = loss.n_outputs(n_classes)
    if single is None and not loss.has_link and not isinstance(loss, FunctionLoss):
        raise LossContractError(
            f"{loss.name} is made for one price of rejecting and has no probabilities to decide with; give one cost, "
            "or a function with a rule for these costs."
        )
    spread = torch.where(torch.arange(n_points) % 2 == 0, 1.0, 3.0).to(torch.float64).unsqueeze(-1)
    scores = torch.randn(n_points, n_outputs, generator=generator, dtype=torch.float64) * spread
    y = torch.arange(n_points) % n_classes
    _refuse_values(loss, scores, y, target)
    subject = ExaminedLoss(loss, target, Scale.of(loss, n_classes, target.cost), deadline, seed)
    twice, stepped = _derivatives(subject, scores, y)
    if single is not None or not loss.has_link:
        _refuse_decisions(loss, scores, target)
    taken = subject.decide(scores)
    answered = taken != REJECT
    one_each = n_outputs >= n_classes
    wide = wide_scores(n_outputs, generator)
    return replace(
        subject,
        symmetric=one_each and single is not None and _symmetric(subject, scores, y, wide),
        convex=_convex(subject, scores, y, generator),
        twice=twice,
        answers_argmax=one_each
        and bool(answered.any())
        and torch.equal(taken[answered], scores[answered, :n_classes].argmax(-1)),
        rejects_by_last_score=torch.equal(~answered, scores[:, -1] <= 0),
        linked=loss.has_link and (single is None or _is_chow_on_link(loss, scores, single)),
        never_answers=tuple(sorted(set(range(n_classes)) - set(subject.decide(wide).tolist()))),
        stepped=stepped,
    )


def _refuse_values(loss: Loss, scores: Tensor, y: Tensor, target: Target) -> None:
    """Refuse a loss that raises, or does not return one finite float per row that is independent of the other rows."""
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
        elif isinstance(error, RuntimeError | ValueError):
            hint += (
                " It is called with scores first; y are class numbers: one_hot(y, scores.shape[-1]) makes them one-hot."
            )
        raise LossContractError(
            f"{loss.name} raised {type(error).__name__} on {shape}: {str(error).rstrip('.')}.{hint}"
        ) from error
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
    alone = loss.forward(scores[:5], y[:5], target.cost)
    if float((alone - values[:5]).abs().max()) > 1e3 * torch.finfo(values.dtype).eps * float(values.abs().max()):
        raise LossContractError(
            f"the loss of a row depends on the other rows: {loss.name} gives the same scores and label another value "
            "in a smaller batch. Calibration is a property of the loss at one input: it must not use statistics of "
            "the batch or random numbers."
        )


def _derivatives(subject: ExaminedLoss, scores: Tensor, y: Tensor) -> tuple[bool, bool]:
    """Refuse a loss without a gradient or with a wrong one; return if it has second derivatives, and if it is stepped.

    A loss with different values but zero gradients at most scores is piecewise constant.
    """
    name = subject.loss.name
    free = scores.clone().requires_grad_()
    values = subject.values(free, y)
    if not values.requires_grad:
        raise LossContractError(
            f"{name} is not differentiable: its values carry no gradient. Use torch operations only, without "
            "detach(), item() or NumPy in between."
        )
    try:
        (gradient,) = torch.autograd.grad(values.sum(), free, create_graph=True, materialize_grads=True)
    except RuntimeError as error:  # what torch raises, for example, after an operation in place
        raise LossContractError(f"{name} cannot be differentiated: {error}") from error
    slopes = gradient.detach()
    if not bool(slopes.isfinite().all()):
        raise LossContractError(f"the gradient of {name} is NaN or infinite at ordinary scores.")
    step = 1e-5 * torch.sign(torch.sin(7.0 * torch.arange(scores.numel(), dtype=torch.float64))).reshape(scores.shape)
    with torch.no_grad():
        rise = (subject.values(scores + step, y) - subject.values(scores - step, y)) / 2
    allowed = 1e-9 * (1 + slopes.abs().sum(-1)) + 10 * subject.scale.noise
    wrong = (rise - (slopes * step).sum(-1)).abs() > allowed
    if wrong.float().mean() > 0.1:  # a kink may be near a few points, not near one in ten
        raise LossContractError(
            f"the gradient of {name} disagrees with finite differences of its values: part of it is not "
            "differentiable (detach(), rounding, single precision, argmax) or is differentiated wrongly."
        )
    level = (slopes == 0).all(-1)
    stepped = bool(level.double().mean() > 0.5) and len(torch.unique(values[level])) > 1
    if not gradient.requires_grad:
        return True, stepped  # linear: the second derivative is zero
    try:
        (second,) = torch.autograd.grad(gradient.sum(), free, materialize_grads=True)
    except RuntimeError:
        return False, stepped
    return bool(second.isfinite().all()), stepped


def _refuse_decisions(loss: Loss, scores: Tensor, target: Target) -> None:
    """Refuse a rule that raises, or does not give a label and a boolean per row."""
    try:
        decision = loss.rule(scores, target.cost)
        label, reject = decision.label, decision.reject
    except Exception as error:  # a user's own loss may raise anything
        raise LossContractError(
            f"the rule of {loss.name} raised {type(error).__name__} on scores {tuple(scores.shape)}: {error}. A rule "
            "is a function of (scores, cost) that returns two tensors, the label of each row and if it is rejected."
        ) from error
    n_rows = (len(scores),)
    if not isinstance(label, Tensor) or label.shape != n_rows or label.is_floating_point():
        raise LossContractError(
            f"the rule of {loss.name} must give one integer label per row, a tensor of shape {n_rows}."
        )
    if not isinstance(reject, Tensor) or reject.shape != n_rows or reject.dtype != torch.bool:
        raise LossContractError(
            f"the rule of {loss.name} must give one boolean 'reject' per row, a tensor of shape {n_rows}."
        )
    answers = label[~reject]  # where it rejects, a rule over K + 1 scores may well give the number K
    if len(answers) and not 0 <= int(answers.min()) <= int(answers.max()) < target.n_classes:
        hint = ""
        if isinstance(loss, FunctionLoss) and loss.decision_rule == "softmax":
            hint = f" With {scores.shape[-1]} scores it needs a rule (rule=, --rule)."
        raise LossContractError(
            f"the rule of {loss.name} must give labels in 0 ... {target.n_classes - 1}, got {int(answers.min())} ... "
            f"{int(answers.max())}.{hint}"
        )


def _symmetric(subject: ExaminedLoss, scores: Tensor, y: Tensor, wide: Tensor) -> bool:
    """Try a cycle and a transposition of neighbours in it, which generate all renamings, and tied scores."""
    n_classes = subject.n_classes
    names = torch.arange(n_classes)
    swap = names.clone()
    swap[[0, -1]] = swap[[-1, 0]]
    before, tried = subject.values(scores, y), torch.cat([scores, _beside_threshold(subject, wide)])
    taken = subject.decide(tried)
    for new_name in (names.roll(1), swap):
        columns = torch.arange(scores.shape[-1])
        columns[new_name] = names
        expected = torch.where(taken == REJECT, taken, new_name[taken.clamp(min=0)])
        if not torch.equal(subject.decide(tried[:, columns]), expected):
            return False
        if not _agree(subject, subject.values(scores[:, columns], new_name[y]), before):
            return False
    # Classes with equal scores have equal losses; not so where a loss asks which score is largest.
    rows = torch.arange(len(scores))
    one, other = rows % n_classes, (rows + 1 + rows // n_classes % (n_classes - 1)) % n_classes
    tied = scores.clone()
    tied[rows, one] = tied[rows, other] = tied[:, :n_classes].amax(-1) + torch.where(rows % 3 == 0, -0.5, 0.5)
    return _agree(subject, subject.values(tied, other), subject.values(tied, one))


def _beside_threshold(subject: ExaminedLoss, wide: Tensor) -> Tensor:
    """Return scores on both sides of the threshold for every class that is answered."""
    taken = subject.decide(wide)
    answered = [wide[taken == k][0] for k in sorted({*taken.tolist()} - {REJECT})]
    rejected = wide[taken == REJECT][:1]
    if not (answered and len(rejected)):
        return rejected[:0]
    points = torch.stack(answered)
    edge = draw_towards(rejected, points, lambda scores: subject.decide(scores) != REJECT)
    step = 1e-6 * (rejected - points)
    return torch.cat([edge - step, edge + step])


def draw_towards(goal: Tensor, points: Tensor, inside: Callable[[Tensor], Tensor]) -> Tensor:
    """Move each point straight towards its goal as far as it stays inside, by bisection.

    Examples
    --------
    >>> draw_towards(torch.zeros(1, 1), torch.ones(1, 1), lambda x: x[:, 0] > 0.25).round(decimals=6)
    tensor([[0.2500]])
    """
    near = points.new_zeros(len(points), 1)
    far = torch.ones_like(near)
    for _ in range(40):
        middle = (near + far) / 2
        still = inside(points + middle * (goal - points)).unsqueeze(-1)
        near, far = torch.where(still, middle, near), torch.where(still, far, middle)
    return points + near * (goal - points)


def _agree(subject: ExaminedLoss, one: Tensor, other: Tensor) -> bool:
    return bool(((one - other).abs() <= subject.tolerance * (1 + other.abs())).all())


def _convex(subject: ExaminedLoss, scores: Tensor, y: Tensor, generator: torch.Generator) -> bool:
    here = subject.values(scores, y)
    for spread in (0.3, 1.0, 1.0, 3.0, 3.0, 10.0):
        noise = torch.randn(scores.shape, generator=generator, dtype=torch.float64) * spread
        share = torch.rand(len(noise), generator=generator, dtype=torch.float64)
        middle = subject.values(scores + share[:, None] * noise, y)
        chord = (1 - share) * here + share * subject.values(scores + noise, y)
        if not bool((middle <= chord + subject.tolerance * (1 + chord.abs())).all()):  # NaN is not <= anything
            return False
    return True


def _is_chow_on_link(loss: Loss, scores: Tensor, cost: float) -> bool:
    expected = loss.inverse_link(scores).amax(-1) - (1 - cost)
    return bool(torch.allclose(loss.rule(scores, cost).acceptance, expected, rtol=1e-9, atol=1e-9))


def wide_scores(n_outputs: int, generator: torch.Generator) -> Tensor:
    """Return scores of many sizes: random ones, single ones large or small, and pairs of large ones."""
    sizes = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 300.0, 3e4)
    one = torch.eye(n_outputs, dtype=torch.float64)
    shapes = [one, -one, 2 * one - 1, 1 - 2 * one]
    if n_outputs <= 12:
        shapes += [(one.unsqueeze(0) + sign * one.unsqueeze(1)).reshape(-1, n_outputs) for sign in (1, -1)]
    draws = [torch.randn(200, n_outputs, generator=generator, dtype=torch.float64) for _ in sizes]
    return torch.cat([size * torch.cat([draw, *shapes]) for size, draw in zip(sizes, draws, strict=True)])
