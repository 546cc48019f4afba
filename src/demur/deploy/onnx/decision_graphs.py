"""From probabilities to decisions, as functions of tensors that torch translates: calibrators, label shift, rules."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from demur.array_types import Estimator
from demur.calibration import OneVsRestCalibration, TemperatureScaling
from demur.deploy.onnx.onnx_graph import ExportError
from demur.label_shift import LabelShift
from demur.rules import Chow, CostMatrix, ThresholdRule

__all__ = ["RuleForm", "at_temperature", "calibrated", "rule_form", "shifted"]

_SMALLEST = 1e-12
"""As in :mod:`demur.calibration`."""


def at_temperature(p: Tensor, temperature: float) -> Tensor:
    """Return probabilities at a temperature."""
    return torch.softmax(torch.log(p.clamp_min(_SMALLEST)) / temperature, 1)


def calibrated(p: Tensor, calibrator: Any) -> Tensor:
    """Return the calibrated probabilities; unchanged if the calibrator is None."""
    if calibrator is None:
        return p
    if type(calibrator) is TemperatureScaling:
        return at_temperature(p, calibrator.temperature_)
    if type(calibrator) is not OneVsRestCalibration:
        raise _no_calibration(calibrator)
    values = torch.stack([_curve(p[:, k], model) for k, model in enumerate(calibrator.models_)], 1).clamp(0.0, 1.0)
    total = values.sum(1, keepdim=True)
    return torch.where(total > 0, values / torch.where(total > 0, total, 1.0), p)


def _curve(p: Tensor, model: Estimator) -> Tensor:
    if isinstance(model, float):  # the class was everywhere or nowhere among the calibration rows
        return p * 0 + model
    if type(model) is IsotonicRegression and model.out_of_bounds == "clip":
        x, y = (torch.as_tensor(one, dtype=torch.float64) for one in (model.X_thresholds_, model.y_thresholds_))
        inside = p.clamp(float(x[0]), float(x[-1]))
        place = (inside[:, None] >= x).to(torch.int64).sum(1) - 1
        slopes = torch.cat([torch.diff(y) / torch.diff(x), torch.zeros(1, dtype=x.dtype)])
        return y[place] + slopes[place] * (inside - x[place])
    if type(model) is LogisticRegression:
        inside = p.clamp(_SMALLEST, 1 - _SMALLEST)
        return torch.sigmoid(torch.log(inside / (1 - inside)) * float(model.coef_[0, 0]) + float(model.intercept_[0]))
    raise _no_calibration(model)


def _no_calibration(given: object) -> ExportError:
    return ExportError(
        f"calibration by {type(given).__name__} is not supported; use 'temperature', 'isotonic' or 'sigmoid'."
    )


def shifted(p: Tensor, shift: LabelShift | None) -> Tensor:
    """Return the probabilities under the new class frequencies, if they have changed."""
    if shift is None:
        return p
    old, new = (np.asarray(prior) / np.sum(prior) for prior in (shift.train_prior, shift.new_prior_))
    weighted = p.clamp_min(0.0) * torch.as_tensor(new / old)
    return weighted / weighted.sum(1, keepdim=True)


@dataclass(frozen=True)
class RuleForm:
    """A rule to export.

    Parameters
    ----------
    words : str
        How the rule decides.
    cost : float or None
        The cost of one rejection, which is an input of the graph; None for rules without one.
    decide : callable
        Returns label, confidence and acceptance from probabilities, and from the cost if there is one.
    """

    words: str
    cost: float | None
    decide: Callable[..., tuple[Tensor, Tensor, Tensor]]


def rule_form(rule: Any, cost: float) -> RuleForm:
    """Return the form of a rule; None is Chow's at ``cost``."""
    if rule is None or type(rule) is Chow:
        price = _one_for_all(cost if rule is None else rule.cost, 0)
        return RuleForm("Answers where the confidence exceeds 1 - cost (Chow's rule).", float(price), _chow)
    if type(rule) is CostMatrix:
        costs = torch.as_tensor(_one_for_all(rule.costs, 2))
        return RuleForm(rule.explain(), None, lambda p: _cheapest(p, costs))
    if isinstance(rule, ThresholdRule) and type(rule)._decide is ThresholdRule._decide:  # also one of the user's own
        threshold = float(_one_for_all(rule.threshold_, 0))
        return RuleForm(rule.explain(), None, lambda p: (p.argmax(1), p.amax(1), p.amax(1) - threshold))
    raise ExportError(
        f"the rule {type(rule).__name__} is not one of demur's own; use Chow, Threshold, CostMatrix, Coverage or "
        "RiskControl, or derive it from ThresholdRule."
    )


def _one_for_all(value: Any, n_axes: int) -> Any:
    if np.ndim(value) != n_axes:
        raise ExportError(f"the rule has values of shape {np.shape(value)}, one per row; give one for all rows.")
    return np.asarray(value, dtype=np.float64)


def _chow(p: Tensor, cost: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    confidence = p.amax(1)
    return p.argmax(1), confidence, confidence - (1 - cost)


def _cheapest(p: Tensor, costs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # not p @ costs, into which onnxruntime would move a factor of p, rounded to single precision
    expected = torch.addmm(torch.zeros(costs.shape[1], dtype=p.dtype), p, costs)
    saved = expected[:, -1] - expected[:, :-1].amin(1)
    return expected[:, :-1].argmin(1), saved, saved
