"""The README keeps its word: its example runs, its commands exist, its numbers are those of the
records.
"""

import re
from pathlib import Path

import pytest

from snnl_lib import report
from snnl_lib.__main__ import main
from snnl_lib.experiments import EXPERIMENTS, PAPER_SEEDS, specs
from snnl_lib.experiments.short_texts import DATASETS, PUBLISHED, RANKINGS
from snnl_lib.paper import registered_claims

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts, loss = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(loss.strip().splitlines()) <= 7
    scope = {}
    exec(loss, scope)
    assert scope["features"].grad.abs().sum() > 0
    exec(texts, scope)
    assert len(scope["model"].labels_) == len(scope["texts"])
    assert (tmp_path / "my-clusters").is_dir()


def test_the_command_that_clusters_texts_runs_as_it_stands(tmp_path, monkeypatch, packages):
    (command,) = re.findall(r"^python -m snnl_lib (cluster .*)$", README, re.MULTILINE)
    rows = [f"{subject} {n}" for subject in ("wine", "list", "rain") for n in range(10)]
    (tmp_path / "texts.csv").write_text("title\n" + "\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 0
    assert "cluster" in (tmp_path / "clusters.csv").read_text().splitlines()[0]


def test_the_make_commands_exist():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", README, re.MULTILINE)) <= set(targets)


def test_it_counts_the_claims_and_says_how_they_are_printed():
    assert f"has all {len(registered_claims())} claims of the three papers" in README
    (name,) = re.findall(r"python -m snnl_lib claims ([a-z-]+)", README)
    assert name in {claim.name for claim in registered_claims()}


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "Makefile", "book/glossary.md"])
def test_the_full_profile_is_not_said_to_be_the_papers(name):
    assert "papers' protocol" not in (ROOT / name).read_text()


@pytest.mark.parametrize(
    ("row", "experiment", "label"),
    [
        ("*Orig.*", "clustering", "Orig."),
        ("*AE(D)*", "clustering", "AE(D)"),
        ("*Baseline*", "classification", "Baseline"),
        ("*SNNL 100*", "classification", "SNNL 100"),
    ],
)
def test_the_numbers_are_the_records_means(row, experiment, label):
    (line,) = [line for line in README.splitlines() if line.startswith(f"| {row}")]
    records = report.recorded(
        experiment, "ag_news", model="ffn" if experiment == "classification" else None
    )
    ours = records[(records["label"] == label) & (records["metric"] == "acc")]["value"]
    assert len(ours) == 5
    assert line.split("|")[-2].strip() == f"{ours.mean():.3f}"
    paper = report.paper_table(1 if experiment == "classification" else 4)
    theirs = paper.query(
        "label == @label and metric == 'acc' and embedding == 'spacy' and statistic == 'mean'"
    )["value"].item()
    assert float(line.split("|")[-3]) == pytest.approx(theirs)


@pytest.mark.parametrize(
    ("row", "method"),
    [("*TF-IDF*", "TF-IDF"), ("*TSDAE*", "TSDAE"), ("*ClusterBERT*", "ClusterBERT")],
)
def test_the_numbers_of_short_texts_are_the_records_means_and_say_if_these_are_old(row, method):
    (line,) = [line for line in README.splitlines() if line.startswith(f"| {row}")]
    chosen = "dataset == 'stackoverflow' and clusterer == 'kmeans' and metric == 'nmi_geometric'"
    ours = report.short_texts().query(f"{chosen} and method == @method and asked == 2000")
    assert len(ours) in (2, 3)
    old = " (to be run again)" if ours["stale"].any() else ""
    assert line.split("|")[-2].strip() == f"{ours['value'].mean():.3f}{old}"
    theirs = (
        report.paper_short_texts()
        .query(f"{chosen} and label == @method + '+kmeans'")["value"]
        .item()
    )
    assert float(line.split("|")[-3]) == pytest.approx(theirs)


def test_the_experiments_corpora_and_backbones_of_short_texts_are_named():
    commands = re.findall(r"python -m snnl_lib run ([\w-]+)((?: --\w+ [\w-]+)*)", README)
    assert {name for name, _ in commands} <= {*EXPERIMENTS, "paper"}
    assert {"clusterbert", "clusterbert-ablation", "retrieval"} <= {name for name, _ in commands}
    for name, options in commands:
        found, given = (
            specs(name) if name in EXPERIMENTS else [],
            dict(re.findall(r"--(\w+) ([\w-]+)", options)),
        )
        for option, kind in (
            ("models", "model"),
            ("embeddings", "embedding"),
            ("dataset", "dataset"),
        ):
            assert given.get(option) in {None, *(getattr(spec, kind) for spec in found)}, (
                name,
                options,
            )
    assert {f"`{name}`" for name in (*DATASETS, *RANKINGS, *PUBLISHED)} <= set(
        re.findall(r"`[\w-]+`", README)
    )


@pytest.mark.parametrize(
    ("row", "dataset"), [("*MNIST*", "mnist"), ("*Fashion-MNIST*", "fashion_mnist")]
)
def test_the_numbers_of_images_are_the_records_best_of_the_first_four_seeds(row, dataset):
    (line,) = [line for line in README.splitlines() if line.startswith(f"| {row}")]
    records = report.recorded("images", dataset, "pixels", seeds=PAPER_SEEDS[:4])
    ours = records[(records["label"] == "AE(D), alpha 1") & (records["metric"] == "acc")]["value"]
    assert len(ours) == 4
    assert line.split("|")[-2].strip() == f"{ours.max():.3f}"
    theirs = (
        report.literature()
        .query("method == 'AE(D)' and metric == 'acc' and dataset == @dataset")["value"]
        .item()
    )
    assert float(line.split("|")[-3]) == pytest.approx(theirs)
