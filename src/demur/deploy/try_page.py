"""The pages of a service: a form to try the model, and its report."""

from demur import __version__
from demur.tabular import TableModel
from demur.tabular.class_labels import as_column
from demur.tabular.html_pages import (
    SECURITY_HEADERS,
    asset,
    content_policy,
    embedded_json,
    own_parts,
    page_environment,
)

__all__ = ["report_headers", "try_page"]

_MOST_CHOICES = 100
"""Values that a list offers; above it, typing is quicker."""

_CLASSES_NAMED = 12


def report_headers(page: str) -> dict[str, str]:
    """Return the HTTP headers for a report, which comes from a model folder and is not trusted.

    The report may run the scripts and styles that it contains, which are named by their hashes. It may not load or
    send anything, and no other page may frame it.

    Examples
    --------
    >>> report_headers("<h1>good</h1>")["Content-Security-Policy"]
    "sandbox allow-scripts allow-modals; default-src 'none'; style-src 'none'; script-src 'none'; ...'none'"
    """
    styles, scripts = own_parts(page)
    policy = content_policy(styles, scripts, "frame-ancestors 'none'")
    return SECURITY_HEADERS | {"Content-Security-Policy": f"sandbox allow-scripts allow-modals; {policy}"}


def try_page(model: TableModel, *, has_report: bool) -> tuple[str, dict[str, str]]:
    """Return the form to try a model as HTML that loads nothing else, and its HTTP headers.

    Parameters
    ----------
    model : TableModel
    has_report : bool
        Whether to link to ``/report``.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from demur.tabular import fit_table
    >>> table = pa.table({"<b>": [1.0, 1.1, 1.2, 5.0, 5.1, 5.2] * 9, "y": list("aaabbb") * 9})
    >>> page, headers = try_page(fit_table(table, "y", model="lr"), has_report=False)
    >>> "&lt;b&gt;" in page, "<b>" in page, "://" in page
    (True, False, False)
    """
    style = asset("demur.tabular", "report.css") + asset("demur.deploy", "try.css")
    script = asset("demur.deploy", "try.js")
    data = {
        "names": list(model.schema.names),  # the exact names, which HTML may have to write differently
        "cost": model.cost,
        "cost_adjustable": model.cost_adjustable,
        "has_proba": model.has_proba,
    }
    context = {
        "model": model,
        "classes": [str(one) for one in as_column(model.classes[:_CLASSES_NAMED], model.label_type).to_pylist()],
        "columns": model.schema.columns,
        "most_choices": _MOST_CHOICES,
        "highest_cost": max(0.5, model.cost or 0),
        "has_report": has_report,
        "style": style,
        "script": script,
        "data": embedded_json(data),
        "version": __version__,
    }
    page = page_environment("demur.deploy", needed_by="the service", extra="serve").get_template("try.html")
    policy = content_policy(style, script, "connect-src 'self'", "frame-ancestors 'none'")
    return str(page.render(context)), {**SECURITY_HEADERS, "Content-Security-Policy": policy}
