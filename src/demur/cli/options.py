"""Options that several commands have, and the formats of experts, prices and limits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

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
    "panel",
    "read_expert_options",
    "read_limits",
    "read_prices",
]


def panel(name: str, *names: str, help: str, **more: Any) -> Any:
    """Return an option in a panel of the help."""
    return typer.Option(*names, help=help, rich_help_panel=name, **more)


ModelFolder: TypeAlias = Annotated[Path, typer.Argument(help="Model folder from demur fit.")]
OutFolder: TypeAlias = Annotated[Path, panel("Output", "--out", "-o", help="Model folder to write.")]
Cost: TypeAlias = Annotated[
    float | None, panel("Decision", "--cost", "-c", help="Cost of declining; a mistake costs 1.", show_default="0.2")
]
Delta: TypeAlias = Annotated[float, panel("Decision", help="Probability that the guarantee fails.")]
Drop: TypeAlias = Annotated[list[str] | None, panel("Data", metavar="COLUMN", help="Column to leave out.")]
AllowExtra: TypeAlias = Annotated[bool, typer.Option("--allow-extra", help="Accept columns unknown to the model.")]
Delimiter: TypeAlias = Annotated[str | None, panel("Data", help="Column delimiter.", show_default="detected")]
DecimalSign: TypeAlias = Annotated[str | None, panel("Data", help="Decimal separator.", show_default="detected")]
DayFirst: TypeAlias = Annotated[
    bool | None, panel("Data", help="Dates such as 1.2.2024 begin with the day.", show_default="detected")
]
KnownDecimalSign: TypeAlias = Annotated[
    str | None, panel("Data", help="Decimal separator.", show_default="as in training")
]
KnownDayFirst: TypeAlias = Annotated[
    bool | None, panel("Data", help="Dates such as 1.2.2024 begin with the day.", show_default="as in training")
]
TimeBudget: TypeAlias = Annotated[float, panel("Model", help="Seconds for the training; 0 for no limit.")]
ReplaceModel: TypeAlias = Annotated[bool, panel("Output", "--force", help="Replace an existing model.")]
ReplaceFile: TypeAlias = Annotated[bool, panel("Output", "--force", help="Replace an existing file.")]
AsJson: TypeAlias = Annotated[bool, panel("Output", "--json", help="Print JSON.")]


def read_expert_options(options: Sequence[str] | None) -> dict[str, tuple[str, float]] | None:
    """Read ``name=column:price``, once for each expert; a column may have any name.

    Examples
    --------
    >>> read_expert_options(["nurse=what: she says:0.05"])
    {'nurse': ('what: she says', 0.05)}
    >>> read_expert_options(["nurse=0.05"])
    Traceback (most recent call last):
        ...
    demur.cli.console.CallError: --expert must be NAME=COLUMN:PRICE, as in nurse=nurse_says:0.05, got 'nurse=0.05'.
    """
    found = {}
    for name, rest in _pairs("--expert", options, "NAME=COLUMN:PRICE, as in nurse=nurse_says:0.05", first=True):
        column, has_price, price = rest.rpartition(":")
        if not has_price or not column:
            raise CallError(f"--expert must be NAME=COLUMN:PRICE, as in nurse=nurse_says:0.05, got '{name}={rest}'.")
        found[name] = (column, _number("--expert", price))
    return found or None


def read_prices(options: Sequence[str] | None) -> dict[str, float] | None:
    """Read ``name=price``, once for each expert whose price changes.

    Examples
    --------
    >>> read_prices(["nurse=0.1"])
    {'nurse': 0.1}
    """
    return {name: _number("--price", text) for name, text in _pairs("--price", options)} or None


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
        number = _number("--capacity", text)
        if number >= 1 and number != int(number):
            hint = f": did you mean {number / 100:g}?" if number < 100 else "."
            raise CallError(f"--capacity must be a whole number of rows, or a share below 1, got {name}={text}{hint}")
        found[name] = int(number) if number >= 1 or text.strip() == "0" else number
    return found or None


def _pairs(
    option: str, texts: Sequence[str] | None, form: str = "NAME=NUMBER, as in nurse=0.1", *, first: bool = False
) -> list[tuple[str, str]]:
    """Split each text at its first or last equals sign."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, has_name, rest = text.partition("=") if first else text.rpartition("=")
        name = name.strip()
        if not has_name or not name:
            raise CallError(f"{option} must be {form}, got {text!r}.")
        if name in found:
            raise CallError(f"{option} names {name!r} twice: give each expert once; several columns as a,b.")
        found[name] = rest
    return list(found.items())


def _number(option: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise CallError(f"{option} ends in {text!r}, which is not a number.") from None
    if not 0 <= number < float("inf"):
        raise CallError(f"{option} takes numbers of at least 0, got {text}.")
    return number
