"""``demur fit``: from a table to a model with a reject option."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from demur.array_types import AnyMapping
from demur.cli.console import (
    about,
    before_refit,
    check_free,
    check_new_model,
    note,
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
    Ignore,
    Labels,
    MaxRisk,
    OutFolder,
    Repeatable,
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
    from demur.tabular import CallsEvaluation, Evaluation, FittedFile

EXPERTS = panel("Experts")
CASCADE = panel("Cascade")
_EXCLUDES = {
    "proba": ("data", "model", "dayfirst", "time_split", "expert", "risk_group", "text", "out_of_scope"),
    "answers": ("data", "proba", "model", "expert", "keep", "text", "out_of_scope"),
    "expert": ("out_of_scope", "out_of_scope_share", "cost", "coverage", "max_risk", "cost_matrix"),
    "cost_matrix": ("cost", "coverage", "max_risk"),
    "calls": (
        *("data", "proba", "answers", "model", "expert", "cost", "coverage", "max_risk", "cost_matrix", "dayfirst"),
        *("keep", "drop", "report", "labels"),
    ),
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
    "no_refit": "data",
    "scheduler": "data",
    **{"calls": "service", "service": "calls", "human": "calls", "mistake": "calls", "budget": "calls"},
}
_OWN_OPTIONS: dict[str, tuple[str, ...]] = {
    "data": (),
    "proba": ("all_classes",),
    "answers": ("answer", "confidence"),
    "calls": ("human", "mistake", "budget"),
}
"""Options of one fitting function that are not fields of ``FitOptions``."""

OutOfScopeShare = Annotated[
    float | None,
    DECISION(help="Expected share of out-of-scope rows.", show_default="0.1 for text", callback=share(zero=True)),
]
Model = Annotated[
    str | None,
    MODEL("--model", "-m", help="auto (default), text, lr, hgb, rf, et, lgbm, cat, nn, pnn, loss, file.py:Class."),
]
GuaranteeShare = Annotated[
    float | None, DECISION(help="Share of rows for the guarantee.", show_default="auto", callback=share())
]
Experts = Annotated[Repeatable, EXPERTS(metavar="NAME=COLUMN:PRICE", help="Column of past answers, and price.")]
Limits = Annotated[Repeatable, EXPERTS(metavar="NAME=LIMIT", help="Maximum rows, or share, for an expert.")]
Services = Annotated[Repeatable, CASCADE(metavar="NAME=ANSWER:CONFIDENCE:PRICE", help="Columns of one service.")]
Holdout = Annotated[float, VALIDATION(help="Share of rows to hold out, without --test.", callback=share(zero=True))]


def fit(
    data: Annotated[str | None, typer.Argument(help="CSV, Excel, JSON lines, Parquet or Arrow file, or -.")] = None,
    *,
    target: Annotated[str, DATA("--target", "-t", help="Column to predict.")] = "",
    drop: Drop = None,
    keep: Annotated[Repeatable, DATA(metavar="COLUMN", help="Column that must be used.")] = None,
    text: Annotated[Repeatable, DATA(metavar="COLUMN", help="Column of text.", show_default="detected")] = None,
    out_of_scope: Annotated[str | None, DATA(metavar="LABEL", help="Label of out-of-scope rows.")] = None,
    delimiter: Delimiter = None,
    decimal: DecimalSign = None,
    dayfirst: DayFirst = None,
    no_units: Annotated[bool, DATA("--no-units", help="Read '20 %' or '1.5 m' as text.")] = False,
    labels: Labels = None,
    proba: Annotated[str | None, DATA(help="Table of class probabilities.")] = None,
    proba_kind: Annotated[str | None, DATA(help="Kind of numbers in --proba.", show_default="detected")] = None,
    all_classes: Annotated[bool, DATA("--all-classes", help="Include classes without rows.")] = False,
    answers: Annotated[str | None, DATA(help="Table of stored answers.")] = None,
    answer: Annotated[Repeatable, DATA(metavar="COLUMN", help="Answer column or 'sample_*'.")] = None,
    confidence: Annotated[str | None, DATA(metavar="COLUMN", help="Column of confidences.")] = None,
    model: Model = None,
    preset: Annotated[str, MODEL(help="fast, default or best.")] = "default",
    time_budget: TimeBudget = 90.0,
    novelty: Annotated[str, MODEL(help="Decline unusual rows: auto, off, or a rate.")] = "auto",
    calibration: Annotated[str | None, MODEL(help="auto, temperature, isotonic, sigmoid, none.")] = None,
    seed: Annotated[int, MODEL(help="Random seed.")] = 0,
    scheduler: Annotated[str | None, MODEL(help="Train on Dask: address of a scheduler.")] = None,
    cost: Cost = None,
    coverage: Coverage = None,
    max_risk: MaxRisk = None,
    delta: Delta = None,
    guarantee_share: GuaranteeShare = None,
    risk_group: Annotated[str | None, DECISION(help="Guarantee each group of this column.")] = None,
    cost_matrix: Annotated[Path | None, DECISION(help="Table of costs, instead of --cost.")] = None,
    out_of_scope_share: OutOfScopeShare = None,
    test: Annotated[Path | None, VALIDATION(help="Table to evaluate the model on.")] = None,
    holdout: Holdout = 0.2,
    group_split: Annotated[str | None, VALIDATION(help="Column of groups that are never split.")] = None,
    time_split: Annotated[str | None, VALIDATION(help="Column of times: hold out the latest rows.")] = None,
    no_refit: Annotated[bool, VALIDATION("--no-refit", help="Do not fit again after the evaluation.")] = False,
    out: OutFolder,
    report: Report = None,
    ignore: Ignore = None,
    force: Force = False,
    as_json: AsJson = False,
    expert: Experts = None,
    capacity: Limits = None,
    calls: Annotated[str | None, CASCADE(help="Table of stored calls.")] = None,
    service: Services = None,
    human: Annotated[float | None, CASCADE(help="Price of asking a person.")] = None,
    mistake: Annotated[float | None, CASCADE(help="Cost of a wrong answer.")] = None,
    budget: Annotated[float | None, CASCADE(help="Mean amount to spend per row.")] = None,
) -> None:
    """Train a model that declines where answering would cost more than declining.

    The model is evaluated on held-out rows, and then fitted again on all rows.
    --model: lr is logistic regression; hgb, lgbm and cat are boosted trees; rf
    and et are forests; nn and pnn are networks. --expert learns which expert to
    ask. --proba fits only a calibration and a rule, to another model's outputs:
    probabilities, percentages, log-probabilities, logits or votes. --answers
    learns how often another model is right. --calls learns which service to ask
    first, and when to ask the next one, or a person (--human); PRICE is a number
    or a column. Options with COLUMN or NAME=... can be given several times.

    Example: demur fit data.csv --target y --cost 0.2 --out model/

    Example: demur fit --answers llm.csv --answer label --confidence p -t y -o m/
    """
    _fit(dict(locals()))


def _fit(given: AnyMapping) -> None:
    """Fit, evaluate and write a model, and print the evaluation."""
    _check(given)
    fitting = next((one for one in ("calls", "answers", "proba") if given[one] is not None), "data")
    source, options, out, report = given[fitting], _options(given, fitting), given["out"], given["report"]
    check_new_model(out, given["force"])
    from demur import tabular

    fit_function = getattr(tabular, f"fit_{fitting}".replace("data", "file"))
    with _dask_workers(given["scheduler"]):
        fitted: FittedFile = fit_function(source, given["target"] or "label", **options)
    judged = _save(fitted, source, given)
    for sentence in fitted.notes:
        note(sentence)
    if given["as_json"]:
        found = {"folder": str(out), "seconds": fitted.seconds, "notes": fitted.notes, **fitted.model.facts}
        print_json({**found, "evaluation": None if judged is None else judged.to_json()})
        return
    print_fit(fitted.model, source, fitted.seconds)
    if judged is not None:
        say("")
        print_evaluation(judged, f"on {judged.n_rows:,} {'other' if given['test'] else 'held-out'} rows")
        if fitted.judged is not None:
            say(f"These are the figures of {before_refit(fitted.model)}.")
    else:
        say(" ".join(filter(None, [fitted.model.explain(), "The model was not evaluated: no rows were held out."])))
    starved = fitted.model.facts.get("starved")
    if starved and (judged is None or fitted.judged is not None):  # otherwise a check has found it
        say(starved)
    written = f"Wrote {out}" + (f" and {report}" if report else "")
    say(f"{written}. Next: demur predict {out} NEW.csv --out decisions.csv")


@contextmanager
def _dask_workers(scheduler: str | None) -> Iterator[None]:
    """Fit candidates and folds on the workers of a scheduler, if one is given."""
    if scheduler is None:
        yield
        return
    from joblib import parallel_config

    from demur.workers import connect_dask

    with connect_dask(scheduler) as client, parallel_config(backend="dask", client=client):
        yield


def _check(given: AnyMapping) -> None:
    """Refuse options that cannot be used together, before any file is read."""
    flags = {name: "DATA" if name == "data" else f"--{name.replace('_', '-')}" for name in given}
    for name, others in _EXCLUDES.items():
        for other in others:
            if given[name] is not None and given[other] is not None:
                raise InputError(f"{flags[name]} and {flags[other]} cannot be given together: leave one out.")
    for name, other in _ONLY_WITH.items():
        if given[name] not in (None, False) and given[other] is None:
            raise InputError(f"{flags[name]} needs {flags[other]}: give both, or leave {flags[name]} out.")
    if given["guarantee_share"] is not None and given["max_risk"] is None and given["coverage"] is None:
        raise InputError("--guarantee-share needs --max-risk or --coverage: give one of them, or leave it out.")
    if all(given[name] is None for name in _OWN_OPTIONS):
        raise InputError("no data was given: give a table, as in demur fit data.csv, or --proba, --answers or --calls.")
    if not given["target"] and given["labels"] is None:
        raise InputError("no target was given: name its column with --target, or give a file with --labels.")
    if given["scheduler"] is not None and given["model"] not in (None, "auto"):
        from demur.estimators.candidates import candidate_named

        if candidate_named(given["model"]) is None:
            raise InputError(f"--scheduler is for auto and its candidates; {given['model']!r} is trained here.")
    if given["ignore"] is not None:
        from demur.tabular.checks import ignored_codes

        ignored_codes(given["ignore"])
    if given["report"] is not None:
        if given["test"] is None and not given["holdout"]:
            raise InputError("--report needs rows to evaluate the model on: give --test or a --holdout above 0.")
        inputs = (given[name] for name in (*_OWN_OPTIONS, "test", "labels", "cost_matrix"))
        check_free(given["report"], "--report", given["force"], *inputs)


def _options(given: AnyMapping, fitting: str) -> dict[str, Any]:
    """Return the arguments of the fitting function: fields of ``FitOptions`` and additional ones."""
    from demur.tabular.fitting import FitOptions, read_cost_matrix

    fields = given.keys() & FitOptions.__dataclass_fields__.keys()
    options = {name: given[name] for name in (*fields, *_OWN_OPTIONS[fitting]) if given[name] is not None}
    options |= {
        "units": not given["no_units"],
        "novelty": _novelty_rate(given["novelty"]),
        "rule": rule_of(*(given[name] for name in ("cost", "coverage", "max_risk", "delta"))),
        "refit": not given["no_refit"],
        "time_budget": given["time_budget"] or None,
        "verbose": True,
    }
    if given["calibration"] == "none":
        options["calibration"] = None
    if given["expert"]:
        options["experts"] = read_expert_options(given["expert"])
    if given["capacity"]:
        limits = read_limits(given["capacity"])
        options["capacity"] = {name: limit for name, limit in limits.items() if limit is not None}
    if given["cost_matrix"] is not None:
        options["rule"] = partial(read_cost_matrix, given["cost_matrix"])
    if fitting == "calls":
        options["services"] = read_services(given["service"])
    if fitting == "proba":
        options["kind"] = given["proba_kind"]
    return options


def _novelty_rate(novelty: str) -> float | str | None:
    """Read --novelty as a rate of false alarms."""
    if novelty in ("auto", "off"):
        return "auto" if novelty == "auto" else None
    try:
        return float(novelty)
    except ValueError:
        raise InputError(f"--novelty must be auto, off or a share such as 0.01, got {novelty!r}.") from None


def rule_of(cost: float | None, coverage: float | None, max_risk: float | None, delta: float | None) -> "Rule | None":
    """Return the rule that the options specify; None for Chow's rule at a cost."""
    options = {"--cost": cost, "--coverage": coverage, "--max-risk": max_risk}
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} are alternatives: give only one of them.")
    if delta is not None and coverage is None and max_risk is None:
        raise InputError("--delta needs --max-risk or --coverage: give one of them, or leave --delta out.")
    from demur.guarantees import Coverage, RiskControl

    if coverage is not None:
        return Coverage(coverage, delta)
    return None if max_risk is None else RiskControl(max_risk, 0.05 if delta is None else delta)


def _save(fitted: "FittedFile", data: str, given: AnyMapping) -> "Evaluation | CallsEvaluation | None":
    """Evaluate the model, and write it and, if requested, a report."""
    from demur.deploy import Reference, save
    from demur.tabular import Evaluation, write_report

    model, report = fitted.model, given["report"]
    judged = fitted.evaluate(importances=report is not None, ignored=given["ignore"])
    if report is not None and judged is None:
        raise InputError(f"{data} has too few rows to hold some out for --report: give --test.")
    if isinstance(judged, Evaluation):
        model.facts["held_out"] = {"rows": judged.n_rows, **judged.to_json()["figures"]}
        # What demur monitor compares with.
        model.facts["reference"] = Reference.of_evaluation(judged, is_probability=model.has_proba).to_json()
    save(model, given["out"], overwrite=given["force"])
    if report is not None and isinstance(judged, Evaluation):
        title, made = f"{model.target} from {data}", about(fitted.judged or model, data)
        if fitted.judged is not None:
            made["Figures"] = f"of {before_refit(model)}"
        write_report(judged, report, title=title, made=made, overwrite=given["force"])
    return judged
