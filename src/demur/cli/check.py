"""``demur check``: whether a loss is calibrated for rejection."""

import dataclasses
import importlib
import importlib.util
import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from demur.cli.console import CallError, console, wrong_call_if_refused

__all__ = ["EXIT_REFUTED", "check"]

EXIT_REFUTED = 3
EXCESSES = (0.05, 0.1, 0.2)
"""The 0-1-c excesses at which the bounds are printed."""


def check(
    loss: Annotated[
        str, typer.Argument(help="A registered loss (see `demur methods`), or module:object or file.py:object.")
    ],
    classes: Annotated[int, typer.Option("--classes", "-k", help="The number of classes K.")] = 3,
    cost: Annotated[float, typer.Option("--cost", "-c", help="The price c of one rejection; a mistake costs 1.")] = 0.2,
    alpha: Annotated[float | None, typer.Option(help="alpha of a pairwise loss.")] = None,
    beta: Annotated[str | None, typer.Option(help="beta of a pairwise loss: a number, acc, rej or mean.")] = None,
    tau: Annotated[float | None, typer.Option(help="The threshold tau of a hinge loss.")] = None,
    rule: Annotated[
        str | None,
        typer.Option(help="How a plain function decides: softmax, rejector, or module:function of (scores, cost)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")] = False,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the decisions and the calibration function to a file.")
    ] = None,
) -> None:
    """Say whether a loss is calibrated for rejection, why, and with which bound.

    Exit code 0: no counterexample found. 3: refuted. 2: the call is wrong.

    Example: demur check apc+log --classes 8 --cost 0.2
    """
    if figure is not None and not figure.parent.is_dir():
        raise CallError(f"there is no folder {figure.parent} to put the figure in.")
    with wrong_call_if_refused():
        from demur.theory import check_calibration

        options = {"alpha": alpha, "beta": _number_or_name(beta), "tau": tau}
        subject = _with_options(_find(loss), {name: value for name, value in options.items() if value is not None})
        decision_rule: Any = _load(rule) if rule is not None and ":" in rule else rule
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            report = check_calibration(subject, classes, cost, rule=decision_rule)
        bounds = _bounds(report, subject)
        if figure is not None:
            _draw(figure, subject, classes, cost, decision_rule)
    if as_json:
        typer.echo(json.dumps({**report.as_dict(), "tightest": bounds}, indent=2))
    else:
        notes = [f"Note: {warning.message}" for warning in caught]
        console.print("\n".join([str(report), *_bound_lines(bounds), *notes]), markup=False, soft_wrap=True)
    if not report.calibrated:
        raise typer.Exit(EXIT_REFUTED)


def _find(name: str) -> Any:
    """Return the loss of that name: registered, or loaded if it names an object."""
    from demur.losses import get

    return _load(name) if ":" in name else get(name)


def _load(path: str) -> Any:
    """Import ``module:object`` or ``file.py:object``; modules of the working directory count."""
    module_name, _, attribute = path.rpartition(":")
    if not module_name or not attribute:
        raise CallError(f"{path!r} is not of the form module:object.")
    try:
        module = _module(module_name)
    except Exception as error:  # a user's module may raise anything while it is imported
        raise CallError(f"cannot import {module_name!r}: {type(error).__name__}: {error}") from error
    target: Any = module
    for part in attribute.split("."):
        if not hasattr(target, part):
            raise CallError(f"{module_name!r} has no object {attribute!r}.")
        target = getattr(target, part)
    return target


def _module(name: str) -> Any:
    if not name.endswith(".py"):
        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(name)
    file = Path(name)
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {name}")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _number_or_name(beta: str | None) -> float | str | None:
    try:
        return None if beta is None else float(beta)
    except ValueError:
        return beta


def _with_options(loss: Any, options: dict[str, Any]) -> Any:
    """Return the loss with hyper-parameters replaced, or refuse one it does not have."""
    if not options:
        return loss
    made = loss() if isinstance(loss, type) else loss
    fields = {field.name for field in dataclasses.fields(made)} if dataclasses.is_dataclass(made) else set()
    for name in options:
        if name not in fields:
            raise CallError(f"{getattr(made, 'name', made)} has no {name}; leave --{name} out.")
    return dataclasses.replace(made, **options)


def _bounds(report: Any, loss: Any) -> dict[str, list[float]] | None:
    """Return the theorem's bound and the tightest one at a few excesses, where there is a theorem."""
    if report.bound is None:
        return None
    from demur.theory import calibration_function

    excesses = list(EXCESSES)
    xi = calibration_function(loss, report.n_classes, report.cost, n_nodes=16)
    return {
        "zero_one_c_excess": excesses,
        "theorem": [report.bound.xi(z) for z in excesses],
        "tightest": xi(excesses).tolist(),
    }


def _bound_lines(bounds: dict[str, list[float]] | None) -> list[str]:
    if bounds is None:
        return []
    lines = ["  to lose this much 0-1-c risk, the surrogate must lose at least (theorem; tightest, computed)"]
    rows = zip(bounds["zero_one_c_excess"], bounds["theorem"], bounds["tightest"], strict=True)
    return lines + [f"    {z:<6g} {theorem:>10.4g} {tightest:>10.4g}" for z, theorem, tightest in rows]


def _draw(file: Path, loss: Any, n_classes: int, cost: float, rule: Any) -> None:
    try:
        from demur.theory import figures
    except ImportError as error:
        raise CallError("--figure needs matplotlib: pip install 'demur[plot]'.") from error
    figures.save(figures.draw_check(loss, n_classes, cost, rule=rule), file)
