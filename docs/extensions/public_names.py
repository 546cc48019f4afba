"""One place for each public name: others, such as ``demur.RejectOption``, lead there."""

import importlib
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import demur

MODULES = (
    "estimators",
    "deferral",
    "rules",
    "guarantees",
    "calibration",
    "label_shift",
    "novelty",
    "costs",
    "metrics",
    "losses",
    "margins",
    "theory",
    "training",
    "columns",
    "tabular",
    "deploy",
    "deploy.onnx",
    "datasets",
    "paper",
    "errors",
)
"""The public modules, each with a page of its own in the reference."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("missing-reference", _find)
    app.connect("autodoc-skip-member", _skip)
    app.connect(
        "autodoc-process-docstring", _escape_bars, priority=900
    )  # after numpydoc
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _find(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Node
) -> nodes.Node | None:
    """Resolve a name that is documented under another module than the one it was asked for."""
    if node.get("refdomain") != "py":
        return None
    wanted = node["reftarget"].lstrip("~.")
    for candidate in _elsewhere(wanted):
        if candidate in env.domains.python_domain.objects:
            entry = env.domains.python_domain.objects[candidate]
            return _link(app, node["refdoc"], entry, content)
    return None


def _elsewhere(name: str) -> list[str]:
    """Return the places where a name may be documented, the surest first."""
    parts = name.removeprefix("demur.").split(".")
    tail = ".".join(parts)
    places = []
    if (
        name.startswith("demur.")
        and parts[0] in demur.__all__
        and parts[0] not in MODULES
    ):
        home = getattr(demur, parts[0]).__module__.split(".")[1]
        places.append(f"demur.{home}.{tail}")
    if (
        parts[0] in MODULES
    ):  # the path of the file, such as demur.guarantees.selection.Certificate
        places.append(f"demur.{parts[0]}.{parts[-1]}")
    last = parts[-1]  # or of a method: demur.tabular.table_model.TableModel.answers
    places += [f"demur.{module}.{one}" for module in MODULES for one in (tail, last)]
    if len(parts) > 1:
        places += [f"demur.{module}.{parts[-2]}.{last}" for module in MODULES]
    return places


def _link(app: Sphinx, page: str, entry: Any, content: nodes.Node) -> nodes.Node:
    address = app.builder.get_relative_uri(page, entry.docname) + "#" + entry.node_id
    return nodes.reference("", "", content, internal=True, refuri=address)


def _skip(
    app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what scikit-learn generates for metadata routing."""
    generated = name.endswith("_request") and name.startswith("set_")
    return True if generated or name == "get_metadata_routing" else None


def _escape_bars(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Keep absolute values such as ``|x|`` from being read as substitutions of reStructuredText."""
    for number, line in enumerate(lines):
        if (
            "|" in line
            and not line.lstrip().startswith((">>>", "...", ".. math"))
            and ":math:" not in line
        ):
            lines[number] = line.replace("|", r"\|")


def page_of(module: str) -> str:
    """Return the page of the reference that a module stands on, without its suffix."""
    return module.rsplit(".")[-1]


def public_names() -> dict[str, list[str]]:
    """Return the public names of each module of the reference."""
    return {
        name: list(importlib.import_module(f"demur.{name}").__all__) for name in MODULES
    }
