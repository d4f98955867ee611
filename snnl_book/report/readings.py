"""Which reading of a paper comes nearest to its numbers: chosen afterwards, in no verdict."""

import numpy as np
import pandas as pd

from snnl_book.experiments.codes import METRICS
from snnl_book.paper import paper_table
from snnl_book.report.judgement import judge_value
from snnl_book.report.statistics import by_unit, interval
from snnl_book.report.tables import FORMS, behind, count_runs, show_number


def _gap(ours: float, papers: float) -> float:
    """Return how far apart two scores are, as a share of the larger one, from 0 to 1.

    A ratio of 2 counts the same in either direction, and a ratio of a million counts little more.
    Without our score the gap is 1.

    >>> _gap(0.8, 1.0), _gap(1.0, 0.8), _gap(float("nan"), 1.0)
    (0.2, 0.2, 1.0)
    """
    if not np.isfinite(ours):
        return 1.0
    return float(round(min(abs(ours - papers) / max(abs(ours), abs(papers), 1e-12), 1), 12))


def _printed(embedding):
    """Return the means that the paper's Tables 3 and 4 print of an embedding."""
    paper = pd.concat([paper_table(number) for number in (3, 4)])
    return paper[(paper["embedding"] == FORMS[embedding]) & (paper["statistic"] == "mean")]


def minus_paper(
    records: pd.DataFrame, label: str, metrics: list[str], embedding: str = "spacy"
) -> pd.DataFrame:
    """Return how far a row's means are above the paper's means of it, by metric.

    ``records`` are as ``recorded`` returns them; ``label`` names one of their rows, whose words
    before a comma are the row of the paper. Returns what ``figures.forest`` draws: label (the
    metric), mean, low and high (95 % interval over units), and records.

    >>> from snnl_book.report.select import recorded
    >>> rows = minus_paper(recorded("clustering", "ag_news"), "AE(D)", ["acc"])
    >>> rows[["label", "mean"]].round(3).to_numpy().tolist()
    [['acc', -0.02]]
    """
    paper = _printed(embedding)
    theirs = paper[paper["label"] == label.split(", ")[0]].set_index("metric")["value"]
    rows = []
    for metric in metrics:
        ours = records[(records["label"] == label) & (records["metric"] == metric)]
        values = by_unit(ours) - theirs[metric]
        rows.append([metric, values.mean(), *interval(values), behind(ours)])
    return pd.DataFrame(rows, columns=["label", "mean", "low", "high", "records"])


def nearest_reading(records: pd.DataFrame, embedding: str = "spacy") -> pd.DataFrame:
    """Compare each reading of a trained code with the paper's six scores of it, the nearest first.

    ``records`` are those of the main setting and of readings on one kind of vectors
    (``recorded``). Their ``embedding`` selects the columns of the paper's Tables 3 and 4.

    Returns a row for each code and reading: model, reading ("main setting", or the words after the
    comma of its label), the means of the six scores as they are shown, internal and external (the
    mean gap between our scores and those of Table 3 and of Table 4, each as a share of the larger
    score), distance (the mean of all six), matches (the number of scores whose mean is the paper's
    by rule 3), nearest (the number of scores of which this reading is the nearest of all), runs and
    records.

    >>> from snnl_book.report.select import recorded
    >>> table = nearest_reading(recorded("clustering", "ag_news"))
    >>> table[["model", "reading", "acc", "nearest"]].to_numpy().tolist()[0]
    ['AE', 'main setting', '0.789', 6]
    """
    paper = _printed(embedding)
    models = records["label"].str.split(", ", n=1).str[0]
    rows = []
    for model, printed in paper[paper["model"] != "pca"].groupby("label", sort=False):
        papers = printed.set_index("metric")["value"]
        for label, ours in records[models == model].groupby("label", sort=False):
            reading = label.partition(", ")[2] or "main setting"
            rows.append({"model": model, "reading": reading, **_compared(ours, papers)})
    columns = [
        "model",
        "reading",
        *METRICS,
        "internal",
        "external",
        "distance",
        "matches",
        "nearest",
        "runs",
        "records",
    ]
    table = pd.DataFrame(rows, columns=[*columns, "distances"])
    parts = []
    for _, part in table.groupby("model", sort=False):
        nearest = np.argmin([*part["distances"]], axis=0)  # of each score
        counts = np.bincount(nearest, minlength=len(part))
        parts.append(part.assign(nearest=counts).sort_values("distance", kind="stable"))
    return pd.concat(parts, ignore_index=True)[columns] if parts else table[columns]


def _compared(ours, papers):
    """Return our means of a row, and how far they are from the paper's six scores."""
    scores = {name: ours[ours["metric"] == name] for name in METRICS}
    means = {name: by_unit(records).mean() for name, records in scores.items()}
    directions = [judge_value(scores[name], name, papers[name]).direction for name in METRICS]
    distances = [_gap(mean, papers[name]) for name, mean in means.items()]
    return {
        **{name: show_number(mean, name) for name, mean in means.items()},
        "distances": distances,
        "internal": np.mean(distances[:3]),
        "external": np.mean(distances[3:]),
        "distance": np.mean(distances),
        "matches": directions.count("holds"),
        "runs": count_runs(scores["acc"]),
        "records": behind(ours),
    }
