"""What `make check-chapters` finds wrong with an executed chapter, from the notebook itself and (in
the long lane) from JupyterLab in a browser.
"""

import base64
import json
import multiprocessing
import struct
import zlib
from concurrent.futures import ProcessPoolExecutor

import build
import check
import check_chapters
import outputs
import pytest

ALT = "Accuracy of four rows, the highest of them on top"
FIGURE, TABLE = (f"application/vnd.snnl.{kind}+json" for kind in ("figure", "table"))


def png(width):
    """A black picture, a pixel high."""
    parts = [(b"IHDR", struct.pack(">2I5B", width, 1, 8, 0, 0, 0, 0))]
    parts += [(b"IDAT", zlib.compress(bytes(1 + width))), (b"IEND", b"")]
    chunks = (
        struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in parts
    )
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()


def figure(alt=ALT, width=40, picture=None):
    source = f"data:image/png;base64,{picture or png(width)}"
    html = f'<figure><img alt="{alt}" src="{source}"><figcaption>Scores.</figcaption></figure>'
    return {"text/html": html, FIGURE: {"name": "scores"}}


def table(caption="Scores", rows=1):
    body = "<tr><td>AE</td></tr>" * rows
    inside = f"<caption>{caption}</caption>" if caption else ""
    html = f"<table>{inside}<thead><tr><th>model</th></tr></thead><tbody>{body}</tbody></table>"
    return {"text/html": html, TABLE: {"name": "scores", "rows": [["AE"]] * rows}}


def folded(shown):
    """The same under a line that opens it."""
    inside = f"<details><summary>More</summary>{shown['text/html']}</details>"
    return shown | {"text/html": inside}


def shows(*shown):
    """A cell of code with outputs of these MIME bundles."""
    told = [{"output_type": "display_data", "metadata": {}, "data": data} for data in shown]
    return {
        "cell_type": "code",
        "id": "shown",
        "metadata": {},
        "source": "show()",
        "execution_count": 1,
        "outputs": told,
    }


def prose(text):
    return {"cell_type": "markdown", "id": "prose", "metadata": {}, "source": text}


def notebook(*cells):
    named = [cell | {"id": f"{cell['id']}{i}"} for i, cell in enumerate(cells, start=1)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": named}


GOOD = notebook(
    prose(
        "# Scores\n\nThe loss $\\ell_{i} = \\mathrm{doc}^{eq}$ of `{name}`.\n\n|a|b|\n|-|-|\n|1|2|"
    ),
    shows(figure(), {"text/markdown": "The **mean** is 0.9."}),
    shows(table(), table("More scores", 3)),
    shows(folded(table())),
    shows({"text/plain": "{'table': 1}"}),
)
BAD = notebook(
    shows(figure(alt="scores"), figure(picture=base64.b64encode(b"no picture").decode())),
    shows(table(caption=""), table(rows=0)),
    prose("As {doc}`another chapter` says: {glue:text}`mean`."),
    shows({"text/markdown": "It is {table:scores}."}),
    # a script draws nothing where nobody trusts it, and JupyterLab hides what it is told to
    shows({"text/html": "<figure><script>draw()</script></figure>", FIGURE: {"name": "map"}}),
    shows(figure()) | {"metadata": {"jupyter": {"outputs_hidden": True}}},
)


def wrong(*cells):
    return [what for _, what in outputs.problems_of(notebook(*cells))]


# ---------------------------------------------------------------- the notebook alone


def test_a_chapter_that_can_be_read_anywhere_passes():
    assert outputs.problems_of(GOOD) == []


def test_what_is_wrong_with_an_output_is_named():
    for shown, told in (
        (figure(alt="scores"), "an image has an alternative text of 6 characters, fewer than 30"),
        (figure(alt=""), "of 0 characters"),
        ({"image/png": png(3), "text/plain": "<Figure>"}, "of 0 characters"),
        (table(caption=""), "a table has no caption"),
        (table(caption=" "), "a table has no caption"),
        (table(rows=0), "a table has no rows: 'Scores'"),
        ({"text/html": "<table><tbody><tr><td>1</td></tr></tbody></table>"}, "no caption"),
        ({"text/markdown": "|a|\n|-|\n|1|"}, "a table has no caption"),
        ({"text/html": "<figure><div></div></figure>"}, "neither an image nor a table"),
        ({"text/plain": "x", FIGURE: {}}, "an output that is a figure holds 0 <figure>"),
        ({"text/html": "<p></p>", TABLE: {}}, "an output that is a table holds 0 <table>"),
        ({"text/plain": "Traceback (most recent call last):\n"}, "a traceback is shown"),
        ({"text/markdown": "It is {table:scores}."}, "a placeholder is left: {table"),
    ):
        (said,) = wrong(shows(shown))
        assert told in said


def test_a_warning_is_named():
    warned = {"output_type": "stream", "name": "stderr", "text": ["No GPU\n"]}
    assert wrong(shows(figure()) | {"outputs": [warned]}) == ["a warning is shown: 'No GPU'"]


def test_what_only_the_book_would_fill_is_named():
    for text, left in (
        ("See {doc}`02_texts`.", "{doc"),
        ("By {cite:t}`agarap2021text`", "{cite"),
        ("Of {eq}`eq-loss`,", "{eq"),
        ("It is {glue:text}`mean:.2f`.", "{glue"),
        ("A ({own:role}`x`)", "{own:role}"),
        ("```{run-table} x\n:caption: y\n```", "```{run-table}"),
        (":::{note}\nx\n:::", ":::"),
        ("(a-target)=\n# Title", "(a-target)="),
    ):
        assert wrong(prose(text)) == [f"a placeholder is left: {left}"]
    for text in ("$x_{eq}$, $\\text{doc}$", "`a/{name}` b", "```python\n{x: 1}\n```"):
        assert wrong(prose(text)) == [], "braces that wait for nothing"


def test_an_error_is_told_with_its_cell_as_the_chapter_counts_them():
    failed = shows()
    failed["outputs"] = [
        {"output_type": "error", "ename": "ValueError", "evalue": "no\nmore", "traceback": ["x"]}
    ]
    added = shows() | {"metadata": {"tags": ["injected-parameters"]}}
    found = outputs.problems_of(notebook(prose("# A"), added, failed))
    assert found == [("cell 2 (shown3)", "it raised ValueError: no")]


# ---------------------------------------------------------------- against a page


def test_what_a_page_leaves_out_is_named():
    cells = outputs.cells_of(GOOD)
    seen = [json.loads(json.dumps(one)) for _, one in cells]
    assert outputs.compare(cells, seen) == []
    seen[1]["images"], seen[1]["figures"] = [], 0
    seen[2]["tables"].pop()
    assert outputs.compare(cells, seen) == [
        ("cell 2 (shown2)", "the page shows 0 images of 1"),
        ("cell 2 (shown2)", "the page shows 0 figures of 1"),
        ("cell 3 (shown3)", "the page shows 1 tables of 2"),
    ]
    assert outputs.compare(cells, seen[1:]) == [("the page", "it shows 4 cells of 5")]


def test_nbconvert_s_own_words_are_no_alternative_text():
    seen = outputs.cells_of(GOOD)[1][1]
    seen["images"][0]["alt"] = "No description has been provided for this image"
    assert ["of 0 characters" in what for what in outputs.faults(seen)] == [True]


def test_what_is_looked_at_are_copies_of_the_chapters_of_the_book(tmp_path, monkeypatch):
    made = [tmp_path / "executed" / "a.ipynb", tmp_path / "executed" / "b.ipynb"]
    monkeypatch.setattr(build, "EXECUTED", made[0].parent)
    monkeypatch.setattr(check_chapters, "FOLDER", tmp_path / "check" / "chapters")
    made[0].parent.mkdir()
    made[0].write_text("as executed")
    with pytest.raises(build.SnnlError, match="b has not been executed: make book"):
        check_chapters.copies(made)
    (copied,) = check_chapters.copies(made[:1])
    copied.write_text("as JupyterLab saves it")
    assert made[0].read_text() == "as executed"


# ---------------------------------------------------------------- in a browser


@pytest.mark.slow
def test_in_jupyterlab_the_good_notebook_passes_and_the_bad_one_does_not(tmp_path):
    if not (chromium := check.find_chromium()):
        pytest.skip("Chromium is not installed")
    pytest.importorskip("playwright", reason="make .venv/.check installs it")
    files = [tmp_path / "executed" / f"{name}.ipynb" for name in ("good", "bad")]
    files[0].parent.mkdir()
    for path, content in zip(files, (GOOD, BAD), strict=True):
        path.write_text(json.dumps(content))
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as own:  # it keeps a browser
        said = own.submit(check_chapters.look_at_all, chromium, files, tmp_path / "seen").result()
    everywhere, pages = "[notebook, nbconvert, JupyterLab]", "[nbconvert, JupyterLab]"
    short = "an image has an alternative text of 6 characters, fewer than 30: 'scores'"
    assert said == [
        f"bad, cell 1 (shown1): {short} {everywhere}",
        f"bad, cell 2 (shown2): a table has no caption {everywhere}",
        f"bad, cell 2 (shown2): a table has no rows: 'Scores' {everywhere}",
        f"bad, cell 3 (prose3): a placeholder is left: {{doc {everywhere}",
        f"bad, cell 3 (prose3): a placeholder is left: {{glue {everywhere}",
        f"bad, cell 4 (shown4): a placeholder is left: {{table {everywhere}",
        f"bad, cell 5 (shown5): a figure has neither an image nor a table {everywhere}",
        f"bad, cell 1 (shown1): an image has no pixels: {ALT!r} {pages}",
        "bad, cell 6 (shown6): the page shows 0 images of 1 [JupyterLab]",
        "bad, cell 6 (shown6): the page shows 0 figures of 1 [JupyterLab]",
    ]
    assert all((tmp_path / "seen" / f"lab-{path.stem}.png").exists() for path in files)
