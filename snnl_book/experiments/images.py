"""The image paper: why the temperature falls, and ways to cluster images.

*Improving k-Means Clustering with Disentangled Internal Representations* (Agarap and Azcarraga,
2020), and the article about it.
"""

import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from snnl_book import data
from snnl_book.experiments import codes
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
LABELS = {"original": "pixels", "pca": "PCA", "ae": "AE", "ae-d": "AE(D)", "supcon": "SupCon"}
DEEP = {"ae-10": "AE, 10 units", "dec": "DEC", "idec": "IDEC", "vade": "VaDE", "n2d": "N2D"}
HOURS = {"ae-10": "half an hour", "vade": "two hours"}  # on all images; the others take one
AUTHORS_VADE = {"epochs": 3000, "lowest_rate": 0.0002}
AUTHORS_VADE |= {"needs": "two hours on a CPU core", "seconds": 7100}
CONTRASTIVE_TEMPERATURE = 0.1  # Khosla et al. (2020), Sec. 4
PROJECTION = 128  # Khosla et al. (2020), Sec. 3.1
PIXELS = dict.fromkeys(DATASETS, 784) | {EMBEDDED: 64}
CODE_SIZE = 10  # of the autoencoder that deep clustering starts from, as in its papers
NORMALIZED = ("dec", "idec")  # whose autoencoder is one of normalised pixels
POINTS, DIMENSIONS = 300, 2
SHOWN_EPOCHS = (0, 10, 20, 50)
COMMON_TEMPERATURE = 1.0
WATCHED = ("loss", "common", "neighbours", "sil")
PURE = 0.9  # share of neighbours of the own class that counts as disentangled

# ---------------------------------------------------------------- cells


def annealing_cells(profile: dict) -> Iterator[Cell]:
    """The article's picture: gradient descent on the loss alone, at a falling and at fixed T."""
    plain = {"epochs": profile["annealing_epochs"], "optimizer": "sgd", "learning_rate": 10.0}
    plain |= {"distance": "sqeuclidean", "classes": 4}
    adam = {"optimizer": "adam", "learning_rate": 0.1}

    def cell(temperature, **changes):
        settings = plain | changes
        more = {"n_train": POINTS, "dataset": DRAWN}
        label = temperature if temperature == "annealed" else f"T = {float(temperature):g}"
        label += f", {changes['reading']}" if changes else ""
        return Cell(label, "points", "points", 1, settings, temperature, **more)

    for temperature in ("annealed", "1.0", "0.5", "0.1"):
        yield cell(temperature)
    for reading, changes in (
        ("Adam, step 0.1", adam),
        ("cosine distance", {"distance": "cosine"}),
        ("step 1", {"learning_rate": 1.0}),
        ("10 classes", {"classes": 10}),
    ):
        for temperature in ("annealed", "1.0"):
            yield cell(temperature, reading=reading, **changes)
    # The gradient of Eq. 4 has a factor of 1/T, so that a falling temperature lengthens the steps
    # as well: these tell the one from the other.
    for optimizer in ({}, adam):
        added = ", Adam, step 0.1" if optimizer else ""
        divided, times = (f"step {how} the falling T{added}" for how in ("divided by", "times"))
        yield cell("1.0", reading=divided, step="over T", **optimizer)
        yield cell("annealed", reading=times, step="times T", **optimizer)


def settings_of(profile: dict, model: str, **changes) -> dict:
    """Return the settings of a way to cluster images."""
    starts = {"kmeans_starts": profile["kmeans_starts"], "n_test": profile["image_test"]}
    if model in ("original", "lda", "logreg", "logreg-predictions"):
        return starts | changes
    if model == "pca":
        return starts | {"components": codes.COMPONENTS} | changes
    if model in DEEP:
        steps, epochs = {"max_steps": profile["deep_steps"]}, {"epochs": profile["vade_epochs"]}
        own = {"dec": steps, "idec": steps, "vade": epochs}.get(model, {})
        return starts | {"pretrain_epochs": profile["pretrain_epochs"]} | own | changes
    layers = {"supcon": "projection", "ae": "none", "ae-d": "sum"}[model]
    scaling = {} if model == "supcon" else {"scaling": "none"}
    return starts | scaling | {"layers": layers, "epochs": profile["image_epochs"]} | changes


def image_cells(profile: dict) -> Iterator[Cell]:
    """The article's results table: test scores of each way of clustering, on each data set."""
    for dataset, pixels in PIXELS.items():
        cell = partial(_image_cell, profile, dataset)
        yield cell("original", seeds=None)
        yield cell("pca", seeds=None)
        yield cell("ae")
        seeds = 5 if dataset == "emnist_balanced" else FIFTEEN_SEEDS
        for alpha in (1, 100):
            yield cell("ae-d", alpha, reading=f"alpha {alpha}", seeds=seeds)
        yield cell("supcon", 1, temperature=str(CONTRASTIVE_TEMPERATURE))
        for model in DEEP:
            yield cell(model, seeds=3)
        yield cell("idec", seeds=3, reading="mean over pixels", gamma=0.1 * pixels)
        for temperature in ("0.15", "0.3", "0.5", "1.0"):  # "1.0" reads as in older records
            reading = f"fixed temperature {float(temperature):g}"
            yield cell("ae-d", 1, temperature=temperature, reading=reading)
        yield cell("ae-d", 1, seeds=3, reading="100 epochs", epochs=profile["more_epochs"])
        if dataset != "emnist_balanced":
            for reading, temperature, weight in codes.WEIGHTS:
                yield cell("ae-d", 1, temperature=temperature, reading=reading, weight=weight)
        if profile["sentence_vectors"]:
            yield from _costly_cells(dataset, cell)


def _image_cell(profile, dataset, model, alpha=0, temperature="annealed", **changes):
    reading = f", {changes['reading']}" if "reading" in changes else ""
    label = (LABELS | DEEP)[model] + reading
    given = {"dataset": dataset, "seeds": 5, "n_train": profile["image_train"]}
    names = (*given, "needs", "seconds")
    given |= {name: changes.pop(name) for name in names if name in changes}
    settings = settings_of(profile, model, **changes)
    # 1: pixels as they are; UMAP's ties were not broken at random.
    given["revision"] = 2 if model in (*NORMALIZED, "n2d") else None
    return Cell(label, "pixels", model, alpha, settings, temperature, **given)


def _costly_cells(dataset, cell):
    """Deep clustering of the papers' numbers of images, and VaDE for its authors' epochs."""
    if dataset in ("mnist", EMBEDDED):
        yield cell("vade", seeds=3, reading="as in its authors' code", **AUTHORS_VADE)
    for model in DEEP if dataset != EMBEDDED else ():
        needs = f"{HOURS.get(model, 'an hour')} on a CPU core"
        yield cell(model, seeds=3, n_train=ALL, needs=needs)


# ---------------------------------------------------------------- points


def run_annealing(spec: Spec, task, device, progress) -> Outcome:
    """Move points with drawn labels down the gradient of Eq. 4, and watch them four ways.

    The loss at the run's own temperature falls because the temperature does, so runs are compared
    by the loss at one common temperature (``common``), by the share of a point's 10 nearest that
    have its class (``neighbours``) and by the silhouette of the classes (``sil``);
    ``epochs_to_pure`` is the first epoch whose ``neighbours`` reach ``PURE``. Points: those of
    ``SHOWN_EPOCHS``, but of readings none.
    """
    import pandas as pd
    import torch
    from sklearn.metrics import silhouette_score

    from snnl_lib.losses import annealed_temperature, soft_nearest_neighbor_loss
    from snnl_lib.training import Diverged, take_step

    points = torch.tensor(task.train_x, requires_grad=True)
    random = np.random.default_rng(named_seed(spec.seed, "labels"))
    labels = torch.as_tensor(random.integers(spec["classes"], size=len(points)))
    optimizers = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
    optimizer = optimizers[spec["optimizer"]]([points], lr=spec["learning_rate"])
    power = {None: 0, "over T": -1, "times T": 1}[spec.get("step")]
    entangled = partial(soft_nearest_neighbor_loss, labels=labels, distance=spec["distance"])
    temperature, rows, shown = codes.temperature_of(spec), [], []
    for epoch in range(spec["epochs"] + 1):
        now = annealed_temperature(epoch) if temperature == "annealed" else temperature
        places = points.detach().numpy().copy()
        if not np.isfinite(places).all():
            raise Diverged(f"a point was not finite in epoch {epoch}", pd.DataFrame(rows))
        loss = entangled(points, temperature=now)
        common = entangled(points.detach(), temperature=COMMON_TEMPERATURE)
        row = {"epoch": epoch, "temperature": now, "loss": loss.item(), "common": common.item()}
        row["neighbours"] = codes.neighbour_share(places, labels.numpy())
        rows.append(row | {"sil": silhouette_score(places, labels)})
        if epoch in SHOWN_EPOCHS and not spec.get("reading"):
            numbered = {"row": range(len(places)), "label": labels, "epoch": epoch}
            shown.append(pd.DataFrame(numbered | dict(zip("xy", places.T, strict=True))))
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
    """The supervised contrastive loss of the projections [B, 128], as ``train`` takes it."""
    from snnl_lib.losses import supervised_contrastive_loss

    return supervised_contrastive_loss(output, labels, CONTRASTIVE_TEMPERATURE)


def _kept(name, spec, images, device, facts):
    """Name the file of the cache that holds what was trained on images, by all that settles it."""
    import torch

    from snnl_book import cache

    facts = {"revision": spec.revision} | facts | {"images": np.ascontiguousarray(images)}
    facts |= {"torch": torch.__version__, "device": str(device).split(":")[0]}
    return data.cache_dir() / f"{name}-{cache.key(facts)}.pt"


def pretrained(spec: Spec, task, device, progress=None):
    """Get the autoencoder that deep clustering starts from, one for all runs of a seed and images:
    DEC and IDEC share one of normalised pixels, the others one of pixels as they are.

    It is trained if no run has left it in the cache. Returns (autoencoder, curve, seconds of its
    training). Raises Diverged.
    """
    import pandas as pd

    from snnl_book.cache import cached
    from snnl_book.methods.deep_clustering import ClusteringAutoencoder, pretrain
    from snnl_lib.training import Diverged, build

    images = np.ascontiguousarray(task.train_x)
    facts = {"epochs": spec["pretrain_epochs"], "seed": spec.seed, "code": CODE_SIZE}
    facts["revision"] = 1  # of this training, which those of its users leave as it is
    own = {"normalize": True} if spec.model in NORMALIZED else {}
    path = _kept(f"pretrained/{spec.dataset}", spec, images, device, facts | own)
    path, settings = path.with_suffix(".bin"), {"epochs": spec["pretrain_epochs"]} | own
    settings |= {"seed": spec.seed, "device": device, "progress": progress}
    under_way = path.with_suffix(".under-way.pt")

    def compute():
        model, history = pretrain(images, CODE_SIZE, checkpoint=under_way, **settings)
        if history.diverged:
            raise Diverged(f"pretraining: {history.diverged}", history.curve)
        curve = history.curve.to_dict("list")
        kind = {"unit_range": model.unit_range, "scale": model.scale}
        return {"weights": model.state_dict(), "curve": curve} | kind

    saved, seconds = cached(path, compute)
    under_way.unlink(missing_ok=True)
    settings = {name: saved.get(name) for name in ("unit_range", "scale")} | {"seed": spec.seed}
    model = build(ClusteringAutoencoder, images.shape[1], CODE_SIZE, **settings)
    model.load_state_dict(saved["weights"])
    return model.to(device).eval(), pd.DataFrame(saved["curve"]), seconds


def run_deep(spec: Spec, task, device, progress):
    """Cluster the test images by DEC, IDEC, VaDE or N2D (``CHOICES["deep"]``).

    Scores are those of the codes, of N2D of the map, that were clustered. N2D is fitted on the test
    images themselves, the others on the training images. ``ae-10`` is where VaDE and N2D start:
    k-means on the test codes of the autoencoder that they share. DEC and IDEC record where they
    start, k-means on the training codes of theirs, as ``pretrained_acc`` and ``pretrained_nmi``.
    """
    from dataclasses import replace

    from snnl_book.methods import DEC, IDEC, N2D, VaDE
    from snnl_lib import metrics
    from snnl_lib.training import forward, raise_if_diverged

    started = time.perf_counter()
    autoencoder, curve, shared_seconds = pretrained(spec, task, device, progress)
    shared = {"shared_seconds": shared_seconds, "waited": time.perf_counter() - started}
    if spec.model == "ae-10":
        test_codes = forward(autoencoder, task.test_x, layer="code")
        found = codes.score_codes(spec, task, test_codes, curve)
        return found._replace(**shared)
    method = {"dec": DEC, "idec": IDEC, "vade": VaDE, "n2d": N2D}[spec.model]
    names = ("max_steps", "epochs", "gamma", "lowest_rate")
    settings = {name: spec[name] for name in names if spec.get(name)}
    settings |= {"seed": spec.seed, "device": device, "progress": progress}
    under_way, images = f"checkpoints/{spec.dataset}-{spec.model}", task.train_x
    settings["checkpoint"] = _kept(under_way, spec, images, device, {"run": spec.identity})
    method = method(task.classes, **settings)
    if spec.model == "n2d":
        method.fit(task.test_x, autoencoder=autoencoder)
        clustered, clusters = method.manifold, method.clusters
    else:
        raise_if_diverged(method.fit(task.train_x, autoencoder=autoencoder))
        clustered, clusters = method.transform(task.test_x), method.predict(task.test_x)
    scores = metrics.clustering_scores(clustered, clusters, task.test_y)
    scores["snn"] = codes.entanglement(clustered, task.test_y)
    scores["clusters_used"] = float(len(np.unique(clusters)))
    answers = {"": clusters}
    if spec.model in NORMALIZED:
        start = replace(method, max_steps=0).fit(task.train_x, autoencoder=autoencoder)
        answers["pretrained_"] = start.predict(task.test_x)
        scores |= codes.pretrained_scores(answers["pretrained_"], task.test_y)
    curve = method.curve if len(method.curve) else None
    return Outcome(scores, curve, answers=answers, **shared)


def run_images(spec: Spec, task, device, progress):
    """Cluster the test images and score the clusters."""
    from snnl_lib.training import forward, raise_if_diverged, train

    if spec.model in DEEP:
        return run_deep(spec, task, device, progress)
    if spec.model == "supcon":
        model = build_projector(task.train_x.shape[1], spec.seed)
        settings = {"epochs": spec["epochs"], "seed": spec.seed}
        settings |= {"device": device, "progress": progress}
        history = train(model, task.train_x, task.train_y, contrastive, **settings)
        curve = raise_if_diverged(history).curve
        projected = forward(model, task.test_x, layer="code")
        return codes.score_codes(spec, task, projected, curve)
    _, test_codes, curve = codes.make_codes(spec, task, device, progress)
    return codes.score_codes(spec, task, test_codes, curve)


_POINTS = "Gradient descent on the loss alone, at falling and at fixed temperatures (image paper)"
_IMAGES = "Clustering images: disentangled codes and deep clustering (image paper)"
_OF_POINTS = (*WATCHED, "epochs_to_pure")
EXPERIMENTS = {
    "annealing": Experiment(_POINTS, _OF_POINTS, annealing_cells, run_annealing, seeds=MORE_SEEDS),
    "images": Experiment(_IMAGES, codes.SCORES, image_cells, run_images, seeds=MORE_SEEDS[:9]),
}
