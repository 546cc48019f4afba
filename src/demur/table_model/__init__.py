"""A classifier together with the table it understands: what ``demur fit`` makes and the other commands use."""

from demur.table_model.fitting import fit_table, labelled_rows
from demur.table_model.folders import decide_folder
from demur.table_model.model import ANSWER_COLUMNS, TableModel
from demur.table_model.model_names import model_names
from demur.table_model.streaming import Decided, decide_file

__all__ = [
    "ANSWER_COLUMNS",
    "Decided",
    "TableModel",
    "decide_file",
    "decide_folder",
    "fit_table",
    "labelled_rows",
    "model_names",
]
