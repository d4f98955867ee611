"""What grids and runs share, and no import that takes time: seeds, the three profiles, the cell of
a table, the recipe of ClusterBERT.
"""

from dataclasses import dataclass

PAPER_SEEDS = (42, 1234, 73, 1024, 31415926)
MORE_SEEDS = (*PAPER_SEEDS, 7, 11, 13, 17, 19)  # for what costs seconds a run

ALL = 1_000_000  # as many training documents as there are
ALL_SHORT_TEXTS = 50_000  # more documents than any of the corpora of short texts has
BATCH_SIZE = 256

DRAWN = "gaussian"
"""The data set of ``annealing``: points that each run draws from its own seed."""
TEXTS = "texts"
"""In place of an embedding: what trains a backbone reads the texts themselves."""

_TEXT = {
    # documents are upper bounds; "full" is the paper's protocol
    "tiny": dict(
        n_train=300,
        n_test=200,
        classification_epochs=2,
        convolution_epochs=1,
        clustering_epochs=2,
        lexicon_epochs=2,
    ),
    "quick": dict(
        n_train=2000,
        n_test=1000,
        classification_epochs=10,
        convolution_epochs=2,
        clustering_epochs=5,
        lexicon_epochs=10,
    ),
    "full": dict(
        n_train=20_000,
        n_test=None,
        classification_epochs=30,
        convolution_epochs=50,
        clustering_epochs=30,
        lexicon_epochs=50,
    ),
}
_MORE = {
    "tiny": dict(kmeans_starts=2, tsne_iterations=300, label_sizes=(100,), sentence_vectors=False),
    "quick": dict(
        kmeans_starts=10, tsne_iterations=500, label_sizes=(100, 300, 1000), sentence_vectors=False
    ),
    "full": dict(
        kmeans_starts=10,
        tsne_iterations=1000,
        label_sizes=(100, 300, 1000, 3000, 10_000),
        sentence_vectors=True,
    ),
}
_IMAGES = {
    "tiny": dict(
        image_train=300,
        image_test=200,
        image_epochs=2,
        more_epochs=3,
        pretrain_epochs=2,
        vade_epochs=2,
        deep_steps=4,
        image_tsne_iterations=300,
        image_labels=(100,),
        annealing_epochs=3,
    ),
    "quick": dict(
        image_train=2000,
        image_test=1000,
        image_epochs=6,
        more_epochs=12,
        pretrain_epochs=10,
        vade_epochs=5,
        deep_steps=80,
        image_tsne_iterations=500,
        image_labels=(100, 300, 1000),
        annealing_epochs=50,
    ),
    "full": dict(
        image_train=10_000,
        image_test=None,
        image_epochs=30,
        more_epochs=100,
        pretrain_epochs=200,
        vade_epochs=200,
        deep_steps=8000,
        image_tsne_iterations=5000,
        image_labels=(100, 300, 1000, 3000),
        annealing_epochs=50,
    ),
}
_ONCE = dict(
    batch_size=16,
    warm_up=1,
    adaptation_epochs=1,
    reclusterings=1,
    clustering_epochs=1,
    hardening_epochs=1,
)
_SHORT = {
    "tiny": dict(
        short_documents=60,
        short_all=80,
        short_recipe=_ONCE,
        idec_epochs=2,
        sccl_steps=2,
        sccl_needs="",
    ),
    "quick": dict(
        short_documents=250,
        short_all=600,
        short_recipe=_ONCE,
        idec_epochs=20,
        sccl_steps=5,
        sccl_needs="",
    ),
    "full": dict(
        short_documents=2000,
        short_all=ALL_SHORT_TEXTS,
        short_recipe={},
        idec_epochs=150,
        sccl_steps=1000,
        sccl_needs="ten hours on a CPU core",
    ),
}
PROFILES = {name: _TEXT[name] | _MORE[name] | _IMAGES[name] | _SHORT[name] for name in _TEXT}


@dataclass(frozen=True)
class Cell:
    """One cell of a table: what is run for each seed.

    ``seeds`` limits it to the first few of those asked for; ``n_train`` replaces the profile's
    number of training documents; ``dataset`` replaces the corpus asked for; ``needs`` is what it
    costs on a CPU core, where it is left out unless asked for (``--costly``).
    """

    embedding: str
    model: str
    alpha: float
    settings: dict
    temperature: str = "annealed"
    seeds: int | None = None
    n_train: int | None = None
    needs: str = ""
    dataset: str = ""


STAGES = ("start", "domain adaptation", "clustering", "hardening")
"""What ClusterBERT does to a backbone, one after the other."""


@dataclass(frozen=True)
class Recipe:
    """How ClusterBERT is trained. The paper (App. 1.2.3) fixes Adam, its rate, the epochs of stages
    1 and 3 and both lambdas, and names a grid for stage 2.

    Args:
        pooling: the sentence embedding: ``cls`` as in the paper, or ``mean``.
        deletion: share of the words that are deleted from what the encoder reads, in [0, 1], 0.6 as
            in TSDAE; one word always stays.
        batch_size: the paper has 8.
        learning_rate: of what the backbone brings along.
        new_rate: of what it does not: the decoder's attention to the embedding and its output
            layer, and the clustering head.
        warm_up: epochs before stage 1 in which only the new part of the decoder learns, so that its
            random start does not spoil the encoder it shares.
        adaptation_epochs: of stage 1.
        reclusterings: how often stage 2 clusters; the paper's grid is 1 or 2 times 2 or 4 epochs.
        clustering_epochs: of stage 2, after each clustering.
        hardening_epochs: of stage 3.
        clustering_weight, hardening_weight: lambda of Eq. 4 in stages 2 and 3, in [0, 1]; 1 leaves
            reconstruction out.
        frozen: how many layers stay as they are, from the first on, with the embeddings under them;
            0 trains all.
    """

    pooling: str = "cls"
    deletion: float = 0.6
    batch_size: int = 32
    learning_rate: float = 2e-5
    new_rate: float = 1e-3
    warm_up: int = 1
    adaptation_epochs: int = 2
    reclusterings: int = 2
    clustering_epochs: int = 2
    hardening_epochs: int = 2
    clustering_weight: float = 0.8
    hardening_weight: float = 0.75
    frozen: int = 0
