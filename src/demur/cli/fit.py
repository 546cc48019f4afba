"""``demur fit``: from a table to a model with a reject option."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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


def fit(
    data: Annotated[str | None, typer.Argument(help="CSV (also compressed), Parquet or Arrow file, or -.")] = None,
    *,
    target: Annotated[str, panel("Data", "--target", "-t", help="Column to predict.")],
    proba: Annotated[str | None, panel("Data", help="Instead of DATA: probabilities of a model, labels.")] = None,
    proba_kind: Annotated[
        str | None, panel("Data", help="Kind of numbers in --proba.", show_default="detected")
    ] = None,
    drop: Drop = None,
    keep: Annotated[list[str] | None, panel("Data", metavar="COLUMN", help="Column to use in any case.")] = None,
    delimiter: Delimiter = None,
    decimal: DecimalSign = None,
    dayfirst: DayFirst = None,
    model: Annotated[
        str | None,
        panel("Model", "--model", "-m", help="auto, lr, hgb, rf, et, lgbm, cat, nn, pnn, a loss.", show_default="auto"),
    ] = None,
    time_budget: TimeBudget = 90.0,
    novelty: Annotated[str, panel("Model", help="Decline unusual rows: auto, off, or a rate.")] = "auto",
    calibration: Annotated[
        str | None, panel("Model", help="With --proba: temperature, isotonic, sigmoid, none.")
    ] = None,
    seed: Annotated[int, panel("Model", help="Random seed.")] = 0,
    cost: Cost = None,
    coverage: Annotated[float | None, panel("Decision", help="Instead: share of rows to answer.")] = None,
    max_risk: Annotated[float | None, panel("Decision", help="Instead: guaranteed error rate of the answers.")] = None,
    delta: Delta = 0.05,
    risk_group: Annotated[str | None, panel("Decision", help="Column: --max-risk holds in each group.")] = None,
    cost_matrix: Annotated[Path | None, panel("Decision", help="Instead: table of costs by class and answer.")] = None,
    expert: Annotated[
        list[str] | None,
        panel("Experts", metavar="NAME=COLUMN:PRICE", help="Expert, past answers, price."),
    ] = None,
    capacity: Annotated[
        list[str] | None, panel("Experts", metavar="NAME=LIMIT", help="Most rows, or share, for an expert.")
    ] = None,
    test: Annotated[Path | None, panel("Validation", help="Table of other rows to judge the model on.")] = None,
    holdout: Annotated[float, panel("Validation", help="Share of rows to hold out, without --test.")] = 0.2,
    group_split: Annotated[str | None, panel("Validation", help="Column of groups that splits keep together.")] = None,
    time_split: Annotated[str | None, panel("Validation", help="Column of times: hold out the latest rows.")] = None,
    out: OutFolder,
    report: Annotated[Path | None, panel("Output", help="HTML report on the held-out rows.")] = None,
    force: ReplaceModel = False,
    as_json: AsJson = False,
) -> None:
    """Train a model that declines to answer where answering would cost more than declining.

    Rows to judge it on are held out first. With --proba, only calibration and the decision rule are fitted (kinds:
    probabilities, percentages, log-probabilities, logits, votes). With --expert, the model learns from past answers
    which expert to ask about which rows. --model file.py:Class is a loss of your own. --drop, --keep, --expert and
    --capacity may be repeated.

    Example: demur fit data.csv --target y --cost 0.2 --out model/

    Example: demur fit data.csv --target y --expert nurse=nurse_says:0.05 --out model/
    """
    given = {
        "DATA": data, "--proba": proba, "--proba-kind": proba_kind, "--calibration": calibration, "--model": model,
        "--dayfirst": dayfirst, "--time-split": time_split, "--expert": expert, "--capacity": capacity, "--cost": cost,
        "--coverage": coverage, "--max-risk": max_risk, "--cost-matrix": cost_matrix, "--risk-group": risk_group,
    }  # fmt: skip
    _check_together({name for name, value in given.items() if value is not None})
    source = proba or data
    if source is None:
        raise CallError("there is nothing to learn from: give a table, as in demur fit data.csv, or --proba.")
    check_share("--holdout", holdout)
    if report is not None and test is None and not holdout:
        raise CallError("--report needs rows to judge the model on: give --test or a --holdout above 0.")
    check_free(out, "--out", force)
    if report is not None:
        check_free(report, "--report", force, is_file=True)
    if calibration not in (None, "temperature", "isotonic", "sigmoid", "none"):
        raise CallError(f"--calibration must be temperature, isotonic, sigmoid or none, got {calibration!r}.")
    with wrong_call_if_refused(), warnings_as_notes():
        options: dict[str, Any] = {
            "cost": 0.2 if cost is None else cost,
            "rule": rule_of(cost, coverage, max_risk, delta, cost_matrix),
            "test": test,
            "holdout": holdout,
            "group_split": group_split,
            "keep": keep or (),
            "drop": drop or (),
            "delimiter": delimiter,
            "decimal": decimal,
            "seed": seed,
        }
        if proba is not None:
            options |= {"kind": proba_kind, "calibration": None if calibration == "none" else calibration or "auto"}
        else:
            limits = read_limits(capacity) or {}
            options |= {
                "model": model or "auto",
                "novelty": _novelty_rate(novelty),
                "risk_group": risk_group,
                "time_split": time_split,
                "dayfirst": dayfirst,
                "time_budget": time_budget or None,
                "verbose": int(is_watched()),
                "experts": read_expert_options(expert),
                "capacity": {name: limit for name, limit in limits.items() if limit is not None} or None,
            }
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
    if judged is not None:
        print_evaluation(judged, f"on {judged.n_rows:,} {'other' if test else 'held-out'} rows")
    else:
        if words := fitted.model.explain():
            console.print(words, markup=False)
        console.print("It was not judged: no rows were held out.")
    written = f"Wrote {out}" + (f" and {report}" if report and judged is not None else "")
    console.print(f"{written}. Next: demur predict {out} NEW.csv --out decisions.csv", markup=False, soft_wrap=True)


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
    from demur.tabular.fit_file import read_cost_matrix

    return lambda classes: read_cost_matrix(cost_matrix, classes)


def _more_rows(refusal: str, holdout: float) -> str:
    """Say in the command's words where the rows for a guarantee come from, and how to get more."""
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
