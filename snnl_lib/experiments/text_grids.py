"""The grids of the text paper: the cells of Tables 1-4 and Figures 1-2, their readings and rivals.
``text`` and ``clustering`` carry them out.
"""

import math
from collections.abc import Iterator

from snnl_lib.experiments import short_text_grids
from snnl_lib.experiments.settings import ALL, BATCH_SIZE, Cell

NEIGHBOURS = 10  # of nearest-neighbour classifiers and scores
CODE_UNITS = 100  # LC(D): the disentangled part of the code (Sec. 3.4)
COMPONENTS = 128  # Orig.: as many as the code has units
INFERSENT_DOCUMENTS = 10_000  # Sec. 3.5
RIVALS = ("lda", "logreg", "logreg-predictions", "kmeans", "spherical-kmeans", "umap", "gmm")


# ---------------------------------------------------------------- classification: Tables 1-2


def _ffn(profile, embedding="spacy", **changes):
    """Settings of the feed-forward network (Sec. 2.1: two hidden layers on averaged vectors, one on
    InferSent).
    """
    own = (
        {"hidden_sizes": [500, 500]}
        if embedding == "spacy"
        else {"hidden_sizes": [500], "standardize": True}
    )
    return {"epochs": profile["classification_epochs"], "layers": "sum"} | own | changes


def _cnn(profile, embedding="spacy", **changes):
    own = {} if embedding == "spacy" else {"standardize": True}
    return (
        {
            "epochs": profile["convolution_epochs"],
            "filters": 32,
            "positions": 64,
            "kernel": None,
            "layers": "sum",
        }
        | own
        | changes
    )


def classification_cells(profile: dict) -> Iterator[Cell]:
    """Tables 1 and 2. On InferSent vectors the paper trains on every document: that is a row of its
    own, for a GPU.
    """
    sentences = profile["sentence_vectors"]
    for embedding in ("spacy", "infersent-random") if sentences else ("spacy",):
        for model, settings in (
            ("ffn", _ffn(profile, embedding)),
            ("cnn", _cnn(profile, embedding)),
        ):
            for alpha in (0, 100, -100):
                yield Cell(embedding, model, alpha, settings)
    if sentences:
        embedded = "on a CPU core, and once an hour to embed the documents"
        for embedding, model, settings, seeds, cost in (
            ("infersent-random", "ffn", _ffn(profile, "infersent"), None, f"20 minutes {embedded}"),
            ("infersent-random", "cnn", _cnn(profile, "infersent"), None, f"an hour {embedded}"),
            (
                "infersent-nli",
                "ffn",
                _ffn(profile, "infersent"),
                3,
                f"20 minutes {embedded} and seven to train the encoder",
            ),
            ("infersent", "ffn", _ffn(profile, "infersent"), None, f"20 minutes {embedded}"),
        ):
            for alpha in (0, 100, -100):
                yield Cell(embedding, model, alpha, settings, seeds=seeds, n_train=ALL, needs=cost)


def classification_reading_cells(profile: dict) -> Iterator[Cell]:
    """What the text leaves open, one choice changed at a time from the main setting (Table 1,
    averaged vectors, alpha 100).
    """

    def ffn(reading, alpha=100, temperature="annealed", **changes):
        return Cell(
            "spacy", "ffn", alpha, _ffn(profile, **changes) | {"reading": reading}, temperature
        )

    yield ffn("minimum over layers", layers="min")
    yield ffn("before the nonlinearity", before_relu=True)
    yield ffn("output layer counted too", with_output=True)
    for alpha in (1, 10, 1000):
        yield ffn(f"alpha {alpha}", alpha)
    for temperature in ("1.0", "0.1"):
        yield ffn(f"fixed temperature {temperature}", temperature=temperature)
    for alpha in (0, 100, -100):
        yield ffn("best epoch on a held-out tenth", alpha, held_out=0.1)
        yield ffn("five hidden layers", alpha, hidden_sizes=[500] * 5)
    for reading, changes in (
        ("kernel 3, max pooling", {"kernel": 3}),
        ("8 filters, 256 positions", {"filters": 8, "positions": 256}),
    ):
        yield Cell("spacy", "cnn", 0, _cnn(profile, **changes) | {"reading": reading}, seeds=1)
    if profile["sentence_vectors"]:
        yield Cell(
            "infersent-random",
            "ffn",
            100,
            _ffn(profile, "infersent", standardize=False)
            | {"reading": "InferSent not standardised"},
            seeds=1,
        )


def classification_rival_cells(profile: dict) -> Iterator[Cell]:
    """Other uses of the same labels and the same vectors."""
    for embedding in ("spacy", "infersent-random") if profile["sentence_vectors"] else ("spacy",):
        own = {} if embedding == "spacy" else {"standardize": True}
        yield Cell(embedding, "lda", 0, own)
        yield Cell(embedding, "logreg", 0, own)
        yield Cell(embedding, "knn", 0, own | {"neighbours": NEIGHBOURS})
    yield Cell("spacy", "supcon", 100, _ffn(profile))
    for alpha in (0, 100):
        yield Cell("spacy", "ffn-knn", alpha, _ffn(profile) | {"neighbours": NEIGHBOURS})


# ---------------------------------------------------------------- clustering: Tables 3-4, Figures
# 1-2


def _codes(profile, model, **changes):
    starts = {"kmeans_starts": profile["kmeans_starts"]}
    if model == "pca":
        return starts | {"components": COMPONENTS} | changes
    layers = {"ae": "none", "lc-d": f"code[:{CODE_UNITS}]", "ae-d": "sum"}[model]
    return (
        starts
        | {"epochs": profile["clustering_epochs"], "scaling": "feature", "layers": layers}
        | changes
    )


def _alpha(model):
    return 100 if model in ("lc-d", "ae-d") else 0


def _vectors(profile):
    """The embeddings of a profile with the number of labelled documents for each (None: the
    profile's).
    """
    return {"spacy": None} | (
        {"infersent-random": INFERSENT_DOCUMENTS} if profile["sentence_vectors"] else {}
    )


def clustering_cells(profile: dict) -> Iterator[Cell]:
    """Tables 3 and 4."""
    for embedding, n_train in _vectors(profile).items():
        for model in ("pca", "ae", "lc-d", "ae-d"):
            yield Cell(embedding, model, _alpha(model), _codes(profile, model), n_train=n_train)
    if profile["sentence_vectors"]:
        cost = "five minutes on a CPU core, and once half an hour to embed the documents and seven hours to train the encoder"
        yield Cell(
            "infersent-nli",
            "ae-d",
            100,
            _codes(profile, "ae-d"),
            seeds=3,
            n_train=INFERSENT_DOCUMENTS,
            needs=cost,
        )
        for model in ("pca", "ae", "lc-d", "ae-d"):
            yield Cell(
                "infersent",
                model,
                _alpha(model),
                _codes(profile, model),
                n_train=INFERSENT_DOCUMENTS,
            )


def clustering_reading_cells(profile: dict) -> Iterator[Cell]:
    """What the text leaves open, one choice changed at a time from the main setting (averaged
    vectors, and two on InferSent).
    """

    def cell(reading, model, alpha=None, seeds=3, embedding="spacy", **changes):
        settings = _codes(profile, model, **changes) | {"reading": reading}
        return Cell(
            embedding,
            model,
            _alpha(model) if alpha is None else alpha,
            settings,
            seeds=seeds,
            n_train=_vectors(profile)[embedding],
        )

    yield cell(
        "inputs not scaled", "ae", seeds=None, scaling="none"
    )  # perhaps the paper's own setting: all its seeds
    for model in ("lc-d", "ae-d"):
        yield cell("inputs not scaled", model, scaling="none")
    for model in ("ae", "ae-d"):
        yield cell("one scale for all features", model, scaling="global")
        yield cell("linear code", model, linear_code=True)
    unscaled = {
        "scaling": "none",
        "reconstruction": "squared error",
    }  # the reading that comes nearest to the paper: whole, with all its seeds
    for embedding in ("spacy", "infersent-random") if profile["sentence_vectors"] else ("spacy",):
        for model in ("ae", "lc-d", "ae-d"):
            yield cell(
                "squared error, inputs not scaled",
                model,
                embedding=embedding,
                seeds=None,
                **unscaled,
            )
    for alpha in (1, 10, 1000):
        yield cell(f"alpha {alpha}", "ae-d", alpha)
    yield cell("before the nonlinearity", "ae-d", before_nonlinearity=True)
    yield cell("k-means on the 100 units only", "lc-d", clustered=CODE_UNITS)
    for model in ("pca", "ae", "ae-d"):
        yield cell("k-means fitted on training codes", model, fitted_on="train")
    if profile["sentence_vectors"]:  # there the logistic code of the main setting collapses
        for model in ("ae", "lc-d", "ae-d"):
            yield cell("linear code", model, embedding="infersent-random", linear_code=True)


def clustering_rival_cells(profile: dict) -> Iterator[Cell]:
    """Other uses of the same labelled documents, and clusterings that need no label."""
    for embedding, n_train in _vectors(profile).items():
        for model in RIVALS:
            own = {"kmeans_starts": profile["kmeans_starts"]}
            if embedding != "spacy" and model not in ("kmeans", "gmm"):
                own["standardize"] = True
            yield Cell(embedding, model, 0, own, n_train=n_train)


def label_cells(profile: dict) -> Iterator[Cell]:
    """Accuracy against the number of labels; the full number stands in ``clustering`` and
    ``clustering-rivals``. And k-means on vectors that need none.
    """
    steps, starts = (
        math.ceil(profile["n_train"] / BATCH_SIZE),
        {"kmeans_starts": profile["kmeans_starts"]},
    )
    for n_train in profile["label_sizes"]:
        for reading, changes in (
            (f"{n_train:,} labels", {"steps_per_epoch": steps}),
            (f"{n_train:,} labels, one pass an epoch", {}),
        ):
            yield Cell(
                "spacy",
                "ae-d",
                100,
                _codes(profile, "ae-d", **changes) | {"reading": reading},
                n_train=n_train,
            )
        reading = {"reading": f"{n_train:,} labels"}
        for embedding in ("spacy", "minilm"):
            yield Cell(embedding, "lda", 0, starts | reading, n_train=n_train)
        yield Cell(
            "spacy",
            "lc-d",
            100,
            _codes(profile, "lc-d", steps_per_epoch=steps) | reading,
            seeds=3,
            n_train=n_train,
        )
    for embedding in (*short_text_grids.WORD_VECTORS, "minilm", short_text_grids.START):
        fitted = (
            embedding in short_text_grids.WORD_VECTORS
        )  # on the training documents; a published model is not, and need not embed them all
        yield Cell(
            embedding,
            "kmeans",
            0,
            starts | {"reading": "no labels"},
            n_train=None if fitted else profile["label_sizes"][0],
        )


def tsne_cells(profile: dict) -> Iterator[Cell]:
    """Figure 2."""
    own = {"perplexity": 50, "learning_rate": 200, "iterations": profile["tsne_iterations"]}
    for embedding, n_train in _vectors(profile).items():
        yield Cell(embedding, "original", 0, own, seeds=1, n_train=n_train)
        for model in ("ae", "lc-d", "ae-d"):
            yield Cell(
                embedding,
                model,
                _alpha(model),
                _codes(profile, model) | own,
                seeds=1,
                n_train=n_train,
            )


def lexicon_cells(profile: dict) -> Iterator[Cell]:
    """Figure 1."""
    for model in ("original", "ae", "lc-d", "ae-d"):
        own = (
            {} if model == "original" else _codes(profile, model, epochs=profile["lexicon_epochs"])
        )
        own |= {"kmeans_starts": profile["kmeans_starts"], "shown": 100}
        yield Cell("spacy-word", model, _alpha(model), own, dataset="opinion_lexicon")
