"""The runs behind every table and figure of the papers.

Each family of tables has a file with its cells, its choices and its run: ``classification``,
``text_clustering``, ``images``, ``short_texts``, and ``labels`` and ``maps``, which use the cells
of several. ``plan`` lists the runs of all families, ``devices`` finds the devices that compute
them, and ``runner`` carries them out.
"""

from snnl_book import data
from snnl_book.experiments.cells import PAPER_SEEDS, PROFILES, TEXTS, ExperimentError
from snnl_book.experiments.devices import check_device
from snnl_book.experiments.plan import (
    EXPERIMENTS,
    PAPER,
    Planned,
    fingerprint,
    key,
    parse_seeds,
    runnable,
    specs,
    status,
    unmet,
)
from snnl_book.experiments.runner import make_missing, run, run_all
from snnl_book.experiments.tasks import Parameters, Task, load_task, parameters
from snnl_book.results import device_name
