"""Formulas as drawings: the pages need neither LaTeX to be built nor a network to be read."""

import io
import re
from typing import Any

from docutils import nodes
from matplotlib import rc_context
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser, math_to_image
from sphinx.application import Sphinx
from sphinx.errors import SphinxError

_PARSER = MathTextParser("path")
_SIZE = 9.0
"""Points, at which the drawing is made; the page scales it with its own letters, 1 em to this."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the renderer known to Sphinx as ``static``."""
    app.add_html_math_renderer("static", (_inline, None), (_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(drawing(node.astext()))
    raise nodes.SkipNode


def _display(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{drawing(node.astext())}</div>')
    raise nodes.SkipNode


def drawing(source: str) -> str:
    """Return a formula as an SVG element that takes the size and the colour of the text around it."""
    formula = f"${in_mathtext(source)}$"
    out = io.BytesIO()
    try:
        with rc_context(
            {"svg.fonttype": "path", "svg.hashsalt": source, "mathtext.fontset": "cm"}
        ):
            depth = math_to_image(
                formula,
                out,
                prop=FontProperties(size=10.0),
                dpi=72,
                format="svg",
                color="#123456",
            )
    except ValueError as error:
        raise SphinxError(f"cannot draw the formula {source!r}: {error}") from error
    svg = out.getvalue().decode()
    width, height = (
        float(value) / _SIZE
        for value in re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups()
    )
    view = re.search(r'viewBox="[^"]*"', svg)[0]
    inner = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    inner = re.sub(r"<metadata>.*?</metadata>", "", inner, flags=re.DOTALL)
    inner = re.sub(
        r'<g id="patch_1">.*?</g>', "", inner, flags=re.DOTALL
    )  # the white sheet behind it
    inner = inner.replace("#123456", "currentColor")
    title = source.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    style = f"width:{width:.3f}em;height:{height:.3f}em;vertical-align:{-depth / _SIZE:.3f}em"
    return f'<svg class="formula" role="img" aria-label="{title}" {view} style="{style}">{inner}</svg>'


def in_mathtext(source: str) -> str:
    """Write what matplotlib's mathtext does not know of LaTeX in other words."""
    text = " ".join(source.split())
    text = re.sub(r"\\[td]?frac\s*(\w)(\w)", r"\\frac{\1}{\2}", text)
    text = (
        text.replace(r"\tfrac", r"\frac")
        .replace(r"\sqrt n", r"\sqrt{n}")
        .replace(r"\hat r", r"\hat{r}")
    )
    text = (
        text.replace(r"\mathcal N", r"\mathcal{N}")
        .replace(r"\big", "")
        .replace(r"\le ", r"\leq ")
    )
    text = text.replace(r"\ge ", r"\geq ").replace(r"\ne ", r"\neq ")
    return text.replace(r"\text{", r"\mathrm{")
