"""What the papers and the literature report, typed in with its source."""

from pathlib import Path

import pandas as pd


def paper_table(number: int) -> pd.DataFrame:
    """Read one of the text paper's Tables 1-4.

    Columns: label, model, alpha, embedding, metric, statistic (mean or best), value, printed,
    source.
    """
    return pd.read_csv(_file(f"table{number}"), dtype={"printed": str})


def literature(kind: str = "images") -> pd.DataFrame:
    """Read what the literature reports for ``images`` or ``short-texts``.

    Columns: method, dataset, metric, value (nan: nothing found), statistic, source, note.
    """
    return pd.read_csv(_file(kind), keep_default_na=False, na_values={"value": ""})


def paper_corpora() -> pd.DataFrame:
    """Read ClusterBERT's Table 1: its corpora.

    Columns: label, dataset, metric (as ``data.corpus_statistics`` names it), value, printed,
    source, note.
    """
    return pd.read_csv(_file("clusterbert-corpora"), dtype={"printed": str}, keep_default_na=False)


def paper_short_texts() -> pd.DataFrame:
    """Read ClusterBERT's Tables 2 and 3.

    Columns: label, embedding, model, clusterer, dataset, metric, value, source, note.
    """
    return pd.read_csv(_file("clusterbert"), keep_default_na=False)


def later_results() -> pd.DataFrame:
    """Read what other works report on ClusterBERT's six corpora, each number read at its source.

    Columns: method, year (of the source), corpus, form (of the corpus, where it is not ours), acc
    and nmi (0 to 1; nan: not there), texts, backbone, labels, protocol, source, cite, address,
    read (what of the source was read). A row without a corpus was looked for, and none of its
    numbers could be read.
    """
    empty = {"acc": "", "nmi": ""}
    return pd.read_csv(_file("later"), dtype={"year": str}, keep_default_na=False, na_values=empty)


def _file(name):
    return Path(__file__).with_name(f"{name}.csv")
