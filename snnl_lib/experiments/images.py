"""The experiments of the image paper: why the temperature falls, and images clustered by
disentangled codes and by deep clustering.

*Improving k-Means Clustering with Disentangled Internal Representations* (Agarap and Azcarraga,
2020), and the article about it. Where they are silent the choice is made in ``CHOICES`` here and in
``text.CHOICES``.
"""

import hashlib
import json

import numpy as np
import pandas as pd
import torch
from torch import nn

from snnl_lib import data, metrics, whole_file
from snnl_lib.experiments import clustering
from snnl_lib.experiments.image_grids import CONTRASTIVE_TEMPERATURE, DEEP
from snnl_lib.experiments.text import entanglement, number, supervised_contrastive_loss
from snnl_lib.losses import annealed_temperature, soft_nearest_neighbor_loss
from snnl_lib.methods import deep_clustering
from snnl_lib.models import Autoencoder, output_layer
from snnl_lib.results import Outcome, Spec
from snnl_lib.training import History, build, forward, named_seed, train

CHOICES = {
    "points": "300 points of a two-dimensional Gaussian, their classes drawn with equal chances; plain gradient descent on Eq. 4 over all points, squared "
    "Euclidean distances as in Frosst et al., four classes, a step of 10 times the gradient of the mean",
    "images": "pixels divided by 255; the labelled images are drawn from the training set, a new draw for each seed, and nothing sees the others",
    "epochs": "30 epochs over 10,000 labelled images, batches of 256, Adam, the annealing of Eq. 6; the article gives neither epochs nor weights",
    "weight": "the reconstruction error is the mean binary cross entropy over images and pixels, beside which the loss weighs alpha = 1 or 100",
    "hidden": "the loss is summed over all seven hidden layers, the logistic code among them",
    "kmeans": "k-means (k = number of classes, 10 starts) is fitted on the test images' codes, and the scores are computed on these",
    "supcon": "the supervised contrastive loss at T = 0.1 on a linear projection of the code to 128 units that is thrown away; the encoder of ae-d, with the "
    "same initial weights; no augmentation, no decoder",
    "deep": "DEC, IDEC, VaDE and N2D see the training images that ae-d sees, without labels, and start from one autoencoder 784-500-500-2000-10 a seed, "
    "trained for 200 epochs as a whole; DEC and IDEC end after 8,000 steps at the latest, VaDE after 200 epochs; DEC, IDEC and VaDE "
    "give the test images their clusters, N2D maps and clusters the test codes",
    "labels": "with few labels the autoencoder sees the labelled images alone, for as many steps as with 10,000; a thirtieth of these is an epoch of Eq. 6; "
    "alpha = 1",
    "t-SNE": "2,000 test images drawn once; of EMNIST those of ten classes drawn once",
}
CODE_SIZE = 10  # of the autoencoder that deep clustering starts from, as in its papers
PROJECTION = 128  # Khosla et al. (2020), Sec. 3.1
SHOWN_EPOCHS = (0, 10, 20, 50)
COMMON_TEMPERATURE = 1.0
PURE = 0.9  # share of neighbours of the own class that counts as disentangled


def run_annealing(spec: Spec, task, device, progress) -> Outcome:
    """Move points with drawn labels down the gradient of their soft nearest neighbor loss, and
    watch them four ways, every epoch.

    The loss at the run's own temperature falls because the temperature does, so runs are compared
    by the loss at one common temperature (``common``), by the share of a point's 10 nearest that
    have its class (``neighbours``) and by the silhouette of the classes (``sil``);
    ``epochs_to_pure`` is the first epoch whose ``neighbours`` reach ``PURE``. Points: those of
    ``SHOWN_EPOCHS``, but of readings none.
    """
    from sklearn.metrics import silhouette_score

    points = torch.tensor(task.train_x, requires_grad=True)
    labels = torch.as_tensor(
        np.random.default_rng(named_seed(spec.seed, "labels")).integers(
            spec["classes"], size=len(points)
        )
    )
    optimizer = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[spec["optimizer"]](
        [points], lr=spec["learning_rate"]
    )
    rows, shown, temperature = [], [], number(spec.temperature)
    for epoch in range(spec["epochs"] + 1):
        now = annealed_temperature(epoch) if temperature == "annealed" else temperature
        places = points.detach().numpy().copy()
        if not np.isfinite(places).all():
            return Outcome(
                {}, pd.DataFrame(rows), "diverged", f"a point was not finite in epoch {epoch}"
            )
        loss = soft_nearest_neighbor_loss(points, labels, now, distance=spec["distance"])
        common = soft_nearest_neighbor_loss(
            points.detach(), labels, COMMON_TEMPERATURE, distance=spec["distance"]
        ).item()
        seen = {
            "neighbours": clustering.neighbours(places, labels.numpy()),
            "sil": silhouette_score(places, labels),
        }
        rows.append(
            {"epoch": epoch, "temperature": now, "loss": loss.item(), "common": common} | seen
        )
        if epoch in SHOWN_EPOCHS and not spec.get("reading"):
            shown.append(
                pd.DataFrame(
                    {
                        "row": range(len(places)),
                        "label": labels,
                        "epoch": epoch,
                        "x": places[:, 0],
                        "y": places[:, 1],
                    }
                )
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    curve = pd.DataFrame(rows)
    pure = curve.loc[curve["neighbours"] >= PURE, "epoch"]
    scores = curve.iloc[-1][["loss", "common", "neighbours", "sil"]].to_dict() | {
        "epochs_to_pure": float(pure.min()) if len(pure) else np.nan
    }
    return Outcome(scores, curve, points=pd.concat(shown) if shown else None)


# ---------------------------------------------------------------- one run on images


def build_projector(in_features, seed):
    """Build the encoder of ``Autoencoder``, with the weights that it has for this seed, and a
    linear projection of its code in place of the decoder.
    """

    def make():
        model = Autoencoder(in_features)
        model.decoder, model.output = (
            nn.ModuleList(),
            output_layer(model.code.out_features, PROJECTION),
        )
        return model

    return build(make, seed=seed)


def contrastive(output, features, labels):
    """The supervised contrastive loss of the projections [B, 128], as ``train`` takes it."""
    return supervised_contrastive_loss(output, labels, CONTRASTIVE_TEMPERATURE)


def pretrained(spec: Spec, task, device="cpu", progress=None):
    """Return (autoencoder, History) of ``deep_clustering.pretrain`` for a spec, from the cache if a
    run of the same seed and images left it there.

    Raises DataError if the cached file is damaged.
    """
    facts = {
        "epochs": spec["pretrain_epochs"],
        "seed": spec.seed,
        "code": CODE_SIZE,
        "torch": torch.__version__,
        "device": str(device).split(":")[0],
    }
    facts["revision"] = spec.revision
    images = np.ascontiguousarray(task.train_x)
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode() + images.tobytes()).hexdigest()[
        :16
    ]
    path = data.cache_dir() / "pretrained" / f"{spec.dataset}-{key}.pt"
    if not path.exists():
        under_way = path.with_suffix(".under-way.pt")
        own = {
            "epochs": spec["pretrain_epochs"],
            "seed": spec.seed,
            "device": device,
            "checkpoint": under_way,
        }
        model, history = deep_clustering.pretrain(
            images, CODE_SIZE, **own, progress=progress and f"{progress}: autoencoder"
        )
        if history.diverged:
            return model, history
        with whole_file(path) as file:
            torch.save(
                {
                    "weights": model.state_dict(),
                    "unit_range": model.unit_range,
                    "curve": history.curve.to_dict("list"),
                },
                file,
            )
        under_way.unlink(missing_ok=True)
    try:
        saved = torch.load(path, map_location=device, weights_only=True)
        curve = pd.DataFrame(saved["curve"])
        model = build(
            deep_clustering.ClusteringAutoencoder,
            images.shape[1],
            CODE_SIZE,
            unit_range=saved["unit_range"],
            seed=spec.seed,
        )
        model.load_state_dict(saved["weights"])
    except Exception as error:  # a damaged file can raise nearly anything
        raise data.DataError(
            f"the autoencoder {path} is damaged ({type(error).__name__}): remove it, and the next run trains it again"
        ) from error
    return model.to(device).eval(), History(curve)


def checkpoint(spec: Spec, task, device):
    """Name the file from which a run on these images goes on if it is killed, after all that
    settles it.
    """
    facts = [*spec.identity, spec.revision, torch.__version__, str(device).split(":")[0]]
    digest = hashlib.sha256(
        json.dumps(facts).encode() + np.ascontiguousarray(task.train_x).tobytes()
    ).hexdigest()[:16]
    return data.cache_dir() / "checkpoints" / f"{spec.dataset}-{spec.model}-{digest}.pt"


def run_deep(spec: Spec, task, device, progress) -> Outcome:
    """Cluster the test images by DEC, IDEC, VaDE or N2D (``CHOICES["deep"]``), scored on the codes,
    of N2D on the map, that were clustered.

    ``ae-10`` is where they start: k-means on the codes of the autoencoder that they share.
    """
    autoencoder, history = pretrained(spec, task, device, progress)
    if history.diverged:
        return Outcome({}, history.curve, "diverged", f"pretraining: {history.diverged}")
    if spec.model == "ae-10":
        return clustering.score_codes(
            spec, task, forward(autoencoder, task.test_x, layer="code"), history.curve
        )
    own = {name: spec[name] for name in ("max_steps", "epochs") if spec.get(name)}
    kind = {
        "dec": deep_clustering.DEC,
        "idec": deep_clustering.IDEC,
        "vade": deep_clustering.VaDE,
        "n2d": deep_clustering.N2D,
    }[spec.model]
    method = kind(
        task.classes,
        seed=spec.seed,
        device=device,
        progress=progress,
        checkpoint=checkpoint(spec, task, device),
        **own,
    )
    if spec.model == "n2d":
        method.fit(task.test_x, autoencoder)
        codes, clusters = method.manifold, method.clusters
    else:
        method.fit(task.train_x, autoencoder)
        if method.diverged:
            return Outcome({}, method.curve, "diverged", method.diverged)
        codes, clusters = method.codes(task.test_x), method.predict(task.test_x)
    scores = metrics.clustering_scores(codes, clusters, task.test_y)
    scores |= {
        "snn": entanglement(codes, task.test_y),
        "clusters_used": float(len(np.unique(clusters))),
    }
    return Outcome(scores, method.curve if len(method.curve) else None)


def run_images(spec: Spec, task, device, progress) -> Outcome:
    """Cluster the test images and score the clusters."""
    from threadpoolctl import threadpool_limits

    if spec.model in DEEP:
        with threadpool_limits(1):
            return run_deep(spec, task, device, progress)
    if spec.model != "supcon":
        return clustering.run_clustering(spec, task, device, progress)
    model = build_projector(task.train_x.shape[1], spec.seed)
    history = train(
        model,
        task.train_x,
        task.train_y,
        contrastive,
        epochs=spec["epochs"],
        seed=spec.seed,
        device=device,
        progress=progress,
    )
    if history.diverged:
        return Outcome({}, history.curve, "diverged", history.diverged)
    return clustering.score_codes(
        spec, task, forward(model, task.test_x, layer="code"), history.curve
    )
