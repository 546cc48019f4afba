"""What may be asked about: a registered name, a loss object, or a function of the user's own with its rule."""

from dataclasses import replace
from typing import TypeAlias

from demur.losses import FunctionLoss, Loss, get, resolve
from demur.losses.function_loss import LossFunction, RuleFunction, RuleName
from demur.losses.pairwise import NoClosedFormError, PairwiseLoss

__all__ = ["FunctionLoss", "LossLike", "RuleFunction", "RuleName", "as_loss"]

LossLike: TypeAlias = str | Loss | type[Loss] | LossFunction


def as_loss(loss: LossLike, n_classes: int, cost: float, *, rule: RuleName | RuleFunction | None = None) -> Loss:
    """Return the loss object for ``n_classes`` classes that a name, a class, a function or an object means.

    Parameters
    ----------
    loss : str, Loss, Loss class or callable
        A callable that is no loss is taken as :class:`FunctionLoss`.
    n_classes : int
    cost : float
        Used where the beta of a pairwise loss is the name of a side without closed form: it is then computed.
    rule : "softmax", "rejector" or callable, optional
        For a plain function only.

    Examples
    --------
    >>> as_loss("ce", 3, 0.2)
    CrossEntropy()
    >>> as_loss("bep", 3, 0.2).n_classes
    3
    """
    subject = resolve(get(loss) if isinstance(loss, str) else loss, rule=rule)
    return _with_number_for_beta(subject.for_classes(n_classes), n_classes, cost)


def _with_number_for_beta(loss: Loss, n_classes: int, cost: float) -> Loss:
    if not isinstance(loss, PairwiseLoss) or not isinstance(loss.beta, str):
        return loss
    try:
        loss.beta_value(n_classes, cost)
    except NoClosedFormError:
        from demur.theory.beta import beta_bounds

        acc, rej = beta_bounds(loss, n_classes, cost)
        return replace(loss, beta={"acc": acc, "rej": rej, "mean": (acc + rej) / 2}[loss.beta])
    return loss
