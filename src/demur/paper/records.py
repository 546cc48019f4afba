"""The record of a unit: what it was, what came out, and where and how long it ran."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from demur.errors import UserError

__all__ = ["DamagedRecordError", "Record", "Score"]


class DamagedRecordError(UserError):
    """A record that cannot be read, or is not what was written."""


@dataclass(frozen=True)
class Score:
    """The chosen candidate of one trial at one cost, and what it did on the test data.

    Parameters
    ----------
    trial : int
    cost : float
    n : int
        The number of test rows.
    rejected, wrong : int
        How many of them were declined, and how many were answered wrongly.
    hyper : dict
        The chosen hyper-parameters.
    validation_risk : float
        Its 0-1-c risk on the validation part.
    rivals : tuple of float or None
        The validation risks of all candidates, in the order of the grid; None where the network diverged.
    false_accepts, false_rejects : int, optional
        Disagreements with the best possible rule, where it is known.

    Examples
    --------
    >>> score = Score(0, 0.2, n=100, rejected=20, wrong=4, hyper={}, validation_risk=0.1)
    >>> score.risk, score.accuracy, score.rejection_ratio
    (0.08, 0.95, 0.2)
    """

    trial: int
    cost: float
    n: int
    rejected: int
    wrong: int
    hyper: dict[str, float | str]
    validation_risk: float
    rivals: tuple[float | None, ...] = ()
    false_accepts: int | None = None
    false_rejects: int | None = None

    @property
    def risk(self) -> float:
        """The 0-1-c risk."""
        return (self.wrong + self.cost * self.rejected) / self.n

    @property
    def accuracy(self) -> float:
        """The share of right answers among those given; NaN where there were none."""
        accepted = self.n - self.rejected
        return 1 - self.wrong / accepted if accepted else float("nan")

    @property
    def rejection_ratio(self) -> float:
        """The share of rows that were declined."""
        return self.rejected / self.n


@dataclass(frozen=True)
class Record:
    """One unit's outcome.

    Parameters
    ----------
    spec : dict
        Of the unit, data hash included.
    trials : tuple of int
    note : str
        What must be said of figures measured on these data.
    scores : tuple of Score
    networks, failed : int
        How many networks were trained, and how many of them diverged.
    seconds_training, seconds_other : float
    environment : dict
        Versions, device, machine.
    """

    spec: dict[str, Any]
    trials: tuple[int, ...]
    note: str
    scores: tuple[Score, ...]
    networks: int
    failed: int
    seconds_training: float
    seconds_other: float
    environment: dict[str, Any]

    def to_json(self) -> str:
        """Return the record as text that ends in a checksum of itself."""
        body = asdict(self)
        return json.dumps({**body, "sha256": _checksum(body)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Record":
        """Read a record, and refuse one that is cut short or changed.

        Raises
        ------
        DamagedRecordError
        """
        try:
            body = json.loads(text)
            checksum = body.pop("sha256")
            if checksum != _checksum(body):
                raise DamagedRecordError("its checksum does not fit its contents")
            scores = tuple(Score(**{**score, "rivals": tuple(score["rivals"])}) for score in body.pop("scores"))
            record = cls(**{**body, "scores": scores, "trials": tuple(body["trials"])})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedRecordError(f"it is no whole record ({type(error).__name__})") from error
        costs = record.spec["protocol"]["costs"]
        expected = {(trial, cost) for trial in record.trials for cost in costs}
        if {(score.trial, score.cost) for score in record.scores} != expected:
            raise DamagedRecordError("some of its trials or costs are missing")
        return record


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
