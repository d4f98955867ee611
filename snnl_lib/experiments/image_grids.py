"""The grids of the image paper: points on which the loss alone is minimised, and images clustered
in many ways. ``images`` carries them out.
"""

import math
from collections.abc import Iterator

from snnl_lib.experiments.settings import ALL, BATCH_SIZE, DRAWN, Cell
from snnl_lib.experiments.text_grids import COMPONENTS

DATASETS = ("mnist", "fashion_mnist", "emnist_balanced")
DEEP = ("ae-10", "dec", "idec", "vade", "n2d")
CONTRASTIVE_TEMPERATURE = 0.1  # Khosla et al. (2020), Sec. 4
POINTS, DIMENSIONS = 300, 2


def annealing_cells(profile: dict) -> Iterator[Cell]:
    """The article's picture: gradient descent on the loss alone, at a falling temperature and at
    fixed ones.
    """
    own = {
        "epochs": profile["annealing_epochs"],
        "optimizer": "sgd",
        "learning_rate": 10.0,
        "distance": "sqeuclidean",
        "classes": 4,
    }
    for temperature in ("annealed", "1.0", "0.5", "0.1"):
        yield Cell("points", "points", 1, own, temperature, n_train=POINTS, dataset=DRAWN)
    for reading, changes in (
        ("Adam, step 0.1", {"optimizer": "adam", "learning_rate": 0.1}),
        ("cosine distance", {"distance": "cosine"}),
        ("step 1", {"learning_rate": 1.0}),
        ("10 classes", {"classes": 10}),
    ):
        for temperature in ("annealed", "1.0"):
            yield Cell(
                "points",
                "points",
                1,
                own | changes | {"reading": reading},
                temperature,
                n_train=POINTS,
                dataset=DRAWN,
            )


def _settings(profile, model, **changes):
    starts = {"kmeans_starts": profile["kmeans_starts"], "n_test": profile["image_test"]}
    if model in ("original", "lda", "logreg", "logreg-predictions"):
        return starts | changes
    if model == "pca":
        return starts | {"components": COMPONENTS} | changes
    if model in DEEP:
        steps = {
            "dec": {"max_steps": profile["deep_steps"]},
            "idec": {"max_steps": profile["deep_steps"]},
            "vade": {"epochs": profile["vade_epochs"]},
        }
        return (
            starts
            | {"pretrain_epochs": profile["pretrain_epochs"]}
            | steps.get(model, {})
            | changes
        )
    own = {
        "supcon": {"layers": "projection"},
        "ae": {"scaling": "none", "layers": "none"},
        "ae-d": {"scaling": "none", "layers": "sum"},
    }[model]
    return starts | own | {"epochs": profile["image_epochs"]} | changes


def image_cells(profile: dict) -> Iterator[Cell]:
    """The article's results table: test scores of each way of clustering, on each data set."""
    for dataset in DATASETS:

        def cell(
            model,
            alpha=0,
            temperature="annealed",
            seeds=5,
            dataset=dataset,
            n_train=profile["image_train"],
            needs="",
            **changes,
        ):
            return Cell(
                "pixels",
                model,
                alpha,
                _settings(profile, model, **changes),
                temperature,
                seeds,
                n_train,
                needs,
                dataset,
            )

        yield cell("original", seeds=None)
        yield cell("pca", seeds=None)
        yield cell("ae")
        for alpha in (1, 100):
            yield cell("ae-d", alpha, reading=f"alpha {alpha}")
        yield cell("supcon", 1, temperature=str(CONTRASTIVE_TEMPERATURE))
        for model in DEEP:
            yield cell(model, seeds=3)
        yield cell("ae-d", 1, temperature="1.0", reading="fixed temperature 1")
        yield cell("ae-d", 1, seeds=3, reading="100 epochs", epochs=profile["more_epochs"])
        if profile["sentence_vectors"]:  # the papers' own numbers of images, for a GPU
            for model, cost in zip(
                DEEP, ("half an hour", "an hour", "an hour", "two hours", "an hour"), strict=True
            ):
                yield cell(model, seeds=3, n_train=ALL, needs=f"{cost} on a CPU core")


def label_cells(profile: dict) -> Iterator[Cell]:
    """Accuracy against the number of labels; the full number of ae-d stands in ``images``."""
    steps = math.ceil(profile["image_train"] / BATCH_SIZE)
    for dataset in DATASETS[:2]:
        for n_train in (*profile["image_labels"], profile["image_train"]):
            reading = {"reading": f"{n_train:,} labels"}
            if n_train < profile["image_train"]:
                yield Cell(
                    "pixels",
                    "ae-d",
                    1,
                    _settings(profile, "ae-d", steps_per_epoch=steps, **reading),
                    seeds=5,
                    n_train=n_train,
                    dataset=dataset,
                )
            for model in ("lda", "logreg", "logreg-predictions"):
                yield Cell(
                    "pixels",
                    model,
                    0,
                    _settings(profile, model, **reading),
                    seeds=5,
                    n_train=n_train,
                    dataset=dataset,
                )


def tsne_cells(profile: dict) -> Iterator[Cell]:
    """The article's picture of original and disentangled representations, in two and in three
    dimensions.
    """
    for dataset in DATASETS:
        for dimensions in (2, 3):
            own = {
                "perplexity": 50,
                "learning_rate": 10,
                "iterations": profile["image_tsne_iterations"],
                "dimensions": dimensions,
                "points": 2000,
            }
            own |= {"reading": f"{dimensions}-D"} | (
                {"shown_classes": 10} if dataset == "emnist_balanced" else {}
            )
            for model, alpha in (("original", 0), ("ae-d", 1)):
                yield Cell(
                    "pixels",
                    model,
                    alpha,
                    _settings(profile, model) | own,
                    seeds=1,
                    n_train=profile["image_train"],
                    dataset=dataset,
                )
