"""Sphinx extension: the papers' equation numbers, MathJax from its package, the book's style sheet, no scripts fetched from elsewhere."""

import re
import shutil
from importlib import metadata
from pathlib import Path

from sphinx.domains.math import MathDomain

MATHJAX = "tex-mml-svg.js"  # self-contained: its glyphs are drawn as SVG, so that no font is fetched
STYLE = "book.css"


def _settings(app, config):
    config.mathjax_path = MATHJAX
    if not config.html_theme_options.get("repository_url"):
        config.html_theme_options["launch_buttons"] = {}  # the theme would fail, for there is nothing to launch
    config.numfig = False  # sphinx-jupyterbook-latex insists on it; here "Table 3" always means the paper's


def _disconnect_thebe(app, config):
    # Live cells would need a public server; Jupyter Book loads sphinx-thebe, and its scripts, on every page all the same.
    for listeners in app.events.listeners.values():
        listeners[:] = [listener for listener in listeners if not listener.handler.__module__.startswith("sphinx_thebe")]


class PaperNumbers(MathDomain):
    """Number an equation as its paper does, wherever in the book it stands: ``eq-N`` of the text paper, ``cb-N`` of the ClusterBERT paper."""

    def note_equation(self, docname, labelid, location=None):
        super().note_equation(docname, labelid, location)
        if number := re.fullmatch(r"(?:eq|cb)-(\d+)", labelid):
            self.equations[labelid] = (docname, int(number[1]))


def _copy_files(app, exception):
    if exception is None and app.builder.format == "html":
        (mathjax,) = (file for file in metadata.files("sphinx-mathjax-offline") if file.name == MATHJAX)
        for file in (Path(mathjax.locate()), Path(__file__).parent / STYLE):
            shutil.copyfile(file, Path(app.outdir) / "_static" / file.name)


def setup(app):
    app.connect("config-inited", _settings, priority=900)
    app.connect("config-inited", _disconnect_thebe, priority=900)
    app.connect("build-finished", _copy_files)
    app.add_domain(PaperNumbers, override=True)
    app.add_css_file(STYLE)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
