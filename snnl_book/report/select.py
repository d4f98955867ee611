"""Records joined to the cells of the plan: which runs make which row of a table.

This works without the data, because each record has the fingerprint of its data.
"""

import json
from itertools import chain

import numpy as np
import pandas as pd

from snnl_book import data, results
from snnl_book.experiments import EXPERIMENTS, specs
from snnl_book.report.labels import SHORT_LABELS
from snnl_book.results import Spec
from snnl_lib import SnnlError

_CELL = [  # the columns by which records of different cells differ; the seed is not among them
    *("experiment", "profile", "dataset", "embedding", "model", "alpha", "temperature"),
    "settings",
]
_ROW = ["dataset", "embedding", "model", "label"]
_SAME_RUN = ["dataset", "method", "clusterer", "n_train", "seed", "metric"]


class ReportError(SnnlError):
    """Records that may not share a row of a table."""


def select(
    experiment: str,
    profile: str = "full",
    dataset: str | None = None,
    embedding: str | None = None,
    seeds=None,
    device_type: str = "cpu",
) -> pd.DataFrame:
    """Return an experiment's records with the cells of its grid, in the order of the grid.

    A record belongs to a cell if their specs have the same identity, whatever the seed. Records
    that belong to no cell are left out (``orphans``).

    Args:
        profile: of the records and of the grid.
        dataset, embedding: keep the records on these (default: on all).
        seeds: keep the records of these seeds, those made by chapters too (default: all that are
            recorded).
        device_type: the type of device that computed the runs.

    Adds to the columns of ``results.load_results``: ``label`` (of the row), ``reading`` (None in
    the main setting), ``asked`` (the planned number of training documents, of which a row may have
    several: ``most_documents``) and ``stale`` (made by an older revision). Raises ReportError if
    records made by two protocols, or from two copies of the data, would share a row.

    >>> list(select("clustering", embedding="spacy")["label"].unique())
    ['Orig.', 'AE', 'LC(D)', 'AE(D)']
    """
    records = results.load_results(experiment, profile, seeds is not None, device_type)
    for column, value in (("dataset", dataset), ("embedding", embedding)):
        if value is not None:
            records = records[records[column] == value]
    if seeds is not None:
        records = records[records["seed"].isin(seeds)]
    plan = _plan(experiment, profile, records)
    cells = record_cells(records)
    cells = cells[cells.isin(plan)]
    records = records.loc[cells.index]
    specs_of_records = [plan[cell] for cell in cells]
    labels = [spec.label for spec in specs_of_records]
    readings = [spec.get("reading") for spec in specs_of_records]
    records = records.assign(
        label=pd.Series(labels, records.index, dtype="str"),
        reading=pd.Series(readings, records.index, dtype=object),
        asked=[spec.n_train for spec in specs_of_records],
        stale=[spec.revision for spec in specs_of_records] > records["revision"],
    )
    _check_rows(records)
    cell_numbers = {cell: number for number, cell in enumerate(plan)}
    seed_numbers = {seed: number for number, seed in enumerate(EXPERIMENTS[experiment].seeds)}
    order = pd.DataFrame({"cell": cells.map(cell_numbers), "seed": records["seed"]})
    order["number"] = order["seed"].map(lambda seed: seed_numbers.get(seed, len(seed_numbers)))
    return records.loc[order.sort_values(["cell", "number", "seed"], kind="stable").index]


def stale(records: pd.DataFrame) -> pd.Series:
    """Return which rows of records (of any experiment) an older revision of their cell made.

    The result are bools, indexed as the records. A record that belongs to no cell is not stale.

    >>> bool(stale(results.load_results("clustering")).any())
    False
    """
    numbered = records.reset_index(drop=True)  # records of several experiments share index values
    older = pd.Series(False, numbered.index)
    for (name, profile), group in numbered.groupby(["experiment", "profile"]):
        revisions = {cell: spec.revision for cell, spec in _plan(name, profile, group).items()}
        older[group.index] = record_cells(group).map(revisions).fillna(0) > group["revision"]
    return older.set_axis(records.index)


def asked_by(records: pd.DataFrame) -> list[Spec]:
    """List the cells of the plan that records (of any experiment) belong to, as specs of seed 0.

    >>> [spec.label for spec in asked_by(results.load_results("clustering"))][:2]
    ['Orig.', 'AE']
    """
    specs_of_records: dict[Spec, None] = {}
    for (name, profile), group in records.groupby(["experiment", "profile"], sort=False):
        if name not in EXPERIMENTS:
            continue
        recorded_cells = set(record_cells(group))
        for cell, spec in _plan(name, profile, group).items():
            if cell in recorded_cells:
                specs_of_records[spec] = None
    return list(specs_of_records)


def orphans(experiment: str | None = None, profile: str = "full") -> pd.DataFrame:
    """List the records of an experiment (default: of all) that belong to no cell, a row each.

    ``profile`` is that of the records and of the cells.

    >>> len(orphans("clustering"))
    0
    """
    records = results.load_results(experiment, profile)
    records = records.drop_duplicates(["experiment", "key"])
    without_cell = [
        group[~record_cells(group).isin(_plan(name, profile, group))]
        if name in EXPERIMENTS
        else group
        for name, group in records.groupby("experiment")
    ]
    return pd.concat(without_cell) if without_cell else records


def most_documents(records: pd.DataFrame) -> pd.DataFrame:
    """Keep one number of documents for each row: the largest that was run with all its seeds."""
    rows = [records[column] for column in _ROW]
    seeds = records["seed"].groupby([*rows, records["asked"]]).transform("nunique")
    complete = seeds == seeds.groupby(rows).transform("max")
    largest = records["asked"].where(complete).groupby(rows).transform("max")
    return records[records["asked"] == largest]


def recorded(
    experiment: str,
    dataset: str,
    embedding: str | None = "spacy",
    profile: str = "full",
    seeds=None,
    model: str | None = None,
) -> pd.DataFrame:
    """Select an experiment's records on one ``dataset``, each row on the most documents it has.

    Args:
        embedding: keep the records on this one (None: on all).
        profile: of the records.
        seeds: keep the records of these. By default they are the experiment's, and those of further
            draws of a random encoder; ``"all"`` keeps all that are recorded.
        model: keep the runs of this model (None: of all).

    Adds ``label``, ``reading`` and ``stale`` as ``select`` does.

    >>> records = recorded("clustering", "ag_news", model="ae-d")
    >>> list(records["label"].unique()), sorted(records["seed"].unique().tolist())[-3:]
    (['AE(D)'], [1024, 1234, 31415926])
    """
    records = select(experiment, profile, dataset, embedding, None if seeds == "all" else seeds)
    if seeds is None:
        planned = {
            (cell_of(spec), spec.seed) for spec in _specs(experiment, profile, records, seeds=None)
        }
        runs = zip(record_cells(records), records["seed"], strict=True)
        is_planned = np.array([run in planned for run in runs], dtype=bool)
        records = records[is_planned | records["seed"].isin(EXPERIMENTS[experiment].seeds)]
    if model is not None:
        records = records[records["model"] == model]
    return most_documents(records).drop(columns="asked")


def short_texts(experiment: str = "clusterbert", profile: str = "full", seeds=None) -> pd.DataFrame:
    """Select an experiment's records of a ``profile`` on short texts, on any number of documents.

    ``seeds`` None keeps all that are recorded. Adds ``method`` (the row's label without the
    reading), ``clusterer``, ``reading``, ``asked`` (documents), ``task`` and ``stale``.

    >>> list(short_texts("retrieval")["task"].unique())
    ['trecqa', 'denoise']
    """
    records = select(experiment, profile, seeds=seeds)
    settings = [json.loads(text) for text in records["settings"]]
    rows = zip(records["label"], records["reading"], strict=True)
    methods = [label.removesuffix(f", {reading}") for label, reading in rows]
    clusterers, tasks = ([own.get(name) for own in settings] for name in ("clusterer", "task"))
    records = records.assign(method=methods, clusterer=clusterers, task=tasks)
    new_columns = ["method", "clusterer", "reading", "asked", "task", "stale"]
    return records[[*results.COLUMNS, "key", *new_columns]]


def by_stage(records: pd.DataFrame) -> pd.DataFrame:
    """Keep the scores after each stage of ClusterBERT, and split their names.

    ``records`` are of any metrics. Of ``acc_2``, for instance, ``metric`` becomes ``acc``, and the
    new column ``stage`` is 2; stages go from 0 (before training) to 3.

    >>> staged = by_stage(short_texts().query("metric in ['acc', 'acc_2']"))
    >>> staged["metric"].unique().tolist(), staged["stage"].unique().tolist()
    (['acc'], [2])
    """
    parts = records["metric"].str.extract(r"(?P<metric>.+)_(?P<stage>[0-3])$")
    return records.assign(**parts).dropna(subset="stage").astype({"stage": int})


def withdrawn(records: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the scores that were withdrawn, next to those of the repeated runs.

    ``results/withdrawn.csv`` has the scores of UMAP on short texts from when their rows were in the
    order of the corpora, which reveals the classes. ``records`` are as ``short_texts`` returns them
    (default: those of ``clusterbert``); stale ones do not count as repeated.

    Returns a row for each run and score: dataset, method, clusterer, n_train, seed, metric,
    ``then``, ``now`` (nan if the run was not repeated), and ``records``, the new run's name (empty
    if there is none). Without the file there are no rows.

    >>> tfidf = withdrawn().query("method == 'TF-IDF' and n_train == 2000 and metric == 'acc'")
    >>> tfidf["dataset"].nunique(), tfidf["clusterer"].unique().tolist()
    (7, ['umap'])
    """
    columns = [*_SAME_RUN, "then", "now", "records"]
    path = results.results_dir("full") / "withdrawn.csv"
    if not path.exists():
        return pd.DataFrame(columns=columns)
    scores = pd.read_csv(path)
    pairs = zip(scores["model"], scores["embedding"], strict=True)
    scores["method"] = [SHORT_LABELS[pair] for pair in pairs]
    columns_of_run = [name for name in _SAME_RUN if name != "metric"]
    old = scores.melt(columns_of_run, ["nmi_geometric", "acc"], "metric", "then")
    records = short_texts() if records is None else records
    new = records[~records["stale"].astype(bool)].rename(columns={"value": "now"})
    new = new.assign(records=new["experiment"] + "/" + new["key"])
    both = old.merge(new[[*_SAME_RUN, "now", "records"]], "left", _SAME_RUN)
    return both.fillna({"records": ""})[columns]


def _plan(experiment: str, profile: str, records: pd.DataFrame) -> dict[tuple, Spec]:
    """Map each cell (``cell_of``) on a recorded data set to one of its specs.

    Data sets are in the order of the catalogue, and the cells of each in the order of the grid.
    """
    plan: dict[tuple, Spec] = {}
    for spec in _specs(experiment, profile, records, seeds=(0,)):
        plan.setdefault(cell_of(spec), spec)
    return plan


def _specs(experiment, profile, records, seeds):
    """Yield the specs of an experiment on each data set that is recorded."""
    catalogue = data.available_datasets()
    recorded_names = {*records["dataset"]}
    # Points that a run draws are not a data set: any name selects their cells.
    names = [name for name in catalogue if name in recorded_names] or catalogue[:1]
    return chain.from_iterable(specs(experiment, profile, name, seeds) for name in names)


def cell_of(spec: Spec) -> tuple:
    """Return the cell of a run: its identity without the seed."""
    *fields, _seed, settings = spec.identity
    return (*fields, settings)


def record_cells(records):
    """Return the cell of each record, as ``cell_of`` names it."""
    cells = list(records[_CELL].itertuples(index=False, name=None))
    return pd.Series(cells, records.index, dtype=object)


def _check_rows(records):
    """Raise ReportError if two protocols, or two fingerprints of the data, share a row."""
    runs = records.drop_duplicates("key")
    # A random encoder drawn anew for each seed is a replicate, not another copy of the data.
    copies = runs["fingerprint"].str.replace(r"-random\d+(?=-|$)", "-random", regex=True)
    protocols = map(_protocol, runs["settings"], runs["alpha"], runs["temperature"])
    protocols = pd.Series([*protocols], runs.index, dtype=object)
    columns = {"two protocols": protocols, "two copies of the data": copies}
    for title, column in columns.items():
        for row, values in column.groupby([runs[name] for name in _ROW], sort=False):
            if values.nunique() < 2:
                continue
            pair = values.drop_duplicates().index[:2]
            details = ", and ".join(f"{values[run]} of {runs['key'][run]}" for run in pair)
            experiment = runs["experiment"][pair[0]]
            problem = f"{title} would share the row {row[-1]!r} of {experiment}: {details}"
            advice = "remove the records of one of them, or give its cells another label"
            raise ReportError(f"{problem}: {advice}")


def _protocol(settings, alpha, temperature):
    """Return the settings of a run as text, without the number of documents, which may differ."""
    protocol = json.loads(settings) | {"alpha": alpha, "T": temperature, "n_train": "any"}
    return json.dumps(protocol, sort_keys=True)
