"""``demur check``: whether a loss is calibrated for rejection."""

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from demur.array_types import ByName
from demur.cli.console import CallError, console, wrong_call_if_refused
from demur.cli.options import AsJson, panel

__all__ = ["EXIT_INCONCLUSIVE", "EXIT_REFUTED", "check"]

EXIT_REFUTED = 3
EXIT_INCONCLUSIVE = 4
EXCESSES = (0.05, 0.1, 0.2)
"""The 0-1-c excesses at which the bounds are printed."""


_LOSS, _RULE, _OUT = "Loss parameters", "Plain functions", "Output"
_Loss: TypeAlias = Annotated[
    str, typer.Argument(help="Registered loss (see demur methods), file.py:name or module:name.")
]
_Cost: TypeAlias = Annotated[
    str, typer.Option("--cost", "-c", help="Cost of rejecting (a mistake costs 1), or one per class: 0.1,0.3,0.3.")
]
_Matrix: TypeAlias = Annotated[
    Path | None, typer.Option(help="Cost matrix file: K rows of K + 1 costs; the last is for rejecting.")
]
_Rule: TypeAlias = Annotated[
    str | None, panel(_RULE, help="Decision rule: softmax, rejector, reject-score or file.py:function.")
]
_Seconds: TypeAlias = Annotated[float, typer.Option(help="CPU seconds after which the search stops.")]


def check(
    loss: _Loss,
    classes: Annotated[int, typer.Option("--classes", "-k", help="Number of classes K.")] = 3,
    cost: _Cost = "0.2",
    cost_matrix: _Matrix = None,
    outputs: Annotated[int | None, panel(_RULE, help="Number of scores; one per class by default.")] = None,
    rule: _Rule = None,
    kinks: Annotated[bool, panel(_RULE, "--kinks", help="The function is not differentiable everywhere.")] = False,
    alpha: Annotated[float | None, panel(_LOSS, help="alpha of a pairwise loss.")] = None,
    beta: Annotated[str | None, panel(_LOSS, help="beta of a pairwise loss: a number, acc, rej or mean.")] = None,
    tau: Annotated[float | None, panel(_LOSS, help="Threshold tau of a hinge loss.")] = None,
    seconds: _Seconds = 60.0,
    as_json: AsJson = False,
    figure: Annotated[Path | None, panel(_OUT, help="Plot of the decisions and the bound to write.")] = None,
) -> None:
    """Check whether a loss is calibrated for rejection, and show its excess risk bound.

    Exit code 0: calibrated. 3: refuted. 4: inconclusive. 2: wrong arguments.

    Example: demur check apc+log --classes 8 --cost 0.2
    """
    if figure is not None and not figure.parent.is_dir():
        raise CallError(f"there is no folder {figure.parent} for the figure; create it first.")
    costs = _costs(cost, cost_matrix)
    if figure is not None and not isinstance(costs, float):
        raise CallError("--figure needs a single --cost; omit it with several costs.")
    with wrong_call_if_refused():
        from demur.losses.registry import load_object
        from demur.theory import check_calibration

        options = {"alpha": alpha, "beta": _number_or_name(beta), "tau": tau}
        decision_rule: Any = load_object(rule) if rule is not None and ":" in rule else rule
        subject = _subject(loss, decision_rule, {name: value for name, value in options.items() if value is not None})
        if kinks:
            subject = _with_kinks(subject)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            report = check_calibration(subject, classes, costs, outputs=outputs, seconds=seconds)
        bounds = _bounds(report, subject)
        if figure is not None:
            _draw(figure, subject, classes, costs, outputs)
    if as_json:
        typer.echo(json.dumps({**report.as_dict(), "tightest": bounds}, indent=2))
    else:
        notes = [f"Note: {warning.message}" for warning in caught]
        if rule is None and outputs == classes + 1:
            notes.append(f"Note: no --rule was given; score {outputs} was taken for that of declining (reject-score).")
        console.print("\n".join([str(report), *_bound_lines(bounds), *notes]), markup=False, soft_wrap=True)
    code = {"refuted": EXIT_REFUTED, "inconclusive": EXIT_INCONCLUSIVE}.get(report.verdict)
    if code is not None:
        raise typer.Exit(code)


def _costs(cost: str, cost_matrix: Path | None) -> Any:
    """Return one price, a list of prices, or a cost matrix."""
    if cost_matrix is not None:
        if not cost_matrix.is_file():
            raise CallError(f"there is no file {cost_matrix}.")
        lines = [line for line in cost_matrix.read_text().splitlines() if line.strip()]
        if lines and lines[0].replace(";", ",").split(",")[-1].strip('" ') == "reject":  # as `demur fit` takes it
            lines = [line.replace(";", ",").partition(",")[2] for line in lines[1:]]
        rows = [_numbers(line, f"{cost_matrix}, line {i}") for i, line in enumerate(lines, 1)]
        if len({len(row) for row in rows}) != 1:
            raise CallError(f"the lines of {cost_matrix} are not equally long.")
        import numpy as np

        return np.array(rows)
    prices = _numbers(cost, "--cost")
    return prices[0] if len(prices) == 1 else prices


def _numbers(text: str, where: str) -> list[float]:
    try:
        return [float(part) for part in text.replace(";", ",").split(",")]
    except ValueError:
        raise CallError(f"{where}: {text.strip()!r} is not a number, or numbers with commas between them.") from None


def _number_or_name(beta: str | None) -> float | str | None:
    try:
        return None if beta is None else float(beta)
    except ValueError:
        return beta


def _subject(name: str, rule: Any, options: ByName) -> Any:
    """Return the loss with its rule and with hyper-parameters replaced, or refuse one it does not have."""
    from demur.losses import resolve

    loss = resolve(name, rule=rule)
    fields = {field.name for field in dataclasses.fields(loss)}
    for option in options:
        if option not in fields:
            raise CallError(f"{loss.name} has no {option}; leave --{option} out.")
    return dataclasses.replace(loss, **options) if options else loss


def _with_kinks(loss: Any) -> Any:
    from demur.losses import FunctionLoss

    if not isinstance(loss, FunctionLoss):
        raise CallError(f"{loss.name} says itself whether it has kinks; leave --kinks out.")
    return dataclasses.replace(loss, differentiable=False)


def _bounds(report: Any, loss: Any) -> dict[str, list[float]] | None:
    """Return the theorem's bound and the tightest one at a few excesses, where there is a theorem."""
    if report.bound is None:
        return None
    from demur.theory import calibration_function

    excesses = list(EXCESSES)
    xi = calibration_function(loss, report.n_classes, report.cost)
    return {
        "zero_one_c_excess": excesses,
        "theorem": report.bound.xi(excesses).tolist(),
        "tightest": xi(excesses).tolist(),
    }


def _bound_lines(bounds: dict[str, list[float]] | None) -> list[str]:
    if bounds is None:
        return []
    lines = ["  to lose this much 0-1-c risk, the surrogate must lose at least (theorem; tightest, certified)"]
    rows = zip(bounds["zero_one_c_excess"], bounds["theorem"], bounds["tightest"], strict=True)
    return lines + [f"    {z:<6g} {theorem:>10.4g} {tightest:>10.4g}" for z, theorem, tightest in rows]


def _draw(file: Path, loss: Any, n_classes: int, cost: float, outputs: int | None) -> None:
    try:
        from demur.theory import pictures
    except ImportError as error:
        raise CallError("--figure needs matplotlib: pip install 'demur[plot]'.") from error
    pictures.draw_check(loss, n_classes, cost, outputs=outputs).savefig(file, dpi=150)
