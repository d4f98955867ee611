"""The ClusterBERT paper: short texts clustered without labels, from word counts to a transformer
fine-tuned in three stages; what reconstruction is good for; and whether embeddings keep their
meaning.

Where the paper is silent the choice is made in ``CHOICES`` here and in ``recipes.Recipe``.
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
CLUSTERERS = {"kmeans": "k-means", "idec": "IDEC", "umap": "UMAP + k-means"}
CLUSTERERS |= {"umap-idec": "UMAP + IDEC"}
RANKINGS = ("trecqa", "askubuntu")
ALONE = {"clustering_weight": 1, "hardening_weight": 1}  # without reconstruction
SCCL_NEEDS, SCCL_SECONDS = "five hours on a CPU core", 19_200  # of 2,000 texts
INDEX_LIMIT = 10_000  # documents above which the indices of their distances are not computed

# ---------------------------------------------------------------- cells


def recipe_settings(profile: dict, **changes) -> dict:
    """Return the settings of ``Recipe``, but for the pooling, which the embedding names."""
    settings = asdict(replace(Recipe(), **profile["short_recipe"])) | changes
    return {name: value for name, value in settings.items() if name != "pooling"}


def clusterer_settings(profile: dict, *names) -> Iterator[tuple[str, dict]]:
    """Yield for each clusterer what it adds to a row's label, and its settings."""
    for name in names:
        settings = {"clusterer": name}
        if name != "kmeans":
            settings["reading"] = CLUSTERERS[name]
        size = "idec_updates" if name.endswith("idec") else "kmeans_starts"
        added = "" if name == "kmeans" else f", {CLUSTERERS[name]}"
        yield added, settings | {size: profile[size]}


def clusterbert_cells(profile: dict) -> Iterator[Cell]:
    """Yield the cells of Tables 2 and 3 and Figure 3, on the same documents for all methods.

    Methods without training also run on all documents; those with training do in profile full.
    """
    some, every, hours = (profile[name] for name in ("short_documents", "short_all", "all_needs"))
    for dataset in DATASETS:
        cell = partial(Cell, alpha=0, dataset=dataset)
        for embedding, label in PLAIN.items():
            plain = partial(cell, embedding=embedding, model="plain")
            for added, settings in clusterer_settings(profile, "kmeans", "umap"):
                yield plain(label + added, settings=settings, n_train=every)
            for added, settings in clusterer_settings(profile, *CLUSTERERS):
                yield plain(label + added, settings=settings, n_train=some, seeds=3)
        for model in ("tsdae", "clusterbert"):
            trained = partial(cell, embedding=START, model=model)
            for added, settings in clusterer_settings(profile, *CLUSTERERS):
                label, settings = TRAINED[model] + added, settings | recipe_settings(profile)
                yield trained(label, settings=settings, n_train=some, seeds=3)
                if hours:
                    yield trained(label, settings=settings, n_train=every, needs=hours)
        for added, settings in clusterer_settings(profile, *CLUSTERERS):
            label, needs = TRAINED["sccl"] + added, profile["sccl_needs"]
            settings |= {"steps": profile["sccl_steps"]}
            n_train = every if needs else some
            contrasted = partial(cell, embedding="minilm", model="sccl")
            yield contrasted(label, settings=settings, n_train=n_train, needs=needs)
            if needs and not added and dataset != "newsgroups20_openings":
                more = {"n_train": some, "seeds": 3, "needs": SCCL_NEEDS, "seconds": SCCL_SECONDS}
                yield contrasted(label, settings=settings, **more)


def ablation_cells(profile: dict) -> Iterator[Cell]:
    """Yield the cells of Figure 4, left, and cells that change one other choice at a time."""
    _, clusterer = next(clusterer_settings(profile, "kmeans"))
    for dataset in DATASETS:

        def cell(reading, embedding=START, dataset=dataset, seeds=3, **changes):
            settings = clusterer | {"reading": reading} | recipe_settings(profile, **changes)
            label, some = f"ClusterBERT, {reading}", profile["short_documents"]
            more = {"seeds": seeds, "n_train": some, "dataset": dataset}
            return Cell(label, embedding, "clusterbert", 0, settings, **more)

        yield cell("without reconstruction", **ALONE)
        stages = {"warm_up": 0, "adaptation_epochs": 0}
        yield cell("without stage 1 and reconstruction", **stages, **ALONE)
        yield cell("mean pooling", embedding="minilm")
        if profile["short_recipe"]:  # the paper's grid is one of the full profile
            continue
        for turns in (1, 2):
            for epochs in (2, 4):
                if (turns, epochs) != (Recipe.reclusterings, Recipe.clustering_epochs):
                    reading = f"{turns} clusterings, {epochs} epochs each"
                    grid = {"reclusterings": turns, "clustering_epochs": epochs}
                    yield cell(reading, seeds=1, **grid)


def retrieval_cells(profile: dict) -> Iterator[Cell]:
    """Yield the cells of Figure 4, right: are embeddings worse without reconstruction?"""
    for dataset in DATASETS:
        more = {"n_train": profile["short_documents"], "dataset": dataset, "seeds": 3}
        for task in (*RANKINGS, "denoise"):
            for embedding in (*WORD_VECTORS, "minilm", START):
                settings, label = {"task": task, "reading": task}, f"{PLAIN[embedding]}, {task}"
                # The draw of what is noised, and tf-idf's words, have changed.
                revision = 2 if task == "denoise" or embedding == "tfidf" else 1
                plain = more | {"revision": revision}
                yield Cell(label, embedding, "plain", 0, settings, **plain)
            for with_or_without, changes in (("with", {}), ("without", ALONE)):
                reading = f"{with_or_without} reconstruction, {task}"
                settings = {"task": task, "reading": reading} | recipe_settings(profile, **changes)
                yield Cell(f"ClusterBERT, {reading}", START, "clusterbert", 0, settings, **more)


# ---------------------------------------------------------------- clustering vectors


def cluster(vectors: np.ndarray, spec: Spec, k: int, device="cpu", progress=None):
    """Cluster vectors [N, D] as a spec asks.

    Returns (clusters [N], what was clustered in the end [N, d], and of IDEC the clusters [N] that
    it starts from, else None).
    """
    from snnl_book.methods.deep_clustering import IDEC, fit_umap, pretrain
    from snnl_lib.training import raise_if_diverged

    if spec["clusterer"].startswith("umap"):
        size = {"n_components": min(k + 1, len(vectors) - 2)}
        size["n_neighbors"] = min(15, len(vectors) - 1)
        # Of word counts a text without a known word is nearer to all by Euclid than any other.
        size["metric"] = "cosine" if spec.embedding == "tfidf" else "euclidean"
        _, vectors = fit_umap(vectors, named_seed(spec.seed, "umap"), **size)
    if not spec["clusterer"].endswith("idec"):
        return kmeans(spec, k).fit_predict(vectors), vectors, None
    updates, settings = spec["idec_updates"], {"learning_rate": 1e-4, "seed": spec.seed}
    settings |= {"device": device, "progress": progress}
    autoencoder, history = pretrain(vectors, k + 1, normalize=True, updates=updates, **settings)
    raise_if_diverged(history)
    idec = IDEC(k, max_steps=updates, **settings)
    start = replace(idec, max_steps=0).fit(vectors, autoencoder=autoencoder).predict(vectors)
    raise_if_diverged(idec.fit(vectors, autoencoder=autoencoder))
    return idec.predict(vectors), idec.transform(vectors), start


def clustered(vectors: np.ndarray, labels: np.ndarray, *how):
    """Cluster vectors (``cluster``, whose other arguments are ``how``) and score the clusters.

    Returns the scores, for IDEC also those of the clusters it starts from (``pretrained_scores``),
    and the answers that they follow from.
    """
    clusters, codes, start = cluster(vectors, *how)
    scores, answers = score(codes, clusters, labels), {"": clusters}
    if start is not None:
        scores |= pretrained_scores(start, labels)
        answers["pretrained_"] = start
    return scores, answers


def score(vectors: np.ndarray, clusters: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Score clusters [N] of vectors [N, D].

    Returns the metrics of ``clustering_scores``, ``nmi_geometric`` (Eq. 6) and ``dunn``; of more
    than ``INDEX_LIMIT`` only the external ones.
    """
    from sklearn.metrics import normalized_mutual_info_score

    from snnl_lib import metrics

    if len(vectors) <= INDEX_LIMIT:
        scores = metrics.clustering_scores(vectors, clusters, labels)
        _, distinct = np.unique(vectors, axis=0, return_index=True)
        scores["dunn"] = metrics.dunn_index(vectors[distinct], clusters[distinct])
    else:
        scores = dict.fromkeys(("dbi", "sil", "chs", "dunn"), np.nan)
        scores |= metrics.external_scores(clusters, labels)
    nmi = normalized_mutual_info_score(labels, clusters, average_method="geometric")
    return scores | {"nmi_geometric": float(nmi)}


# ---------------------------------------------------------------- what is fine-tuned


def recipe(spec: Spec) -> Recipe:
    """Return the recipe of a run of ClusterBERT."""
    _, pooling = embeddings.backbones.parse(spec.embedding)
    settings = {name: spec[name] for name in asdict(Recipe()) if name != "pooling"}
    return Recipe(pooling=pooling, **settings)


def rankings(spec: Spec, task) -> dict:
    """Return the ranking tasks of a run, name -> ``data.Retrieval``.

    Its own if it has one, else all at hand: those of ``RANKINGS``, and ``denoise`` of the run's
    documents.
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
    """Return SCCL's embeddings [N, D] of a run's texts, the seconds of their training, and those
    that this call took.

    They are in the cache if a run with another clusterer made them. Raises Diverged.
    """
    import torch

    from snnl_book import cache
    from snnl_book.methods import SCCL
    from snnl_lib.training import raise_if_diverged

    name, pooling = embeddings.backbones.parse(spec.embedding)
    settings = {"pooling": pooling, "steps": spec["steps"], "seed": spec.seed, "device": device}
    facts = settings | {"method": "sccl", "k": task.classes, "torch": torch.__version__}
    facts |= {"backbone": embeddings.backbones.cache_key(name), "revision": spec.revision}
    facts["texts"] = list(task.train_x)
    path = data.cache_dir() / "sccl" / f"{spec.dataset}-{cache.key(facts)}.bin"

    def compute():
        under_way = path.with_suffix(".under-way.pt")
        model = SCCL(task.classes, name, **settings, progress=progress, checkpoint=under_way)
        return torch.from_numpy(raise_if_diverged(model.fit(list(task.train_x))).embeddings)

    started = time.perf_counter()
    vectors, seconds = cache.cached(path, compute)
    return vectors.numpy(), seconds, time.perf_counter() - started


def fine_tune(spec: Spec, task, device, progress, others=None):
    """Fine-tune a backbone as a spec asks, or take what an earlier run left in the cache.

    Returns the model, the other texts that it embedded after each stage, each once, and the seconds
    that this call took. The other texts are ``others``. In the full profile they are by default
    those of all ``rankings``, so that a later run of ``retrieval`` need not train again; in
    others, where training is short, only for ``retrieval``.
    Raises Diverged.
    """
    from snnl_book.methods import ClusterBERT
    from snnl_lib.training import raise_if_diverged

    if others is None:
        wanted = spec.profile == "full" or spec.experiment == "retrieval"
        ranked = rankings(spec, task).values() if wanted else ()
        others = [text for each in ranked for text in (*each.queries, *each.texts)]
    known = set(task.train_x)
    others = [text for text in dict.fromkeys(others) if text not in known]
    name, _ = embeddings.backbones.parse(spec.embedding)
    settings = {"seed": spec.seed, "device": device, "progress": progress}
    settings["folder"] = data.cache_dir() / "clusterbert"
    started = time.perf_counter()
    model = ClusterBERT(task.classes, name, recipe(spec), **settings)
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
    how = spec, k, device, progress
    if spec.model == "plain":
        scores, answers = clustered(task.train_x, labels, *how)
        return Outcome(scores, answers=answers)
    if spec.model == "sccl":
        vectors, seconds, waited = contrast(spec, task, device, progress)
        scores, answers = clustered(vectors, labels, *how)
        return Outcome(scores, shared_seconds=seconds, waited=waited, answers=answers)
    model, _, waited = fine_tune(spec, task, device, progress)
    stages = [vectors[: len(task.train_x)] for vectors in model.embeddings.values()]
    scores, answers = clustered(stages[-1], labels, *how)
    points = None
    if spec.model == "clusterbert" and spec["clusterer"] == "kmeans":
        last = scores, answers[""]
        for stage, vectors in enumerate(stages):
            of_stage, clusters = last
            if stage < len(stages) - 1:
                of_stage, given = clustered(vectors, labels, spec, k)
                clusters = given[""]
            shown = ("nmi_geometric", "acc", "sil", "dunn")
            scores |= {f"{name}_{stage}": of_stage[name] for name in shown}
            answers[f"_{stage}"] = clusters
        head = score(stages[-1], model.clusters, labels)
        scores |= {f"head_{name}": head[name] for name in ("acc", "nmi_geometric")}
        answers["head_"] = model.clusters
        scores["cut"] = float(model.pieces.cut)
        if len(task.train_x) <= INDEX_LIMIT:
            points = moved_pairs(stages[1], stages[3], labels, task.train_rows)
    shared = {"shared_seconds": model.seconds, "waited": waited}
    return Outcome(scores, model.curve, points=points, answers=answers, **shared)


def run_test_documents(spec: Spec, task, device, progress):
    """Fine-tune on a corpus's training documents, without labels, and cluster its test documents.

    ``acc`` and ``nmi`` also after each stage.
    """
    from snnl_lib import metrics

    model, others, waited = fine_tune(spec, task, device, progress, task.test_x)
    row_of = {text: row for row, text in enumerate([*task.train_x, *others])}
    rows, scores, answers = [row_of[text] for text in task.test_x], {}, {}
    for stage, vectors in enumerate(model.embeddings.values()):
        clusters, codes, _ = cluster(vectors[rows], spec, task.classes)
        of_stage = metrics.clustering_scores(codes, clusters, task.test_y)
        scores |= {f"{name}_{stage}": of_stage[name] for name in ("acc", "nmi")}
        answers |= {f"_{stage}": clusters, "": clusters}
    shared = {"shared_seconds": model.seconds, "waited": waited}
    return Outcome(scores | of_stage, model.curve, answers=answers, **shared)


def run_retrieval(spec: Spec, task, device, progress):
    """Rank candidates by an embedding's cosines.

    ``map`` and ``mrr``, of ClusterBERT also after each stage (``map_0`` to ``map_3``).
    """
    from snnl_book.methods.retrieval import evaluate_queries

    def outcome(each, **more):
        answers = {name: np.array(values) for name, values in each.items()}
        scores = {name: float(np.mean(values)) for name, values in answers.items()}
        scores["queries"] = len(ranking.queries)
        return Outcome(scores, answers=answers, **more)

    ranking = rankings(spec, task)[spec["task"]]
    if spec.model == "plain":
        embed = partial(embeddings.embed, method=spec.embedding, device=device)
        return outcome(evaluate_queries(ranking, embed))
    model, others, waited = fine_tune(spec, task, device, progress)
    row_of = {text: row for row, text in enumerate([*task.train_x, *others])}
    each = {}
    for stage, vectors in enumerate(model.embeddings.values()):
        of_stage = evaluate_queries(
            ranking, lambda texts, vectors=vectors: vectors[[row_of[text] for text in texts]]
        )
        each |= {f"{name}_{stage}": values for name, values in of_stage.items()}
    shared = {"shared_seconds": model.seconds, "waited": waited}
    return outcome(each | of_stage, curve=model.curve, **shared)


PAIRS = {
    "together": (True, 0, "close before and after, as they should be"),
    "joined": (True, 1, "same class, the largest gains"),
    "wrongly joined": (False, 1, "different classes, the largest gains"),
    "wrongly parted": (True, -1, "same class, the largest losses"),
    "parted": (False, -1, "different classes, the largest losses"),
}
"""Table 5: five kinds of pairs, by whether the classes agree and by how their cosine changed."""


def moved_pairs(before, after, labels, rows, each: int = 5):
    """Choose pairs of texts for Table 5 from embeddings [N, D] before and after.

    Returns a frame with the columns kind, row, other, and the cosines ``init`` and ``final``. The
    rule: of each kind the pairs with the largest change of cosine (``together``: with the largest
    smaller one of both), no text twice in a kind, no pair of equal texts (cosine 1 before, to 6
    digits).
    """
    import pandas as pd

    columns = ["kind", "row", "other", "init", "final"]
    unit = [vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (before, after)]
    init, final = (vectors @ vectors.T for vectors in unit)
    upper = np.triu(np.ones_like(init, dtype=bool), 1) & (init < 1 - 1e-6)
    same, pairs = labels[:, None] == labels, []
    for kind, (alike, direction, _) in PAIRS.items():
        rank = direction * (final - init) if direction else np.minimum(init, final)
        rank = np.where(upper & (same == alike), rank, -np.inf)
        for _ in range(each):
            i, j = np.unravel_index(rank.argmax(), rank.shape)
            if not np.isfinite(rank[i, j]):
                break
            pairs.append((kind, rows[i], rows[j], init[i, j], final[i, j]))
            for place in (i, j):
                rank[place], rank[:, place] = -np.inf, -np.inf
    return pd.DataFrame(pairs, columns=columns)


METRICS = ("dbi", "sil", "chs", "nmi", "nmi_geometric", "ari", "acc", "dunn")
_TABLES = "Short texts clustered without labels (ClusterBERT paper, Tables 2-3, Figure 3, Table 5)"
_ABLATION = "ClusterBERT without reconstruction (Figure 4), and what its paper leaves open"
_RETRIEVAL = "Does an embedding keep its meaning? (ClusterBERT paper, Figure 4)"
EXPERIMENTS = {
    # Since revision 2 the texts stand in random order, UMAP's ties are broken at random, and IDEC
    # is as published.
    "clusterbert": Experiment(_TABLES, METRICS, clusterbert_cells, run_vectors, 2),
    "clusterbert-ablation": Experiment(_ABLATION, METRICS, ablation_cells, run_vectors, 2),
    "retrieval": Experiment(_RETRIEVAL, ("map", "mrr"), retrieval_cells, run_retrieval, 2),
}
