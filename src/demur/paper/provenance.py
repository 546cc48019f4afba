"""Where the records of an experiment come from: machines, versions, seconds."""

from collections.abc import Iterable
from dataclasses import dataclass

from demur.paper.records import Record

__all__ = ["Provenance", "trace"]


@dataclass(frozen=True)
class Provenance:
    """What some records say of how they were made.

    Parameters
    ----------
    networks, failed : int
    seconds_training, seconds_other : float
        Summed over the units.
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
