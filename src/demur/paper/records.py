"""Records: the result of a job with its specification and environment, kept as lines of a JSONL file."""

import hashlib
import json
import os
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from demur import __version__
from demur.array_types import ByName, FilePath
from demur.errors import InputError, UserError
from demur.workers import n_cores


@dataclass(frozen=True)
class Score:
    """The chosen candidate of one trial at one cost, and its counts on the test data.

    Parameters
    ----------
    trial : int
    cost : float
    n : int
        Number of test rows.
    rejected, wrong : int
        Number of declined rows, and of wrong answers.
    hyper : dict
        The chosen hyper-parameters.
    validation_risk : float
        0-1-c risk on the validation rows.
    rivals : tuple of float or None
        Validation risks of all candidates in the order of the grid; None where the network diverged.
    false_accepts, false_rejects : int, optional
        Disagreements with the Bayes-optimal rule, where it is known.

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
        """Share of right answers among the accepted rows; NaN if there are none."""
        accepted = self.n - self.rejected
        return 1 - self.wrong / accepted if accepted else float("nan")

    @property
    def rejection_ratio(self) -> float:
        """Share of declined rows."""
        return self.rejected / self.n


@dataclass(frozen=True)
class Record:
    """The result of a job.

    Parameters
    ----------
    spec : dict
        Specification of the job, with the hash of its data.
    trials : tuple of int
    note : str
        A caveat about figures measured on these data; empty if there is none.
    scores : tuple of Score
    networks, failed : int
        Number of trained networks, and of those that diverged.
    seconds_training, seconds_other : float
    environment : dict
        Versions, device, machine.
    """

    spec: ByName
    trials: tuple[int, ...]
    note: str
    scores: tuple[Score, ...]
    networks: int
    failed: int
    seconds_training: float
    seconds_other: float
    environment: ByName

    def to_json(self) -> ByName:
        """Return the record as a dictionary, with a checksum of the rest."""
        body = asdict(self)
        return {**body, "sha256": _checksum(body)}

    @classmethod
    def from_json(cls, body: ByName) -> "Record":
        """Restore a record from what :meth:`to_json` returned.

        Raises
        ------
        ValueError
            If it is damaged or incomplete.
        """
        try:
            rest = {name: value for name, value in body.items() if name != "sha256"}
            if body["sha256"] != _checksum(rest):
                raise ValueError("its checksum does not match its content")
            scores = tuple(Score(**{**score, "rivals": tuple(score["rivals"])}) for score in rest["scores"])
            return cls(**{**rest, "scores": scores, "trials": tuple(rest["trials"])})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is not a complete record ({type(error).__name__})") from error


def _checksum(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


class StoreError(UserError):
    """A record could not be written, because the disk is full or the folder was removed."""

    exit_code = 1


def append_line(path: Path, body: ByName) -> None:
    """Append a record to a JSONL file, on a new line even after an incomplete one.

    Raises
    ------
    StoreError
    """
    try:
        with path.open("ab+") as file:
            file.seek(max(0, file.tell() - 1))
            broken = file.read(1) not in (b"", b"\n")
            file.write((("\n" if broken else "") + json.dumps(body) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(
            f"cannot write to {path}: {error.strerror or error}. Finished records are kept; free some space, then run "
            "the same command again to continue."
        ) from error


def read_lines(path: Path) -> Iterator[tuple[int, ByName | None]]:
    """Yield the number and the content of each line of a JSONL file; None for a line that is not a JSON object."""
    for number, line in enumerate(path.read_bytes().splitlines() if path.is_file() else [], start=1):
        try:
            body = json.loads(line)
        except ValueError:
            body = None
        yield number, body if isinstance(body, dict) else None


class Store:
    """Records of one experiment: lines of ``OUT/records/EXPERIMENT.jsonl``.

    Parameters
    ----------
    out : path
    experiment : str

    Examples
    --------
    >>> len(list(Store("/nowhere", "benchmark").records()))
    0
    """

    def __init__(self, out: FilePath, experiment: str) -> None:
        self.path = Path(out) / "records" / f"{experiment}.jsonl"
        self.damaged: dict[str, str] = {}
        """The reason why a line could not be read, by file and line number."""

    def check_writable(self) -> None:
        """Create the folder and check that the file is writable.

        Raises
        ------
        InputError
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.open("ab").close()
        except OSError as error:
            raise InputError(
                f"cannot write to {self.path.parent}: {error.strerror or error}. Choose another folder with --out."
            ) from error

    def write(self, record: Record) -> None:
        """Append a record.

        Raises
        ------
        StoreError
        """
        append_line(self.path, record.to_json())

    def records(self) -> Iterator[Record]:
        """Yield every readable record, by problem, method and trials; ``damaged`` lists the others."""
        found = []
        for number, body in read_lines(self.path):
            try:
                found.append(Record.from_json(body or {}))
            except ValueError as error:
                self.damaged[f"{self.path}, line {number}"] = str(error)
        yield from sorted(found, key=lambda one: (one.spec["problem"], one.spec["method"]["name"], one.trials))


def describe_environment(device: torch.device) -> ByName:
    """Return versions, device and machine.

    Examples
    --------
    >>> describe_environment(torch.device("cpu"))["demur"] == __version__
    True
    """
    return {
        "demur": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "device_type": device.type,
        "cores": n_cores(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.+)", info.read_text() if info.exists() else "", re.MULTILINE)
    return names[0] if names else platform.processor() or platform.machine()


class Provenance(NamedTuple):
    """Origin of some records.

    Parameters
    ----------
    networks, failed : int
    seconds_training, seconds_other : float
        Sums over the jobs.
    devices, versions : tuple of str
        Without repetitions.
    """

    networks: int
    failed: int
    seconds_training: float
    seconds_other: float
    devices: tuple[str, ...]
    versions: tuple[str, ...]


def trace(records: Sequence[Record]) -> Provenance:
    """Summarise how some records were made."""
    environments = [record.environment for record in records]
    devices = (f"{one['device']}" + f", {one['cores']} cores" * (one["device_type"] == "cpu") for one in environments)
    versions = ("demur {demur}, Python {python}, torch {torch}, numpy {numpy}".format_map(one) for one in environments)
    sums = {name: sum(getattr(record, name) for record in records) for name in Provenance._fields[:4]}
    return Provenance(**sums, devices=tuple(dict.fromkeys(devices)), versions=tuple(dict.fromkeys(versions)))
