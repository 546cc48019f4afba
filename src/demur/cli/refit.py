"""``demur refit``: fit a model again with reviewed rows."""

import json
from typing import Annotated, Any, TypeAlias

import typer

from demur.cli.console import (
    check_free,
    check_share,
    console,
    is_watched,
    load_table_model,
    warnings_as_notes,
    wrong_call_if_refused,
)
from demur.cli.options import AsJson, Delimiter, ModelFolder, OutFolder, ReplaceModel, TimeBudget, panel

__all__ = ["refit"]


Reviewed: TypeAlias = Annotated[str, typer.Argument(help="Declined and audited rows with the reviewers' labels.")]
TrainingData: TypeAlias = Annotated[str, panel("Data", help="Table that the model was fitted on.")]
Audit: TypeAlias = Annotated[float, panel("Data", help="Share of answered rows drawn for review.")]


def refit(
    model: ModelFolder,
    reviewed: Reviewed,
    data: TrainingData,
    out: OutFolder,
    audit: Audit = 0.02,
    delimiter: Delimiter = None,
    time_budget: TimeBudget = 90.0,
    force: ReplaceModel = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model again with reviewed rows, and correct for the selection of these rows.

    Reviewers see every declined row and a random sample of the answered ones.
    Each reviewed row is weighted by the inverse of its probability of a review.

    Example: demur refit model/ reviewed.csv --data train.csv --out newer/
    """
    check_share("--audit", audit, zero=False, one=True)
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
        options: dict[str, Any] = {"time_budget": time_budget or None, "verbose": int(is_watched())}
        found = refit_table(fitted, *tables, audit=audit, **options)
        save(found.model, out, overwrite=force)
    counts = {"trained": found.n_trained, "declined": found.n_declined, "audited": found.n_audited}
    if as_json:
        typer.echo(json.dumps({"folder": str(out), **counts}))
        return
    counted = f"{found.n_declined:,} declined rows and {found.n_audited:,} audited rows"
    console.print(f"Fitted again on {found.n_trained:,} training rows, {counted} that were reviewed.", markup=False)
    words = f"Wrote {out}. Next: compare both models on new labelled rows, demur evaluate {out} ROWS.csv"
    console.print(words, markup=False, soft_wrap=True)
