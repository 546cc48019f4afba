"""The documentation site: ``make docs``."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))

from demur import __version__  # noqa: E402 # the path comes first

project = "demur"
author = "The demur developers"
copyright = "the demur developers"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "static_math",
    "public_names",
]
exclude_patterns = ["_build", "extensions"]
highlight_language = "text"
pygments_style = "default"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "demur"
html_static_path = ["static"]
html_css_files = ["demur.css"]
html_math_renderer = "static"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b5fa5",
        "color-brand-content": "#0b5fa5",
        "color-brand-visited": "#0b5fa5",
    },
    "dark_css_variables": {
        "color-brand-primary": "#6fb3e8",
        "color-brand-content": "#6fb3e8",
        "color-brand-visited": "#6fb3e8",
    },
}

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say the types in words
autodoc_default_options = {"members": True}
numpydoc_show_class_members = False  # autodoc lists the methods, with their signatures
numpydoc_class_members_toctree = False
