"""Tables: from a file to a model that knows its columns, judged and reported."""

from demur.columns.column import Column
from demur.columns.frames import as_table
from demur.columns.schema import Schema
from demur.columns.table_errors import TableError, TableWarning
from demur.tabular.evaluation import Evaluation, evaluate_table
from demur.tabular.fitting import check_classes, fit_table, labelled_rows
from demur.tabular.folders import decide_folder
from demur.tabular.html_report import report_html, write_report
from demur.tabular.judged_counts import ClassFigures, Counts
from demur.tabular.judged_rows import Case
from demur.tabular.labelled import read_labelled
from demur.tabular.model_names import model_names
from demur.tabular.reader import TableReader
from demur.tabular.reading import open_chunks, open_table, read_table
from demur.tabular.reliability import Reliability
from demur.tabular.streaming import Decided, decide_file
from demur.tabular.table_model import ANSWER_COLUMNS, TableModel
from demur.tabular.writing import TableWriter

__all__ = [
    "ANSWER_COLUMNS",
    "Case",
    "ClassFigures",
    "Column",
    "Counts",
    "Decided",
    "Evaluation",
    "Reliability",
    "Schema",
    "TableError",
    "TableModel",
    "TableReader",
    "TableWarning",
    "TableWriter",
    "as_table",
    "check_classes",
    "decide_file",
    "decide_folder",
    "evaluate_table",
    "fit_table",
    "labelled_rows",
    "model_names",
    "open_chunks",
    "open_table",
    "read_labelled",
    "read_table",
    "report_html",
    "write_report",
]
