"""A model and its evaluation, as short texts on the terminal."""

import datetime
from typing import Any

from demur._version import __version__
from demur.cli.console import console, plain_table

__all__ = ["about", "evaluation_json", "print_evaluation", "print_fit"]

_MOST_CLASSES = 12
_MOST_NOTES = 8
_LONGEST_NAME = 40


def print_fit(model: Any, data: str, seconds: float) -> None:
    """Say what was read, what was made of its columns, and what was trained."""
    facts = model.facts
    counts = sorted(facts["classes"].items(), key=lambda item: -item[1])
    aside = facts.get("rows_for_the_rule", 0)
    more = f"; {aside:,} more were set aside for the rule" if aside else ""
    console.print(f"{data}: trained on {facts['rows']:,} rows of {len(counts)} classes{more}.", markup=False)
    shown = ", ".join(f"{_in_line(name)} {count:,}" for name, count in counts[:_MOST_CLASSES])
    more = f", and {len(counts) - _MOST_CLASSES} more" if len(counts) > _MOST_CLASSES else ""
    console.print(f"  Classes: {shown}{more}.", markup=False)
    if facts.get("rows_without_label"):
        console.print(f"  {facts['rows_without_label']:,} rows without a label were left out.")
    sentences = model.schema.describe()
    for sentence in sentences[:_MOST_NOTES]:
        console.print(f"  {sentence}", markup=False)
    if len(sentences) > _MOST_NOTES:
        console.print(f"  ... and {len(sentences) - _MOST_NOTES} more notes on columns.")
    console.print(f"\nTrained {facts['model_in_words'].removesuffix(' (the default)')} in {seconds:.1f} s.")
    tried = getattr(getattr(model.classifier, "estimator_", None), "tried_", ())
    if tried:
        table = plain_table()
        for heading in ("candidate", "share", "log loss", "seconds", "outcome"):
            table.add_column(heading, justify="left" if heading in ("candidate", "outcome") else "right")
        for one in tried:
            loss = "" if one.log_loss is None else f"{one.log_loss:.4f}"
            table.add_row(one.name, f"{one.weight:.0%}", loss, f"{one.seconds:.1f}", one.outcome)
        console.print(table)


def print_evaluation(evaluation: Any, where: str, model: Any) -> None:
    """Print the headline figures with their intervals, and what they mean."""
    by_matrix = _matrix_costs(evaluation, model)
    table = plain_table(f"How it does {where}")
    for heading in ("", "value", "95 % interval", ""):
        table.add_column(heading, justify="left" if not heading else "right")
    figures = evaluation.figures
    rows = (
        ("risk", "{:.4f}", "cost per row; a mistake costs 1"),
        ("coverage", "{:.1%}", "share of rows answered"),
        ("accepted_accuracy", "{:.1%}", "right among the answered"),
        ("risk_if_all_answered", "{:.4f}", "cost per row without declining"),
        ("aurc", "{:.4f}", "area under risk-coverage"),
    )
    for name, form, meaning in rows:
        if name.startswith("risk") and not evaluation.is_priced:
            continue  # the rule did not look at this cost
        one = figures[name]
        value = form.format(one.estimate) if one.estimate == one.estimate else "none given"
        between = f"{form.format(one.low)} to {form.format(one.high)}" if one.low == one.low else ""
        table.add_row(name.replace("_", " "), value, between, meaning)
    console.print(table)
    if by_matrix:
        console.print(model.rule_words, markup=False)
        words = (
            "By the cost matrix, 100 rows cost {:.4g}; they would cost {:.4g} if all were answered, and {:.4g} if none."
        )
        console.print(words.format(*(100 * cost for cost in by_matrix.values())), markup=False)
        return
    for sentence in evaluation.sentences():
        console.print(sentence, markup=False)


def evaluation_json(evaluation: Any, model: Any) -> dict[str, Any]:
    """Return every figure for programs, with the mean costs by the model's cost matrix where it has one."""
    by_matrix = _matrix_costs(evaluation, model)
    return {**evaluation.to_json(), **({"by_cost_matrix": by_matrix} if by_matrix else {})}


def _matrix_costs(evaluation: Any, model: Any) -> dict[str, float]:
    """Return what a row costs on average by the model's cost matrix, as decided, all answered and none; else nothing.

    Rows whose label is no class have no costs, and are left out.
    """
    import numpy as np

    from demur.rules import CostMatrix

    rule = getattr(model.classifier, "rule_", None)
    if not isinstance(rule, CostMatrix):
        return {}
    costs, decision = np.asarray(rule.costs), evaluation.decision
    known = evaluation.true < len(costs)
    true, label, reject = evaluation.true[known], decision.label[known], decision.reject[known]
    answered, declined = costs[true, label], costs[true, -1]
    means = {"cost": np.where(reject, declined, answered), "if_all_answered": answered, "if_none_answered": declined}
    return {name: float(values.mean()) for name, values in means.items()}


def _in_line(name: str) -> str:
    """Return the name of a class as it can stand in a line: without line breaks, and cut where it is long."""
    plain = "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)
    return plain if len(plain) <= _LONGEST_NAME else plain[: _LONGEST_NAME - 3] + "..."


def about(model: Any, data: str) -> dict[str, str]:
    """Say how a report was made."""
    facts = model.facts
    return {
        "Model": facts["model_in_words"],
        "Trained on": f"{facts['rows']:,} rows",
        "Judged on": data,
        "Date": datetime.date.today().isoformat(),
        "Program": f"demur {__version__}",
    }
