"""Loading the model that a command was given."""

from pathlib import Path
from typing import Any

from demur.cli.console import CallError

__all__ = ["load_table_model"]


def load_table_model(path: Path | str) -> Any:
    """Return the model in a folder, if it reads tables."""
    from demur.deploy import load
    from demur.tabular import TableModel

    model = load(path)
    if not isinstance(model, TableModel):
        raise CallError(
            f"{path} holds a {type(model).__name__} that was saved from Python and does not know the columns of a "
            "table: use it from Python with demur.load, or make a model with demur fit."
        )
    return model
