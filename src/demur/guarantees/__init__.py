"""Rules that are fitted on a calibration sample: a coverage to reach, or a risk that must not be exceeded."""

from demur.guarantees.coverage import Coverage, FittedThreshold
from demur.guarantees.risk_control import NoGuaranteeError, RiskCertificate, RiskControl

__all__ = ["Coverage", "FittedThreshold", "NoGuaranteeError", "RiskCertificate", "RiskControl"]
