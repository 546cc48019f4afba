"""Options that several commands have, and how experts, prices and limits are written in them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from demur.cli.console import CallError

__all__ = [
    "AllowExtra",
    "AsJson",
    "Cost",
    "DayFirst",
    "DecimalSign",
    "Delimiter",
    "Delta",
    "Drop",
    "KnownDayFirst",
    "KnownDecimalSign",
    "ModelFolder",
    "OutFolder",
    "ReplaceFile",
    "ReplaceModel",
    "TimeBudget",
    "read_expert_options",
    "read_limits",
    "read_prices",
]

ModelFolder: TypeAlias = Annotated[Path, typer.Argument(help="The folder that demur fit wrote.")]
OutFolder: TypeAlias = Annotated[Path, typer.Option("--out", "-o", help="The folder to write the model to.")]
Cost: TypeAlias = Annotated[
    float | None, typer.Option("--cost", "-c", help="The price of declining; a mistake costs 1. [default: 0.2]")
]
Delta: TypeAlias = Annotated[float, typer.Option(help="With --max-risk: how often the promise may fail.")]
Drop: TypeAlias = Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")]
AllowExtra: TypeAlias = Annotated[
    bool, typer.Option("--allow-extra", help="Accept columns that the model does not know.")
]
Delimiter: TypeAlias = Annotated[str | None, typer.Option(help="What separates columns, if not found by itself.")]
DecimalSign: TypeAlias = Annotated[
    str | None, typer.Option(help="The decimal sign, a comma or a point, if not found by itself.")
]
DayFirst: TypeAlias = Annotated[
    bool | None, typer.Option(help="How dates as 1.2.2024 begin, if not found by itself.", show_default=False)
]
KnownDecimalSign: TypeAlias = Annotated[
    str | None, typer.Option(help="The decimal sign, a comma or a point. [default: as in the training table]")
]
KnownDayFirst: TypeAlias = Annotated[
    bool | None,
    typer.Option(help="How dates as 1.2.2024 begin. [default: as in the training table]", show_default=False),
]
TimeBudget: TypeAlias = Annotated[float, typer.Option(help="Seconds that auto may take; 0 for no limit.")]
ReplaceModel: TypeAlias = Annotated[bool, typer.Option("--force", help="Replace a model that is there already.")]
ReplaceFile: TypeAlias = Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


def read_expert_options(options: Sequence[str] | None) -> dict[str, tuple[str, float]] | None:
    """Read ``name=column:price``, once for each expert; a column may have any name.

    Examples
    --------
    >>> read_expert_options(["nurse=what: she says:0.05"])
    {'nurse': ('what: she says', 0.05)}
    >>> read_expert_options(["nurse=0.05"])
    Traceback (most recent call last):
        ...
    demur.cli.console.CallError: --expert is written NAME=COLUMN:PRICE, as in nurse=nurse_says:0.05, got 'nurse=0.05'.
    """
    if not options:
        return None
    found: dict[str, tuple[str, float]] = {}
    for text in options:
        name, is_one, rest = text.partition("=")
        column, has_price, price = rest.rpartition(":")
        name = name.strip()
        if not (is_one and has_price and name and column):
            raise CallError(f"--expert is written NAME=COLUMN:PRICE, as in nurse=nurse_says:0.05, got {text!r}.")
        if name in found:
            raise CallError(
                f"--expert names {name!r} twice: give each expert once, with columns parted by commas for several "
                "people behind one."
            )
        found[name] = (column, _number("--expert", price, text))
    return found


def read_prices(options: Sequence[str] | None) -> dict[str, float] | None:
    """Read ``name=price``, once for each expert whose price changes.

    Examples
    --------
    >>> read_prices(["nurse=0.1"])
    {'nurse': 0.1}
    """
    return {name: _number("--price", text, f"{name}={text}") for name, text in _pairs("--price", options)} or None


def read_limits(options: Sequence[str] | None) -> dict[str, float | None] | None:
    """Read ``name=limit``: a whole number of rows, a share below 1, or "none" for no limit.

    Examples
    --------
    >>> read_limits(["consultant=40", "nurse=0.2", "intern=none"])
    {'consultant': 40, 'nurse': 0.2, 'intern': None}
    """
    found: dict[str, float | None] = {}
    for name, text in _pairs("--capacity", options):
        if text.strip().lower() == "none":
            found[name] = None
            continue
        number = _number("--capacity", text, f"{name}={text}")
        is_count = number >= 1 and number == int(number)
        if number < 0 or (number >= 1 and not is_count):
            hint = f": did you mean {number / 100:g}?" if 1 < number < 100 else "."
            raise CallError(
                f"--capacity takes a whole number of rows, or a share below 1, got {name}={text.strip()}{hint}"
            )
        found[name] = int(number) if is_count or text.strip() == "0" else number
    return found or None


def _pairs(option: str, texts: Sequence[str] | None) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for text in texts or ():
        name, is_one, rest = text.rpartition("=")
        if not is_one or not name.strip():
            raise CallError(f"{option} is written NAME=NUMBER, as in nurse=0.1, got {text!r}.")
        if name.strip() in found:
            raise CallError(f"{option} names {name.strip()!r} twice: give each expert once.")
        found[name.strip()] = rest
    return list(found.items())


def _number(option: str, text: str, whole: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise CallError(f"{option} {whole!r} ends in {text!r}, which is not a number.") from None
    if not number < float("inf") or number < 0:
        what = "prices" if option != "--capacity" else "limits"
        raise CallError(f"{option} {whole!r}: {what} are numbers of at least 0, got {text}.")
    return number
