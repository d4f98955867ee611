"""The tables of short texts: our means and the paper's values in one cell, and its slips."""

import pytest

from snnl_book import report
from snnl_book.experiments.short_texts import CLUSTERERS
from snnl_book.report import short_rows


@pytest.fixture(scope="module")
def runs():
    return report.short_texts()


def test_a_cell_has_our_mean_the_papers_value_and_a_mark_if_a_run_is_stale(runs):
    few = runs[(runs["asked"] == 2000) & (runs["method"] == "ClusterBERT")]
    table = short_rows.every_row(few).set_index(["clustered by", "score"])
    row = table.loc["k-means", "NMI"]
    wanted = few.query("clusterer == 'kmeans' and metric == 'nmi_geometric'")
    values = 100 * wanted[wanted["dataset"] == "stackoverflow"]["value"]
    ours = f"{values.mean():.1f}±{values.std():.1f}"
    paper = report.paper_short_texts().query("label == 'ClusterBERT+kmeans'")
    paper = paper.query("dataset == 'stackoverflow' and metric == 'nmi_geometric'")["value"].item()
    assert row["StackOverflow"] == f"{ours} [{100 * paper:.1f}]"
    stale = few.assign(stale=True)
    marked = short_rows.every_row(stale).set_index(["clustered by", "score"])
    assert marked.loc["k-means", "NMI"]["StackOverflow"] == f"{ours}* [{100 * paper:.1f}]"
    assert set(table.reset_index()["clustered by"]) <= set(CLUSTERERS.values())
    assert {f"clusterbert/{key}" for key in wanted["key"]} <= set(row["records"].split())


def test_every_record_is_behind_a_row(runs):
    named = set(" ".join(short_rows.every_row(runs)["records"]).split())
    assert named == {f"clusterbert/{key}" for key in runs["key"]}


def test_what_others_report_stands_next_to_rows_of_the_same_method(runs):
    table = short_rows.reported(runs).set_index(["method", "corpus"])
    quoted = report.literature("short-texts")
    assert len(table) == len(quoted.drop_duplicates(["method", "dataset"]))
    row = table.loc["TF-IDF", "Biomedical"]
    whole = runs.query("method == 'TF-IDF' and clusterer == 'kmeans' and asked == 50_000")
    mean = 100 * whole.query("dataset == 'biomedical' and metric == 'acc'")["value"].mean()
    assert row["ACC, ours"].startswith(f"{mean:.1f}±")
    assert table.loc["SCCL", "Biomedical"]["ACC, ours"] == "–"  # no run of it


def test_scores_after_each_stage_are_means_over_the_seeds(runs):
    main = runs.query("method == 'ClusterBERT' and clusterer == 'kmeans' and asked == 2000")
    table = short_rows.stages(main).set_index(["corpus", "score"])
    last = main.query("dataset == 'biomedical' and metric == 'acc_3'")["value"].mean()
    assert table.loc["Biomedical", "ACC"]["after Stage 3"] == f"{last:.3f}"
    assert short_rows.stages(main[:0]).empty


def test_the_slips_compare_the_papers_text_with_its_tables():
    slips = short_rows.slips().set_index("where")["what"]
    assert "2 of 6 methods" in slips["Sec. 4.2, IDEC instead of k-means"]
    assert "40.9" in slips["Sec. 4.2, ClusterBERT against RoBERTa"]
    assert (short_rows.slips()["records"] == report.QUOTED).all()
