"""Sphinx configuration: `make docs` builds the pages into docs/_build/html, with warnings as errors."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import generate  # noqa: E402

import marl_gem  # noqa: E402

project = "marl_gem"
author = "The marl_gem authors"
copyright = f"2026, {author}"
release = version = marl_gem.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax", "generate"]
exclude_patterns = ["_build", "generate", "reference/generated/promises.md"]  # the last one is included
source_suffix = {".md": "markdown"}

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4

autodoc_default_options = {"show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
default_role = "literal"  # docstrings put names between single backticks
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
suppress_warnings = ["ref.python"]  # two modules may define the same name

html_theme = "furo"
html_title = f"marl_gem {release}"
html_static_path = ["_static"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}

generate.write_pages(HERE / "reference" / "generated")
generate.draw_figure(HERE / "_static" / "generated" / "concept.svg")
