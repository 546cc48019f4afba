"""``demur refit``: fit a model again with reviewed rows."""

from typing import Annotated

import typer

from demur.cli.console import check_new_model, is_watched, load_table_model, note, print_json, say
from demur.cli.options import DATA, AsJson, Delimiter, Force, ModelFolder, OutFolder, TimeBudget, share

__all__ = ["refit"]


def refit(
    model: ModelFolder,
    reviewed: Annotated[str, typer.Argument(help="Declined and audited rows with the reviewers' labels.")],
    data: Annotated[str, DATA(help="Table that the model was fitted on.")],
    out: OutFolder,
    audit: Annotated[float, DATA(help="Share of answered rows drawn for review.", callback=share(one=True))] = 0.02,
    rejected_share: Annotated[
        float | None,
        DATA(help="Share of rows that were declined, if no answered row was reviewed.", callback=share()),
    ] = None,
    delimiter: Delimiter = None,
    time_budget: TimeBudget = 90.0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model again with reviewed rows, and correct for the selection of these rows.

    Reviewers see every declined row and a random sample of the answered ones.
    Each reviewed row is weighted by the inverse of its probability of a review.

    Example: demur refit model/ reviewed.csv --data train.csv --out newer/
    """
    check_new_model(out, force)
    from demur.deploy import save
    from demur.tabular import read_labelled, refit_table
    from demur.tabular.evaluation_figures import json_ready

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
    if as_json:
        risks = {"old_risk": found.old_risk, "new_risk": found.new_risk, "gain": found.gain}
        numbers = {name: json_ready(one) for name, one in risks.items()}
        counts = {"trained": found.n_trained, "declined": found.n_declined, "audited": found.n_audited}
        print_json({"folder": str(out), **counts, "judged": found.n_judged, **numbers})
        return
    say(
        f"Fitted again on {found.n_trained:,} training rows, {found.n_declined:,} declined rows and "
        f"{found.n_audited:,} audited rows that were reviewed."
    )
    if not found.n_audited:
        note("no answered row was reviewed: the training rows stand for those. Review a random sample of the answers.")
    if found.old_risk is not None and found.new_risk is not None and found.gain is not None:
        say(
            f"On {found.n_judged:,} reviewed rows that were held out, weighted to stand for all rows, a row costs "
            f"{found.old_risk.estimate:.3f} by the old model and {found.new_risk.estimate:.3f} by the new one: "
            f"{found.gain.estimate:.3f} less (95 % interval {found.gain.low:.3f} to {found.gain.high:.3f})."
        )
    else:
        say("There are too few reviewed rows to judge it on: evaluate it on new rows with labels.")
    say(f"Wrote {out}. Monitor it with new rows: demur monitor {out} NEW.csv --reference ROWS.csv")
