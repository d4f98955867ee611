"""What a cell shows: HTML that any front end renders, and what the book's build needs beside it."""

import base64

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from snnl_book.report.show import FIGURE, TABLE, show_figure, show_file, show_table
from snnl_book.report.tables import COMPUTED


def test_a_table_is_html_with_its_caption_and_no_style_or_script():
    table = pd.DataFrame({"a < b": ["x_y", "*"], "mean": [0.5, None]})
    shown = show_table(table, "some", "Means over *5* seeds, as in [7](07.ipynb).", "quoted")
    bundle = shown._repr_mimebundle_()
    assert {*bundle} == {"text/html", "text/plain", TABLE}
    html = bundle["text/html"]
    caption = 'Means over <em>5</em> seeds, as in <a href="07.ipynb">7</a>.'
    assert f"<caption>{caption}</caption>" in html
    assert "<th>a &lt; b</th>" in html and "<td>x_y</td>" in html and "<td></td>" in html
    assert "style" not in html and "script" not in html and "quoted" not in html
    assert bundle[TABLE]["csv"] == "a < b,mean,records\nx_y,0.5,quoted\n*,,quoted\n"


def test_a_folded_table_opens_under_its_line():
    shown = show_table(pd.DataFrame({"n": [1]}), "some", "A caption.", "quoted", fold="All *rows*")
    assert shown.html.startswith("<details>\n<summary>All <em>rows</em></summary>\n<table")
    assert shown.html.endswith("</table>\n</details>") and shown.facts["fold"] == "All *rows*"


def test_a_file_is_a_folded_table_in_a_notebook():
    table = pd.DataFrame({"n": [1], "records": ["quoted"]})
    shown, folded = show_file(table, "some", "Words.", "All"), show_table(table, "some", "Words.")
    assert shown.html == f"<details>\n<summary>All</summary>\n{folded.html}\n</details>"
    assert shown.facts["csv"] == folded.facts["csv"] and "file" not in folded.facts


def test_a_table_without_rows_says_so_in_one():
    shown = show_table(pd.DataFrame(columns=["what", "mean", "records"]), "empty", "A caption.")
    assert shown.facts["csv"] == "what,mean,records\nnothing recorded yet,–,\n"
    assert "<td>nothing recorded yet</td>" in shown.html


@pytest.mark.parametrize("again", [False, True])
def test_a_figure_is_in_the_page_with_its_alternative_text_and_is_closed(again):
    figure, axis = plt.subplots()
    axis.plot([1, 2])
    if again:  # as when it was made in an earlier cell
        plt.close(figure)
    shown = show_figure(figure, "some", 'A line that rises "up".', "Caption.")
    assert not plt.fignum_exists(figure.number)
    start = '<figure>\n<img src="data:image/png;base64,'
    assert shown.html.startswith(start)
    picture = base64.b64decode(shown.html[len(start) :].partition('"')[0])
    assert picture.startswith(b"\x89PNG")
    assert 'alt="A line that rises &quot;up&quot;."' in shown.html
    assert "<figcaption>Caption.</figcaption>" in shown.html
    facts = {"name": "some", "caption": "Caption.", "alt": 'A line that rises "up".'}
    width = f"{int.from_bytes(picture[16:20], 'big') // 2}px"
    facts |= {"records": COMPUTED, "width": width}
    assert shown._repr_mimebundle_()[FIGURE] == facts


def test_a_figure_names_each_record_behind_it_once():
    runs = pd.DataFrame({"experiment": "labels", "key": ["b", "a", "b"]})
    table = pd.DataFrame({"records": ["labels/b labels/a", "labels/a"]})
    for source in (runs, table):
        shown = show_figure(plt.figure(), "some", "Nothing.", "Caption.", source)
        assert shown.facts["records"] == "labels/b labels/a"
