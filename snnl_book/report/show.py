"""Tables and figures as a notebook shows them, the same in every front end and without trust.

Each is HTML with its caption, and has no style or script. With it comes what the book's build
needs to make a numbered table or figure with links to the runs and a download.
"""

import base64
import html
import io
import re
from dataclasses import dataclass, replace

import pandas as pd

from snnl_book import require
from snnl_book.report.tables import COMPUTED, behind

TABLE = "application/vnd.snnl.table+json"
FIGURE = "application/vnd.snnl.figure+json"


@dataclass(frozen=True, repr=False)
class Shown:
    """A table or a figure that a notebook shows if it is the value of a cell.

    ``mime`` is ``TABLE`` or ``FIGURE``. ``facts`` are for the build: the name, the caption in
    Markdown, and a table's CSV or a figure's alternative text and the records behind it. A front
    end shows ``html``, or ``text`` if it shows no HTML.
    """

    mime: str
    facts: dict[str, str]
    html: str
    text: str

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/html": self.html, "text/plain": self.text, self.mime: self.facts}


def show_table(
    table: pd.DataFrame,
    name: str,
    caption: str,
    source: pd.DataFrame | str | None = None,
    fold: str = "",
) -> Shown:
    """Show a table under a ``caption``, which is a line of Markdown.

    The ``name`` is that of the book's download, and must be unique in its chapter. A long table is
    hidden under the line ``fold`` until a reader opens it.

    The table's column ``records`` names the origin of each row (``behind``). The book turns it into
    links to the runs, and other front ends do not show it. A table without this column needs a
    ``source`` for all of its rows: records, ``COMPUTED`` or ``QUOTED``. Raises ValueError if it has
    neither.

    >>> shown = show_table(pd.DataFrame({"n": [1, 2]}), "counted", "How *many*.", "quoted")
    >>> shown.facts["csv"].splitlines()[:2]
    ['n,records', '1,quoted']
    >>> "<caption>How <em>many</em>.</caption>" in shown.html
    True
    """
    if source is not None:
        table = table.assign(records=_named(source))
    elif "records" not in table:
        advice = "add a column 'records' (see report.behind), or name a source"
        raise ValueError(f"the table {name} does not say where its rows come from: {advice}")
    columns = [name for name in table.columns if name != "records"]
    if table.empty:
        row = ["nothing recorded yet", *["–"] * (len(columns) - 1), ""]
        table = pd.DataFrame([row], columns=[*columns, "records"])
    csv = table[[*columns, "records"]].to_csv(index=False)
    # Read from the file's text, so that every front end shows the same digits.
    cells = pd.read_csv(io.StringIO(csv), dtype=str, keep_default_na=False).drop(columns="records")
    body = cells.to_html(index=False, border=0)
    body = re.sub(' style="[^"]*"| class="dataframe"', "", body)  # front ends add theirs
    body = body.replace("\n", f"\n<caption>{_inline(caption)}</caption>\n", 1)
    if fold:
        body = f"<details>\n<summary>{_inline(fold)}</summary>\n{body}\n</details>"
    facts = {"name": name, "caption": caption, "fold": fold, "csv": csv}
    return Shown(TABLE, facts, body, f"{caption}\n\n{cells.to_string(index=False)}")


def show_file(table: pd.DataFrame, name: str, caption: str, line: str) -> Shown:
    """Offer a long table as a file: the book has a link to its CSV, a notebook the folded table.

    ``line`` is the text of the link, and of the fold; ``name`` and ``caption`` are those of
    ``show_table``, and the table has a column ``records``.

    >>> table = pd.DataFrame({"n": [1], "records": ["quoted"]})
    >>> show_file(table, "all", "Every number.", "Every number as a CSV").facts["file"]
    'yes'
    """
    shown = show_table(table, name, caption, fold=line)
    return replace(shown, facts=shown.facts | {"file": "yes"})


def show_figure(
    figure, name: str, alt: str, caption: str, source: pd.DataFrame | str = COMPUTED
) -> Shown:
    """Show a matplotlib figure, and close it.

    Args:
        name: of the picture's file in the book.
        alt: the alternative text, for readers who cannot see the figure.
        caption: a line of Markdown.
        source: the drawn records, or a table with a column ``records``, to which the book makes
            links. By default no record is behind the figure.

    >>> import matplotlib.pyplot as plt
    >>> shown = show_figure(plt.figure(), "empty", "Nothing is drawn.", "An empty figure.")
    >>> "<figcaption>An empty figure.</figcaption>" in shown.html
    True
    """
    import matplotlib.pyplot as plt

    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=2 * figure.dpi)  # sharp on every screen
    plt.close(figure)
    pixels = int.from_bytes(file.getvalue()[16:20], "big")  # the width in the header of a PNG
    encoded = base64.b64encode(file.getvalue()).decode()
    picture = f'<img src="data:image/png;base64,{encoded}" alt="{html.escape(alt)}"'
    picture += f' width="{pixels // 2}">'
    below = f"<figcaption>{_inline(caption)}</figcaption>"
    facts = {"name": name, "caption": caption, "alt": alt}
    facts |= {"width": f"{pixels // 2}px", "records": _named(source)}
    return Shown(FIGURE, facts, f"<figure>\n{picture}\n{below}\n</figure>", f"{caption}\n\n{alt}")


def _named(source):
    """Return the names of a source's records, as in the column ``records`` of a table."""
    return source if isinstance(source, str) else behind(source)


def _inline(markdown):
    """Return a line of Markdown as HTML."""
    require("markdown_it")
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).renderInline(markdown)
