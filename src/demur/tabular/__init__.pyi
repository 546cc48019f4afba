import demur.columns as _columns

from .class_labels import check_classes as check_classes
from .class_labels import labelled_rows as labelled_rows
from .decide_files import Decided as Decided
from .decide_files import decide_file as decide_file
from .decide_files import decide_folder as decide_folder
from .evaluation import Evaluation as Evaluation
from .evaluation import evaluate_table as evaluate_table
from .fit_file import FittedFile as FittedFile
from .fit_file import fit_file as fit_file
from .fit_file import read_cost_matrix as read_cost_matrix
from .html_report import report_html as report_html
from .html_report import write_report as write_report
from .judged_rows import Case as Case
from .judged_rows import ClassFigures as ClassFigures
from .judged_rows import Counts as Counts
from .model_kinds import model_names as model_names
from .reliability import Reliability as Reliability
from .table_files import open_chunks as open_chunks
from .table_files import open_table as open_table
from .table_files import read_labelled as read_labelled
from .table_files import read_table as read_table
from .table_fit import fit_table as fit_table
from .table_model import ANSWER_COLUMNS as ANSWER_COLUMNS
from .table_model import TableModel as TableModel
from .table_reader import TableReader as TableReader
from .table_writer import TableWriter as TableWriter

Column = _columns.Column
as_table = _columns.as_table
Schema = _columns.Schema
TableError = _columns.TableError
TableWarning = _columns.TableWarning
