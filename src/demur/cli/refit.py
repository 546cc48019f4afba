"""``demur refit``: fit a model again with reviewed rows."""

from typing import Annotated

import typer

from demur.cli.console import check_new_model, load_table_model, print_json, say, share
from demur.cli.options import DATA, AsJson, Delimiter, Force, ModelFolder, OutFolder, TimeBudget


def refit(
    model: ModelFolder,
    reviewed: Annotated[str, typer.Argument(help="Declined and audited rows with the reviewers' labels.")],
    data: Annotated[str, DATA(help="Table that the model was fitted on.")],
    out: OutFolder,
    audit: Annotated[float, DATA(help="Share of answered rows drawn for review.", callback=share(one=True))] = 0.02,
    delimiter: Delimiter = None,
    time_budget: TimeBudget = 90.0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model again with reviewed rows, corrected for how they were selected.

    Reviewers see every declined row and a random sample of the answered rows.
    Each reviewed row is weighted by the inverse of its probability of being
    reviewed.

    Example: demur refit model/ reviewed.csv --data train.csv --out newer/
    """
    check_new_model(out, force)
    from demur.deploy import save
    from demur.tabular import read_labelled, refit_table

    fitted = load_table_model(model)
    classes = fitted.classes.tolist()
    tables = [
        read_labelled(name, fitted.schema, classes, delimiter=delimiter, strict=False) for name in (data, reviewed)
    ]
    found = refit_table(fitted, *tables, audit=audit, time_budget=time_budget or None, verbose=True)
    save(found.model, out, overwrite=force)
    if as_json:
        counts = {"trained": found.n_trained, "declined": found.n_declined, "audited": found.n_audited}
        print_json({"folder": str(out), **counts})
        return
    say(
        f"Fitted again on {found.n_trained:,} training rows, {found.n_declined:,} declined rows and "
        f"{found.n_audited:,} audited rows that were reviewed."
    )
    say(f"Wrote {out}. Next: compare both models on new labelled rows, demur evaluate {out} ROWS.csv")
