"""What a loss is, found out by trying it: whether it keeps its contract, is convex, treats the classes alike."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from demur.losses import Loss
from demur.rules import Decision
from demur.theory.errors import LossContractError

__all__ = ["Facts", "examine"]


@dataclass(frozen=True)
class Facts:
    """What random scores say about a loss; a property that fails nowhere among them is taken to hold.

    Parameters
    ----------
    symmetric : bool
        Renaming the classes renames the scores and changes nothing else.
    convex : bool
        Convex in the scores, for every label.
    answers_argmax : bool
        The answer is the class with the largest score.
    rejects_by_last_score : bool
        An example is rejected iff the last score is not positive.
    chow_on_link : bool
        The rule is Chow's, on the loss's own inverse link.
    """

    symmetric: bool
    convex: bool
    answers_argmax: bool
    rejects_by_last_score: bool
    chow_on_link: bool


def examine(loss: Loss, n_classes: int, cost: float, *, seed: int = 0) -> Facts:
    """Check that a loss keeps its contract and find its facts.

    Raises
    ------
    LossContractError
        If it raises, or returns the wrong shape, NaN, or values without a usable gradient.

    Examples
    --------
    >>> from demur.losses import get
    >>> examine(get("mpc+log"), 3, 0.2)
    Facts(symmetric=True, convex=False, answers_argmax=True, rejects_by_last_score=True, chow_on_link=False)
    """
    generator = torch.Generator().manual_seed(seed)
    n_points = max(64, 2 * n_classes)
    n_outputs = loss.n_outputs(n_classes)
    if not isinstance(n_outputs, int) or n_outputs < 1:
        raise LossContractError(f"{loss.name} must need at least one score, n_outputs({n_classes}) is {n_outputs!r}.")
    scale = torch.where(torch.arange(n_points) % 2 == 0, 1.0, 3.0).to(torch.float64).unsqueeze(-1)
    scores = torch.randn(n_points, n_outputs, generator=generator, dtype=torch.float64) * scale
    y = torch.arange(n_points) % n_classes
    values = _values(loss, scores, y, cost)
    _check_derivative(loss, scores, y, cost)
    decision = _decision(loss, scores, cost, n_classes)
    one_each = n_outputs >= n_classes
    return Facts(
        symmetric=one_each and _symmetric(loss, scores, y, cost, n_classes, values, decision),
        convex=_convex(loss, scores, y, cost, values),
        answers_argmax=one_each and bool((decision.label == scores[:, :n_classes].argmax(-1)).all()),
        rejects_by_last_score=bool((decision.reject == (scores[:, -1] <= 0)).all()),
        chow_on_link=loss.has_link and _close(decision.acceptance, loss.inverse_link(scores).amax(-1) - (1 - cost)),
    )


def _values(loss: Loss, scores: Tensor, y: Tensor, cost: float) -> Tensor:
    shape = f"scores {tuple(scores.shape)} and y {tuple(y.shape)}"
    try:
        values: Any = loss.forward(scores, y, cost)
    except Exception as error:  # a user's own loss may raise anything
        raise LossContractError(f"{loss.name} raised {type(error).__name__} on {shape}: {error}") from error
    if not isinstance(values, Tensor):
        raise LossContractError(f"{loss.name} must return a tensor, got {type(values).__name__}.")
    if values.shape != y.shape:
        raise LossContractError(
            f"{loss.name} must return one loss per row, shape {tuple(y.shape)}, for {shape}; got "
            f"{tuple(values.shape)}. Do not reduce over the rows."
        )
    if not values.is_floating_point():
        raise LossContractError(f"{loss.name} must return floats, got {values.dtype}.")
    if not bool(values.isfinite().all()):
        raise LossContractError(f"{loss.name} returned NaN or infinity at ordinary scores.")
    return values


def _check_derivative(loss: Loss, scores: Tensor, y: Tensor, cost: float) -> None:
    free = scores.clone().requires_grad_()
    values = _values(loss, free, y, cost)
    if not values.requires_grad:
        raise LossContractError(
            f"{loss.name} is not differentiable: its values carry no gradient. Keep to torch operations, without "
            "detach(), item() or NumPy in between."
        )
    (gradient,) = torch.autograd.grad(values.sum(), free, create_graph=loss.smooth, materialize_grads=True)
    if not bool(gradient.isfinite().all()):
        raise LossContractError(f"the gradient of {loss.name} is NaN or infinite at ordinary scores.")
    step = 1e-6 * torch.sign(torch.sin(7.0 * torch.arange(scores.numel(), dtype=torch.float64))).reshape(scores.shape)
    rise = (_values(loss, scores + step, y, cost) - _values(loss, scores - step, y, cost)) / 2
    slope = (gradient.detach() * step).sum(-1)
    wrong = (rise - slope).abs() > 1e-4 * step.abs().amax() * (1 + gradient.detach().abs().sum(-1))
    if wrong.float().mean() > 0.1:  # a kink may be near a few points, not near one in ten
        raise LossContractError(
            f"the gradient of {loss.name} disagrees with finite differences of its values: part of it is not "
            "differentiable (detach(), rounding, argmax) or is differentiated wrongly."
        )
    if loss.smooth and gradient.requires_grad:
        try:
            torch.autograd.grad(gradient.sum(), free, materialize_grads=True)
        except RuntimeError as error:
            raise LossContractError(f"{loss.name} has no second derivative in torch: {error}") from error


def _decision(loss: Loss, scores: Tensor, cost: float, n_classes: int) -> Decision[Tensor]:
    try:
        decision = loss.rule(scores, cost)
        label, reject = decision.label, decision.reject
    except Exception as error:  # a user's own loss may raise anything
        raise LossContractError(
            f"the rule of {loss.name} raised {type(error).__name__} on scores {tuple(scores.shape)}: {error}"
        ) from error
    n_rows = (len(scores),)
    if not isinstance(label, Tensor) or label.shape != n_rows or label.is_floating_point():
        raise LossContractError(f"the rule of {loss.name} must give one integer label per row, shape {n_rows}.")
    if not 0 <= int(label.min()) <= int(label.max()) < n_classes:
        raise LossContractError(
            f"the rule of {loss.name} must give labels in 0 ... {n_classes - 1}, got {int(label.min())} ... "
            f"{int(label.max())}."
        )
    if not isinstance(reject, Tensor) or reject.shape != n_rows or reject.dtype != torch.bool:
        raise LossContractError(f"the rule of {loss.name} must give one boolean 'reject' per row, shape {n_rows}.")
    return decision


def _symmetric(
    loss: Loss, scores: Tensor, y: Tensor, cost: float, n_classes: int, values: Tensor, decision: Decision[Tensor]
) -> bool:
    for shift in range(1, min(n_classes, 4)):
        new_name = (torch.arange(n_classes) * (-1) ** shift + shift) % n_classes
        columns = torch.arange(scores.shape[-1])
        columns[new_name] = torch.arange(n_classes)
        renamed = scores[:, columns]
        moved = loss.rule(renamed, cost)
        same = (moved.label == new_name[decision.label]) | decision.reject
        if not (
            _close(_values(loss, renamed, new_name[y], cost), values)
            and bool(same.all())
            and bool((moved.reject == decision.reject).all())
        ):
            return False
    return True


def _convex(loss: Loss, scores: Tensor, y: Tensor, cost: float, values: Tensor) -> bool:
    for shift in (2, 6, 14):
        other = scores.roll(shift * 3 + 1, 0)
        middle = _values(loss, (scores + other) / 2, y, cost)
        chord = (values + _values(loss, other, y, cost)) / 2
        if bool((middle > chord + 1e-9 * (1 + chord.abs())).any()):
            return False
    return True


def _close(a: Tensor, b: Tensor) -> bool:
    return bool(torch.allclose(a.to(torch.float64), b.to(torch.float64), rtol=1e-9, atol=1e-9))
