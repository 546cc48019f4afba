"""The calibration theory as running code: whether a loss is calibrated for rejection, and how fast."""

from demur.theory.adapter import FunctionLoss
from demur.theory.bayes import bayes_decision, bayes_risk, excess_zero_one_c_risk
from demur.theory.beta import beta_bounds, numeric_beta_bounds
from demur.theory.bounds import ExcessRiskBound, excess_risk_bound
from demur.theory.calibration import check_calibration
from demur.theory.calibration_function import CalibrationFunction, calibration_function
from demur.theory.conditions import TheoremFour
from demur.theory.errors import CostRangeError, LossContractError, NoBoundError
from demur.theory.estimation import EstimationErrorBound, estimation_error_bound
from demur.theory.order import OrderReport, is_order_preserving
from demur.theory.pointwise import minimise_pointwise_risk, pointwise_risk
from demur.theory.rademacher import FunctionClass, NormBoundedLinear, NormBoundedNetwork
from demur.theory.report import CalibrationReport
from demur.theory.table_one import TableOne, table_one
from demur.theory.witness import Witness

__all__ = [
    "CalibrationFunction",
    "CalibrationReport",
    "CostRangeError",
    "EstimationErrorBound",
    "ExcessRiskBound",
    "FunctionClass",
    "FunctionLoss",
    "LossContractError",
    "NoBoundError",
    "NormBoundedLinear",
    "NormBoundedNetwork",
    "OrderReport",
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
    "excess_zero_one_c_risk",
    "is_order_preserving",
    "minimise_pointwise_risk",
    "numeric_beta_bounds",
    "pointwise_risk",
    "table_one",
]
