"""Figures in words for a reader who has never met a reject option.

The report's script writes the same sentence for other costs: it takes :data:`SENTENCES` from the page and rounds as
:func:`percent` does, by operations that every language computes alike. A test in a browser compares the two.
"""

import math

import numpy as np

from demur.tabular.counts import Counts

__all__ = ["SENTENCES", "UNDEFINED", "cost_words", "headline", "per_hundred", "percent", "price", "shares"]

UNDEFINED = "\N{EN DASH}"
"""Stands for a figure that nothing defines, such as the accuracy of no answers."""

SENTENCES = {
    "some": "At cost {cost}, the model answers {coverage} of the rows, {accuracy} of those correctly, and hands on "
    "{rejected}; each 100 rows cost {risk}{compared}.",
    "all": "At cost {cost}, the model answers every row, {accuracy} of them correctly; each 100 rows cost {risk}.",
    "none": "At cost {cost}, the model answers no row and hands on all of them; each 100 rows cost {risk}{compared}.",
    "less": " instead of {everything} if it answered all",
    "more": ", more than the {everything} if it answered all",
    "same": ", as much as if it answered all",
}
"""The headline in its three cases, and the three ways it compares with answering everything."""


def percent(share: float) -> str:
    """Write a share in per cent, half up; what is not quite 0 or 100 never looks as if it were.

    Examples
    --------
    >>> percent(0.9125), percent(1), percent(0.9999), percent(0.0001)
    ('91.3 %', '100.0 %', '>99.9 %', '<0.1 %')
    """
    if math.isnan(share):
        return UNDEFINED
    tenths = math.floor(share * 1000 + 0.5)
    if tenths == 1000 and share < 1:
        return ">99.9 %"
    return f"{_tenths(tenths, share)} %"


def per_hundred(risk: float) -> str:
    """Write what a hundred rows cost, to one decimal.

    Examples
    --------
    >>> per_hundred(0.037), per_hundred(0.0002), per_hundred(0)
    ('3.7', '<0.1', '0.0')
    """
    return _tenths(math.floor(risk * 1000 + 0.5), risk)


def cost_words(cost: float) -> str:
    """Write a cost with as many digits as it needs and no more.

    Examples
    --------
    >>> cost_words(0.2), cost_words(0.0), cost_words(0.00001)
    ('0.2', '0', '0.00001')
    """
    return str(np.format_float_positional(cost, trim="-"))


def shares(counts: Counts) -> str:
    """Say in one sentence how many rows are answered and how well, for rules that read no cost.

    Examples
    --------
    >>> shares(Counts(1000, 900, 20))
    'The model answers 90.0 % of the rows, 97.8 % of those correctly, and hands on 10.0 %.'
    """
    if not counts.n_answered:
        return "The model answers no row and hands on all of them."
    if not counts.n_rejected:
        return f"The model answers every row, {percent(counts.accepted_accuracy)} of them correctly."
    return (
        f"The model answers {percent(counts.coverage)} of the rows, {percent(counts.accepted_accuracy)} of those "
        f"correctly, and hands on {percent(counts.n_rejected / counts.n_rows)}."
    )


def headline(counts: Counts, cost: float, n_wrong_if_all: int) -> str:
    """Say in one sentence what deciding at this cost means.

    Examples
    --------
    >>> headline(Counts(1000, 900, 20), 0.2, 60)
    'At cost 0.2, the model answers 90.0 % of the rows, 97.8 % of those correctly, and hands on 10.0 %; each 100 rows
    cost 4.0 instead of 6.0 if it answered all.'
    """
    risk, everything = counts.risk(cost), n_wrong_if_all / counts.n_rows
    words = {
        "cost": cost_words(cost),
        "coverage": percent(counts.coverage),
        "accuracy": percent(counts.accepted_accuracy),
        "rejected": percent(counts.n_rejected / counts.n_rows),
        "risk": per_hundred(risk),
        "everything": per_hundred(everything),
    }
    looks_equal = words["risk"] == words["everything"]
    compared = "same" if looks_equal else "less" if risk < everything else "more"
    case = "all" if counts.n_rejected == 0 else "some" if counts.n_answered else "none"
    return SENTENCES[case].format(**words, compared=SENTENCES[compared].format(**words))


def price(cost: float) -> str:
    """Say what the costs in the headline are counted in."""
    return (
        f"A wrong answer counts 1 and a row handed on counts {cost_words(cost)}, so handing on every row would cost "
        f"{per_hundred(cost)} per 100 rows."
    )


def _tenths(tenths: int, value: float) -> str:
    return "<0.1" if tenths == 0 and value > 0 else f"{tenths / 10:.1f}"
