"""What the build makes of an executed chapter."""

import copy
import json

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import rendered

from snnl_book.report.show import show_figure, show_file, show_table

CHAPTER = "02_soft_nearest_neighbor_loss"


def notebook(*cells):
    return {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def code(*bundles, tags=("remove-input",)):
    outputs = [
        {"output_type": "display_data", "metadata": {}, "data": json.loads(json.dumps(bundle))}
        for bundle in bundles
    ]
    metadata = {"tags": [*tags]} if tags else {}
    return {"cell_type": "code", "id": "a", "source": "", "metadata": metadata, "outputs": outputs}


def markdown(text):
    return {"cell_type": "markdown", "id": "b", "metadata": {}, "source": text}


def bundle(shown):
    return shown._repr_mimebundle_()


def test_outputs_become_tables_figures_and_sentences_of_the_page(tmp_path):
    figure, _ = plt.subplots()
    table = show_table(pd.DataFrame({"n": [1]}), "c2-n", "A *caption*.", "quoted")
    folded = show_table(pd.DataFrame({"n": [1]}), "c2-m", "A caption.", "quoted", fold="All rows")
    drawn = show_figure(figure, "c2-f", "What is to be seen.", "Another caption.")
    said = {"text/markdown": "It is 0.5.", "text/plain": "<Markdown>"}
    before = notebook(code(*map(bundle, (table, folded, drawn)), said))
    kept = copy.deepcopy(before)
    emptied, told = rendered.page_of(before, CHAPTER, tmp_path)["cells"]
    assert before == kept  # what is offered for download stays as it was executed
    assert emptied["metadata"] == {"tags": ["remove-cell"]} and emptied["outputs"] == []
    assert told["source"].split("\n\n```")[0] == (
        "```{run-table} c2-n\n:name: c2-n\n\n**Table 2.1.** A *caption*.\n```\n\n"
        "::::{dropdown} All rows\n```{run-table} c2-m\n:name: c2-m\n\n**Table 2.2.** A caption."
        "\n```\n::::"
    )
    assert told["source"].endswith(
        "\n:name: c2-f\n\n**Figure 2.1.** Another caption.\n```\n\nIt is 0.5."
    )
    assert "{figure} figures/c2-f.png\n:alt: What is to be seen.\n:width: " in told["source"]
    assert (tmp_path / "tables" / "c2-n.csv").read_text() == "n,records\n1,quoted\n"
    assert (tmp_path / "figures" / "c2-f.png").read_bytes().startswith(b"\x89PNG")


def test_a_figure_leads_to_its_runs(tmp_path):
    records = "tsne/a-s42-n200-0123abcd tsne/b-s42-n200-0123abcd"
    figure, _ = plt.subplots()
    shown = show_figure(figure, "c2-v", "What is to be seen.", "A caption.", source=records)
    told = rendered.page_of(notebook(code(bundle(shown))), CHAPTER, tmp_path)["cells"][1]["source"]
    assert told.startswith("```{figure} figures/c2-v.png\n")
    assert told.endswith(f"```{{runs-of}}\n{records}\n```")
    assert (tmp_path / "figures" / "c2-v.png").stat().st_size > 1000


def test_a_chapter_has_the_number_of_its_file(tmp_path):
    cells = markdown("# The loss\n\nText."), markdown("## 1. A part")
    first, second = rendered.page_of(notebook(*cells), CHAPTER, tmp_path)["cells"]
    assert first["source"] == "# 2. The loss\n\nText." and second == cells[1]


def test_code_that_a_reader_sees_and_other_outputs_stay(tmp_path):
    cell = code({"text/plain": "0.5"}, tags=())
    assert rendered.page_of(notebook(cell), CHAPTER, tmp_path)["cells"] == [cell]


def test_equations_get_the_labels_by_which_the_book_knows_them(tmp_path):
    text = "$$\nx\n\\tag{4}\n$$\n\nSee [Eq. 6](13_clusterbert.ipynb)."
    with pytest.raises(ValueError, match=r"13_clusterbert has no Eq\. 6"):
        rendered.page_of(notebook(markdown(text)), CHAPTER, tmp_path)
    text = text.replace("6](13_clusterbert", "5](13_clusterbert")
    (cell,) = rendered.page_of(notebook(markdown(text)), CHAPTER, tmp_path)["cells"]
    assert cell["source"] == "$$\nx\n\n$$ (eq-4)\n\nSee {eq}`cb-5`."


def test_a_folded_part_becomes_a_dropdown(tmp_path):
    folded = "<details><summary>More</summary>\n\n- One.\n\nTwo.\n\n</details>"
    cells = markdown(f"Before.\n\n{folded}"), code({"text/markdown": folded})
    page = rendered.page_of(notebook(*cells), CHAPTER, tmp_path)["cells"]
    dropdown = "::::{dropdown} More\n- One.\n\nTwo.\n::::"
    assert [cell["source"] for cell in page if cell["cell_type"] == "markdown"] == [
        f"Before.\n\n{dropdown}",
        dropdown,
    ]


def test_a_solution_is_folded_with_its_code_and_what_the_code_printed(tmp_path):
    first = {"output_type": "stream", "name": "stdout", "text": ["1\n"]}
    computed = code({"text/plain": "3"}, {"text/markdown": "It is 3."}, tags=())
    computed["outputs"][:0] = [first, first | {"text": "2\n"}]
    computed["source"] = ["print(1)\n", "..."]
    cells = [markdown("### 1. How many?"), markdown("#### Solution\n\nTwo."), computed]
    cells += [markdown("## In this chapter"), code({"text/plain": "4"}, tags=())]
    asked, solution, *rest = rendered.page_of(notebook(*cells), CHAPTER, tmp_path)["cells"]
    assert asked == cells[0] and rest == cells[3:]
    assert solution["source"] == (
        ":::::{dropdown} Solution\nTwo.\n\n```python\nprint(1)\n...\n```\n\n"
        "```text\n1\n2\n```\n\n```text\n3\n```\n\nIt is 3.\n:::::"
    )


def test_details_are_folded_under_their_heading_with_tables(tmp_path):
    table = bundle(show_table(pd.DataFrame({"n": [1]}), "c2-n", "A caption.", "quoted"))
    cells = [markdown("#### How we counted"), code(table), markdown("### Another question")]
    details, last = rendered.page_of(notebook(*cells), CHAPTER, tmp_path)["cells"]
    assert last == cells[2]
    assert details["source"] == (
        ":::::{dropdown} How we counted\n```{run-table} c2-n\n:name: c2-n\n\n"
        "**Table 2.1.** A caption.\n```\n:::::"
    )


def test_a_file_is_a_link_without_its_table(tmp_path):
    table = pd.DataFrame({"n": [1], "records": ["quoted"]})
    shown = bundle(show_file(table, "c2-all", "Every number.", "All numbers"))
    _, text = rendered.page_of(notebook(code(shown)), CHAPTER, tmp_path)["cells"]
    assert text["source"] == "{download}`All numbers <tables/c2-all.csv>`. Every number."
    assert (tmp_path / "tables" / "c2-all.csv").read_text() == "n,records\n1,quoted\n"
