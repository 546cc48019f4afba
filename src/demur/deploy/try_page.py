"""The page to try a model: a form made from its columns, in the look of the report."""

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any

from demur._version import __version__
from demur.errors import MissingExtraError
from demur.tabular import TableModel
from demur.tabular.class_labels import as_column
from demur.tabular.evaluation_words import cost_words
from demur.tabular.html_pages import visible

__all__ = ["COMMON_HEADERS", "SANDBOX", "try_page"]

_MOST_CHOICES = 100
"""Values that a list offers; above it, typing is quicker."""

_CLASSES_NAMED = 12

COMMON_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}

SANDBOX = {"Content-Security-Policy": "sandbox allow-scripts allow-modals"}
"""For the report: a file from a model's folder, which shall not speak to the service in the reader's name."""


def try_page(model: TableModel, *, has_report: bool) -> tuple[str, dict[str, str]]:
    """Return the page as HTML that loads nothing from anywhere, and the HTTP headers to send it with.

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
    style = _asset("demur.tabular", "report.css") + _asset("demur.deploy", "try.css")
    script = _asset("demur.deploy", "try.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    context = {
        "model": model,
        "classes": [str(one) for one in as_column(model.classes[:_CLASSES_NAMED], model.label_type).to_pylist()],
        "columns": model.schema.columns,
        "most_choices": _MOST_CHOICES,
        "highest_cost": max(0.5, model.cost),
        "has_report": has_report,
        "style": style,
        "script": script,
        "data": _embedded(_data(model)),
        "version": __version__,
    }
    page = str(_environment().get_template("try.html").render(context))
    return page, {**COMMON_HEADERS, "Content-Security-Policy": policy}


def _data(model: TableModel) -> dict[str, Any]:
    """Return what the script needs: the exact names, which the page may have to write otherwise."""
    return {
        "names": list(model.schema.names),
        "cost": model.cost,
        "cost_is_free": model.cost_is_free,
        "gives_probabilities": hasattr(model.classifier, "predict_proba"),
    }


def _embedded(data: dict[str, Any]) -> str:
    """Write JSON that cannot end the element it stands in, whatever the strings in it."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _asset(package: str, name: str) -> str:
    return files(package).joinpath("page", name).read_text(encoding="utf-8")


def _hash(source: str) -> str:
    """Return the source expression by which the page's policy allows this script or style and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def _environment() -> Any:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError:
        raise MissingExtraError("the service needs Jinja2: pip install demur[serve].") from None
    environment = Environment(
        loader=FunctionLoader(lambda name: _asset("demur.deploy", name)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters["cost_words"] = cost_words
    return environment
