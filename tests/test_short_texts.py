"""The experiments of the ClusterBERT paper: what is in the grid, and each part of a run."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.manifold import trustworthiness
from sklearn.metrics import normalized_mutual_info_score

from snnl_lib import clusterbert, clustering, data, embeddings, experiments, metrics, short_texts
from snnl_lib.backbones import MAX_PIECES
from snnl_lib.clusterbert import STAGES, Recipe
from snnl_lib.experiments import Task
from snnl_lib.results import Spec
from snnl_lib.short_texts import PAIRS, cluster, moved_pairs, run_clusterbert, run_retrieval, run_test_documents, score

TINY = experiments.PROFILES["tiny"]


def made_up(model="plain", clusterer="kmeans", experiment="clusterbert", embedding="minilm-cls", seed=3, **settings):
    own = {"clusterer": clusterer, "kmeans_starts": 3, "idec_epochs": 2} | settings
    if model in ("tsdae", "clusterbert"):
        own = short_texts._recipe(TINY) | own
    return Spec(experiment, "tiny", "made up", embedding, model, 0, "none", seed, 100, 1, tuple(sorted(own.items())))


def blobs(classes=3, each=30, width=6):
    random, labels = np.random.default_rng(0), np.repeat(np.arange(classes), each)
    return (np.eye(classes, width)[labels] * 8 + random.normal(size=(classes * each, width))).astype(np.float32), labels


def vector_task():
    vectors, labels = blobs()
    return Task(vectors, labels, vectors, labels, 3, 0, 0, np.arange(len(labels)), np.arange(len(labels)))


# ---------------------------------------------------------------- the grid


def test_the_full_grid_has_the_floor_on_a_cpu_and_leaves_the_rest_to_a_gpu():
    specs = experiments.specs("clusterbert", "full", seeds=[42, 1234, 73, 1024, 31415926])
    here = [spec for spec in specs if not spec.needs]
    assert {spec.dataset for spec in specs} == set(short_texts.DATASETS)
    for dataset in short_texts.DATASETS:
        own = [spec for spec in here if spec.dataset == dataset]
        for embedding in ("tfidf", "sif", "sif-corpus", "minilm"):
            for clusterer in ("kmeans", "umap"):
                found = [spec for spec in own if (spec.embedding, spec.model, spec["clusterer"]) == (embedding, "plain", clusterer)]
                assert [spec.seed for spec in found if spec.n_train == short_texts.ALL] == [42, 1234, 73, 1024, 31415926]
                assert [spec.seed for spec in found if spec.n_train == 2000] == [42, 1234]
        for model in ("tsdae", "clusterbert"):
            found = [spec for spec in own if (spec.model, spec["clusterer"]) == (model, "kmeans")]
            assert [spec.seed for spec in found] == [42, 1234]
            assert all(spec.n_train == 2000 for spec in found)
        idec = {(spec.embedding, spec.model) for spec in own if spec["clusterer"] == "idec"}
        assert {("sif", "plain"), ("minilm-cls", "clusterbert")} <= idec
    waiting = {(spec.model, spec.n_train) for spec in specs if spec.needs}
    assert waiting == {("tsdae", short_texts.ALL), ("clusterbert", short_texts.ALL), ("sccl", short_texts.ALL)}


def test_the_ablation_differs_from_clusterbert_in_one_choice_each():
    main = dict(next(spec for spec in experiments.specs("clusterbert", seeds=[42]) if spec.model == "clusterbert" and not spec.needs).settings)
    changed = {}
    for spec in experiments.specs("clusterbert-ablation", seeds=[42]):
        own = dict(spec.settings)
        reading = own.pop("reading")
        changed[reading] = {name for name in own if own[name] != main[name]} | ({"pooling"} if spec.embedding != short_texts.START else set())
    assert changed.pop("without reconstruction") == {"clustering_weight", "hardening_weight"}
    assert changed.pop("without stage 1 and reconstruction") == {"clustering_weight", "hardening_weight", "warm_up", "adaptation_epochs"}
    assert changed.pop("mean pooling") == {"pooling"}
    assert len(changed) == 3  # the other corners of the paper's grid
    assert all(names <= {"reclusterings", "clustering_epochs"} for names in changed.values())


def test_a_specs_recipe_has_the_pooling_of_its_embedding_and_all_else_from_its_settings():
    full = next(spec for spec in experiments.specs("clusterbert", seeds=[42]) if spec.model == "clusterbert")
    assert short_texts.recipe(full) == Recipe()
    mean = next(spec for spec in experiments.specs("clusterbert-ablation", seeds=[42]) if spec.get("reading") == "mean pooling")
    assert short_texts.recipe(mean) == Recipe(pooling="mean")


# ---------------------------------------------------------------- clustering and scores


@pytest.mark.parametrize("clusterer", ["kmeans", "umap", "idec"])
def test_clusters_that_are_well_apart_are_found_each_way(clusterer):
    vectors, labels = blobs(each=60)
    clusters, codes = cluster(vectors, made_up(clusterer=clusterer, idec_epochs=150), 3)
    assert metrics.clustering_accuracy(labels, clusters) == 1
    assert codes.shape == (180, 6 if clusterer == "kmeans" else 4)


def test_umap_and_idec_is_idec_of_umaps_layout():
    vectors, _ = blobs()
    _, layout = cluster(vectors, made_up(clusterer="umap"), 3)
    expected, codes = cluster(layout, made_up(clusterer="idec"), 3)
    found, found_codes = cluster(vectors, made_up(clusterer="umap-idec"), 3)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(found_codes, codes)


def test_equation_6_has_the_geometric_mean():
    vectors, labels = blobs()
    clusters = np.array(labels) % 2
    found = score(vectors, clusters, labels)
    assert found["nmi_geometric"] == pytest.approx(normalized_mutual_info_score(labels, clusters, average_method="geometric"))
    assert found["nmi_geometric"] != pytest.approx(found["nmi"])


def test_repeated_vectors_do_not_make_the_dunn_index_zero():
    vectors, labels = blobs()
    doubled = np.concatenate([vectors, vectors[:5]])
    clusters = np.concatenate([labels, (labels[:5] + 1) % 3])  # the copies in another cluster
    assert metrics.dunn_index(doubled, clusters) == 0
    assert score(doubled, clusters, clusters)["dunn"] > 0


def test_of_many_documents_only_the_external_scores_are_computed(monkeypatch):
    vectors, labels = blobs()
    monkeypatch.setattr(short_texts, "INDEX_LIMIT", 50)
    found = score(vectors, labels, labels)
    assert found["acc"] == found["nmi"] == 1
    assert np.isnan([found[name] for name in ("dbi", "sil", "chs")]).all()
    assert "dunn" not in found


def test_vectors_as_they_are_get_the_scores_of_their_clusters():
    outcome = run_clusterbert(made_up(), vector_task(), "cpu", None)
    assert outcome.status == "ok"
    assert outcome.metrics["acc"] == 1
    assert set(short_texts.METRICS) <= set(outcome.metrics)


# ---------------------------------------------------------------- Table 5


def test_pairs_are_chosen_by_the_rule_each_text_once_a_kind():
    random = np.random.default_rng(1)
    before, after, labels = random.normal(size=(40, 5)), random.normal(size=(40, 5)), random.integers(3, size=40)
    rows = np.arange(100, 140)
    found = moved_pairs(before, after, labels, rows, each=4)
    assert found["kind"].tolist() == [kind for kind in PAIRS for _ in range(4)]
    for kind, own in found.groupby("kind"):
        assert len({*own["row"], *own["other"]}) == 8
        alike = labels[own["row"] - 100] == labels[own["other"] - 100]
        assert (alike == PAIRS[kind][0]).all()

    def cosines(vectors):
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit @ unit.T

    change, upper = cosines(after) - cosines(before), np.triu(np.ones((40, 40), dtype=bool), 1)
    same = labels[:, None] == labels
    first = found.drop_duplicates("kind").set_index("kind")
    gain = first["final"] - first["init"]
    assert gain["joined"] == pytest.approx(change[upper & same].max())
    assert gain["wrongly joined"] == pytest.approx(change[upper & ~same].max())
    assert gain["wrongly parted"] == pytest.approx(change[upper & same].min())
    assert gain["parted"] == pytest.approx(change[upper & ~same].min())
    together = np.minimum(cosines(before), cosines(after))
    assert min(first.loc["together", ["init", "final"]]) == pytest.approx(together[upper & same].max())


def test_equal_texts_are_no_pair_and_a_kind_can_have_none():
    before = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = moved_pairs(before, before[::-1].copy(), np.array([0, 0, 1]), np.arange(3), each=5)
    assert set(found["kind"]) == {"wrongly joined", "parted"}
    assert len(found) == 2


# ---------------------------------------------------------------- real texts


@pytest.fixture(scope="module")
def openings(packages):
    """Eighty real texts that are always at hand."""
    corpus = data.load_dataset("newsgroups20_openings")
    rows = np.random.default_rng(0).permutation(len(corpus.train))[:80]
    texts, labels = np.array([corpus.train.texts[i] for i in rows], dtype=object), corpus.train.labels[rows]
    return Task(texts, labels, texts, labels, 20, 0, 0, rows, rows)


def test_a_run_of_clusterbert_scores_every_stage_and_goes_on_from_what_earlier_runs_left(openings, own_cache, monkeypatch):
    tsdae = run_clusterbert(made_up("tsdae"), openings, "cpu", None)
    assert tsdae.curve["stage"].unique().tolist() == [1]
    outcome = run_clusterbert(made_up("clusterbert"), openings, "cpu", None)
    found = outcome.metrics
    for number in range(4):
        assert {f"{name}_{number}" for name in ("nmi_geometric", "acc", "sil", "dunn")} <= set(found)
    assert found["acc_1"] == tsdae.metrics["acc"]  # TSDAE is its first stage
    assert found["acc_3"] == found["acc"]
    assert 0 < found["head_acc"] <= 1
    assert found["cut"] == sum(len(text.split()) > MAX_PIECES for text in openings.train_x) == 0
    assert outcome.curve["stage"].unique().tolist() == [1, 2, 3]
    assert set(outcome.points["kind"]) <= set(PAIRS)
    assert set(outcome.points["row"]) <= set(openings.train_rows)
    for name in ("_adapt", "_cluster", "_harden"):
        monkeypatch.setattr(short_texts.ClusterBERT, name, lambda self: pytest.fail("a stage was carried out again"))
    again = run_clusterbert(made_up("clusterbert", "idec"), openings, "cpu", None)
    assert again.status == "ok"


def test_figure_1_maps_the_same_sentences_after_each_stage_of_one_training(openings, own_cache, monkeypatch):
    specs = [spec for spec in experiments.specs("tsne", "tiny", "bbc_sentences", 42)]
    assert [spec["reading"] for spec in specs] == list(STAGES)
    trained = short_texts.fine_tune(specs[0], openings, "cpu", None)[0]
    monkeypatch.setattr(clusterbert.ClusterBERT, "_epoch", None)  # the stages come from the checkpoint
    found = [clustering.run_tsne(spec, openings, "cpu", None) for spec in specs]
    places = [outcome.points[["x", "y"]].to_numpy() for outcome in found]
    for outcome in found:
        assert outcome.status == "ok"
        assert outcome.points["row"].tolist() == openings.test_rows.tolist()
        assert outcome.points["label"].tolist() == openings.test_y.tolist()
    first, last = (trained.embeddings[name] for name in (STAGES[0], STAGES[3]))
    assert trustworthiness(first, places[0]) > trustworthiness(first, places[3]) + 0.01  # a map keeps its own neighbours
    assert trustworthiness(last, places[3]) > trustworthiness(last, places[0]) + 0.01


def test_clusters_of_test_documents_come_from_a_model_that_saw_no_label_and_other_documents(openings, own_cache, monkeypatch):
    train, test = openings.train_x[:50], openings.train_x[[*range(50, 80), 60, 3]]  # one document twice, and one that was trained on
    labels, spec = openings.train_y[[*range(50, 80), 60, 3]], made_up("clusterbert", experiment="labels")
    task, trained = Task(train, None, test, labels, 4, 0, 0), []
    fit = short_texts.ClusterBERT.fit
    monkeypatch.setattr(short_texts.ClusterBERT, "fit", lambda self, texts, others, **rest: trained.append((texts, others)) or fit(self, texts, others, **rest))
    outcome = run_test_documents(spec, task, "cpu", None)
    assert trained == [(train.tolist(), test[:-2].tolist())]
    assert outcome.curve["stage"].unique().tolist() == [1, 2, 3]
    found = outcome.metrics
    assert set(found) == {"dbi", "sil", "chs", "nmi", "ari", "acc", *(f"{name}_{number}" for name in ("acc", "nmi") for number in range(4))}
    assert (found["acc_3"], found["nmi_3"]) == (found["acc"], found["nmi"])
    start = embeddings.embed(test.tolist(), "minilm-cls")
    assert found["acc_0"] == metrics.clustering_accuracy(labels, cluster(start, spec, 4)[0]), "before training it is MiniLM"
    assert found["nmi"] != found["nmi_0"]
    monkeypatch.setattr(short_texts.ClusterBERT, "_adapt", lambda self: pytest.fail("trained again"))
    again = run_test_documents(spec, replace(task, test_y=np.arange(32) % 4), "cpu", None).metrics
    assert {name for name in found if found[name] == again[name]} == {"dbi", "sil", "chs"}, "labels of test documents say nothing but the score"


def test_a_retrieval_run_ranks_by_the_embeddings_of_every_stage(openings, own_cache):
    ranked = run_retrieval(made_up("clusterbert", experiment="retrieval", task="denoise"), openings, "cpu", None)
    assert {f"mrr_{number}" for number in range(4)} <= set(ranked.metrics)
    assert ranked.metrics["mrr"] == ranked.metrics["mrr_3"]
    assert ranked.metrics["mrr_0"] > 0.3  # a guess among 80 has 0.06


def test_a_ranking_of_plain_vectors_is_that_of_the_retrieval_module(openings):
    found = run_retrieval(made_up(experiment="retrieval", embedding="tfidf", task="denoise"), openings, "cpu", None).metrics
    task = short_texts.rankings(made_up(task="denoise"), openings)["denoise"]
    assert found["queries"] == len(task.queries) == len(set(openings.train_x))
    assert found["map"] == found["mrr"] > 0.3


def test_a_run_that_diverges_says_so_and_has_no_scores(openings, own_cache, monkeypatch):
    monkeypatch.setattr(short_texts.ClusterBERT, "_adapt", lambda self: setattr(self, "diverged", "the loss was nan"))
    for model in ("tsdae", "clusterbert"):
        outcome = run_clusterbert(made_up(model), openings, "cpu", None)
        assert (outcome.status, outcome.reason, outcome.metrics) == ("diverged", "the loss was nan", {})


def test_stages_are_named_in_order():
    assert STAGES == ("start", "domain adaptation", "clustering", "hardening")


def test_a_full_run_embeds_all_rankings_at_hand_and_another_its_own_alone():
    task, spec = Task(np.array(["rain fell", "", "wind"], dtype=object), None, None, None, 2, 0, 0), made_up(experiment="retrieval", task="denoise")
    assert list(short_texts.rankings(spec, task)) == ["denoise"]
    found = short_texts.rankings(replace(spec, profile="full"), task)
    assert list(found) == [name for name in ("trecqa", "askubuntu") if data.locate(name)] + ["denoise"]
    assert found["denoise"].texts == ["rain fell", "wind"]  # what says nothing has no copy to be found by
