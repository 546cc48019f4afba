"""Storing a report: whole or not at all."""

import os
from collections.abc import Mapping
from pathlib import Path

from demur.tabular.evaluation import Evaluation
from demur.tabular.html import report_html

__all__ = ["write_report"]


def write_report(
    evaluation: Evaluation,
    path: str | os.PathLike[str],
    *,
    title: str,
    made: Mapping[str, str] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the report of an evaluation to one HTML file and return its path.

    Parameters
    ----------
    evaluation : Evaluation
    path : str or path
        The file to write.
    title : str
    made : mapping of str to str, optional
        As for :func:`~demur.tabular.report_html`.
    overwrite : bool, default False
        Whether a file that is there already may be replaced.

    Examples
    --------
    >>> import tempfile
    >>> from demur.rules import Chow
    >>> proba = [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]
    >>> result = Evaluation.of([0, 0, 1], Chow(0.3).decide(proba), classes=[0, 1], cost=0.3, proba=proba)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(result, f"{folder}/report.html", title="Digits").name
    'report.html'
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; name a file in it, such as {target / 'report.html'}.")
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists already; choose another name or allow it to be replaced.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist; make it first.")
    page = report_html(evaluation, title, made=made)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_text(page, encoding="utf-8", newline="\n")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return target
