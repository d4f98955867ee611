"""The cells of tables, the profiles that set their sizes, and their seeds.

Nothing here takes time to import, so that listing runs need not wait for torch.
"""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from snnl_lib import SnnlError

PAPER_SEEDS = (42, 1234, 73, 1024, 31415926)
MORE_SEEDS = (*PAPER_SEEDS, 7, 11, 13, 17, 19)  # for runs of a few seconds
NEW_SEEDS = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
FIFTEEN_SEEDS = (*PAPER_SEEDS, *NEW_SEEDS)
CONFIRMING_SEEDS = (43, 47, 53, 59, 61, 67, 71, 79, 83, 89)  # for a finding seen on other seeds

ALL = 1_000_000  # more training documents than any data set has
ALL_SHORT_TEXTS = 50_000  # more documents than any corpus of short texts has
DRAWN = "gaussian"
"""The data set of ``annealing``: points that each run draws with its own seed."""
TEXTS = "texts"
"""Takes the place of an embedding for methods that read the texts themselves."""


class ExperimentError(SnnlError):
    """An unknown experiment, profile, seed, data set or device."""


_SHORTEST_RECIPE = {
    "batch_size": 16,
    "warm_up": 1,
    "adaptation_epochs": 1,
    "reclusterings": 1,
    "clustering_epochs": 1,
    "hardening_epochs": 1,
}
_SIZES = {  # tiny (seconds, for tests), quick (minutes), full (the recorded one)
    "n_train": (300, 2000, 20_000),  # documents are upper bounds
    "n_test": (200, 1000, None),
    "classification_epochs": (2, 30, 30),
    "convolution_epochs": (1, 2, 50),
    "clustering_epochs": (2, 15, 30),
    "lexicon_epochs": (2, 10, 50),
    "kmeans_starts": (2, 10, 10),
    "tsne_iterations": (300, 300, 1000),
    "label_sizes": ((100,), (100, 1000), (100, 300, 1000, 3000, 10_000)),
    "sentence_vectors": (False, False, True),
    "image_train": (300, 1000, 10_000),
    "image_test": (200, 1000, None),
    "image_epochs": (2, 30, 30),
    "more_epochs": (3, 12, 100),
    "pretrain_epochs": (2, 20, 200),
    "vade_epochs": (2, 5, 200),
    "deep_steps": (4, 560, 20_000),
    "image_tsne_iterations": (300, 500, 5000),
    "image_labels": ((100,), (100,), (100, 300, 1000, 3000)),
    "annealing_epochs": (3, 50, 50),
    "short_documents": (60, 120, 2000),
    "short_all": (80, 300, ALL_SHORT_TEXTS),
    "short_recipe": (_SHORTEST_RECIPE, _SHORTEST_RECIPE, {}),
    "all_needs": ("", "", "40 minutes to six hours on a CPU core"),
    "idec_updates": (2, 20, 4000),
    "sccl_steps": (2, 5, 1000),
    "sccl_needs": ("", "", "ten hours on a CPU core"),
}
PROFILES = {
    profile: {name: sizes[column] for name, sizes in _SIZES.items()}
    for column, profile in enumerate(("tiny", "quick", "full"))
}


@dataclass(frozen=True)
class Cell:
    """One cell of a table, which is run for each of its seeds.

    Args:
        label: the row of the table: the paper's name of the method, or of our reading of it.
        embedding, model, alpha, temperature: as records name them.
        settings: whatever else can change the scores. Of the fields below only ``n_train`` and
            ``dataset`` enter the name of a record.
        seeds: the seeds themselves, in place of the experiment's, or how many of those to use
            (None: all). Seeds that a user names come first.
        n_train: the number of training documents, in place of the profile's.
        needs: the time on a CPU core, for cells that a CPU runs only when asked to (``--costly``).
        dataset: in place of the data set asked for.
        revision: in place of the experiment's, for a change that affects only this cell.
        drawn_anew: whether to run it once more with each further draw of a random encoder.
    """

    label: str
    embedding: str
    model: str
    alpha: float
    settings: dict
    temperature: str = "annealed"
    seeds: int | tuple[int, ...] | None = None
    n_train: int | None = None
    needs: str = ""
    dataset: str = ""
    revision: int | None = None
    drawn_anew: bool = False


@dataclass(frozen=True)
class Experiment:
    """A named grid of runs.

    Args:
        title: its subject, and the tables of the papers that it repeats.
        metrics: the scores in each of its records, some of which may be nan.
        cells: a function from the sizes of a profile to cells.
        run: a function (spec, task, device, progress) -> Outcome. It imports heavy libraries
            inside.
        revision: raised by hand when a change can move a score; see tests/experiments/test_golden.
        seeds: the seeds that it is run with.
    """

    title: str
    metrics: tuple[str, ...]
    cells: Callable
    run: Callable
    revision: int = 1
    seeds: tuple[int, ...] = PAPER_SEEDS


def choices(family: str) -> dict[str, str]:
    """Return the choices of a family where its paper is silent: subject -> choice."""
    return tomllib.loads(Path(__file__).with_name("choices.toml").read_text("utf-8"))[family]
