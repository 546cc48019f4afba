"""``demur fit``: from a table to a model with a reject option."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from demur.cli.console import (
    about,
    check_free,
    check_new_model,
    is_watched,
    note,
    print_calls,
    print_evaluation,
    print_fit,
    print_json,
    say,
    share,
)
from demur.cli.options import (
    DATA,
    DECISION,
    MODEL,
    VALIDATION,
    AsJson,
    Cost,
    Coverage,
    DayFirst,
    DecimalSign,
    Delimiter,
    Delta,
    Drop,
    Force,
    Labels,
    MaxRisk,
    OutFolder,
    Report,
    TimeBudget,
    panel,
    read_expert_options,
    read_limits,
    read_services,
)
from demur.errors import InputError

if TYPE_CHECKING:
    from demur.rules import Rule
    from demur.tabular import Evaluation, FittedFile

__all__ = ["fit", "rule_of"]

EXPERTS = panel("Experts")
CASCADE = panel("Cascade")
_EXCLUDES = {
    "proba": ("data", "model", "dayfirst", "time_split", "expert", "risk_group", "text", "out_of_scope"),
    "answers": ("data", "proba", "model", "expert", "keep", "text", "out_of_scope"),
    "expert": ("out_of_scope", "out_of_scope_share", "cost", "coverage", "max_risk", "cost_matrix"),
    "cost_matrix": ("cost", "coverage", "max_risk"),
    "calls": (
        *("data", "proba", "answers", "model", "expert", "cost", "coverage", "max_risk", "cost_matrix"),
        *("dayfirst", "keep", "drop", "report", "labels"),
    ),
    "mistake": ("budget",),
}
_ONLY_WITH = {
    "proba_kind": "proba",
    "all_classes": "proba",
    "calibration": "proba",
    "answers": "answer",
    "answer": "answers",
    "confidence": "answers",
    "capacity": "expert",
    "risk_group": "max_risk",
    **{"calls": "service", "service": "calls", "human": "calls", "mistake": "calls", "budget": "calls"},
}

Data = Annotated[str | None, typer.Argument(help="CSV, Parquet or Arrow file, or - for stdin.")]
Target = Annotated[str, DATA("--target", "-t", help="Column to predict.")]
Proba = Annotated[str | None, DATA(help="Table of class probabilities.")]
ProbaKind = Annotated[str | None, DATA(help="Kind of numbers in --proba.", show_default="detected")]
AllClasses = Annotated[bool, DATA("--all-classes", help="Include classes without rows.")]
Answers = Annotated[str | None, DATA(help="Table of stored answers.")]
Answer = Annotated[list[str] | None, DATA(metavar="COLUMN", help="Answer column or 'sample_*'.")]
Confidence = Annotated[str | None, DATA(metavar="COLUMN", help="Column of confidences.")]
Keep = Annotated[list[str] | None, DATA(metavar="COLUMN", help="Column that must be used.")]
Text = Annotated[list[str] | None, DATA(metavar="COLUMN", help="Column of text.", show_default="detected")]
OutOfScope = Annotated[str | None, DATA(metavar="LABEL", help="Label of out-of-scope rows.")]
OutOfScopeShare = Annotated[
    float | None,
    DECISION(help="Expected share of out-of-scope rows.", show_default="0.1 for text", callback=share(zero=True)),
]
Model = Annotated[
    str | None,
    MODEL("--model", "-m", help="auto, text, lr, hgb, rf, et, lgbm, cat, nn, pnn or a loss.", show_default="auto"),
]
Novelty = Annotated[str, MODEL(help="Decline unusual rows: auto, off, or a rate.")]
Calibration = Annotated[str | None, MODEL(help="With --proba: temperature, isotonic, sigmoid, none.")]
Seed = Annotated[int, MODEL(help="Random seed.")]
RiskGroup = Annotated[str | None, DECISION(help="Guarantee each group of this column.")]
CostTable = Annotated[Path | None, DECISION(help="Table of costs, instead of --cost.")]
Experts = Annotated[list[str] | None, EXPERTS(metavar="NAME=COLUMN:PRICE", help="Column of past answers, and price.")]
Limits = Annotated[list[str] | None, EXPERTS(metavar="NAME=LIMIT", help="Maximum rows, or share, per expert.")]
Calls = Annotated[str | None, CASCADE(help="Table of stored calls.")]
Services = Annotated[list[str] | None, CASCADE(metavar="NAME=ANSWER:CONFIDENCE:PRICE", help="Columns of one service.")]
Human = Annotated[float | None, CASCADE(help="Price of asking a person.")]
Mistake = Annotated[float | None, CASCADE(help="Cost of a wrong answer.")]
Budget = Annotated[float | None, CASCADE(help="Mean amount spent per row.")]
Test = Annotated[Path | None, VALIDATION(help="Table to evaluate the model on.")]
Holdout = Annotated[float, VALIDATION(help="Share of rows held out without --test.", callback=share(zero=True))]
GroupSplit = Annotated[str | None, VALIDATION(help="Column of groups that are never split.")]
TimeSplit = Annotated[str | None, VALIDATION(help="Column of times: hold out the latest rows.")]


def fit(
    data: Data = None,
    *,
    target: Target = "",
    labels: Labels = None,
    proba: Proba = None,
    proba_kind: ProbaKind = None,
    all_classes: AllClasses = False,
    answers: Answers = None,
    answer: Answer = None,
    confidence: Confidence = None,
    drop: Drop = None,
    keep: Keep = None,
    text: Text = None,
    out_of_scope: OutOfScope = None,
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
    out_of_scope_share: OutOfScopeShare = None,
    expert: Experts = None,
    capacity: Limits = None,
    calls: Calls = None,
    service: Services = None,
    human: Human = None,
    mistake: Mistake = None,
    budget: Budget = None,
    test: Test = None,
    holdout: Holdout = 0.2,
    group_split: GroupSplit = None,
    time_split: TimeSplit = None,
    out: OutFolder,
    report: Report = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Train a model that declines where answering would cost more than declining.

    Some rows are held out for evaluation. With --expert, the model learns from
    past answers which expert to ask about each row. With --proba, only the
    calibration and the decision rule are fitted (--proba-kind: probabilities,
    percentages, log-probabilities, logits or votes). With --answers, the model
    learns how often another model's answer is right, given its confidence. With
    --calls, it learns which service to ask first and whether to ask the next one,
    or a person who is always right (--human); PRICE is a number or a column.
    --model file.py:Class trains your own loss. --drop, --keep, --text, --answer,
    --expert, --capacity and --service may be repeated.

    Example: demur fit data.csv --target y --cost 0.2 --out model/

    Example: demur fit data.csv --target y --expert nurse=nurse_says:0.05 -o m/

    Example: demur fit --answers llm.csv --answer label --confidence p -t y -o m/
    """
    given = dict(locals())
    _check(given)
    if calls is not None:
        _fit_calls(calls, given)
        return
    source, target = answers or proba or data or "", target or "label"
    options = _options(given)
    check_new_model(out, force)
    from demur.tabular import fit_answers, fit_file, fit_proba

    fitting = fit_answers if answers else fit_proba if proba else fit_file
    fitted = fitting(source, target, **options)
    judged = _save(fitted, out, report, title=f"{target} from {source}", data=source, force=force)
    _print_fitted(fitted, judged, source, given)


def _print_fitted(fitted: "FittedFile", judged: "Evaluation | None", source: str, given: Mapping[str, Any]) -> None:
    """Print what was fitted, how good it is, and what was written."""
    out, report = given["out"], given["report"]
    for sentence in fitted.notes:
        note(sentence)
    if given["as_json"]:
        found = {"folder": str(out), "seconds": fitted.seconds, "notes": fitted.notes, **fitted.model.facts}
        print_json({**found, "evaluation": None if judged is None else judged.to_json()})
        return
    print_fit(fitted.model, source, fitted.seconds)
    if judged is not None:
        print_evaluation(judged, f"on {judged.n_rows:,} {'other' if given['test'] else 'held-out'} rows")
    else:
        say(" ".join(filter(None, [fitted.model.explain(), "The model was not evaluated: no rows were held out."])))
    written = f"Wrote {out}" + (f" and {report}" if report else "")
    say(f"{written}. Next: demur predict {out} NEW.csv --out decisions.csv")


def _fit_calls(calls: str, given: Mapping[str, Any]) -> None:
    """Fit a cascade, write it, and print what it costs on rows held out."""
    services, out = read_services(given["service"]), given["out"]
    if given["mistake"] is None and given["budget"] is None:
        raise InputError(
            "--calls needs --mistake, the cost of a mistake, or --budget, the mean amount to spend per row."
        )
    check_new_model(out, given["force"])
    from demur.deploy import save
    from demur.tabular import evaluate_calls, fit_calls

    files = ("test", "holdout", "group_split", "time_split", "delimiter", "decimal", "seed")
    options = {name: given[name] for name in (*files, "human", "mistake", "budget")}
    fitted = fit_calls(calls, given["target"], services, **options)
    save(fitted.model, out, overwrite=given["force"])
    held_out = fitted.held_out
    judged = None if held_out is None else evaluate_calls(fitted.model, held_out, where=fitted.where)
    for sentence in fitted.notes:
        note(sentence)
    if given["as_json"]:
        found = {"folder": str(out), "seconds": fitted.seconds, "notes": fitted.notes, **fitted.model.facts}
        print_json({**found, "evaluation": None if judged is None else judged.to_json()})
        return
    facts = fitted.model.facts
    say(f"{calls}: a cascade from {facts['rows']:,} rows of {len(facts['classes']):,} classes, {fitted.seconds:.1f} s.")
    say(f"  {fitted.model.explain()}")
    if judged is not None:
        print_calls(judged, f"of {given['test']}" if given["test"] else "held out")
    say(f"Wrote {out}. Next: demur predict {out} NEW.csv --out next_calls.csv")


def _check(given: Mapping[str, Any]) -> None:
    """Refuse options that cannot be used together, before any time is spent."""
    flags = {name: "DATA" if name == "data" else f"--{name.replace('_', '-')}" for name in given}
    for name, others in _EXCLUDES.items():
        for other in others:
            if given[name] is not None and given[other] is not None:
                raise InputError(f"{flags[name]} and {flags[other]} cannot be given together: leave one out.")
    for name, other in _ONLY_WITH.items():
        if given[name] not in (None, False) and given[other] is None:
            raise InputError(f"{flags[name]} needs {flags[other]}: give both, or leave {flags[name]} out.")
    if all(given[name] is None for name in ("data", "proba", "answers", "calls")):
        raise InputError("no data was given: give a table, as in demur fit data.csv, or --proba, --answers or --calls.")
    if not given["target"] and given["labels"] is None:
        raise InputError("no target was given: name its column with --target, or give a file with --labels.")
    if given["report"] is not None:
        if given["test"] is None and not given["holdout"]:
            raise InputError("--report needs rows to evaluate the model on: give --test or a --holdout above 0.")
        check_free(given["report"], "--report", given["force"])


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of ``FitOptions`` that the command line gives."""
    names = ("labels", "test", "holdout", "group_split", "delimiter", "decimal", "seed")
    options = {name: given[name] for name in names}
    options["cost"] = 0.2 if given["cost"] is None else given["cost"]
    options |= {"keep": given["keep"] or (), "drop": given["drop"] or ()}
    options["rule"] = rule_of(*(given[name] for name in ("cost", "coverage", "max_risk", "delta")))
    if given["cost_matrix"] is not None:
        from demur.tabular.fitting import read_cost_matrix

        options["rule"] = partial(read_cost_matrix, given["cost_matrix"])
    if given["proba"] is not None:
        calibration = None if given["calibration"] == "none" else given["calibration"] or "auto"
        options |= {"kind": given["proba_kind"], "all_classes": given["all_classes"]}
        return options | {"calibration": calibration}
    options |= {name: given[name] for name in ("risk_group", "time_split", "dayfirst")}
    if given["answers"] is not None:
        return options | {name: given[name] for name in ("answer", "confidence")}
    limits = read_limits(given["capacity"]) if given["capacity"] else {}
    return options | {
        "model": given["model"] or "auto",
        "text": given["text"] or (),
        "out_of_scope": given["out_of_scope"],
        "out_of_scope_share": given["out_of_scope_share"],
        "novelty": _novelty_rate(given["novelty"]),
        "time_budget": given["time_budget"] or None,
        "verbose": int(is_watched()),
        "experts": read_expert_options(given["expert"]) if given["expert"] else None,
        "capacity": {name: limit for name, limit in limits.items() if limit is not None} or None,
    }


def _novelty_rate(novelty: str) -> float | str | None:
    """Return the rate of false alarms that --novelty asks for."""
    if novelty in ("auto", "off"):
        return "auto" if novelty == "auto" else None
    try:
        return float(novelty)
    except ValueError:
        raise InputError(f"--novelty must be auto, off or a share such as 0.01, got {novelty!r}.") from None


def rule_of(cost: float | None, coverage: float | None, max_risk: float | None, delta: float) -> "Rule | None":
    """Return the rule that the options ask for; None for Chow's rule at a cost."""
    options = {"--cost": cost, "--coverage": coverage, "--max-risk": max_risk}
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} are alternatives: give only one of them.")
    from demur.guarantees import Coverage, RiskControl

    if coverage is not None:
        return Coverage(coverage)
    return None if max_risk is None else RiskControl(max_risk, delta)


def _save(
    fitted: "FittedFile", out: Path, report: Path | None, *, title: str, data: str, force: bool
) -> "Evaluation | None":
    """Evaluate the model, write it, and a report where one is wanted."""
    from demur.deploy import Reference, save

    if report is not None and fitted.held_out is None:
        raise InputError(f"{data} has too few rows to hold some out for --report: give --test.")
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
