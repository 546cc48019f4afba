"""A plain function of (scores, y, cost) as a loss."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from demur.errors import InputError
from demur.lazy_torch import Tensor, torch
from demur.losses.loss import Hyper, Loss, reject_score_rule, rejector_rule
from demur.rules import Decision

__all__ = ["FunctionLoss", "LossFunction", "RuleFunction", "RuleName"]

LossFunction: TypeAlias = Callable[..., Tensor]
"""A function of (scores, y, cost), or of (scores, y) if the cost does not matter to it."""
RuleName: TypeAlias = Literal["softmax", "rejector", "reject-score"]
RuleFunction: TypeAlias = Callable[[Tensor, Any], Any]


@dataclass(frozen=True)
class FunctionLoss(Loss):
    """A plain function of (scores, y, cost), made a loss by the rule that decides with its scores.

    Parameters
    ----------
    function : callable
        From scores (n, n_outputs), labels (n,) and the cost to one loss per row, (n,), in differentiable torch
        operations. It may leave the cost out, as ``torch.nn.CrossEntropyLoss(reduction="none")`` does.
    decision_rule : "softmax", "rejector", "reject-score" or callable
        "softmax": one score per class, Chow's rule on their softmax. "rejector": one score per class and a last
        score r; answer the largest, accept iff r > 0 (then Theorem 4 applies). "reject-score": one score per class
        and a last one for declining; answer the largest class score, accept iff it is above the last. Or a function of
        (scores, cost) that returns a :class:`~demur.rules.Decision`, or a pair (label, reject).
    outputs : int, optional
        How many scores there are; by default one per class, and one more with "rejector" and "reject-score".
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
    takes_cost: ClassVar[bool]

    def __post_init__(self) -> None:
        if isinstance(self.decision_rule, str) and self.decision_rule not in get_args(RuleName):
            raise InputError(
                f"the decision rule must be 'softmax', 'rejector', 'reject-score' or a function of (scores, cost), "
                f"got {self.decision_rule!r}."
            )
        # Facts that a class of losses states once are, for a function, facts of this one object.
        object.__setattr__(self, "has_rejector", self.decision_rule == "rejector")
        object.__setattr__(self, "has_link", self.decision_rule == "softmax")
        object.__setattr__(self, "takes_cost", _accepts(self.function, 3) or not _accepts(self.function, 2))

    @property
    def name(self) -> str:
        return self.title or str(getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def smooth(self) -> bool:
        return self.differentiable

    def n_outputs(self, n_classes: int) -> int:
        return self.outputs or n_classes + (self.decision_rule in ("rejector", "reject-score"))

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper | None) -> Tensor:
        each = cost.expand(y.shape).reshape(-1) if isinstance(cost, Tensor) and scores.ndim != 2 else cost
        rows = scores.reshape(-1, scores.shape[-1]), y.reshape(-1)
        values = self.function(*rows, each) if self.takes_cost else self.function(*rows)
        return values.reshape(y.shape) if scores.ndim != 2 else values

    def inverse_link(self, scores: Tensor) -> Tensor:
        return torch.softmax(scores, -1) if self.has_link else super().inverse_link(scores)

    def rule(self, scores: Tensor, cost: Hyper) -> Decision[Tensor]:
        if self.decision_rule == "softmax":
            return super().rule(scores, cost)
        if self.decision_rule == "rejector":
            return rejector_rule(scores)
        if self.decision_rule == "reject-score":
            return reject_score_rule(scores)
        assert callable(self.decision_rule)
        decision = self.decision_rule(scores, cost)
        if isinstance(decision, Decision):
            return decision
        label, reject = decision
        certain = torch.where(torch.as_tensor(reject), -1.0, 1.0).to(torch.float64)
        return Decision.from_acceptance(label, certain)

    def _check_values(self, scores: Tensor) -> None:
        """Check nothing: how many scores a function takes cannot be told from one call."""


def _accepts(function: LossFunction, n_arguments: int) -> bool:
    """Return whether a function, or the forward method of a torch module, can be called with so many arguments."""
    try:
        inspect.signature(getattr(function, "forward", function)).bind(*range(n_arguments))
    except TypeError:
        return False
    except ValueError:  # a function written in C, which does not say
        return n_arguments == 3
    return True
