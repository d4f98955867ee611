"""Names in the notation, the table of data sets and the entry to cite match the code."""

import math
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from snnl_book import data, embeddings, report, results
from snnl_book.__main__ import _parser
from snnl_book.experiments import EXPERIMENTS, PROFILES, TEXTS, second_corpus, text_clustering
from snnl_book.records import STATUSES
from snnl_book.report import image_rows
from snnl_lib.seeds import BATCH_SIZE

BOOK = Path(__file__).resolve().parents[2] / "book"
PAGES = {
    name: (BOOK / f"{name}.md").read_text()
    for name in ("equations", "data", "limitations", "running")
}


def section(page, title):
    return re.split(
        r"^#+ ", PAGES[page].partition(f" {title}\n")[2], maxsplit=1, flags=re.MULTILINE
    )[0]


def in_code(text):
    return set(re.findall(r"`([\w-]+)`", text))


@pytest.fixture(scope="module")
def records():
    return results.load_results()


# ---------------------------------------------------------------- notation


def test_every_model_and_embedding_of_the_grids_has_its_name_in_the_notation():
    grids = (experiment.cells(PROFILES["full"]) for experiment in EXPERIMENTS.values())
    cells = [cell for grid in grids for cell in grid]
    models = in_code(section("equations", "Names of models"))
    assert {cell.model for cell in cells} - {"points"} <= models
    named = in_code(section("equations", "Names of embeddings"))
    assert {cell.embedding for cell in cells} - {TEXTS} <= named
    assert {name for name in embeddings.METHODS if not name.endswith(("-cls", "-mean"))} <= named


def test_every_score_of_a_record_has_its_name_in_the_notation(records):
    parts = ("Names of scores", "Other columns")
    named = set().union(*(in_code(section("equations", part)) for part in parts))
    places = r"train|head|pretrained|predictions|hidden[1-4](_normalized|_neighbours)?"
    about = rf"^({places})_|_[0-3]$"
    scores = {re.sub(about, "", name) for name in records["metric"].unique()}
    planned = {name for experiment in EXPERIMENTS.values() for name in experiment.metrics}
    assert scores | {name for name in planned if not name.startswith("train_")} <= named
    assert set(STATUSES) <= named


# ---------------------------------------------------------------- data


def test_the_table_of_data_sets_is_that_of_the_catalogue():
    pattern = r"^\| `(\w+)` \| ([a-z ]+) \| (.*) \| *(\d*) *\| (.*) \|$"
    rows = re.findall(pattern, section("data", "At a glance"), re.MULTILINE)
    assert [name for name, *_ in rows] == data.available_datasets()
    for name, kind, documents, classes, terms in rows:
        entry = data.describe(name)
        counts = (form.documents for form in entry.forms)
        published = {tuple(f"{count:,}" for count in form if count) for form in counts}
        told = {tuple(re.findall(r"[\d,]*\d", part)) for part in documents.split("; official: ")}
        assert (kind, terms, told) == (entry.kind, entry.terms, published), name
        assert classes == str(len(entry.class_names) or ""), name


def test_the_data_packages_are_named_with_their_versions():
    for name, (version, _) in data.places.package_pins().items():
        assert re.search(rf"`{name}`\s+{re.escape(version)}\b", PAGES["data"]), name


@pytest.mark.parametrize("page", [*BOOK.glob("*.md"), *BOOK.glob("api/*.md")], ids=lambda p: p.stem)
def test_a_fence_stands_on_a_line_of_its_own(page):
    # Within a line it closes nothing, and what follows ends up in the caption, without a warning.
    assert not re.search(r"^\s*[^\s`:].*(```|:::)", page.read_text(), re.MULTILINE)


# ---------------------------------------------------------------- limitations


def test_the_limitations_are_still_those_of_the_records(records):
    """Where one fails, good: a limitation is gone, and limitations.md has to be changed."""
    assert records["device"].str.startswith("CPU, one thread").all()
    assert not {"sccl"} & set(records["model"])
    assert not {"infersent", "roberta-base"} & set(records["embedding"])
    assert "emnist_balanced" not in set(records["dataset"])
    tuned = records[records["model"].isin(["tsdae", "clusterbert"])]
    assert set(tuned["seed"]) == {42, 1234, 73}
    whole = tuned[tuned["n_train"] > 2000]
    assert set(zip(whole["dataset"], whole["model"], whole["seed"], strict=True)) == {
        ("googlenews", "tsdae", 42),
        ("googlenews", "clusterbert", 42),
        ("searchsnippets", "tsdae", 42),
    }
    idec = records[
        (records["experiment"] == "clusterbert")
        & records["settings"].str.contains('"clusterer": "(?:umap-)?idec"')
    ]
    assert set(idec["model"]) == {"plain"} and set(idec["seed"]) == {42}
    way = idec["settings"].str.extract('"clusterer": "([a-z-]+)"')[0]
    assert set(zip(idec["dataset"], idec["embedding"], way, strict=True)) == {
        ("stackoverflow", "minilm", "idec"),
        ("stackoverflow", "minilm-cls", "idec"),
        ("stackoverflow", "minilm", "umap-idec"),
        ("stackoverflow", "minilm-cls", "umap-idec"),
        ("biomedical", "minilm", "idec"),
    }
    deep = records[records["experiment"].eq("images") & records["model"].isin(["dec", "idec"])]
    by_mean = deep["settings"].str.contains("mean over pixels")
    assert set(deep["seed"]) == {42, 1234, 73}
    assert set(deep[by_mean]["seed"]) == {42, 1234, 73}
    deep = deep[~by_mean]
    assert set(zip(deep["dataset"], deep["model"], deep["seed"], strict=True)) == {
        *((name, "dec", seed) for name in ("mnist", "fashion_mnist") for seed in (42, 1234, 73)),
        ("mnist", "idec", 42),
    }
    # Its time includes pauses: made anew without them, it takes half an hour.
    assert deep[deep["model"] == "idec"]["seconds"].min() > 6000
    classifiers = records[records["experiment"].str.startswith("classification")]
    on_all = classifiers[classifiers["n_train"] > 20_000]
    assert set(zip(on_all["embedding"], on_all["model"], strict=True)) == {("infersent-nli", "ffn")}
    assert set(on_all["seed"]) == {42, 1234, 73}
    assert records[records["dataset"].isin(["mnist", "fashion_mnist"])]["n_train"].max() == 10_000


def test_the_commands_for_what_is_left_are_ones_that_there_are():
    rows = section("running", "What is recorded, and what is missing")
    commands = re.findall(r"`python -m snnl_book (run [^`]+)`", rows)
    assert len(commands) == 7
    for command in commands:
        asked = _parser().parse_args(shlex.split(command))
        names = EXPERIMENTS if asked.experiment == "all" else [asked.experiment]
        cells = [cell for name in names for cell in EXPERIMENTS[name].cells(PROFILES["full"])]
        assert {*(asked.models or ())} <= {cell.model for cell in cells}, command
        assert {*(asked.embeddings or ())} <= {cell.embedding for cell in cells}, command


def test_the_checklist_has_sixteen_questions_each_with_an_answer():
    questions = re.findall(
        r"^\*\*(\d+)\. .*\*\* \*.*\?\* \*\*(Yes|No|NA)\b.*\*\* \S",
        PAGES["limitations"],
        re.MULTILINE,
    )
    assert [int(number) for number, _ in questions] == list(range(1, 17))


# ---------------------------------------------------------------- reuse


def test_the_entry_to_cite_is_that_of_citation_cff():
    (entry,) = re.findall(r"^```bibtex\n(.*?)^```$", PAGES["running"], re.DOTALL | re.MULTILINE)
    cff = (BOOK.parent / "CITATION.cff").read_text()
    told = dict(re.findall(r"^  (\w+) = \{+(.*?)\}+,?$", entry, re.MULTILINE))
    for name in ("title", "version", "license"):
        assert re.search(rf'^{name}: "?{re.escape(told[name])}"?$', cff, re.MULTILINE)
    assert f"name: {told['author']}" in cff


# ---------------------------------------------------------------- results


@pytest.mark.parametrize("dataset", ["ag_news", "mnist", "fashion_mnist"])
def test_an_autoencoder_loses_its_clusters_if_the_loss_stops_early(dataset):
    if dataset == "ag_news":
        runs = [
            report.recorded(name, "ag_news", "spacy")
            for name in ("clustering", "clustering-readings")
        ]
    else:
        runs = [report.recorded("images", dataset, "pixels")]
    runs = pd.concat(runs).replace({"label": {image_rows.BASE: "AE(D)"}})
    first, second = (f"AE(D), loss in the {half} half only" for half in ("first", "second"))
    pairs = [(first, "AE(D)"), (first, "AE"), (second, "AE(D)")]
    early, over_none, late = report.differences(runs, pairs).to_dict("records")
    assert early["high"] < 0
    assert (over_none["high"] < 0) if dataset == "ag_news" else (over_none["low"] > 0)
    assert abs(late["mean"]) < 0.01


def test_chapter_9_says_of_the_second_corpus_what_its_records_say():
    names = second_corpus.COMPARED.keys() - {"unseen"}
    both = {}
    for dataset in ("ag_news", second_corpus.CORPUS):
        runs = pd.concat([report.recorded(name, dataset, seeds="all") for name in names])
        both[dataset] = runs[~runs["label"].str.contains("each hidden layer")]
    runs = both[second_corpus.CORPUS]

    def change(label, reference, runs=runs):
        return report.differences(runs, [(label, reference)]).iloc[0]

    raw, whole = text_clustering.RAW_READING, f"{second_corpus.ALL}, alpha 0"
    first_half = f"{second_corpus.ALL}, loss in the first half only"
    assert change("SNNL 100", "Baseline")["high"] < 0 and change(first_half, whole)["high"] < 0
    assert change(first_half, whole, both["ag_news"])["low"] > 0  # "which helped on AG News"
    lower = f"{second_corpus.ALL}, {second_corpus.CUT}, alpha 0"  # "helps on both"
    assert all(change(lower, whole, each)["low"] > 0 for each in both.values())
    assert change("alpha 10", whole)["high"] < 0 and change("alpha 1", whole)["low"] < 0
    longer = change("100 epochs", "100 epochs, alpha 0")["mean"]
    assert -0.035 < longer < -0.03 < 0 and change("SNNL 100", "Baseline")["mean"] < longer
    ae_d, exchanged = f"AE(D), {raw}", f"{text_clustering.AE_CLASSIFIER}, {raw}"
    leads = [(exchanged, ae_d), ("logistic regression", ae_d)]
    leads.append(("support vector machine, 20,000 labels", ae_d))
    assert all(change(*lead)["low"] > 0 for lead in leads)
    on_scaled = change(text_clustering.AE_CLASSIFIER, "AE(D)")["mean"]
    assert on_scaled > change(exchanged, ae_d)["mean"]  # "further behind"
    assert change(f"{ae_d}, normalised codes", ae_d)["low"] > 0  # "gain a little"
    assert change(f"{ae_d}, {text_clustering.CODE_ONLY}", ae_d)["high"] < 0
    steps = [runs.query("n_train > 5000")["n_train"].max() for runs in both.values()]
    assert 0.5 < math.ceil(steps[1] / BATCH_SIZE) / math.ceil(steps[0] / BATCH_SIZE) < 0.6
