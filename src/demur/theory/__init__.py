"""The calibration theory as running code: whether a loss is calibrated for rejection, and how fast."""

from demur.losses.registry import FunctionLoss as FunctionLoss
from demur.theory.bayes import (
    CostRangeError,
    LossContractError,
    NoBoundError,
    RuleWarning,
    bayes_decision,
    bayes_risk,
)
from demur.theory.calibration_check import check_calibration
from demur.theory.calibration_function import CalibrationFunction, calibration_function
from demur.theory.calibration_report import CalibrationReport
from demur.theory.excess_bounds import (
    EstimationErrorBound,
    ExcessRiskBound,
    FunctionClass,
    NormBoundedLinear,
    NormBoundedNetwork,
    TableOne,
    estimation_error_bound,
    excess_risk_bound,
    table_one,
)
from demur.theory.pointwise_risk import minimise_pointwise_risk, pointwise_risk
from demur.theory.repair import Repair
from demur.theory.structure import Certificate
from demur.theory.theorem_four import (
    OrderReport,
    TheoremFour,
    beta_bounds,
    is_order_preserving,
    numeric_beta_bounds,
)
from demur.theory.witness import Witness

__all__ = [
    "CalibrationFunction",
    "CalibrationReport",
    "Certificate",
    "CostRangeError",
    "EstimationErrorBound",
    "ExcessRiskBound",
    "FunctionClass",
    "LossContractError",
    "NoBoundError",
    "NormBoundedLinear",
    "NormBoundedNetwork",
    "OrderReport",
    "Repair",
    "RuleWarning",
    "TableOne",
    "TheoremFour",
    "Witness",
    "bayes_decision",
    "bayes_risk",
    "beta_bounds",
    "calibration_function",
    "check_calibration",
    "estimation_error_bound",
    "excess_risk_bound",
    "is_order_preserving",
    "minimise_pointwise_risk",
    "numeric_beta_bounds",
    "pointwise_risk",
    "table_one",
]
