"""Sphinx's settings for the site that `make docs` builds (tools/docs_site.py calls it)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

# The pages are copied to build/ before they are built; the tools stand in the checkout.
ROOT = Path(os.environ["HEADLAB_DOCS_ROOT"])
sys.path.insert(0, str(ROOT / "tools"))

import docs_diagrams  # noqa: E402 - after the path to it
import docs_gallery  # noqa: E402

from headlab import __version__  # noqa: E402 - the tools' folder may come first

project = "headlab"
author = "the authors of headlab"
copyright = "the authors of headlab, Apache-2.0"
release = __version__
version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["gallery/**/*.ipynb", "gallery/**/*.py", "gallery/*.md5"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

# Pages as they stand in the repository: links to headings as GitHub spells them.
myst_heading_anchors = 6
myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]
default_role = "literal"
napoleon_use_ivar = True

html_theme = "furo"
html_title = "headlab"
html_favicon = str(ROOT / "headlab" / "dashboard" / "static" / "icon.svg")
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options: dict[str, Any] = {
    "light_css_variables": {"color-brand-primary": "#1f5fa8", "color-brand-content": "#1f5fa8"},
    "dark_css_variables": {"color-brand-primary": "#8ab8ee", "color-brand-content": "#8ab8ee"},
}
pygments_style = "friendly"
pygments_dark_style = "monokai"

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
nitpicky = False

sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": str(ROOT / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"[\\/]plot_",
    "within_subsection_order": "docs_gallery.GalleryPosition",
    "image_scrapers": ("docs_gallery.chart_scraper", "matplotlib"),
    "capture_repr": (),
    "remove_config_comments": True,
    "write_computation_times": False,  # its page would ask other hosts for scripts
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "min_reported_time": 0,
    "plot_gallery": os.environ.get("HEADLAB_DOCS_GALLERY", "on") == "on",
    "abort_on_example_error": True,
    "reset_modules": ("matplotlib", "docs_gallery.load_each_model_once"),
    "nested_sections": False,
}
# What the examples print is compared by nobody; where it says seconds, it says those of this build.
suppress_warnings = ["config.cache"]


class GalleryChart(SphinxDirective):
    """The chart in which an example of the gallery ends, with a link to the example."""

    required_arguments = 1
    has_content = False

    def run(self) -> list[nodes.Node]:
        """Read the drawing that the example has left."""
        name = self.arguments[0]
        images = Path(self.env.srcdir) / "gallery" / "images"
        drawings = sorted(images.glob(f"sphx_glr_{name}_*.svg"))
        if not drawings:
            return []
        drawing = drawings[-1]
        markup = f'<div class="chart">\n{drawing.read_text("utf-8")}\n</div>'
        file = nodes.image(uri=f"/gallery/images/{drawing.stem}.png", classes=["chart-file"])
        file["alt"] = name.removeprefix("plot_").replace("_", " ")
        file["loading"] = "lazy"
        return [nodes.raw("", markup, format="html"), file]


class FlowChart(SphinxDirective):
    """A flow chart that a document holds as Mermaid, drawn when the site is built."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Draw it."""
        return [nodes.raw("", docs_diagrams.html_of("\n".join(self.content)), format="html")]


FOLDED_ROWS = 14
"""Tables with more rows are folded, so that the words and pictures around them are seen."""


def fold_long_tables(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Fold each long table into an element that opens at a press.

    Args:
        app: Sphinx.
        doctree: The page.
        docname: Its name.
    """
    if docname.startswith(("errors/", "reference/", "api")):
        return
    for table in list(doctree.findall(nodes.table)):
        rows = [row for body in table.findall(nodes.tbody) for row in body.children]
        if len(rows) <= FOLDED_ROWS or table.parent is None:
            continue
        heads = [entry.astext() for head in table.findall(nodes.thead) for entry in head[0]]
        columns = ", ".join(filter(None, heads))
        summary = f"Table of {len(rows):,} rows: {columns[:90]}{'…' if len(columns) > 90 else ''}"
        opening = f'<details class="folded-table"><summary>{_escaped(summary)}</summary>'
        place = table.parent.index(table)
        table.parent[place:place] = [nodes.raw("", opening, format="html")]
        table.parent.insert(place + 2, nodes.raw("", "</details>", format="html"))


_TREES: dict[tuple[Any, ...], str] = {}


def share_the_tree_of_errors(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Make the tree beside the pages of errors once: it is the same for all of them.

    Args:
        app: Sphinx.
        pagename: Name of the page.
        templatename: Of its template.
        context: What the template is given.
        doctree: The page.
    """
    make_tree = context.get("toctree")
    if make_tree is None or not pagename.startswith("errors/") or pagename == "errors/index":
        return

    def shared_tree(**options: Any) -> str:
        key = tuple(sorted(options.items()))
        if key not in _TREES:
            _TREES[key] = make_tree(**options)
        return _TREES[key]

    context["toctree"] = shared_tree


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect what the pages need beyond the extensions.

    Args:
        app: Sphinx.
    """
    app.connect("env-before-read-docs", lambda *_: docs_gallery.load_models_anew())
    app.add_directive("gallery-chart", GalleryChart)
    app.add_directive("flow-chart", FlowChart)
    # Before the theme asks for the tree, at 500.
    app.connect("html-page-context", share_the_tree_of_errors, priority=400)
    app.connect("doctree-resolved", fold_long_tables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
