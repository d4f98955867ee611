"""Every table and figure of the papers as runs: which there are, and what carries them out.

A family of tables is one file (its cells, the choices that it makes, how a run goes): see
``classification``, ``text_clustering``, ``images``, ``short_texts``, and ``labels`` and ``maps``,
which use the cells of several. ``plan`` knows all of them, ``runner`` carries runs out.
"""

from snnl_book import data
from snnl_book.experiments.cells import PAPER_SEEDS, PROFILES, TEXTS
from snnl_book.experiments.plan import (
    EXPERIMENTS,
    PAPER,
    ExperimentError,
    Planned,
    check_device,
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
