"""Intervals, verdicts and tables, on numbers worked out by hand."""

import io

import numpy as np
import pandas as pd
import pytest

from snnl_book import experiments, report, results
from snnl_book.experiments.cells import ALL
from snnl_book.report.judgement import judge_value
from snnl_book.report.statistics import within_range

pytestmark = pytest.mark.usefixtures("without_answers")


def runs(label, values, metric="acc", status="ok"):
    keys = [f"{label}-{seed}" for seed in range(len(values))]
    facts = {"experiment": "trial", "stale": False, "n_train": 20_000, "n_test": 10**9}
    facts |= {"label": label, "metric": metric, "status": status, "fingerprint": "ab-cd"}
    made = pd.DataFrame({"seed": range(len(values)), "value": values, "key": keys})
    return made.assign(**facts)


def test_the_interval_is_students():
    # mean 3, standard deviation sqrt(2.5), t(0.975, 4) = 2.776445
    low, high = report.interval([1, 2, 3, 4, 5])
    half = 2.776445 * np.sqrt(2.5 / 5)
    assert (low, high) == pytest.approx((3 - half, 3 + half), abs=1e-5)


@pytest.mark.parametrize(
    ("metric", "least", "most"),
    [("acc", 0, 1), ("head_nmi", 0, 1), ("ari", -1, 1), ("sil", -1, 1), ("dbi", 0, 9)],
)
def test_an_interval_ends_where_the_metric_does(metric, least, most):
    assert within_range(-2.0, 9.0, metric) == (least, most)
    assert within_range(0.2, 0.8, metric) == (0.2, 0.8)


def test_every_row_of_the_papers_tables_of_short_texts_is_one_of_our_grid():
    paper, row = report.paper_short_texts(), ["embedding", "model", "clusterer", "dataset"]
    specs = experiments.specs("clusterbert")
    ours = {(spec.embedding, spec.model, spec["clusterer"], spec.dataset) for spec in specs}
    theirs = set(paper[row].itertuples(index=False, name=None))
    assert theirs <= ours
    assert {(model, embedding) for embedding, model, *_ in theirs} <= set(report.SHORT_LABELS)
    # Table 3 has 29 rows and two metrics of six corpora
    assert len(paper) == 29 * 2 * 6
    assert not paper.duplicated([*row, "metric"]).any()


def test_records_on_short_texts_say_method_way_of_clustering_and_documents_asked_for(
    results_folder,
):
    wanted = {("TF-IDF", "kmeans"): 80, ("ClusterBERT", "kmeans"): 60, ("TSDAE", "umap-idec"): 60}
    for spec in experiments.specs("clusterbert", "tiny", "newsgroups20_openings", 42):
        asked = wanted.get((report.SHORT_LABELS[spec.model, spec.embedding], spec["clusterer"]))
        if spec.n_train == asked:
            facts = ({"acc": 0.5}, 59, 59, 1.0, "CPU")
            results.write_record(results.Record(spec, "00000000-0", *facts))
    found = report.short_texts(profile="tiny")
    assert found.set_index(["method", "clusterer"])["asked"].to_dict() == wanted
    assert (found["n_train"] == 59).all() and not found["stale"].any()
    readings = {"TF-IDF": None, "ClusterBERT": None, "TSDAE": "UMAP + IDEC"}
    assert found.set_index("method")["reading"].to_dict() == readings


def test_one_run_has_no_interval():
    assert np.isnan(report.interval([0.5])).all()
    found = report.paired(pd.concat([runs("A", [0.5]), runs("B", [0.4])]), "acc", "A", "B")
    assert np.isnan([found["low"], found["high"]]).all() and found["seeds"] == 1


@pytest.mark.parametrize(
    ("a", "b", "signs"),
    [
        ([0.81, 0.82, 0.83], [0.71, 0.72, 0.74], (1, 1)),
        ([0.81, 0.62, 0.83], [0.71, 0.72, 0.73], (-1, 1)),  # the interval contains 0
        ([0.61, 0.62, 0.63], [0.71, 0.72, 0.74], (-1, -1)),  # it lies on the other side
    ],
)
def test_a_comparison_has_the_paired_interval(a, b, signs):
    found = report.paired(pd.concat([runs("A", a), runs("B", b)]), "acc", "A", "B")
    assert tuple(np.sign([found["low"], found["high"]])) == signs
    assert (found["low"], found["high"]) == report.interval(np.subtract(a, b))


def test_differences_are_paired_by_seed_not_by_position():
    a, b = runs("A", [0.2, 0.5, 0.8]), runs("B", [0.1, 0.4, 0.7])
    result = report.paired(pd.concat([a, b.sample(frac=1, random_state=0)]), "acc", "A", "B")
    assert result["difference"] == pytest.approx(0.1)
    assert result["low"] > 0


def test_seeds_that_share_a_draw_of_a_random_encoder_are_one_unit_of_a_difference():
    pair = pd.concat([runs("A", [0.8, 0.9, 0.5]), runs("B", [0.4, 0.5, 0.3])])
    prints = pair["seed"].map(dict(zip(pair["seed"].unique(), ("0", "0", "1"), strict=True)))
    found = report.paired(pair.assign(fingerprint="data-random" + prints), "acc", "A", "B")
    assert found["seeds"] == 3 and found["difference"] == pytest.approx((0.4 + 0.2) / 2)
    assert (found["low"], found["high"]) == pytest.approx(report.interval([0.4, 0.2]))
    alike = report.paired(pair.assign(fingerprint="data"), "acc", "A", "B")
    assert alike == report.paired(pair, "acc", "A", "B") != found


def test_lower_is_better_turns_the_sign():
    pair = pd.concat([runs("A", [0.4, 0.5, 0.6], "dbi"), runs("B", [2.4, 2.5, 2.7], "dbi")])
    assert report.paired(pair, "dbi", "A", "B")["low"] > 0
    assert report.paired(pair, "dbi", "B", "A")["high"] < 0


def test_a_seed_that_only_one_side_has_is_left_out():
    both = pd.concat([runs("A", [0.2, 0.5, 0.8]), runs("B", [0.1, 0.4])])
    assert report.paired(both, "acc", "A", "B")["seeds"] == 2


def direction(value, values, metric="acc", **facts):
    return judge_value(runs("A", values, metric).assign(**facts), metric, value).direction


def test_a_value_beside_a_row_is_judged_as_a_claim_is():
    assert direction(0.8149, [0.79, 0.8, 0.81]) == "holds"
    assert direction(0.8351, [0.79, 0.8, 0.81]) == "fails"
    assert direction(0.8, [0.5, 0.8, 1.1]) == "open"  # a wide interval matches nothing
    assert direction(11_092, [90, 9_000, 8.4e9], "chs") == "open"
    assert direction(2.71, [2.70, 2.71, 2.72], "dbi") == "holds"  # an index: by its shares
    assert direction(0.8, [0.79, 0.8]) == "open"
    assert direction(0.3, [0.25, 0.26, 0.25], status="collapsed") == "unfair"


def test_seeds_of_one_random_encoder_are_no_units():
    encoders = [f"ab-random{number}" for number in (0, 0, 0)]
    assert direction(0.8, [0.79, 0.8, 0.81], fingerprint=encoders) == "open"
    encoders = [f"ab-random{number}" for number in (0, 1, 2)]
    assert direction(0.8, [0.79, 0.8, 0.81], fingerprint=encoders) == "holds"


def test_records_of_several_experiments_may_share_an_index():
    names = ("clustering", "clustering-readings")
    both = pd.concat([results.load_results(name) for name in names])
    assert both.index.has_duplicates and report.stale(both).index.equals(both.index)


def test_differences_are_numbers_with_the_records_of_both_sides():
    found = pd.concat([runs("A", [0.9, 0.8]), runs("B", [0.7, 0.7]), runs("A", [0.1], "nmi")])
    rows = report.differences(found, [("A", "B"), ("A", "none")], group="both")
    assert rows["label"].tolist() == ["A", "A"] and rows["against"].tolist() == ["B", "none"]
    low, high = report.interval([0.2, 0.1])
    first, second = rows.to_dict("records")
    assert (first["mean"], first["low"], first["high"]) == pytest.approx((0.15, low, high))
    assert first["seeds"] == 2 and first["group"] == "both"
    assert {*first["records"].split()} == {*report.behind(found[found["metric"] == "acc"]).split()}
    assert second["seeds"] == 0 and np.isnan(second["mean"])  # a row that is not recorded
    assert list(report.differences(found, [])) == list(rows)  # of no pairs, but with its columns


def corpora(values):
    """Runs of two ways to cluster: corpus -> way -> values by seed."""
    rows = [
        runs(way, own).assign(
            dataset=name, key=[f"{name}-{way}-{seed}" for seed in range(len(own))]
        )
        for name, ways in values.items()
        for way, own in ways.items()
    ]
    return pd.concat(rows, ignore_index=True)


def test_two_kinds_of_runs_are_compared_in_each_corpus_by_the_seeds_that_both_have():
    values = {
        "a": {"umap": [0.5, 0.7, 0.1], "kmeans": [0.4, 0.4]},  # the third seed has no partner
        "b": {"umap": [0.2], "kmeans": [0.3, np.nan]},
        "c": {"umap": [np.nan, 0.4], "kmeans": [0.1]},  # no seed has both
        "d": {"umap": [0.9]},
    }
    found = report.by_corpus(corpora(values), "acc", "label", ["umap", "kmeans"])
    assert found.index.tolist() == ["a", "b"]
    assert found[["umap", "kmeans", "gain"]].to_numpy() == pytest.approx(
        np.array([[0.6, 0.4, 0.2], [0.2, 0.3, -0.1]])
    )
    assert found["seeds"].tolist() == [2, 1] and not found["stale"].any()
    assert found.loc["b", "records"] == "trial/b-umap-0 trial/b-kmeans-0"
    assert "a-umap-2" not in found.loc["a", "records"]


def test_a_comparison_by_corpus_takes_one_score_and_turns_the_sign_where_lower_is_better():
    one = corpora({"a": {"umap": [0.5], "kmeans": [0.4]}})
    both = pd.concat([one, one.assign(metric="dbi")])
    gains = [report.by_corpus(both, name, "label", ["umap", "kmeans"]) for name in ("acc", "dbi")]
    assert [round(found["gain"].item(), 9) for found in gains] == [0.1, -0.1]


def test_stale_runs_mark_their_corpus_alone_and_only_if_they_are_compared():
    rows = corpora({name: {"umap": [0.5, 0.5], "kmeans": [0.4]} for name in ("a", "b")})
    for keys, told in ((["b-kmeans-0", "b-umap-0"], [False, True]), (["b-umap-1"], [False] * 2)):
        marked = rows.assign(stale=rows["key"].isin(keys))
        found = report.by_corpus(marked, "acc", "label", ["umap", "kmeans"])
        assert found["stale"].tolist() == told


def test_a_stale_run_is_not_compared_with_one_that_is_not():
    rows = corpora({"a": {"umap": [0.5, 0.9], "kmeans": [0.4, 0.4]}})
    rows = rows.assign(stale=rows["key"] == "a-umap-1")
    found = report.by_corpus(rows, "acc", "label", ["umap", "kmeans"])
    assert found["gain"].round(9).tolist() == [0.1] and found["seeds"].tolist() == [1]
    both = pd.concat([rows, rows.assign(label="other", stale=True)])
    judged = report.paired(both, "acc", "umap", "kmeans")  # of other rows nothing is asked
    assert (round(judged["difference"], 9), judged["seeds"]) == (0.1, 1)


@pytest.mark.parametrize("rows", [slice(0), slice(2)])  # none, and one kind alone
def test_without_a_pair_there_is_no_corpus(rows):
    few = corpora({"a": {"umap": [0.5, 0.7], "kmeans": [0.4]}})[rows]
    found = report.by_corpus(few, "acc", "label", ["umap", "kmeans"])
    assert found.empty and [*found][-4:] == ["gain", "seeds", "stale", "records"]
    said = report.gain_row(found)
    assert said["better in"] == "0 of 0" and said["95 % interval over corpora"] == "–"
    assert report.behind(found) == ""


def test_a_row_of_gains_has_its_interval_over_corpora():
    gains = pd.DataFrame({"gain": [0.01, 0.03, -0.01], "seeds": [5, 3, 4]})
    low, high = report.interval(gains["gain"])
    said = report.gain_row(gains)
    assert said["gain"] == "+0.010" and said["better in"] == "2 of 3" and said["seeds"] == "3 to 5"
    assert said["95 % interval over corpora"] == f"{low:+.3f} to {high:+.3f}"
    points = report.gain_row(gains, points=True)
    assert points["gain"] == "+1.0"
    assert points["95 % interval over corpora"] == f"{100 * low:+.1f} to {100 * high:+.1f}"
    one = report.gain_row(gains[:1])
    assert one["95 % interval over corpora"] == "–" and one["seeds"] == "5"


def test_a_mean_over_corpora_counts_each_once_and_needs_them_all():
    rows = pd.DataFrame({"dataset": ["a", "a", "a", "b"], "value": [0.1, 0.2, 0.3, 0.8]})
    assert report.over_corpora(rows, ["a", "b"]) == pytest.approx(0.5)
    assert report.over_corpora(rows, ["a"]) == pytest.approx(0.2)
    assert np.isnan(report.over_corpora(rows, ["a", "b", "c"]))
    assert np.isnan(report.over_corpora(rows[:0], ["a"]))


def test_a_comparison_shows_rows_against_their_reference_and_those_without_runs():
    table = report.compare(
        pd.concat([runs("A", [0.8, 0.8, 0.83], status="ok"), runs("B", [0.7, 0.7, 0.7])]),
        [("A", "B"), ("C", "B")],
    )
    assert list(table["difference"]) == ["0.110", "–"]
    assert list(table["mean"]) == ["0.810", "–"] and list(table["runs"]) == ["3", "0"]
    old = runs("A", [0.8, 0.9]).assign(stale=[False, True], key=["a", "b"])
    assert (
        report.compare(old, [("A", "B")])["runs"].item()
        == report.means(old, ["acc"])["runs"].item()
        == "2, stale"
    )


@pytest.mark.parametrize(("metric", "sign"), [("acc", "+"), ("dbi", "-")])
def test_a_difference_in_words_is_paired_by_seed_and_says_how_many_seeds_there_are(metric, sign):
    rows = [
        runs(label, values).assign(metric=metric)
        for label, values in (("A", [0.8, 0.9, 0.7]), ("B", [0.7, 0.7]), ("C", [0.6]))
    ]
    found = report.show_difference(pd.concat(rows), metric, "A", "B")
    low, high = sorted(float(sign + "1") * value for value in report.interval([0.1, 0.2]))
    alone = " alone" if metric == "acc" else ""
    assert found == f"{sign}0.150 (95 % interval {low:+.3f} to {high:+.3f}, 2 seeds{alone})"
    assert report.show_difference(pd.concat(rows), metric, "A", "C") == f"{sign}0.200 (1 seed)"
    assert report.show_difference(pd.concat(rows), metric, "A", "D") == "not recorded yet"


def test_a_difference_in_words_counts_the_encoders_that_its_interval_is_over():
    rows = pd.concat([runs("A", [0.8, 0.9, 0.7]), runs("B", [0.7, 0.7, 0.7])])
    for prints, said in (
        (["x-random0", "x-random0", "x-random1"], ", 2 encoders alone)"),
        (["x-random0"] * 3, "+0.100 (1 encoder)"),
        (["words"] * 3, ", 3 seeds alone)"),
    ):
        own = rows.assign(fingerprint=prints * 2)
        assert report.show_difference(own, "acc", "A", "B").endswith(said)


def test_the_papers_tables_are_whole():
    for number, rows in ((1, 24), (2, 24), (3, 48), (4, 48)):
        table = report.paper_table(number)
        assert len(table) == rows
        assert not table.isna().any(axis=None)
        assert not table.duplicated(["label", "embedding", "metric", "statistic"]).any()
        printed = [
            float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
            for text in table["printed"]
        ]
        assert table["value"].to_numpy() == pytest.approx(np.array(printed))


def test_the_papers_numbers_are_those_of_its_text():
    table = report.paper_table(1).set_index(["label", "embedding", "metric", "statistic"])[
        "printed"
    ]
    assert table["SNNL -100", "infersent", "acc", "best"] == "90.11%"
    assert table["SNNL -100", "spacy", "f1_micro", "mean"] == "0.8109"
    table = report.paper_table(3).set_index(["label", "embedding", "metric", "statistic"])[
        "printed"
    ]
    assert table["AE", "spacy", "chs", "best"] == "1036948.01"


def test_a_missing_row_is_shown_as_not_attempted_and_an_odd_run_is_named():
    ours = pd.concat(
        [
            runs("Orig.", [0.78, 0.79], "acc"),
            runs("AE", [0.25], "acc", "collapsed"),
            runs("LC(D)", [np.nan], "acc", "diverged"),
        ]
    )
    table = report.beside_paper(4, ours).set_index(["model", "metric"])
    assert len(table) == 12
    assert table.loc[("AE(D)", "acc"), "our verdict"] == "not tested"
    assert table.loc[("AE", "acc"), "runs"] == "1, 1 collapsed"
    assert table.loc[("Orig.", "acc"), "our mean"] == "0.785"
    assert table.loc[("LC(D)", "acc"), "runs"] == "1, 1 diverged"
    assert table.loc[("LC(D)", "acc"), "our verdict"] == "no run ended with a number"


def test_every_row_of_a_table_says_which_records_are_behind_it():
    records = pd.concat(
        [runs("A", [0.8, 0.9]), runs("B", [0.7, 0.6]), runs("B", [3.0, 4.0], "dbi")]
    )
    one, both = "trial/A-0 trial/A-1", "trial/A-0 trial/A-1 trial/B-0 trial/B-1"
    assert report.behind(records[records["label"] == "A"]) == one
    assert report.behind(records.iloc[:0]) == ""
    assert report.means(records, ["acc"])["records"].tolist() == [one, "trial/B-0 trial/B-1"]
    assert report.compare(records, [("A", "B")])["records"].tolist() == [both]
    compared = report.compare(records, [("A", "B"), ("C", "A")])
    assert compared["records"].tolist() == [both, one]  # there is no C
    paper = report.beside_paper(4, runs("Orig.", [0.78])).set_index(["model", "metric"])
    assert paper.loc[("Orig.", "acc"), "records"] == "trial/Orig.-0"
    assert paper.loc[("AE", "acc"), "records"] == ""
    assert report.behind(compared) == both  # of a table: of all its rows, each once
    assert report.behind(pd.DataFrame(columns=["experiment", "key"], dtype=float)) == ""
    assert "records" not in report.show_table(compared, "compared", "A caption.").html
    counted = pd.DataFrame({"n": [1, 2]})
    for source, told in (
        (None, [both, one]),
        (report.COMPUTED, [report.COMPUTED]),
        (records, [both]),
    ):
        table = compared if source is None else counted
        shown = report.show_table(table, "some", "A caption.", source)
        written = pd.read_csv(io.StringIO(shown.facts["csv"]))
        assert written.columns[-1] == "records" and written["records"].unique().tolist() == told
    with pytest.raises(ValueError, match="the table odd does not say where its rows come from"):
        report.show_table(counted, "odd", "A caption.")


# ---------------------------------------------------------------- benchmarks


def test_rows_on_all_embeddings_are_each_taken_with_the_most_documents_of_their_own(results_folder):
    wanted = {
        ("spacy", "ffn", 20_000): (42, 73),
        ("infersent-random", "ffn", 20_000): (42,),
        ("infersent-random", "ffn", ALL): (42, 73),
        ("infersent-random", "cnn", 20_000): (42, 73),
        ("infersent-random", "cnn", ALL): (42,),
    }
    for spec in experiments.specs("classification", dataset="ag_news", seeds=(42, 73)):
        row = spec.embedding, spec.model, spec.n_train
        if spec.alpha == 0 and spec.seed in wanted.get(row, ()):
            facts = ({"acc": 0.5}, spec.n_train, 10, 1.0, "CPU")
            results.write_record(results.Record(spec, "made up", *facts))
    found = report.recorded("classification", "ag_news", None)
    # The convolutional network on all documents has not all the seeds.
    taken = [(*row, 2) for row, seeds in wanted.items() if len(seeds) == 2]
    counts = found.groupby(["embedding", "model", "n_train"]).size()
    assert sorted((*row, count) for row, count in counts.items()) == sorted(taken)
    of_random = found[found["embedding"] == "infersent-random"]["key"].tolist()
    own = report.recorded("classification", "ag_news", "infersent-random")
    assert own["key"].tolist() == of_random
    assert report.recorded("classification", "ag_news", "infersent").empty


def test_a_table_in_the_papers_shape_has_a_row_a_model_and_the_papers_beneath():
    records = pd.concat(
        [
            runs("Orig.", [0.78, 0.781, 0.782], "acc"),
            runs("LC(D)", [0.5, 0.51, 0.52], "acc"),
            runs("LC(D)", [0.25], "acc").assign(status="collapsed", seed=9),
        ]
    )
    wide = report.in_papers_shape(report.beside_paper(4, records, metrics=["acc"]))
    assert wide["model"].tolist() == [
        *("Orig.", "the paper", "AE", "the paper"),
        *("LC(D)", "the paper", "LC(D), without collapsed runs", "AE(D)", "the paper"),
    ]
    cells = dict(zip(wide["model"], wide["acc"], strict=True))
    assert cells["Orig."] == "0.781 ± 0.002" and cells["AE"] == "–"
    assert cells["LC(D), without collapsed runs"] == "0.510 ± 0.025 ≠"  # the paper has 0.88
    assert wide["acc"].tolist()[1::2][:2] == ["0.78", "0.70"]
    assert wide.loc[wide["model"] == "the paper", "records"].eq(report.QUOTED).all()


def test_choices_are_listed_in_the_order_asked_for():
    table = report.choices({"a": "one", "b": "two", "c": "three"}, ["c", "a"])
    assert table.to_numpy().tolist() == [
        ["c", "three", report.COMPUTED],
        ["a", "one", report.COMPUTED],
    ]
    with pytest.raises(KeyError, match="d"):
        report.choices({"a": "one"}, ["d"])
