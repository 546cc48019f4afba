"""``demur refit``: fit a model again with reviewed rows."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from demur.cli.console import (
    check_free,
    check_share,
    console,
    is_watched,
    load_table_model,
    note,
    warnings_as_notes,
    wrong_call_if_refused,
)
from demur.cli.options import AsJson, Delimiter, ModelFolder, ReplaceModel, TimeBudget

__all__ = ["refit"]


def refit(
    model: ModelFolder,
    reviewed: Annotated[str, typer.Argument(help="Declined and audited rows with the labels of reviewers.")],
    data: Annotated[str, typer.Option(help="Table that the model was fitted on.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the new model.")],
    audit: Annotated[float, typer.Option(help="Share of answered rows drawn for review.")] = 0.02,
    rejected_share: Annotated[
        float | None,
        typer.Option(help="Share of declined rows, where no answer was reviewed."),
    ] = None,
    delimiter: Delimiter = None,
    time_budget: TimeBudget = 90.0,
    force: ReplaceModel = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model again with what reviewers found, corrected for which rows they saw.

    They saw every declined row and a random few of the answered ones: each counts for the rows that it stands for.

    Example: demur refit model/ desk.csv --data train.csv --out newer/
    """
    check_share("--audit", audit, zero=False, one=True)
    check_share("--rejected-share", rejected_share, zero=False)
    check_free(out, "--out", force)
    with wrong_call_if_refused(), warnings_as_notes():
        from demur.deploy import save
        from demur.deploy.model_folder import check_target
        from demur.tabular import read_labelled, refit_table

        check_target(out, overwrite=force)
        fitted = load_table_model(model)
        classes = fitted.classes.tolist()
        tables = [
            read_labelled(name, fitted.schema, classes, delimiter=delimiter, strict=False) for name in (data, reviewed)
        ]
        found = refit_table(
            fitted,
            *tables,
            audit=audit,
            rejected_share=rejected_share,
            time_budget=time_budget or None,
            verbose=int(is_watched()),
        )
        save(found.model, out, overwrite=force)
    risks = {"old_risk": found.old_risk, "new_risk": found.new_risk, "gain": found.gain}
    if as_json:
        numbers: dict[str, Any] = {
            name: None if one is None else {"estimate": one.estimate, "low": one.low, "high": one.high}
            for name, one in risks.items()
        }
        counts = {"trained": found.n_trained, "declined": found.n_declined, "audited": found.n_audited}
        typer.echo(json.dumps({"folder": str(out), **counts, "judged": found.n_judged, **numbers}))
        return
    console.print(
        f"Fitted again on {found.n_trained:,} training rows, {found.n_declined:,} declined rows and "
        f"{found.n_audited:,} audited ones that were reviewed.",
        markup=False,
    )
    if not found.n_audited:
        note("no answered row was reviewed: the training rows stand for those; an audit of a few would say more.")
    if found.old_risk is not None and found.new_risk is not None and found.gain is not None:
        console.print(
            f"On {found.n_judged:,} reviewed rows that were held out, weighted to stand for all that came in, a row "
            f"costs {found.old_risk.estimate:.3f} by the old model and {found.new_risk.estimate:.3f} by the new one: "
            f"{found.gain.estimate:.3f} less (95 % interval {found.gain.low:.3f} to {found.gain.high:.3f}).",
            markup=False,
        )
    else:
        console.print("There are too few reviewed rows to judge it on; evaluate it on rows as they come.")
    console.print(
        f"Wrote {out}. Watch it with rows of its own: demur monitor {out} NEW.csv --reference ROWS.csv",
        markup=False,
        soft_wrap=True,
    )
