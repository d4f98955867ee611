"""The grids of the ClusterBERT paper: short texts clustered without labels, its ablation and its
ranking tasks. ``short_texts`` carries them out.
"""

from collections.abc import Iterator
from dataclasses import asdict, replace

from snnl_lib.experiments.settings import STAGES, Cell, Recipe

DATASETS = {
    "stackoverflow": "StackOverflow",
    "biomedical": "Biomedical",
    "searchsnippets": "SearchSnippets",
    "bbc_sentences": "BBC News",
}
DATASETS |= {
    "googlenews": "GoogleNews",
    "ag_news_descriptions": "AG News",
    "newsgroups20_openings": "20 Newsgroups",
}
"""The corpora, and what a figure calls them."""

WORD_VECTORS = ("tfidf", "sif", "sif-corpus")
PUBLISHED = ("roberta-base", "nli-roberta-base", "vascl-roberta-large")
TRAINED = ("tsdae", "clusterbert", "sccl")
CLUSTERERS = {
    "kmeans": "k-means",
    "idec": "IDEC",
    "umap": "UMAP + k-means",
    "umap-idec": "UMAP + IDEC",
}
RANKINGS = ("trecqa", "askubuntu")
START = "minilm-cls"  # where ClusterBERT starts from
METRICS = ("dbi", "sil", "chs", "nmi", "nmi_geometric", "ari", "acc", "dunn")


def _recipe(profile, **changes):
    """The settings of ``Recipe``, but for the pooling, which the embedding names."""
    own = asdict(replace(Recipe(), **profile["short_recipe"])) | changes
    return {name: value for name, value in own.items() if name != "pooling"}


def _clusterers(profile, *names):
    """The settings of some ways to cluster."""
    for name in names:
        own = {"clusterer": name} | ({"reading": CLUSTERERS[name]} if name != "kmeans" else {})
        yield own | (
            {"idec_epochs": profile["idec_epochs"]}
            if name.endswith("idec")
            else {"kmeans_starts": profile["kmeans_starts"]}
        )


def clusterbert_cells(profile: dict) -> Iterator[Cell]:
    """Tables 2 and 3 and Figure 3: everything on some documents a corpus, the same for all; what
    needs no training on all of them, too. To train on all
    takes hours on a CPU core."""
    some, every = profile["short_documents"], profile["short_all"]
    for dataset in DATASETS:
        for embedding in (*WORD_VECTORS, "minilm", START, *PUBLISHED):
            for own in _clusterers(profile, "kmeans", "umap"):
                yield Cell(embedding, "plain", 0, own, n_train=every, dataset=dataset)
            for own in _clusterers(profile, *CLUSTERERS):
                yield Cell(embedding, "plain", 0, own, n_train=some, dataset=dataset, seeds=2)
        for model in ("tsdae", "clusterbert"):
            for own in _clusterers(profile, *CLUSTERERS):
                yield Cell(
                    START, model, 0, own | _recipe(profile), n_train=some, dataset=dataset, seeds=2
                )
                if every > some:
                    yield Cell(
                        START,
                        model,
                        0,
                        own | _recipe(profile),
                        n_train=every,
                        dataset=dataset,
                        needs="two to six hours on a CPU core",
                    )
        for own in _clusterers(profile, *CLUSTERERS):
            own |= {"steps": profile["sccl_steps"]}
            yield Cell(
                "minilm",
                "sccl",
                0,
                own,
                n_train=every if profile["sccl_needs"] else some,
                dataset=dataset,
                needs=profile["sccl_needs"],
            )


def ablation_cells(profile: dict) -> Iterator[Cell]:
    """Figure 4, left: ClusterBERT without reconstruction; and what else the paper leaves open, one
    choice changed at a time.
    """
    alone = {"clustering_weight": 1, "hardening_weight": 1}
    for dataset in DATASETS:

        def cell(reading, embedding=START, dataset=dataset, seeds=2, **changes):
            own = (
                next(_clusterers(profile, "kmeans"))
                | {"reading": reading}
                | _recipe(profile, **changes)
            )
            return Cell(
                embedding,
                "clusterbert",
                0,
                own,
                n_train=profile["short_documents"],
                dataset=dataset,
                seeds=seeds,
            )

        yield cell("without reconstruction", **alone)
        yield cell("without stage 1 and reconstruction", warm_up=0, adaptation_epochs=0, **alone)
        yield cell("mean pooling", embedding="minilm")
        if profile["short_recipe"]:  # the paper's grid is one of the full profile
            continue
        for turns in (1, 2):
            for epochs in (2, 4):
                if (turns, epochs) != (Recipe.reclusterings, Recipe.clustering_epochs):
                    yield cell(
                        f"{turns} clusterings, {epochs} epochs each",
                        reclusterings=turns,
                        clustering_epochs=epochs,
                        seeds=1,
                    )


def retrieval_cells(profile: dict) -> Iterator[Cell]:
    """Figure 4, right: does an embedding keep its meaning when the reconstruction is left out?"""
    some, tasks = profile["short_documents"], (*RANKINGS, "denoise")
    for dataset in DATASETS:
        for task in tasks:
            for embedding in (*WORD_VECTORS, "minilm", START):
                own = {"task": task, "reading": task}
                yield Cell(embedding, "plain", 0, own, n_train=some, dataset=dataset, seeds=2)
            for reading, changes in (
                ("with reconstruction", {}),
                ("without reconstruction", {"clustering_weight": 1, "hardening_weight": 1}),
            ):
                own = {"task": task, "reading": f"{reading}, {task}"} | _recipe(profile, **changes)
                yield Cell(START, "clusterbert", 0, own, n_train=some, dataset=dataset, seeds=2)


def tsne_cells(profile: dict) -> Iterator[Cell]:
    """Figure 1: sentences of BBC News as each stage of ClusterBERT leaves them. The paper gives no
    settings of t-SNE: scikit-learn's own.
    """
    own = _recipe(profile) | {
        "perplexity": 30,
        "map_learning_rate": "auto",
        "iterations": profile["tsne_iterations"],
    }
    for stage, name in enumerate(STAGES):
        yield Cell(
            START,
            "clusterbert",
            0,
            own | {"stage": stage, "reading": name},
            n_train=profile["short_documents"],
            dataset="bbc_sentences",
            seeds=1,
        )


def label_cells(profile: dict) -> Iterator[Cell]:
    """ClusterBERT among accuracies against the number of labels: fine-tuned on training documents,
    it needs none.
    """
    own = next(_clusterers(profile, "kmeans")) | {"reading": "no labels"} | _recipe(profile)
    yield Cell(START, "clusterbert", 0, own, n_train=profile["short_documents"], seeds=2)
