"""Judging a model with a reject option on labelled rows: every figure, its interval, and what it means in words."""

from demur.evaluation.by_class import ClassFigures
from demur.evaluation.cases import Case
from demur.evaluation.counts import Counts
from demur.evaluation.evaluation import Evaluation
from demur.evaluation.of_table import evaluate_table
from demur.evaluation.reliability import Reliability

__all__ = ["Case", "ClassFigures", "Counts", "Evaluation", "Reliability", "evaluate_table"]
