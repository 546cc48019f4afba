"""Options that several commands have, with their checks, and the formats of experts, prices and limits."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from demur.cli.console import share
from demur.errors import InputError


def panel(name: str) -> Callable[..., Any]:
    """Return a function that declares an option in a panel of the help."""
    return partial(typer.Option, rich_help_panel=name)


DATA, MODEL, DECISION, VALIDATION, OUTPUT, COMPUTING = map(
    panel, ("Data", "Model", "Decision", "Validation", "Output", "Computing")
)


Repeatable: TypeAlias = list[str] | None
"""An option that can be given several times."""

ModelFolder = Annotated[Path, typer.Argument(help="Model folder from demur fit.")]
OutFolder = Annotated[Path, OUTPUT("--out", "-o", help="Model folder to write.")]
Report = Annotated[Path | None, OUTPUT(help="HTML report to write.")]
Ignore = Annotated[str | None, OUTPUT(metavar="CODES", help="Checks to leave out, such as DM003,DM007.")]
Force = Annotated[bool, OUTPUT("--force", help="Replace an existing model or file.")]
AsJson = Annotated[bool, OUTPUT("--json", help="Print JSON.")]

_COST = partial(DECISION, "--cost", "-c", callback=share(zero=True))
Cost = Annotated[float | None, _COST(help="Cost of declining; a mistake costs 1.", show_default="0.2")]
OtherCost = Annotated[float | None, _COST(help="Another cost of declining; no refit.", show_default="the model's")]
Prices = Annotated[
    Repeatable,
    DECISION(metavar="NAME=PRICE", help="Price of an expert (repeatable).", show_default="the model's"),
]
Coverage = Annotated[float | None, DECISION(help="Share of rows to answer.", callback=share(one=True))]
MaxRisk = Annotated[float | None, DECISION(help="Guaranteed error rate.", callback=share())]
Delta = Annotated[
    float | None,
    DECISION(help="Probability that the guarantee fails.", show_default="0.05 for --max-risk", callback=share()),
]

TimeBudget = Annotated[float, MODEL(min=0, metavar="S", help="Seconds of training; 0: no limit.")]

Drop = Annotated[Repeatable, DATA(metavar="COLUMN", help="Column to leave out.")]
Labels = Annotated[str | None, DATA(help="File of labels, one per row.")]
AllowExtra = Annotated[bool, DATA("--allow-extra", help="Accept columns unknown to the model.")]
Delimiter = Annotated[str | None, DATA(help="Column delimiter.", show_default="detected")]

DecimalSign = Annotated[str | None, DATA(help="Decimal separator.", show_default="detected")]
DayFirst = Annotated[bool | None, DATA(help="Dates begin with the day.", show_default="detected")]


def read_expert_options(texts: Sequence[str] | None) -> dict[str, tuple[str, float]]:
    """Read ``name=column:price``, once for each expert; a column may have any name.

    Examples
    --------
    >>> read_expert_options(["nurse=what: she says:0.05"])
    {'nurse': ('what: she says', 0.05)}
    """
    found, form = {}, "NAME=COLUMN:PRICE, as in nurse=nurse_says:0.05"
    for name, rest in _pairs("--expert", texts, form):
        column, _, price = rest.rpartition(":")
        if not column:
            raise InputError(f"--expert must be {form}, got '{name}={rest}'.")
        found[name] = (column, _number("--expert", price))
    return found


def read_services(texts: Sequence[str] | None) -> dict[str, tuple[str, str | None, float | str]]:
    """Read ``name=answer:confidence:price``, once for each service; the price is a number or a column.

    Examples
    --------
    >>> read_services(["small=says:sure:0.01", "large=large_says::large_price"])
    {'small': ('says', 'sure', 0.01), 'large': ('large_says', None, 'large_price')}
    """
    found: dict[str, tuple[str, str | None, float | str]] = {}
    form = "NAME=ANSWER:CONFIDENCE:PRICE, as in small=small_says:small_sure:0.01"
    for name, rest in _pairs("--service", texts, form):
        parts = [part.strip() for part in rest.rsplit(":", 2)]
        if len(parts) < 3 or not parts[0] or not parts[2]:
            raise InputError(f"--service must be {form}, got '{name}={rest}'.")
        try:
            price: float | str = float(parts[2])
        except ValueError:
            price = parts[2]
        found[name] = (parts[0], parts[1] or None, price)
    return found


def read_prices(texts: Sequence[str] | None) -> dict[str, float]:
    """Read ``name=price``, once for each expert whose price changes.

    Examples
    --------
    >>> read_prices(["nurse=0.1"])
    {'nurse': 0.1}
    """
    return {name: _number("--price", text) for name, text in _pairs("--price", texts)}


def read_limits(texts: Sequence[str] | None) -> dict[str, float | None]:
    """Read ``name=limit``: a whole number of rows, a share below 1, or "none" for no limit.

    Examples
    --------
    >>> read_limits(["consultant=40", "nurse=0.2", "intern=none"])
    {'consultant': 40, 'nurse': 0.2, 'intern': None}
    """
    found: dict[str, float | None] = {}
    for name, text in _pairs("--capacity", texts):
        number = None if text.lower() == "none" else _number("--capacity", text)
        found[name] = int(number) if number is not None and number.is_integer() else number
    return found


def _pairs(
    option: str, texts: Sequence[str] | None, form: str = "NAME=NUMBER, as in nurse=0.1"
) -> Iterator[tuple[str, str]]:
    """Split each text at its first equals sign."""
    names = set()
    for text in texts or ():
        name, equals, rest = (part.strip() for part in text.partition("="))
        if not equals or not name or name in names:
            raise InputError(f"{option} must be {form}, once for each name, got {text!r}.")
        names.add(name)
        yield name, rest


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{option}: {text!r} is not a number.") from None
