"""Rules that are fitted on a calibration sample: a coverage to reach, or a risk that must not be exceeded."""

from demur.guarantees.coverage import Coverage
from demur.guarantees.fitted_threshold import FittedThreshold
from demur.guarantees.risk_control import RiskControl
from demur.guarantees.selection import Certificate, NoGuaranteeError

__all__ = ["Certificate", "Coverage", "FittedThreshold", "NoGuaranteeError", "RiskControl"]
