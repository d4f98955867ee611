"""The experiments of the ClusterBERT paper: what is in the grid, and each part of a run."""

from dataclasses import asdict, dataclass, replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.manifold import TSNE
from sklearn.metrics import normalized_mutual_info_score

from snnl_book import data, embeddings, experiments, methods, results
from snnl_book.embeddings.backbones import MAX_PIECES
from snnl_book.embeddings.transformers import embed_texts
from snnl_book.experiments import Task, maps, plan, runner, short_texts
from snnl_book.experiments.short_texts import (
    PAIRS,
    cluster,
    fine_tune,
    moved_pairs,
    run_retrieval,
    run_test_documents,
    run_vectors,
    score,
)
from snnl_book.methods import deep_clustering
from snnl_book.methods.clusterbert import ClusterBERT
from snnl_book.methods.retrieval import denoise, evaluate
from snnl_book.methods.sccl import SCCL
from snnl_book.recipes import STAGES, Recipe
from snnl_book.results import Spec
from snnl_lib import metrics
from snnl_lib.training import History, forward, named_seed

TINY = experiments.PROFILES["tiny"]
TITLES = ["read a file", "write a file", "open a large file", "close the file"]
TITLES += ["sort a list", "sort a long list", "reverse a list", "join two lists"]
LONG = [" ".join(f"w{i}.{j}" for j in range(100)) for i in range(200)]


def made_up(
    model="plain",
    clusterer="kmeans",
    experiment="clusterbert",
    embedding="minilm-cls",
    seed=3,
    **settings,
):
    own = {"clusterer": clusterer, "kmeans_starts": 3, "idec_updates": 2} | settings
    if model in ("tsdae", "clusterbert"):
        own = short_texts.recipe_settings(TINY) | own
    names = experiment, "tiny", "made up", embedding, model, 0, "none", seed, 100, 1
    return Spec(*names, tuple(sorted(own.items())))


def recorded(monkeypatch, spec, task):
    """The record that a run leaves of a task."""
    monkeypatch.setattr(runner, "load_task", lambda *args: task)
    monkeypatch.setattr(plan, "fingerprint", lambda *args: "made up")
    settings = dict(spec.settings) | {"n_test": None}
    return experiments.run(replace(spec, settings=tuple(sorted(settings.items()))), "cpu")


def blobs(classes=3, each=30, width=6):
    random, labels = np.random.default_rng(0), np.repeat(np.arange(classes), each)
    noise = random.normal(size=(classes * each, width))
    return (8 * np.eye(classes, width)[labels] + noise).astype(np.float32), labels


def task_of(rows, labels, classes, numbers=None):
    """A corpus that is clustered as a whole: its documents are its own test set."""
    numbers = np.arange(len(labels)) if numbers is None else numbers
    return Task(rows, labels, rows, labels, classes, 0, 0, numbers, numbers)


def vector_task():
    return task_of(*blobs(), 3)


# ---------------------------------------------------------------- the grid


def test_a_specs_recipe_has_the_pooling_of_its_embedding_and_all_else_from_its_settings():
    full = experiments.specs("clusterbert", seeds=[42])
    full = next(spec for spec in full if spec.model == "clusterbert")
    assert short_texts.recipe(full) == Recipe()
    mean = experiments.specs("clusterbert-ablation", seeds=[42])
    mean = next(spec for spec in mean if spec.get("reading") == "mean pooling")
    assert short_texts.recipe(mean) == Recipe(pooling="mean")


def test_longer_tsdae_takes_as_many_epochs_as_the_three_stages_of_clusterbert():
    for profile in ("full", "tiny"):
        found = experiments.specs("clusterbert-ablation", profile, seeds=[42])
        tuned = [spec for spec in found if spec.get("reading") == "mean pooling"]
        longer = [spec for spec in found if spec.model == "tsdae"]
        assert {spec.dataset for spec in longer} == {spec.dataset for spec in tuned}
        of_each = {short_texts.recipe(spec) for spec in tuned}
        passes = {
            made.adaptation_epochs
            + made.reclusterings * made.clustering_epochs
            + made.hardening_epochs
            for made in of_each
        }
        assert {short_texts.recipe(spec).adaptation_epochs for spec in longer} == passes
        if profile == "full":
            assert passes == {8}


# ---------------------------------------------------------------- clustering and scores


@pytest.mark.parametrize("clusterer", ["kmeans", "umap", "idec"])
def test_clusters_that_are_well_apart_are_found_each_way(clusterer):
    vectors, labels = blobs(each=60)
    spec = made_up(clusterer=clusterer, idec_updates=100)
    clusters, codes, start = cluster(vectors, spec, 3)
    assert metrics.clustering_accuracy(labels, clusters) == 1
    assert (start is None) == (clusterer != "idec")
    assert codes.shape == (180, 6 if clusterer == "kmeans" else 4)


def test_k_means_has_the_runs_seed_and_its_number_of_starts():
    # Without clusters, so that each start ends elsewhere.
    vectors = np.random.default_rng(0).normal(size=(200, 4))
    for seed in (3, 4):
        several, one = (
            KMeans(8, n_init=n, random_state=named_seed(seed, "kmeans")).fit_predict(vectors)
            for n in (3, 1)
        )
        np.testing.assert_array_equal(cluster(vectors, made_up(seed=seed), 8)[0], several)
        assert not np.array_equal(several, one)


@pytest.fixture
def asked(monkeypatch):
    """What UMAP, the autoencoder and IDEC are called with; stand-ins take their places."""
    calls = {"idec": [], "history": History(None), "autoencoder": object()}

    def fit_umap(vectors, seed, **settings):
        calls["umap"] = seed, settings
        return None, vectors[:, :4]

    def pretrain(vectors, code_size, **settings):
        calls["pretrain"] = code_size, settings
        calls["centre"] = vectors.mean(axis=0)
        return calls["autoencoder"], calls["history"]

    @dataclass
    class StandIn:
        k: int
        max_steps: int
        learning_rate: float
        seed: int
        device: str
        progress: str | None
        diverged = ""

        def fit(self, vectors, *, autoencoder):
            assert autoencoder is calls["autoencoder"]
            calls["idec"].append(self)
            return self

        def predict(self, vectors):
            return np.zeros(len(vectors), dtype=int)

        def transform(self, vectors):
            return vectors

    for name, stand_in in (("fit_umap", fit_umap), ("pretrain", pretrain), ("IDEC", StandIn)):
        monkeypatch.setattr(deep_clustering, name, stand_in)
    return calls


def test_umap_and_idec_are_set_as_the_paper_says_with_updates_for_any_number_of_texts(asked):
    spec = made_up(clusterer="umap-idec", idec_updates=150)
    for documents in (600, 5000):
        asked["idec"].clear()
        cluster(np.zeros((documents, 9)), spec, 7, "cpu", "a title")
        settings = {"n_components": 8, "n_neighbors": 15, "metric": "euclidean"}
        assert asked["umap"] == (named_seed(3, "umap"), settings)
        own = {"learning_rate": 1e-4, "seed": 3, "device": "cpu", "progress": "a title"}
        assert asked["pretrain"] == (8, own | {"normalize": True, "updates": 150})
        start, method = asked["idec"]
        assert asdict(start) == own | {"k": 7, "max_steps": 0}
        assert asdict(method) == own | {"k": 7, "max_steps": 150}


def test_idec_gets_a_centred_map_of_umap_and_other_vectors_as_they_are(asked):
    vectors = np.random.default_rng(0).normal(size=(60, 9)) + 7
    cluster(vectors, made_up(clusterer="umap-idec", idec_updates=9), 3)
    np.testing.assert_allclose(asked["centre"], 0, atol=1e-9)
    cluster(vectors, made_up(clusterer="idec", idec_updates=9), 3)
    np.testing.assert_allclose(asked["centre"], vectors.mean(axis=0))


def test_few_documents_have_fewer_neighbours_and_dimensions(asked):
    cluster(np.random.default_rng(0).normal(size=(9, 9)), made_up(clusterer="umap"), 8)
    assert asked["umap"][1] == {"n_components": 7, "n_neighbors": 8, "metric": "euclidean"}
    cluster(np.eye(9), made_up(clusterer="umap", embedding="tfidf"), 8)
    assert asked["umap"][1]["metric"] == "cosine"


def test_an_autoencoder_or_idec_that_diverges_is_the_runs_outcome_with_the_curve_so_far(
    asked, monkeypatch
):
    curve = pd.DataFrame({"epoch": [0], "loss": [np.nan]})
    for part in ("autoencoder", "idec"):
        asked["idec"].clear()
        asked["history"] = History(curve, "the loss was nan" if part == "autoencoder" else "")
        monkeypatch.setattr(deep_clustering.IDEC, "diverged", "the loss was nan")
        monkeypatch.setattr(deep_clustering.IDEC, "curve", curve, raising=False)
        record = recorded(monkeypatch, made_up(clusterer="idec"), vector_task())
        assert bool(asked["idec"]) == (part == "idec")
        assert (record.status, record.reason) == ("diverged", "the loss was nan")
        assert record.curve is curve
        assert np.isnan([record.metrics[name] for name in short_texts.METRICS]).all()


def test_equation_6_has_the_geometric_mean():
    vectors, labels = blobs()
    found = score(vectors, labels % 2, labels)
    by_scikit = normalized_mutual_info_score(labels, labels % 2, average_method="geometric")
    assert found["nmi_geometric"] == pytest.approx(by_scikit)
    assert found["nmi_geometric"] != pytest.approx(found["nmi"])


def test_repeated_vectors_do_not_make_the_dunn_index_zero():
    vectors, labels = blobs()
    doubled = np.concatenate([vectors, vectors[:5]])
    clusters = np.concatenate([labels, (labels[:5] + 1) % 3])  # the copies in another cluster
    assert metrics.dunn_index(doubled, clusters) == 0
    assert score(doubled, clusters, clusters)["dunn"] > 0
    clusters = np.concatenate([labels, labels[:5]])  # in the same: as if they were not there
    assert score(doubled, clusters, clusters)["dunn"] == pytest.approx(
        metrics.dunn_index(vectors, labels)
    )


def test_of_many_documents_only_the_external_scores_are_computed(monkeypatch):
    vectors, labels = blobs()
    monkeypatch.setattr(short_texts, "INDEX_LIMIT", len(vectors))
    assert score(vectors, labels, labels)["dunn"] > 0
    monkeypatch.setattr(short_texts, "INDEX_LIMIT", len(vectors) - 1)
    found = score(vectors, labels, labels)
    assert found["acc"] == found["nmi"] == 1
    assert np.isnan([found[name] for name in ("dbi", "sil", "chs", "dunn")]).all()


def test_clusters_are_scored_on_what_was_clustered_in_the_end(monkeypatch):
    task = vector_task()
    clusters, codes = task.train_y % 2, task.train_x[:, :2] ** 2

    def made(vectors, spec, k, device, progress):
        return clusters, codes, start

    monkeypatch.setattr(short_texts, "cluster", made)
    expected = score(codes, clusters, task.train_y)
    start = None
    assert run_vectors(made_up(clusterer="umap"), task, "cpu", None).metrics == expected
    start = task.train_y // 2  # two of the three classes together
    before = {"pretrained_acc": 2 / 3, "pretrained_nmi": pytest.approx(0.7337, abs=1e-4)}
    assert run_vectors(made_up(clusterer="idec"), task, "cpu", None).metrics == expected | before


def test_where_idec_starts_is_k_means_on_the_codes_of_normalised_vectors():
    vectors, labels = blobs()
    spec = made_up(clusterer="idec", idec_updates=30)
    settings = {"normalize": True, "updates": 30, "learning_rate": 1e-4, "seed": 3}
    start, _ = deep_clustering.pretrain(vectors, 4, **settings)
    scaled = vectors / np.sqrt(np.square(vectors).mean())
    codes = forward(start, scaled.astype(np.float32), layer="code")
    expected = KMeans(3, n_init=20, random_state=named_seed(3, "centroids")).fit_predict(codes)
    assert metrics.clustering_accuracy(expected, cluster(vectors, spec, 3)[2]) == 1
    found = run_vectors(spec, vector_task(), "cpu", None).metrics
    assert found["pretrained_acc"] == metrics.clustering_accuracy(labels, expected)


# ---------------------------------------------------------------- Table 5


def test_pairs_are_chosen_by_the_rule_each_text_once_a_kind():
    random = np.random.default_rng(1)
    before, after = random.normal(size=(2, 40, 5))
    labels, rows = random.integers(3, size=40), np.arange(100, 140)
    found = moved_pairs(before, after, labels, rows)
    assert found["kind"].tolist() == [kind for kind in PAIRS for _ in range(5)]
    for kind, own in found.groupby("kind"):
        assert len({*own["row"], *own["other"]}) == 10
        alike = labels[own["row"] - 100] == labels[own["other"] - 100]
        assert (alike == PAIRS[kind][0]).all()

    def cosines(vectors):
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit @ unit.T

    upper, same = np.triu(np.ones((40, 40), dtype=bool), 1), labels[:, None] == labels
    change, together = cosines(after) - cosines(before), np.minimum(cosines(before), cosines(after))
    first = found.drop_duplicates("kind").set_index("kind")
    gain = first["final"] - first["init"]
    assert gain["joined"] == pytest.approx(change[upper & same].max())
    assert gain["wrongly joined"] == pytest.approx(change[upper & ~same].max())
    assert gain["wrongly parted"] == pytest.approx(change[upper & same].min())
    assert gain["parted"] == pytest.approx(change[upper & ~same].min())
    nearest = first.loc["together", ["init", "final"]].min()
    assert nearest == pytest.approx(together[upper & same].max())


def test_equal_texts_are_no_pair_and_a_kind_can_have_none():
    before = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = moved_pairs(before, before[::-1].copy(), np.array([0, 0, 1]), np.arange(3))
    assert sorted(found["kind"]) == ["parted", "wrongly joined"]


# ---------------------------------------------------------------- fine-tuned, in small


# Some of them are documents, too.
RANKED = ["read a large file", "sort a file", "join the lists", "java", *TITLES[2:5]]
RANKED = denoise(RANKED, seed=1)


@pytest.fixture
def titles(roberta, own_cache, monkeypatch):
    """Eight titles to be clustered by a small RoBERTa, and one ranking task, of which three texts
    are among them.
    """
    monkeypatch.setattr(short_texts, "rankings", lambda spec, task: {"trecqa": RANKED})
    return task_of(np.array(TITLES, dtype=object), np.repeat([0, 1], 4), 2, np.arange(50, 58))


def test_a_full_run_scores_the_corpus_alone_after_each_stage_though_it_embeds_what_retrieval_needs(
    titles,
):
    spec = replace(made_up("clusterbert", embedding="roberta-base"), profile="full")
    outcome = run_vectors(spec, titles, "cpu", None)
    model, others, _ = fine_tune(spec, titles, "cpu", None)  # from what the run has left
    assert set(others) == {*RANKED.texts, *RANKED.queries} - set(TITLES)
    assert {len(own) for own in model.embeddings.values()} == {8 + len(others)}
    vectors = [own[:8] for own in model.embeddings.values()]
    for number, own in enumerate(vectors):
        expected = score(own, cluster(own, spec, 2)[0], titles.train_y)
        for name in ("acc", "sil", "dunn"):
            assert outcome.metrics[f"{name}_{number}"] == expected[name]
    head = metrics.clustering_accuracy(titles.train_y, model.clusters)
    assert outcome.metrics["head_acc"] == head
    moved = moved_pairs(vectors[1], vectors[3], titles.train_y, titles.train_rows)
    pd.testing.assert_frame_equal(outcome.points, moved)


def test_queries_and_candidates_are_ranked_by_their_own_embeddings(titles):
    spec = made_up("clusterbert", experiment="retrieval", embedding="roberta-base", task="trecqa")
    found = run_retrieval(spec, titles, "cpu", None).metrics
    model, *_ = fine_tune(spec, titles, "cpu", None)
    before = partial(embed_texts, name="roberta-base", pooling="cls")
    for stage, embed in ((0, before), (3, model.transform)):
        for name, values in evaluate(RANKED, embed).items():
            assert found[f"{name}_{stage}"] == pytest.approx(np.mean(values))
    assert (found["map"], found["mrr"]) == (found["map_3"], found["mrr_3"])
    assert found["map_0"] != found["map_3"]


def test_sccls_embeddings_are_made_once_for_each_seed_whatever_clusters_them(titles, monkeypatch):
    def spec(seed, clusterer="kmeans"):
        return made_up("sccl", clusterer, embedding="roberta-base-mean", seed=seed, steps=2)

    task = replace(titles, classes=3)
    expected = SCCL(3, "roberta-base", pooling="mean", steps=2, seed=3).fit(TITLES).embeddings
    found, seconds, _ = short_texts.contrast(spec(3), task, "cpu", None)
    np.testing.assert_array_equal(found, expected)
    other, *_ = short_texts.contrast(spec(4), task, "cpu", None)
    assert np.abs(other - expected).max() > 1e-6
    monkeypatch.setattr(
        methods, "SCCL", lambda *args, **settings: pytest.fail("it was trained again")
    )
    again, took, _ = short_texts.contrast(spec(3, "idec"), task, "cpu", None)
    np.testing.assert_array_equal(again, expected)
    assert took == seconds > 0, "those of the first"
    np.testing.assert_array_equal(short_texts.contrast(spec(4), task, "cpu", None)[0], other)
    assert run_vectors(spec(3), task, "cpu", None).shared_seconds == seconds
    record = recorded(monkeypatch, spec(3), task)
    assert record.metrics["shared_seconds"] == round(seconds, 2)


def test_an_sccl_that_diverges_is_not_kept(titles, monkeypatch):
    curve = pd.DataFrame({"step": [100]})
    model = SimpleNamespace(diverged="the loss was nan", curve=curve)
    untrained = SimpleNamespace(fit=lambda texts: model)
    monkeypatch.setattr(methods, "SCCL", lambda *args, **settings: untrained)
    for _ in range(2):
        spec = made_up("sccl", embedding="roberta-base", steps=2)
        record = recorded(monkeypatch, spec, titles)
        assert (record.status, record.reason) == ("diverged", "the loss was nan")
        assert record.curve is curve and "shared_seconds" not in record.metrics
        assert np.isnan([record.metrics[name] for name in short_texts.METRICS]).all()


# ---------------------------------------------------------------- real texts


@pytest.fixture(scope="module")
def openings(packages):
    """Eighty real texts that are always at hand."""
    corpus = data.load_dataset("newsgroups20_openings").train
    rows = np.random.default_rng(0).permutation(len(corpus))[:80]
    texts = np.array([corpus.texts[i] for i in rows], dtype=object)
    return task_of(texts, corpus.labels[rows], 20, rows)


@pytest.fixture(scope="module")
def shared_cache(packages, tmp_path_factory):
    """A cache with the real packages, in which tests find what others have trained."""
    folder = tmp_path_factory.mktemp("shared") / "cache"
    folder.mkdir()
    (folder / "packages").symlink_to(packages.resolve(), target_is_directory=True)
    return folder


@pytest.fixture
def trained_once(shared_cache, monkeypatch):
    monkeypatch.setenv("SNNL_CACHE", str(shared_cache))


@pytest.fixture
def trained_no_more(monkeypatch):
    """From the call on, no stage of ClusterBERT may be trained."""
    refuse = lambda self, stage: pytest.fail("a stage was carried out again")  # noqa: E731
    return lambda: monkeypatch.setattr(ClusterBERT, "_train_stage", refuse)


def test_a_run_of_clusterbert_scores_every_stage_and_goes_on_from_what_earlier_runs_left(
    openings, trained_once, trained_no_more
):
    tsdae = run_vectors(made_up("tsdae"), openings, "cpu", None)
    assert tsdae.curve["stage"].unique().tolist() == [1]
    outcome = run_vectors(made_up("clusterbert"), openings, "cpu", None)
    found, names = outcome.metrics, ("nmi_geometric", "acc", "sil", "dunn")
    assert {f"{name}_{number}" for name in names for number in range(4)} <= set(found)
    assert found["acc_1"] == tsdae.metrics["acc"]  # TSDAE is its first stage
    assert found["acc_3"] == found["acc"]
    assert 0 < found["head_acc"] <= 1
    assert found["cut"] == sum(len(text.split()) > MAX_PIECES for text in openings.train_x) == 0
    assert outcome.curve["stage"].unique().tolist() == [1, 2, 3]
    assert set(outcome.points["kind"]) <= set(PAIRS)
    assert set(outcome.points["row"]) <= set(openings.train_rows)
    trained_no_more()
    again = run_vectors(made_up("clusterbert", "idec"), openings, "cpu", None)
    assert again.status == "ok"


@pytest.mark.slow  # maps of texts have tests of their own
def test_figure_1_maps_the_same_sentences_after_each_stage_of_one_training(
    openings, trained_once, monkeypatch
):
    specs = experiments.specs("tsne", "tiny", "bbc_sentences", 3)
    assert [spec["reading"] for spec in specs] == list(STAGES)
    trained = short_texts.fine_tune(specs[0], openings, "cpu", None)[0]
    monkeypatch.setattr(ClusterBERT, "_epoch", None)  # the stages come from the checkpoint
    settings = {"init": "pca", "random_state": named_seed(3, "t-SNE"), "n_jobs": 1}
    for spec, name in zip(specs, STAGES, strict=True):
        outcome = maps.run_tsne(spec, openings, "cpu", None)
        mapping = TSNE(max_iter=spec["iterations"], **settings)
        wanted = mapping.fit_transform(trained.embeddings[name][:80])
        np.testing.assert_allclose(outcome.points[["x", "y"]], wanted)
        assert outcome.points["row"].tolist() == openings.test_rows.tolist()
        assert outcome.points["label"].tolist() == openings.test_y.tolist()


def test_clusters_of_test_documents_come_from_a_model_that_saw_no_label_and_other_documents(
    openings, own_cache, monkeypatch, trained_no_more
):
    # One document twice, and one that was trained on.
    chosen = [*range(50, 80), 60, 3]
    train, test, labels = (
        part[rows]
        for part, rows in (
            (openings.train_x, slice(50)),
            (openings.train_x, chosen),
            (openings.train_y, chosen),
        )
    )
    spec, trained, fit = made_up("clusterbert", experiment="labels"), [], ClusterBERT.fit
    task = Task(train, None, test, labels, 4, 0, 0)

    def noting(self, texts, *, others, **rest):
        trained.append((texts, others))
        return fit(self, texts, others=others, **rest)

    monkeypatch.setattr(ClusterBERT, "fit", noting)
    outcome = run_test_documents(spec, task, "cpu", None)
    assert trained == [(train.tolist(), test[:-2].tolist())]
    assert outcome.curve["stage"].unique().tolist() == [1, 2, 3]
    found, internal = outcome.metrics, {"dbi", "sil", "chs"}
    of_stages = {f"{name}_{number}" for name in ("acc", "nmi") for number in range(4)}
    assert set(found) == {*internal, "nmi", "ari", "acc", *of_stages}
    assert (found["acc_3"], found["nmi_3"]) == (found["acc"], found["nmi"])
    start = embeddings.embed(test.tolist(), "minilm-cls")
    before = metrics.clustering_accuracy(labels, cluster(start, spec, 4)[0])
    assert found["acc_0"] == before, "before training it is MiniLM"
    assert found["nmi"] != found["nmi_0"]
    trained_no_more()
    again = run_test_documents(spec, replace(task, test_y=np.arange(32) % 4), "cpu", None).metrics
    # Labels of test documents say nothing but the score.
    assert {name for name in found if found[name] == again[name]} == internal


def test_a_run_that_diverges_says_so_and_has_no_scores(openings, own_cache, monkeypatch):
    def diverging(self, stage):
        self.diverged = "the loss was nan"

    monkeypatch.setattr(ClusterBERT, "_train_stage", diverging)
    for model in ("tsdae", "clusterbert"):
        record = recorded(monkeypatch, made_up(model), openings)
        assert (record.status, record.reason) == ("diverged", "the loss was nan")
        assert np.isnan([record.metrics[name] for name in short_texts.METRICS]).all()


def test_a_full_run_embeds_all_rankings_at_hand_and_another_its_own_alone():
    texts = np.array(["rain fell", "", "wind"], dtype=object)
    task = Task(texts, None, None, None, 2, 0, 0)
    spec = made_up(experiment="retrieval", task="denoise")
    assert list(short_texts.rankings(spec, task)) == ["denoise"]
    long = replace(task, train_x=LONG)
    noised = (short_texts.rankings(replace(spec, seed=seed), long) for seed in (3, 3, 4))
    assert len({tuple(each["denoise"].queries) for each in noised}) == 2  # the seed settles them
    found = short_texts.rankings(replace(spec, profile="full"), task)
    at_hand = [name for name in ("trecqa", "askubuntu") if data.locate(name)]
    assert list(found) == [*at_hand, "denoise"]
    # What says nothing has no copy to be found by.
    assert found["denoise"].texts == ["rain fell", "wind"]


def test_a_rankings_own_data_tell_the_records_of_its_runs_apart_and_no_others(
    packages, own_cache, results_folder, monkeypatch
):
    form, there = data.describe("trecqa").forms[0], data.locate
    found = {"trecqa": (form, None, "made up")}
    monkeypatch.setattr(data, "locate", lambda name: found[name] if name in found else there(name))
    monkeypatch.setattr(data, "load_retrieval", lambda name: denoise(["rain fell again", "wind"]))
    asked = "retrieval", "tiny", "newsgroups20_openings", 42
    (spec, *_) = (
        spec
        for spec in experiments.specs(*asked)
        if (spec.embedding, spec["task"]) == ("tfidf", "trecqa")
    )
    plain = experiments.fingerprint(spec.dataset, "tfidf")
    # Made of the corpus's own texts.
    assert experiments.fingerprint(spec.dataset, "tfidf", "denoise") == plain
    record = experiments.run(spec, "cpu")
    assert record.status == "ok" and record.fingerprint == f"{plain}-{form.fingerprint}"
    results.write_record(record)
    # Where the ranking task is unavailable, a record made elsewhere counts.
    another = replace(form, content="another edition"), None, "made up"
    for there_is, verdict in ((found["trecqa"], "done"), (another, "missing"), (None, "done")):
        found["trecqa"] = there_is
        rows = experiments.status(*asked)
        assert {row.verdict for row in rows if row.spec == spec} == {verdict}
