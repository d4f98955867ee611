"""Records: written as a whole or not at all, identified by everything that can change a score, and
judged done, stale, failed or missing.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from snnl_book import results
from snnl_book.records import STATUSES
from snnl_book.results import (
    COLUMNS,
    Record,
    RecordError,
    Spec,
    load_curves,
    load_results,
    read_record,
    write_record,
)

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = (("epochs", 2), ("hidden_sizes", (500, 500)), ("n_test", None))
CELL = ("clustering", "full", "newsgroups4", "spacy", "lc-d", 100, "annealed")
SPEC = Spec(*CELL, 42, 300, 3, SETTINGS)
PRINT = "06bd3138-c2b55dcb"
METRICS = {"acc": 0.1 + 0.2, "dbi": float("nan"), "chs": 1234567.891234567, "tiny": 1e-300}
CURVE = pd.DataFrame({"epoch": [0, 1], "temperature": [1.0, 0.68], "loss": [1.5, float("nan")]})
POINTS = pd.DataFrame(
    {"row": [12345, 7], "label": [3, 0], "x": [1.23456, -123456.0], "y": [0.000123456, np.nan]}
)


def made_up_record(spec=SPEC, fingerprint=PRINT, **changes):
    """A record of a run that never was: these tests are about files, not about scores."""
    facts = {"metrics": METRICS, "n_train": 299, "n_test": 200, "seconds": 1.234}
    facts |= {"device": "CPU", "curve": CURVE}
    return Record(spec, fingerprint, **facts | changes)


def judge(specs, fingerprints):
    runs = results.runs_of(specs, fingerprints, results.made(specs, False, "cpu"))
    return {spec: results.verdict(spec, runs[spec]) for spec in specs}


def files_under(folder):
    paths = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in paths)


# ---------------------------------------------------------------- write and read


def test_a_record_is_read_back_to_the_last_bit_with_its_provenance_in_every_row(results_folder):
    before = datetime.now().astimezone()
    record = made_up_record()
    path = write_record(record)
    assert path == results_folder / "clustering" / f"{record.key}.csv"
    assert record.key.startswith("newsgroups4-spacy-lc-d-a100-tannealed-s42-n300-")
    frame = read_record(path)
    assert list(frame.columns) == COLUMNS
    assert frame["metric"].tolist() == list(METRICS)
    np.testing.assert_array_equal(frame["value"], list(METRICS.values()))
    assert len(frame.drop(columns=["metric", "value"]).drop_duplicates()) == 1
    row = frame.iloc[0]
    expected = {name: getattr(SPEC, name) for name in results.SPEC_COLUMNS}
    expected |= {"n_train": 299, "n_test": 200, "status": "ok", "reason": "", "seconds": 1.23}
    expected |= {"device": "CPU", "revision": 3, "fingerprint": PRINT, "rows": 4}
    assert {name: row[name] for name in expected} == expected
    settings = {"n_train": 300, "epochs": 2, "hidden_sizes": [500, 500], "n_test": None}
    assert json.loads(row["settings"]) == settings
    assert abs((datetime.fromisoformat(row["created"]) - before).total_seconds()) < 60
    for part in (f"numpy {np.__version__}", "python 3.", "torch "):
        assert part in row["versions"]


def test_the_commit_is_that_of_the_checkout():
    git = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    head = subprocess.run(git, capture_output=True, text=True)
    if head.returncode:
        pytest.skip("this is no git checkout")
    assert results.commit().removesuffix("+changes") == head.stdout.strip()


def test_every_status_and_reason_is_read_back(results_folder):
    reasons = ("", "nan", 'ValueError: "a, b"; c', "ein Satz\nüber zwei Zeilen")
    for status, reason in zip(STATUSES, reasons, strict=True):
        spec = replace(SPEC, seed=len(status))
        frame = read_record(write_record(made_up_record(spec, status=status, reason=reason)))
        assert set(frame["status"]) == {status} and set(frame["reason"]) == {reason}


def test_curve_and_points_are_files_next_to_their_record_and_loaded_with_its_facts(results_folder):
    record = made_up_record(points=POINTS)
    write_record(record)
    write_record(made_up_record(replace(SPEC, model="pca", seed=73), curve=None))
    stem = f"clustering/{record.key}"
    files = files_under(results_folder)
    assert {f"{stem}.csv", f"{stem}.curve.csv", f"{stem}.points.csv"} < {*files}
    assert len(files) == 4
    text = (results_folder / f"{stem}.points.csv").read_text()
    assert text == "row,label,x,y\n12345,3,1.235,0.0001235\n7,0,-1.235e+05,nan\n"
    records = load_results("clustering")
    assert records["key"].nunique() == 2, "curves and points are not records"
    points, curves = load_curves(records, kind="points"), load_curves(records)
    assert points["row"].tolist() == [12345, 7] and points["x"].tolist() == [1.235, -123500.0]
    assert "x" not in curves and curves["temperature"].tolist() == [1.0, 0.68]
    for frame in (points, curves):
        names = ["embedding", "model", "alpha", "seed", "status"]
        assert frame[names].drop_duplicates().to_numpy().tolist() == [
            ["spacy", "lc-d", 100.0, 42, "ok"]
        ]
    assert load_curves(records[records["seed"] == 73]).empty


def test_a_repeated_run_replaces_its_record_and_removes_files_it_does_not_have(results_folder):
    write_record(made_up_record(points=POINTS))
    path = write_record(made_up_record(metrics={"acc": 0.5}, status="collapsed", curve=None))
    assert read_record(path)["value"].tolist() == [0.5]
    assert [name for name in files_under(results_folder) if name != "replaced.csv"] == [
        f"clustering/{path.name}"
    ]


def test_full_records_are_in_the_checkout_and_others_in_its_build_folder(
    results_folder, monkeypatch
):
    for profile in ("tiny", "quick"):
        path = write_record(made_up_record(replace(SPEC, profile=profile)))
        assert path.parent == results_folder / "_build" / profile / "clustering"
    monkeypatch.delenv("SNNL_RESULTS")
    assert results.results_dir() == ROOT / "results"
    assert results.results_dir("tiny") == ROOT / "_build" / "results" / "tiny"
    assert results.chapters_dir() == ROOT / "_build" / "results" / "full"


# ---------------------------------------------------------------- damaged records


def refused(path):
    """Assert that every way to read a record refuses it, and names it."""
    for read in (lambda: read_record(path), load_results, lambda: judge([SPEC], {})):
        with pytest.raises(RecordError, match="remove it") as caught:
            read()
        assert str(path) in str(caught.value)


def test_a_record_cut_off_at_any_byte_is_refused(results_folder):
    # The reason contains what is awkward to cut: a quoted line break and a letter of two bytes.
    metrics = {"acc": 0.5, "dbi": float("nan")}
    path = write_record(made_up_record(metrics=metrics, status="failed", reason="größer,\nals 1"))
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(RecordError):
            read_record(path)
    path.write_bytes(whole)
    assert len(read_record(path)) == 2


def lines(text, *chosen):
    return "".join(text.splitlines(keepends=True)[i] for i in chosen)


DAMAGES = {
    "nothing but the header": lambda text: lines(text, 0),
    "a row lost": lambda text: lines(text, 0, 1, 3, 4),
    "a row twice": lambda text: lines(text, 0, 1, 1, 2, 3, 4),
    "no header": lambda text: lines(text, 1, 2, 3, 4),
    "an unknown status": lambda text: text.replace(",ok,", ",fine,"),
    "rows of two seeds": lambda text: text.replace(",42,", ",43,", 1),
    "a seed that is not a whole number": lambda text: text.replace(",42,", ",42.5,"),
    "an unknown column": lambda text: text.replace("experiment,", "experience,", 1),
    "marks of a merge": lambda text: f"<<<<<<< HEAD\n{text}=======\n{text}>>>>>>> other\n",
    "a web page": lambda text: "<!doctype html>\n<title>404</title>\n",
    "zeros": lambda text: "\0" * len(text) + "\n",
    "bytes that are not text": lambda text: np.random.default_rng(0).bytes(5000),
    "an endless field": lambda text: text.replace(",CPU,", f',"{"C" * 200_000}",'),
}


def test_a_damaged_record_is_refused_and_named(results_folder):
    path = write_record(made_up_record())
    text = path.read_text()
    for name, damage in DAMAGES.items():
        damaged = damage(text)
        assert damaged != text, name
        path.write_bytes(damaged if isinstance(damaged, bytes) else damaged.encode())
        refused(path)


def test_a_byte_order_mark_that_an_editor_adds_is_accepted(results_folder):
    path = write_record(made_up_record())
    before = read_record(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_record(path).equals(before)


# ---------------------------------------------------------------- whole or absent


def test_a_write_that_stops_leaves_the_old_record_and_nothing_else(results_folder, monkeypatch):
    full = OSError(28, "No space left on device")
    path = write_record(made_up_record())
    before = path.read_bytes()
    for moment, stop in (("fsync", full), ("replace", full), ("replace", KeyboardInterrupt())):

        def break_off(*args, stop=stop):
            raise stop

        with monkeypatch.context() as patch:
            patch.setattr(os, moment, break_off)
            with pytest.raises((KeyboardInterrupt, RecordError)) as caught:
                write_record(made_up_record(metrics={"acc": 0.9}))
        assert path.read_bytes() == before
        assert len(files_under(path.parent)) == 2, "a temporary file stayed behind"
        if stop is full:
            assert "No space left" in str(caught.value) and "SNNL_RESULTS" in str(caught.value)


def test_curve_and_points_are_written_before_the_record_that_needs_them(
    results_folder, monkeypatch
):
    record = made_up_record(points=POINTS)
    names = [f"clustering/{record.key}.{kind}.csv" for kind in ("curve", "points")]
    replace_file = os.replace
    for written in range(3):
        calls = []

        def break_off(source, target, calls=calls, written=written):
            calls.append(target)
            if len(calls) > written:
                raise KeyboardInterrupt
            replace_file(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", break_off)
            with pytest.raises(KeyboardInterrupt):
                write_record(record)
        assert files_under(results_folder) == names[:written]
        assert load_results().empty and judge([SPEC], {}) == {SPEC: "missing"}
    write_record(record)
    assert judge([SPEC], {}) == {SPEC: "done"}


def test_a_file_follows_the_umask_as_those_of_any_program_do(results_folder):
    before = os.umask(0o027)
    try:
        path = write_record(made_up_record())
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_where_the_folder_should_be_is_an_error_that_says_what_to_do(tmp_path, monkeypatch):
    # It refuses a superuser too, as a read-only folder does not.
    (tmp_path / "results").write_text("no folder")
    monkeypatch.setenv("SNNL_RESULTS", str(tmp_path / "results"))
    with pytest.raises(RecordError, match=r"not a readable folder: set SNNL_RESULTS"):
        write_record(made_up_record())


def test_a_relative_folder_of_results_would_mean_another_one_in_each_chapter(monkeypatch):
    monkeypatch.setenv("SNNL_RESULTS", "results-of-mine")
    with pytest.raises(RecordError, match="names results-of-mine, which is not an absolute path"):
        write_record(made_up_record())


WRITER = """
import sys
from snnl_book.results import Record, Spec, write_record
cell = ("clustering", "full", "newsgroups4", "spacy", "lc-d", 100, "annealed")
spec = Spec(*cell, 42, 300, 3, (("epochs", 2),))
number, rows = float(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(60):
    write_record(Record(spec, "0", {f"metric{i}": number for i in range(rows)}, 1, 1, 1.0, "CPU"))
"""


def test_two_processes_that_write_the_same_record_never_show_half_of_it(results_folder):
    # The two records differ in length and in every value, so that a mixture would be seen.
    options = {"cwd": ROOT, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", WRITER]
    writers = [subprocess.Popen([*command, *sizes], **options) for sizes in ("13", "29")]
    for writer in writers:
        writer.stdout.readline()
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    seen = set()
    while any(writer.poll() is None for writer in writers):
        for path in results_folder.glob("clustering/*.csv"):
            frame = read_record(path)
            seen.add((frame["value"].iloc[0], len(frame)))
    for writer in writers:
        writer.communicate()
    assert all(writer.returncode == 0 for writer in writers) and seen <= {(1.0, 3), (2.0, 9)}
    assert seen and not list(results_folder.rglob("*.tmp"))


# ---------------------------------------------------------------- keys and identities

CHANGES = [
    {"dataset": "ag_news"},
    {"embedding": "tfidf"},
    {"model": "ae-d"},
    {"alpha": 100.001},
    {"temperature": "1.0"},
    {"seed": 43},
    {"n_train": 301},
    {"settings": (("epochs", 3), ("hidden_sizes", (500, 500)), ("n_test", None))},
    {"settings": (("epochs", 2), ("hidden_sizes", (500, 500)), ("n_test", 200))},
    {"settings": ()},
]


def test_key_and_identity_change_with_everything_that_can_change_a_score(results_folder):
    others = [replace(SPEC, **change) for change in CHANGES]
    assert len({SPEC.key(PRINT), *(other.key(PRINT) for other in others)}) == len(CHANGES) + 1
    others += [replace(SPEC, experiment="classification"), replace(SPEC, profile="quick")]
    assert len({SPEC.identity, *(other.identity for other in others)}) == len(others) + 1
    for other in others:
        write_record(made_up_record(other))
    assert judge([SPEC], {SPEC: PRINT}) == {SPEC: "missing"}, "they are records of other runs"
    assert judge(others, dict.fromkeys(others, PRINT)) == dict.fromkeys(others, "done")
    # "%g" shows six digits.
    assert replace(SPEC, alpha=0.1234567).key(PRINT) != replace(SPEC, alpha=0.1234568).key(PRINT)


def test_the_key_changes_with_the_data_but_not_with_revision_or_order_of_settings():
    assert SPEC.key("another") != SPEC.key(PRINT)
    assert replace(SPEC, revision=4).key(PRINT) == SPEC.key(PRINT)
    shuffled = replace(SPEC, alpha=100.0, settings=tuple(reversed(SPEC.settings)))
    assert shuffled.key(PRINT) == SPEC.key(PRINT) and shuffled.identity == SPEC.identity


def test_the_seconds_of_a_run_include_those_of_the_training_it_shares(results_folder):
    for seed, shared in ((42, {}), (73, {"shared_seconds": 500.0})):
        record = made_up_record(replace(SPEC, seed=seed))
        write_record(replace(record, seconds=2.5, metrics=METRICS | shared))
    assert [run.seconds for run in results.runs(SPEC.experiment)] == [2.5, 502.5]


# ---------------------------------------------------------------- many records


def test_results_are_loaded_by_experiment_and_profile_with_types_and_keys(results_folder):
    for experiment, profile, seed in (
        ("clustering", "full", 42),
        ("clustering", "full", 73),
        ("classification", "full", 42),
        ("clustering", "tiny", 42),
    ):
        spec = replace(SPEC, experiment=experiment, profile=profile, seed=seed)
        path = write_record(made_up_record(spec))
    # A record that was copied among those of another profile does not count there.
    (results_folder / "clustering" / f"copied-{path.name}").write_bytes(path.read_bytes())
    for folder in ("bench", "notes"):
        (results_folder / folder).mkdir()
        (results_folder / folder / "table.csv").write_text("change,accuracy\nnone,0.5\n")
    frame = load_results("clustering")
    assert set(frame["seed"]) == {42, 73} and len(frame) == 8 and len(load_results()) == 12
    assert list(frame.columns) == [*COLUMNS, "key"] and frame.index.is_unique
    assert set(frame["key"]) == {replace(SPEC, seed=seed).key(PRINT) for seed in (42, 73)}
    types = {name: frame[name].dtype.kind for name in COLUMNS}
    assert {name for name in types if types[name] == "i"} == {
        *("seed", "n_train", "n_test", "revision", "rows")
    }
    assert {name for name in types if types[name] == "f"} == {"value", "alpha", "seconds"}
    assert set(load_results("clustering", "tiny")["profile"]) == {"tiny"}
    nothing = load_results("images")
    assert nothing.empty and list(nothing.columns) == list(frame.columns)
    assert load_curves(nothing).empty and load_results(profile="quick").empty


# ---------------------------------------------------------------- missing, stale, failed, done

HERE, ELSEWHERE = {SPEC: PRINT}, {SPEC: None}  # where the data is


def test_a_run_is_done_however_it_ended_unless_it_failed(results_folder):
    assert judge([SPEC], HERE) == judge([SPEC], ELSEWHERE) == {SPEC: "missing"}
    write_record(made_up_record(status="failed", reason="RuntimeError: no memory"))
    assert judge([SPEC], HERE) == {SPEC: "failed"}
    for status in ("ok", "diverged", "collapsed"):
        write_record(made_up_record(status=status))
        assert judge([SPEC], HERE) == {SPEC: "done"}


def test_a_record_of_an_older_revision_is_stale_until_the_run_is_repeated(results_folder):
    for revision, verdict in ((2, "stale"), (3, "done"), (4, "done")):
        write_record(made_up_record(replace(SPEC, revision=revision)))
        assert judge([SPEC], HERE) == {SPEC: verdict}
    assert len(set(load_results()["key"])) == 1


def test_a_record_made_from_other_data_counts_only_if_the_data_is_not_here(results_folder):
    for changes, verdict in (
        ({"spec": replace(SPEC, revision=2), "fingerprint": "old"}, "stale"),
        ({"fingerprint": "broken", "status": "failed"}, "stale"),
        ({"fingerprint": "new"}, "done"),
    ):
        write_record(made_up_record(**changes))
        assert judge([SPEC], ELSEWHERE) == judge([SPEC], {}) == {SPEC: verdict}
        assert judge([SPEC], HERE) == {SPEC: "missing"}


# ---------------------------------------------------------------- records of other machines


def merged(folder):
    return {name: len(names) for name, names in results.merge(folder)._asdict().items() if names}


def test_records_of_several_machines_are_merged_and_a_second_time_nothing_changes(
    results_folder, tmp_path
):
    specs = [replace(SPEC, seed=seed) for seed in range(5)]
    for spec in specs[:3]:
        write_record(made_up_record(spec))
    for spec in specs[2:4]:
        write_record(made_up_record(spec, points=POINTS), tmp_path / "a")
    for spec in specs[3:]:
        write_record(made_up_record(spec), tmp_path / "b")
    assert merged(tmp_path / "a") == merged(tmp_path / "b") == {"added": 1, "kept": 1}
    assert set(load_results()["seed"]) == set(range(5))
    content = {name: (results_folder / name).read_bytes() for name in files_under(results_folder)}
    assert sum(name.endswith(".points.csv") for name in content) == 1
    assert merged(tmp_path / "a") == merged(tmp_path / "b") == {"kept": 2}
    after = {name: (results_folder / name).read_bytes() for name in files_under(results_folder)}
    assert after == content
    assert len(files_under(tmp_path / "a")) == 6  # the copied files are still there


def test_of_two_records_of_a_run_the_finished_and_the_newer_one_is_kept(results_folder, tmp_path):
    failed = made_up_record(metrics={"acc": np.nan}, status="failed", points=POINTS)
    newer = made_up_record(replace(SPEC, revision=4), metrics={"acc": 0.5}, curve=None)
    for name, record in (("failed", failed), ("whole", made_up_record()), ("newer", newer)):
        write_record(record, tmp_path / name)
    write_record(failed)
    assert merged(tmp_path / "whole") == {"replaced": 1}
    assert not list(results_folder.rglob("*.points.csv"))
    assert merged(tmp_path / "newer") == {"replaced": 1}
    assert not list(results_folder.rglob("*.curve.csv"))
    for worse in ("whole", "failed"):
        assert merged(tmp_path / worse) == {"kept": 1}
    assert load_results()["value"].tolist() == [0.5]


def test_records_that_contradict_each_other_are_reported_and_ours_stay(results_folder, tmp_path):
    path = write_record(made_up_record())
    ours = path.read_bytes()
    write_record(made_up_record(metrics=METRICS | {"acc": 0.25}), tmp_path)
    (conflict,) = results.merge(tmp_path).conflicts
    for part in (f"clustering/{path.stem}", "acc", "0.25", "0.30000000000000004"):
        assert part in conflict
    assert path.read_bytes() == ours


def test_what_cannot_be_merged_is_named_and_everything_else_is_merged(results_folder, tmp_path):
    ours = write_record(made_up_record(replace(SPEC, seed=4)))
    ours.write_bytes(ours.read_bytes()[:-9])
    left = ours.read_bytes()
    theirs = [write_record(made_up_record(replace(SPEC, seed=seed)), tmp_path) for seed in range(5)]
    damaged, renamed, tiny, _, _ = theirs
    damaged.write_bytes(damaged.read_bytes()[:-9])
    renamed = renamed.rename(renamed.with_name("renamed.csv"))
    tiny.write_text(tiny.read_text().replace(",full,", ",tiny,"))
    (tiny.parent / "folder.csv").mkdir()
    refused = results.merge(tmp_path).refused
    for path in (damaged, renamed, tiny, ours):
        assert sum(str(path) in line for line in refused) == 1
    assert len(refused) == 4 and ours.read_bytes() == left
    ours.unlink()
    assert set(load_results()["seed"]) == {3}


def test_a_folder_without_records_is_refused(results_folder, tmp_path):
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "equations.csv").write_text("equation,chapter\n4,04\n")
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RecordError, match=r"holds no records: name a folder like results/"):
            results.merge(folder)


def test_a_table_of_timings_is_copied_once(results_folder, tmp_path):
    theirs = tmp_path / "bench" / "loss-gpu.csv"
    theirs.parent.mkdir()
    theirs.write_text("way,seconds\nours,1\n")
    assert merged(tmp_path) == {"added": 1} and merged(tmp_path) == {"kept": 1}
    theirs.write_text("way,seconds\nours,2\n")
    assert merged(tmp_path) == {"conflicts": 1}
    assert (results_folder / "bench" / "loss-gpu.csv").read_text().endswith("ours,1\n")
