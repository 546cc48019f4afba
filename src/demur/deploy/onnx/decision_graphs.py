"""From probabilities to decisions, as functions of tensors that torch translates: calibrators, rules, experts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from demur.array_types import Estimator
from demur.calibration import OneVsRestCalibration, TemperatureScaling
from demur.deferral import DeferOption
from demur.deferral.expert_reliability import LogitModel
from demur.deploy.onnx.onnx_graph import ExportError
from demur.label_shift import LabelShift
from demur.rules import Chow, CostMatrix, Threshold, ThresholdRule

__all__ = ["RuleForm", "at_temperature", "calibrated", "decided_with_experts", "rule_form", "shifted"]

_SMALLEST = 1e-12
"""As in :mod:`demur.calibration`."""
_SMALLEST_SHARE = 1e-6
"""As in :mod:`demur.deferral.expert_reliability`."""


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
        raise ExportError(
            f"the calibrator {type(calibrator).__name__} is not one of demur's own; use calibration='temperature', "
            "'isotonic' or 'sigmoid'."
        )
    values = torch.stack([_curve(p[:, k], model) for k, model in enumerate(calibrator.models_)], 1).clamp(0.0, 1.0)
    total = values.sum(1, keepdim=True)
    return torch.where(total > 0, values / torch.where(total > 0, total, 1.0), p)


def _curve(p: Tensor, model: Estimator) -> Tensor:
    if isinstance(model, float):  # the class was everywhere or nowhere among the calibration rows
        return p * 0 + model
    if type(model) is IsotonicRegression and model.out_of_bounds == "clip":
        x, y = (
            torch.as_tensor(np.asarray(one, dtype=np.float64)) for one in (model.X_thresholds_, model.y_thresholds_)
        )
        if len(x) == 1:
            return p * 0 + y
        inside = p.clamp(float(x[0]), float(x[-1]))
        place = (inside[:, None] >= x).to(torch.int64).sum(1) - 1
        slopes = torch.cat([torch.diff(y) / torch.diff(x), torch.zeros(1, dtype=x.dtype)])
        return y[place] + slopes[place] * (inside - x[place])
    if type(model) is LogisticRegression:
        return torch.sigmoid(_log_odds(p, _SMALLEST) * float(model.coef_[0, 0]) + float(model.intercept_[0]))
    raise ExportError(
        f"calibration by {type(model).__name__} is not supported; use 'temperature', 'isotonic' or 'sigmoid'."
    )


def _log_odds(share: Tensor, smallest: float) -> Tensor:
    inside = share.clamp(smallest, 1 - smallest)
    return torch.log(inside / (1 - inside))


def shifted(p: Tensor, shift: LabelShift | None) -> Tensor:
    """Return the probabilities under the new class frequencies, if they have changed."""
    if shift is None:
        return p
    old, new = (np.asarray(prior) / np.sum(prior) for prior in (shift.train_prior, shift.new_prior_))
    weighted = p.clamp_min(0.0) * torch.as_tensor(new / old)
    return weighted / weighted.sum(1, keepdim=True)


@dataclass(frozen=True)
class RuleForm:
    """What an exported rule is made of.

    Parameters
    ----------
    words : str
        What the rule does.
    price : float or None
        The price of one rejection; None if the rule has none.
    threshold : float or None
        What the confidence must exceed; None for Chow's rule, where it is one minus the cost, and for a cost matrix.
    costs : array or None
        The cost matrix.
    """

    words: str
    price: float | None = None
    threshold: float | None = None
    costs: Any = None

    def decide(self, p: Tensor, threshold: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return label, confidence and acceptance."""
        if self.costs is not None:
            # not p @ costs, into which onnxruntime would move a factor of p, rounded to single precision
            expected = torch.addmm(torch.zeros(self.costs.shape[1], dtype=p.dtype), p, torch.as_tensor(self.costs))
            saved = expected[:, -1] - expected[:, :-1].amin(1)
            return expected[:, :-1].argmin(1), saved, saved
        confidence = p.amax(1)
        if threshold is None:
            threshold = torch.tensor([self.threshold], dtype=p.dtype)
        return p.argmax(1), confidence, confidence - threshold


def rule_form(rule: Any, cost: float) -> RuleForm:
    """Return the form of a rule; None is Chow's at ``cost``."""
    if rule is None or type(rule) is Chow:
        price = _number(cost if rule is None else rule.cost, "Chow's rule has costs")
        return RuleForm("Answers where the confidence exceeds 1 - cost (Chow's rule).", price=price)
    if type(rule) is CostMatrix:
        costs = np.asarray(rule.costs, dtype=np.float64)
        if costs.ndim == 3:
            raise ExportError(
                f"the cost matrix has {len(costs)} parts, one per row of a table; give one for all rows, of shape "
                "(K, K + 1)."
            )
        words = (
            "Chooses the cheapest of all answers and of rejecting, by a cost matrix; the confidence is what it saves."
        )
        return RuleForm(words, costs=costs)
    if type(rule) is Threshold:
        threshold = _number(rule.threshold_, "the rule Threshold has thresholds")
        words = f"Answers where the largest class probability exceeds {threshold:.6g}."
        return RuleForm(words, threshold=threshold)
    if isinstance(rule, ThresholdRule) and type(rule)._decide is ThresholdRule._decide:  # also one of the user's own
        return RuleForm(rule.explain(), threshold=float(rule.threshold_))
    raise ExportError(
        f"the rule {type(rule).__name__} is not one of demur's own; use Chow, Threshold, CostMatrix, Coverage or "
        "RiskControl, or derive it from ThresholdRule."
    )


def _number(value: Any, what: str) -> float:
    if np.ndim(value):
        raise ExportError(f"{what} of shape {np.shape(value)}, one per row of a table; give one number.")
    return float(value)


def decided_with_experts(
    model: DeferOption, plain: Tensor, prices: Tensor, given: Mapping[str, Tensor]
) -> tuple[Tensor, ...]:
    """Decide as :meth:`DeferOption.decide <demur.DeferOption.decide>`.

    Parameters
    ----------
    model : DeferOption
    plain : tensor of shape (rows, n_classes)
        Probabilities of its classifier, not calibrated.
    prices : tensor of shape (n_experts,)
    given : mapping
        For experts whose reliability is estimated from features or read from a column, the estimates.

    Returns
    -------
    label, confidence, acceptance, proba, ask, expected_cost : tensors
    """
    plain = calibrated(plain, model.calibrator_)
    n_classes = len(model.classes_)
    is_best = plain.argmax(1, keepdim=True) == torch.arange(n_classes)
    others = torch.where(is_best, 0.0, plain)
    odds = -_log_odds(others.sum(1), _SMALLEST_SHARE)
    right, informing = {}, [odds]
    for name in sorted(model.experts_):
        fitted = model.reliability_.get(name)
        if fitted is None or fitted.kind == "share":
            right[name] = odds * 0 + float(model.experts_[name].accuracy or 0.0 if fitted is None else fitted.share)
            continue
        if fitted.kind == "confusion":
            right[name] = plain @ torch.as_tensor(np.asarray(fitted.by_class))
            continue
        if fitted.kind == "confidence":
            right[name] = _regressed(fitted.model, odds[:, None])
            continue
        guess = _log_odds(given[name], _SMALLEST_SHARE)
        right[name] = _regressed(fitted.model, torch.stack([odds, guess], 1))
        informing.append(guess)
    sure = plain
    if model.correction_ is not None:
        best = _regressed(model.correction_, torch.stack(informing, 1))[:, None]
        total = others.sum(1, keepdim=True)
        shares = torch.where(total > 0, others / torch.where(total > 0, total, 1.0), 1 / (n_classes - 1))
        sure = torch.where(is_best, best, shares * (1 - best))
    names = list(model.experts_)
    by_name = torch.as_tensor(np.argsort(names, kind="stable"))  # who comes first of those that cost the same
    worth = (torch.stack([right[name] for name in names], 1) - prices)[:, by_name]
    confidence, most = sure.amax(1), worth.amax(1)
    acceptance = confidence - most
    ask = torch.where(acceptance > 0, -1, by_name[worth.argmax(1)])
    expected = 1 - torch.where(acceptance > 0, confidence, most)
    return sure.argmax(1), acceptance, acceptance, sure, ask, expected


def _regressed(model: LogitModel | None, z: Tensor) -> Tensor:
    assert model is not None
    mean, scale, coefficients = (torch.as_tensor(one) for one in (model.mean, model.scale, model.coefficients))
    return torch.sigmoid(coefficients[0] + ((z - mean) / scale) @ coefficients[1:])
