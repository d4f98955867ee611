"""Tables and figures as a notebook shows them, the same in every front end and without trust.

Each is HTML with its caption, without a style or script of its own, and carries beside it what the
book's build makes a numbered table or figure of, with links to the runs and a download.
"""

import base64
import html
import io
import json
import re
import sys
from dataclasses import dataclass, replace

import pandas as pd

from snnl_book import require
from snnl_book.report.tables import COMPUTED, behind

TABLE = "application/vnd.snnl.table+json"
FIGURE = "application/vnd.snnl.figure+json"
PLOTLY = "application/vnd.plotly.v1+json"


@dataclass(frozen=True, repr=False)
class Shown:
    """What a cell ends with to show a table or a figure.

    ``kind`` is ``TABLE`` or ``FIGURE``, ``facts`` what the build needs: the name, the caption in
    Markdown, and a table's CSV or a figure's alternative text and the records behind it; ``html``
    is what a front end shows, ``text`` what it shows without HTML, and ``view`` the same figure
    for front ends that have plotly.
    """

    kind: str
    facts: dict[str, str]
    html: str
    text: str
    view: dict | None = None

    def _repr_mimebundle_(self, include=None, exclude=None):
        shown = {"text/html": self.html, "text/plain": self.text, self.kind: self.facts}
        return shown | ({PLOTLY: self.view} if self.view else {})


def show_table(
    table: pd.DataFrame,
    name: str,
    caption: str,
    source: pd.DataFrame | str | None = None,
    fold: str = "",
) -> Shown:
    """Show a table under a ``caption``, which is a line of Markdown.

    The ``name`` is that of the book's download, and no other of its chapter's tables and figures
    has it; a ``fold`` is the line under which a long table is hidden until a reader opens it.

    The table's column ``records`` says where each row comes from (``behind``); the book makes links
    to the runs of it, and elsewhere it is not shown. A table that has no such column needs a
    ``source`` for all of its rows: records, or ``COMPUTED`` or ``QUOTED``. Raises ValueError
    without either.

    >>> shown = show_table(pd.DataFrame({"n": [1, 2]}), "counted", "How *many*.", "quoted")
    >>> shown.facts["csv"].splitlines()[:2]
    ['n,records', '1,quoted']
    >>> "<caption>How <em>many</em>.</caption>" in shown.html
    True
    """
    if source is not None:
        table = table.assign(records=_named(source))
    elif "records" not in table:
        advice = "give them a column 'records' (report.behind), or name a source"
        raise ValueError(f"nothing says where the rows of {name} come from: {advice}")
    seen = table.drop(columns="records")
    if table.empty:
        row = ["nothing recorded yet", *["–"] * (len(seen.columns) - 1)]
        seen = pd.DataFrame([row], columns=seen.columns)
        table = seen.assign(records="")
    csv = table[[*seen.columns, "records"]].to_csv(index=False)
    # As the file has them, so that every front end shows the same digits.
    read = pd.read_csv(io.StringIO(csv), dtype=str, keep_default_na=False).drop(columns="records")
    body = read.to_html(index=False, border=0)
    body = re.sub(' style="[^"]*"| class="dataframe"', "", body)  # each front end has its own
    body = body.replace("\n", f"\n<caption>{_inline(caption)}</caption>\n", 1)
    if fold:
        body = f"<details>\n<summary>{_inline(fold)}</summary>\n{body}\n</details>"
    facts = {"name": name, "caption": caption, "fold": fold, "csv": csv}
    return Shown(TABLE, facts, body, f"{caption}\n\n{read.to_string(index=False)}")


def show_figure(
    figure, name: str, alt: str, caption: str, source: pd.DataFrame | str = COMPUTED
) -> Shown:
    """Show a matplotlib figure, and close it.

    ``name`` is that of the picture's file in the book, ``alt`` what the figure tells those who do
    not see it, ``caption`` a line of Markdown. ``source`` is what is drawn, to which the book makes
    links: records, or a table with a column ``records``; by default no record is behind it.

    >>> import matplotlib.pyplot as plt
    >>> shown = show_figure(plt.figure(), "empty", "Nothing is drawn.", "An empty figure.")
    >>> "<figcaption>An empty figure.</figcaption>" in shown.html
    True
    """
    import matplotlib.pyplot as plt
    from PIL import Image

    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=2 * figure.dpi)  # sharp on every screen
    plt.close(figure)
    pixels = Image.open(file).width
    encoded = base64.b64encode(file.getvalue()).decode()
    picture = f'<img src="data:image/png;base64,{encoded}" alt="{html.escape(alt)}"'
    picture += f' width="{pixels // 2}">'
    below = f"<figcaption>{_inline(caption)}</figcaption>"
    facts = {"name": name, "caption": caption, "alt": alt}
    facts |= {"width": f"{pixels // 2}px", "records": _named(source)}
    return Shown(FIGURE, facts, f"<figure>\n{picture}\n{below}\n</figure>", f"{caption}\n\n{alt}")


def show_views(figure, name: str, alt: str, caption: str, source=COMPUTED) -> Shown:
    """Show a plotly ``figure`` of several views, of which a menu chooses one: that of the traces
    whose ``meta`` is its name.

    It has a picture of its first view, which a front end without plotly shows (in Colab plotly
    comes from its own address). ``name``, ``alt``, ``caption`` and ``source`` are those of
    ``show_figure``.

    >>> import plotly.graph_objects as go
    >>> figure = go.Figure(go.Scatter(y=[2, 3], x=[0, 1], mode="lines", name="a", meta="b"))
    >>> shown = show_views(figure, "views", "A line that rises.", "A view.")
    >>> shown.view["layout"]["updatemenus"][0]["buttons"][0]["label"]
    'b'
    """
    require("plotly")
    views = dict.fromkeys(trace.meta for trace in figure.data)
    buttons = []
    for view in views:
        seen = {"visible": [trace.meta == view for trace in figure.data]}
        buttons.append({"label": view, "method": "update", "args": [seen]})
    for trace in figure.data:
        trace.visible = trace.meta == next(iter(views))
    menu = {"buttons": buttons, "x": 0, "xanchor": "left", "y": 1.15, "yanchor": "bottom"}
    figure.update_layout(template="plotly_white", updatemenus=[menu] if buttons else [])
    shown = show_figure(_still(figure), name, alt, caption, source)
    if "google.colab" in sys.modules:
        drawn = figure.to_html(full_html=False, include_plotlyjs="cdn")
        return replace(shown, html=f"{drawn}\n<p>{_inline(caption)}</p>")
    return replace(shown, view=json.loads(figure.to_json()))


def _still(figure):
    """Draw what of a plotly figure is seen at first."""
    import matplotlib.pyplot as plt

    seen = [trace for trace in figure.data if trace.visible]
    solid = {"projection": "3d"} if any("z" in trace for trace in seen) else {}
    still, axis = plt.subplots(figsize=(7.5, 4.5), subplot_kw=solid)
    for trace in seen:
        places = [trace[name] for name in ("xyz" if solid else "xy")]
        look = {"linestyle": "", "marker": ".", "ms": 4, "color": trace.marker.color}
        look = {"color": trace.line.color} if trace.mode == "lines" else look
        axis.plot(*places, **look, label=None if trace.showlegend is False else trace.name)
    if seen:
        axis.set_title(seen[0].meta)
        axis.legend(loc="center left", bbox_to_anchor=(1.1, 0.5), frameon=False)
    return still


def _named(source):
    """Name the records of a source, as the column ``records`` of a table does."""
    return source if isinstance(source, str) else behind(source)


def _inline(markdown):
    """Make HTML of a line of Markdown."""
    require("markdown_it")
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).renderInline(markdown)
