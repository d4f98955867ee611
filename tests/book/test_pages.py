"""What is made when the book is rendered: tables that lead to their runs, claims, equations, pages
of runs. And what stops the build.
"""

import csv
import io
import json
import re
from pathlib import Path

import build
import pages
import pandas as pd
import pytest
from _ext import snnl_book

from snnl_lib import SnnlError, experiments, report, results
from snnl_lib.report import claims

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def records():
    return results.load_results()


# ---------------------------------------------------------------- a table that leads to its runs


def rendered(
    folder, table, page="```{run-table} shown\n:name: a-name\n\nA *caption*.\n```\n", **others
):
    """Build a page with one table, and the pages it leads to; returns the page and what Sphinx
    warned of.
    """
    from sphinx.application import Sphinx

    (folder / "tables").mkdir(parents=True)
    table.to_csv(folder / "tables" / "shown.csv", index=False)
    for name, text in {"index": f"# Title\n\n{page}", **others}.items():
        (folder / f"{name}.md").write_text(f"---\norphan: true\n---\n{text}")
    warned = io.StringIO()
    settings = {"extensions": ["myst_parser", "snnl_book"], "nitpicky": True}
    Sphinx(
        folder,
        None,
        folder / "out",
        folder / "trees",
        "html",
        settings,
        status=None,
        warning=warned,
    ).build()
    said = [
        line
        for line in warned.getvalue().splitlines()
        if line and not re.search("already registered|unsupported theme option", line)
    ]
    return (folder / "out" / "index.html").read_text(), said


@pytest.fixture
def extension(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "book" / "_tools" / "_ext")


KEYS = [f"clustering/ag_news-spacy-ae-a0-tnone-s{seed}-n20000-0123abcd" for seed in (42, 73)]
OTHER = "clustering/ag_news-spacy-pca-a0-tnone-s42-n20000-0123abce"


def test_a_row_leads_to_its_runs_and_says_where_there_is_none(tmp_path, extension):
    table = pd.DataFrame(
        {"model": ["AE *", "both", "quoted", "none"], "runs": ["2, stale", 3, "–", 0]}
    )
    table["records"] = [" ".join(KEYS), " ".join([*KEYS, OTHER]), report.QUOTED, ""]
    labels = [snnl_book.label_of(snnl_book.groups(name)[0]) for name in (KEYS[0], OTHER)]
    runs = "# Runs\n\n" + "\n\n".join(f"({label})=\n\nA setting." for label in labels)
    html, warned = rendered(tmp_path, table, runs=runs)
    assert not warned
    cells = [
        re.findall(r"<td>(.*?)</td>", row, re.DOTALL)
        for row in re.findall(r"<tr.*?</tr>", html, re.DOTALL)[1:]
    ]
    assert "AE *" in cells[0][0] and "records" not in html and "A <em>caption</em>." in html
    assert re.search(rf'href="runs.html#{labels[0]}".*2, stale', cells[0][1], re.DOTALL)
    assert "<summary>3</summary>" in cells[1][1] and all(
        f"runs.html#{label}" in cells[1][1] for label in labels
    )
    assert "quoted" in cells[2][1] and "href" not in cells[2][1] and "href" not in cells[3][1]
    (download,) = re.findall(r'href="(_downloads/\w+/shown.csv)"', html)
    assert (tmp_path / "out" / download).read_bytes() == (
        tmp_path / "tables" / "shown.csv"
    ).read_bytes()


def test_a_link_to_runs_that_have_no_page_stops_the_build(tmp_path, extension):
    (warned,) = rendered(tmp_path, pd.DataFrame({"model": ["AE"], "records": [KEYS[0]]}))[1]
    assert (
        "undefined label: 'runs-clustering-ag-news-spacy-ae-a0-tnone-sall-n20000-0123abcd'"
        in warned
    )


def test_where_all_rows_are_computed_on_the_page_it_is_said_below_the_table(tmp_path, extension):
    html, _ = rendered(
        tmp_path,
        pd.DataFrame({"n": [1, 2], "page": ["index", "index"], "records": [report.COMPUTED] * 2}),
    )
    assert len(re.findall("<th ", html)) == 2 and html.count("computed on this page") == 1
    assert len(re.findall(r'href="#"[^>]*>.*?Title', html)) >= 2  # the column page


def test_a_table_without_records_is_refused(tmp_path, extension):
    warned = rendered(tmp_path, pd.DataFrame({"n": [1]}))[1]
    assert "the last column of tables/shown.csv must be 'records'" in warned[0]


def test_runs_that_differ_by_the_seed_alone_are_one_group_and_every_record_has_one(records):
    assert snnl_book.groups(" ".join([*KEYS, OTHER, "results/bench", "quoted"])) == [
        KEYS[0].replace("s42", "s*"),
        OTHER.replace("s42", "s*"),
    ]
    names = {
        f"{experiment}/{key}"
        for experiment, key in zip(records["experiment"], records["key"], strict=True)
    }
    found = {name: snnl_book.groups(name) for name in names}
    assert len(names) > 1000 and all(len(own) == 1 for own in found.values())
    labels = {snnl_book.label_of(own[0]) for own in found.values()}
    assert len(labels) == len({own[0] for own in found.values()})


def test_mending_a_page_twice_changes_no_more():
    html = (
        '<table class="table" id="a"><tr></tr></table><dl>\n<dd><em'
        ' class="sig-param">x</em></dd>\n</dl><link href="_static/sphinx-thebe.css" />'
    )
    once = snnl_book.mended(html)
    assert (
        '<div class="wide" tabindex="0"><table class="table"' in once
        and '<li><em class="sig-param">x</em></li>' in once
        and "thebe" not in once
    )
    assert snnl_book.mended(once) == once


# ---------------------------------------------------------------- claims


def answered(folder, leave_out=""):
    (folder / "tables").mkdir()
    for chapter, own in claims.registered().groupby("chapter"):
        table = own.assign(ours="0.9", **{"95 % interval": "–"}, verdict="matches", records="")
        table[table["claim"] != leave_out].to_csv(
            folder / "tables" / f"claims-{chapter}.csv", index=False
        )


def test_every_claim_is_gathered_with_its_verdict_and_one_without_stops_the_build(
    tmp_path, records
):
    claimed = claims.registered()
    assert set(claimed["chapter"]) <= {path.stem for path in build.chapters()}
    answered(tmp_path)
    made = pages.claims_made(tmp_path, build.chapters(), records)
    assert sum(len(made[f"claims-{paper.lower()}"]) for paper in claims.PAPERS) == len(claimed)
    assert made["verdicts"].set_index("paper").loc[
        "all three", ["claims", "reproduced", "partly"]
    ].tolist() == [len(claimed), len(claimed), 0]
    assert len(made["headline"]) == (claimed["headline"] == "yes").sum()
    (tmp_path / "again").mkdir()
    answered(tmp_path / "again", leave_out=claimed["claim"][3])
    with pytest.raises(SnnlError, match="no chapter has a verdict on 1 of the claims"):
        pages.claims_made(tmp_path / "again", build.chapters(), records)


# ---------------------------------------------------------------- equations


def test_every_numbered_equation_has_its_chapter_its_function_and_its_test(records):
    made = pages.equations_made(None, build.chapters(), records)
    assert [len(made[name]) for name in ("equations-eq", "equations-cb")] == [20, 7]
    assert (made["equations-eq"] != "").all(axis=None)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("label", "eq-21", "the equation eq-"),
        (
            "function",
            "snnl_lib.losses.no_such_loss",
            "no_such_loss does not exist, or its docstring does not name Eq. 4",
        ),
        (
            "function",
            "snnl_lib.losses.annealed_temperature",
            "does not exist, or its docstring does not name Eq. 4",
        ),
        (
            "test",
            "tests/test_losses.py::test_nothing",
            "there is no test tests/test_losses.py::test_nothing",
        ),
        ("test", "tests/test_nothing.py::test_nothing", "there is no test"),
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
    tmp_path, records, monkeypatch
):
    old = records[records["experiment"] == "lexicon"].assign(
        revision=experiments.EXPERIMENTS["lexicon"].revision - 1
    )
    made = pages.runs_made(
        tmp_path, [], pd.concat([records[records["experiment"] == "clustering"], old])
    )["runs"].set_index("page")
    page = (tmp_path / "runs" / "clustering.md").read_text()
    runs = records[records["experiment"] == "clustering"].drop_duplicates("key")
    assert (
        page.count("<tr>") - page.count("<thead>")
        == len(runs)
        == made.loc["runs/clustering", "recorded"]
    )
    assert (
        made.loc["runs/lexicon", "stale"] > 0
        and "stale: revision" in (tmp_path / "runs" / "lexicon.md").read_text()
    )
    assert made.loc["runs/tsne", "recorded"] == 0 and (tmp_path / "runs" / "tsne.md").exists()
    for run in runs.itertuples():
        assert (
            run.commit in page
            and run.versions in page
            and run.device in page
            and f"<td>{run.seed}</td>" in page
        )
    whole = pd.read_csv(
        tmp_path / "runs" / "tables" / "clustering.csv", dtype=str, keep_default_na=False
    )
    assert set(whole["key"]) == set(runs["key"])


def test_the_command_of_a_group_names_its_runs_and_no_others(
    tmp_path, records, capsys, monkeypatch
):
    from snnl_lib import __main__

    pages.runs_made(tmp_path, [], records[records["experiment"] == "clustering"])
    commands = re.findall(
        r"^python -m snnl_lib (run clustering .*--again) --keys '(.*)'",
        (tmp_path / "runs" / "clustering.md").read_text(),
        re.MULTILINE,
    )
    assert len(commands) == 8
    asked = []
    monkeypatch.setattr(
        __main__, "_carry_out", lambda specs, *_: asked.extend(map(experiments.key, specs)) or 0
    )
    monkeypatch.setattr(__main__.experiments, "unmet", lambda *_: "")
    monkeypatch.setattr(__main__.experiments, "key", keyed(records))
    for options, key in commands:
        assert __main__.main([*options.split(), "--keys", key]) == 0
    assert sorted(name for name in asked if name) == sorted(
        records[records["experiment"] == "clustering"]["key"].unique()
    )


def keyed(records):
    """Name a run's record by its identity alone, as the data it was made from may not be on this
    machine.
    """
    own = records[records["experiment"] == "clustering"].drop_duplicates("key")
    names = {
        (row.embedding, row.model, row.seed, row.settings): row.key for row in own.itertuples()
    }
    return lambda spec: names.get((spec.embedding, spec.model, spec.seed, spec.settings_text))


def test_the_status_and_the_cost_tell_of_every_chapter_and_experiment(tmp_path, records):
    chapters = build.chapters()[:2]
    note = {
        "profile": "quick",
        "dataset": "ag_news",
        "seeds": "42",
        "seconds": 61.0,
        "memory_mb": 1500,
        "created": "2026-01-02T03:04:05+00:00",
    }
    for path in chapters:
        notebook = json.loads(path.read_text())
        notebook["metadata"]["snnl"] = note | {
            "device": "CPU",
            "versions": "torch 2",
            "commit": "abc",
        }
        (tmp_path / path.name).write_text(json.dumps(notebook))
    made = pages.status_made(tmp_path, chapters, records)
    assert (
        made["status-chapters"]["minutes"].tolist() == ["1.0", "1.0"]
        and made["status-chapters"]["when (UTC)"][0] == "2026-01-02 03:04"
    )
    assert made["status-runs"]["page"].tolist() == [
        f"runs/{name}" for name in experiments.EXPERIMENTS
    ]
    cost = pages.performance_made(tmp_path, build.chapters(), records)
    assert cost["performance-chapters"]["page"].tolist() == [path.stem for path in build.chapters()]
    assert len(cost["performance-runs"]) == len(experiments.EXPERIMENTS)
    assert {table.columns[-1] for table in (*made.values(), *cost.values())} == {"records"}
    assert made["status-orphans"]["record"].tolist() == [
        "every record belongs to a run of the plan"
    ]
    included = cost["performance-runs"].set_index("page")["shared training included"]
    assert included["runs/images"].startswith("in ") and included["runs/clustering"] == "–"


def test_a_record_that_no_run_of_the_plan_asks_for_is_listed(records):
    lost = records.drop_duplicates("key").head(1)
    told = pages._orphans_told(lost)
    (name,) = told["records"]
    assert told["record"].tolist() == [f"`{name}`"] and name.endswith("/" + lost["key"].item())


def test_seconds_that_include_shared_training_are_marked_on_the_page_of_runs(tmp_path, records):
    some = records[records["experiment"] == "images"]
    pages.runs_made(tmp_path, [], some)
    page = (tmp_path / "runs" / "images.md").read_text()
    runs = some[report.includes_shared_training(some)]["key"].nunique()
    assert page.count(", shared training included</td>") == runs > 0
