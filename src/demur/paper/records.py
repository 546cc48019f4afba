"""Records: what came out of a job, where and how long it ran; and the store that keeps them.

While a run goes on, the store is a folder with one file per job, each written whole or not at all. A finished store can
be packed into one file of lines; both forms are read.
"""

import hashlib
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NotRequired, TypeAlias, TypedDict

import numpy as np
import torch

from demur._version import __version__
from demur.errors import UserError
from demur.whole_file import write_whole
from demur.workers import n_cores

__all__ = [
    "DamagedRecordError",
    "Environment",
    "MethodSpec",
    "Provenance",
    "Record",
    "Score",
    "Setting",
    "Spec",
    "Store",
    "StoreError",
    "UnusableFolderError",
    "describe_environment",
    "record_name",
    "trace",
]

Setting: TypeAlias = int | float | str | list[float] | None
"""A value of a protocol, as JSON has it."""


class MethodSpec(TypedDict):
    """A method in a specification."""

    name: str
    loss: str
    betas: list[str]


class Spec(TypedDict):
    """Everything that decides the result of each trial of a job."""

    format: int
    experiment: str
    problem: str
    method: MethodSpec
    thresholds: list[float]
    protocol: dict[str, Setting]
    data: NotRequired[str]
    """The hash of the data."""
    source: NotRequired[str]
    """The hash of the file with the loss, where that is the user's own."""


class Environment(TypedDict):
    """Versions, device and machine."""

    demur: str
    python: str
    torch: str
    numpy: str
    device: str
    device_type: str
    cores: int
    system: str
    peak_memory_mb: int | None


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
    """One job's outcome.

    Parameters
    ----------
    spec : dict
        Of the job, data hash included.
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

    spec: Spec
    trials: tuple[int, ...]
    note: str
    scores: tuple[Score, ...]
    networks: int
    failed: int
    seconds_training: float
    seconds_other: float
    environment: Environment

    @property
    def name(self) -> str:
        """The name that the record is kept under."""
        return record_name(self.spec, self.trials)

    def to_json(self) -> str:
        """Return the record as one line that ends in a checksum of itself."""
        body = asdict(self)
        return json.dumps({**body, "sha256": _checksum(body)}) + "\n"

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
            raise DamagedRecordError(f"it is not a whole record ({type(error).__name__})") from error
        costs = record.spec["protocol"]["costs"]
        assert isinstance(costs, list)
        expected = {(trial, cost) for trial in record.trials for cost in costs}
        if {(score.trial, score.cost) for score in record.scores} != expected:
            raise DamagedRecordError("some of its trials or costs are missing")
        return record


def record_name(spec: Spec, trials: Iterable[int]) -> str:
    """Return a name for a record: readable, and different for every specification."""
    method = re.sub(r"[^\w.+-]", "_", spec["method"]["name"])
    return f"{spec['problem']}.{method}.trials-{_ranges(trials)}.{_checksum(spec)[:12]}"


def _ranges(numbers: Iterable[int]) -> str:
    """Write (0, 1, 2, 5) as "0-2,5"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def _checksum(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


class StoreError(UserError):
    """A record could not be written: the disk is full, or the folder has gone."""


class UnusableFolderError(StoreError):
    """The output folder cannot be made or written to: the call was wrong."""


class Store:
    """Records of one experiment under an output folder.

    They lie in ``records/EXPERIMENT``, one file each, and in ``records/EXPERIMENT.jsonl``, one line each, once packed.

    Parameters
    ----------
    out : path
    experiment : str

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as out:
    ...     len(list(Store(out, "benchmark").records()))
    0
    """

    def __init__(self, out: str | os.PathLike[str], experiment: str) -> None:
        self.folder = Path(out) / "records" / experiment
        self.packed = Path(out) / "records" / f"{experiment}.jsonl"
        self.damaged: dict[str, str] = {}
        """Records found damaged so far, by where they are, with the reason."""

    def check_writable(self) -> None:
        """Make the folder, and write and remove a small file in it.

        Raises
        ------
        UnusableFolderError
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as file:
                file.write(b"demur")
        except OSError as error:
            raise UnusableFolderError(
                f"cannot write to {self.folder}: {error.strerror or error}. Choose another folder with --out."
            ) from error

    def write(self, name: str, record: Record) -> None:
        """Write a record so that a reader sees all of it or nothing, even if the machine stops in between.

        Raises
        ------
        StoreError
        """
        path = self.folder / f"{name}.json"
        try:
            for leftover in self.folder.glob(f".{path.name}.*.part"):
                leftover.unlink(missing_ok=True)
            write_whole(path, record.to_json(), overwrite=True)
        except OSError as error:
            raise StoreError(
                f"cannot write the record {path}: {error.strerror or error}. What is finished is kept; make room, then "
                "run the same command again to continue."
            ) from error

    def records(self) -> Iterator[Record]:
        """Yield every readable record, in the order of their names; note the damaged ones in ``damaged``.

        Of two records with one name, a file of its own counts and not the line in the packed file.
        """
        found = {record.name: record for _, record in (*self._lines(), *self._files())}
        for name in sorted(found):
            yield found[name]

    def pack(self) -> int:
        """Move all readable records into the packed file, and return how many it has.

        A damaged line of the packed file is left out; a damaged file stays where it is. Stopped in between, the store
        is as good as before: the packed file is complete before the first of the other files goes.

        Raises
        ------
        StoreError
        """
        files = list(self._files())
        records = {record.name: record for _, record in (*self._lines(), *files)}
        try:
            if files:
                lines = "".join(records[name].to_json() for name in sorted(records))
                write_whole(self.packed, lines, overwrite=True)
            for path, _ in files:
                path.unlink()
            if self.folder.is_dir() and not any(self.folder.iterdir()):
                self.folder.rmdir()
        except OSError as error:
            raise StoreError(f"cannot pack the records in {self.folder}: {error.strerror or error}.") from error
        return len(records)

    def _files(self) -> Iterator[tuple[Path, Record]]:
        for path in sorted(self.folder.glob("*.json")):
            try:
                yield path, Record.from_json(path.read_text())
            except (DamagedRecordError, OSError, UnicodeDecodeError) as error:
                self.damaged[str(path)] = str(error)

    def _lines(self) -> Iterator[tuple[int, Record]]:
        if not self.packed.is_file():
            return
        for number, line in enumerate(self.packed.read_bytes().splitlines(), start=1):
            try:
                yield number, Record.from_json(line.decode())
            except (DamagedRecordError, UnicodeDecodeError) as error:
                self.damaged[f"{self.packed}, line {number},"] = str(error)


def describe_environment(device: torch.device) -> Environment:
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
        "peak_memory_mb": _peak_memory_mb(),
    }


def _peak_memory_mb() -> int | None:
    """Return the most memory this process has held, in MB of 10^6 bytes; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        return names[0] if names else platform.processor()
    except OSError:
        return platform.processor() or platform.machine()


@dataclass(frozen=True)
class Provenance:
    """What some records say of how they were made.

    Parameters
    ----------
    networks, failed : int
    seconds_training, seconds_other : float
        Summed over the jobs.
    devices, versions, systems : tuple of str
        All different ones.
    peak_memory_mb : int or None
        The largest memory of any process.
    """

    networks: int
    failed: int
    seconds_training: float
    seconds_other: float
    devices: tuple[str, ...]
    versions: tuple[str, ...]
    systems: tuple[str, ...]
    peak_memory_mb: int | None


def trace(records: Iterable[Record], methods: Iterable[str] | None = None) -> Provenance:
    """Sum up some records, or those of some methods."""
    wanted = None if methods is None else set(methods)
    kept = [record for record in records if wanted is None or record.spec["method"]["name"] in wanted]
    environments = [record.environment for record in kept]
    memory = [environment["peak_memory_mb"] for environment in environments if environment["peak_memory_mb"]]
    return Provenance(
        networks=sum(record.networks for record in kept),
        failed=sum(record.failed for record in kept),
        seconds_training=sum(record.seconds_training for record in kept),
        seconds_other=sum(record.seconds_other for record in kept),
        devices=_different(
            f"{one['device']}" + (f", {one['cores']} cores" if one["device_type"] == "cpu" else "")
            for one in environments
        ),
        versions=_different(
            f"demur {one['demur']}, Python {one['python']}, torch {one['torch']}, numpy {one['numpy']}"
            for one in environments
        ),
        systems=_different(one["system"] for one in environments),
        peak_memory_mb=max(memory) if memory else None,
    )


def _different(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
