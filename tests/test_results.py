"""Records: whole or absent, told apart by everything that can move a number, and judged done,
stale, failed or missing.
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
from snnl_book.results import (
    COLUMNS,
    Record,
    RecordError,
    Spec,
    judge,
    load_curves,
    load_results,
    read_record,
    write_record,
)

ROOT = Path(__file__).resolve().parent.parent
SPEC = Spec(
    "clustering",
    "full",
    "newsgroups4",
    "spacy",
    "lc-d",
    100,
    "annealed",
    42,
    300,
    3,
    (("epochs", 2), ("hidden_sizes", (500, 500)), ("n_test", None)),
)
PRINT = "06bd3138-c2b55dcb"


def made_up_record(spec=SPEC, fingerprint=PRINT, **changes):
    """A record of a run that never was: these tests are about files, not about numbers."""
    metrics = {"acc": 0.1 + 0.2, "dbi": float("nan"), "chs": 1234567.891234567, "tiny": 1e-300}
    curve = pd.DataFrame({"epoch": [0, 1], "temperature": [1.0, 0.68], "loss": [1.5, float("nan")]})
    return Record(
        spec,
        fingerprint,
        **(
            {
                "metrics": metrics,
                "n_train": 299,
                "n_test": 200,
                "seconds": 1.234,
                "device": "CPU",
                "curve": curve,
            }
            | changes
        ),
    )


def files_under(folder):
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


# ---------------------------------------------------------------- write and read


def test_what_is_written_is_read_back_to_the_last_bit(results_folder):
    record = made_up_record()
    frame = read_record(write_record(record))
    found = dict(zip(frame["metric"], frame["value"], strict=True))
    assert list(found) == list(record.metrics)
    np.testing.assert_array_equal(
        [found[name] for name in record.metrics], list(record.metrics.values())
    )  # NaN equals NaN here


def test_every_row_carries_the_whole_provenance(results_folder):
    before = datetime.now().astimezone()
    frame = read_record(write_record(made_up_record()))
    assert list(frame.columns) == COLUMNS
    for name in set(COLUMNS) - {"metric", "value"}:
        assert len(set(frame[name])) == 1, name
        assert name == "reason" or str(frame[name].iloc[0]).strip(), f"{name} is empty"
    row = frame.iloc[0]
    expected = {
        "experiment": "clustering",
        "profile": "full",
        "dataset": "newsgroups4",
        "embedding": "spacy",
        "model": "lc-d",
        "alpha": 100.0,
        "temperature": "annealed",
        "seed": 42,
        "n_train": 299,
        "n_test": 200,
        "status": "ok",
        "reason": "",
        "seconds": 1.23,
        "device": "CPU",
        "revision": 3,
        "fingerprint": PRINT,
        "rows": 4,
    }
    assert {name: row[name] for name in expected} == expected
    assert json.loads(row["settings"]) == {
        "n_train": 300,
        "epochs": 2,
        "hidden_sizes": [500, 500],
        "n_test": None,
    }
    assert abs((datetime.fromisoformat(row["created"]) - before).total_seconds()) < 60
    assert (
        f"numpy {np.__version__}" in row["versions"]
        and "python 3." in row["versions"]
        and "torch " in row["versions"]
    )


def test_the_commit_is_that_of_the_checkout():
    git = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    head = subprocess.run(git, capture_output=True, text=True)
    if head.returncode:
        pytest.skip("this is no git checkout")
    assert results.commit().removesuffix("+changes") == head.stdout.strip()


@pytest.mark.parametrize(
    "reason", ["", "nan", 'ValueError: "a, b"; c', "ein Satz\nüber zwei Zeilen"]
)
@pytest.mark.parametrize("status", results.STATUSES)
def test_status_and_reason_survive_whatever_they_say(results_folder, status, reason):
    frame = read_record(write_record(made_up_record(status=status, reason=reason)))
    assert set(frame["status"]) == {status} and set(frame["reason"]) == {reason}


POINTS = pd.DataFrame(
    {
        "row": [12345, 7],
        "label": [3, 0],
        "x": [1.23456, -123456.0],
        "y": [0.000123456, float("nan")],
    }
)


def test_points_lie_beside_their_record_with_four_digits_and_whole_row_numbers(results_folder):
    record = made_up_record(points=POINTS)
    write_record(record)
    assert files_under(results_folder) == [
        f"clustering/{record.key}{ending}" for ending in (".csv", ".curve.csv", ".points.csv")
    ]
    text = (results_folder / "clustering" / f"{record.key}.points.csv").read_text()
    assert text == "row,label,x,y\n12345,3,1.235,0.0001235\n7,0,-1.235e+05,nan\n"


def test_a_record_with_points_is_read_without_them_and_they_are_loaded_by_their_kind(
    results_folder,
):
    write_record(made_up_record(points=POINTS))
    write_record(
        made_up_record(
            replace(SPEC, embedding="tfidf", seed=73), status="collapsed", reason="all alike"
        )
    )
    records = load_results("clustering")
    assert len(records) == 8 and set(records["seed"]) == {42, 73}, (
        "curves and points are no records"
    )
    points = load_curves(records, kind="points")
    assert (
        points["row"].tolist() == [12345, 7]
        and points["label"].tolist() == [3, 0]
        and points["x"].tolist() == [1.235, -123500.0]
    )
    names = ["embedding", "model", "alpha", "seed", "status"]
    assert points[names].drop_duplicates().to_numpy().tolist() == [
        ["spacy", "lc-d", 100.0, 42, "ok"]
    ]
    curves = load_curves(records)
    assert "x" not in curves and curves.groupby(["embedding", "seed"]).size().to_dict() == {
        ("spacy", 42): 2,
        ("tfidf", 73): 2,
    }
    assert judge([SPEC], {}) == {SPEC: "done"}


@pytest.mark.parametrize("broken", [1, 2, 3])
def test_points_are_written_whole_or_not_at_all_and_before_the_record_that_vouches_for_them(
    results_folder, monkeypatch, broken
):
    calls, replace_file = [], os.replace

    def break_off(source, target):
        calls.append(target)
        if len(calls) == broken:  # the curve, the points, the record
            raise KeyboardInterrupt
        replace_file(source, target)

    monkeypatch.setattr(os, "replace", break_off)
    record = made_up_record(points=POINTS)
    with pytest.raises(KeyboardInterrupt):
        write_record(record)
    assert (
        files_under(results_folder)
        == [f"clustering/{record.key}.{kind}.csv" for kind in ("curve", "points")][: broken - 1]
    )
    assert load_results().empty and judge([SPEC], {}) == {SPEC: "missing"}


def test_a_run_that_leaves_no_points_or_curve_takes_away_those_of_an_earlier_one(results_folder):
    write_record(made_up_record(points=POINTS))
    record = made_up_record(status="collapsed", reason="one code for all documents", curve=None)
    write_record(record)
    assert files_under(results_folder) == [f"clustering/{record.key}.csv"], (
        "they would pass for what the new run left"
    )


def test_a_record_is_one_file_with_its_curve_beside_it_under_the_name_of_its_key(results_folder):
    record = made_up_record()
    path = write_record(record)
    assert path == results_folder / "clustering" / f"{record.key}.csv"
    assert files_under(results_folder) == [
        f"clustering/{record.key}.csv",
        f"clustering/{record.key}.curve.csv",
    ]
    assert record.key.startswith("newsgroups4-spacy-lc-d-a100-tannealed-s42-n300-")
    assert path.stat().st_mode & 0o777 == 0o644, "others may read it"


def test_writing_the_same_record_again_replaces_it(results_folder):
    write_record(made_up_record())
    path = write_record(made_up_record(metrics={"acc": 0.5}))
    assert read_record(path)["value"].tolist() == [0.5]
    assert len(files_under(path.parent)) == 2


def test_records_of_other_profiles_lie_apart_from_the_full_ones(results_folder):
    for profile in ("tiny", "quick"):
        path = write_record(made_up_record(replace(SPEC, profile=profile)))
        assert path.parent == results_folder / "_build" / profile / "clustering"


def test_without_snnl_results_full_records_lie_in_the_checkout_and_others_in_its_build_folder(
    monkeypatch,
):
    monkeypatch.delenv("SNNL_RESULTS", raising=False)
    assert results.results_dir() == ROOT / "results"
    assert results.results_dir("tiny") == ROOT / "_build" / "results" / "tiny"


# ---------------------------------------------------------------- damaged records


@pytest.mark.parametrize("metrics", [{"acc": 0.5}, {"acc": 0.5, "dbi": float("nan"), "chs": 22.0}])
def test_a_record_cut_off_at_any_byte_is_refused(results_folder, metrics):
    # The reason holds what is awkward to cut: a quoted line break and a letter of two bytes.
    path = write_record(made_up_record(metrics=metrics, status="failed", reason="größer,\nals 1"))
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(
            RecordError, match="is truncated, damaged or none: remove it, and if it was one run"
        ) as caught:
            read_record(path)
        assert str(path) in str(caught.value)
    path.write_bytes(whole)
    assert len(read_record(path)) == len(metrics)


def lines(text, *chosen):
    return "".join(text.splitlines(keepends=True)[i] for i in chosen)


DAMAGES = {
    "nothing but the header": lambda text: lines(text, 0),
    "a row lost": lambda text: lines(text, 0, 1, 3, 4),
    "a row twice": lambda text: lines(text, 0, 1, 1, 2, 3, 4),
    "two records in one": lambda text: text + text,
    "no header": lambda text: lines(text, 1, 2, 3, 4),
    "an unknown status": lambda text: text.replace(",ok,", ",fine,"),
    "a status that one row does not share": lambda text: text.replace(",ok,", ",okay,", 1),
    "rows of two experiments": lambda text: text.replace("\nclustering,", "\nclassification,", 1),
    "rows of two seeds": lambda text: text.replace(",42,", ",43,", 1),
    "a number that is none": lambda text: text.replace(",42,", ",forty-two,"),
    "a seed that is no whole number": lambda text: text.replace(",42,", ",42.5,"),
    "an unknown column": lambda text: text.replace("experiment,", "experience,", 1),
    "columns in another order": lambda text: text.replace(
        "experiment,profile", "profile,experiment", 1
    ),
    "marks of a merge": lambda text: f"<<<<<<< HEAD\n{text}=======\n{text}>>>>>>> other\n",
    "a web page": lambda text: "<!doctype html>\n<title>404</title>\n",
    "zeros": lambda text: "\0" * len(text),
    "zeros and a line end": lambda text: "\0" * len(text) + "\n",
    "one endless line": lambda text: "x" * 200_000 + "\n",
    "one endless line under the header": lambda text: lines(text, 0) + "x" * 200_000 + "\n",
    "an endless field": lambda text: text.replace(",CPU,", f',"{"C" * 200_000}",'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_is_refused_and_named(results_folder, damage):
    path = write_record(made_up_record())
    text = path.read_text()
    damaged = DAMAGES[damage](text)
    assert damaged != text
    path.write_text(damaged)
    for read in (
        lambda: read_record(path),
        lambda: load_results("clustering"),
        lambda: judge([SPEC], {}),
    ):
        with pytest.raises(RecordError, match="is truncated, damaged or none: remove it") as caught:
            read()
        assert str(path) in str(caught.value)


def test_the_mark_that_an_editor_puts_before_a_record_is_no_damage(results_folder):
    path = write_record(made_up_record())
    before = read_record(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_record(path).equals(before)


def test_bytes_that_are_no_text_are_refused(results_folder):
    path = write_record(made_up_record())
    path.write_bytes(np.random.default_rng(0).bytes(5000))
    with pytest.raises(RecordError, match="is truncated, damaged or none"):
        read_record(path)


# ---------------------------------------------------------------- whole or absent


@pytest.mark.parametrize("moment", ["fsync", "chmod", "replace"])
@pytest.mark.parametrize(
    "interruption", [KeyboardInterrupt, OSError(28, "No space left on device")]
)
def test_a_write_that_breaks_off_leaves_the_old_record_and_nothing_else(
    results_folder, monkeypatch, moment, interruption
):
    def break_off(*args):
        raise interruption

    path = write_record(made_up_record())
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, moment, break_off)
        with pytest.raises((KeyboardInterrupt, RecordError)):
            write_record(made_up_record(metrics={"acc": 0.9}))
    assert path.read_bytes() == before
    assert len(files_under(results_folder / "clustering")) == 2, "a temporary file stayed behind"


def test_a_full_disk_is_an_error_that_says_what_to_do(results_folder, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        RecordError,
        match=(
            r"\.csv could not be written \(No space left on device\): make room, or set"
            r" SNNL_RESULTS to a folder"
        ),
    ):
        write_record(made_up_record())


def test_a_folder_that_refuses_is_an_error_that_says_what_to_do(tmp_path, monkeypatch):
    # A file where the folder should be refuses a superuser too, as a read-only folder does not.
    (tmp_path / "results").write_text("no folder")
    monkeypatch.setenv("SNNL_RESULTS", str(tmp_path / "results"))
    with pytest.raises(
        RecordError, match=r"is no folder to read: set SNNL_RESULTS to a folder you can write to"
    ):
        write_record(made_up_record())


WRITER = """
import sys
from snnl_book.results import Record, Spec, write_record
cell = ("clustering", "full", "newsgroups4", "spacy", "lc-d", 100, "annealed")
spec = Spec(*cell, 42, 300, 3, (("epochs", 2),))
number, rows = float(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
for _ in range(150):
    write_record(Record(spec, "0", {f"metric{i}": number for i in range(rows)}, 1, 1, 1.0, "CPU"))
"""


def test_two_processes_that_write_the_same_record_never_show_half_of_it(results_folder):
    # The two records differ in length and in every value, so that a mixture of both would be seen.
    command = [sys.executable, "-c", WRITER]
    writers = [
        subprocess.Popen(
            [*command, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for arguments in (("1", "3"), ("2", "40"))
    ]
    for writer in writers:
        writer.stdout.readline()
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    seen = set()
    while True:
        running = any(writer.poll() is None for writer in writers)
        for path in (results_folder / "clustering").glob("*.csv"):
            frame = read_record(path)
            seen.add((len(frame), *frame["value"].unique()))
        if not running:
            break
    for writer in writers:
        writer.communicate()
    assert [writer.returncode for writer in writers] == [0, 0]
    assert seen <= {(3, 1.0), (40, 2.0)} and seen
    assert len(files_under(results_folder / "clustering")) == 1, "a temporary file stayed behind"


# ---------------------------------------------------------------- the key


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "ag_news"},
        {"embedding": "tfidf"},
        {"model": "ae-d"},
        {"alpha": -100},
        {"alpha": 50},
        {"temperature": "0.1"},
        {"seed": 73},
        {"n_train": 301},
        {"settings": (("epochs", 3), ("hidden_sizes", (500, 500)), ("n_test", None))},
        {"settings": (("epochs", 2), ("hidden_sizes", (500,)), ("n_test", None))},
        {"settings": (("epochs", 2), ("hidden_sizes", (500, 500)), ("n_test", 200))},
        {"settings": ()},
    ],
)
def test_the_key_and_the_identity_change_with_everything_that_can_move_the_number(change):
    other = replace(SPEC, **change)
    assert other.key(PRINT) != SPEC.key(PRINT)
    assert other.identity != SPEC.identity


def test_alphas_that_print_alike_have_different_keys():
    # "%g" shows six digits.
    assert replace(SPEC, alpha=0.1234567).key(PRINT) != replace(SPEC, alpha=0.1234568).key(PRINT)


def test_the_key_changes_with_the_data_and_not_with_the_revision():
    assert SPEC.key("another") != SPEC.key(PRINT)
    assert replace(SPEC, revision=4).key(PRINT) == SPEC.key(PRINT), (
        "a new revision replaces the stale record"
    )


def test_specs_that_mean_the_same_have_the_same_key():
    shuffled = replace(SPEC, alpha=100.0, settings=tuple(reversed(SPEC.settings)))
    assert shuffled.key(PRINT) == SPEC.key(PRINT) and shuffled.identity == SPEC.identity


def test_experiments_and_profiles_are_told_apart_by_the_identity():
    assert (
        len(
            {
                SPEC.identity,
                replace(SPEC, experiment="classification").identity,
                replace(SPEC, profile="quick").identity,
            }
        )
        == 3
    )


def test_the_identity_of_a_spec_is_the_one_its_record_is_read_back_with(results_folder):
    specs = [
        SPEC,
        replace(SPEC, seed=31415926),
        replace(SPEC, alpha=0),
        replace(SPEC, alpha=0.1, temperature="0.1"),
        replace(SPEC, settings=()),
    ]
    for spec in specs:
        write_record(made_up_record(spec))
    assert {
        run.identity for name in {spec.experiment for spec in specs} for run in results.runs(name)
    } == {spec.identity for spec in specs}


def test_the_seconds_of_a_run_are_its_own_and_those_of_what_it_shares(results_folder):
    for seed, shared in ((42, {}), (73, {"shared_seconds": 500.0})):
        record = made_up_record(replace(SPEC, seed=seed))
        write_record(replace(record, seconds=2.5, metrics=record.metrics | shared))
    assert [run.seconds for run in results.runs(SPEC.experiment)] == [2.5, 502.5]


# ---------------------------------------------------------------- many records


def test_results_are_loaded_by_experiment_and_profile(results_folder):
    for experiment, profile, seed in (
        ("clustering", "full", 42),
        ("clustering", "full", 73),
        ("classification", "full", 42),
        ("clustering", "tiny", 42),
    ):
        write_record(
            made_up_record(replace(SPEC, experiment=experiment, profile=profile, seed=seed))
        )
    assert (
        len(load_results()) == 12
        and len(load_results("clustering")) == 8
        and len(load_results("classification")) == 4
    )
    assert set(load_results("clustering")["seed"]) == {42, 73}
    assert len(load_results("clustering", "tiny")) == 4 and set(
        load_results(profile="tiny")["profile"]
    ) == {"tiny"}
    assert load_results("images").empty and load_results(profile="quick").empty


def test_a_frame_of_many_records_has_types_and_a_key_for_each(results_folder):
    records = [made_up_record(replace(SPEC, seed=seed)) for seed in (42, 73)]
    for record in records:
        write_record(record)
    frame = load_results("clustering")
    assert list(frame.columns) == [*COLUMNS, "key"] and frame.index.is_unique
    assert set(frame["key"]) == {record.key for record in records}
    for name in ("seed", "n_train", "n_test", "revision"):
        assert pd.api.types.is_integer_dtype(frame[name]), name
    for name in ("value", "alpha", "seconds"):
        assert pd.api.types.is_float_dtype(frame[name]), name


def test_no_records_are_an_empty_frame_with_the_same_columns(results_folder):
    assert load_results().empty and list(load_results().columns) == [*COLUMNS, "key"]
    assert load_curves(load_results()).empty


def test_a_record_copied_among_those_of_another_profile_is_not_counted_there(results_folder):
    write_record(made_up_record())
    path = write_record(made_up_record(replace(SPEC, profile="tiny", seed=73)))
    (results_folder / "clustering" / path.name).write_bytes(path.read_bytes())
    assert set(load_results("clustering")["seed"]) == {42}


def test_curves_come_with_their_records_model_alpha_seed_and_status(results_folder):
    write_record(made_up_record())
    write_record(
        made_up_record(replace(SPEC, model="pca", alpha=0, temperature="none", seed=73), curve=None)
    )
    write_record(
        made_up_record(
            replace(SPEC, seed=1024), status="diverged", reason="the loss was nan in epoch 1"
        )
    )
    curves = load_curves(load_results("clustering"))
    assert curves.groupby(["model", "alpha", "seed", "status"]).size().to_dict() == {
        ("lc-d", 100.0, 42, "ok"): 2,
        ("lc-d", 100.0, 1024, "diverged"): 2,
    }
    one = curves[curves["seed"] == 42]
    assert one["epoch"].tolist() == [0, 1] and one["temperature"].tolist() == [1.0, 0.68]
    assert one["loss"].iloc[0] == 1.5 and np.isnan(one["loss"].iloc[1])


def test_curves_are_those_of_the_records_asked_for(results_folder):
    for seed in (42, 73):
        write_record(made_up_record(replace(SPEC, seed=seed)))
    records = load_results("clustering")
    assert set(load_curves(records[records["seed"] == 73])["seed"]) == {73}


# ---------------------------------------------------------------- missing, stale, failed, done

AT_HAND, OUT_OF_REACH = {SPEC: PRINT}, {SPEC: None}


def test_without_a_record_a_run_is_missing(results_folder):
    assert judge([SPEC], AT_HAND) == judge([SPEC], OUT_OF_REACH) == {SPEC: "missing"}


@pytest.mark.parametrize("status", ["ok", "diverged", "collapsed"])
def test_a_run_that_ended_is_done_however_it_ended(results_folder, status):
    write_record(made_up_record(status=status))
    assert judge([SPEC], AT_HAND) == {SPEC: "done"}


def test_a_run_that_broke_off_is_failed(results_folder):
    write_record(made_up_record(status="failed", reason="RuntimeError: no memory"))
    assert judge([SPEC], AT_HAND) == {SPEC: "failed"}


def test_a_record_of_an_older_revision_is_stale_until_the_run_is_repeated(results_folder):
    write_record(made_up_record(replace(SPEC, revision=2)))
    assert judge([SPEC], AT_HAND) == {SPEC: "stale"}
    write_record(made_up_record())
    assert judge([SPEC], AT_HAND) == {SPEC: "done"} and len(load_results()["key"].unique()) == 1


def test_a_record_of_a_newer_revision_is_done(results_folder):
    write_record(made_up_record(replace(SPEC, revision=4)))
    assert judge([SPEC], AT_HAND) == {SPEC: "done"}


def test_a_record_made_from_other_data_counts_only_where_the_data_is_out_of_reach(results_folder):
    write_record(made_up_record(fingerprint="another-copy"))
    assert judge([SPEC], AT_HAND) == {SPEC: "missing"}
    assert judge([SPEC], OUT_OF_REACH) == judge([SPEC], {}) == {SPEC: "done"}


def test_of_several_copies_the_best_counts_where_the_data_is_out_of_reach(results_folder):
    write_record(made_up_record(replace(SPEC, revision=2), fingerprint="old"))
    write_record(made_up_record(fingerprint="broken", status="failed"))
    assert judge([SPEC], OUT_OF_REACH) == {SPEC: "stale"}
    write_record(made_up_record(fingerprint="new"))
    assert judge([SPEC], OUT_OF_REACH) == {SPEC: "done"}


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 73},
        {"alpha": -100},
        {"n_train": 20_000},
        {"model": "ae-d"},
        {"settings": (("epochs", 30),)},
    ],
)
def test_a_record_of_another_run_does_not_count(results_folder, change):
    write_record(made_up_record(replace(SPEC, **change)))
    assert judge([SPEC], AT_HAND) == {SPEC: "missing"}


def test_each_spec_is_judged_by_its_own_profile_and_experiment(results_folder):
    specs = [SPEC, replace(SPEC, profile="tiny"), replace(SPEC, experiment="classification")]
    write_record(made_up_record(specs[1]))
    assert judge(specs, dict.fromkeys(specs, PRINT)) == dict(
        zip(specs, ["missing", "done", "missing"], strict=True)
    )


# ---------------------------------------------------------------- records from other machines


def elsewhere(folder, monkeypatch, *records):
    """Write records into another results folder, as another machine would."""
    with monkeypatch.context() as patch:
        patch.setenv("SNNL_RESULTS", str(folder))
        return [write_record(record) for record in records]


def test_records_of_several_machines_come_together_without_loss_and_a_second_time_nothing_changes(
    results_folder, tmp_path, monkeypatch
):
    specs = [replace(SPEC, seed=seed) for seed in range(5)]
    for spec in specs[:3]:
        write_record(made_up_record(spec))
    points = pd.DataFrame({"row": [1], "x": [0.5]})
    elsewhere(
        tmp_path / "a", monkeypatch, *(made_up_record(spec, points=points) for spec in specs[2:4])
    )
    elsewhere(tmp_path / "b", monkeypatch, *(made_up_record(spec) for spec in specs[3:]))
    before = files_under(results_folder)
    assert [len(names) for names in results.merge(tmp_path / "a")] == [1, 0, 1, 0, 0]
    assert [len(names) for names in results.merge(tmp_path / "b")] == [1, 0, 1, 0, 0]
    assert set(load_results()["seed"]) == set(range(5)) and len(load_results()["key"].unique()) == 5
    after = files_under(results_folder)
    assert set(before) < set(after) and sum(name.endswith(".points.csv") for name in after) == 1
    content = {name: (results_folder / name).read_bytes() for name in after}
    assert [len(names) for folder in ("a", "b") for names in results.merge(tmp_path / folder)] == [
        0,
        0,
        2,
        0,
        0,
    ] * 2
    assert {
        name: (results_folder / name).read_bytes() for name in files_under(results_folder)
    } == content
    assert len(files_under(tmp_path / "a")) == 6  # what was taken is still there


def test_of_two_records_of_a_run_the_whole_and_the_newer_one_is_kept(
    results_folder, tmp_path, monkeypatch
):
    failed = made_up_record(metrics={"acc": float("nan")}, status="failed", curve=None)
    write_record(failed)
    elsewhere(tmp_path / "whole", monkeypatch, made_up_record())
    assert results.merge(tmp_path / "whole").replaced == [f"clustering/{failed.key}"]
    elsewhere(
        tmp_path / "newer",
        monkeypatch,
        made_up_record(replace(SPEC, revision=4), metrics={"acc": 0.5}),
    )
    assert len(results.merge(tmp_path / "newer").replaced) == 1
    assert len(results.merge(tmp_path / "whole").there) == 1  # an older one changes nothing
    elsewhere(tmp_path / "failed", monkeypatch, failed)
    assert len(results.merge(tmp_path / "failed").there) == 1
    assert load_results()["value"].tolist() == [0.5]


def test_records_that_contradict_each_other_are_reported_and_ours_stay(
    results_folder, tmp_path, monkeypatch
):
    path = write_record(made_up_record())
    ours = path.read_bytes()
    elsewhere(
        tmp_path,
        monkeypatch,
        made_up_record(
            metrics={"acc": 0.25, "dbi": float("nan"), "chs": 1234567.891234567, "tiny": 1e-300},
            device="a GPU",
        ),
    )
    (said,) = results.merge(tmp_path).conflicts
    assert (
        said.startswith(f"clustering/{path.stem}: acc is 0.25 there (a GPU, ")
        and "and 0.30000000000000004 here (CPU, " in said
    )
    assert path.read_bytes() == ours


def test_a_damaged_record_of_another_machine_is_named_and_the_others_are_taken(
    results_folder, tmp_path, monkeypatch
):
    damaged, _ = elsewhere(
        tmp_path, monkeypatch, made_up_record(), made_up_record(replace(SPEC, seed=73))
    )
    damaged.write_bytes(damaged.read_bytes()[:-9])
    found = results.merge(tmp_path)
    assert len(found.added) == 1 and len(found.refused) == 1 and str(damaged) in found.refused[0]
    assert set(load_results()["seed"]) == {73}


def test_a_record_under_the_name_of_another_run_is_refused(results_folder, tmp_path, monkeypatch):
    write_record(made_up_record())
    (theirs,) = elsewhere(tmp_path, monkeypatch, made_up_record())
    renamed = theirs.rename(theirs.with_name("renamed.csv"))
    (theirs.parent / "folder.csv").mkdir()
    found = results.merge(tmp_path)
    assert not any(found[:4]) and len(found.refused) == 1
    assert f"{renamed} is not called as its run is" in found.refused[0]


def test_a_damaged_record_of_ours_and_one_of_another_profile_are_named_and_left_alone(
    results_folder, tmp_path, monkeypatch
):
    ours = write_record(made_up_record())
    ours.write_bytes(ours.read_bytes()[:-9])
    left, files = ours.read_bytes(), files_under(results_folder)
    _, tiny = elsewhere(
        tmp_path, monkeypatch, made_up_record(), made_up_record(replace(SPEC, seed=73))
    )
    tiny.write_text(tiny.read_text().replace(",full,", ",tiny,"))
    found = results.merge(tmp_path)
    assert not any(found[:4]) and len(found.refused) == 2
    assert (
        sum(str(ours) in said for said in found.refused) == 1
        and sum(f"{tiny} is of the profile tiny" in said for said in found.refused) == 1
    )
    assert ours.read_bytes() == left and files_under(results_folder) == files


def test_what_is_replaced_takes_its_curve_and_points_with_it(results_folder, tmp_path, monkeypatch):
    write_record(made_up_record(points=pd.DataFrame({"row": [1], "x": [0.5]})))
    elsewhere(tmp_path, monkeypatch, made_up_record(replace(SPEC, revision=4), curve=None))
    assert len(results.merge(tmp_path).replaced) == 1
    assert len(files_under(results_folder)) == 1


@pytest.mark.parametrize("folder", ["bench", "notes"])
def test_tables_that_are_no_records_are_not_read_as_records(results_folder, folder):
    (results_folder / folder).mkdir(parents=True)
    (results_folder / folder / "table.csv").write_text("change,accuracy\nnone,0.5\n")
    assert results.load_results().empty


def test_a_folder_without_records_is_refused(results_folder, tmp_path):
    with pytest.raises(RecordError, match="holds no records"):
        results.merge(tmp_path)


def test_a_table_of_timings_is_taken_too_and_another_one_of_the_same_device_reported(
    results_folder, tmp_path
):
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "loss-gpu.csv").write_text("way,seconds\nours,1\n")
    assert results.merge(tmp_path).added == ["bench/loss-gpu"] and results.merge(
        tmp_path
    ).there == ["bench/loss-gpu"]
    (tmp_path / "bench" / "loss-gpu.csv").write_text("way,seconds\nours,2\n")
    assert "other timings" in results.merge(tmp_path).conflicts[0]
    assert (results_folder / "bench" / "loss-gpu.csv").read_text().endswith("ours,1\n")


def test_a_folder_of_other_tables_is_no_folder_of_records(tmp_path, results_folder):
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "equations.csv").write_text("equation,chapter\n4,04\n")
    with pytest.raises(RecordError, match="holds no records: name a folder like results/"):
        results.merge(tmp_path)
