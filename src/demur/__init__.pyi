from . import calibration as calibration
from . import costs as costs
from . import datasets as datasets
from . import estimators as estimators
from . import guarantees as guarantees
from . import label_shift as label_shift
from . import losses as losses
from . import margins as margins
from . import metrics as metrics
from . import rules as rules
from . import theory as theory
from . import training as training
from .estimators import RejectClassifier as RejectClassifier
from .estimators import RejectOption as RejectOption
from .guarantees import Coverage as Coverage
from .guarantees import RiskControl as RiskControl
from .rules import Chow as Chow
from .rules import CostMatrix as CostMatrix
from .rules import Decision as Decision
from .rules import Threshold as Threshold

__version__: str
