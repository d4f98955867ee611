"""The Snakefile for real: what it lists, what it makes again, and what is left of it when it is
killed. On a small book with two chapters.
"""

import base64
import json
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import build
import pandas as pd
import pytest
from conftest import outside_of_make
from test_kill import KILLS, ROOT, finish, kill_after, moments, start  # noqa: F401

from snnl_book import experiments, results

RUNS = "results --config profile=tiny dataset=newsgroups4 experiments=clustering device=cpu".split()
LOG = "clustering-newsgroups4-spacy-all.txt"  # of the group of these runs
BOOK = ("book", "--config", "profile=tiny", "dataset=newsgroups4", "device=cpu")
CHECKED = "from snnl_book import experiments\n\nrun = experiments.parameters(globals())\nprint(run)"
CELLS = (
    ("markdown", "# A chapter of the small book", []),
    ("code", 'profile = "quick"\nseeds = [42]\ndataset = "auto"\ndevice = "auto"', ["parameters"]),
    ("code", CHECKED, []),
    ("code", "import time\n\ntime.sleep(1)\nsum(range(10))", []),
)


def write_chapter(path, extra=""):
    cells = []
    for i, (kind, text, tags) in enumerate(CELLS):
        cell = {"cell_type": kind, "id": f"cell-{i}", "metadata": {"tags": tags}}
        code = {"outputs": [], "execution_count": None} if kind == "code" else {}
        cells.append(cell | {"source": text + extra * (i == 0)} | code)
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    made = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(made))


COPIED = """Snakefile _config.yml pyproject.toml requirements/lock.txt requirements/data.txt
    book/_tools/build.py book/_tools/claims_picture.py book/_tools/pages.py
    book/_tools/rendered.py book/_tools/run_pages.py book/equations.csv book/references.bib
    results/bench/chapters-cpu.csv""".split()


@pytest.fixture
def small_book(packages, tmp_path, results_folder):
    """A copy of the project with two short chapters, and no records."""
    place = tmp_path / "project"
    for name in ("snnl_lib", "snnl_book", "profiles", "book/_tools/_ext"):
        shutil.copytree(ROOT / name, place / name)  # with its byte code
    for name in COPIED:
        (place / name).parent.mkdir(exist_ok=True, parents=True)
        shutil.copyfile(ROOT / name, place / name)
    (place / "book" / "index.md").write_text("# A small book\n")
    (place / "_toc.yml").write_text(
        "format: jb-book\nroot: book/index\nchapters:\n  - file: book/one\n  - file: book/two\n"
    )
    for name in ("one", "two"):
        write_chapter(place / "book" / f"{name}.ipynb")
    return place


def snakemake(place, *arguments, cores=2):
    arguments = (*arguments[:1], "--cores", cores, *arguments[1:])
    return start("-m", "snakemake", *arguments, cwd=place, PYTHONPATH=str(place))


def done(said, rule):
    """The jobs of a rule that Snakemake started."""
    return said.count(f"rule {rule}:\n")


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# ---------------------------------------------------------------- the book


def test_what_is_going_to_be_made_is_said_with_minutes_from_what_was_measured():
    took = pd.read_csv(ROOT / "results" / "bench" / "chapters-cpu.csv", index_col="chapter")
    first, second = took.index[:2]
    jobs = [("run", None), ("run", None), ("records", None), ("chapter", first)]
    jobs += [("chapter", second), ("render", None)]
    minutes = math.ceil(took["seconds"].iloc[:2].sum() / 2 / 60)
    assert build.announcement(jobs, 2) == (
        f"2 groups of runs, 2 chapters to execute (about {minutes} min), "
        "pages to render; logs are in _build/logs"
    )
    assert build.announcement(jobs[3:4], None).startswith("1 chapter to execute; logs")
    assert build.announcement([("records", None)], 2) == "everything is up to date"


def test_a_chapter_may_name_a_data_set_that_takes_the_place_of_auto():
    chapter = ROOT / "book" / "16_cluster_your_own_texts.ipynb"
    assert build.fitting(chapter, "auto") == "newsgroups20"
    assert build.fitting(chapter, "newsgroups4") == "newsgroups4"


def test_make_book_says_a_line_a_step_and_makes_again_only_what_a_change_reaches(
    small_book, results_folder
):
    shutil.copyfile(ROOT / "Makefile", small_book / "Makefile")
    there = [part for name in (".venv/.ready", "_build/.data") for part in ("-o", name)]

    def make(profile):
        command = ["make", *there, "book", f"PYTHON={sys.executable}", f"PROFILE={profile}"]
        environment = outside_of_make() | {"PYTHONPATH": str(small_book)}
        return subprocess.run(
            command, cwd=small_book, env=environment, capture_output=True, text=True
        )

    made = make("tiny")
    assert (made.returncode, made.stderr) == (0, ""), made.stderr
    first, *chapters, rendered, last = made.stdout.splitlines()
    assert first == "2 chapters to execute, pages to render; logs are in _build/logs"
    assert sorted(re.sub(r"\d+ s$", "", line) for line in chapters) == [
        "one: executed in ",
        "two: executed in ",
    ]
    assert re.fullmatch(r"pages rendered in \d+ s", rendered)
    page = Path(last.removeprefix("The book is at "))
    assert "A chapter of the small book" in (page.parent / "book" / "one.html").read_text()
    before = cpu_seconds()
    assert make("tiny").stdout.splitlines() == [last]
    assert cpu_seconds() - before < 10  # on an idle machine the seconds that pass
    results_folder.mkdir(exist_ok=True)
    (results_folder / "another.csv").write_text("a record that chapters show")
    assert make("tiny").stdout.splitlines()[0] == first
    assert make("tiny").stdout.splitlines() == [last]
    wrong = make("fast")
    assert wrong.returncode and "there is no profile 'fast'" in wrong.stderr

    asked = ("book", "--config", "profile=tiny")
    write_chapter(small_book / "book" / "two.ipynb", extra=", changed")
    said = finish(snakemake(small_book, *asked, "-n"))
    assert (done(said, "chapter"), done(said, "render")) == (1, 1) and "executed/two.ipynb" in said
    # other parameters
    assert done(finish(snakemake(small_book, *asked, "seeds=42,73", "-n")), "chapter") == 2
    source = small_book / "snnl_book" / "report" / "__init__.py"
    source.write_text(source.read_text() + "\n# changed\n")
    assert done(finish(snakemake(small_book, *asked, "-n")), "chapter") == 2


def test_a_chapter_that_was_edited_while_it_was_executed_is_executed_again(small_book):
    two = small_book / "book" / "two.ipynb"
    edit = f"two = __import__('pathlib').Path({str(two)!r}); two.write_text(two.read_text() + ' ')"
    two.write_text(two.read_text().replace("import time", edit.replace('"', '\\"')))
    two.write_text(two.read_text().replace("\\n\\ntime.sleep(1)", ""))
    finish(snakemake(small_book, *BOOK))
    said = finish(snakemake(small_book, *BOOK, "-n"))
    assert done(said, "chapter") == 1 and "executed/two.ipynb" in said


def test_a_second_build_is_refused_and_a_chapter_that_fails_is_told_with_its_sentence_kept(
    small_book,
):
    two = small_book / "book" / "two.ipynb"
    two.write_text(two.read_text().replace("time.sleep(1)", "raise ValueError('the sky fell')"))
    built = small_book / "_build"
    first = snakemake(small_book, *BOOK)
    while not [*(built / "logs").glob("*.ipynb")]:  # its first chapter is being executed
        assert first.poll() is None
        time.sleep(0.1)
    # However long the second takes, the first is still at work.
    os.killpg(first.pid, signal.SIGSTOP)
    second = snakemake(small_book, *BOOK)
    said, _ = second.communicate(timeout=300)
    os.killpg(first.pid, signal.SIGCONT)
    assert second.returncode == 1 and "another snakemake is at work in" in said
    said, _ = first.communicate(timeout=600)  # goes on to its own end
    assert first.returncode == 1
    assert "error: two did not run: ValueError: the sky fell (the executed cells are in" in said
    assert (built / "executed" / "one.ipynb").exists()
    assert "the sky fell" in (built / "logs" / "two.ipynb").read_text()
    assert not (built / "executed" / "two.ipynb").exists()


@pytest.mark.slow
def test_a_build_killed_at_random_moments_goes_on_and_makes_no_finished_chapter_again(
    small_book,
    moments,  # noqa: F811 - the fixture that is imported above
):
    started = time.monotonic()
    finish(snakemake(small_book, *BOOK))
    seconds = time.monotonic() - started
    built = small_book / "_build"
    shutil.rmtree(built)
    for _ in range(KILLS):
        executed = finished_chapters(built)
        kill_after(snakemake(small_book, *BOOK), moments.uniform(0.1, 1) * seconds)
        assert finished_chapters(built).items() >= executed.items()
        for path in (built / "src").rglob("*.ipynb"):
            json.loads(path.read_text())  # whole
        if (built / "book" / "_build" / "html" / "index.html").exists():
            shutil.rmtree(built)
    executed = finished_chapters(built)
    finish(snakemake(small_book, *BOOK))
    assert finished_chapters(built).items() >= executed.items()
    assert len(finished_chapters(built)) == 2
    assert "Nothing to be done" in finish(snakemake(small_book, *BOOK))


def finished_chapters(built):
    """The executed chapters whose job had come to its end, with the times at which they were
    written.
    """
    incomplete = (built / ".snakemake" / "incomplete").glob("*")
    unfinished = {base64.b64decode(path.name).decode() for path in incomplete}
    return {
        path: path.stat().st_mtime_ns
        for path in (built / "executed").glob("*.ipynb")
        if f"executed/{path.name}" not in unfinished
    }


# ---------------------------------------------------------------- runs


def record_paths(results_folder, seeds="42"):
    folder = results_folder / "_build" / "tiny" / "clustering"
    wanted = experiments.specs("clustering", "tiny", "newsgroups4", seeds)
    return {spec: folder / f"{experiments.key(spec)}.csv" for spec in wanted}


def test_just_the_runs_without_a_good_record_are_made_and_a_dry_run_changes_nothing(
    small_book, results_folder, monkeypatch
):
    before, scratch = snapshot(small_book), small_book.parent / "scratch"
    scratch.mkdir()
    with monkeypatch.context() as patch:
        patch.setenv("TMPDIR", str(scratch))
        assert done(finish(snakemake(small_book, *RUNS, "-n")), "run") == 1
    assert not [*scratch.iterdir()]
    assert snapshot(small_book) == before and not (small_book / "_build").exists()

    said = finish(snakemake(small_book, *RUNS))
    assert done(said, "run") == 1
    assert results.load_results("clustering", "tiny")["key"].nunique() == 4
    wanted = record_paths(results_folder)
    paths = [*wanted.values()]
    made = {path: path.read_bytes() for path in paths}
    paths[0].unlink()  # its marker says that it is made
    paths[1].write_text(paths[1].read_text().replace(",1,", ",0,"))  # made by an older revision
    digest = small_book / "_build" / "records.sha256"
    digest.write_text("of other records")
    before = snapshot(small_book)
    said = finish(snakemake(small_book, "all", *RUNS[1:], "-n"))
    asked = {rule: done(said, rule) for rule in ("run", "records", "chapter", "render")}
    assert asked == {"run": 1, "records": 1, "chapter": 2, "render": 1}
    assert snapshot(small_book) == before and not paths[0].exists()

    said = finish(snakemake(small_book, *RUNS))
    assert done(said, "run") == 1
    log = (small_book / "_build" / "logs" / "tiny" / LOG).read_text()
    assert "runs to do: 2, recorded: 2" in log
    assert {path for path in paths if path.read_bytes() == made[path]} >= set(paths[2:])
    rows = experiments.status("clustering", "tiny", "newsgroups4", "42", "cpu")
    assert {row.spec: row.verdict for row in rows} == dict.fromkeys(wanted, "done")
    assert done(finish(snakemake(small_book, *RUNS)), "run") == 0


@pytest.mark.slow  # a run that is killed alone has tests of its own
def test_a_group_that_is_killed_loses_only_the_run_under_way(small_book, results_folder):
    seeds = "seeds=[1,2,3]"
    process = snakemake(small_book, *RUNS, seeds)
    paths = record_paths(results_folder, "1,2,3").values()
    while sum(path.exists() for path in paths) < 3:
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = {path: path.read_bytes() for path in paths if path.exists()}
    assert 3 <= len(before) < len(paths)
    assert done(finish(snakemake(small_book, *RUNS, seeds)), "run") == 1
    assert all(path.exists() for path in paths)
    assert {path: path.read_bytes() for path in before} == before


def test_runs_that_take_long_are_a_group_for_each_seed(packages, results_folder):
    asked = {"seeds": "42,73", "dataset": "newsgroups4", "device": "cpu"}
    names = ["clustering", "annealing"]
    grouped = build.groups(names, profile="full", **asked)
    embeddings = ("spacy", "infersent-random")
    expected = [("clustering", "newsgroups4", own, seed) for seed in (42, 73) for own in embeddings]
    expected += [("annealing", "gaussian", "points", seed) for seed in (42, 73)]
    assert [*grouped] == expected
    found = [key for keys in grouped.values() for key in keys]
    of_names = (experiments.status(name, "full", "newsgroups4", "42,73", "cpu") for name in names)
    wanted = [experiments.key(row.spec) for rows in of_names for row in rows if not row.unmet]
    assert sorted(found) == sorted(wanted) and len({*found}) == len(found)


def test_an_experiment_whose_data_are_out_of_reach_does_not_keep_the_others(
    packages, results_folder, no_network, monkeypatch
):
    monkeypatch.delenv("SNNL_DATA", raising=False)
    asked = {"profile": "tiny", "seeds": "42", "dataset": "ag_news", "device": "cpu"}
    found = build.groups(["clustering", "annealing"], **asked)
    assert {name for name, *_ in found} == {"annealing"}


def snapshot(place):
    """What a folder holds, without the engine's own notes and byte code."""
    return {
        path: path.is_file() and (path.stat().st_mtime_ns, path.read_bytes())
        for path in place.rglob("*")
        if not {".snakemake", "__pycache__"} & {*path.parts}
    }


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("profile=fast", "there is no profile 'fast': choose one of tiny, quick, full"),
        ("sedes=42", "there is no setting 'sedes': --config takes profile, seeds, dataset, device"),
        ("dataset=mnist experiments=clustering", "no runs of clustering are on mnist: leave"),
    ],
)
def test_a_wrong_setting_is_one_sentence_before_anything_starts(small_book, wrong, sentence):
    process = snakemake(small_book, "results", "--config", *wrong.split())
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 1 and sentence in said and "Traceback" not in said
    assert not (small_book / "_build" / "src").exists()


def test_a_profile_can_be_read(small_book):
    asked = ("-m", "snakemake", "results", "-n", "--profile", "profiles/local", *RUNS[1:])
    said = finish(start(*asked, cwd=small_book, PYTHONPATH=str(small_book)))
    assert done(said, "run") == 1
