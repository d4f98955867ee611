"""Pictures: words of an opinion lexicon on a plane (Figure 1), and codes laid out by t-SNE."""

from collections.abc import Iterator

import numpy as np

from snnl_book.experiments import images, short_texts, text_clustering
from snnl_book.experiments.cells import Cell, Experiment
from snnl_book.experiments.codes import collapse, kmeans, make_codes, neighbour_share
from snnl_book.recipes import STAGES
from snnl_book.results import Outcome, Spec
from snnl_lib.seeds import named_seed

LABELS = {"original": "Orig.", "lda": "linear discriminant analysis"} | text_clustering.LABELS
ALPHAS = {"original": 0, "ae": 0, "lc-d": 100, "ae-d": 100}


def lexicon_cells(profile: dict) -> Iterator[Cell]:
    """Yield the cells of Figure 1, and of another use of the same labels."""
    profile = profile | {"clustering_epochs": profile["lexicon_epochs"]}
    for model, alpha in (ALPHAS | {"lda": 0}).items():
        if model in ("original", "lda"):
            settings = {"kmeans_starts": profile["kmeans_starts"]}
        else:
            settings = text_clustering.settings_of(profile, model)
        settings["shown"] = 100
        yield Cell(LABELS[model], "spacy-word", model, alpha, settings, dataset="opinion_lexicon")


def tsne_cells(profile: dict) -> Iterator[Cell]:
    """Yield the cells of all maps: of the text paper, of images, and of ClusterBERT's paper."""
    yield from text_cells(profile)
    yield from image_cells(profile)
    yield from clusterbert_cells(profile)


def text_cells(profile: dict) -> Iterator[Cell]:
    """Yield the cells of Figure 2 of the text paper."""
    layout = {"perplexity": 50, "learning_rate": 200, "iterations": profile["tsne_iterations"]}
    for embedding, n_train in text_clustering.numbers_of_documents(profile).items():
        for model, alpha in ALPHAS.items():
            settings = layout
            if model != "original":
                settings = text_clustering.settings_of(profile, model) | layout
            fields = {"seeds": 1, "n_train": n_train}
            yield Cell(LABELS[model], embedding, model, alpha, settings, **fields)


def image_cells(profile: dict) -> Iterator[Cell]:
    """Yield maps of images, and of their codes without and with labels, in 2 and 3 dimensions."""
    layout = {"perplexity": 50, "learning_rate": 10, "points": 2000}
    layout["iterations"] = profile["image_tsne_iterations"]
    for dataset in images.PIXELS:
        for dimensions in (2, 3):
            reading = f"{dimensions}-D"
            settings = layout | {"dimensions": dimensions, "reading": reading}
            if dataset == "emnist_balanced":
                settings["shown_classes"] = 10
            fields = {"seeds": 3, "n_train": profile["image_train"], "dataset": dataset}
            for model, alpha in (("original", 0), ("ae", 0), ("ae-d", 1)):
                all_settings = images.settings_of(profile, model) | settings
                label = f"{images.LABELS[model]}, {reading}"
                yield Cell(label, "pixels", model, alpha, all_settings, **fields)


def clusterbert_cells(profile: dict) -> Iterator[Cell]:
    """Yield maps of sentences from BBC News after each stage of ClusterBERT.

    The paper gives no settings of t-SNE, so they are scikit-learn's defaults.
    """
    layout = {"perplexity": 30, "map_learning_rate": "auto"}
    layout["iterations"] = profile["tsne_iterations"]
    settings = short_texts.recipe_settings(profile) | layout
    fields = {"n_train": profile["short_documents"], "dataset": "bbc_sentences", "seeds": 1}
    fields["revision"] = 2  # since then the sentences are in random order
    for stage, reading in enumerate(STAGES):
        of_stage = settings | {"stage": stage, "reading": reading}
        label = f"ClusterBERT, {reading}"
        yield Cell(label, short_texts.START, "clusterbert", 0, of_stage, **fields)


# ---------------------------------------------------------------- runs


def run_lexicon(spec: Spec, task, device, progress):
    """Make codes of opinion words (Figure 1): are words of one polarity close to each other?

    The scores are ``acc``, of k-means into two clusters, and ``neighbours``, the mean share of a
    word's 10 nearest words that have its polarity. They are those of the held-out words; with the
    prefix ``train_`` they are those of the others. The points are words of both parts, as many as
    the spec shows and half of them positive, on their two principal components. ``row`` is the row
    of the word in its part of the lexicon. The codes of ``lda`` are the one coordinate of linear
    discriminant analysis with shrinkage, and their second component is 0.
    """
    import pandas as pd
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    from snnl_lib import metrics

    if spec.model == "lda":
        analysis = LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto")
        analysis.fit(task.train_x, task.train_y)
        train_codes, test_codes = (analysis.transform(x) for x in (task.train_x, task.test_x))
        curve = None
    else:
        train_codes, test_codes, curve = make_codes(spec, task, device, progress)
    scores = {}
    points = []
    answers = {}
    for prefix, held_out, codes, labels, rows in (
        ("train_", 0, train_codes, task.train_y, task.train_rows),
        ("", 1, test_codes, task.test_y, task.test_rows),
    ):
        clusters = kmeans(spec, task.classes).fit_predict(codes)
        answers[prefix] = clusters
        scores[f"{prefix}acc"] = metrics.clustering_accuracy(labels, clusters)
        scores[f"{prefix}neighbours"] = neighbour_share(codes, labels)
        random = np.random.default_rng(named_seed(spec.seed, "shown words"))
        order = random.permutation(len(labels))
        per_class = spec["shown"] // task.classes
        shown = np.concatenate(
            [order[labels[order] == label][:per_class] for label in range(task.classes)]
        )
        pca = PCA(2, random_state=named_seed(spec.seed, "pca"))
        flat = np.pad(codes[shown], ((0, 0), (0, int(codes.shape[1] == 1))))
        x, y = pca.fit_transform(flat).T
        words = {"row": rows[shown], "label": labels[shown], "held_out": held_out}
        points.append(pd.DataFrame(words | {"x": x, "y": y}))
    status, reason = collapse(test_codes)
    return Outcome(scores, curve, status, reason, points=pd.concat(points), answers=answers)


def run_tsne(spec: Spec, task, device, progress):
    """Map codes of the test documents to the plane, or to space, with t-SNE (Sec. 3.6).

    The points have a row number, a class and coordinates. The setting ``points`` is the number of
    documents drawn, and ``shown_classes`` the number of classes, which are drawn too. The scores
    are the final Kullback-Leibler divergence (``kl``) and ``neighbours``, the mean share of a
    point's 10 nearest points in the map that have its class. A collapsed code has no map, because
    scikit-learn breaks down on points that all coincide.
    """
    import pandas as pd
    from sklearn.manifold import TSNE

    shared = {}
    if spec.model == "clusterbert":
        model, _, waited = short_texts.fine_tune(spec, task, device, progress)
        codes = model.embeddings[STAGES[spec["stage"]]][: len(task.train_x)]
        curve = model.curve
        shared = {"shared_seconds": model.seconds, "waited": waited}
    else:
        _, codes, curve = make_codes(spec, task, device, progress)
    status, reason = collapse(codes)
    if reason:
        return Outcome({}, curve, status, reason)
    shown = _shown(spec, task)
    tsne = TSNE(
        n_components=spec.get("dimensions", 2),
        perplexity=spec["perplexity"],
        # ClusterBERT has a learning rate of its own among its settings.
        learning_rate=spec.get("map_learning_rate", spec["learning_rate"]),
        max_iter=spec["iterations"],
        init="pca",
        random_state=named_seed(spec.seed, "t-SNE"),
        n_jobs=1,
    )
    positions = tsne.fit_transform(np.asarray(codes, dtype=np.float32)[shown])
    labels = task.test_y[shown]
    scores = {"kl": float(tsne.kl_divergence_), "neighbours": neighbour_share(positions, labels)}
    columns = {"row": task.test_rows[shown], "label": labels}
    points = pd.DataFrame(columns | dict(zip("xyz", positions.T, strict=False)))
    return Outcome(scores, curve, points=points, **shared)


def _shown(spec, task):
    """Return the indices of the test documents that a map shows."""
    if not spec.get("points"):
        return np.arange(len(task.test_y))
    random = np.random.default_rng(named_seed(spec.seed, "shown points"))
    order = random.permutation(len(task.test_y))
    if spec.get("shown_classes"):
        random = np.random.default_rng(named_seed(spec.seed, "shown classes"))
        classes = random.permutation(task.classes)[: spec["shown_classes"]]
        order = order[np.isin(task.test_y[order], classes)]
    return order[: spec["points"]]


_LEXICON = "Words of an opinion lexicon (text paper, Figure 1)"
_TSNE = (
    "The codes in two dimensions (text paper, Figure 2; ClusterBERT paper, Figure 1), and in three"
    " (image paper)"
)
_OF_WORDS = ("acc", "neighbours", "train_acc", "train_neighbours")
EXPERIMENTS = {
    "lexicon": Experiment(_LEXICON, _OF_WORDS, lexicon_cells, run_lexicon),
    "tsne": Experiment(_TSNE, ("kl", "neighbours"), tsne_cells, run_tsne),
}
