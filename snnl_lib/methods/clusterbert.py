"""ClusterBERT: a transformer fine-tuned in three stages so that the texts of a corpus fall into
clusters.

*ClusterBERT: Multi-Stage Fine-Tuning of Transformers for Deep Text Clustering*, Eqs. 1-5 and
Algorithm 1. Where the paper is silent, ``settings.Recipe`` says what is done here. With MiniLM
2,000 short texts take about five minutes on a CPU core; a whole corpus takes hours, or a GPU.
"""

import contextlib
import hashlib
import json
import math
import warnings
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd
import torch
from torch import nn
from tqdm import tqdm

from snnl_lib import whole_file
from snnl_lib.cache import Checkpoint, CheckpointError
from snnl_lib.embeddings import backbones
from snnl_lib.embeddings.backbones import tokenize
from snnl_lib.embeddings.transformers import encode, load_encoder
from snnl_lib.recipes import STAGES, Recipe
from snnl_lib.methods.deep_clustering import target_distribution
from snnl_lib.methods.tsdae import Decoder, delete_words
from snnl_lib.training import build, named_seed

KMEANS_STARTS = 10
NOTHING_KEPT = Checkpoint(None)
FIRST_CONFIDENCE = 0.6  # mean probability of the likeliest cluster when the head starts from centroids: neither blind nor sure of itself


# ---------------------------------------------------------------- Eqs. 2-5: the clustering head
# and its targets


def clustering_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Compute Eqs. 2-3, a number: the cross entropy between targets q [B, k], rows of sum 1, and
    the softmax of the head's logits [B, k]; mean over the batch.

    >>> loss = clustering_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.5, 0.5]]))
    >>> round(loss.item() / math.log(2), 6)
    1.0
    """
    return -(targets * logits.log_softmax(dim=1)).sum(dim=1).mean()


def match_clusters(clusters: np.ndarray, before: np.ndarray, k: int) -> np.ndarray:
    """Renumber clusters [N] so that as many texts as possible keep the number that they had before
    [N] (Hungarian method), all numbers from 0 to k - 1.

    >>> match_clusters(np.array([0, 0, 1]), np.array([1, 1, 0]), 2)
    array([1, 1, 0])
    """
    from scipy.optimize import linear_sum_assignment

    shared = np.zeros((k, k), dtype=int)
    np.add.at(shared, (clusters, before), 1)
    return linear_sum_assignment(shared, maximize=True)[1][clusters]


def head_of_centroids(
    centroids: np.ndarray, embeddings: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return weight [k, D] and bias [k] of a head that gives each embedding [N, D] to the nearest
    of the centroids [k, D].

    Its logits are negative squared distances (but for what is the same for all clusters), scaled so
    that the likeliest cluster has a probability of 0.6 on average: neither blind nor sure of
    itself. The paper does not say how its head starts.

    >>> embeddings = np.array([[0.0, 0], [1, 0], [4, 0], [5, 0]])
    >>> centroids = np.array([[0.5, 0], [4.5, 0]])
    >>> weight, bias = head_of_centroids(centroids, embeddings)
    >>> (embeddings @ weight.T + bias).argmax(axis=1)
    array([0, 0, 1, 1])
    """
    from scipy.optimize import brentq
    from scipy.special import softmax

    weight, bias = 2 * centroids, -(centroids**2).sum(axis=1)
    logits = embeddings @ weight.T + bias

    def short(log_scale):
        return softmax(math.exp(log_scale) * logits, axis=1).max(axis=1).mean() - FIRST_CONFIDENCE

    low, high = -20.0, 20.0
    scale = math.exp(brentq(short, low, high)) if short(low) < 0 < short(high) else 1.0
    return scale * weight, scale * bias


# ---------------------------------------------------------------- Algorithm 1


def check_clusters(k, texts: int) -> None:
    """Raise ValueError unless k is a whole number from 1 to the number of texts."""
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= texts:
        raise ValueError(
            f"the number of clusters must be a whole number from 1 to the number of texts, {texts}, got {k!r}"
        )


def batches_of_like_length(lengths, batch_size, generator):
    """Yield one pass over texts in batches of indices, in random order, texts of like length
    together, since a batch is as long as its longest.
    """
    order, found = torch.randperm(len(lengths), generator=generator).numpy(), []
    for start in range(0, len(order), 32 * batch_size):
        chunk = order[start : start + 32 * batch_size]
        chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
        found += [chunk[place : place + batch_size] for place in range(0, len(chunk), batch_size)]
    yield from (found[i] for i in torch.randperm(len(found), generator=generator).tolist())


class ClusterBERT:
    """Algorithm 1: domain adaptation, clustering, hardening, each on the sum of two losses of Eq.
    4.

    After ``fit``: ``embeddings``, a dictionary with a float32 array [N + others, D] for each stage,
    by the names ``start``, ``domain adaptation``, ``clustering`` and ``hardening`` (the paper
    clusters these, with k-means); ``clusters``, int array [N], the head's own after the last stage,
    None after stage 1; ``curve``, a frame with a row an epoch: ``stage`` and ``epoch`` (before 0 in
    the warm-up), the mean losses ``reconstruction`` (Eq. 1) and ``clustering`` (Eq. 3), nan where
    one has no weight, and ``used``, the number of clusters that the targets use; ``diverged``, why
    it stopped early, or nothing; ``pieces``, of the texts.

    Args:
        k: the number of clusters.
        backbone: a name of ``backbones.BACKBONES``.
        recipe: a ``Recipe``.
        seed: settles the order of the texts, the words deleted, dropout, k-means and the weights
            that are new.
        device: as torch names it; on a GPU it computes in bfloat16 where that does no harm
            (autocast), on a CPU in float32.
        progress: name of a progress bar, None for none.
        folder: where a checkpoint is kept after each stage and, within one, every ten minutes; a
            later call with the same texts, seed and recipe goes on from it. Stage 1 is shared by
            recipes that differ later. None keeps none. A damaged one is a CheckpointError.

    >>> texts = ["sort a list", "sorting lists", "read a file", "files to be read"]
    >>> short = Recipe(warm_up=0, adaptation_epochs=1, reclusterings=1,
    ...                clustering_epochs=1, hardening_epochs=1)
    >>> model = ClusterBERT(2, recipe=short, seed=42).fit(texts)
    >>> model.embeddings["hardening"].shape, model.clusters.shape
    ((4, 384), (4,))
    >>> model.curve["stage"].tolist()
    [1, 2, 3]
    """

    def __init__(
        self,
        k,
        backbone="minilm",
        recipe=None,
        *,
        seed=0,
        device="cpu",
        progress=None,
        folder: Path | None = None,
    ):
        self.k, self.backbone, self.recipe, self.seed, self.device = (
            k,
            backbone,
            recipe or Recipe(),
            seed,
            torch.device(device),
        )
        self.progress, self.folder = progress, folder

    def fit(self, texts: list[str], others: list[str] = (), stages: int = 3):
        """Fine-tune on N texts, up to a stage: 1 (which is TSDAE alone), 2 or 3. Returns self.

        ``others`` are texts that are embedded after each stage, too, and never trained on. A loss
        that is not finite ends the training without an error (``diverged``); targets that use fewer
        than half of the clusters are warned of.

        Raises:
            ValueError: texts that are none, k that is not a whole number from 1 to N, or another
                pooling than ``cls`` and ``mean``.
            BackboneError: a backbone that is not here, or cannot decode.
            CheckpointError: a checkpoint that is damaged or cannot be written.
        """
        self.pieces = tokenize(texts, self.backbone)
        check_clusters(self.k, len(texts))
        self._others = tokenize(others, self.backbone) if len(others) else None
        self._build()
        self.embeddings, self.clusters, self.diverged, self._rows = {}, None, "", []
        for number in range(self._restore(stages), stages + 1):
            with self._sources(STAGES[number]):
                under_way = self._train_stage(number) if number > 0 else None
            if self.diverged:
                break
            self._end_stage(number)
            if under_way is not None:
                under_way.remove()
        self.curve, self.seconds = pd.DataFrame(self._rows), 0.0
        return self

    def embed(self, texts: list[str]) -> np.ndarray:
        """Return the embeddings of any N texts as float32 array [N, D], after ``fit``. Raises
        ValueError for texts that are none.
        """
        return encode(self.encoder, tokenize(texts, self.backbone), device=self.device)

    def _build(self):
        self.encoder = load_encoder(self.backbone, self.recipe.pooling).to(self.device)
        self.decoder = build(Decoder, self.backbone, self.encoder, self.pieces, seed=self.seed).to(
            self.device
        )
        self.head = nn.Linear(self.encoder.transformer.config.hidden_size, self.k).to(self.device)
        if self.recipe.frozen:
            layers = self.encoder.transformer.encoder.layer[: self.recipe.frozen]
            for part in (self.encoder.transformer.embeddings, *layers):
                part.requires_grad_(False)

    @contextlib.contextmanager
    def _sources(self, stage):
        """Start a stage with random sources and an optimiser of its own, so that it is the same
        whether or not the stages before ran in this process.
        """
        old = [own for own in self.encoder.parameters() if own.requires_grad]
        new = [own for own in self.decoder.new_parameters.values() if own.requires_grad] + [
            *self.head.parameters()
        ]
        groups = [
            {"params": old, "lr": self.recipe.learning_rate},
            {"params": new, "lr": self.recipe.new_rate},
        ]
        self._optimizer = torch.optim.Adam(groups, fused=True)
        self._order = torch.Generator().manual_seed(named_seed(self.seed, f"batches, {stage}"))
        self._deletion = np.random.default_rng(named_seed(self.seed, f"deletion, {stage}"))
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(named_seed(self.seed, f"dropout, {stage}"))
            yield

    def _epochs(self, stage):
        """List the epochs of a stage: number (before 0 in the warm-up), weight of the clustering
        loss, whether targets are made before it.
        """
        recipe = self.recipe
        if stage == 1:
            return [(epoch, 0, False) for epoch in range(-recipe.warm_up, recipe.adaptation_epochs)]
        if stage == 2:
            epochs = recipe.clustering_epochs
            return [
                (epoch, recipe.clustering_weight, epoch % epochs == 0)
                for epoch in range(recipe.reclusterings * epochs)
            ]
        return [(epoch, recipe.hardening_weight, True) for epoch in range(recipe.hardening_epochs)]

    def _train_stage(self, stage):
        """Go through the epochs of a stage, from where a killed process had come to."""
        path = self._checkpoint(stage, ", under way") if self.folder else None
        kept = Checkpoint(
            path, optimizer=self._optimizer, deletion=self._deletion, **self._trained()
        )
        reached = kept.restore()
        self._rows = reached.get("rows", self._rows)
        targets = reached["targets"].to(self.device) if reached.get("targets") is not None else None
        for epoch, weight, makes_targets in self._epochs(stage):
            if self.diverged or epoch < reached.get("epoch", epoch):
                continue
            goes_on = reached if epoch == reached.get("epoch") else {}
            if makes_targets and not goes_on:
                targets = (
                    self._cluster_targets(epoch, targets)
                    if stage == 2
                    else target_distribution(self._predictions())
                )
            self._epoch(stage, epoch, weight, targets, kept, goes_on)
        return kept

    def _cluster_targets(self, epoch, before):
        """Cluster the embeddings: targets [N, k] of 0 and 1, numbered as those ``before`` (None:
        none, and the head starts from these).
        """
        from sklearn.cluster import KMeans

        found, turn = self._embeddings(), epoch // self.recipe.clustering_epochs
        kmeans = KMeans(
            self.k, n_init=KMEANS_STARTS, random_state=named_seed(self.seed, f"targets {turn}")
        ).fit(found)
        if before is None:
            clusters = kmeans.labels_
            self._start_head(kmeans.cluster_centers_, found)
        else:
            clusters = match_clusters(kmeans.labels_, before.argmax(dim=1).cpu().numpy(), self.k)
        return torch.eye(self.k, device=self.device)[
            torch.as_tensor(clusters, dtype=torch.int64, device=self.device)
        ]

    def _epoch(
        self, stage, epoch, weight, targets, kept=NOTHING_KEPT, goes_on=MappingProxyType({})
    ):
        """Pass once over the texts with Eq. 4, ``weight`` being lambda; before epoch 0 only what is
        new in the decoder learns.
        """
        for module in (self.encoder, self.decoder):
            module.train()
        lengths, first, sums = (
            np.array([len(own) for own in self.pieces.ids]),
            0,
            torch.zeros(2, device=self.device),
        )
        drawn_from = self._order.get_state()
        if goes_on:
            drawn_from, first, sums = (
                goes_on["drawn_from"],
                goes_on["batch"],
                goes_on["sums"].to(self.device),
            )
            self._order.set_state(drawn_from)
        parts = list(batches_of_like_length(lengths, self.recipe.batch_size, self._order))
        bar = range(first, len(parts))
        if self.progress is not None:
            bar = tqdm(
                bar,
                desc=f"{self.progress}: {STAGES[stage]} {epoch}",
                unit="batch",
                leave=False,
                initial=first,
                total=len(parts),
            )
        old = self._optimizer.param_groups[0]["params"]
        for own in old:
            own.requires_grad_(epoch >= 0)
        for number in bar:
            part = parts[number]
            losses = self._losses(
                part,
                weight,
                None if targets is None else targets[torch.as_tensor(part, device=self.device)],
            )
            self._optimizer.zero_grad(set_to_none=True)
            (weight * losses[1] + (1 - weight) * losses[0]).backward()
            self._optimizer.step()
            sums = sums + torch.stack(losses).detach()
            kept.save_if_due(
                epoch=epoch,
                batch=number + 1,
                sums=sums,
                drawn_from=drawn_from,
                targets=targets,
                rows=self._rows,
            )
        for own in old:
            own.requires_grad_(True)
        reconstruction, clustering = (sums / len(parts)).tolist()
        row = {
            "stage": stage,
            "epoch": epoch,
            "reconstruction": reconstruction if weight < 1 else math.nan,
        }
        row |= {
            "clustering": clustering if weight else math.nan,
            "used": math.nan if targets is None else len(targets.argmax(dim=1).unique()),
        }
        self._rows.append(row)
        if not math.isfinite(reconstruction + clustering):
            self.diverged = f"the loss was {reconstruction + clustering} in epoch {epoch} of stage {stage} ({STAGES[stage]})"
        elif row["used"] < self.k / 2:
            warnings.warn(
                f"only {row['used']} of {self.k} clusters are in use in epoch {epoch} of stage {stage}",
                stacklevel=2,
            )

    def _losses(self, part, weight, targets):
        """Return Eqs. 1 and 3 of a batch; the one that has no weight is 0."""
        nothing = torch.zeros((), device=self.device)
        noisy = [
            delete_words(
                self.pieces.ids[i], self.pieces.words[i], self.recipe.deletion, self._deletion
            )
            for i in part
        ]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            embedding = self.encoder(*self.pieces.batch(noisy, self.device))
            reconstruction = (
                self.decoder(
                    embedding, *self.pieces.batch([self.pieces.ids[i] for i in part], self.device)
                )
                if weight < 1
                else nothing
            )
        return reconstruction, clustering_loss(
            self.head(embedding.float()), targets
        ) if weight else nothing

    def _embeddings(self):
        return encode(self.encoder, self.pieces, device=self.device)

    @torch.no_grad()
    def _predictions(self):
        """Return p of Eq. 2 for the clean texts, [N, k]."""
        return self.head(torch.as_tensor(self._embeddings(), device=self.device)).softmax(dim=1)

    def _start_head(self, centroids, embeddings):
        weight, bias = head_of_centroids(centroids, embeddings)
        with torch.no_grad():
            self.head.weight.copy_(torch.as_tensor(weight))
            self.head.bias.copy_(torch.as_tensor(bias))

    # ------------------------------------------------ checkpoints

    def _checkpoint(self, number, suffix=""):
        """Name a stage's checkpoint after all that settles it."""
        recipe, known = (
            asdict(self.recipe),
            [
                "pooling",
                "deletion",
                "batch_size",
                "learning_rate",
                "new_rate",
                "warm_up",
                "adaptation_epochs",
                "frozen",
            ],
        )
        known += ["reclusterings", "clustering_epochs", "clustering_weight"] if number > 1 else []
        known += ["hardening_epochs", "hardening_weight"] if number > 2 else []
        facts = {name: recipe[name] for name in known} | {
            "backbone": backbones.cache_key(self.backbone),
            "torch": torch.__version__,
        }
        facts |= {"device": self.device.type, "seed": self.seed} | (
            {"k": self.k} if number > 1 else {}
        )
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        for pieces in (self.pieces, self._others):
            for own in pieces.ids if pieces else ():
                digest.update(own.tobytes() + b"|")
        return (
            Path(self.folder)
            / f"{self.backbone}-{digest.hexdigest()[:16]}-stage-{number}{suffix}.pt"
        )

    def _trained(self):
        """Name all that can learn: what a checkpoint has to hold."""
        named = [
            ("encoder", self.encoder.named_parameters()),
            ("decoder", self.decoder.new_parameters.items()),
            ("head", self.head.named_parameters()),
        ]
        return {
            f"{part}.{name}": own
            for part, found in named
            for name, own in found
            if own.requires_grad
        }

    def _end_stage(self, number):
        parts = [self._embeddings()]
        if self._others:
            parts.append(encode(self.encoder, self._others, device=self.device))
        self.embeddings[STAGES[number]] = np.concatenate(parts)
        if number > 1:
            self.clusters = self._predictions().argmax(dim=1).cpu().numpy()
        if self.folder is None or number == 0:
            return
        found = {
            "weights": {name: own.detach() for name, own in self._trained().items()},
            "rows": self._rows,
        }
        found["embeddings"] = {
            stage: torch.from_numpy(own) for stage, own in self.embeddings.items()
        }
        found["clusters"] = None if self.clusters is None else torch.from_numpy(self.clusters)
        path = self._checkpoint(number)
        try:
            with whole_file(path) as file:
                torch.save(found, file)
            if number == 3:  # that of stage 1 stays: other recipes go on from there
                self._checkpoint(2).unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"{path} could not be written ({error.strerror}): make room, or name another folder"
            ) from error

    def _restore(self, stages):
        """Go back to the last stage that has a checkpoint; returns the number of the next."""
        number = next(
            (
                number
                for number in range(stages, 0, -1)
                if self.folder and self._checkpoint(number).exists()
            ),
            None,
        )
        if number is None:
            return 0
        path = self._checkpoint(number)
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
            with torch.no_grad():
                for name, own in self._trained().items():
                    own.copy_(found["weights"][name])
            self.embeddings = {stage: own.numpy() for stage, own in found["embeddings"].items()}
            self._rows, self.clusters = (
                found["rows"],
                None if found["clusters"] is None else found["clusters"].numpy(),
            )
        except Exception as error:  # a damaged file can raise nearly anything
            raise CheckpointError(
                f"the checkpoint {path} is damaged ({type(error).__name__}): remove it, and the stage runs again"
            ) from error
        return number + 1
