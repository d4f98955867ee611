"""Sphinx extension: tables with links to runs, the papers' equation numbers, the book's style.

Nothing is fetched from elsewhere.
"""

import csv
import os
import re
import shutil
from html import escape
from importlib import metadata
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from PIL import Image
from sphinx import addnodes
from sphinx.directives.patches import CSVTable
from sphinx.domains.math import MathDomain
from sphinx.util.docutils import SphinxDirective, SphinxRole

MATHJAX = (  # self-contained: its glyphs are drawn as SVG, so that no font is fetched
    "tex-mml-svg.js"
)
STYLE = "book.css"
BOX = '<div class="wide" tabindex="0">'  # scrolls by itself, by the keyboard too


def heading_id(title: str) -> str:
    """Return the anchor of a heading, which is the one that Jupyter gives it."""
    return title.replace(" ", "-")


def _settings(app, config):
    config.mathjax_path = MATHJAX
    if not config.html_theme_options.get("repository_url"):
        config.html_theme_options[
            "launch_buttons"
        ] = {}  # the theme would fail, for there is nothing to launch
    config.numfig = (
        False  # sphinx-jupyterbook-latex insists on it; here "Table 3" always means the paper's
    )


def _disconnect_thebe(app, config):
    # Live cells would need a public server; Jupyter Book loads sphinx-thebe, and its scripts,
    # on every page all the same.
    for listeners in app.events.listeners.values():
        listeners[:] = [
            listener
            for listener in listeners
            if not listener.handler.__module__.startswith("sphinx_thebe")
        ]


class PaperNumbers(MathDomain):
    """Number an equation as its paper does, on any page of the book.

    The labels are ``eq-N`` for the text paper, and ``cb-N`` for the ClusterBERT paper.
    """

    def note_equation(self, docname, labelid, location=None):
        super().note_equation(docname, labelid, location)
        if number := re.fullmatch(r"(?:eq|cb)-(\d+)", labelid):
            self.equations[labelid] = (docname, int(number[1]))


class RunTable(CSVTable):
    """A table that a chapter wrote to ``tables/<argument>.csv`` (``report.show_table``).

    It has a link to the file, and in each row a link to the runs behind it. If all rows come from
    the same runs, one link to them stands below the table instead.

    The content is the caption. Names of pages in a column ``page`` become links. Options:
    ``name``, ``widths``, and ``markup`` if cells are MyST.
    """

    option_spec = CSVTable.option_spec | {"markup": directives.flag}

    @property
    def env(self):
        return self.state.document.settings.env

    def run(self):
        name = self.arguments[0]
        path, whole = self.env.relfn2path(f"tables/{name}.csv")
        self.env.note_dependency(path)
        with Path(whole).open(newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        *header, last = header
        if last != "records":
            raise self.error(
                f"the last column of {path} must be 'records': show it with report.show_table"
            )
        sources = [row.pop() for row in rows]
        has_runs = any(groups(source) for source in sources)
        in_rows = has_runs and ("runs" in header or len(sources) == 1)
        common = {*sources} if len({*sources}) == 1 and not in_rows else ()
        if not common and "runs" not in header:
            header.append("runs")
            rows = [[*row, ""] for row in rows]
        plain = "markup" not in self.options
        self.arguments = [" ".join(self.content)]
        self.options = {name: value for name, value in self.options.items() if name != "markup"} | {
            "header-rows": 1
        }
        self.content = StringList(
            [self._line(header, plain=False), *(self._line(row, plain) for row in rows)],
            source=whole,
        )
        parts = super().run()
        body = next(iter(parts[0].findall(nodes.tbody)))
        for row, cells, source in zip(body, rows, sources, strict=True):
            if not common:
                column = header.index("runs")
                self._fill(row[column], links_to_runs(self.env, source, cells[column]))
            if "page" in header:
                column = header.index("page")
                self._fill(row[column], [nodes.paragraph("", "", self._page(cells[column]))])
        shared = [source for source in common if groups(source)]
        parts.append(self._below(name, *(source for source in common if source not in shared)))
        for source in shared:
            links = links_to_runs(self.env, source, f"runs ({len(source.split())})")
            parts.append(nodes.container("", *links, classes=["below-figure"]))
        return parts

    @staticmethod
    def _line(row, plain):
        # A mark at the start opens a quotation, a heading or a list, but "> 0" is a test.
        marks = r"([*_`$<\\[]|^[>#]|^[-+](?= )|(?<=^\d)[.)](?= ))"
        hyphen = r"(?<![\w.-])-(?=\d)"  # a minus sign, but not the hyphen of a date or a name
        if plain:
            row = [re.sub(hyphen, "−", re.sub(marks, r"\\\1", cell)) for cell in row]
        return ",".join('"{}"'.format(cell.replace('"', '""') or " ") for cell in row)

    @staticmethod
    def _fill(entry, children):
        entry.children = []
        entry += children

    def _page(self, name):
        target = {
            "refdomain": "std",
            "reftype": "doc",
            "reftarget": name,
            "refexplicit": False,
            "refwarn": True,
            "refdoc": self.env.docname,
        }
        return addnodes.pending_xref("", nodes.inline("", name), **target)

    def _below(self, name, *words):
        file = addnodes.download_reference(
            "",
            "",
            nodes.literal("", "CSV"),
            refdoc=self.env.docname,
            reftarget=f"tables/{name}.csv",
        )
        text = "".join(f" · {word}" for word in words if word)
        return nodes.paragraph("", "", file, nodes.Text(text), classes=["below-table"])


class RunsOf(SphinxDirective):
    """Links from a figure to its runs, whose names are the content, in a list to open."""

    has_content = True

    def run(self):
        source = " ".join(self.content)
        links = links_to_runs(self.env, source, f"runs ({len(source.split())})")
        return [nodes.container("", *links, classes=["below-figure"])]


class TableOfRuns(SphinxDirective):
    """A table of runs in HTML with a part for each setting, to which the tables of the book link.

    Where scripts run, ``runs.js`` adds a box that filters the rows.
    """

    has_content = True

    def run(self):
        html = "\n".join(self.content)
        labels = self.env.get_domain("std").anonlabels
        for label in re.findall(r'<tbody id="([^"]+)"', html):
            labels[label] = (self.env.docname, label)
        script = '<script src="../../_static/runs.js" defer></script>'
        return [nodes.raw("", html + script, format="html")]


class Value(SphinxRole):
    """``{value}`name```: a number in prose, from ``tables/values.csv`` when the book is built."""

    def run(self):
        path, whole = self.env.relfn2path("tables/values.csv")
        self.env.note_dependency(path)
        with Path(whole).open(newline="", encoding="utf-8") as file:
            values = dict(csv.reader(file))
        if self.text not in values:
            problem = f"{path} has no value {self.text!r}: add it to pages.py, or correct the name"
            return [], [self.inliner.reporter.error(problem)]
        return [nodes.Text(values[self.text])], []


def groups(source):
    """List the groups of runs that a row's ``records`` names, each once.

    A group has all seeds of one setting, as ``experiment/key`` with ``*`` for the seed.
    """
    names = [
        re.sub(r"-s\d+-n(?=\d)", "-s*-n", name)
        for name in source.split()
        if re.fullmatch(r"[a-z-]+/\S+-s\d+-n\d+-[0-9a-f]{8}", name)
    ]
    return list(dict.fromkeys(names))


def links_to_runs(env, source, text):
    """Return the content of the cell of a row's runs, or of the line below a figure.

    It is a link, a list of links to open, or words if there is no run.
    """
    groups_of_runs = groups(source)
    if not groups_of_runs:
        words = source if source and text in ("", "–", "-") else text or "none"
        return [nodes.paragraph("", words)]
    text = text if text not in ("", "–") else f"{len(source.split())}"
    if len(groups_of_runs) == 1:
        return [nodes.paragraph("", "", _link(env, groups_of_runs[0], text))]
    short = [group.split("/", 1)[1].rsplit("-", 1)[0] for group in groups_of_runs]
    texts = [
        group.split("/", 1)[1] if short.count(text) > 1 else text
        for group, text in zip(groups_of_runs, short, strict=True)
    ]
    items = [
        nodes.list_item("", nodes.paragraph("", "", _link(env, *pair)))
        for pair in zip(groups_of_runs, texts, strict=True)
    ]
    label = f"<details class='runs'><summary>{escape(text)}</summary>"
    return [
        nodes.raw("", label, format="html"),
        nodes.bullet_list("", *items),
        nodes.raw("", "</details>", format="html"),
    ]


def _link(env, group, text):
    target = {
        "refdomain": "std",
        "reftype": "ref",
        "reftarget": label_of(group),
        "refexplicit": True,
        "refwarn": True,
        "refdoc": env.docname,
    }
    return addnodes.pending_xref("", nodes.inline("", text), **target)


def label_of(group):
    """Return the label of a group of runs on the page of its experiment."""
    return re.sub(r"[^a-z0-9]+", "-", f"runs-{group.replace('*', 'all')}".lower())


def _use_all_cores(app):
    """Read and write pages on all cores, which jupyter-book has no option for.

    Extensions that do not say if they can: they make LaTeX only, number the sections of pages that
    are read, or read the table of contents.
    """
    app.parallel = os.cpu_count() or 1
    for extension in app.extensions.values():
        for kind in ("parallel_read_safe", "parallel_write_safe"):
            if getattr(extension, kind, None) is None:
                setattr(extension, kind, True)


def _copy_files(app, exception):
    if exception is None and app.builder.format == "html":
        (mathjax,) = (
            file for file in metadata.files("sphinx-mathjax-offline") if file.name == MATHJAX
        )
        style_and_scripts = (
            file
            for file in sorted(Path(__file__).parent.iterdir())
            if file.suffix in {".css", ".js"}
        )
        for file in (Path(mathjax.locate()), *style_and_scripts):
            shutil.copyfile(file, Path(app.outdir) / "_static" / file.name)
        for picture in (Path(app.outdir) / "_images").glob("*.png"):
            shrink(picture)
        for chapter in (Path(app.srcdir).parent / "executed").glob("*.ipynb"):
            # A page offers for download the chapter that looks the same everywhere.
            shutil.copyfile(chapter, Path(app.outdir) / "_sources" / "book" / chapter.name)
        for page in Path(app.outdir).rglob("*.html"):
            page.write_text(mended(page.read_text(encoding="utf-8")), encoding="utf-8")


def shrink(picture):
    """Write a picture with a palette of 256 colours, which takes a third of the bytes; once."""
    with Image.open(picture) as image:
        if image.mode != "P":
            # A seventh of the time of median cut; white becomes (254, 254, 254).
            palette = Image.Quantize.FASTOCTREE
            image.convert("RGB").quantize(256, palette, dither=Image.Dither.NONE).save(picture)


def mended(html):
    """Return a page that can be used with a keyboard and a screen reader, where theme and Sphinx
    fail at that, and without a link to a missing style sheet.

    Mending a page again changes nothing.
    """
    html = re.sub(r"<link [^>]*sphinx-thebe\.css[^>]*>\n?", "", html)
    html = html.replace(
        '<summary><span class="toctree-toggle"',
        '<summary aria-label="Pages below this one"><span class="toctree-toggle"',
    )
    html = re.sub(
        r'<dl>\s*(<dd><em class="sig-param">.*?</dd>\s*)</dl>',
        lambda match: _signature(match[1]),
        html,
        flags=re.DOTALL,
    )
    html = html.replace('role="doc-biblioentry"', 'role="listitem"')
    return re.sub(
        rf'(?<!{BOX})(<table class="(?:table|docutils)\b.*?</table>)',
        lambda match: _boxed(match[1]),
        html,
        flags=re.DOTALL,
    )


def _boxed(table):
    """Put a table into a box in which it scrolls, and its caption above the box."""
    caption = re.search(r"<caption>(.*?)</caption>", table, re.DOTALL)
    above = f'<p class="table-caption">{caption[1]}</p>' if caption else ""
    return above + BOX + (table.replace(caption[0], "") if caption else table) + "</div>"


def _signature(parameters):
    return (
        '<ul class="sig-list">'
        + parameters.replace("<dd>", "<li>").replace("</dd>", "</li>")
        + "</ul>"
    )


def setup(app):
    app.connect("config-inited", _settings, priority=900)
    app.connect("config-inited", _disconnect_thebe, priority=900)
    app.connect("builder-inited", _use_all_cores)
    app.connect("build-finished", _copy_files)
    app.add_domain(PaperNumbers, override=True)
    app.add_directive("run-table", RunTable)
    app.add_directive("runs-of", RunsOf)
    app.add_directive("table-of-runs", TableOfRuns)
    app.add_role("value", Value())
    app.add_css_file(STYLE)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
