"""ClusterBERT: a transformer fine-tuned in three stages so that texts fall into clusters.

*ClusterBERT: Multi-Stage Fine-Tuning of Transformers for Deep Text Clustering*, Eqs. 1-5 and
Algorithm 1. Where the paper leaves a setting open, ``recipes.Recipe`` gives ours. With MiniLM 2,000
short texts take about five minutes on a CPU core. A whole corpus takes hours there, or a GPU.
"""

import contextlib
import math
import time
import warnings
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn

from snnl_book.embeddings import backbones
from snnl_book.embeddings.transformers import encode, load_encoder, to_device
from snnl_book.methods import _fitting, _stages
from snnl_book.methods._fitting import batches_of_like_length
from snnl_book.methods._head import clustering_loss, head_of_centroids, match_clusters
from snnl_book.methods._saving import as_it_was_on_error
from snnl_book.methods._texts import TextEstimator
from snnl_book.methods.deep_clustering import target_distribution
from snnl_book.methods.tsdae import Decoder, delete_words
from snnl_book.recipes import STAGES, Recipe, check_numbers
from snnl_lib.checkpoint import Checkpoint
from snnl_lib.devices import kept_random_states
from snnl_lib.training import build, named_seed, progress_bar, take_step


@dataclass(eq=False, repr=False)
class ClusterBERT(TextEstimator):
    """Algorithm 1: domain adaptation, clustering, hardening, each on a sum of two losses (Eq. 4).

    A scikit-learn estimator that takes texts. After ``fit``:

    - ``labels_``: int array [N], the clusters of the texts: k-means on the embeddings after the
      last stage, as the paper evaluates. ``predict`` takes the nearest of its ``centers`` [k, D],
      and ``limits`` [k] are the distances from them beyond which a text is an outlier.
    - ``embeddings``: a dictionary with a float32 array [N + others, D] for each stage, by the names
      ``start``, ``domain adaptation``, ``clustering`` and ``hardening``. The paper clusters these,
      with k-means.
    - ``clusters``: int array [N], the head's clusters after the last stage; None after stage 1.
    - ``curve``: a frame with a row per epoch: ``stage``, ``epoch`` (below 0 in the warm-up), the
      mean losses ``reconstruction`` (Eq. 1) and ``clustering`` (Eq. 3), nan for a loss without
      weight, and ``used``, the number of clusters that the targets use.
    - ``diverged``: the reason for an early stop, or an empty text.
    - ``pieces``: the texts as ``tokenize`` cuts them.

    Args:
        k: the number of clusters.
        backbone: a name of ``backbones.BACKBONES``, or the path of a folder in which transformers
            has saved a BERT or RoBERTa and its tokenizer.
        recipe: a ``Recipe``; anything else is a ValueError. The default is the paper's, as far as
            the paper gives one.
        seed: determines the order of the texts, the deleted words, dropout, k-means and the new
            weights.
        device: as torch names it. Every device computes in float32.
        progress: the name of a progress bar, None for none.
        folder: where a checkpoint is kept after each stage and, within a stage, every ten minutes.
            A later call with the same texts, seed and recipe continues from it. Recipes that
            differ only in later stages share stage 1. None keeps no checkpoint.
        max_pieces: how many word pieces of a text are read, start and end included: at least 3, and
            at most what the backbone can read (512 for MiniLM).

    >>> texts = ["sort a list", "sorting lists", "read a file", "files to be read"]
    >>> short = Recipe(warm_up=0, adaptation_epochs=1, reclusterings=1,
    ...                clustering_epochs=1, hardening_epochs=1)
    >>> model = ClusterBERT(2, recipe=short, seed=42).fit(texts)
    >>> model.embeddings["hardening"].shape, model.clusters.shape
    ((4, 384), (4,))
    >>> model.curve["stage"].tolist()
    [1, 2, 3]
    """

    k: int
    backbone: str = "minilm"
    recipe: Recipe | None = None
    _: KW_ONLY
    seed: int = 0
    device: str | torch.device = "cpu"
    progress: str | None = None
    folder: Path | None = None
    max_pieces: int = backbones.MAX_PIECES

    @property
    def _recipe(self):
        return self.recipe or Recipe()

    @as_it_was_on_error
    def fit(self, texts: list[str], y=None, *, others: list[str] = (), stages: int = 3):
        """Fine-tune on N texts and return self; ``y`` is ignored.

        ``stages`` is the last stage: 1 (TSDAE alone), 2 or 3. ``others`` are texts that are
        embedded after each stage, and never trained on. A loss or an embedding that is not finite
        ends the training with a warning (``diverged``). Targets that use fewer than half of the
        clusters cause a warning too.

        Raises:
            ValueError: no list of texts, a k that is not a whole number from 1 to N, a pooling
                other than ``cls`` and ``mean``, an unknown number of stages, more frozen layers
                than the backbone has, a ``max_pieces`` that is out of its range, or a recipe that
                is not a ``Recipe``.
            BackboneError: a backbone that is not on this machine, or cannot decode.
            CacheError: a checkpoint that is damaged or cannot be written.
        """
        if self.recipe is not None and not isinstance(self.recipe, Recipe):
            problem = f"recipe must be a Recipe or None, got {type(self.recipe).__name__}"
            raise ValueError(f"{problem}: pass Recipe(...)")
        if stages not in (1, 2, 3):
            raise ValueError(f"stages must be 1, 2 or 3, got {stages!r}")
        self.pieces = self._cut(texts, anew=True)
        _fitting.check_clusters(self.k, len(texts), "texts")
        self._others = None if others is None or not len(others) else self._cut(others)
        self._build()
        self._forget_results()
        for stage in range(self._restore(stages), stages + 1):
            started = time.perf_counter()
            with self._sources(STAGES[stage]):
                under_way = self._train_stage(stage) if stage > 0 else None
            if not self.diverged:
                self._end_stage(stage, started)
            if self.diverged:
                break
            if under_way is not None:
                under_way.remove()
        self.curve = pd.DataFrame(self._rows)
        if self.embeddings:
            self._cluster([*self.embeddings.values()][-1][: len(texts)])
        return self

    def _forget_results(self):
        self.embeddings = {}
        self.clusters = None
        self.diverged = ""
        self.seconds = 0.0
        self._rows = []
        self.labels_ = self.centers = self.limits = None

    def _cluster(self, vectors):
        """Cluster the last embeddings of the fitted texts by k-means."""
        seed = named_seed(self.seed, "kmeans")
        kmeans = _fitting.k_means(vectors, self.k, seed, stacklevel=5)
        self.centers = kmeans.cluster_centers_
        self.labels_ = self._assign(vectors)
        self.limits = _fitting.distance_limits(vectors, self.centers, self.labels_)

    def _assign(self, vectors):
        """Return the clusters of embeddings [N, D], int array [N]."""
        from sklearn.metrics import pairwise_distances_argmin

        return pairwise_distances_argmin(vectors, self.centers)

    def _build(self):
        self.encoder = load_encoder(self.backbone, self._recipe.pooling).to(self._device)
        decoder = build(Decoder, self.backbone, self.encoder, self.pieces, seed=self.seed)
        self.decoder = decoder.to(self._device)
        transformer = self.encoder.transformer
        self.head = nn.Linear(transformer.config.hidden_size, self.k).to(self._device)
        if frozen := self._recipe.frozen:
            layers = len(transformer.encoder.layer)
            check_numbers({"frozen": frozen}, "frozen", Integral, 0, layers)
            for part in (transformer.embeddings, *transformer.encoder.layer[:frozen]):
                part.requires_grad_(False)

    def _trained(self):
        """Return all trainable parameters by name; a checkpoint holds these."""
        parts = {
            "encoder": self.encoder.named_parameters(),
            "decoder": self.decoder.new_parameters.items(),
            "head": self.head.named_parameters(),
        }
        return {
            f"{part}.{name}": value
            for part, parameters in parts.items()
            for name, value in parameters
            if value.requires_grad
        }

    @contextlib.contextmanager
    def _sources(self, stage):
        """Give a stage its own optimiser and random sources for the time of the block.

        Its result is then the same whether or not earlier stages ran in this process.
        """
        trained = self._trained().items()
        pretrained = [value for name, value in trained if name.startswith("encoder.")]
        new = [value for name, value in trained if not name.startswith("encoder.")]
        rate, new_rate = self._recipe.learning_rate, self._recipe.new_rate
        self._optimizer = _fitting.adam_at_two_rates(pretrained, rate, new, new_rate)
        self._order = torch.Generator().manual_seed(named_seed(self.seed, f"batches, {stage}"))
        self._deletion = np.random.default_rng(named_seed(self.seed, f"deletion, {stage}"))
        seed = named_seed(self.seed, f"dropout, {stage}")
        with _fitting.seeded_training(self._device, seed):
            yield

    def _train_stage(self, stage):
        """Train a stage, from its checkpoint if a killed process left one.

        Returns that checkpoint, which can be removed once the finished stage is saved.
        """
        path = self._stage_file(stage, ", under way") if self.folder else None
        parts = {"optimizer": self._optimizer, "deletion": self._deletion} | self._trained()
        saved = Checkpoint(path, **parts)
        reached = saved.restore() or {"epoch": -math.inf, "rows": self._rows, "targets": None}
        self._rows = reached["rows"]
        targets = reached["targets"]
        if targets is not None:
            targets = targets.to(self._device)
        for epoch, weight, makes_targets in _stages.epochs(stage, self._recipe):
            if self.diverged or epoch < reached["epoch"]:
                continue
            resumed = reached if epoch == reached["epoch"] else None
            if makes_targets and not resumed:
                targets = self._targets(stage, epoch, targets)
                if self.diverged:
                    break
            self._epoch(stage, epoch, weight, targets, saved, resumed)
        return saved

    def _targets(self, stage, epoch, before):
        """Return targets q [N, k] for the clean texts: k-means in stage 2, Eq. 5 in stage 3.

        Targets of k-means are 0 or 1, and numbered like the targets ``before``. If these are None,
        the head starts from the centroids.
        """
        embeddings = self._embed(self.pieces, f"before epoch {epoch} of stage {stage}")
        if self.diverged:
            return None
        if stage == 3:
            return target_distribution(self._probabilities(embeddings))
        seed = named_seed(self.seed, f"targets {epoch // self._recipe.clustering_epochs}")
        kmeans = _fitting.k_means(embeddings, self.k, seed)
        clusters = kmeans.labels_
        if before is None:
            weight, bias = head_of_centroids(kmeans.cluster_centers_, embeddings)
            with torch.no_grad():
                self.head.weight.copy_(torch.as_tensor(weight))
                self.head.bias.copy_(torch.as_tensor(bias))
        else:
            clusters = match_clusters(clusters, before.argmax(dim=1).cpu().numpy(), self.k)
        return torch.as_tensor(np.eye(self.k, dtype=np.float32)[clusters], device=self._device)

    def _embed(self, pieces, moment):
        """Return the embeddings [N, D] of texts; record it if they are not finite."""
        embeddings = encode(self.encoder, pieces, device=self._device)
        if not np.isfinite(embeddings).all():
            self.diverged = f"the embeddings were not finite {moment}"
        return embeddings

    @torch.no_grad()
    def _probabilities(self, embeddings):
        """Return p of Eq. 2 for the embeddings [N, D] of clean texts, [N, k]."""
        return self.head(torch.as_tensor(embeddings, device=self._device)).softmax(dim=1)

    def _epoch(self, stage, epoch, weight, targets, saved, resumed=None):
        """Pass once over the texts with Eq. 4, ``weight`` being lambda.

        ``saved`` is the stage's checkpoint, and ``resumed`` its content if it is of this epoch.
        """
        self.encoder.train()
        self.decoder.train()
        if resumed:
            self._order.set_state(resumed["drawn_from"])
        first_batch = resumed["batch"] if resumed else 0
        sums = (resumed["sums"] if resumed else torch.zeros(2)).to(self._device)
        drawn_from = self._order.get_state()
        lengths = np.array([len(ids) for ids in self.pieces.ids])
        batches = batches_of_like_length(lengths, self._recipe.batch_size, self._order)
        name = self.progress and f"{self.progress}: {STAGES[stage]} {epoch}"
        with self._warm_up_if(epoch < 0):
            for i in progress_bar(name, first_batch, len(batches), unit="batch"):
                sums = sums + self._step(batches[i], weight, targets)
                saved.save_if_due(
                    epoch=epoch,
                    batch=i + 1,
                    drawn_from=drawn_from,
                    sums=sums,
                    targets=targets,
                    rows=self._rows,
                )
        self._end_epoch(stage, epoch, weight, targets, (sums / len(batches)).tolist())

    @contextlib.contextmanager
    def _warm_up_if(self, is_warm_up):
        """Train only the new parameters within the block, if this is the warm-up."""
        pretrained = self._optimizer.param_groups[0]["params"]
        for parameter in pretrained:
            parameter.requires_grad_(not is_warm_up)
        yield
        for parameter in pretrained:
            parameter.requires_grad_(True)

    def _step(self, batch, weight, targets):
        """Take a step of Eq. 4 on a batch of texts; return both losses, [2] on the device."""
        if targets is not None:
            targets = targets[to_device(torch.from_numpy(batch), self._device)]
        losses = self._losses(batch, weight, targets)
        take_step(self._optimizer, weight * losses[1] + (1 - weight) * losses[0])
        return torch.stack(losses).detach()

    def _end_epoch(self, stage, epoch, weight, targets, losses):
        """Add a row to the curve; record a loss that is not finite, warn of unused clusters."""
        reconstruction, clustering = losses
        used = math.nan if targets is None else len(targets.argmax(dim=1).unique())
        self._rows.append(
            {
                "stage": stage,
                "epoch": epoch,
                "reconstruction": reconstruction if weight < 1 else math.nan,
                "clustering": clustering if weight else math.nan,
                "used": used,
            }
        )
        epoch_name = f"epoch {epoch} of stage {stage}"
        if not math.isfinite(loss := reconstruction + clustering):
            self.diverged = f"the loss was {loss} in {epoch_name} ({STAGES[stage]})"
        elif used < self.k / 2:
            sentence = f"only {used} of {self.k} clusters were used in {epoch_name}"
            warnings.warn(sentence, stacklevel=6)  # points at the call of fit

    def _losses(self, batch, weight, targets):
        """Return Eqs. 1 and 3 of a batch of texts; a loss without weight is 0."""
        pieces, ratio = self.pieces, self._recipe.deletion
        clean = [pieces.ids[i] for i in batch]
        noisy = [delete_words(pieces.ids[i], pieces.words[i], ratio, self._deletion) for i in batch]
        reconstruction = clustering = torch.zeros((), device=self._device)
        embedding = self.encoder(*pieces.batch(noisy))
        if weight < 1:
            reconstruction = self.decoder(embedding, *pieces.batch(clean))
        if weight:
            clustering = clustering_loss(self.head(embedding), targets)
        return reconstruction, clustering

    def _stage_file(self, stage, suffix=""):
        """Return the path of a stage's checkpoint, named after everything that determines it."""
        facts = {"backbone": backbones.cache_key(self.backbone), "seed": self.seed}
        facts["device"] = self._device.type
        if stage > 1:
            facts["k"] = self.k
        digest = _stages.digest(stage, self._recipe, facts, self.pieces, self._others)
        backbone = Path(self.backbone).name
        return Path(self.folder) / f"{backbone}-{digest}-stage-{stage}{suffix}.pt"

    def _end_stage(self, stage, started):
        """Embed all texts after a stage, and save the stage."""
        corpora = [self.pieces, self._others] if self._others else [self.pieces]
        moment = f"after stage {stage} ({STAGES[stage]})"
        embedded = [self._embed(pieces, moment) for pieces in corpora]
        if self.diverged:
            return
        self.embeddings[STAGES[stage]] = np.concatenate(embedded)
        if stage > 1:
            self.clusters = self._probabilities(embedded[0]).argmax(dim=1).cpu().numpy()
        self.seconds += time.perf_counter() - started
        if self.folder is None or stage == 0:
            return
        self._finished(stage).save(
            rows=self._rows,
            seconds=self.seconds,
            embeddings={name: torch.from_numpy(array) for name, array in self.embeddings.items()},
            clusters=None if self.clusters is None else torch.from_numpy(self.clusters),
        )
        if stage == 3:  # stage 1 stays: other recipes continue from it
            self._stage_file(2).unlink(missing_ok=True)

    def _finished(self, stage):
        """Return the checkpoint of a finished stage, with the results of all stages up to it."""
        return Checkpoint(self._stage_file(stage), **self._trained())

    def _restore(self, last_stage):
        """Restore the latest stage that has a checkpoint; return the number of the next stage."""
        for stage in range(last_stage, 0, -1) if self.folder else ():
            with kept_random_states(self._device):  # a checkpoint restores torch's generators
                saved = self._finished(stage).restore()
            if saved:
                self._rows, self.seconds = saved["rows"], saved["seconds"]
                self.embeddings = {name: each.numpy() for name, each in saved["embeddings"].items()}
                self.clusters = None if saved["clusters"] is None else saved["clusters"].numpy()
                return stage + 1
        return 0

    def _saved_parts(self):
        tensors = {"centers": self.centers, "limits": self.limits}
        return tensors, {"pooling": self._recipe.pooling}

    def _load_parts(self, tensors, facts, folder):
        super()._load_parts(tensors, facts, folder)
        self.centers, self.limits = (tensors[name].cpu().numpy() for name in ("centers", "limits"))
