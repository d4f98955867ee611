"""SCCL: supporting clustering with contrastive learning (Zhang et al., 2021), a rival of
ClusterBERT. Equation numbers are those of its paper.
"""

import math
from itertools import islice

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from tqdm import tqdm

from snnl_lib.cache import Checkpoint
from snnl_lib.embeddings.backbones import tokenize
from snnl_lib.embeddings.transformers import encode, load_encoder
from snnl_lib.methods.clusterbert import KMEANS_STARTS, check_clusters
from snnl_lib.methods.deep_clustering import soft_assignment, target_distribution
from snnl_lib.methods.tsdae import delete_words
from snnl_lib.training import batches, build, named_seed

PROJECTION = 128  # units of the space in which views are contrasted (Sec. 4)


def contrastive_loss(
    first: torch.Tensor, second: torch.Tensor, temperature: float = 0.5
) -> torch.Tensor:
    """Compute Eqs. 1-2, a number: how well each text's view is told, by cosine, from the views of
    the other texts; mean over both views [B, P].

    Row i of ``first`` and of ``second`` are views of the same text. ``temperature`` is above 0; the
    paper has 0.5.

    >>> apart = torch.eye(2)
    >>> found, by_hand = contrastive_loss(apart, apart, temperature=1.0), math.log(math.e + 2) - 1
    >>> bool(abs(found - by_hand) < 1e-6)
    True
    """
    views = F.normalize(torch.cat([first, second]), dim=1)
    cosines = views @ views.T / temperature
    cosines.fill_diagonal_(-math.inf)
    partner = torch.arange(len(views), device=views.device).roll(len(first))
    return F.cross_entropy(cosines, partner)


class SCCL:
    """Contrast two views of each text, and sharpen DEC's soft assignments to k centroids (Eqs.
    3-7), at the same time.

    The views are "deletion and dropout": the text with a fifth of its words deleted, read twice
    under the backbone's dropout, where the paper prefers words put in by another transformer. The
    targets' cluster sizes are those of the batch (Sec. 3.2).

    After ``fit``: ``embeddings``, float32 array [N, D]; ``clusters``, int array [N] (the nearest
    centroid); ``curve``, a frame with a row every 100
    steps: ``step``, and the mean ``contrastive`` and ``clustering`` losses since the row before;
    ``diverged``, why it stopped early, or nothing.

    Args:
        k: the number of clusters.
        backbone: a name of ``backbones.BACKBONES``.
        pooling: ``cls`` or ``mean``; default: the backbone's own.
        steps: batches it is trained on, 1,000 in the ClusterBERT paper.
        batch_size: 400 in SCCL's own experiments; never more than there are texts.
        deletion: share of words deleted, in [0, 1].
        weight: eta of Eq. 7, the weight of the clustering loss.
        learning_rate, new_rate: of the backbone, and of projection and centroids (1e-5 and 100
            times that in the ClusterBERT paper).
        seed: settles the order of the texts, the words deleted, dropout, k-means and the
            projection's first weights.
        device: as torch names it; on a GPU it computes in bfloat16 where that does no harm
            (autocast), on a CPU in float32.
        progress: name of a progress bar, None for none.
        checkpoint: file from which a training that was killed goes on, and which goes at its end;
            None keeps none.

    >>> texts = ["sort a list", "sorting lists", "read a file", "files to be read"]
    >>> found = SCCL(2, steps=1, seed=42).fit(texts)
    >>> found.embeddings.shape, found.clusters.shape
    ((4, 384), (4,))
    """

    def __init__(
        self,
        k,
        backbone="minilm",
        *,
        pooling=None,
        steps=1000,
        batch_size=400,
        deletion=0.2,
        weight=10.0,
        learning_rate=1e-5,
        new_rate=1e-3,
        seed=0,
        device="cpu",
        progress=None,
        checkpoint=None,
    ):
        self.k, self.backbone, self.pooling, self.steps, self.batch_size = (
            k,
            backbone,
            pooling,
            steps,
            batch_size,
        )
        self.deletion, self.weight, self.learning_rate, self.new_rate = (
            deletion,
            weight,
            learning_rate,
            new_rate,
        )
        self.seed, self.device, self.progress, self.checkpoint = (
            seed,
            torch.device(device),
            progress,
            checkpoint,
        )

    def fit(self, texts: list[str]):
        """Fine-tune on N texts. Returns self. A loss that is not finite ends the training without
        an error (``diverged``).

        Raises:
            ValueError: texts that are none, k that is not a whole number from 1 to N, or another
                pooling than ``cls`` and ``mean``.
            BackboneError: a backbone that is not here.
        """
        from sklearn.cluster import KMeans

        pieces = tokenize(texts, self.backbone)
        check_clusters(self.k, len(texts))
        encoder = load_encoder(self.backbone, self.pooling)
        kmeans = KMeans(
            self.k, n_init=KMEANS_STARTS, random_state=named_seed(self.seed, "centroids")
        ).fit(encode(encoder, pieces, device=self.device))
        centroids = nn.Parameter(torch.as_tensor(kmeans.cluster_centers_, device=self.device))
        units = encoder.transformer.config.hidden_size
        projection = build(
            lambda: nn.Sequential(nn.Linear(units, units), nn.ReLU(), nn.Linear(units, PROJECTION)),
            seed=self.seed,
        ).to(self.device)
        new = [*projection.parameters(), centroids]
        optimizer = torch.optim.Adam(
            [
                {"params": [*encoder.parameters()], "lr": self.learning_rate},
                {"params": new, "lr": self.new_rate},
            ],
            fused=True,
        )
        order = batches(
            len(texts),
            min(self.batch_size, len(texts)),
            torch.Generator().manual_seed(named_seed(self.seed, "batches")),
        )
        deletion, self.diverged, rows, sums = (
            np.random.default_rng(named_seed(self.seed, "deletion")),
            "",
            [],
            torch.zeros(2, device=self.device),
        )

        def read(ids):
            return encoder(*pieces.batch(ids, self.device)).float()

        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(named_seed(self.seed, "dropout"))
            encoder.train()
            kept, start = (
                Checkpoint(
                    self.checkpoint,
                    encoder=encoder,
                    projection=projection,
                    centroids=centroids,
                    optimizer=optimizer,
                    deletion=deletion,
                ),
                0,
            )
            if reached := kept.restore():
                start, rows, sums = (
                    reached["step"],
                    reached["rows"],
                    reached["sums"].to(self.device),
                )
                order = islice(order, start, None)
            steps = range(start, self.steps)
            for step in (
                steps
                if self.progress is None
                else tqdm(steps, desc=self.progress, leave=False, initial=start, total=self.steps)
            ):
                part = next(order).tolist()
                views = [
                    [
                        delete_words(pieces.ids[i], pieces.words[i], self.deletion, deletion)
                        for i in part
                    ]
                    for _ in range(2)
                ]
                with torch.autocast(
                    self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"
                ):
                    first, second, clean = (
                        read(views[0]),
                        read(views[1]),
                        read([pieces.ids[i] for i in part]),
                    )
                contrastive = contrastive_loss(projection(first), projection(second))
                q = soft_assignment(clean, centroids)
                clustering = F.kl_div(
                    q.log(), target_distribution(q).detach(), reduction="batchmean"
                )
                optimizer.zero_grad(set_to_none=True)
                (contrastive + self.weight * clustering).backward()
                optimizer.step()
                sums = sums + torch.stack([contrastive, clustering]).detach()
                if (step + 1) % 100 == 0 or step + 1 == self.steps:
                    means = (sums / (step % 100 + 1)).tolist()
                    rows.append({"step": step + 1, "contrastive": means[0], "clustering": means[1]})
                    sums = torch.zeros_like(sums)
                    if not math.isfinite(sum(means)):
                        self.diverged = (
                            f"the loss was {sum(means)} within the 100 steps before step {step + 1}"
                        )
                        break
                kept.save_if_due(step=step + 1, rows=rows, sums=sums)
        kept.remove()
        self.embeddings, self.curve = (
            encode(encoder, pieces, device=self.device),
            pd.DataFrame(rows),
        )
        self.clusters = (
            soft_assignment(torch.as_tensor(self.embeddings), centroids.detach().cpu())
            .argmax(dim=1)
            .numpy()
        )
        return self
