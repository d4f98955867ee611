"""What is made when the book is rendered: tables that lead to their runs, claims, equations, pages
of runs. And what stops the build.
"""

import csv
import io
import json
import re
from html import unescape
from pathlib import Path

import build
import pages
import pandas as pd
import pytest
from _ext import book_extension

from snnl_book import experiments, report, results
from snnl_book.paper import registered_claims
from snnl_book.report import claims, contrasts
from snnl_lib import SnnlError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def records():
    return results.load_results()


@pytest.fixture(scope="module")
def clustering(records):
    return records[records["experiment"] == "clustering"]


# ---------------------------------------------------------------- a table that leads to its runs


def rendered(
    folder, table, page="```{run-table} shown\n:name: a-name\n\nA *caption*.\n```\n", **others
):
    """Build a page with one table, and the pages it leads to; returns the page and what Sphinx
    warned of.
    """
    from sphinx.application import Sphinx

    (folder / "tables").mkdir(parents=True, exist_ok=True)
    table.to_csv(folder / "tables" / "shown.csv", index=False)
    for name, text in {"index": f"# Title\n\n{page}", **others}.items():
        (folder / f"{name}.md").write_text(f"---\norphan: true\n---\n{text}")
    warned, places = io.StringIO(), (folder, None, folder / "out", folder / "trees")
    settings = {"extensions": ["myst_parser", "book_extension"], "nitpicky": True}
    Sphinx(*places, "html", settings, status=None, warning=warned).build()
    usual = "already registered|unsupported theme option"
    said = [line for line in warned.getvalue().splitlines() if line and not re.search(usual, line)]
    return (folder / "out" / "index.html").read_text(), said


@pytest.fixture
def extension(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "book" / "_tools" / "_ext")


KEYS = [f"clustering/ag_news-spacy-ae-a0-tnone-s{seed}-n20000-0123abcd" for seed in (42, 73)]
OTHER = "clustering/ag_news-spacy-pca-a0-tnone-s42-n20000-0123abce"
LABELS = [book_extension.label_of(book_extension.groups(name)[0]) for name in (KEYS[0], OTHER)]
RUNS = "# Runs\n\n" + "\n\n".join(f"({label})=\n\nA setting." for label in LABELS)


def test_a_row_leads_to_its_runs_and_says_where_there_is_none(tmp_path, extension):
    names, counts = ["AE *", "both", "quoted", "none"], ["2, stale", 3, "–", 0]
    table = pd.DataFrame({"model": names, "runs": counts})
    table["records"] = [" ".join(KEYS), " ".join([*KEYS, OTHER]), report.QUOTED, ""]
    html, warned = rendered(tmp_path, table, runs=RUNS)
    assert not warned
    _, *rows = re.findall(r"<tr.*?</tr>", html, re.DOTALL)
    cells = [re.findall(r"<td>(.*?)</td>", row, re.DOTALL) for row in rows]
    assert "AE *" in cells[0][0] and "records" not in html and "A <em>caption</em>." in html
    assert re.search(rf'href="runs.html#{LABELS[0]}".*2, stale', cells[0][1], re.DOTALL)
    assert "<summary>3</summary>" in cells[1][1]
    assert all(f"runs.html#{label}" in cells[1][1] for label in LABELS)
    assert "quoted" in cells[2][1] and "href" not in cells[2][1] and "href" not in cells[3][1]
    (download,) = re.findall(r'href="(_downloads/\w+/shown.csv)"', html)
    written = (tmp_path / "tables" / "shown.csv").read_bytes()
    assert (tmp_path / "out" / download).read_bytes() == written


def test_runs_that_are_behind_all_rows_are_linked_once_below_the_table(tmp_path, extension):
    table = pd.DataFrame({"model": ["AE", "both"], "records": [" ".join([*KEYS, OTHER])] * 2})
    html, warned = rendered(tmp_path, table, runs=RUNS)
    assert not warned
    assert len(re.findall("<th ", html)) == 1  # no column for runs
    below = html.partition("</table>")[2]
    assert below.count("<summary>runs (3)</summary>") == html.count("<summary>") == 1
    assert all(below.count(f"runs.html#{label}") == 1 for label in LABELS)


def test_a_cell_is_shown_as_it_is_written(tmp_path, extension):
    written = ["> 0", "> 0 marginal", "# 1", "- a", "+ b", "1. c", "2) d", "+0.02", "= v", "*e*"]
    html, warned = rendered(tmp_path, pd.DataFrame({"test": written, "records": report.QUOTED}))
    assert not warned
    body = html.partition("<tbody>")[2].partition("</tbody>")[0]
    cells = re.findall(r"<td><p>(.*?)</p></td>", body)
    assert [unescape(cell) for cell in cells] == written


def test_a_link_to_runs_that_have_no_page_stops_the_build(tmp_path, extension):
    (warned,) = rendered(tmp_path, pd.DataFrame({"model": ["AE"], "records": [KEYS[0]]}))[1]
    assert f"undefined label: '{LABELS[0]}'" in warned


def test_where_all_rows_are_computed_on_the_page_it_is_said_below_the_table(tmp_path, extension):
    table = pd.DataFrame({"n": [1, 2], "page": "index", "records": report.COMPUTED})
    html, _ = rendered(tmp_path, table)
    assert len(re.findall("<th ", html)) == 2 and html.count("computed on this page") == 1
    assert len(re.findall(r'href="#"[^>]*>.*?Title', html)) >= 2  # the column page


def test_a_table_without_records_is_refused(tmp_path, extension):
    warned = rendered(tmp_path, pd.DataFrame({"n": [1]}))[1]
    assert "the last column of tables/shown.csv must be 'records'" in warned[0]


def test_runs_that_differ_by_the_seed_alone_are_one_group_and_every_record_has_one(records):
    assert book_extension.groups(" ".join([*KEYS, OTHER, "results/bench", "quoted"])) == [
        KEYS[0].replace("s42", "s*"),
        OTHER.replace("s42", "s*"),
    ]
    names = {
        f"{experiment}/{key}"
        for experiment, key in zip(records["experiment"], records["key"], strict=True)
    }
    found = {name: book_extension.groups(name) for name in names}
    assert len(names) > 1000 and all(len(own) == 1 for own in found.values())
    labels = {book_extension.label_of(own[0]) for own in found.values()}
    assert len(labels) == len({own[0] for own in found.values()})


def test_mending_a_page_twice_changes_no_more():
    html = (
        '<table class="table" id="a"><tr></tr></table><dl>\n<dd><em'
        ' class="sig-param">x</em></dd>\n</dl><link href="_static/sphinx-thebe.css" />'
    )
    once = book_extension.mended(html)
    assert '<div class="wide" tabindex="0"><table class="table"' in once
    assert '<li><em class="sig-param">x</em></li>' in once
    assert "thebe" not in once
    assert book_extension.mended(once) == once


@pytest.mark.parametrize("name", ["gain", "loss"])
def test_a_number_in_prose_is_the_one_that_was_made_and_a_wrong_name_is_told(
    name, tmp_path, extension
):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "values.csv").write_text(f"name,text\n{name},+0.061\n")
    table = pd.DataFrame({"n": [1], "records": [report.COMPUTED]})
    html, warned = rendered(tmp_path, table, page="It gains {value}`gain`.\n")
    if name == "gain":
        assert not warned and "It gains +0.061." in html
    else:
        assert "tables/values.csv has no value 'gain'" in warned[0]


# ---------------------------------------------------------------- claims


@pytest.fixture(scope="module")
def judged():
    """All claims judged once."""
    return claims.judge()


def notebook(folder, name, code):
    """Write a chapter with one cell."""
    cell = {"id": "a", "cell_type": "code", "source": code, "metadata": {}, "outputs": []}
    made = {"cells": [cell | {"execution_count": None}], "metadata": {}}
    (folder / f"{name}.ipynb").write_text(json.dumps(made | {"nbformat": 4, "nbformat_minor": 5}))
    return folder / f"{name}.ipynb"


def telling(folder):
    """Chapters that show the verdicts of their claims, and do nothing else."""
    names = dict.fromkeys(claim.chapter for claim in registered_claims())
    return [notebook(folder, name, f'told = claims.of("{name}")') for name in names]


@pytest.fixture(scope="module")
def folder_of_claims(tmp_path_factory):
    return tmp_path_factory.mktemp("claims")


@pytest.fixture(scope="module")
def made(folder_of_claims, judged, records):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims, "judge", lambda: judged)
        return pages.claims_made(folder_of_claims, telling(folder_of_claims), records)


def test_every_claim_of_the_book_is_shown_in_the_chapter_that_it_names():
    pages._check_chapters_show(registered_claims(), build.chapters())


def test_a_chapter_that_is_not_there_or_shows_no_verdict_stops_the_build(tmp_path, records):
    first, *others = telling(tmp_path)
    with pytest.raises(SnnlError, match=f"the chapter {first.stem} of the claim .* is not in the"):
        pages.claims_made(tmp_path, others, records)
    for code in ("claims.judge()", f'"{first.stem}"', 'claims.of("01_introduction")'):
        odd = notebook(tmp_path, first.stem, code)
        with pytest.raises(SnnlError, match=rf'call claims.of\("{first.stem}"\) in it'):
            pages.claims_made(tmp_path, [odd, *others], records)


def test_each_claim_has_a_row_in_the_table_of_its_paper_and_one_in_the_table_below(made, judged):
    for paper in claims.PAPERS:
        own, name = judged[judged["paper"] == paper], f"claims-{paper.lower()}"
        for verdict, row in zip(made[name]["verdict"], own.itertuples(), strict=True):
            assert verdict.startswith(row.kind)
            assert {*row.verdict.split("; ")} == {*f"{verdict}; {row.remarks}".split("; ")} - {""}
        for level, grade in zip(made[name]["grade"], own["grade"], strict=True):
            assert "(" not in level and grade.startswith(level.split(",")[0])
        assert made[name]["claim"].tolist() == [
            f"{row.claim} ({row.where})" for row in own.itertuples()
        ]
        more = made[f"{name}-more"]
        assert more["claim"].tolist() == own["claim"].tolist()
        assert more["grade"].tolist() == own["grade"].tolist()
        assert more["remarks"].tolist() == [remarks or "–" for remarks in own["remarks"]]
        assert (more[["other readings", "what would change our mind", "page"]] != "").all(axis=None)
        assert [*more.columns][-2:] == ["page", "records"]
    comparisons = made["claims-contrasts"]
    assert len(comparisons) == sum(map(len, judged["contrasts"]))


def test_the_picture_of_all_claims_names_each_and_leads_to_its_chapter(
    made, judged, folder_of_claims
):
    svg = (folder_of_claims / "tables" / "claims-picture.html").read_text()
    words = unescape(" ".join(re.findall(r">([^<]*)</text>", svg)))  # a long one has two lines
    for row in judged.itertuples():
        assert row.claim in words
    linked = re.findall(r'<a xlink:href="(\w+)\.html"', svg)
    assert [*dict.fromkeys(linked)] == [*dict.fromkeys(judged["chapter"])]
    assert len(linked) >= len(judged)  # each line of a claim leads there
    kinds = judged["kind"].map(claims.word).value_counts()
    title = re.search("<title>(.*?)</title>", svg)[1]
    assert all(f"{count} {kind}" in title for kind, count in kinds.items())
    assert "<metadata>" not in svg and not re.search(r"<svg[^>]* height=", svg)


def test_the_front_page_has_the_playground_of_its_chapter(tmp_path):
    code = "page"
    path = notebook(tmp_path, pages.PLAYGROUND, code)
    made = json.loads(path.read_text())
    html = {"text/html": ["<div data-snnl-playground>", "</div>"]}
    output = {"output_type": "display_data", "data": html, "metadata": {}}
    made["cells"][0]["outputs"] = [output]
    path.write_text(json.dumps(made))
    pages._write_playground(tmp_path)
    shown = (tmp_path / "tables" / "playground.html").read_text()
    assert shown == "<div data-snnl-playground></div>"


def test_the_statement_of_the_rule_has_its_numbers():
    page = (ROOT / "book" / "claims.md").read_text()
    rule = page.partition("(the-rule)=")[2].partition("(what-we-got-wrong")[0]
    points = {contrasts.POINTS: "1.5 points", contrasts.SLIM[0]: "3 points"}
    points |= {contrasts.WIDE[0]: "5 points", contrasts.HALF_WIDTH[0]: "at most 3 points"}
    for number, words in points.items():
        assert words in rule and float(re.search(r"[\d.]+", words)[0]) == 100 * number
    shares = {contrasts.SHARE, contrasts.SLIM[1], contrasts.WIDE[1], contrasts.HALF_WIDTH[1]}
    assert shares == {0.1, 0.2} and "10 %" in rule and "20 %" in rule
    assert contrasts.FEWEST == 3 and "fewer than three units" in rule
    for verdict in claims.VERDICTS:
        assert f"*{verdict}*" in rule


def test_the_page_of_claims_says_when_the_rule_was_fixed_and_shows_every_table(made):
    page = (ROOT / "book" / "claims.md").read_text()
    assert "settled on 26 November 2026, after the verdicts of the first two were known" in page
    named = set(re.findall(r"\{run-table\} (\S+)", page))
    named |= set(re.findall(r"<tables/([\w-]+)\.csv>", page))
    assert named | {"values"} == set(made)


# ---------------------------------------------------------------- equations


def test_every_numbered_equation_has_its_chapter_its_function_and_its_test(records):
    made = pages.equations_made(None, build.chapters(), records)
    assert [len(made[name]) for name in ("equations-eq", "equations-cb")] == [20, 7]
    assert (made["equations-eq"] != "").all(axis=None)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("label", "eq-21", "Eq. 21 of 02_soft_nearest_neighbor_loss is in the chapter or in"),
        (
            "function",
            "snnl_lib.losses.no_such_loss",
            "no_such_loss does not exist, or its docstring does not name Eq. 4",
        ),
        (
            "test",
            "tests/snnl_lib/test_losses.py::test_nothing",
            "there is no test tests/snnl_lib/test_losses.py::test_nothing",
        ),
    ],
)
def test_an_equation_without_a_counterpart_stops_the_build(
    column, value, message, records, tmp_path, monkeypatch
):
    with (ROOT / "book" / "equations.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    rows[3][column] = value
    (tmp_path / "book" / "api").mkdir(parents=True)
    pd.DataFrame(rows).to_csv(tmp_path / "book" / "equations.csv", index=False)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    with pytest.raises(SnnlError, match=re.escape(message)):
        pages.equations_made(None, build.chapters(), records)


# ---------------------------------------------------------------- runs, status, cost


def test_each_run_has_its_line_with_its_seed_its_device_and_the_command_that_makes_it_again(
    tmp_path, records, clustering
):
    revision = experiments.EXPERIMENTS["lexicon"].revision
    old = records[records["experiment"] == "lexicon"].assign(revision=revision - 1)
    made = pages.runs_made(tmp_path, [], pd.concat([clustering, old]))["runs"].set_index("page")
    page = (tmp_path / "runs" / "clustering.md").read_text()
    runs = clustering.drop_duplicates("key")
    assert page.count("<tr>") - page.count("<thead>") == len(runs)
    assert len(runs) == int(made.loc["runs/clustering", "recorded"])
    assert made.loc["runs/lexicon", "stale"] > 0
    assert "stale: made by revision" in (tmp_path / "runs" / "lexicon.md").read_text()
    assert made.loc["runs/tsne", "recorded"] == "0" and (tmp_path / "runs" / "tsne.md").exists()
    for run in runs.itertuples():
        for told in (run.commit, run.versions, run.device, f"<td>{run.seed}</td>"):
            assert told in page
    path = tmp_path / "runs" / "tables" / "clustering.csv"
    whole = pd.read_csv(path, dtype=str, keep_default_na=False)
    assert set(whole["key"]) == set(runs["key"])


def test_the_command_of_a_group_names_its_runs_and_no_others(tmp_path, clustering, monkeypatch):
    from snnl_book import __main__

    pages.runs_made(tmp_path, [], clustering)
    page = (tmp_path / "runs" / "clustering.md").read_text()
    command = r"<code>python -m snnl_book (run clustering .*--again) --keys '(.*)'</code>"
    commands = re.findall(command, page)
    assert len(commands) == len(clustering.groupby(["embedding", "model", "fingerprint"])) > 8
    asked = []
    noting = lambda specs, *_: asked.extend(map(experiments.key, specs)) or 0  # noqa: E731
    monkeypatch.setattr(__main__, "_run_all", noting)
    monkeypatch.setattr(__main__.experiments, "runnable", lambda specs, *_: specs)
    monkeypatch.setattr(__main__.experiments, "key", keyed(clustering))
    for options, key in commands:
        assert __main__.main([*options.split(), "--keys", key]) == 0
    assert sorted(filter(None, asked)) == sorted(clustering["key"].unique())


def test_a_row_of_the_book_leads_to_its_part_of_the_table_of_runs(tmp_path, clustering, extension):
    own = clustering.head(400)
    pages.runs_made(tmp_path / "made", [], own)
    page = (tmp_path / "made" / "runs" / "clustering.md").read_text()
    key = f"clustering/{own['key'].iloc[0]}"
    table = pd.DataFrame({"model": ["AE"], "records": [key]})
    runs = page.partition(":::\n")[0].partition("\n\n")[0] + page.rpartition(":::\n")[2]
    html, warned = rendered(tmp_path / "book", table, runs=runs)
    assert not warned
    (group,) = book_extension.groups(key)
    label = book_extension.label_of(group)
    assert f'href="runs.html#{label}"' in html
    parts = (tmp_path / "book" / "out" / "runs.html").read_text().split("<tbody ")[1:]
    (part,) = [part for part in parts if part.startswith(f'id="{label}"')]
    runs = own.drop_duplicates("key")
    same = [book_extension.groups(f"clustering/{each}") == [group] for each in runs["key"]]
    seeds = runs[same]["seed"]
    assert part.count("<tr>") == len(seeds) > 1
    assert all(f"<td>{seed}</td>" in part for seed in seeds)


def test_the_commands_on_points_that_are_drawn_name_no_data_set(tmp_path, records):
    pages.runs_made(tmp_path, [], records[records["experiment"] == "annealing"])
    text = (tmp_path / "runs" / "annealing.md").read_text()
    assert "snnl_book run annealing --seeds" in text and "--dataset" not in text


def keyed(records):
    """Name a run's record by its identity alone, as the data it was made from may not be on this
    machine.
    """
    names = {
        (row.dataset, row.embedding, row.model, row.seed, row.settings): row.key
        for row in records.drop_duplicates("key").itertuples()
    }
    return lambda spec: names.get(
        (spec.dataset, spec.embedding, spec.model, spec.seed, spec.settings_text)
    )


def test_a_record_that_no_run_of_the_plan_asks_for_is_listed(records):
    lost = records.drop_duplicates("key").head(1)
    told = pages._table_of_orphans(lost)
    (name,) = told["records"]
    assert told["record"].tolist() == [f"`{name}`"] and name.endswith("/" + lost["key"].item())


def test_seconds_that_include_shared_training_are_marked_on_the_page_of_runs(tmp_path, records):
    some = records[records["experiment"] == "images"]
    pages.runs_made(tmp_path, [], some)
    page = (tmp_path / "runs" / "images.md").read_text()
    runs = some[report.includes_shared_training(some)]["key"].nunique()
    assert page.count(", shared training included</td>") == runs > 0
