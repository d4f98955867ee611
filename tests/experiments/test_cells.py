"""Cells and their labels: those by which the book has called its rows all along, each once."""

from collections import Counter

import pytest

from snnl_book.experiments.cells import FIFTEEN_SEEDS, PAPER_SEEDS, PROFILES
from snnl_book.experiments.plan import EXPERIMENTS, specs

SHORT_TEXTS = ("clusterbert", "clusterbert-ablation", "retrieval")

TEXTS = {
    (model, alpha): label
    for model in ("ffn", "cnn")
    for alpha, label in ((0, "Baseline"), (100, "SNNL 100"), (-100, "SNNL -100"))
} | {
    ("pca", 0): "Orig.",
    ("ae", 0): "AE",
    ("lc-d", 100): "LC(D)",
    ("ae-d", 100): "AE(D)",
    ("original", 0): "Orig.",
    ("logreg-predictions", 0): "logistic regression, its own classes",
    ("kmeans", 0): "k-means on all dimensions",
    ("spherical-kmeans", 0): "spherical k-means",
    ("umap", 0): "UMAP",
    ("gmm", 0): "Gaussian mixture",
    ("lda", 0): "linear discriminant analysis",
    ("logreg", 0): "logistic regression",
    ("knn", 0): "nearest neighbours",
    ("supcon", 100): "supervised contrastive",
    ("ffn-knn", 0): "neighbours in Baseline",
    ("ffn-layer", 0): "plain classifier's last hidden layer",
    ("ffn-layer", 100): "last hidden layer of a classifier with Eq. 4",
    ("ae-supcon", 100): "AE(D) with the supervised contrastive loss",
    ("ffn-hidden", 0): "each hidden layer of a plain classifier",
    ("ffn-hidden", 100): "each hidden layer of a classifier with Eq. 4",
    ("ffn-knn", 100): "neighbours in SNNL 100",
}
OWN_CLASSES = {
    ("svm", 0): "support vector machine, its own classes",
    ("knn", 0): "5 nearest neighbours, their class",
    ("ffn", 0): "plain classifier, its own classes",
}
IMAGES = TEXTS | {
    ("original", 0): "pixels",
    ("pca", 0): "PCA",
    ("ae", 0): "AE",
    ("ae-d", 1): "AE(D)",
    ("supcon", 1): "SupCon",
    ("ae-10", 0): "AE, 10 units",
    ("dec", 0): "DEC",
    ("idec", 0): "IDEC",
    ("vade", 0): "VaDE",
    ("n2d", 0): "N2D",
}
METHODS = {
    ("plain", "tfidf"): "TF-IDF",
    ("plain", "sif"): "SIF",
    ("plain", "sif-corpus"): "SIF, own vectors",
    ("plain", "minilm"): "MiniLM, mean",
    ("plain", "minilm-cls"): "MiniLM",
    ("plain", "roberta-base"): "RoBERTa",
    ("plain", "nli-roberta-base"): "SBERT",
    ("plain", "vascl-roberta-large"): "VaSCL",
    ("sccl", "minilm"): "SCCL",
    ("tsdae", "minilm-cls"): "TSDAE",
    ("clusterbert", "minilm-cls"): "ClusterBERT",
    ("clusterbert", "minilm"): "ClusterBERT",
}


def row_of(cell):
    """How the book calls a cell's row in the tables on texts, images and points."""
    if cell.model == "points":  # one label used to stand for four temperatures
        annealed = cell.temperature == "annealed"
        name = "annealed" if annealed else f"T = {float(cell.temperature):g}"
        return ", ".join(filter(None, [name, cell.settings.get("reading")]))
    if cell.model == "clusterbert":
        return f"ClusterBERT, {cell.settings['reading']}"
    names = IMAGES if cell.embedding == "pixels" else TEXTS
    alpha, reading = cell.alpha, cell.settings.get("reading")
    if (cell.model, cell.alpha) in OWN_CLASSES and reading and "label" in reading:
        return f"{OWN_CLASSES[cell.model, cell.alpha]}, {reading}"
    if reading and cell.model in ("ffn", "cnn"):
        own = alpha == 100 or cell.model == "cnn" or reading == f"alpha {alpha}"
        return reading if own else f"{reading}, alpha {alpha}"
    if reading:
        of_any = names.get((cell.model, 100)) or names.get((cell.model, 0), cell.model)
        return f"{of_any}, {reading}"
    return names.get((cell.model, alpha), f"{cell.model} {alpha}")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("experiment", [name for name in EXPERIMENTS if name not in SHORT_TEXTS])
def test_a_label_is_what_the_book_calls_the_row(experiment, profile):
    cells = list(EXPERIMENTS[experiment].cells(PROFILES[profile]))
    assert cells
    assert [cell.label for cell in cells] == [row_of(cell) for cell in cells]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("experiment", SHORT_TEXTS)
def test_a_label_of_short_texts_is_the_method_and_what_was_changed(experiment, profile):
    for cell in EXPERIMENTS[experiment].cells(PROFILES[profile]):
        method, reading = METHODS[cell.model, cell.embedding], cell.settings.get("reading")
        assert cell.label == (f"{method}, {reading}" if reading else method)
        clusterer = cell.settings.get("clusterer", "kmeans")
        if experiment == "clusterbert":
            assert (clusterer == "kmeans") == (reading is None)


@pytest.mark.parametrize("dataset", ["auto", "newsgroups4"])
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_label_stands_for_one_row_of_what_a_table_shows(experiment, profile, dataset):
    shown = Counter(
        (
            spec.model if experiment == "classification" else "",  # Table 1 and Table 2
            *(spec.dataset, spec.embedding, spec.n_train, spec.temperature, spec.label),
        )
        for spec in specs(experiment, profile, dataset, 42)
    )
    assert set(shown.values()) <= {1}, [row for row, cells in shown.items() if cells > 1]


def test_a_seed_belongs_to_the_cells_whose_place_it_is():
    cells = [*EXPERIMENTS["clustering-readings"].cells(PROFILES["full"])]
    by_name = {(cell.label, cell.embedding, cell.model): cell for cell in cells}
    seeds = {}
    for spec in specs("clustering-readings", "full", "newsgroups4"):
        cell = by_name[spec.label, spec.embedding, spec.model]
        seeds.setdefault((spec.label, spec.embedding, spec.model), []).append(spec.seed)
        assert cell.alpha == spec.alpha
        assert dict(cell.settings) == {name: spec[name] for name in cell.settings}
    assert len(by_name) == len(cells) == len(seeds)
    sets = {tuple(of_cell) for of_cell in seeds.values()}
    assert sets == {FIFTEEN_SEEDS, PAPER_SEEDS, PAPER_SEEDS[:3]}
