"""Records joined to the plan: what shares a row, in which order, and what no cell asks for."""

import shutil
import subprocess
import sys
from dataclasses import replace

import pandas as pd
import pytest
from conftest import ROOT

from snnl_book import experiments, report, results
from snnl_book.experiments import EXPERIMENTS, classification, second_corpus, specs
from snnl_book.experiments.cells import CONFIRMING_SEEDS, NEW_SEEDS, PAPER_SEEDS


@pytest.fixture
def clustering(results_folder):
    """A copy of the committed records of text clustering on averaged vectors, to be changed."""
    (results_folder / "clustering").mkdir(parents=True)
    for path in (ROOT / "results" / "clustering").glob("ag_news-spacy-*.csv"):
        if not path.name.endswith(".curve.csv"):
            shutil.copy(path, results_folder / "clustering")
    return results_folder / "clustering"


def planned(model, seed=42, embedding="spacy"):
    """The spec of a model in text clustering of AG News."""
    (spec,) = (
        spec
        for spec in specs("clustering", dataset="ag_news", seeds=seed)
        if (spec.embedding, spec.model) == (embedding, model)
    )
    return spec


def write(spec, fingerprint="ec966eb1-c2b55dcb", acc=0.5):
    results.write_record(results.Record(spec, fingerprint, {"acc": acc}, 20_000, 7600, 1.0, "CPU"))


def rows(records):
    """The rows of a table in their order: label, runs, mean accuracy."""
    return report.means(records, ["acc"])[["model", "runs", "acc"]].to_numpy().tolist()


def test_every_committed_record_belongs_to_a_cell_of_the_plan(monkeypatch):
    monkeypatch.setenv("SNNL_RESULTS", str(ROOT / "results"))
    every = results.load_results().drop_duplicates(["experiment", "key"])
    assert report.orphans().empty
    joined = pd.concat([report.select(name) for name in EXPERIMENTS]).drop_duplicates("key")
    of_some_cells = dict.fromkeys(EXPERIMENTS, NEW_SEEDS) | {"classification": ()}
    of_some_cells["classification-readings"] = (
        *NEW_SEEDS,
        *CONFIRMING_SEEDS,
        *classification.RECORDED_SEEDS,
    )
    assert len(joined) == len(every) > 1600 and {*joined["key"]} == {*every["key"]}
    further = joined[
        [
            seed not in (*EXPERIMENTS[name].seeds, *of_some_cells[name])
            for name, seed in zip(joined["experiment"], joined["seed"], strict=True)
        ]
    ]
    drawn = further["fingerprint"].str.contains("-random[12]$")  # one run a draw and row
    assert further["seed"][drawn].isin([1, 2]).all()
    further = further[~drawn & (further["dataset"] != second_corpus.CORPUS)]
    assert set(further["experiment"]) == {"classification"} and len(further) == 30


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_cells_of_one_row_differ_in_nothing_but_the_number_of_documents(name):
    protocols = {}
    for dataset in ("ag_news", "opinion_lexicon", "mnist", "stackoverflow", "bbc_sentences"):
        for spec in specs(name, "full", dataset, 0):
            row = (spec.dataset, spec.embedding, spec.model, spec.label)
            protocol = (spec.alpha, spec.temperature, spec.settings)
            assert protocols.setdefault(row, protocol) == protocol, row


def test_the_label_is_no_part_of_what_tells_runs_apart():
    spec = planned("ae-d")
    other = replace(spec, label="another row")
    assert spec.label == "AE(D)" and spec == other and spec.identity == other.identity
    assert spec.key("abc") == other.key("abc")


def test_records_of_another_protocol_under_the_same_label_stand_apart(clustering):
    before = rows(report.recorded("clustering", "ag_news"))
    for seed in PAPER_SEEDS:
        spec = planned("ae-d", seed)
        write(replace(spec, settings=tuple(sorted({**dict(spec.settings), "epochs": 60}.items()))))
    assert rows(report.recorded("clustering", "ag_news")) == before
    lost = report.orphans("clustering")
    assert sorted(lost["seed"]) == sorted(PAPER_SEEDS) and set(lost["model"]) == {"ae-d"}
    assert lost["settings"].str.contains('"epochs": 60').all()
    assert len(report.orphans()) == 5


def test_two_protocols_that_the_plan_gives_one_label_are_refused(clustering, monkeypatch):
    def cells(profile):
        for cell in grid.cells(profile):
            yield cell
            if (cell.embedding, cell.model) == ("spacy", "ae-d"):
                yield replace(cell, settings=cell.settings | {"epochs": 60})

    grid = EXPERIMENTS["clustering"]
    monkeypatch.setitem(EXPERIMENTS, "clustering", replace(grid, cells=cells))
    thirty, sixty = (
        spec
        for spec in specs("clustering", dataset="ag_news", seeds=42)
        if (spec.embedding, spec.model) == ("spacy", "ae-d")
    )
    assert len(report.select("clustering", embedding="spacy")["label"].unique()) == 4
    write(sixty)
    with pytest.raises(
        report.ReportError, match=r"two protocols would share the row 'AE\(D\)'"
    ) as e:
        report.select("clustering")
    assert '"epochs": 30' in str(e.value) and '"epochs": 60' in str(e.value)
    assert sixty.key("ec966eb1-c2b55dcb") in str(e.value) and thirty.label == sixty.label


def test_two_copies_of_the_corpus_are_refused_and_two_random_encoders_are_not(results_folder):
    for seed in (42, 73):
        spec = planned("ae-d", seed, embedding="infersent-random")
        write(spec, f"ec966eb1-c2b55dcb-random{seed}")
    assert len(report.select("clustering")) == 2
    write(planned("ae-d", 1234, embedding="infersent-random"), "00000000-c2b55dcb-random0")
    with pytest.raises(report.ReportError, match="two copies of the data would share") as e:
        report.recorded("clustering", "ag_news", None)
    assert "00000000-c2b55dcb" in str(e.value) and "ec966eb1-c2b55dcb" in str(e.value)


def test_the_order_of_rows_is_the_plans_whenever_they_were_run(clustering):
    before = report.select("clustering")
    assert before["label"].unique().tolist() == ["Orig.", "AE", "LC(D)", "AE(D)"]
    assert before["seed"].unique().tolist() == [*PAPER_SEEDS, *NEW_SEEDS]
    records = [path for path in clustering.glob("*-pca-*-s42-*") if path.suffixes == [".csv"]]
    assert records
    for path in records:
        text, created = path.read_text(), results.read_record(path)["created"].iloc[0]
        path.write_text(text.replace(created, "2036-01-01T00:00:00+00:00"))
    after = report.select("clustering")
    assert (after["created"] > "2036").any()
    assert after.drop(columns="created").equals(before.drop(columns="created"))


def test_further_seeds_are_found_and_come_last(clustering):
    for seed in (8, 5):
        write(planned("ae-d", seed))
    joined = report.select("clustering", dataset="ag_news").query("label == 'AE(D)'")
    assert joined["seed"].unique().tolist() == [*PAPER_SEEDS, *sorted({5, 8, *NEW_SEEDS})]
    assert set(report.select("clustering", seeds=[8])["seed"]) == {8}
    assert {*report.recorded("clustering", "ag_news")["seed"]} == {*PAPER_SEEDS, *NEW_SEEDS}
    assert 8 in set(report.recorded("clustering", "ag_news", seeds="all")["seed"])


def test_a_record_older_than_its_cell_is_stale(clustering):
    assert not report.select("clustering")["stale"].any()
    write(replace(planned("pca", 73), revision=0))
    assert report.select("clustering").query("stale")["seed"].tolist() == [73]


def test_a_record_that_no_cell_asks_for_is_an_orphan_whatever_it_names(results_folder):
    spec = planned("ae-d")
    write(spec)
    odd = [
        replace(spec, model="ae-e"),
        replace(spec, dataset="a corpus of theirs"),
        replace(spec, experiment="an experiment of theirs"),
    ]
    for other in odd:
        write(other)
    lost = report.orphans()
    assert sorted(lost["key"]) == sorted(other.key("ec966eb1-c2b55dcb") for other in odd)
    assert len(report.select("clustering")) == 1 and len(report.orphans("clustering")) == 2


def test_tables_need_no_data(tmp_path, monkeypatch):
    monkeypatch.setenv("SNNL_RESULTS", str(ROOT / "results"))
    script = (
        "from snnl_book import report\n"
        "for name, dataset in (('clustering', 'ag_news'), ('images', 'mnist')):\n"
        "    print(report.means(report.recorded(name, dataset, None), ['acc']).to_csv())\n"
        "print(report.short_texts('retrieval').to_csv())\n"
    )
    said = []
    for place in (None, tmp_path):
        if place:
            monkeypatch.setenv("SNNL_DATA", str(place / "data"))
            monkeypatch.setenv("SNNL_CACHE", str(place / "cache"))
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        said.append(done.stdout)
    assert said[0] == said[1] and "AE(D)" in said[0] and "ClusterBERT" in said[0]


def test_nothing_recorded_is_an_empty_table_with_the_same_columns(results_folder):
    added = ["label", "reading", "asked", "stale"]
    empty = report.select("clustering")
    assert empty.empty and list(empty.columns) == [*results.COLUMNS, "key", *added]
    assert report.orphans().empty and report.short_texts().empty
    assert list(report.recorded("images", "mnist", "pixels").columns[-3:]) == [*added[:2], "stale"]


def test_scores_after_a_stage_are_taken_apart():
    metrics = ["acc", "acc_0", "nmi_geometric_3", "nmi_geometric", "dunn_2", "acc_4", "f_1_0"]
    found = report.by_stage(pd.DataFrame({"metric": metrics, "value": range(7)}))
    assert found[["metric", "stage", "value"]].to_numpy().tolist() == [
        ["acc", 0, 1],
        ["nmi_geometric", 3, 2],
        ["dunn", 2, 4],
        ["f_1", 0, 6],
    ]
    recorded = report.short_texts().query("model == 'clusterbert'")
    staged = report.by_stage(recorded)
    assert {*staged["stage"]} == {0, 1, 2, 3} and "stage" not in recorded
    after = staged.query("metric == 'acc' and stage == 3").set_index("key")["value"]
    kmeans = recorded.query("metric == 'acc' and clusterer == 'kmeans'").set_index("key")["value"]
    assert after.index.isin(kmeans.index).any()
    shared = after.index.intersection(kmeans.index)
    assert after[shared].to_dict() == kmeans[shared].to_dict()


# ---------------------------------------------------------------- what was withdrawn


def test_withdrawn_scores_stand_beside_the_same_runs_made_anew(results_folder):
    given = {"dataset": "biomedical", "seeds": (42, 1234)}
    runs = {
        spec.seed: spec
        for spec in specs("clusterbert", **given)
        if (spec.embedding, spec["clusterer"], spec.n_train) == ("tfidf", "umap", 2000)
    }
    assert report.withdrawn().empty  # no file: nothing was withdrawn
    results_folder.mkdir(exist_ok=True)
    lines = ["dataset,embedding,model,clusterer,n_train,seed,nmi_geometric,acc,commit,key"]
    lines += [f"biomedical,tfidf,plain,umap,2000,{seed},0.65,0.57,abc,old" for seed in runs]
    (results_folder / "withdrawn.csv").write_text("\n".join(lines) + "\n")
    found = report.withdrawn()
    assert len(found) == 4 and found["now"].isna().all() and not found["records"].any()
    scores, more = {"nmi_geometric": 0.04, "acc": 0.1}, (2000, 2000, 1.0, "CPU")
    new = results.write_record(results.Record(runs[42], "fresh", scores, *more))
    stale = replace(runs[1234], revision=1)
    results.write_record(results.Record(stale, "fresh", scores, *more))
    found = report.withdrawn().set_index(["seed", "metric"])
    assert set(found["method"]) == {"TF-IDF"}
    assert found.loc[(42, "nmi_geometric"), ["then", "now"]].tolist() == [0.65, 0.04]
    assert found.loc[(42, "acc"), "records"] == f"clusterbert/{new.stem}"
    assert found.loc[1234, "now"].isna().all() and not found.loc[1234, "records"].any()


def test_records_that_chapters_made_are_shown_for_the_seeds_asked_for_and_to_nobody_else(
    monkeypatch, tmp_path
):

    committed, made = tmp_path / "committed", tmp_path / "made"
    monkeypatch.setattr(results, "results_dir", lambda profile="full": committed)
    monkeypatch.setattr(results, "chapters_dir", lambda profile="full": made)
    asked = experiments.Parameters("tiny", (5,), "newsgroups4", "cpu")
    experiments.make_missing(asked, "annealing", dataset="auto")
    shown = report.select("annealing", "tiny", seeds=(5,))
    assert {*shown["seed"]} == {5} and report.select("annealing", "tiny").empty
