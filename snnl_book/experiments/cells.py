"""What a table is made of: its cells, the profiles that size them, and their seeds.

Nothing here takes time to import, so that whoever only lists runs need not wait for torch.
"""

import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from snnl_lib.seeds import BATCH_SIZE  # noqa: F401 - the families size their runs by it

PAPER_SEEDS = (42, 1234, 73, 1024, 31415926)
MORE_SEEDS = (*PAPER_SEEDS, 7, 11, 13, 17, 19)  # for what costs seconds a run
NEW_SEEDS = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
FIFTEEN_SEEDS = (*PAPER_SEEDS, *NEW_SEEDS)

ALL = 1_000_000  # as many training documents as there are
ALL_SHORT_TEXTS = 50_000  # more documents than any of the corpora of short texts has
DRAWN = "gaussian"
"""The data set of ``annealing``: points that each run draws from its own seed."""
TEXTS = "texts"
"""In place of an embedding: what trains a backbone reads the texts themselves."""

_ONCE = {"batch_size": 16, "warm_up": 1, "adaptation_epochs": 1}
_ONCE |= {"reclusterings": 1, "clustering_epochs": 1, "hardening_epochs": 1}
_SIZES = {  # tiny (seconds, for tests), quick (minutes), full (the largest that is recorded)
    "n_train": (300, 2000, 20_000),  # documents are upper bounds
    "n_test": (200, 1000, None),
    "classification_epochs": (2, 10, 30),
    "convolution_epochs": (1, 2, 50),
    "clustering_epochs": (2, 5, 30),
    "lexicon_epochs": (2, 10, 50),
    "kmeans_starts": (2, 10, 10),
    "tsne_iterations": (300, 300, 1000),
    "label_sizes": ((100,), (100, 1000), (100, 300, 1000, 3000, 10_000)),
    "sentence_vectors": (False, False, True),
    "image_train": (300, 1000, 10_000),
    "image_test": (200, 1000, None),
    "image_epochs": (2, 6, 30),
    "more_epochs": (3, 12, 100),
    "pretrain_epochs": (2, 20, 200),
    "vade_epochs": (2, 5, 200),
    "deep_steps": (4, 80, 20_000),
    "image_tsne_iterations": (300, 500, 5000),
    "image_labels": ((100,), (100,), (100, 300, 1000, 3000)),
    "annealing_epochs": (3, 50, 50),
    "short_documents": (60, 120, 2000),
    "short_all": (80, 300, ALL_SHORT_TEXTS),
    "short_recipe": (_ONCE, _ONCE, {}),
    "all_needs": ("", "", "40 minutes to six hours on a CPU core"),
    "idec_updates": (2, 20, 4000),
    "sccl_steps": (2, 5, 1000),
    "sccl_needs": ("", "", "ten hours on a CPU core"),
}
PROFILES = {
    profile: {name: sizes[place] for name, sizes in _SIZES.items()}
    for place, profile in enumerate(("tiny", "quick", "full"))
}


@dataclass(frozen=True)
class Cell:
    """One cell of a table: what is run for each seed.

    Args:
        label: the row of the table: the paper's name of the method, or the reading that it is.
        embedding, model, alpha, temperature: as records name them.
        settings: what else can move its numbers; nothing else of a cell gets into a record's name.
        seeds: how many of the seeds asked for, from the first on; None: all. Or the seeds
            themselves, in place of the experiment's; a user who names seeds gets those.
        n_train: in place of the profile's number of training documents.
        needs: what it costs on a CPU core, where it is left out unless asked for (``--costly``).
        dataset: in place of the data set asked for.
        revision: in place of the experiment's, where a change can move the numbers of this cell.
        drawn_anew: also run with the further draws of a random encoder, once each.
        seconds: of one run on a CPU core, measured on a part of it, where no record is like it.
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
    seconds: float = math.nan


@dataclass(frozen=True)
class Experiment:
    """A named grid of runs.

    Args:
        title: what it is about, and the tables of the papers that it repeats.
        metrics: what each of its records holds, if only as nan.
        cells: (settings of a profile) -> cells.
        run: (spec, task, device, progress) -> Outcome, or a generator that yields what is to be
            trained (``runner``) and returns one. Its own imports come first in it.
        revision: raised by hand when a change can move a number; see tests/experiments/test_golden.
        seeds: those that it is run for.
    """

    title: str
    metrics: tuple[str, ...]
    cells: Callable
    run: Callable
    revision: int = 1
    seeds: tuple[int, ...] = PAPER_SEEDS


def choices(family: str) -> dict[str, str]:
    """Read what a family of experiments does where its paper is silent: about what -> what."""
    return tomllib.loads(Path(__file__).with_name("choices.toml").read_text("utf-8"))[family]
