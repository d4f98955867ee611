"""Which reading of a paper comes nearest to its numbers: chosen afterwards, in no verdict."""

import numpy as np
import pandas as pd

from snnl_book.experiments.codes import METRICS
from snnl_book.paper import paper_table
from snnl_book.report.judgement import judge_value
from snnl_book.report.statistics import by_unit
from snnl_book.report.tables import FORMS, behind, count_runs, show_number


def distance(ours: float, theirs: float) -> float:
    """Return how far apart two scores are, as a share of the larger one, 0 to 1; 1 without ours.

    A ratio of 2 counts the same in either direction, and one of a million little more.

    >>> distance(0.8, 1.0), distance(1.0, 0.8), distance(float("nan"), 1.0)
    (0.2, 0.2, 1.0)
    """
    if not np.isfinite(ours):
        return 1.0
    return float(round(min(abs(ours - theirs) / max(abs(ours), abs(theirs), 1e-12), 1), 12))


def nearest_reading(records: pd.DataFrame, embedding: str = "spacy") -> pd.DataFrame:
    """Set each reading of a trained code beside the paper's six scores of it, the nearest first.

    ``records`` are those of the main setting and of readings on one kind of vectors
    (``recorded``), whose ``embedding`` says beside which columns of Tables 3 and 4 they stand.

    Returns a row for each code and reading: model, reading ("main setting", or the words after the
    comma of its label), the means of the six scores as they are shown, distance (their mean
    ``distance``), matches (of how many rule 3 says that the paper's mean holds), nearest (in
    how many this reading is the nearest of all), runs and records.

    >>> from snnl_book.report.select import recorded
    >>> table = nearest_reading(recorded("clustering", "ag_news"))
    >>> table[["model", "reading", "acc", "nearest"]].to_numpy().tolist()[0]
    ['AE', 'main setting', '0.792', 6]
    """
    paper = pd.concat([paper_table(number) for number in (3, 4)])
    paper = paper[(paper["embedding"] == FORMS[embedding]) & (paper["statistic"] == "mean")]
    rows, codes = [], records["label"].str.split(", ", n=1).str[0]
    for model, printed in paper[paper["model"] != "pca"].groupby("label", sort=False):
        theirs, own = printed.set_index("metric")["value"], records[codes == model]
        for label, ours in own.groupby("label", sort=False):
            scores = {name: ours[ours["metric"] == name] for name in METRICS}
            means = {name: by_unit(found).mean() for name, found in scores.items()}
            judged = [judge_value(scores[name], name, theirs[name]).direction for name in METRICS]
            row = {"model": model, "reading": label.partition(", ")[2] or "main setting"}
            row |= {name: show_number(mean, name) for name, mean in means.items()}
            row["apart"] = [distance(mean, theirs[name]) for name, mean in means.items()]
            row |= {"distance": np.mean(row["apart"]), "matches": judged.count("holds")}
            runs = count_runs(ours[ours["metric"] == "acc"])
            rows.append(row | {"runs": runs, "records": behind(ours)})
    columns = ["model", "reading", *METRICS, "distance", "matches", "nearest", "runs", "records"]
    table = pd.DataFrame(rows, columns=[*columns, "apart"])
    parts = []
    for _, part in table.groupby("model", sort=False):
        first = np.argmin([*part["apart"]], axis=0)
        counted = np.bincount(first, minlength=len(part))
        parts.append(part.assign(nearest=counted).sort_values("distance", kind="stable"))
    return pd.concat(parts, ignore_index=True)[columns] if parts else table[columns]
