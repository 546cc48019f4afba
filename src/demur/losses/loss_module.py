"""A loss as a torch module with a reduction, for custom training loops."""

import torch
from torch import Tensor, nn

from demur.errors import InputError
from demur.losses.confidence import CrossEntropy
from demur.losses.loss import Hyper, Loss, at_least_single, full_precision, score_of_label
from demur.losses.reshaped import LabelSmoothing


class LossModule(nn.Module):
    """A loss with the arguments of ``torch.nn.CrossEntropyLoss``: see :func:`demur.losses.as_module`."""

    cost: Hyper | None
    class_weight: Tensor | None

    def __init__(
        self,
        loss: Loss,
        cost: Hyper | None,
        reduction: str,
        ignore_index: int,
        label_smoothing: float,
        class_weight: object,
        class_dim: int,
    ) -> None:
        super().__init__()
        if loss.trained_for_cost or cost is not None:
            loss.check_cost(cost)
        if reduction not in ("mean", "sum", "none"):
            raise InputError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}.")
        if not 0 <= label_smoothing < 1:
            raise InputError(f"label_smoothing must be in [0, 1), got {label_smoothing!r}.")
        smoothed = label_smoothing > 0 and isinstance(loss, CrossEntropy)
        self.loss = LabelSmoothing(label_smoothing) if smoothed else loss
        self._trained = loss
        self.reduction, self.ignore_index, self.class_dim = reduction, ignore_index, class_dim
        self.label_smoothing = label_smoothing
        if isinstance(cost, Tensor):  # tensors are buffers, which module.to(device) takes along
            self.register_buffer("cost", cost)
        else:
            self.cost = cost
        weight = None if class_weight is None else torch.as_tensor(class_weight, dtype=torch.float32)
        self.register_buffer("class_weight", weight)

    def forward(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the reduced loss; only types and shapes are checked, to avoid waiting for a GPU."""
        scores = self._classes_last(scores)
        is_soft = y.is_floating_point()
        target = self._classes_last(y) if is_soft else y.long()
        if target.shape[: scores.ndim - 1] != scores.shape[:-1] or target.ndim != scores.ndim - (not is_soft):
            raise InputError(
                f"labels of shape {tuple(y.shape)} do not fit scores that are {tuple(scores.shape[:-1])} beside the "
                f"axis {self.class_dim} of the classes; set class_dim to that axis, and give one-hot labels as floats."
            )
        classes = target if is_soft else self.class_weight
        if classes is not None and (needed := self._trained.n_outputs(classes.shape[-1])) != scores.shape[-1]:
            raise InputError(
                f"{'soft labels' if is_soft else 'class_weight'} of {classes.shape[-1]} classes need {needed} scores "
                f"with {self._trained.name}, got {scores.shape[-1]}."
            )
        with full_precision(scores):
            scores, target = at_least_single(scores), at_least_single(target)
            cost = self.cost.to(scores.dtype) if isinstance(self.cost, Tensor) else self.cost
            by_class = None if self.class_weight is None else self.class_weight.to(scores.dtype)
            if type(self._trained) is CrossEntropy:  # torch's own launches fewer kernels
                place = min(1, scores.ndim - 1)  # where torch has the classes
                return nn.functional.cross_entropy(
                    scores.movedim(-1, place),
                    target.movedim(-1, place) if is_soft else target,
                    weight=by_class,
                    ignore_index=-100 if is_soft else self.ignore_index,
                    reduction=self.reduction,
                    label_smoothing=self.label_smoothing,
                )
            values, weight = self._each(scores, target, cost, by_class)
            if self.reduction == "none":
                return values
            return values.sum() if self.reduction == "sum" else values.sum() / weight

    def _classes_last(self, values: Tensor) -> Tensor:
        return values.movedim(self.class_dim, -1) if values.ndim > 1 else values

    def _each(
        self, scores: Tensor, target: Tensor, cost: Hyper | None, by_class: Tensor | None
    ) -> tuple[Tensor, Tensor | int]:
        """Return the loss of each example, and the weight that a mean is divided by."""

        def expected(soft: Tensor) -> Tensor:
            smooth = (1 - self.label_smoothing) * soft + self.label_smoothing / soft.shape[-1]
            return self._trained.expected(scores, smooth if by_class is None else smooth * by_class, cost)

        if target.is_floating_point():
            return expected(target), scores[..., 0].numel()
        known = target != self.ignore_index
        labels = torch.where(known, target, 0)
        weight = known.to(scores.dtype)
        if by_class is not None:  # by gather, because vmap cannot index with a single label
            weight = weight * score_of_label(by_class.expand(*labels.shape, -1), labels)
        if self.label_smoothing:
            n_classes = self._trained._n_classes(scores.shape[-1]) if by_class is None else len(by_class)
            hard = labels.unsqueeze(-1) == torch.arange(n_classes, device=labels.device)
            values = expected(hard.to(scores.dtype))
        else:
            values = self._trained.forward(scores, labels, cost) * weight
        return torch.where(known, values, 0.0), weight.sum()
