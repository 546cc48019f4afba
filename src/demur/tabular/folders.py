"""Deciding for a folder of Parquet files, on many machines or processes through Dask."""

import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from demur.columns.table_errors import TableError
from demur.errors import MissingExtraError
from demur.tabular.streaming import Decided, decide_file

__all__ = ["decide_folder"]


def decide_folder(
    load_model: Any,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    scheduler: str,
    overwrite: bool = False,
    progress: Any = lambda files: None,
    **options: Any,
) -> Decided:
    """Decide for each Parquet file of a folder on Dask workers, into a file of the same name in another folder.

    The folder appears under its name only when all files are complete. Workers must see both folders.

    Parameters
    ----------
    load_model : callable
        Returns the model; called on each worker, and must be picklable.
    source, target : path
    scheduler : str
        The address of a Dask scheduler, or "local" for processes on this machine.
    overwrite : bool
    progress : callable
        Called with the number of files just written.
    **options
        As for :func:`decide_file`.
    """
    try:
        from dask.distributed import Client, LocalCluster, as_completed
    except ImportError as error:
        raise MissingExtraError("a scheduler needs Dask: pip install demur[dask]") from error
    read, final = Path(source), Path(target)
    files = sorted(path for path in read.rglob("*.parquet") if path.is_file())
    if not files:
        raise TableError(f"there is no .parquet file in {str(read)!r}: give a folder that holds some")
    _check_target(read, final, overwrite)
    part = final.with_name(f".{final.name}.{os.getpid()}.part")
    part.mkdir()
    total = Decided()
    try:
        with ExitStack() as stack:
            address: Any = scheduler
            if scheduler == "local":
                address = stack.enter_context(LocalCluster(dashboard_address=None))  # type: ignore[no-untyped-call]
            client = stack.enter_context(Client(address))  # type: ignore[no-untyped-call]
            jobs = []
            for path in files:
                out = part / path.relative_to(read)
                out.parent.mkdir(parents=True, exist_ok=True)
                jobs.append(client.submit(_decide_one, load_model, str(path), str(out), options, pure=False))
            for job in as_completed(jobs):  # type: ignore[no-untyped-call]
                total += job.result()
                progress(1)
        _move_into_place(part, final)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return total


def _check_target(read: Path, final: Path, overwrite: bool) -> None:
    if not final.parent.is_dir():
        raise TableError(f"there is no folder {str(final.parent)!r} to make {final.name!r} in: create it first")
    if final.resolve() == read.resolve() or read.resolve() in final.resolve().parents:
        raise TableError(f"{str(final)!r} lies in the folder that is read: choose another place")
    if not final.exists():
        return
    if not (overwrite and final.is_dir()):
        raise TableError(f"{str(final)!r} exists already: choose another name, or pass --force to replace it")
    foreign = [path for path in final.rglob("*") if path.is_file() and path.suffix != ".parquet"]
    if foreign:
        raise TableError(f"{str(final)!r} holds {foreign[0].name!r}, which is no decision: choose another name")


def _move_into_place(part: Path, final: Path) -> None:
    if not final.exists():
        part.rename(final)
        return
    old = final.with_name(f".{final.name}.{os.getpid()}.old")
    final.rename(old)
    part.rename(final)
    shutil.rmtree(old)


def _decide_one(load_model: Any, source: str, target: str, options: dict[str, Any]) -> Decided:
    return decide_file(load_model(), source, target, overwrite=True, **options)
