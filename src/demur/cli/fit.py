"""``demur fit``: from a table to a model that declines well."""

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
    read_expert_options,
    read_limits,
)

if TYPE_CHECKING:
    from demur.rules import Rule
    from demur.tabular import Evaluation, FittedFile

__all__ = ["fit", "rule_of"]


def fit(
    target: Annotated[str, typer.Option("--target", "-t", help="The column to predict.")],
    out: OutFolder,
    data: Annotated[
        str | None, typer.Argument(help="A table: CSV (any delimiter, also compressed), Parquet, Arrow, or -.")
    ] = None,
    proba: Annotated[
        str | None,
        typer.Option(help="Instead of DATA: a table of what another model says of each class, with the labels."),
    ] = None,
    proba_kind: Annotated[
        str | None,
        typer.Option(
            help="With --proba: probabilities, percentages, log-probabilities, logits or votes, if not found by itself."
        ),
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option(help="With --proba: temperature (the default), isotonic, sigmoid or none."),
    ] = None,
    cost: Cost = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="auto, or of its candidates et, lr, hgb, rf, lgbm, cat, nn or pnn, a loss such as ce, or your own, "
            "file.py:Class. [default: auto]",
        ),
    ] = None,
    test: Annotated[Path | None, typer.Option(help="A table of other rows to judge the model on.")] = None,
    holdout: Annotated[float, typer.Option(help="Without --test: the share of rows kept back to judge it on.")] = 0.2,
    coverage: Annotated[float | None, typer.Option(help="Instead of a cost: the share of rows to answer.")] = None,
    max_risk: Annotated[
        float | None, typer.Option(help="Instead of a cost: the largest share of errors among the answers.")
    ] = None,
    delta: Delta = 0.05,
    cost_matrix: Annotated[
        Path | None,
        typer.Option(help="Instead of a cost: a table, a row per true class, a column per answer and reject."),
    ] = None,
    expert: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=COLUMN:PRICE",
            help="Instead of a cost: somebody to ask, the column with the answers so far, and the price of a question; "
            "may be repeated.",
        ),
    ] = None,
    capacity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LIMIT", help="The most rows of a table that an expert gets, or a share; may be repeated."
        ),
    ] = None,
    group_split: Annotated[
        str | None,
        typer.Option(help="A column that says which rows belong together: they stay on one side of every split."),
    ] = None,
    risk_group: Annotated[
        str | None, typer.Option(help="With --max-risk: a column such as the site; the promise holds in each group.")
    ] = None,
    novelty: Annotated[
        str,
        typer.Option(
            help="Decline rows unlike those of training: auto (only absurd ones), off, or the share of ordinary rows "
            "that may be declined by mistake, such as 0.01."
        ),
    ] = "auto",
    time_split: Annotated[
        str | None,
        typer.Option(help="A column of dates or numbers: train on the earlier rows, and judge on the latest."),
    ] = None,
    drop: Drop = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="A column to use although it looks useless; may be repeated.")
    ] = None,
    delimiter: Delimiter = None,
    decimal: DecimalSign = None,
    dayfirst: DayFirst = None,
    time_budget: TimeBudget = 90.0,
    seed: Annotated[int, typer.Option(help="Of what is drawn at random: rows to hold out, and training.")] = 0,
    report: Annotated[Path | None, typer.Option(help="Write a page about the held-out rows to this file.")] = None,
    force: ReplaceModel = False,
    as_json: AsJson = False,
) -> None:
    """Train a model that declines to answer when answering would cost more than asking.

    Rows to judge it on are held out first; rows with equal features stay on one side. With --proba, calibration and
    rule alone are learnt, from the probabilities, logits, log-probabilities or votes of another model. With --expert it
    learns from past answers who is right on which rows, and says whom to ask.

    Example: demur fit data.csv --target y --cost 0.2 --out model/

    Example: demur fit data.csv --target y --expert nurse=nurse_says:0.05 --expert consultant=cons_says:0.2 --out model/
    """
    data = _one_source(data, proba, proba_kind, calibration, model, dayfirst, time_split)
    check_share("--holdout", holdout)
    _check_places(out, report, force, has_rows=test is not None or holdout > 0)
    with wrong_call_if_refused(), warnings_as_notes():
        experts = read_expert_options(expert) if expert else None
        limits = read_limits(capacity) if capacity else None
        given = {
            "--cost": cost,
            "--coverage": coverage,
            "--max-risk": max_risk,
            "--cost-matrix": cost_matrix,
            "--proba": proba,
        }
        _check_experts(experts, limits, [option for option, value in given.items() if value is not None])
        rule = rule_of(cost, coverage, max_risk, delta, cost_matrix)
        if risk_group is not None and (max_risk is None or proba is not None):
            raise CallError("--risk-group is for a promise about the risk of a model that is trained: give --max-risk.")
        _check_header(data, target, delimiter)
        from demur.deploy.model_folder import check_target
        from demur.guarantees import NoGuaranteeError
        from demur.tabular import fit_file, fit_proba

        check_target(out, overwrite=force)
        options: dict[str, Any] = {
            "cost": 0.2 if cost is None else cost,
            "rule": rule,
            "test": test,
            "holdout": holdout,
            "group_split": group_split,
            "keep": keep or (),
            "drop": drop or (),
            "delimiter": delimiter,
            "decimal": decimal,
        }
        try:
            if proba is not None:
                learnt = None if calibration == "none" else calibration or "auto"
                fitted = fit_proba(data, target, kind=proba_kind, calibration=learnt, **options)
            else:
                options |= {
                    "novelty": _rate(novelty),
                    "risk_group": risk_group,
                    "time_split": time_split,
                    "dayfirst": dayfirst,
                    "time_budget": time_budget or None,
                    "seed": seed,
                    "verbose": int(is_watched()),
                }
                most = None if limits is None else {name: one for name, one in limits.items() if one is not None}
                options |= {"experts": experts, "capacity": most}
                fitted = fit_file(data, target, model=model or "auto", **options)
        except NoGuaranteeError as error:
            raise CallError(_more_rows(str(error), holdout if test is None else 0.0)) from error
        judged = _save(fitted, out, report, title=f"{target} from {data}", data=data, force=force)
    for sentence in fitted.notes:
        note(sentence)
    if as_json:
        found = {"folder": str(out), "seconds": fitted.seconds, "notes": fitted.notes, **fitted.model.facts}
        evaluation = None if judged is None else judged.to_json()
        typer.echo(json.dumps({**found, "evaluation": evaluation}))
        return
    print_fit(fitted.model, data, fitted.seconds)
    if judged is not None:
        print_evaluation(judged, f"on {judged.n_rows:,} {'other' if test else 'held-out'} rows")
    else:
        if words := fitted.model.explain():
            console.print(words, markup=False)
        console.print("It was not judged: no rows were held out.")
    written = f"Wrote {out}" + (f" and {report}" if report and judged is not None else "")
    console.print(f"{written}. Next: demur predict {out} NEW.csv --out decisions.csv", markup=False, soft_wrap=True)


def _rate(novelty: str) -> float | str | None:
    """Return the rate of false alarms that --novelty asks for."""
    if novelty in ("auto", "off"):
        return "auto" if novelty == "auto" else None
    try:
        rate = float(novelty)
    except ValueError:
        raise CallError(f"--novelty must be auto, off or a share such as 0.01, got {novelty!r}.") from None
    check_share("--novelty", rate, zero=False)
    return rate


def _check_experts(experts: object, limits: object, others: list[str]) -> None:
    """Refuse options that experts do not go with."""
    if experts is None and limits is not None:
        raise CallError("--capacity limits how many questions an expert gets: name the expert with --expert.")
    if experts is not None and "--proba" in others:
        raise CallError("--expert learns on which rows experts are right, from DATA with features: leave --proba out.")
    if experts is not None and others:
        raise CallError(
            f"{others[0]} says when to decline, and with --expert each expert has a price of its own: leave one of the "
            "two out."
        )


def _one_source(
    data: str | None,
    proba: str | None,
    proba_kind: str | None,
    calibration: str | None,
    model: str | None,
    dayfirst: bool | None,
    time_split: str | None,
) -> str:
    """Return the table to learn from, and refuse options that do not go with it."""
    if data is not None and proba is not None:
        raise CallError("give DATA to train a model, or --proba to take what another says of each class: not both.")
    if proba is not None:
        given = {"--model": model, "--dayfirst": dayfirst, "--time-split": time_split}
        named = [name for name, value in given.items() if value is not None]
        if named:
            raise CallError(f"{named[0]} is for training a model, and --proba trains none: leave it out.")
        known = ("temperature", "isotonic", "sigmoid", "none")
        if calibration is not None and calibration not in known:
            raise CallError(f"--calibration must be one of {', '.join(known)}, got {calibration!r}.")
        return proba
    if data is None:
        raise CallError("there is nothing to learn from: give a table, as in demur fit data.csv, or --proba.")
    for name, value in {"--proba-kind": proba_kind, "--calibration": calibration}.items():
        if value is not None:
            raise CallError(f"{name} is about a table of probabilities: give that with --proba.")
    return data


def _check_places(out: Path, report: Path | None, force: bool, *, has_rows: bool) -> None:
    """Refuse what cannot be written before any time is spent."""
    if report is not None and not has_rows:
        raise CallError("--report needs rows to judge the model on: give --test or a --holdout above 0.")
    check_free(out, "--out", force)
    if report is not None:
        check_free(report, "--report", force, is_file=True)


def _check_header(data: str, target: str, delimiter: str | None) -> None:
    """Refuse a mistyped target at once: what follows takes seconds to import."""
    from demur.tabular import open_table
    from demur.tabular.class_labels import check_target

    if data != "-":  # which can be read once only
        with open_table(data, delimiter=delimiter) as reader:
            check_target(target, reader.columns, reader.name)


def rule_of(
    cost: float | None,
    coverage: float | None,
    max_risk: float | None,
    delta: float,
    cost_matrix: Path | None,
) -> "Rule | Callable[[list[str]], Rule] | None":
    """Return the rule by which the options say when to decline; None for Chow's at a cost."""
    options = {"--cost": cost, "--coverage": coverage, "--max-risk": max_risk, "--cost-matrix": cost_matrix}
    given = [name for name, value in options.items() if value is not None]
    if cost_matrix is not None and cost is not None:
        raise CallError("--cost-matrix holds all costs, the ones of declining included: leave --cost out.")
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
    """Say in the command's words where the rows for a promise come from, and how to get more."""
    words = refusal.replace("target_risk", "--max-risk").replace("delta", "--delta").rstrip(".")
    kept = f", after --holdout kept {holdout:.0%} back; --holdout 0 or --test FILE leaves more" if holdout else ""
    return f"{words}. A fifth of the rows is set aside for the promise{kept}."


def _save(
    fitted: "FittedFile", out: Path, report: Path | None, *, title: str, data: str, force: bool
) -> "Evaluation | None":
    """Judge the model, write it, and a report where one is wanted."""
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
