"""The findings that no single experiment shows, joined from the records of several.

``annealing_effects`` takes apart what a falling temperature does, on points, texts and images.
``uses_of_labels`` lists what every use of the same labels reaches. ``wrong_answers`` counts which
documents many methods get wrong. ``changes_when_repeated`` compares repeated runs.
"""

import json
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment

from snnl_book import results
from snnl_book.report.select import recorded
from snnl_book.report.statistics import interval
from snnl_book.report.tables import behind, differences

# ---------------------------------------------------------------- what annealing does

FIXED, STRONGER = "T = 1 with constant strength", "T = 1 with growing strength"
FALLING, ANNEALED = "falling T with constant strength", "falling T with growing strength"
"""The four conditions. The gradient of the loss has a factor 1/T, so that annealing (Eq. 6) does
two things at once: the temperature falls, and the loss grows stronger by 1/T.
"""
LOW = "T = 0.15 with constant strength"
"""A low temperature that stays fixed, for the autoencoders."""
CHANGES = {
    "growing strength alone": (STRONGER, FIXED),
    "a falling temperature alone": (FALLING, FIXED),
    "both: annealing": (ANNEALED, FIXED),
    "a falling temperature, with growing strength": (ANNEALED, STRONGER),
    "annealing instead of a low fixed temperature": (ANNEALED, LOW),
}
"""What is compared with what: change -> (condition with it, condition without it)."""
_POINTS = {
    FIXED: "T = 1",
    STRONGER: "T = 1, step divided by the falling T",
    FALLING: "annealed, step times the falling T",
    ANNEALED: "annealed",
}
# Adam divides a step by the size of the gradient, which cancels the factor 1/T: annealing changes
# the temperature alone there, and a step grows only where the learning rate does.
_POINTS_BY_ADAM = {
    FIXED: "T = 1, Adam, step 0.1",
    STRONGER: "T = 1, step divided by the falling T, Adam, step 0.1",
    FALLING: "annealed, Adam, step 0.1",
}
_POINTS_BY_COSINE = {label: f"{of_points}, cosine distance" for label, of_points in _POINTS.items()}
_CODES = {
    FIXED: "AE(D), fixed temperature 1",
    STRONGER: "AE(D), weight divided by the falling T",
    FALLING: "AE(D), weight times the falling T",
    LOW: "AE(D), fixed temperature 0.15",
}
EPOCH = 20
"""The epoch of the points at which the article compares."""


def annealing_effects() -> pd.DataFrame:
    """Take apart what annealing changes: the temperature, and the strength of the loss.

    Returns one row per setting and change: ``setting`` (what is trained), ``label`` (one of
    ``CHANGES``), ``metric``, ``mean`` (the difference in the metric, above 0 if the change helps),
    ``low`` and ``high`` (its 95 % interval), ``documents`` (whether that allows for the choice of
    test data), ``seeds`` and ``records``. The mean is nan where one of the two conditions has no
    run.

    >>> rows = annealing_effects()
    >>> rows["setting"].nunique(), rows["label"].nunique()
    (6, 5)
    """
    parts = []
    for setting, (records, metric) in _conditions().items():
        rows = differences(records, [*CHANGES.values()], metric)
        parts.append(rows.assign(setting=setting, metric=metric, label=[*CHANGES]))
    columns = ["setting", "label", "metric", "mean", "low", "high", "documents", "seeds", "records"]
    return pd.concat(parts, ignore_index=True)[columns]


def annealing_runs() -> pd.DataFrame:
    """Return the runs behind ``annealing_effects``, one row per run.

    Columns: ``setting``, ``label`` (the condition), ``seed``, ``metric``, ``value``, ``experiment``
    and ``key``.

    >>> annealing_runs().query("label == @LOW")["setting"].unique().tolist()
    ['AG News, AE(D)', 'MNIST, AE(D)', 'Fashion-MNIST, AE(D)']
    """
    columns = ["setting", "label", "seed", "metric", "value", "experiment", "key"]
    parts = [
        records[records["metric"] == metric].assign(setting=setting)[columns]
        for setting, (records, metric) in _conditions().items()
    ]
    return pd.concat(parts, ignore_index=True)


def _conditions():
    """Return the labelled records of all conditions, and the metric, by setting."""
    points = recorded("annealing", "gaussian", "points")
    texts = [recorded(name, "ag_news") for name in ("clustering", "clustering-readings")]
    digits, clothes = (recorded("images", name, "pixels") for name in ("mnist", "fashion_mnist"))
    of_images = _CODES | {ANNEALED: "AE(D), alpha 1"}
    return {
        f"points, epoch {EPOCH}": (_at_epoch(points, _POINTS), "neighbours"),
        f"points moved by Adam, epoch {EPOCH}": (_at_epoch(points, _POINTS_BY_ADAM), "neighbours"),
        "AG News, AE(D)": (_labelled(pd.concat(texts), _CODES | {ANNEALED: "AE(D)"}), "acc"),
        "MNIST, AE(D)": (_labelled(digits, of_images), "acc"),
        "Fashion-MNIST, AE(D)": (_labelled(clothes, of_images), "acc"),
        f"points with cosine distances, epoch {EPOCH}": (
            _at_epoch(points, _POINTS_BY_COSINE),
            "neighbours",
        ),
    }


def _labelled(records, label_of):
    """Keep the records of the conditions in ``label_of`` and label them by condition."""
    condition_of = {label: condition for condition, label in label_of.items()}
    labels = records["label"].map(condition_of)
    return records.assign(label=labels).dropna(subset="label")


def _at_epoch(records, label_of):
    """Return the share of neighbours of the same class at ``EPOCH``, as records."""
    runs = _labelled(records, label_of).drop_duplicates("key")
    curves = results.load_curves(runs).reindex(columns=["key", "epoch", "neighbours"])
    reached = curves[curves["epoch"] == EPOCH].set_index("key")["neighbours"]
    return runs.assign(metric="neighbours", value=runs["key"].map(reached))


# ---------------------------------------------------------------- the loss, or the labels?

LOSS, LABELS, NONE = "trained with the loss", "other uses of the labels", "no labels"
"""The three groups of methods."""
_LABELLED = ["lda", "lda-predictions", "logreg", "logreg-predictions", "svm", "knn", "ffn"]
_LABELLED += ["ae-supcon", "ae-classifier", "supcon"]
_WITHOUT = {"tfidf": "TF-IDF", "sif": "SIF", "sif-corpus": "SIF, vectors of the corpus"}
_WITHOUT |= {"minilm": "MiniLM, mean", "minilm-cls": "MiniLM, first token"}
_PATTERN = r"^(?P<method>.*?)(?:, (?P<labels>[\d,]+|no) labels)?(?P<passes>, one pass an epoch)?$"
_TEXTS = [("labels", None), ("clustering", "spacy"), ("clustering-rivals", "spacy")]
_TEXTS += [("clustering-readings", "spacy")]
_IMAGES = [("labels", "pixels"), ("images", "pixels")]
_SOURCES = {"ag_news": (_TEXTS, 20_000, {})}
_NAMES = {"AE(D), alpha 1": "AE(D)", "pixels": "k-means on pixels"}
_SOURCES |= {name: (_IMAGES, 10_000, _NAMES) for name in ("mnist", "fashion_mnist")}
"""Data set -> (experiments and embeddings, all labels, labels of rows that get another name)."""


def uses_of_labels(dataset: str, seeds=None, metrics: Sequence[str] = ("acc",)) -> pd.DataFrame:
    """List what each use of the same labels reaches, and what clusterings without labels reach.

    Args:
        dataset: ``ag_news`` (averaged word vectors, and MiniLM's where named, but not the
            comparison of AE(D) with classifiers on MiniLM's vectors), ``mnist`` or
            ``fashion_mnist``.
        seeds: take these alone (default: all that are recorded).
        metrics: ``acc`` is the accuracy of a run's classes or clusters, ``kmeans_acc`` of k-means
            on the values that a classifier decides by.

    Returns one row per run and metric: ``method``, ``group`` (``LOSS``, ``LABELS`` or ``NONE``),
    ``labels`` (how many, 0 for none), ``metric``, ``recorded_as`` (the same, kept when a chapter
    calls the metric ``acc``), ``value``, ``seed``, ``status``, ``experiment`` and ``key``. Stale
    runs are left out.

    >>> runs = uses_of_labels("ag_news")
    >>> best = runs[runs["labels"] == 20_000].groupby("method")["value"].mean().idxmax()
    >>> best
    'support vector machine'
    """
    names, full, renamed = _SOURCES[dataset]
    runs = pd.concat([recorded(name, dataset, embedding, seeds=seeds) for name, embedding in names])
    again = runs["model"] == "ffn-hidden"  # "ffn-layer" has the same last layer
    is_shown = runs["model"].isin(("lda", "kmeans")) & (runs["n_train"] < full)
    again |= (runs["embedding"] == "minilm") & ~is_shown
    runs = runs[runs["metric"].isin(metrics) & ~runs["stale"] & ~again].reset_index(drop=True)
    parts = runs["label"].str.extract(_PATTERN)
    groups = pd.Series(NONE, runs.index).mask(runs["model"].isin(_LABELLED), LABELS)
    groups = groups.mask(runs["alpha"] != 0, LOSS).mask(runs["model"].isin(_LABELLED), LABELS)
    groups = groups.mask(runs["label"].str.startswith("plain network"), LABELS)
    counts = parts["labels"].replace("no", "0").str.replace(",", "").astype(float)
    counts = counts.fillna((groups != NONE) * full).astype(int)
    methods = parts["method"].replace(renamed)
    vectors = runs["embedding"].map(_WITHOUT)
    unlabelled = vectors.notna() & (groups == NONE) & (runs["model"] == "kmeans")
    methods = methods.mask(unlabelled, "k-means on " + vectors)
    methods = methods.mask(vectors.notna() & (groups == LABELS), methods + ", " + vectors)
    methods += parts["passes"].fillna("").replace(", one pass an epoch", ", 30 epochs in all")
    found = runs.assign(method=methods, group=groups, labels=counts, recorded_as=runs["metric"])
    columns = ["method", "group", "labels", "metric", "recorded_as", "value", "seed", "status"]
    return found[[*columns, "experiment", "key"]]


def summed_up(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean of each method at each number of labels, the best first.

    ``runs`` are those of ``uses_of_labels``. Columns: labels, method, group, mean, low and high
    (the 95 % interval of the mean, nan for fewer than two runs), runs, records.
    """
    rows = []
    for (labels, method, group), group_runs in runs.groupby(["labels", "method", "group"]):
        low, high = interval(group_runs["value"])
        mean, count = group_runs["value"].mean(), len(group_runs)
        rows.append([labels, method, group, mean, low, high, count, behind(group_runs)])
    columns = ["labels", "method", "group", "mean", "low", "high", "runs", "records"]
    table = pd.DataFrame(rows, columns=columns)
    return table.sort_values(["labels", "mean"], ascending=[True, False], ignore_index=True)


def differences_by_labels(runs: pd.DataFrame, pairs: list[tuple[str, str]]) -> pd.DataFrame:
    """Compare methods at each number of labels, paired by seed.

    ``runs`` are those of ``uses_of_labels``, and ``pairs`` are (method, reference). Returns the
    columns of ``differences`` and ``labels``, with one row per pair and number of labels above 0
    at which both methods have a seed in common. Without runs, the table is empty.
    """
    runs = runs[runs["labels"] > 0]
    runs = runs.assign(label=runs["method"])
    sizes = runs.groupby("labels")
    parts = [differences(of_size, pairs).assign(labels=size) for size, of_size in sizes]
    rows = pd.concat(parts or [differences(runs, []).assign(labels=0)], ignore_index=True)
    return rows.dropna(subset="mean")


# ---------------------------------------------------------------- which documents are hard


def answered(runs: pd.DataFrame) -> pd.DataFrame:
    """Keep the runs (rows with ``experiment`` and ``key``) whose records hold their answers."""
    pairs = zip(runs["experiment"], runs["key"], strict=True)
    return runs[np.array(["" in results.load_answers(*pair) for pair in pairs], dtype=bool)]


def answers_as_classes(experiment: str, key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the row numbers, true classes and given classes of a run's test documents, int [N].

    Clusters are matched one to one with the classes that they hold most of, as accuracy does.
    Raises RecordError if the run has no answers.
    """
    rows, labels = results.load_rows(experiment, key)
    given = results.load_answers(experiment, key)[""]
    counts = np.zeros((int(labels.max()) + 1, int(given.max()) + 1))
    np.add.at(counts, (labels, given), 1)
    classes, clusters = linear_sum_assignment(-counts)
    class_of = np.full(counts.shape[1], -1)
    class_of[clusters] = classes
    return rows, labels, class_of[given]


def wrong_answers(runs: pd.DataFrame) -> pd.DataFrame:
    """Return for each test document and method whether its answer was wrong.

    Args:
        runs: one run per method that has answers, with the columns ``method``, ``experiment`` and
            ``key``, such as those of ``uses_of_labels``. All were tested on the same documents.

    Returns a table of bools with one column per method and one row per document that all methods
    answered. Its index holds the row number in the test set (``row``) and the true class
    (``class``).
    """
    columns = {}
    for run in runs.itertuples():
        rows, labels, given = answers_as_classes(run.experiment, run.key)
        index = pd.MultiIndex.from_arrays([rows, labels], names=["row", "class"])
        columns[run.method] = pd.Series(given != labels, index)
    no_documents = pd.MultiIndex.from_arrays([[], []], names=["row", "class"])
    index = None if columns else no_documents
    return pd.DataFrame(columns, index).dropna().astype(bool)


def agreement(wrong: pd.DataFrame) -> pd.DataFrame:
    """Return for each pair of methods the share of the errors of either that both make.

    ``wrong`` is what ``wrong_answers`` returned. The table is symmetric, with 1 on its diagonal:
    1 says that two methods are wrong about the same documents, 0 that they share no error.
    """
    errors = wrong.to_numpy(dtype=float)
    both = errors.T @ errors
    either = both.diagonal()[:, None] + both.diagonal()[None, :] - both
    return pd.DataFrame(both / np.maximum(either, 1), wrong.columns, wrong.columns)


def changes_when_repeated(experiment: str, dataset: str, embedding: str, model: str) -> pd.Series:
    """Return how far each repeated run moved: its accuracy minus the accuracy it replaced.

    The settings and the seed are the same in both runs, so that only the processor, the versions
    of the libraries or a change of the code explain a difference. One entry per replaced record
    of the full profile, by the key of the run; no entry if nothing was replaced.
    """
    path = results.results_dir("full") / "replaced.csv"
    if not path.exists():
        return pd.Series(dtype=float)
    replaced = pd.read_csv(path)
    replaced = replaced[(replaced["experiment"] == experiment) & (replaced["status"] == "ok")]
    replaced = replaced.drop_duplicates("key", keep="last").set_index("key")
    earlier = replaced["scores"].map(json.loads).str.get("acc")
    runs = recorded(experiment, dataset, embedding, model=model)
    runs = runs[runs["metric"] == "acc"].set_index("key")
    return (runs["value"] - earlier).dropna()
