"""``demur demo``: the main job in one command, on data that needs no download."""

from typing import Any

from rich.table import Table

from demur.cli.console import console, plain_table
from demur.costs import PAPER_COSTS

__all__ = ["demo"]

METHODS = ("ce", "ova+log", "mpc+log")


def demo() -> None:
    """Show what a reject option is, and train one on scikit-learn's handwritten digits (under a minute).

    Example: demur demo
    """
    console.print(
        "[bold]A reject option[/bold]: a wrong answer costs 1, declining to answer costs c. "
        "Below 1 - c confidence, asking is cheaper.\n"
    )
    console.print(_bayes_table())
    console.print("No method can do better on these data: eight classes whose true probabilities are known.\n")
    with console.status("training on 1,347 handwritten digits ..."):
        table, summary = _digits_table()
    console.print(table)
    console.print(summary)


def _bayes_table() -> Table:
    from demur.datasets import paper_gaussians

    table = plain_table("Best possible decisions, synthetic")
    for heading in ("cost c", "risk", "coverage", "accuracy"):
        table.add_column(heading, justify="right")
    problem = paper_gaussians()
    for cost in PAPER_COSTS:
        best = problem.bayes_summary(cost)
        table.add_row(
            f"{cost:g}", f"{best.risk.value:.3f}", f"{best.coverage.value:.1%}", f"{best.accepted_accuracy.value:.1%}"
        )
    return table


def _digits_table() -> tuple[Table, str]:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    from demur.metrics import accepted_accuracy, coverage, zero_one_c_risk

    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=450, random_state=0, stratify=y)
    table = plain_table("Trained on handwritten digits, measured on 450 unseen images")
    for heading in ("method", "cost c", "risk", "coverage", "accuracy"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    models = _fit_all(X_train, y_train)
    example = ""
    for method in METHODS:
        for cost in PAPER_COSTS:
            model = models[method, cost]
            answers = model.decide(X_test, cost=cost).labels(model.classes_, model.reject_label_)
            risk = zero_one_c_risk(y_test, answers, cost=cost)
            kept, right = coverage(answers), accepted_accuracy(y_test, answers)
            table.add_row(
                method, f"{cost:g}", f"{risk:.3f}", f"{kept:.1%}", f"{right:.1%}", end_section=cost == PAPER_COSTS[-1]
            )
            if (method, cost) == ("ce", 0.1):
                example = (
                    f"At c = 0.1, cross-entropy (ce) answers {kept:.1%} of the images, {right:.1%} of those correctly, "
                    f"and hands the rest to a person.\nce and ova+log were trained once for all five costs; mpc+log "
                    f"once per cost (more: demur methods)."
                )
    return table, example


def _fit_all(X: Any, y: Any) -> dict[tuple[str, float], Any]:
    """Fit each method: once where the cost is read at prediction time, once per cost where it is trained in."""
    from demur.estimators import RejectClassifier
    from demur.losses import get

    models: dict[tuple[str, float], Any] = {}
    for method in METHODS:
        once = None if get(method).trained_for_cost else RejectClassifier(method, random_state=0).fit(X, y)
        for cost in PAPER_COSTS:
            models[method, cost] = once or RejectClassifier(method, cost=cost, random_state=0).fit(X, y)
    return models
