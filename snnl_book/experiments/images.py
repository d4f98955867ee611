"""The image paper: why the temperature falls, and ways to cluster images.

*Improving k-Means Clustering with Disentangled Internal Representations* (Agarap and Azcarraga,
2020), and the article about it.
"""

import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from snnl_book import data
from snnl_book.experiments import codes, text_clustering
from snnl_book.experiments.cells import (
    ALL,
    DRAWN,
    FIFTEEN_SEEDS,
    MORE_SEEDS,
    Cell,
    Experiment,
    choices,
)
from snnl_book.results import Outcome, Spec
from snnl_lib.seeds import named_seed

CHOICES = choices("images")
"""What the image paper leaves open, and what is done here."""

DATASETS = ("mnist", "fashion_mnist", "emnist_balanced")
EMBEDDED = "digits"
"""Images that are always available; none of the papers uses them, so they must be named."""
LABELS = {"original": "pixels", "pca": "PCA", "umap": "UMAP on pixels", "ae": "AE"}
LABELS |= {"ae-d": "AE(D)", "supcon": "SupCon", "ae-classifier": text_clustering.AE_CLASSIFIER}
DEEP = {"ae-10": "AE, 10 units", "dec": "DEC", "idec": "IDEC", "vade": "VaDE", "n2d": "N2D"}
HOURS = {"ae-10": "half an hour", "vade": "two hours"}  # on all images; the others take one
AUTHORS_VADE = {"epochs": 3000, "lowest_rate": 0.0002, "needs": "two hours on a CPU core"}
CONTRASTIVE_TEMPERATURE = 0.1  # Khosla et al. (2020), Sec. 4
PROJECTION = 128  # Khosla et al. (2020), Sec. 3.1
PIXELS = dict.fromkeys(DATASETS, 784) | {EMBEDDED: 64}
CODE_SIZE = 10  # of the autoencoder that deep clustering starts from, as in its papers
NORMALIZED = ("dec", "idec")  # whose autoencoder is one of normalised pixels
POINTS = 300
DIMENSIONS = 2
SHOWN_EPOCHS = (0, 10, 20, 50)
COMMON_TEMPERATURE = 1.0
WATCHED = ("loss", "common", "neighbours", "sil")
PURE = 0.9  # share of neighbours of the own class that counts as disentangled

# ---------------------------------------------------------------- cells


def annealing_cells(profile: dict) -> Iterator[Cell]:
    """Yield the article's picture: gradient descent on the loss alone, at falling and fixed T."""
    plain = {
        "epochs": profile["annealing_epochs"],
        "optimizer": "sgd",
        "learning_rate": 10.0,
        "distance": "sqeuclidean",
        "classes": 4,
    }
    adam = {"optimizer": "adam", "learning_rate": 0.1}
    cosine = {"distance": "cosine"}

    def cell(temperature, **changes):
        label = temperature if temperature == "annealed" else f"T = {float(temperature):g}"
        if changes:
            label = f"{label}, {changes['reading']}"
        fields = {"n_train": POINTS, "dataset": DRAWN}
        return Cell(label, "points", "points", 1, plain | changes, temperature, **fields)

    for temperature in ("annealed", "1.0", "0.5", "0.1"):
        yield cell(temperature)
    for reading, changes in (
        ("Adam, step 0.1", adam),
        ("cosine distance", cosine),
        ("step 1", {"learning_rate": 1.0}),
        ("10 classes", {"classes": 10}),
    ):
        for temperature in ("annealed", "1.0"):
            yield cell(temperature, reading=reading, **changes)
    # The gradient of Eq. 4 has a factor of 1/T, so a falling temperature also lengthens the steps.
    # These cells separate the temperature from the length of the steps.
    for changes, suffix in (({}, ""), (adam, ", Adam, step 0.1"), (cosine, ", cosine distance")):
        divided = f"step divided by the falling T{suffix}"
        yield cell("1.0", reading=divided, step="over T", **changes)
        multiplied = f"step times the falling T{suffix}"
        yield cell("annealed", reading=multiplied, step="times T", **changes)


def settings_of(profile: dict, model: str, **changes) -> dict:
    """Return the settings of a way to cluster images."""
    starts = {"kmeans_starts": profile["kmeans_starts"], "n_test": profile["image_test"]}
    if model in ("original", "umap", *text_clustering.CLASSIFIERS):
        return starts | changes
    if model == "pca":
        return starts | {"components": codes.COMPONENTS} | changes
    if model in DEEP:
        settings = starts | {"pretrain_epochs": profile["pretrain_epochs"]}
        if model in ("dec", "idec"):
            settings["max_steps"] = profile["deep_steps"]
        if model == "vade":
            settings["epochs"] = profile["vade_epochs"]
        return settings | changes
    layers = {"supcon": "projection", "ae": "none", "ae-d": "sum", "ae-classifier": "code"}[model]
    scaling = {} if model == "supcon" else {"scaling": "none"}
    return starts | scaling | {"layers": layers, "epochs": profile["image_epochs"]} | changes


def image_cells(profile: dict) -> Iterator[Cell]:
    """Yield the article's results table: each way of clustering, on each data set."""
    for dataset, pixels in PIXELS.items():
        cell = partial(_image_cell, profile, dataset)
        yield cell("original", seeds=None)
        yield cell("pca", seeds=None)
        yield cell("umap", seeds=3)
        yield cell("ae")
        seeds = 5 if dataset == "emnist_balanced" else FIFTEEN_SEEDS
        for alpha in (1, 100):
            yield cell("ae-d", alpha, reading=f"alpha {alpha}", seeds=seeds)
        yield cell("supcon", 1, temperature=str(CONTRASTIVE_TEMPERATURE))
        yield cell("ae-classifier", 1)
        for model in DEEP:
            yield cell(model, seeds=3)
        yield cell("idec", seeds=3, reading="mean over pixels", gamma=0.1 * pixels)
        for temperature in ("0.15", "0.3", "0.5", "1.0"):  # "1.0" reads as in older records
            reading = f"fixed temperature {float(temperature):g}"
            yield cell("ae-d", 1, temperature=temperature, reading=reading)
        yield cell("ae-d", 1, seeds=3, reading="100 epochs", epochs=profile["more_epochs"])
        yield cell("ae-d", 1, reading=text_clustering.CODE_ONLY, layers="code")
        yield from _early_cells(profile, cell)
        if dataset != "emnist_balanced":
            yield cell("ae-d", 1, seeds=3, reading="normalised codes", normalized=True)
            for reading, temperature, weight in codes.WEIGHTS:
                yield cell("ae-d", 1, temperature=temperature, reading=reading, weight=weight)
            for name, epochs in codes.halves(profile["image_epochs"]).items():
                reading = f"loss in the {name} half only"
                yield cell("ae-d", 1, reading=reading, loss_epochs=epochs)
        if profile["sentence_vectors"]:
            yield from _costly_cells(dataset, cell)


def _early_cells(profile, cell):
    """Yield AE(D) after few epochs: is it faster at a falling temperature than at a fixed one?"""
    for epochs in sorted({max(1, profile["image_epochs"] // divisor) for divisor in (6, 3)}):
        reading = f"{epochs} epochs"
        yield cell("ae-d", 1, reading=reading, epochs=epochs)
        reading = f"{reading}, fixed temperature 0.15"
        yield cell("ae-d", 1, temperature="0.15", reading=reading, epochs=epochs)


def unseen_cells(profile: dict) -> Iterator[Cell]:
    """Yield ways to cluster classes that are not in the training data (``tasks.half_unseen``).

    Texts have raw inputs, the reading of an autoencoder closest to the paper.
    """
    unseen = {"unseen": "half", "seeds": None}
    for dataset in (*DATASETS[:2], EMBEDDED):
        cell = partial(_image_cell, profile, dataset, **unseen)
        yield cell("original")
        yield cell("ae")
        yield cell("ae-d", 1)
        yield cell("ae-classifier", 1)
        yield cell("supcon", 1, temperature=str(CONTRASTIVE_TEMPERATURE))
    exchanged = text_clustering.AE_CLASSIFIER
    labels = text_clustering.LABELS | {"ae-classifier": exchanged, "original": "vectors"}
    for model, alpha in {"original": 0, "ae": 0, "ae-d": 100, "ae-classifier": 100}.items():
        settings = {"kmeans_starts": profile["kmeans_starts"], "unseen": "half"}
        if model != "original":
            layers = {"layers": "code"} if model == "ae-classifier" else {}
            kind = "ae" if model == "ae" else "ae-d"
            settings |= text_clustering.settings_of(profile, kind, **text_clustering.RAW, **layers)
        yield Cell(labels[model], "spacy", model, alpha, settings)


def _image_cell(profile, dataset, model, alpha=0, temperature="annealed", **changes):
    reading = f", {changes['reading']}" if "reading" in changes else ""
    label = (LABELS | DEEP)[model] + reading
    fields = {"dataset": dataset, "seeds": 5, "n_train": profile["image_train"]}
    for name in (*fields, "needs"):
        if name in changes:
            fields[name] = changes.pop(name)
    if model in (*NORMALIZED, "n2d", "vade"):
        # 1: pixels as they are; UMAP's ties were not broken at random; VaDE began at its full rate.
        fields["revision"] = 2
    settings = settings_of(profile, model, **changes)
    return Cell(label, "pixels", model, alpha, settings, temperature, **fields)


def _costly_cells(dataset, cell):
    """Yield deep clustering of all images, as in its papers, and VaDE for its authors' epochs."""
    if dataset in ("mnist", EMBEDDED):
        yield cell("vade", seeds=3, reading="as in its authors' code", **AUTHORS_VADE)
    for model in DEEP if dataset != EMBEDDED else ():
        needs = f"{HOURS.get(model, 'an hour')} on a CPU core"
        yield cell(model, seeds=3, n_train=ALL, needs=needs)


# ---------------------------------------------------------------- points


def run_annealing(spec: Spec, task, device, progress) -> Outcome:
    """Move points with drawn labels down the gradient of Eq. 4, and score them after each epoch.

    The loss at the run's own temperature falls because the temperature does. Runs are therefore
    compared by the loss at one common temperature (``common``), by the share of a point's 10
    nearest points that have its class (``neighbours``), and by the silhouette of the classes
    (``sil``). ``epochs_to_pure`` is the first epoch whose ``neighbours`` reach ``PURE``. The record
    keeps the points of ``SHOWN_EPOCHS``, except for readings.
    """
    import pandas as pd
    import torch
    from sklearn.metrics import silhouette_score

    from snnl_lib.losses import annealed_temperature, soft_nearest_neighbor_loss
    from snnl_lib.training import POWERS, Diverged, take_step

    points = torch.tensor(task.train_x, requires_grad=True)
    random = np.random.default_rng(named_seed(spec.seed, "labels"))
    labels = torch.as_tensor(random.integers(spec["classes"], size=len(points)))
    optimizers = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
    optimizer = optimizers[spec["optimizer"]]([points], lr=spec["learning_rate"])
    power = POWERS[spec.get("step")]
    loss_of = partial(soft_nearest_neighbor_loss, labels=labels, distance=spec["distance"])
    rows = []
    shown = []
    for epoch in range(spec["epochs"] + 1):
        temperature = codes.temperature_of(spec)
        if temperature == "annealed":
            temperature = annealed_temperature(epoch)
        positions = points.detach().numpy().copy()
        if not np.isfinite(positions).all():
            raise Diverged(f"a point was not finite in epoch {epoch}", pd.DataFrame(rows))
        loss = loss_of(points, temperature=temperature)
        row = {
            "epoch": epoch,
            "temperature": temperature,
            "loss": loss.item(),
            "common": loss_of(points.detach(), temperature=COMMON_TEMPERATURE).item(),
            "neighbours": codes.neighbour_share(positions, labels.numpy()),
            "sil": silhouette_score(positions, labels),
        }
        rows.append(row)
        if epoch in SHOWN_EPOCHS and not spec.get("reading"):
            columns = {"row": range(len(positions)), "label": labels, "epoch": epoch}
            shown.append(pd.DataFrame(columns | {"x": positions[:, 0], "y": positions[:, 1]}))
        for group in optimizer.param_groups:
            group["lr"] = spec["learning_rate"] * annealed_temperature(epoch) ** power
        take_step(optimizer, loss)
    curve = pd.DataFrame(rows)
    pure = curve.loc[curve["neighbours"] >= PURE, "epoch"]
    scores = curve.iloc[-1][[*WATCHED]].to_dict()
    scores["epochs_to_pure"] = float(pure.min()) if len(pure) else np.nan
    return Outcome(scores, curve, points=pd.concat(shown) if shown else None)


# ---------------------------------------------------------------- images


def build_projector(in_features, seed):
    """Build the encoder of ``Autoencoder``, with its weights for this seed, and a linear projection
    of its code in place of the decoder."""
    from torch import nn

    from snnl_lib.models import Autoencoder, output_layer
    from snnl_lib.training import build

    def make():
        model = Autoencoder(in_features)
        model.decoder = nn.ModuleList()
        model.output = output_layer(model.code.out_features, PROJECTION)
        return model

    return build(make, seed=seed)


def contrastive(output, features, labels):
    """Return the supervised contrastive loss of projections [B, 128], as ``train`` calls it."""
    from snnl_lib.losses import supervised_contrastive_loss

    return supervised_contrastive_loss(output, labels, CONTRASTIVE_TEMPERATURE)


def _cache_path(name, images, device, facts):
    """Return the path of a file trained on images, named after all that its content depends on."""
    import torch

    from snnl_book import cache

    facts = facts | {
        "images": np.ascontiguousarray(images),
        "torch": torch.__version__,
        "device": str(device).split(":")[0],
    }
    return data.cache_dir() / f"{name}-{cache.key(facts)}"


def pretrained(spec: Spec, task, device, progress=None):
    """Return the autoencoder that deep clustering starts from, from the cache or newly trained.

    All runs of a seed and a set of images share it: DEC and IDEC one of normalised pixels, the
    others one of pixels as they are. Returns (autoencoder, curve, seconds of its training). Raises
    Diverged.
    """
    import pandas as pd

    from snnl_book.cache import cached
    from snnl_book.methods.deep_clustering import ClusteringAutoencoder, pretrain
    from snnl_lib.training import Diverged, build

    images = np.ascontiguousarray(task.train_x)
    settings = {"epochs": spec["pretrain_epochs"], "seed": spec.seed}
    if spec.model in NORMALIZED:
        settings["normalize"] = True
    # The revision is this training's, not that of the runs that use it.
    facts = settings | {"code": CODE_SIZE, "revision": 1}
    path = _cache_path(f"pretrained/{spec.dataset}", images, device, facts).with_suffix(".bin")
    under_way = path.with_suffix(".under-way.pt")

    def compute():
        model, history = pretrain(
            images, CODE_SIZE, checkpoint=under_way, device=device, progress=progress, **settings
        )
        if history.diverged:
            raise Diverged(f"pretraining: {history.diverged}", history.curve)
        return {
            "weights": model.state_dict(),
            "curve": history.curve.to_dict("list"),
            "unit_range": model.unit_range,
            "scale": model.scale,
        }

    saved, seconds = cached(path, compute)
    under_way.unlink(missing_ok=True)
    options = {name: saved[name] for name in ("unit_range", "scale")}
    model = build(ClusteringAutoencoder, images.shape[1], CODE_SIZE, **options, seed=spec.seed)
    model.load_state_dict(saved["weights"])
    return model.to(device).eval(), pd.DataFrame(saved["curve"]), seconds


def run_deep(spec: Spec, task, device, progress):
    """Cluster the test images by DEC, IDEC, VaDE or N2D (``CHOICES["deep"]``).

    The scores are those of the clustered codes, or for N2D of the clustered map. N2D is fitted on
    the test images themselves, the others on the training images. ``ae-10`` is the start of VaDE
    and N2D: k-means on the test codes of the autoencoder that they share. DEC and IDEC start from
    k-means on the training codes of their autoencoder, and record its scores as ``pretrained_acc``
    and ``pretrained_nmi``.
    """
    from dataclasses import replace

    from snnl_lib import metrics
    from snnl_lib.training import forward, raise_if_diverged

    started = time.perf_counter()
    autoencoder, curve, shared_seconds = pretrained(spec, task, device, progress)
    shared = {"shared_seconds": shared_seconds, "waited": time.perf_counter() - started}
    if spec.model == "ae-10":
        test_codes = forward(autoencoder, task.test_x, layer="code")
        return codes.score_codes(spec, task, test_codes, curve)._replace(**shared)
    method = _deep_method(spec, task, device, progress)
    if spec.model == "n2d":
        method.fit(task.test_x, autoencoder=autoencoder)
        clustered = method.manifold
        clusters = method.labels_
    else:
        raise_if_diverged(method.fit(task.train_x, autoencoder=autoencoder))
        clustered = method.transform(task.test_x)
        clusters = method.predict(task.test_x)
    scores = metrics.clustering_scores(clustered, clusters, task.test_y)
    scores["snn"] = codes.entanglement(clustered, task.test_y)
    scores["clusters_used"] = float(len(np.unique(clusters)))
    answers = {"": clusters}
    if spec.model in NORMALIZED:
        start = replace(method, max_steps=0).fit(task.train_x, autoencoder=autoencoder)
        answers["pretrained_"] = start.predict(task.test_x)
        scores.update(codes.pretrained_scores(answers["pretrained_"], task.test_y))
    curve = method.curve if len(method.curve) else None
    return Outcome(scores, curve, answers=answers, **shared)


def _deep_method(spec, task, device, progress):
    """Return the estimator of a spec, with a checkpoint of its own."""
    from snnl_book.methods import DEC, IDEC, N2D, VaDE

    method = {"dec": DEC, "idec": IDEC, "vade": VaDE, "n2d": N2D}[spec.model]
    names = ("max_steps", "epochs", "gamma", "lowest_rate")
    settings = {name: spec[name] for name in names if spec.get(name)}
    facts = {"run": spec.identity, "revision": spec.revision}
    name = f"checkpoints/{spec.dataset}-{spec.model}"
    checkpoint = _cache_path(name, task.train_x, device, facts).with_suffix(".pt")
    return method(
        task.classes,
        seed=spec.seed,
        device=device,
        progress=progress,
        checkpoint=checkpoint,
        **settings,
    )


def run_umap(spec: Spec, task) -> Outcome:
    """Cluster a map of the test images' pixels, as N2D clusters a map of its codes."""
    from snnl_book.methods.deep_clustering import cluster_map
    from snnl_lib import metrics

    manifold, mixture = cluster_map(task.test_x, task.classes, spec.seed)
    clusters = mixture.predict(manifold.astype(np.float64))
    scores = metrics.clustering_scores(manifold, clusters, task.test_y)
    scores["snn"] = codes.entanglement(manifold, task.test_y)
    return Outcome(scores, answers={"": clusters})


def run_images(spec: Spec, task, device, progress):
    """Cluster the test images and score the clusters."""
    from snnl_lib.training import forward, raise_if_diverged, train

    if spec.model in DEEP:
        return run_deep(spec, task, device, progress)
    if spec.model == "umap":
        return run_umap(spec, task)
    if spec.model == "supcon":
        model = build_projector(task.train_x.shape[1], spec.seed)
        history = train(
            model,
            task.train_x,
            task.train_y,
            contrastive,
            epochs=spec["epochs"],
            steps_per_epoch=spec.get("steps_per_epoch"),
            seed=spec.seed,
            device=device,
            progress=progress,
        )
        curve = raise_if_diverged(history).curve
        projected = forward(model, task.test_x, layer="code")
        return codes.score_codes(spec, task, projected, curve)
    return text_clustering.run_codes(spec, task, device, progress)


_POINTS = "Gradient descent on the loss alone, at falling and at fixed temperatures (image paper)"
_IMAGES = "Clustering images: disentangled codes and deep clustering (image paper)"
_UNSEEN = "Clustering classes that are not in the training data"
_OF_POINTS = (*WATCHED, "epochs_to_pure")
EXPERIMENTS = {
    "annealing": Experiment(_POINTS, _OF_POINTS, annealing_cells, run_annealing, seeds=MORE_SEEDS),
    "images": Experiment(_IMAGES, codes.SCORES, image_cells, run_images, seeds=MORE_SEEDS[:9]),
    "unseen": Experiment(_UNSEEN, codes.SCORES, unseen_cells, run_images, seeds=MORE_SEEDS[:9]),
}
