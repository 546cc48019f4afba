"""``demur check`` and ``demur methods``: whether a loss is calibrated for rejection, and the list of all losses."""

import dataclasses
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from demur.cli.console import note, print_json, print_table, say
from demur.cli.options import OUTPUT, AsJson, panel
from demur.errors import InputError, MissingExtraError

EXIT_CODES = {"calibrated": 0, "refuted": 3, "inconclusive": 4}
EXCESSES = (0.05, 0.1, 0.2)
"""The 0-1-c excesses at which the bounds are printed."""

_Cost = Annotated[
    str, typer.Option("--cost", "-c", help="Cost of rejecting (a mistake costs 1), or one per class: 0.1,0.3,0.3.")
]
_Matrix = Annotated[
    Path | None, typer.Option(help="Cost matrix file: K rows of K + 1 costs; the last is for rejecting.")
]
_RULE, _LOSS = panel("Plain functions"), panel("Loss parameters")


def check(
    loss: Annotated[str, typer.Argument(help="Registered loss (see demur methods), file.py:name or module:name.")],
    classes: Annotated[int, typer.Option("--classes", "-k", help="Number of classes K.")] = 3,
    cost: _Cost = "0.2",
    cost_matrix: _Matrix = None,
    seconds: Annotated[float, typer.Option(help="CPU seconds after which the search stops.")] = 60.0,
    outputs: Annotated[int | None, _RULE(help="Number of scores.", show_default="one per class")] = None,
    rule: Annotated[
        str | None, _RULE(help="Decision rule: softmax, rejector, reject-score or file.py:function.")
    ] = None,
    kinks: Annotated[bool, _RULE("--kinks", help="The function is not differentiable everywhere.")] = False,
    alpha: Annotated[float | None, _LOSS(help="alpha of a pairwise loss.")] = None,
    beta: Annotated[str | None, _LOSS(help="beta of a pairwise loss: a number, acc, rej or mean.")] = None,
    tau: Annotated[float | None, _LOSS(help="Threshold tau of a hinge loss.")] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Find the rule under which the loss is calibrated.")] = False,
    latex: Annotated[Path | None, OUTPUT(help="LaTeX proof to write; a counterexample also gets a .py script.")] = None,
    figure: Annotated[Path | None, OUTPUT(help="Plot of the decisions and the bound to write.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check whether a loss is calibrated for rejection, and show its excess risk bound.

    Exit code 0: calibrated. 3: refuted. 4: inconclusive. 2: wrong arguments.

    Example: demur check apc+log --classes 8 --cost 0.2
    """
    costs: Any = _costs(cost) if cost_matrix is None else _matrix(cost_matrix)
    from demur.theory import calibration_function, check_calibration

    subject = _changed(
        loss, rule, {"alpha": alpha, "beta": beta, "tau": tau, "differentiable": False if kinks else None}
    )
    report = check_calibration(subject, classes, costs, outputs=outputs, seconds=seconds)
    repaired = report.repair() if repair else None
    bounds = None
    if report.bound is not None:
        tightest = calibration_function(subject, report.n_classes, costs)(EXCESSES).tolist()
        theorem = report.bound.xi(EXCESSES).tolist()
        bounds = {"zero_one_c_excess": list(EXCESSES), "theorem": theorem, "tightest": tightest}
    if latex is not None:
        latex.write_text(report.latex(), encoding="utf-8")
        if report.refuted:
            try:
                latex.with_suffix(".py").write_text(report.script(), encoding="utf-8")
            except InputError as error:
                note(str(error))
    if figure is not None:
        _draw(figure, subject, classes, costs, outputs)
    if as_json:
        print_json({**report.as_dict(), "tightest": bounds, "repair": repaired and repaired.as_dict()})
    else:
        say(str(report))
        if bounds is not None:
            say("  to lose this much 0-1-c risk, the surrogate must lose at least (theorem; tightest, certified)")
            for row in zip(*bounds.values(), strict=True):
                say("    {:<6g} {:>10.4g} {:>10.4g}".format(*row))
        if repaired is not None:
            say(f"\n{repaired}")
    if rule is None and outputs == classes + 1:
        note(f"no --rule was given; score {outputs} was used as the score of declining (reject-score).")
    raise typer.Exit(EXIT_CODES[report.verdict])


def _draw(figure: Path, loss: Any, n_classes: int, cost: Any, outputs: int | None) -> None:
    """Write the plot of a check."""
    try:
        from demur.theory import pictures
    except ImportError as error:
        raise MissingExtraError("--figure needs matplotlib: pip install 'demur[plot]'.") from error
    drawn = pictures.draw_check(loss, n_classes, cost, outputs=outputs)
    try:
        drawn.savefig(figure, dpi=150)
    except ValueError as error:  # the suffix is of no known format
        raise InputError(f"--figure {figure}: {error}.") from error


def _changed(loss: str, rule: str | None, changes: dict[str, Any]) -> Any:
    """Return the loss with the given rule and parameters."""
    from demur.losses import resolve
    from demur.losses.registry import load_object

    given: Any = load_object(rule) if rule is not None and ":" in rule else rule
    subject = resolve(loss, rule=given)
    with suppress(TypeError, ValueError):  # it is not given, or the name of a side, which the loss checks
        changes["beta"] = float(changes["beta"])
    changes = {name: value for name, value in changes.items() if value is not None}
    for name in changes.keys() - {field.name for field in dataclasses.fields(subject)}:
        option = "kinks" if name == "differentiable" else name
        raise InputError(f"{subject.name} has no {option}; leave --{option} out.")
    return dataclasses.replace(subject, **changes)


def _costs(text: str) -> float | list[float]:
    """Return one number, or several that are separated by commas."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--cost: {text!r} is not a number, or numbers with commas between them.") from None
    return numbers[0] if len(numbers) == 1 else numbers


def _matrix(file: Path) -> Any:
    """Return a cost matrix; the header and the class names of a file for ``demur fit`` are skipped."""
    import numpy as np

    with file.open() as lines:
        header = lines.readline().split(",")
    named = header[-1].strip('" \n') == "reject"
    columns = range(1, len(header)) if named else None
    try:
        return np.loadtxt(file, delimiter=",", ndmin=2, skiprows=int(named), usecols=columns)
    except ValueError as error:
        raise InputError(f"{file} is not a matrix of numbers with commas between them: {error}") from error


def methods(
    own: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE.PY:CLASS]...", help="Your own losses to include; their files are executed."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List all losses: family, whether calibrated and why, whether a new cost needs a refit.

    Example: demur methods
    """
    from demur.losses import available, get, resolve

    # Running a file may register its losses: ask for what is available afterwards.
    losses = {loss.name: loss for loss in map(resolve, own or [])}
    losses |= {name: get(name) for name in available() if name not in losses}
    rows = []
    for name, loss in losses.items():
        two, three = loss.calibrated_for(2), loss.calibrated_for(3)
        row: dict[str, Any] = {
            "name": name,
            "family": loss.family,
            "classes": "2" if loss.binary_only else "any",
            "calibrated": "yes" if two and (three or loss.binary_only) else "K = 2 only" if two else "no",
            "refit_when_cost_changes": loss.trained_for_cost,
            "why": loss.why,
            "paper": loss.equation,
        }
        rows.append(row)
    rows.sort(key=lambda row: (row["classes"] == "2", row["family"] != "confidence", row["family"], row["name"]))
    if as_json:
        print_json(rows)
        return
    cells = [[*list(row.values())[:4], "yes" if row["refit_when_cost_changes"] else "no"] for row in rows]
    headings = ("method", "family", "classes", "calibrated", "refit for new c")
    print_table("Losses that demur can train with", headings, cells)
    say("Why, and where in the paper")
    for (why, paper), group in groupby(rows, key=lambda row: (row["why"], row["paper"])):
        say(f"  {', '.join(row['name'] for row in group)}: {why} ({paper})")
    say(
        "\ncalibrated: with enough data, training leads to Chow's decisions, answer iff max eta > 1 - c, "
        "where eta are the true class probabilities and c is the cost of rejecting.\n"
        "refit for new c: whether another cost needs another training."
    )
