"""The HTML report of an evaluation: one self-contained file that works without a network."""

from demur.report.html import report_html
from demur.report.writing import write_report

__all__ = ["report_html", "write_report"]
