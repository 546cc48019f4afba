"""A classifier together with the table it understands: what ``demur fit`` makes and the other commands use."""

from demur.table_model.fitting import fit_table
from demur.table_model.model import ANSWER_COLUMNS, TableModel
from demur.table_model.model_names import model_names

__all__ = ["ANSWER_COLUMNS", "TableModel", "fit_table", "model_names"]
