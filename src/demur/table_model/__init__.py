"""A classifier together with the table it understands: what ``demur fit`` makes and the other commands use."""

from demur.table_model.fitting import check_classes, fit_table, labelled_rows
from demur.table_model.folders import decide_folder
from demur.table_model.labelled import read_labelled
from demur.table_model.model import ANSWER_COLUMNS, TableModel
from demur.table_model.model_names import model_names
from demur.table_model.streaming import Decided, decide_file

__all__ = [
    "ANSWER_COLUMNS",
    "Decided",
    "TableModel",
    "check_classes",
    "decide_file",
    "decide_folder",
    "fit_table",
    "labelled_rows",
    "model_names",
    "read_labelled",
]
