"""``demur fit``: from a table to a model with a reject option."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from demur.cli.console import (
    CallError,
    about,
    check_free,
    check_share,
    console,
    is_watched,
    note,
    print_evaluation,
    print_fit,
    warnings_as_notes,
    wrong_call_if_refused,
)
from demur.cli.options import (
    AsJson,
    Cost,
    DayFirst,
    DecimalSign,
    Delimiter,
    Delta,
    Drop,
    OutFolder,
    ReplaceModel,
    TimeBudget,
    panel,
    read_expert_options,
    read_limits,
)

if TYPE_CHECKING:
    from demur.rules import Rule
    from demur.tabular import Evaluation, FittedFile

__all__ = ["fit", "rule_of"]

_CONFLICTS = (
    ("--proba", "DATA", "a model is trained on DATA, or another model's probabilities are calibrated"),
    ("--proba", "--model", "no model is trained on probabilities"),
    ("--proba", "--dayfirst", "probabilities are not dates"),
    ("--proba", "--time-split", "no model is trained on probabilities"),
    ("--proba", "--expert", "experts need DATA with features"),
    ("--proba", "--risk-group", "--risk-group needs DATA with features"),
    ("--cost-matrix", "--cost", "the matrix holds all costs; leave --cost out"),
    ("--expert", "--cost", "each expert has a price of its own"),
    ("--expert", "--coverage", "each expert has a price of its own"),
    ("--expert", "--max-risk", "each expert has a price of its own"),
    ("--expert", "--cost-matrix", "each expert has a price of its own"),
)
_NEEDED = (
    ("--proba-kind", "--proba"),
    ("--calibration", "--proba"),
    ("--capacity", "--expert"),
    ("--risk-group", "--max-risk"),
)


Data: TypeAlias = Annotated[str | None, typer.Argument(help="CSV (also compressed), Parquet or Arrow file, or -.")]
Target: TypeAlias = Annotated[str, panel("Data", "--target", "-t", help="Column to predict.")]
Proba: TypeAlias = Annotated[str | None, panel("Data", help="Table of class probabilities, instead of DATA.")]
ProbaKind: TypeAlias = Annotated[str | None, panel("Data", help="Kind of numbers in --proba.", show_default="detected")]
Keep: TypeAlias = Annotated[
    list[str] | None, panel("Data", metavar="COLUMN", help="Column to use even if constant or an ID.")
]
Model: TypeAlias = Annotated[
    str | None,
    panel("Model", "--model", "-m", help="auto, lr, hgb, rf, et, lgbm, cat, nn, pnn or a loss.", show_default="auto"),
]
Novelty: TypeAlias = Annotated[str, panel("Model", help="Decline unusual rows: auto, off, or a rate.")]
Calibration: TypeAlias = Annotated[
    str | None, panel("Model", help="With --proba: temperature, isotonic, sigmoid, none.")
]
Seed: TypeAlias = Annotated[int, panel("Model", help="Random seed.")]
Coverage: TypeAlias = Annotated[float | None, panel("Decision", help="Share of rows to answer, instead of --cost.")]
MaxRisk: TypeAlias = Annotated[float | None, panel("Decision", help="Guaranteed error rate, instead of --cost.")]
RiskGroup: TypeAlias = Annotated[str | None, panel("Decision", help="Column; --max-risk holds in each group.")]
CostTable: TypeAlias = Annotated[Path | None, panel("Decision", help="Table of costs, instead of --cost.")]
Experts: TypeAlias = Annotated[
    list[str] | None, panel("Experts", metavar="NAME=COLUMN:PRICE", help="Column of past answers, price.")
]
Limits: TypeAlias = Annotated[
    list[str] | None, panel("Experts", metavar="NAME=LIMIT", help="Maximum number or share of rows.")
]
Test: TypeAlias = Annotated[Path | None, panel("Validation", help="Table to evaluate the model on.")]
Holdout: TypeAlias = Annotated[float, panel("Validation", help="Share of rows to hold out if no --test.")]
GroupSplit: TypeAlias = Annotated[str | None, panel("Validation", help="Column of groups that are never split.")]
TimeSplit: TypeAlias = Annotated[str | None, panel("Validation", help="Column of times: hold out the latest rows.")]
Report: TypeAlias = Annotated[Path | None, panel("Output", help="HTML report on the held-out rows.")]


def fit(
    data: Data = None,
    *,
    target: Target,
    proba: Proba = None,
    proba_kind: ProbaKind = None,
    drop: Drop = None,
    keep: Keep = None,
    delimiter: Delimiter = None,
    decimal: DecimalSign = None,
    dayfirst: DayFirst = None,
    model: Model = None,
    time_budget: TimeBudget = 90.0,
    novelty: Novelty = "auto",
    calibration: Calibration = None,
    seed: Seed = 0,
    cost: Cost = None,
    coverage: Coverage = None,
    max_risk: MaxRisk = None,
    delta: Delta = 0.05,
    risk_group: RiskGroup = None,
    cost_matrix: CostTable = None,
    expert: Experts = None,
    capacity: Limits = None,
    test: Test = None,
    holdout: Holdout = 0.2,
    group_split: GroupSplit = None,
    time_split: TimeSplit = None,
    out: OutFolder,
    report: Report = None,
    force: ReplaceModel = False,
    as_json: AsJson = False,
) -> None:
    """Train a model that declines to answer where answering would cost more than declining.

    Some rows are held out for evaluation. With --expert, the model learns from
    past answers which expert to ask about which rows. With --proba, only the
    calibration and the decision rule are fitted (--proba-kind: probabilities,
    percentages, log-probabilities, logits or votes). --model file.py:Class
    trains your own loss. --drop, --keep, --expert and --capacity may be repeated.

    Example: demur fit data.csv --target y --cost 0.2 --out model/

    Example: demur fit data.csv --target y --expert nurse=nurse_says:0.05 --out model/
    """
    given = dict(locals())
    source = _check(given)
    with wrong_call_if_refused(), warnings_as_notes():
        options = _options(given)
        options["rule"] = rule_of(cost, coverage, max_risk, delta, cost_matrix)
        from demur.deploy.model_folder import check_target
        from demur.guarantees import NoGuaranteeError
        from demur.tabular import fit_file, fit_proba

        check_target(out, overwrite=force)
        try:
            fitted = (fit_file if proba is None else fit_proba)(source, target, **options)
        except NoGuaranteeError as error:
            raise CallError(_more_rows(str(error), holdout if test is None else 0.0)) from error
        judged = _save(fitted, out, report, title=f"{target} from {source}", data=source, force=force)
    for sentence in fitted.notes:
        note(sentence)
    if as_json:
        found = {"folder": str(out), "seconds": fitted.seconds, "notes": fitted.notes, **fitted.model.facts}
        typer.echo(json.dumps({**found, "evaluation": None if judged is None else judged.to_json()}))
        return
    print_fit(fitted.model, source, fitted.seconds)
    _print_judged(fitted, judged, f"{'other' if test else 'held-out'} rows")
    written = f"Wrote {out}" + (f" and {report}" if report and judged is not None else "")
    console.print(f"{written}. Next: demur predict {out} NEW.csv --out decisions.csv", markup=False, soft_wrap=True)


def _check(given: Mapping[str, Any]) -> str:
    """Return the table to learn from, or refuse options before any time is spent."""
    names = {_spelled(name) for name, value in given.items() if value is not None}
    _check_together(names)
    source: str | None = given["proba"] or given["data"]
    if source is None:
        raise CallError("there is nothing to learn from: give a table, as in demur fit data.csv, or --proba.")
    check_share("--holdout", given["holdout"])
    if given["report"] is not None and given["test"] is None and not given["holdout"]:
        raise CallError("--report needs rows to evaluate the model on: give --test or a --holdout above 0.")
    check_free(given["out"], "--out", given["force"])
    if given["report"] is not None:
        check_free(given["report"], "--report", given["force"], is_file=True)
    if given["calibration"] not in (None, "temperature", "isotonic", "sigmoid", "none"):
        raise CallError(f"--calibration must be temperature, isotonic, sigmoid or none, got {given['calibration']!r}.")
    return source


def _spelled(name: str) -> str:
    return "DATA" if name == "data" else f"--{name.replace('_', '-')}"


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of ``FitOptions`` that the command line gives."""
    shared = ("test", "holdout", "group_split", "delimiter", "decimal", "seed")
    options = {name: given[name] for name in shared}
    options["cost"] = 0.2 if given["cost"] is None else given["cost"]
    options |= {"keep": given["keep"] or (), "drop": given["drop"] or ()}
    if given["proba"] is not None:
        calibration = None if given["calibration"] == "none" else given["calibration"] or "auto"
        return options | {"kind": given["proba_kind"], "calibration": calibration}
    experts = read_expert_options(given["expert"]) if given["expert"] else None
    limits = (read_limits(given["capacity"]) if given["capacity"] else None) or {}
    return options | {
        "model": given["model"] or "auto",
        "novelty": _novelty_rate(given["novelty"]),
        "risk_group": given["risk_group"],
        "time_split": given["time_split"],
        "dayfirst": given["dayfirst"],
        "time_budget": given["time_budget"] or None,
        "verbose": int(is_watched()),
        "experts": experts,
        "capacity": {name: limit for name, limit in limits.items() if limit is not None} or None,
    }


def _print_judged(fitted: "FittedFile", judged: "Evaluation | None", rows: str) -> None:
    """Print the evaluation, or what the rule says where there is none."""
    if judged is not None:
        print_evaluation(judged, f"on {judged.n_rows:,} {rows}")
        return
    if words := fitted.model.explain():
        console.print(words, markup=False)
    console.print("It was not judged: no rows were held out.")


def _check_together(given: set[str]) -> None:
    """Refuse options that exclude each other, and options that need another one."""
    for one, other, why in _CONFLICTS:
        if {one, other} <= given:
            raise CallError(f"{one} and {other} cannot be given together: {why}.")
    for one, other in _NEEDED:
        if one in given and other not in given:
            raise CallError(f"{one} needs {other}: give both, or leave {one} out.")


def _novelty_rate(novelty: str) -> float | str | None:
    """Return the rate of false alarms that --novelty asks for."""
    if novelty in ("auto", "off"):
        return "auto" if novelty == "auto" else None
    try:
        rate = float(novelty)
    except ValueError:
        raise CallError(f"--novelty must be auto, off or a share such as 0.01, got {novelty!r}.") from None
    check_share("--novelty", rate, zero=False)
    return rate


def rule_of(
    cost: float | None,
    coverage: float | None,
    max_risk: float | None,
    delta: float,
    cost_matrix: Path | None = None,
) -> "Rule | Callable[[list[str]], Rule] | None":
    """Return the rule that the options ask for; None for Chow's rule at a cost."""
    options = {"--cost": cost, "--coverage": coverage, "--max-risk": max_risk, "--cost-matrix": cost_matrix}
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise CallError(f"{' and '.join(given)} are different ways to choose what to decline: give one of them.")
    check_share("--cost", cost, what="price")
    check_share("--coverage", coverage, zero=False, one=True)
    check_share("--max-risk", max_risk, zero=False)
    check_share("--delta", delta, zero=False)
    from demur.guarantees import Coverage, RiskControl

    if coverage is not None:
        return Coverage(coverage)
    if max_risk is not None:
        return RiskControl(max_risk, delta)
    if cost_matrix is None:
        return None
    from demur.tabular.fitting import read_cost_matrix

    return lambda classes: read_cost_matrix(cost_matrix, classes)


def _more_rows(refusal: str, holdout: float) -> str:
    """Return the refusal with the names of the options, and how to get more rows for a guarantee."""
    words = refusal.replace("target_risk", "--max-risk").replace("delta", "--delta").rstrip(".")
    kept = f", after --holdout kept {holdout:.0%} back; --holdout 0 or --test FILE leaves more" if holdout else ""
    return f"{words}. A fifth of the rows is set aside for the guarantee{kept}."


def _save(
    fitted: "FittedFile", out: Path, report: Path | None, *, title: str, data: str, force: bool
) -> "Evaluation | None":
    """Evaluate the model, write it, and a report where one is wanted."""
    from demur.deploy import Reference, save

    if report is not None and fitted.held_out is None:
        raise CallError(f"{data} has too few rows to hold some out for --report: give --test.")
    judged = fitted.evaluate()
    if judged is not None:
        reference = Reference.of_evaluation(judged, is_probability=fitted.model.has_proba)
        fitted.model.facts["held_out"] = {"rows": judged.n_rows, **judged.to_json()["figures"]}
        fitted.model.facts["reference"] = reference.to_json()  # what demur monitor compares with
    save(fitted.model, out, overwrite=force)
    if report is not None and judged is not None:
        from demur.tabular import write_report

        write_report(judged, report, title=title, made=about(fitted.model, data), overwrite=force)
    return judged
