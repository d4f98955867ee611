"""`make codecheck` recomputes runs that no score has chosen and finds what differs; codecheck.yml
lists files that are there or are made, with commands that there are.
"""

import csv
import itertools
import math
import re
import shlex
import shutil
import statistics
from pathlib import Path

import codecheck
import pandas as pd
import pytest
import yaml

from snnl_book import data, results
from snnl_book.__main__ import _parser
from snnl_book.experiments import run_all, runner, specs

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TEXT = (ROOT / "codecheck.yml").read_text()
LISTED = yaml.safe_load(TEXT)
CITED = yaml.safe_load((ROOT / "CITATION.cff").read_text())
HERE = ["--profile", "tiny", "--dataset", "newsgroups4"]


# ---------------------------------------------------------------- which runs


@pytest.fixture
def at_hand(monkeypatch):
    """AG News counts as being at hand: of a run its name is asked for, and no more."""
    monkeypatch.setattr(
        codecheck, "status", lambda *asked: [(s, "done", "", 1.0) for s in specs(*asked)]
    )
    monkeypatch.setattr(codecheck, "key", lambda spec: spec.key("somewhere"))


def recorded_seconds(experiment):
    """The seconds of the recorded runs of an experiment that the plan asks for."""
    took = {run.identity: run.seconds for run in results.runs(experiment)}
    wanted = specs(experiment, "full", "ag_news")
    return {spec: took[spec.identity] for spec in wanted if spec.identity in took}


@pytest.fixture(scope="module")
def table():
    return {k: v for name in codecheck.TABLES for k, v in recorded_seconds(name).items()}


def test_a_tenth_is_chosen_that_fits_into_the_recorded_seconds(table, at_hand):
    words = {spec: took for spec, took in table.items() if spec.embedding == "spacy"}
    count = math.ceil(len(table) / codecheck.SHARE_OF_RUNS)
    chosen = codecheck.choose(words, count)
    assert len(chosen) == count == len({*chosen}) and {*chosen} <= {*words}
    assert sum(words[spec] for spec in chosen) <= codecheck.SECONDS
    assert {spec.experiment for spec in chosen} == {*codecheck.TABLES}
    backwards = dict(reversed(words.items()))
    assert {*codecheck.choose(backwards, count)} == {*chosen}  # whatever the order they come in
    assert len(codecheck.choose(words, count, limit=100)) < count


def test_no_score_has_a_say_in_the_choice(tmp_path, monkeypatch):
    for name in codecheck.TABLES:
        shutil.copytree(ROOT / "results" / name, tmp_path / name)
    monkeypatch.setenv("SNNL_RESULTS", str(tmp_path))

    def chosen():
        seconds, left = codecheck.recorded("full", "ag_news", ["spacy", "infersent-random"])
        return codecheck.choose(seconds, 13), len(seconds), left

    if data.locate("ag_news") is None:
        monkeypatch.setattr(codecheck, "key", lambda spec: spec.key("somewhere"))
        told = codecheck.status
        monkeypatch.setattr(
            codecheck, "status", lambda *a, **k: [row._replace(unmet="") for row in told(*a, **k)]
        )
    before = chosen()
    assert len(before[0]) == 13 and before[1] > 100 and before[2]
    column = results.COLUMNS.index("value")
    for path in tmp_path.glob("*/*.csv"):
        header, *rows = csv.reader(path.read_text().splitlines())
        if header == results.COLUMNS:
            for number, row in enumerate(rows):
                row[column] = str(number)
            with path.open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows([header, *rows])
    assert chosen() == before


# ---------------------------------------------------------------- recomputed and compared


@pytest.fixture
def made(results_folder, newsgroups4):
    """Records of a few tiny runs, which stand for those of the tables; the path of one."""
    runs = [
        next(s for s in specs("clustering", "tiny", "newsgroups4") if s.model == "pca"),
        next(s for s in specs("classification", "tiny", "newsgroups4") if s.model == "ffn"),
    ]
    assert {record.status for record in run_all(runs, "cpu")} == {"ok"}
    (path,) = (
        path
        for path in results.results_dir("tiny").glob("clustering/*.csv")
        if not path.name.endswith(".answers.csv")
    )
    return path


def check(tmp_path, *more):
    return codecheck.main([*HERE, "--folder", str(tmp_path / "scratch"), *more])


def report(tmp_path):
    return pd.read_csv(tmp_path / "scratch" / "report.csv")


@pytest.fixture
def everything(monkeypatch):
    monkeypatch.setattr(codecheck, "SHARE_OF_RUNS", 1)  # two runs are few for a tenth


def test_what_is_recomputed_is_equal_and_is_not_made_again(
    made, tmp_path, capsys, everything, monkeypatch
):
    ours = made.read_bytes()
    assert check(tmp_path) == 0
    told, scores = capsys.readouterr().out, report(tmp_path)
    assert "2 of 2 recorded runs are chosen" in told and "[2/2]" in told
    assert f"{len(scores)} of {len(scores)} scores equal to the last digit, 0 within" in told
    assert f"{len(scores)} were recorded on a processor of this name with these versions" in told
    assert f"; {len(scores)} of these are equal" in told
    assert {*scores["verdict"]} == {"equal"} and {"acc", "nmi", "f1_micro"} < {*scores["score"]}
    assert made.read_bytes() == ours
    monkeypatch.setattr(runner, "run", None)
    assert check(tmp_path) == 0
    assert "0 of 2 runs to do" in capsys.readouterr().out


def rewritten(path, metric, value):
    """Put another value into a record."""
    text = path.read_text()
    changed = re.sub(rf"(,{metric},)[^,]+,", rf"\g<1>{value},", text)
    assert changed != text
    path.write_text(changed)


def test_a_recorded_score_that_was_changed_is_found(made, tmp_path, capsys, everything):
    frame = results.read_record(made).set_index("metric")["value"]
    rewritten(made, "acc", frame["acc"] + 0.02)
    rewritten(made, "nmi", frame["nmi"] + 0.01)
    rewritten(made, "chs", frame["chs"] * 1.05)
    assert check(tmp_path) == 1
    rows = report(tmp_path).query("run.str.startswith('clustering')").set_index("score")
    assert rows["verdict"][["acc", "nmi", "chs", "ari"]].tolist() == [
        *("beyond", "near", "near", "equal")
    ]
    assert rows["difference"]["acc"] == pytest.approx(-0.02)
    told = capsys.readouterr().out
    assert ", 2 within 1.5 points (10% of a score that is not a fraction), 0 no further" in told
    assert "in 99% of cases, 1 beyond" in told
    rewritten(made, "acc", "nan")  # as a run that broke off here, or there, would have it
    assert check(tmp_path) == 1


def test_a_score_as_far_off_as_seeds_are_is_not_beyond(made, tmp_path, capsys, everything):
    acc = results.read_record(made).set_index("metric")["value"]["acc"]
    for seed, further in ((101, 0.1), (102, 0.12), (103, 0.14), (104, 0.16)):  # not the plan's
        other = made.with_name(made.name.replace("-s42-", f"-s{seed}-"))
        other.write_text(made.read_text().replace(",none,42,", f",none,{seed},"))
        rewritten(other, "acc", acc + further)
    rewritten(made, "acc", acc + 0.025)
    assert check(tmp_path) == 0
    row = report(tmp_path).query("verdict == 'as seeds do'").squeeze()
    limit = 5.8409 * math.sqrt(2) * statistics.stdev([0.1, 0.12, 0.14, 0.16])  # t at 0.995, 3 df
    assert row["score"] == "acc" and row["limit_of_seeds"] == pytest.approx(limit, rel=1e-4)
    assert "1 no further off than two seeds of their row in 99% of cases, 0 beyond" in (
        capsys.readouterr().out
    )
    rewritten(made, "acc", acc + 0.25)  # which does not count among the seeds itself
    assert check(tmp_path) == 1


def test_an_interrupted_check_compares_what_is_there_and_goes_on(
    made, tmp_path, capsys, everything, monkeypatch
):
    def broken_off(*args, **options):
        yield from itertools.islice(run_all(*args, **options), 1)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(codecheck, "run_all", broken_off)
        assert check(tmp_path) == 130
    assert "1 of 2 runs compared, the same command resumes" in capsys.readouterr().err
    assert len({*report(tmp_path)["key"]}) == 1
    assert check(tmp_path) == 0
    assert "1 of 2 runs to do" in capsys.readouterr().out and len({*report(tmp_path)["key"]}) == 2


def test_a_machine_is_alike_by_processor_and_versions():
    now = {"device": "CPU A", "versions": "python 3.11.7; torch 2.13.0+cpu; spacy 3.8.18"}
    for device, versions, same in (
        ("CPU A", "python 3.11.7; torch 2.13.0+cpu", True),  # a package that is not named decides
        ("CPU A", "python 3.11.7; torch 2.12.0+cpu; spacy 3.8.18", False),  # nothing
        ("CPU B", "python 3.11.7; torch 2.13.0+cpu; spacy 3.8.18", False),
    ):
        row = pd.Series({"recorded_device": device, "recorded_versions": versions, **now})
        assert codecheck.is_same_machine(row) is same


def test_what_an_older_revision_or_another_version_made_is_made_again(
    made, tmp_path, capsys, everything
):
    assert check(tmp_path) == 0
    path = tmp_path / "scratch" / "clustering" / made.name
    for column, other in (("revision", "0"), ("versions", "torch 1.0")):
        frame = results.read_record(path)
        frame.assign(**{column: other}).to_csv(path, index=False, na_rep="nan")
        capsys.readouterr()
        assert check(tmp_path) == 0
        assert "1 of 2 runs to do" in capsys.readouterr().out


def test_what_cannot_be_made_is_counted_and_without_any_run_a_sentence_says_what_to_do(
    made, tmp_path, capsys
):
    assert check(tmp_path, "--embeddings", "sif") == 2
    told = capsys.readouterr()
    assert "2 recorded runs are left out: their documents are embedded by spacy" in told.out
    assert told.err.startswith("error: ") and "89,029 training documents" in told.err
    assert told.err.count("\n") == 1 and not (tmp_path / "scratch").exists()


# ---------------------------------------------------------------- codecheck.yml


def parts(entry):
    """What an entry of the manifest says: its command, as arguments, and its hours."""
    _, command, hours = re.fullmatch(r"(.*\.) Command: (.*) Hours: (.*)", entry["comment"]).groups()
    return shlex.split(command), float(hours)


def test_title_and_authors_are_those_to_cite():
    paper = LISTED["paper"]
    assert paper["title"] == CITED["title"] and paper["authors"] == CITED["authors"]
    for reference in CITED["references"]:
        assert reference["url"].removeprefix("https://arxiv.org/abs/") in paper["reference"]


@pytest.mark.parametrize("entry", LISTED["manifest"], ids=lambda entry: Path(entry["file"]).name)
def test_a_listed_file_is_there_or_is_what_its_command_writes(entry):
    command, hours = parts(entry)
    path = ROOT / entry["file"]
    if command[0] == "make":
        (target,) = command[1:]
        assert re.search(rf"^{target}:.*  ## ", MAKEFILE, re.MULTILINE) and 0 < hours <= 1
        if target == "codecheck":
            assert path == codecheck.FOLDER / "report.csv"
        elif target == "book":
            assert path.parent == ROOT / "_build" / "book" / "_build" / "html" / "book"
            assert (ROOT / "book" / path.name).with_suffix(".ipynb").exists() or (
                ROOT / "book" / path.name
            ).with_suffix(".md").exists()
        else:
            assert path.is_file()
        return
    assert command[:3] == [".venv/bin/python", "-m", "snnl_book"]
    args = _parser().parse_args(command[3:])
    assert args.command == "run" and args.again and args.keys == [path.stem]
    wanted = specs(args.experiment, "full", args.dataset, [int(seed) for seed in args.seeds])
    rows = results.read_record(path)
    made = rows.loc[0, ["dataset", "embedding", "model", "alpha", "seed", "settings"]]
    names = ("dataset", "embedding", "model", "alpha", "seed", "settings_text")
    assert [*made] in [[getattr(spec, name) for name in names] for spec in wanted]
    assert path.parent == ROOT / "results" / args.experiment
    assert hours == pytest.approx(rows["seconds"][0] / 3600, abs=0.02)
