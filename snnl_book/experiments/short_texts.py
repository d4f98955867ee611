"""The ClusterBERT paper: short texts, clustered without labels.

The rows go from word counts to a transformer fine-tuned in three stages. Further experiments leave
out the reconstruction, and test whether embeddings keep their meaning. Where the paper is silent,
``CHOICES`` and ``recipes.Recipe`` say what we chose.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial

import numpy as np

from snnl_book import data, embeddings
from snnl_book.experiments.cells import Cell, Experiment, choices
from snnl_book.experiments.codes import kmeans, pretrained_scores
from snnl_book.recipes import Recipe
from snnl_book.results import Outcome, Spec
from snnl_lib.seeds import named_seed

CHOICES = choices("short-texts")
"""Our choices where the ClusterBERT paper says nothing."""

DATASETS = {
    "stackoverflow": "StackOverflow",
    "biomedical": "Biomedical",
    "searchsnippets": "SearchSnippets",
    "bbc_sentences": "BBC News",
    "googlenews": "GoogleNews",
    "ag_news_descriptions": "AG News",
    "newsgroups20_openings": "20 Newsgroups",
}
"""The corpora, and their names in figures."""

WORD_VECTORS = ("tfidf", "sif", "sif-corpus")
TFIDF_REVISION = 3  # since then no processor decides which of equally frequent words count
UMAP_IDEC_REVISION = 3  # since then UMAP's map is centred for IDEC
START = "minilm-cls"  # where ClusterBERT starts from
PLAIN = {
    "tfidf": "TF-IDF",
    "sif": "SIF",
    "sif-corpus": "SIF, own vectors",
    "minilm": "MiniLM, mean",
    START: "MiniLM",
    "roberta-base": "RoBERTa",
    "nli-roberta-base": "SBERT",
    "vascl-roberta-large": "VaSCL",
}
PUBLISHED = ("roberta-base", "nli-roberta-base", "vascl-roberta-large")
TRAINED = {"tsdae": "TSDAE", "clusterbert": "ClusterBERT", "sccl": "SCCL"}
CLUSTERERS = {
    "kmeans": "k-means",
    "idec": "IDEC",
    "umap": "UMAP + k-means",
    "umap-idec": "UMAP + IDEC",
}
RANKINGS = ("trecqa", "askubuntu")
CLUSTERING_ALONE = {"clustering_weight": 1, "hardening_weight": 1}  # without reconstruction
SCCL_NEEDS = "five hours on a CPU core"  # for 2,000 texts
INDEX_LIMIT = 10_000  # documents above which the indices of their distances are not computed

# ---------------------------------------------------------------- cells


def recipe_settings(profile: dict, **changes) -> dict:
    """Return the settings of ``Recipe``, but for the pooling, which the embedding names."""
    settings = asdict(replace(Recipe(), **profile["short_recipe"])) | changes
    return {name: value for name, value in settings.items() if name != "pooling"}


def clusterer_settings(profile: dict, *names) -> Iterator[tuple[str, dict]]:
    """Yield for each clusterer the suffix of a row's label, and the settings."""
    for name in names:
        settings = {"clusterer": name}
        if name != "kmeans":
            settings["reading"] = CLUSTERERS[name]
        size = "idec_updates" if name.endswith("idec") else "kmeans_starts"
        suffix = "" if name == "kmeans" else f", {CLUSTERERS[name]}"
        yield suffix, settings | {size: profile[size]}


def clusterbert_cells(profile: dict) -> Iterator[Cell]:
    """Yield the cells of Tables 2 and 3 and Figure 3, on the same documents for all methods.

    Methods without training also run on all documents; those with training do in profile full.
    """
    for dataset in DATASETS:
        yield from _plain_cells(profile, dataset)
        yield from _trained_cells(profile, dataset)
        yield from _sccl_cells(profile, dataset)


def _cell(label, embedding, model, dataset, settings, **fields):
    """Make a cell of the experiment clusterbert, with the revision of its vectors or clusterer."""
    revision = TFIDF_REVISION if embedding == "tfidf" else None
    if settings["clusterer"] == "umap-idec":
        revision = UMAP_IDEC_REVISION
    fields |= {"dataset": dataset, "revision": revision}
    return Cell(label, embedding, model, 0, settings, **fields)


def _plain_cells(profile, dataset):
    """Yield the cells of embeddings that are clustered as they are."""
    for embedding, label in PLAIN.items():
        cell = partial(_cell, embedding=embedding, model="plain", dataset=dataset)
        for suffix, settings in clusterer_settings(profile, "kmeans", "umap"):
            yield cell(label + suffix, settings=settings, n_train=profile["short_all"])
        for suffix, settings in clusterer_settings(profile, *CLUSTERERS):
            n_train = profile["short_documents"]
            yield cell(label + suffix, settings=settings, n_train=n_train, seeds=3)


def _trained_cells(profile, dataset):
    """Yield the cells of TSDAE and ClusterBERT."""
    needs = profile["all_needs"]
    for model in ("tsdae", "clusterbert"):
        cell = partial(_cell, embedding=START, model=model, dataset=dataset)
        for suffix, settings in clusterer_settings(profile, *CLUSTERERS):
            label = TRAINED[model] + suffix
            settings = settings | recipe_settings(profile)
            yield cell(label, settings=settings, n_train=profile["short_documents"], seeds=3)
            if needs:
                yield cell(label, settings=settings, n_train=profile["short_all"], needs=needs)


def _sccl_cells(profile, dataset):
    """Yield the cells of SCCL: on all documents where it takes hours, else on some."""
    needs = profile["sccl_needs"]
    some = profile["short_documents"]
    cell = partial(_cell, embedding="minilm", model="sccl", dataset=dataset)
    for suffix, settings in clusterer_settings(profile, *CLUSTERERS):
        label = TRAINED["sccl"] + suffix
        settings = settings | {"steps": profile["sccl_steps"]}
        n_train = profile["short_all"] if needs else some
        yield cell(label, settings=settings, n_train=n_train, needs=needs)
        if needs and not suffix and dataset != "newsgroups20_openings":
            fields = {"n_train": some, "seeds": 3, "needs": SCCL_NEEDS}
            yield cell(label, settings=settings, **fields)


def ablation_cells(profile: dict) -> Iterator[Cell]:
    """Yield the cells of Figure 4, left, and cells that change one other choice at a time."""
    _, clusterer = next(clusterer_settings(profile, "kmeans"))
    for dataset in DATASETS:

        def cell(reading, embedding=START, dataset=dataset, seeds=3, **changes):
            settings = clusterer | {"reading": reading} | recipe_settings(profile, **changes)
            fields = {"seeds": seeds, "n_train": profile["short_documents"], "dataset": dataset}
            label = f"ClusterBERT, {reading}"
            return Cell(label, embedding, "clusterbert", 0, settings, **fields)

        yield cell("without reconstruction", **CLUSTERING_ALONE)
        stages = {"warm_up": 0, "adaptation_epochs": 0}
        yield cell("without stage 1 and reconstruction", **stages, **CLUSTERING_ALONE)
        yield cell("mean pooling", embedding="minilm")
        yield cell("batches of 8", seeds=1, batch_size=8)
        yield _longer_cell(profile, dataset, clusterer)
        if profile["short_recipe"]:  # the paper's grid is one of the full profile
            continue
        for turns in (1, 2):
            for epochs in (2, 4):
                if (turns, epochs) != (Recipe.reclusterings, Recipe.clustering_epochs):
                    reading = f"{turns} clusterings, {epochs} epochs each"
                    grid = {"reclusterings": turns, "clustering_epochs": epochs}
                    yield cell(reading, seeds=1, **grid)


def _longer_cell(profile, dataset, clusterer):
    """Return the cell of TSDAE with as many epochs as ClusterBERT takes in its three stages.

    It tells what stages 2 and 3 add from what longer training does.
    """
    made = replace(Recipe(), **profile["short_recipe"])
    clustering = made.reclusterings * made.clustering_epochs
    epochs = made.adaptation_epochs + clustering + made.hardening_epochs
    settings = recipe_settings(profile, adaptation_epochs=epochs)
    settings |= clusterer | {"reading": "as many epochs as ClusterBERT"}
    fields = {"seeds": 3, "n_train": profile["short_documents"], "dataset": dataset}
    label = "TSDAE, as many epochs as ClusterBERT"
    return Cell(label, START, "tsdae", 0, settings, **fields)


def retrieval_cells(profile: dict) -> Iterator[Cell]:
    """Yield the cells of Figure 4, right: are embeddings worse without reconstruction?"""
    for dataset in DATASETS:
        fields = {"n_train": profile["short_documents"], "dataset": dataset, "seeds": 3}
        for task in (*RANKINGS, "denoise"):
            for embedding in (*WORD_VECTORS, "minilm", START):
                settings = {"task": task, "reading": task}
                label = f"{PLAIN[embedding]}, {task}"
                # Since revision 2 other texts are denoised.
                revision = TFIDF_REVISION if embedding == "tfidf" else 1 + (task == "denoise")
                yield Cell(label, embedding, "plain", 0, settings, **fields, revision=revision)
            for with_or_without, changes in (("with", {}), ("without", CLUSTERING_ALONE)):
                reading = f"{with_or_without} reconstruction, {task}"
                settings = {"task": task, "reading": reading} | recipe_settings(profile, **changes)
                yield Cell(f"ClusterBERT, {reading}", START, "clusterbert", 0, settings, **fields)


# ---------------------------------------------------------------- clustering vectors


def cluster(vectors: np.ndarray, spec: Spec, k: int, device="cpu", progress=None):
    """Cluster vectors [N, D] by the clusterer of a spec.

    Returns (clusters [N], the vectors [N, d] that were clustered, start). The start of IDEC are the
    clusters [N] that its training begins with; for other clusterers it is None.
    """
    from snnl_book.methods.deep_clustering import IDEC, fit_umap, pretrain
    from snnl_lib.training import raise_if_diverged

    if spec["clusterer"].startswith("umap"):
        _, vectors = fit_umap(
            vectors,
            named_seed(spec.seed, "umap"),
            n_components=min(k + 1, len(vectors) - 2),
            n_neighbors=min(15, len(vectors) - 1),
            # By Euclidean distance, a text without a counted word is the nearest to all others.
            metric="cosine" if spec.embedding == "tfidf" else "euclidean",
        )
    if not spec["clusterer"].endswith("idec"):
        return kmeans(spec, k).fit_predict(vectors), vectors, None
    if spec["clusterer"] == "umap-idec":
        # UMAP's map has an offset far larger than its spread, which IDEC's scaling does not remove.
        vectors = vectors - vectors.mean(axis=0)
    updates = spec["idec_updates"]
    settings = {"learning_rate": 1e-4, "seed": spec.seed, "device": device, "progress": progress}
    autoencoder, history = pretrain(vectors, k + 1, normalize=True, updates=updates, **settings)
    raise_if_diverged(history)
    idec = IDEC(k, max_steps=updates, **settings)
    start = replace(idec, max_steps=0).fit(vectors, autoencoder=autoencoder).predict(vectors)
    raise_if_diverged(idec.fit(vectors, autoencoder=autoencoder))
    return idec.predict(vectors), idec.transform(vectors), start


def clustered(vectors, labels, spec: Spec, k: int, device="cpu", progress=None):
    """Cluster vectors [N, D] as ``cluster`` does, and score the clusters.

    Returns (scores, answers); both include the start of IDEC as ``pretrained_...``.
    """
    clusters, codes, start = cluster(vectors, spec, k, device, progress)
    scores = score(codes, clusters, labels)
    answers = {"": clusters}
    if start is not None:
        scores.update(pretrained_scores(start, labels))
        answers["pretrained_"] = start
    return scores, answers


def score(vectors: np.ndarray, clusters: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Score clusters [N] of vectors [N, D].

    Returns the metrics of ``clustering_scores``, ``nmi_geometric`` (Eq. 6) and ``dunn``. Above
    ``INDEX_LIMIT`` vectors only the external scores are computed, and the others are nan.
    """
    from sklearn.metrics import normalized_mutual_info_score

    from snnl_lib import metrics

    if len(vectors) <= INDEX_LIMIT:
        scores = metrics.clustering_scores(vectors, clusters, labels)
        _, distinct = np.unique(vectors, axis=0, return_index=True)
        scores["dunn"] = metrics.dunn_index(vectors[distinct], clusters[distinct])
    else:
        scores = dict.fromkeys(("dbi", "sil", "chs", "dunn"), np.nan)
        scores.update(metrics.external_scores(clusters, labels))
    nmi = normalized_mutual_info_score(labels, clusters, average_method="geometric")
    return scores | {"nmi_geometric": float(nmi)}


# ---------------------------------------------------------------- fine-tuning


def recipe(spec: Spec) -> Recipe:
    """Return the recipe of a run of ClusterBERT."""
    _, pooling = embeddings.backbones.parse(spec.embedding)
    settings = {name: spec[name] for name in asdict(Recipe()) if name != "pooling"}
    return Recipe(pooling=pooling, **settings)


def rankings(spec: Spec, task) -> dict:
    """Return the ranking tasks whose texts a run embeds, as name -> ``data.Retrieval``.

    In the full profile, and for a run without a task of its own, these are all that are on this
    machine: those of ``RANKINGS``, and ``denoise`` of the run's documents.
    """
    from snnl_book.methods.retrieval import denoise

    names = [*(name for name in RANKINGS if data.locate(name)), "denoise"]
    if spec.get("task") and spec.profile != "full":
        names = [spec["task"]]
    documents = [text for text in task.train_x if text.split()]
    seed = named_seed(spec.seed, "denoise")
    return {
        name: denoise(documents, seed=seed) if name == "denoise" else data.load_retrieval(name)
        for name in names
    }


def contrast(spec: Spec, task, device, progress) -> tuple[np.ndarray, float, float]:
    """Return SCCL's embeddings [N, D] of a run's texts, from the cache or newly trained.

    Runs that differ only in their clusterer share them. Returns (embeddings, seconds of their
    training, seconds of this call). Raises Diverged.
    """
    import torch

    from snnl_book import cache
    from snnl_book.methods import SCCL
    from snnl_lib.training import raise_if_diverged

    name, pooling = embeddings.backbones.parse(spec.embedding)
    settings = {"pooling": pooling, "steps": spec["steps"], "seed": spec.seed, "device": device}
    facts = settings | {
        "method": "sccl",
        "k": task.classes,
        "torch": torch.__version__,
        "backbone": embeddings.backbones.cache_key(name),
        "revision": spec.revision,
        "texts": list(task.train_x),
    }
    path = data.cache_dir() / "sccl" / f"{spec.dataset}-{cache.key(facts)}.bin"

    def compute():
        under_way = path.with_suffix(".under-way.pt")
        model = SCCL(task.classes, name, **settings, progress=progress, checkpoint=under_way)
        return torch.from_numpy(raise_if_diverged(model.fit(list(task.train_x))).embeddings)

    started = time.perf_counter()
    vectors, seconds = cache.cached(path, compute)
    return vectors.numpy(), seconds, time.perf_counter() - started


def fine_tune(spec: Spec, task, device, progress, others=None):
    """Return a backbone fine-tuned as a spec asks, from the cache or newly trained.

    ``others`` are texts that the model embeds after each stage, besides those it is trained on. By
    default they are the texts of ``rankings`` for runs of ``retrieval``, and for all runs of the
    full profile, so that a later run of ``retrieval`` need not train again.

    Returns (model, the other texts, each once, seconds of this call). Raises Diverged.
    """
    from snnl_book.methods import ClusterBERT
    from snnl_lib.training import raise_if_diverged

    if others is None:
        others = []
        if spec.profile == "full" or spec.experiment == "retrieval":
            for ranking in rankings(spec, task).values():
                others += [*ranking.queries, *ranking.texts]
    trained_on = set(task.train_x)
    others = [text for text in dict.fromkeys(others) if text not in trained_on]
    name, _ = embeddings.backbones.parse(spec.embedding)
    started = time.perf_counter()
    model = ClusterBERT(
        task.classes,
        name,
        recipe(spec),
        seed=spec.seed,
        device=device,
        progress=progress,
        folder=data.cache_dir() / "clusterbert",
    )
    model.fit(list(task.train_x), others=others, stages=1 if spec.model == "tsdae" else 3)
    return raise_if_diverged(model), others, time.perf_counter() - started


# ---------------------------------------------------------------- runs


def run_vectors(spec: Spec, task, device, progress):
    """Make vectors of a corpus, cluster them and score the clusters.

    With k-means a run of ClusterBERT also has each score after each stage, such as
    ``nmi_geometric_0`` (Fig. 3), those of the head's own clusters (``head_acc``,
    ``head_nmi_geometric``), and as points the pairs of texts that moved most (Table 5).
    """
    labels, k = task.train_y, task.classes
    if spec.model == "plain":
        scores, answers = clustered(task.train_x, labels, spec, k, device, progress)
        return Outcome(scores, answers=answers)
    if spec.model == "sccl":
        vectors, seconds, waited = contrast(spec, task, device, progress)
        scores, answers = clustered(vectors, labels, spec, k, device, progress)
        return Outcome(scores, shared_seconds=seconds, waited=waited, answers=answers)
    model, _, waited = fine_tune(spec, task, device, progress)
    stages = [vectors[: len(task.train_x)] for vectors in model.embeddings.values()]
    scores, answers = clustered(stages[-1], labels, spec, k, device, progress)
    points = None
    if spec.model == "clusterbert" and spec["clusterer"] == "kmeans":
        last = scores, answers[""]
        stage_scores, stage_answers = _scores_of_stages(stages, last, labels, spec, k)
        scores.update(stage_scores)
        answers.update(stage_answers)
        head = score(stages[-1], model.clusters, labels)
        scores["head_acc"] = head["acc"]
        scores["head_nmi_geometric"] = head["nmi_geometric"]
        answers["head_"] = model.clusters
        scores["cut"] = float(model.pieces.cut)
        if len(task.train_x) <= INDEX_LIMIT:
            points = moved_pairs(stages[1], stages[3], labels, task.train_rows)
    shared = {"shared_seconds": model.seconds, "waited": waited}
    return Outcome(scores, model.curve, points=points, answers=answers, **shared)


def _scores_of_stages(stages, last, labels, spec, k):
    """Cluster the vectors of each stage, and return scores and answers with the stage's number.

    ``last`` are the scores and the clusters of the last stage, which are not computed again.
    """
    scores = {}
    answers = {}
    for stage, vectors in enumerate(stages):
        if stage == len(stages) - 1:
            of_stage, clusters = last
        else:
            of_stage, stage_answers = clustered(vectors, labels, spec, k)
            clusters = stage_answers[""]
        for name in ("nmi_geometric", "acc", "sil", "dunn"):
            scores[f"{name}_{stage}"] = of_stage[name]
        answers[f"_{stage}"] = clusters
    return scores, answers


def run_test_documents(spec: Spec, task, device, progress):
    """Fine-tune on a corpus's training documents, without labels, and cluster its test documents.

    Returns the scores after the last stage, and ``acc`` and ``nmi`` also after each stage.
    """
    from snnl_lib import metrics

    model, others, waited = fine_tune(spec, task, device, progress, task.test_x)
    row_of = {text: row for row, text in enumerate([*task.train_x, *others])}
    rows = [row_of[text] for text in task.test_x]
    scores = {}
    answers = {}
    for stage, vectors in enumerate(model.embeddings.values()):
        clusters, codes, _ = cluster(vectors[rows], spec, task.classes)
        of_stage = metrics.clustering_scores(codes, clusters, task.test_y)
        scores[f"acc_{stage}"] = of_stage["acc"]
        scores[f"nmi_{stage}"] = of_stage["nmi"]
        answers[f"_{stage}"] = clusters
        answers[""] = clusters
    shared = {"shared_seconds": model.seconds, "waited": waited}
    return Outcome(scores | of_stage, model.curve, answers=answers, **shared)


def run_retrieval(spec: Spec, task, device, progress):
    """Rank candidates by an embedding's cosines, and score the rankings.

    The scores are ``map`` and ``mrr``, for ClusterBERT also after each stage (``map_0`` to
    ``map_3``).
    """
    from snnl_book.methods.retrieval import evaluate

    def outcome(scores_of_queries, **fields):
        answers = {name: np.array(values) for name, values in scores_of_queries.items()}
        scores = {name: float(np.mean(values)) for name, values in answers.items()}
        scores["queries"] = len(ranking.queries)
        return Outcome(scores, answers=answers, **fields)

    ranking = rankings(spec, task)[spec["task"]]
    if spec.model == "plain":
        embed = partial(embeddings.embed, method=spec.embedding, device=device)
        return outcome(evaluate(ranking, embed))
    model, others, waited = fine_tune(spec, task, device, progress)
    row_of = {text: row for row, text in enumerate([*task.train_x, *others])}
    of_queries = {}
    for stage, vectors in enumerate(model.embeddings.values()):
        of_stage = evaluate(
            ranking, lambda texts, vectors=vectors: vectors[[row_of[text] for text in texts]]
        )
        for name, values in of_stage.items():
            of_queries[f"{name}_{stage}"] = values
    shared = {"shared_seconds": model.seconds, "waited": waited}
    return outcome(of_queries | of_stage, curve=model.curve, **shared)


PAIRS = {
    "together": (True, 0, "close before and after, as they should be"),
    "joined": (True, 1, "same class, the largest gains"),
    "wrongly joined": (False, 1, "different classes, the largest gains"),
    "wrongly parted": (True, -1, "same class, the largest losses"),
    "parted": (False, -1, "different classes, the largest losses"),
}
"""Table 5: five kinds of pairs, by whether the classes agree and by how their cosine changed."""
PAIRS_OF_A_KIND = 5


def moved_pairs(before, after, labels, rows):
    """Choose five pairs of texts of each kind for Table 5, from embeddings [N, D].

    Of each kind these are the pairs whose cosine changes the most from ``before`` to ``after``; of
    the kind ``together`` those whose smaller cosine is the largest. No text occurs twice in a kind,
    and equal texts (with a cosine of 1 before, to 6 digits) are no pair. Returns a frame with the
    columns kind, row, other, and the cosines ``init`` and ``final``.
    """
    import pandas as pd

    columns = ["kind", "row", "other", "init", "final"]
    unit = [vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (before, after)]
    init, final = (vectors @ vectors.T for vectors in unit)
    upper = np.triu(np.ones_like(init, dtype=bool), 1) & (init < 1 - 1e-6)
    same_class = labels[:, None] == labels
    pairs = []
    for kind, (classes_agree, direction, _) in PAIRS.items():
        rank = direction * (final - init) if direction else np.minimum(init, final)
        rank = np.where(upper & (same_class == classes_agree), rank, -np.inf)
        for _ in range(PAIRS_OF_A_KIND):
            i, j = np.unravel_index(rank.argmax(), rank.shape)
            if not np.isfinite(rank[i, j]):
                break
            pairs.append((kind, rows[i], rows[j], init[i, j], final[i, j]))
            for index in (i, j):
                rank[index] = -np.inf
                rank[:, index] = -np.inf
    return pd.DataFrame(pairs, columns=columns)


METRICS = ("dbi", "sil", "chs", "nmi", "nmi_geometric", "ari", "acc", "dunn")
_TABLES = "Short texts clustered without labels (ClusterBERT paper, Tables 2-3, Figure 3, Table 5)"
_ABLATION = "ClusterBERT without reconstruction (Figure 4), and what its paper leaves open"
_RETRIEVAL = "Does an embedding keep the meaning of its text? (ClusterBERT paper, Figure 4)"
EXPERIMENTS = {
    # Since revision 2 the texts are in random order, UMAP breaks ties at random, and IDEC is as
    # published.
    "clusterbert": Experiment(_TABLES, METRICS, clusterbert_cells, run_vectors, 2),
    "clusterbert-ablation": Experiment(_ABLATION, METRICS, ablation_cells, run_vectors, 2),
    "retrieval": Experiment(_RETRIEVAL, ("map", "mrr"), retrieval_cells, run_retrieval, 2),
}
