"""Every table and figure of the papers as a grid of run specs: what is run. ``experiments`` runs
it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from snnl_lib import SnnlError, data
from snnl_lib.experiments import image_grids, short_text_grids, text_grids
from snnl_lib.experiments.settings import DRAWN, MORE_SEEDS, PAPER_SEEDS, PROFILES
from snnl_lib.results import Spec


class ExperimentError(SnnlError):
    """An unknown experiment, profile, seed, data set or device."""


@dataclass(frozen=True)
class Experiment:
    """A named grid: ``cells(profile)`` gives what is run for each seed, ``run`` names the function
    (module.function) that carries one spec out.
    """

    title: str
    revision: (
        int  # raise by hand when a change can move a number; see tests/experiments/test_golden.py
    )
    metrics: tuple[str, ...]
    cells: Callable
    run: str  # text: its module takes seconds to import, torch with it
    seeds: tuple[int, ...] = PAPER_SEEDS


def _both(*grids):
    return lambda profile: chain.from_iterable(grid(profile) for grid in grids)


EXPERIMENTS = {
    "classification": Experiment(
        "Text classification (text paper, Tables 1-2)",
        1,
        ("acc", "f1_micro", "f1_macro", "snn"),
        text_grids.classification_cells,
        "text.run_classification",
    ),
    "classification-readings": Experiment(
        "What the text paper leaves open about classification",
        1,
        ("acc", "f1_micro", "f1_macro", "snn"),
        text_grids.classification_reading_cells,
        "text.run_classification",
    ),
    "classification-rivals": Experiment(
        "Other uses of the same labels",
        1,
        ("acc", "f1_micro", "f1_macro"),
        text_grids.classification_rival_cells,
        "text.run_rival",
    ),
    "clustering": Experiment(
        "Text clustering (text paper, Tables 3-4)",
        1,
        ("dbi", "sil", "chs", "nmi", "ari", "acc", "snn"),
        text_grids.clustering_cells,
        "clustering.run_clustering",
    ),
    "clustering-readings": Experiment(
        "What the text paper leaves open about clustering",
        1,
        ("dbi", "sil", "chs", "nmi", "ari", "acc", "snn"),
        text_grids.clustering_reading_cells,
        "clustering.run_clustering",
    ),
    "clustering-rivals": Experiment(
        "Other uses of the same labels, and clusterings without labels",
        1,
        ("dbi", "sil", "chs", "nmi", "ari", "acc"),
        text_grids.clustering_rival_cells,
        "clustering.run_rival",
    ),
    "labels": Experiment(
        "Clustering accuracy against the number of labels",
        1,
        ("dbi", "sil", "chs", "nmi", "ari", "acc"),
        _both(text_grids.label_cells, short_text_grids.label_cells, image_grids.label_cells),
        "clustering.run_labels",
    ),
    "lexicon": Experiment(
        "Words of an opinion lexicon (text paper, Figure 1)",
        1,
        ("acc", "neighbours", "train_acc", "train_neighbours"),
        text_grids.lexicon_cells,
        "clustering.run_lexicon",
    ),
    "tsne": Experiment(
        "The codes on a plane (text paper, Figure 2; ClusterBERT paper, Figure 1), and in space (image paper)",
        1,
        ("kl", "neighbours"),
        _both(text_grids.tsne_cells, image_grids.tsne_cells, short_text_grids.tsne_cells),
        "clustering.run_tsne",
    ),
    "annealing": Experiment(
        "Gradient descent on the loss alone, at falling and at fixed temperatures (image paper)",
        1,
        ("loss", "common", "neighbours", "sil", "epochs_to_pure"),
        image_grids.annealing_cells,
        "images.run_annealing",
        MORE_SEEDS,
    ),
    "images": Experiment(
        "Clustering images: disentangled codes and deep clustering (image paper)",
        1,
        ("dbi", "sil", "chs", "nmi", "ari", "acc", "snn"),
        image_grids.image_cells,
        "images.run_images",
        MORE_SEEDS[:9],
    ),
    "clusterbert": Experiment(
        "Short texts clustered without labels (ClusterBERT paper, Tables 2-3, Figure 3, Table 5)",
        1,
        short_text_grids.METRICS,
        short_text_grids.clusterbert_cells,
        "short_texts.run_clusterbert",
    ),
    "clusterbert-ablation": Experiment(
        "ClusterBERT without reconstruction (Figure 4), and what its paper leaves open",
        1,
        short_text_grids.METRICS,
        short_text_grids.ablation_cells,
        "short_texts.run_clusterbert",
    ),
    "retrieval": Experiment(
        "Does an embedding keep its meaning? (ClusterBERT paper, Figure 4)",
        1,
        ("map", "mrr"),
        short_text_grids.retrieval_cells,
        "short_texts.run_retrieval",
    ),
}


PAPER = ("classification", "clustering", "lexicon", "tsne")
"""What ``run paper`` repeats: Tables 1-4 and Figures 1-2 of the text paper."""


# ---------------------------------------------------------------- the grid


def specs(experiment: str, profile: str = "full", dataset: str = "auto", seeds=None) -> list[Spec]:
    """List the run specs of an experiment.

    ``dataset``: ``auto`` takes the experiment's own data sets, and for texts the paper's if at
    hand, else the embedded default; the name of a corpus takes the runs on texts, with it; the name
    of a set of images or of short texts the runs on that; there may be none. ``seeds``: default,
    the experiment's own. Raises ExperimentError or DataError for a name it does not know.
    """
    settings, grid = profile_settings(profile), _experiment(experiment)
    corpus, found = data.resolve(dataset), []
    kind = data.describe(corpus).kind
    cells = [
        cell
        for cell in grid.cells(settings)
        if dataset == "auto" or _runs_on(cell.dataset, corpus, kind)
    ]
    for index, seed in enumerate(grid.seeds if seeds is None else parse_seeds(seeds)):
        for cell in cells:
            if cell.seeds is not None and index >= cell.seeds:
                continue
            own = {"n_test": settings["n_test"]} | cell.settings
            own = tuple(
                sorted(
                    (name, tuple(value) if isinstance(value, list) else value)
                    for name, value in own.items()
                )
            )
            temperature = cell.temperature if cell.alpha else "none"
            named = (
                experiment,
                profile,
                cell.dataset or corpus,
                cell.embedding,
                cell.model,
                cell.alpha,
                temperature,
                seed,
            )
            found.append(
                Spec(*named, cell.n_train or settings["n_train"], grid.revision, own, cell.needs)
            )
    return found


def _runs_on(own, asked, kind):
    """Tell if a cell with a data set of its own, or none, is meant: points by any data set, texts
    by any corpus, images and short texts by their own name.
    """
    if own == DRAWN:
        return True
    return not own or data.describe(own).kind == "texts" if kind == "texts" else own == asked


def _experiment(name):
    if name not in EXPERIMENTS:
        raise ExperimentError(
            f"there is no experiment {name!r}: choose one of {', '.join(EXPERIMENTS)}"
        )
    return EXPERIMENTS[name]


def profile_settings(name: str) -> dict:
    """Return the settings of a profile. Raises ExperimentError for an unknown name."""
    if name not in PROFILES:
        raise ExperimentError(f"there is no profile {name!r}: choose one of {', '.join(PROFILES)}")
    return PROFILES[name]


def parse_seeds(seeds) -> tuple[int, ...]:
    """Read seeds given as a list, one integer or text such as ``"42,73"``. Raises ExperimentError
    for anything else, or a repeated seed.
    """
    try:
        if isinstance(seeds, str):
            seeds = [int(part) for part in seeds.strip("[]() ").split(",")]
        seeds = tuple([seeds] if isinstance(seeds, int) else seeds)
        valid = len(seeds) > 0 and all(
            isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**32
            for seed in seeds
        )
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise ExperimentError(
            f'seeds must be whole numbers from 0 to 4294967295, as a list, one number or "42,73", got {seeds!r}'
        )
    if len(set(seeds)) < len(seeds):
        raise ExperimentError(f"seeds must differ, got {list(seeds)}")
    return seeds
