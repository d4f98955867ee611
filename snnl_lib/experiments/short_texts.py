"""The experiments of the ClusterBERT paper: short texts clustered without labels, from word counts
to a transformer fine-tuned in three stages.

``short_text_grids`` says which runs there are. Where the paper is silent the choice is made in
``CHOICES`` here and in ``settings.Recipe``.
"""

import hashlib
import json
from dataclasses import asdict
from functools import partial, wraps

import numpy as np
import pandas as pd
import torch

from snnl_lib import data, embeddings, metrics
from snnl_lib.embeddings.backbones import cache_key, parse
from snnl_lib.experiments.retrieval import Retrieval, denoise, evaluate, load_retrieval
from snnl_lib.experiments.settings import Recipe
from snnl_lib.experiments.short_text_grids import RANKINGS
from snnl_lib.methods.clusterbert import ClusterBERT
from snnl_lib.methods.deep_clustering import IDEC, pretrain, umap
from snnl_lib.methods.sccl import SCCL
from snnl_lib.results import Outcome, Spec
from snnl_lib.training import named_seed

CHOICES = {
    "documents": "a corpus is clustered whole, trained on and scored; with fewer documents, drawn anew for each seed, k stays the number of classes",
    "tf-idf": "the 2,000 most frequent words after the text paper's preprocessing, rows of unit length",
    "sif": "a = 0.001, the first principal direction removed; spaCy's vectors, or vectors trained on the corpus, where the paper has GloVe",
    "backbone": "all-MiniLM-L6-v2 in place of roberta-base, and no training on a million sentences of Wikipedia beforehand",
    "pooling": "the vector of the first piece, as in the paper, though MiniLM was trained for the mean, which has rows of its own",
    "kmeans": "k-means with 10 starts on the vectors as they are",
    "umap": "k + 1 dimensions, 15 neighbours, as in the paper; euclidean distances, the library's other defaults",
    "idec": "150 epochs of pretraining and as many of clustering, both with Adam at 1e-4, k + 1 codes, as in the paper; all else is IDEC's own",
    "retrieval": "TREC-QA's test questions in place of AskUbuntu, whose texts are not here; each document found by its own noised copy; cosines; words are "
    "counted in the texts that are ranked",
    "indices": "silhouette and Dunn index on the vectors that were clustered, repeated vectors dropped for Dunn; not computed above 10,000 documents",
}
INDEX_LIMIT = 10_000


# ---------------------------------------------------------------- clustering vectors


class Diverged(ArithmeticError):
    """A training run whose loss was not finite; ``curve`` is what there is of it."""

    def __init__(self, model):
        super().__init__(model.diverged)
        self.curve = model.curve


def cluster(
    vectors: np.ndarray, spec: Spec, k: int, device="cpu", progress=None
) -> tuple[np.ndarray, np.ndarray]:
    """Cluster vectors [N, D] as a spec asks: (clusters [N], what was clustered in the end [N, d])."""
    from sklearn.cluster import KMeans

    if spec["clusterer"].startswith("umap"):
        seed = named_seed(spec.seed, "umap")
        vectors = umap(
            n_components=min(k + 1, len(vectors) - 2),
            n_neighbors=min(15, len(vectors) - 1),
            random_state=seed,
        ).fit_transform(vectors)
    if spec["clusterer"].endswith("idec"):
        own = {"learning_rate": 1e-4, "seed": spec.seed, "device": device, "progress": progress}
        autoencoder, history = pretrain(vectors, k + 1, epochs=spec["idec_epochs"], **own)
        if history.diverged:
            raise Diverged(history)
        method = IDEC(k, max_steps=spec["idec_epochs"] * -(-len(vectors) // 256), **own).fit(
            vectors, autoencoder
        )
        if method.diverged:
            raise Diverged(method)
        return method.predict(vectors), method.codes(vectors)
    return KMeans(
        k, n_init=spec["kmeans_starts"], random_state=named_seed(spec.seed, "kmeans")
    ).fit_predict(vectors), vectors


def score(vectors: np.ndarray, clusters: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Score clusters [N] of vectors [N, D]: the metrics of ``clustering_scores``, ``nmi_geometric``
    (Eq. 6) and ``dunn``; on many only the external ones.
    """
    from sklearn.metrics import normalized_mutual_info_score

    internal = len(vectors) <= INDEX_LIMIT
    found = metrics.clustering_scores(
        vectors if internal else np.zeros((len(vectors), 1)), clusters, labels
    )
    if internal:
        _, distinct = np.unique(vectors, axis=0, return_index=True)
        found["dunn"] = metrics.dunn_index(vectors[distinct], clusters[distinct])
    else:
        found |= dict.fromkeys(("dbi", "sil", "chs"), np.nan)
    return found | {
        "nmi_geometric": float(
            normalized_mutual_info_score(labels, clusters, average_method="geometric")
        )
    }


# ---------------------------------------------------------------- one run


def recipe(spec: Spec) -> Recipe:
    """Return the recipe of a run of ClusterBERT."""
    _, pooling = parse(spec.embedding)
    return Recipe(
        pooling=pooling, **{name: spec[name] for name in asdict(Recipe()) if name != "pooling"}
    )


def rankings(spec: Spec, task) -> dict[str, Retrieval]:
    """Return the ranking tasks of a run: its own if it has one, else all at hand, those of
    ``RANKINGS`` and ``denoise`` of the run's documents.
    """
    names = (
        [spec["task"]]
        if spec.get("task") and spec.profile != "full"
        else [*(name for name in RANKINGS if data.locate(name)), "denoise"]
    )
    documents, seed = (
        [text for text in task.train_x if text.split()],
        named_seed(spec.seed, "denoise"),
    )
    return {
        name: denoise(documents, seed=seed) if name == "denoise" else load_retrieval(name)
        for name in names
    }


def contrast(spec: Spec, task, device, progress) -> np.ndarray:
    """Return SCCL's embeddings [N, D] of a run's texts, from the cache if a run with another
    clusterer made them. Raises Diverged.
    """
    name, pooling = parse(spec.embedding)
    own = {"pooling": pooling, "steps": spec["steps"], "seed": spec.seed, "device": device}

    def compute():
        digest = hashlib.sha256(
            json.dumps([facts, *task.train_x], sort_keys=True).encode()
        ).hexdigest()[:16]
        path = data.cache_dir() / "checkpoints" / f"{spec.dataset}-sccl-{digest}.pt"
        model = SCCL(task.classes, name, **own, progress=progress, checkpoint=path).fit(
            list(task.train_x)
        )
        if model.diverged:
            raise Diverged(model)
        return model.embeddings

    facts = own | {
        "method": "sccl",
        "k": task.classes,
        "backbone": cache_key(name),
        "torch": torch.__version__,
        "revision": spec.revision,
    }
    return embeddings.cached(facts, [list(task.train_x)], compute)


def fine_tune(spec: Spec, task, device, progress, others=None) -> tuple[ClusterBERT, list[str]]:
    """Fine-tune a backbone as a spec asks, or take what an earlier run with the same recipe, texts
    and seed left in the cache.

    Returns the model and the other texts that it embedded after each stage, each once: those of
    ``others``, default in the full profile those of all ``rankings``, so that a later run of
    ``retrieval`` need not train again; in others, where training is short, only for ``retrieval``.
    Raises Diverged.
    """
    if others is None:
        ranked = (
            rankings(spec, task).values()
            if spec.profile == "full" or spec.experiment == "retrieval"
            else ()
        )
        others = [text for found in ranked for text in (*found.queries, *found.texts)]
    known = set(task.train_x)
    others = [text for text in dict.fromkeys(others) if text not in known]
    name, _ = parse(spec.embedding)
    model = ClusterBERT(
        task.classes,
        name,
        recipe(spec),
        seed=spec.seed,
        device=device,
        progress=progress,
        folder=data.cache_dir() / "clusterbert",
    )
    model.fit(list(task.train_x), others, stages=1 if spec.model == "tsdae" else 3)
    if model.diverged:
        raise Diverged(model)
    return model, others


def _unless_it_diverges(run):
    """Make a run's divergence its outcome."""

    @wraps(run)
    def safe(spec, task, device, progress):
        try:
            return run(spec, task, device, progress)
        except Diverged as error:
            return Outcome({}, error.curve, "diverged", str(error))

    return safe


@_unless_it_diverges
def run_clusterbert(spec: Spec, task, device, progress) -> Outcome:
    """Make vectors of a corpus, cluster them and score the clusters.

    With k-means a run of ClusterBERT also has each score after each stage, such as
    ``nmi_geometric_0`` (Fig. 3), those of the head's own clusters (``head_acc``,
    ``head_nmi_geometric``), and as points the pairs of texts that moved most (Table 5).
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        if spec.model == "plain":
            clusters, codes = cluster(task.train_x, spec, task.classes, device, progress)
            return Outcome(score(codes, clusters, task.train_y))
        if spec.model == "sccl":
            clusters, codes = cluster(
                contrast(spec, task, device, progress), spec, task.classes, device, progress
            )
            return Outcome(score(codes, clusters, task.train_y))
        model, _ = fine_tune(spec, task, device, progress)
        vectors = [own[: len(task.train_x)] for own in model.embeddings.values()]
        clusters, codes = cluster(vectors[-1], spec, task.classes, device, progress)
        scores, points = score(codes, clusters, task.train_y), None
        if spec.model == "clusterbert" and spec["clusterer"] == "kmeans":
            for number, own in enumerate(vectors):
                found = (
                    scores
                    if number == len(vectors) - 1
                    else score(own, cluster(own, spec, task.classes)[0], task.train_y)
                )
                scores = scores | {
                    f"{name}_{number}": found[name]
                    for name in ("nmi_geometric", "acc", "sil", "dunn")
                }
            head = score(vectors[-1], model.clusters, task.train_y)
            scores |= {
                "head_acc": head["acc"],
                "head_nmi_geometric": head["nmi_geometric"],
                "cut": float(model.pieces.cut),
            }
            points = (
                moved_pairs(vectors[1], vectors[3], task.train_y, task.train_rows)
                if len(task.train_x) <= INDEX_LIMIT
                else None
            )
        return Outcome(scores, model.curve, points=points)


@_unless_it_diverges
def run_test_documents(spec: Spec, task, device, progress) -> Outcome:
    """Fine-tune on a corpus's training documents, without their labels, and cluster its test
    documents; ``acc`` and ``nmi`` also after each stage.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        model, others = fine_tune(spec, task, device, progress, task.test_x)
        row_of, scores = {text: row for row, text in enumerate([*task.train_x, *others])}, {}
        rows = [row_of[text] for text in task.test_x]
        for number, vectors in enumerate(model.embeddings.values()):
            clusters, codes = cluster(vectors[rows], spec, task.classes)
            found = metrics.clustering_scores(codes, clusters, task.test_y)
            scores |= {f"{name}_{number}": found[name] for name in ("acc", "nmi")}
    return Outcome(scores | found, model.curve)


@_unless_it_diverges
def run_retrieval(spec: Spec, task, device, progress) -> Outcome:
    """Rank candidates by an embedding's cosines: ``map`` and ``mrr``, of ClusterBERT also after
    each stage (``map_0`` to ``map_3``).
    """
    found = rankings(spec, task)[spec["task"]]
    if spec.model == "plain":
        return Outcome(
            evaluate(found, partial(embeddings.embed, method=spec.embedding, device=device))
        )
    model, others = fine_tune(spec, task, device, progress)
    row_of, scores = {text: row for row, text in enumerate([*task.train_x, *others])}, {}
    for number, vectors in enumerate(model.embeddings.values()):
        scored = evaluate(
            found, lambda texts, vectors=vectors: vectors[[row_of[text] for text in texts]]
        )
        scores |= {f"{name}_{number}": scored[name] for name in ("map", "mrr")}
    return Outcome(scores | scored, model.curve)


PAIRS = {
    "together": (True, 0, "close before and after, as they should be"),
    "joined": (True, 1, "same class, the largest gains"),
    "wrongly joined": (False, 1, "different classes, the largest gains"),
    "wrongly parted": (True, -1, "same class, the largest losses"),
    "parted": (False, -1, "different classes, the largest losses"),
}
"""Table 5: five kinds of pairs, by whether the classes agree and by how their cosine changed."""


def moved_pairs(
    before: np.ndarray, after: np.ndarray, labels: np.ndarray, rows: np.ndarray, each: int = 5
) -> pd.DataFrame:
    """Choose pairs of texts for Table 5 from embeddings [N, D] before and after: kind, row, other,
    cosine ``init`` and ``final``.

    The rule: of each kind the pairs with the largest change of cosine (``together``: with the
    largest smaller one of both), no text twice in a kind, no pair of equal texts (cosine 1 before,
    to 6 digits).
    """
    unit = [vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (before, after)]
    init, final = (vectors @ vectors.T for vectors in unit)
    upper, same = (
        np.triu(np.ones_like(init, dtype=bool), 1) & (init < 1 - 1e-6),
        labels[:, None] == labels,
    )
    found = []
    for kind, (alike, direction, _) in PAIRS.items():
        rank = np.where(
            upper & (same == alike),
            np.minimum(init, final) if direction == 0 else direction * (final - init),
            -np.inf,
        )
        for _ in range(each):
            i, j = np.unravel_index(rank.argmax(), rank.shape)
            if not np.isfinite(rank[i, j]):
                break
            found.append(
                {
                    "kind": kind,
                    "row": rows[i],
                    "other": rows[j],
                    "init": init[i, j],
                    "final": final[i, j],
                }
            )
            for place in (i, j):
                rank[place], rank[:, place] = -np.inf, -np.inf
    return pd.DataFrame(found, columns=["kind", "row", "other", "init", "final"])
