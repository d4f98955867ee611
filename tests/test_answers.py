"""The answers behind a record: what each test document was given, kept beside the scores, from
which every score that counts documents follows; and which record replaces which.
"""

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_results import SPEC, made_up_record, merged

from snnl_book import answers, records, results
from snnl_book.experiments import devices, plan, run, run_all, specs
from snnl_book.results import RecordError, load_answers, load_results, load_rows, write_record

ROWS, LABELS = np.array([7, 2, 5, 0]), np.array([1, 0, 1, 0])
GIVEN = {"": np.array([0, 1, 0, 1]), "head_": np.array([0, 0, 1, 1]), "_2": np.array([1, 1, 1, 0])}


def answered_record(spec=SPEC, rows=ROWS, labels=LABELS, **changes):
    facts = {"answers": GIVEN, "documents": {"": (rows, labels)}, "curve": None}
    return made_up_record(spec, **facts | changes)


def test_packed_integers_and_floats_come_back_to_the_last_bit():
    for values in ([0], [3, 1, 2], [0, 255, 256], [70_000, 0], [-1, 4]):
        unpacked = answers.unpack(*answers.pack(np.array(values)))
        assert unpacked.dtype == np.int64 and unpacked.tolist() == values
    values = np.array([0.1 + 0.2, 1 / 3, 0.0, 1.0])
    assert answers.unpack(*answers.pack(values)).tolist() == values.tolist()
    many = np.random.default_rng(0).integers(4, size=7600)
    assert len(answers.pack(many)[2]) < 3500, "a few kilobytes for many documents"


def test_answers_come_back_in_the_order_of_their_rows(results_folder):
    record = answered_record()
    write_record(record)
    rows, labels = load_rows("clustering", record.key)
    assert rows.tolist() == [0, 2, 5, 7] and labels.tolist() == [0, 0, 1, 1]
    found = load_answers("clustering", record.key)
    assert {name: given.tolist() for name, given in found.items()} == {
        "": [1, 1, 0, 0],
        "head_": [1, 0, 1, 0],
        "_2": [0, 1, 1, 1],
    }


def test_runs_of_the_same_documents_share_one_file_of_rows(results_folder):
    write_record(answered_record())
    write_record(answered_record(replace(SPEC, seed=43), rows=ROWS[::-1], labels=LABELS[::-1]))
    write_record(answered_record(replace(SPEC, seed=44), rows=ROWS + 1))
    assert len(list((results_folder / "rows").iterdir())) == 2


def test_a_record_without_answers_has_none_and_a_run_that_is_not_there_is_named(results_folder):
    record = made_up_record()
    write_record(record)
    assert load_answers("clustering", record.key) == {}
    assert load_rows("clustering", record.key) is None
    with pytest.raises(RecordError, match="no-such-run"):
        load_answers("clustering", "no-such-run")


def test_damaged_answers_are_refused_by_name(results_folder):
    record = answered_record()
    path = write_record(record).with_suffix(".answers.csv")
    whole = path.read_text()
    for damaged in (whole[: len(whole) // 2], whole.replace(",4,", ",5,", 1), ""):
        path.write_text(damaged)
        with pytest.raises(RecordError, match=path.name):
            load_answers("clustering", record.key)
    path.write_text(whole)
    for rows in (results_folder / "rows").iterdir():
        rows.unlink()
    with pytest.raises(RecordError, match="rows"):
        load_rows("clustering", record.key)


RUNS = {
    "classification": ("newsgroups4", {"ffn"}),
    "clustering": ("newsgroups4", {"pca", "ae-d"}),
    "labels": ("newsgroups4", {"lda", "svm", "knn", "ffn"}),
    "lexicon": ("opinion_lexicon", {"original", "lda", "ae"}),
    "clustering-rivals": ("newsgroups4", {"kmeans", "ffn-layer", "ffn-hidden"}),
    "images": ("digits", {"original", "dec"}),
    "clusterbert": ("newsgroups20_openings", {"clusterbert"}),
    "retrieval": ("newsgroups20_openings", {"plain"}),
}


@pytest.mark.parametrize("experiment", RUNS)
def test_every_score_that_counts_documents_follows_from_the_answers(
    experiment, results_folder, tmp_path, monkeypatch
):
    dataset, models = RUNS[experiment]
    chosen = [
        spec
        for spec in specs(experiment, "tiny", dataset, 42)
        if spec.model in models
        and spec.embedding in ("spacy", "spacy-word", "pixels", "minilm", "minilm-cls")
        and spec.get("clusterer", "kmeans") == "kmeans"
        and spec.get("task", "denoise") == "denoise"
    ]
    assert {spec.model for spec in chosen} == models
    for spec in chosen:
        write_record(run(spec, "cpu"))
    # From here on no data set can be found: the scores come from the records alone.
    monkeypatch.setenv("SNNL_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("SNNL_CACHE", str(tmp_path / "empty"))
    records = load_results(experiment, "tiny")
    counted = {*answers.COUNTED, *answers.OF_QUERIES}
    for key, rows in records.groupby("key"):
        recorded = dict(zip(rows["metric"], rows["value"], strict=True))
        found = results.rescored(experiment, key, "tiny")
        names = {name for name in recorded if _base(name) in counted and "nli_" not in name}
        assert set(found) == names, key
        assert found == pytest.approx({name: recorded[name] for name in names}, abs=1e-12), key


def _base(metric):
    """The score that a metric is one of, without prefix and stage."""
    from snnl_book.report.contrasts import base

    return base(metric)


@pytest.mark.parametrize("experiment", ["annealing", "tsne"])
def test_experiments_whose_scores_count_no_documents_are_not_asked_for_answers(experiment):
    assert not plan.has_answers(experiment) and plan.has_answers("clustering")


def test_run_answers_repeats_finished_runs_without_answers_and_no_others(
    packages, command, results_folder
):
    def count():
        asked = ["--profile", "tiny", "--dataset", "newsgroups4", "--models", "pca"]
        asked += ["--seeds", "42", "--device", "cpu", "--answers"]
        status, output, error = command("run", "clustering", *asked)
        assert status == 0, error
        return output

    assert "runs to do: 1" in count()
    (path,) = (results_folder / "_build" / "tiny" / "clustering").glob("*.answers.csv")
    assert "runs to do: 0, recorded: 1" in count()
    path.unlink()
    assert "runs to do: 1, recorded: 0" in count() and path.exists()


ROOT = Path(__file__).resolve().parent.parent


# ---------------------------------------------------------------- which record replaces which


def scores_of(path):
    frame = results.read_record(path)
    return dict(zip(frame["metric"], frame["value"], strict=True))


def test_a_failed_repeat_never_replaces_a_finished_run(results_folder):
    for status in ("ok", "collapsed", "diverged"):
        spec = replace(SPEC, seed=len(status))
        path = write_record(answered_record(spec, status=status, metrics={"acc": 0.5}))
        before = path.read_bytes()
        failed = made_up_record(spec, status="failed", reason="no memory", metrics={"acc": np.nan})
        assert write_record(failed) == path and path.read_bytes() == before
        assert path.with_suffix(".answers.csv").exists()
    failed = replace(SPEC, seed=1)
    write_record(made_up_record(failed, status="failed", reason="no memory"))
    path = write_record(made_up_record(failed, metrics={"acc": 0.5}))
    assert scores_of(path) == {"acc": 0.5}


def test_a_run_on_another_type_of_device_is_a_file_of_its_own(results_folder):
    path = write_record(made_up_record(metrics={"acc": 0.5}))
    other = write_record(made_up_record(metrics={"acc": 0.6}, device_type="cuda"))
    assert other.name == path.name.replace(".csv", ".cuda.csv")
    assert load_results("clustering")["value"].tolist() == [0.5]
    assert load_results("clustering", device_type="cuda")["value"].tolist() == [0.6]
    kinds = {run.device_type for run in results.runs("clustering", device_type=None)}
    assert kinds == {"cpu", "cuda"}
    assert scores_of(path) == {"acc": 0.5}


def test_records_that_are_not_committed_may_be_of_any_device_and_the_cpu_comes_first(
    results_folder,
):
    tiny = replace(SPEC, profile="tiny")
    write_record(made_up_record(tiny, metrics={"acc": 0.6}, device_type="cuda"))
    assert load_results("clustering", "tiny")["value"].tolist() == [0.6]
    write_record(made_up_record(tiny, metrics={"acc": 0.5}))
    assert load_results("clustering", "tiny")["value"].tolist() == [0.5]
    write_record(made_up_record(metrics={"acc": 0.6}, device_type="cuda"))
    assert load_results("clustering").empty


def replaced(folder):
    path = folder / "replaced.csv"
    return pd.read_csv(path) if path.exists() else pd.DataFrame(columns=records.REPLACED)


def test_the_numbers_that_a_repeat_replaces_are_kept(results_folder):
    old = made_up_record(metrics={"acc": 0.5})
    write_record(old)
    write_record(answered_record(metrics={"acc": 0.5}))
    assert replaced(results_folder).empty, "the numbers stayed as they were"
    write_record(answered_record(metrics={"acc": 0.25}))
    kept = replaced(results_folder)
    assert kept[["key", "scores"]].to_numpy().tolist() == [[old.key, '{"acc": 0.5}']]
    newer = replace(SPEC, revision=SPEC.revision + 1)
    write_record(made_up_record(newer, metrics={"acc": 0.75}))
    assert len(replaced(results_folder)) == 1, "an older revision is no repeat"


def test_a_repeat_with_the_same_counts_and_missing_scores_replaces_no_number(results_folder):
    same = {"acc": 0.5, "empty_test": 0, "sil": float("nan")}
    for _ in range(2):
        write_record(made_up_record(metrics=same))
    assert replaced(results_folder).empty


def test_a_copy_of_a_record_is_not_taken_for_another_run(results_folder):
    path = write_record(made_up_record(metrics={"acc": 0.5}))
    path.with_stem(f"{path.stem} (1)").write_text(path.read_text())
    with pytest.raises(RecordError, match="copy of a record"):
        load_results("clustering")


def test_merging_into_a_folder_that_cannot_be_written_says_so_once(
    results_folder, tmp_path, monkeypatch
):
    theirs = tmp_path / "theirs"
    write_record(made_up_record(metrics={"acc": 0.5}), theirs)
    (tmp_path / "a file").touch()
    monkeypatch.setattr("snnl_book.merging.results_dir", lambda _: tmp_path / "a file" / "full")
    with pytest.raises(RecordError, match="could not be written"):
        merged(theirs)


def test_merging_takes_a_record_with_answers_in_place_of_one_without(
    results_folder, tmp_path, monkeypatch
):
    theirs = tmp_path / "theirs"
    write_record(answered_record(metrics={"acc": 0.25}), theirs)
    write_record(answered_record(replace(SPEC, seed=43), metrics={"acc": 0.75}), theirs)
    path = write_record(made_up_record(metrics={"acc": 0.5}))
    assert merged(theirs) == {"added": 1, "replaced": 1}
    assert scores_of(path) == {"acc": 0.25}
    assert replaced(results_folder)["scores"].tolist() == ['{"acc": 0.5}']
    key = path.name.removesuffix(".csv")
    assert load_rows("clustering", key)[0].tolist() == [0, 2, 5, 7]
    assert len(load_answers("clustering", key)) == 3
    assert merged(theirs) == {"kept": 2}
    # One without answers does not replace one with them.
    monkeypatch.setenv("SNNL_RESULTS", str(theirs))
    write_record(made_up_record(metrics={"acc": 0.125}), tmp_path / "plain")
    assert results.merge(tmp_path / "plain").kept == [f"clustering/{key}"]


def test_a_folder_whose_rows_are_missing_is_not_merged(results_folder, tmp_path):
    theirs = tmp_path / "theirs"
    write_record(answered_record(), theirs)
    for path in (theirs / "rows").iterdir():
        path.unlink()
    (refused,) = results.merge(theirs).refused
    assert "rows" in refused
    assert load_results("clustering").empty


def test_a_stopped_run_leaves_no_answers_without_a_record(results_folder, monkeypatch):
    def stop(path, text):
        if path.name == f"{record.key}.csv":
            raise KeyboardInterrupt
        original(path, text)

    record, original = answered_record(), records.write_atomically
    monkeypatch.setattr(records, "write_atomically", stop)
    with pytest.raises(KeyboardInterrupt):
        write_record(record)
    assert load_results("clustering").empty
    monkeypatch.setattr(records, "write_atomically", original)
    write_record(record)
    assert len(load_answers("clustering", record.key)) == 3


# ---------------------------------------------------------------- provenance


def test_the_commit_of_another_repository_is_not_taken_for_ours(tmp_path):
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    author = ["-c", "user.name=n", "-c", "user.email=e@x.org"]
    commit = ["git", *author, "commit", "-q", "--allow-empty", "-m", "theirs"]
    subprocess.run(commit, cwd=tmp_path, check=True)
    environment = tmp_path / "environment"
    for package in ("snnl_lib", "snnl_book"):
        shutil.copytree(ROOT / package, environment / package)
    code = "from snnl_book.results import commit; print(commit())"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "unknown"
    assert results.commit() != "unknown"


def test_a_record_names_what_computed_it(monkeypatch):
    names = {"cpu": "CPU", "cuda:0": "a GPU"}
    monkeypatch.setattr(results, "device_name", names.__getitem__)
    of = {spec.model: spec for spec in specs("clustering", "full", "ag_news", 42)[:4]}
    nli = next(
        spec
        for spec in specs("clustering", "full", "ag_news", 42)
        if spec.model == "pca" and spec.embedding == "infersent-random"
    )
    for spec, expected in (
        (of["ae-d"], ("cuda", "a GPU")),
        (of["pca"], ("cpu", "CPU")),
        (nli, ("cuda", "CPU; vectors by a GPU")),
    ):
        found = devices.device_type(spec, "cuda:0"), devices.device_names(spec, "cuda:0")
        assert found == expected
        assert devices.device_type(spec, "cpu") == "cpu"


def test_versions_name_what_computes_the_vectors():
    assert "transformers " in results.versions() and "cuda" not in results.versions()


def test_each_record_of_run_all_carries_its_answers(results_folder):
    chosen = [s for s in specs("clustering", "tiny", "newsgroups4", 42) if s.model == "pca"]
    (record,) = run_all(chosen, "cpu")
    found = load_answers("clustering", record.key, "tiny")
    rows, labels = load_rows("clustering", record.key, "tiny")
    assert len(found[""]) == len(rows) == len(labels) == record.n_test
