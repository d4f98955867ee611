"""SCCL: supporting clustering with contrastive learning (Zhang et al., 2021).

The ClusterBERT paper compares itself with SCCL. Equation numbers are those of the SCCL paper.
"""

import math
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from numbers import Integral
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn

from snnl_book.embeddings.transformers import encode, load_encoder
from snnl_book.methods import _fitting
from snnl_book.methods._saving import as_it_was_on_error
from snnl_book.methods._texts import TextEstimator
from snnl_book.methods.deep_clustering.dec import divergence, soft_assignment, target_distribution
from snnl_book.methods.tsdae import delete_words
from snnl_book.recipes import check_numbers
from snnl_lib.checkpoint import Checkpoint
from snnl_lib.training import batches, build, named_seed, progress_bar, take_step

PROJECTION = 128  # units of the space in which views are contrasted (Sec. 4)
STEPS_PER_ROW = 100  # of the curve


def contrastive_loss(first: torch.Tensor, second: torch.Tensor, temperature: float = 0.5):
    """Compute Eqs. 1-2: the cross entropy of finding each view's partner among all other views.

    Row i of ``first`` and row i of ``second``, both [B, P], are views of the same text. Views are
    compared by cosine. ``temperature`` is above 0; the paper has 0.5. Returns a number, the mean
    over all views.

    >>> apart = torch.eye(2)
    >>> loss, by_hand = contrastive_loss(apart, apart, temperature=1.0), math.log(math.e + 2) - 1
    >>> bool(abs(loss - by_hand) < 1e-6)
    True
    """
    views = F.normalize(torch.cat([first, second]), dim=1)
    cosines = views @ views.T / temperature
    cosines.fill_diagonal_(-math.inf)
    partner = torch.arange(len(views), device=views.device).roll(len(first))
    return F.cross_entropy(cosines, partner)


def _projection(units):
    return nn.Sequential(nn.Linear(units, units), nn.ReLU(), nn.Linear(units, PROJECTION))


@dataclass(eq=False, repr=False)
class SCCL(TextEstimator):
    """Contrast two views of each text and sharpen its soft assignment to k centroids (Eqs. 3-7).

    The two views of a text come from "deletion and dropout": a fifth of its words is deleted, and
    the backbone's dropout is active. The paper prefers views in which another transformer replaces
    words. The targets use the cluster sizes within the batch (Sec. 3.2).

    A scikit-learn estimator that takes texts. After ``fit``:

    - ``embeddings``: float32 array [N, D].
    - ``labels_``: int array [N], each text's nearest centroid.
    - ``curve``: a frame with a row every 100 steps: ``step``, and the mean ``contrastive`` and
      ``clustering`` losses since the row before.
    - ``diverged``: the reason for an early stop, or an empty text.

    Args:
        k: the number of clusters.
        backbone: a name of ``backbones.BACKBONES``, or the path of a folder in which transformers
            has saved a transformer and its tokenizer.
        pooling: ``cls`` or ``mean``; default: the backbone's own.
        steps: the number of batches, 1,000 in the ClusterBERT paper.
        batch_size: 400 in SCCL's own experiments, and at most the number of texts.
        deletion: share of words deleted, in [0, 1].
        weight: eta of Eq. 7, the weight of the clustering loss.
        learning_rate, new_rate: of the backbone, and of projection and centroids (1e-5 and 100
            times that in the ClusterBERT paper).
        seed: determines the order of the texts, the deleted words, dropout, k-means and the
            projection's first weights.
        device: as torch names it. Every device computes in float32.
        progress: the name of a progress bar, None for none.
        checkpoint: a file from which a killed training continues, removed at its end. None keeps
            no file.

    >>> texts = ["sort a list", "sorting lists", "read a file", "files to be read"]
    >>> model = SCCL(2, steps=1, seed=42).fit(texts)
    >>> model.embeddings.shape, model.labels_.shape
    ((4, 384), (4,))
    """

    k: int
    backbone: str = "minilm"
    _: KW_ONLY
    pooling: str | None = None
    steps: int = 1000
    batch_size: int = 400
    deletion: float = 0.2
    weight: float = 10.0
    learning_rate: float = 1e-5
    new_rate: float = 1e-3
    seed: int = 0
    device: str | torch.device = "cpu"
    progress: str | None = None
    checkpoint: Path | None = None

    @as_it_was_on_error
    def fit(self, texts: list[str], y=None):
        """Fine-tune on N texts and return self; ``y`` is ignored.

        A loss that is not finite ends the training with a warning (``diverged``).

        Raises:
            ValueError: no list of texts, a k that is not a whole number from 1 to N, a pooling
                other than ``cls`` and ``mean``, or a parameter that is out of its range.
            BackboneError: a backbone that is not on this machine.
        """
        check_numbers(vars(self), "steps", Integral)
        check_numbers(vars(self), "batch_size", Integral, 2)  # one text has no contrast
        check_numbers(vars(self), "deletion", high=1)
        check_numbers(vars(self), "weight learning_rate new_rate")
        pieces = self._cut(texts, anew=True)
        _fitting.check_clusters(self.k, len(texts), "texts")
        self._build(pieces)
        optimizer = _fitting.adam_at_two_rates(
            [*self.encoder.parameters()],
            self.learning_rate,
            [*self._projection.parameters(), self._centroids],
            self.new_rate,
        )
        deletion = np.random.default_rng(named_seed(self.seed, "deletion"))
        saved = Checkpoint(
            self.checkpoint,
            self._training(texts=list(texts)),
            encoder=self.encoder,
            projection=self._projection,
            centroids=self._centroids,
            optimizer=optimizer,
            deletion=deletion,
        )
        self.diverged = ""
        with _fitting.seeded_training(self._device, named_seed(self.seed, "dropout")):
            rows = self._train(pieces, optimizer, deletion, saved)
        saved.remove()
        self.curve = pd.DataFrame(rows)
        self.embeddings = encode(self.encoder, pieces, device=self._device)
        self.labels_ = self._assign(self.embeddings)
        return self

    def _train(self, pieces, optimizer, deletion, saved):
        """Take all steps, from the checkpoint if there is one; return the rows of the curve."""
        self.encoder.train()
        state = saved.restore() or {"step": 0, "rows": [], "sums": torch.zeros(2)}
        rows, sums = state["rows"], state["sums"].to(self._device)
        shuffling = torch.Generator().manual_seed(named_seed(self.seed, "batches"))
        order = batches(len(pieces), min(self.batch_size, len(pieces)), shuffling)
        bar = progress_bar(self.progress, state["step"], self.steps)
        for step, batch in zip(bar, islice(order, state["step"], None), strict=False):
            losses = self._losses(pieces, batch.tolist(), deletion)
            take_step(optimizer, losses[0] + self.weight * losses[1])
            sums = sums + torch.stack(losses).detach()
            if (step + 1) % STEPS_PER_ROW == 0 or step + 1 == self.steps:
                contrastive, clustering = (sums / (step % STEPS_PER_ROW + 1)).tolist()
                rows.append(
                    {"step": step + 1, "contrastive": contrastive, "clustering": clustering}
                )
                sums = torch.zeros_like(sums)
                if not math.isfinite(loss := contrastive + clustering):
                    steps = f"the {STEPS_PER_ROW} steps before step {step + 1}"
                    self.diverged = f"the loss was {loss} within {steps}"
                    break
            saved.save_if_due(step=step + 1, rows=rows, sums=sums)
        return rows

    def _assign(self, vectors):
        """Return the nearest centroid of each of the embeddings [N, D], int array [N]."""
        q = soft_assignment(torch.as_tensor(vectors), self._centroids.detach().cpu())
        return q.argmax(dim=1).numpy()

    def _saved_parts(self):
        return {"centroids": self._centroids}, {"pooling": self.encoder.pooling}

    def _load_parts(self, tensors, facts, folder):
        super()._load_parts(tensors, facts, folder)
        self._centroids = tensors["centroids"]

    def _build(self, pieces):
        """Load the encoder, and start the centroids from k-means on its embeddings."""
        self.encoder = load_encoder(self.backbone, self.pooling)
        embeddings = encode(self.encoder, pieces, device=self._device)
        seed = named_seed(self.seed, "centroids")
        centers = _fitting.k_means(embeddings, self.k, seed).cluster_centers_
        self._centroids = nn.Parameter(torch.as_tensor(centers, device=self._device))
        projection = build(_projection, embeddings.shape[1], seed=self.seed)
        self._projection = projection.to(self._device)

    def _losses(self, pieces, batch, random):
        """Return the contrastive and the clustering loss of a batch of texts (Eqs. 2 and 6)."""
        clean = [pieces.ids[i] for i in batch]
        texts = [(pieces.ids[i], pieces.words[i]) for i in batch]

        def read(ids):
            return self.encoder(*pieces.batch(ids))

        views = [[delete_words(*text, self.deletion, random) for text in texts] for _ in range(2)]
        first, second, codes = map(read, [*views, clean])
        contrastive = contrastive_loss(self._projection(first), self._projection(second))
        q = soft_assignment(codes, self._centroids)
        target = target_distribution(q).detach()
        return contrastive, divergence(q, target)
