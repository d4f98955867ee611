"""Records joined to the cells of the plan: which runs make which row of a table.

Nothing here asks which data are on this machine: a record carries the fingerprint of its own.
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

_CELL = ["experiment", "profile", "dataset", "embedding", "model", "alpha", "temperature"]
_CELL += ["settings"]  # what tells records apart, but for the seed
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
) -> pd.DataFrame:
    """Join an experiment's records to the cells of its grid, in the order of the grid.

    A record belongs to a cell if their specs have the same identity, whatever the seed; one that
    belongs to none is left out (``orphans``). ``dataset`` and ``embedding`` take the records on one
    (default: on all); ``seeds`` those of some seeds, made by chapters as well (default: all
    that are recorded); ``profile`` is that of the records and of the grid.

    Adds to the columns of ``results.load_results``: ``label`` (of the row), ``reading`` (None in
    the main setting), ``asked`` (training documents asked for, which may differ within a row:
    ``most_documents``) and ``stale`` (made by an older revision). Raises ReportError if records
    made by two protocols, or from two copies of the data, would share a row.

    >>> list(select("clustering", embedding="spacy")["label"].unique())
    ['Orig.', 'AE', 'LC(D)', 'AE(D)']
    """
    records = results.load_results(experiment, profile, by_chapters=seeds is not None)
    for column, wanted in (("dataset", dataset), ("embedding", embedding)):
        if wanted is not None:
            records = records[records[column] == wanted]
    if seeds is not None:
        records = records[records["seed"].isin(seeds)]
    plan = _plan(experiment, profile, records)
    places = {cell: place for place, cell in enumerate(plan)}
    cells = record_cells(records)
    cells = cells[cells.isin(places)]
    records, joined = records.loc[cells.index], [plan[cell] for cell in cells]
    readings = [spec.get("reading") for spec in joined]
    records = records.assign(
        label=pd.Series([spec.label for spec in joined], records.index, dtype="str"),
        reading=pd.Series(readings, records.index, dtype=object),
        asked=[spec.n_train for spec in joined],
        stale=[spec.revision for spec in joined] > records["revision"],
    )
    _refuse_mixed_rows(records)
    usual = {seed: place for place, seed in enumerate(EXPERIMENTS[experiment].seeds)}
    order = pd.DataFrame({"cell": cells.map(places), "seed": records["seed"]})
    order["usual"] = order["seed"].map(lambda seed: usual.get(seed, len(usual)))
    return records.loc[order.sort_values(["cell", "usual", "seed"], kind="stable").index]


def stale(records: pd.DataFrame) -> pd.Series:
    """Tell which rows of records (of any experiment) were made by an older revision of their cell.

    Returns bools, indexed as the records; a record that no cell asks for is not stale.

    >>> bool(stale(results.load_results("clustering")).any())
    False
    """
    numbered = records.reset_index(drop=True)  # of several experiments, an index has doubles
    older = pd.Series(False, numbered.index)
    for (name, profile), group in numbered.groupby(["experiment", "profile"]):
        revisions = {cell: spec.revision for cell, spec in _plan(name, profile, group).items()}
        older[group.index] = record_cells(group).map(revisions).fillna(0) > group["revision"]
    return older.set_axis(records.index)


def asked_by(records: pd.DataFrame) -> list[Spec]:
    """List the cells of the plan that records (of any experiment) belong to, as specs of seed 0.

    A record that no cell asks for has none.

    >>> [spec.label for spec in asked_by(results.load_results("clustering"))][:2]
    ['Orig.', 'AE']
    """
    found: dict[Spec, None] = {}
    for (name, profile), group in records.groupby(["experiment", "profile"], sort=False):
        cells = _plan(name, profile, group) if name in EXPERIMENTS else {}
        made = set(record_cells(group)) if cells else set()
        found |= {spec: None for cell, spec in cells.items() if cell in made}
    return list(found)


def orphans(experiment: str | None = None, profile: str = "full") -> pd.DataFrame:
    """List the records that no cell of an experiment (default: of any) asks for, a row a record.

    ``profile`` is that of the records, in which the cells are looked for.

    >>> len(orphans("clustering"))
    0
    """
    records = results.load_results(experiment, profile)
    records = records.drop_duplicates(["experiment", "key"])
    lost = [
        group[~record_cells(group).isin(_plan(name, profile, group))]
        if name in EXPERIMENTS
        else group
        for name, group in records.groupby("experiment")
    ]
    return pd.concat(lost) if lost else records


def most_documents(records: pd.DataFrame) -> pd.DataFrame:
    """Keep of a row that was run on several numbers of documents the largest with all its seeds."""
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

    ``embedding`` None takes all; ``seeds`` None takes the experiment's own and those of a random
    encoder's further draws, ``"all"`` all there are; ``model`` takes that model's runs only;
    ``profile`` is that of the records. Adds ``label``, ``reading`` and ``stale`` (``select``).

    >>> records = recorded("clustering", "ag_news", model="ae-d")
    >>> list(records["label"].unique()), sorted(records["seed"].unique().tolist())
    (['AE(D)'], [42, 73, 1024, 1234, 31415926])
    """
    records = select(experiment, profile, dataset, embedding, None if seeds == "all" else seeds)
    if seeds is None:
        planned = {
            (cell_of(spec), spec.seed) for spec in _specs(experiment, profile, records, seeds=None)
        }
        runs = zip(record_cells(records), records["seed"], strict=True)
        own = np.array([run in planned for run in runs], dtype=bool)
        records = records[own | records["seed"].isin(EXPERIMENTS[experiment].seeds)]
    if model is not None:
        records = records[records["model"] == model]
    return most_documents(records).drop(columns="asked")


def short_texts(experiment: str = "clusterbert", profile: str = "full", seeds=None) -> pd.DataFrame:
    """Select an experiment's records of a ``profile`` on short texts, on any number of documents.

    ``seeds`` None takes all there are. Adds ``method`` (the row's label without the reading),
    ``clusterer``, ``reading``, ``asked`` (documents), ``task`` and ``stale``.

    >>> list(short_texts("retrieval")["task"].unique())
    ['trecqa', 'denoise']
    """
    records = select(experiment, profile, seeds=seeds)
    settings = records["settings"].map(json.loads)
    rows = zip(records["label"], records["reading"], strict=True)
    methods = [label.removesuffix(f", {reading}") for label, reading in rows]
    asked = {name: settings.str.get(name) for name in ("clusterer", "task")}
    records = records.assign(method=methods, **asked)
    added = ["method", "clusterer", "reading", "asked", "task", "stale"]
    return records[[*results.COLUMNS, "key", *added]]


def by_stage(records: pd.DataFrame) -> pd.DataFrame:
    """Keep the scores after each stage of ClusterBERT, such as ``acc_2``, taken apart: ``metric``
    (``acc``), and added ``stage``, 0 (before training) to 3. ``records`` are of any metrics.

    >>> staged = by_stage(short_texts().query("metric in ['acc', 'acc_2']"))
    >>> staged["metric"].unique().tolist(), staged["stage"].unique().tolist()
    (['acc'], [2])
    """
    parts = records["metric"].str.extract(r"(?P<metric>.+)_(?P<stage>[0-3])$")
    return records.assign(**parts).dropna(subset="stage").astype({"stage": int})


def withdrawn(records: pd.DataFrame | None = None) -> pd.DataFrame:
    """Read the scores that were withdrawn, beside those of the same runs made anew.

    ``results/withdrawn.csv`` has what UMAP scored on short texts while their rows stood in the
    corpora's order, which tells the classes. ``records`` are as ``short_texts`` returns them
    (default: those of ``clusterbert``); stale ones count as not made anew.

    Returns a row a run and score: dataset, method, clusterer, n_train, seed, metric, ``then``,
    ``now`` (nan where the run was not made anew), and ``records``, the new run's name (empty
    likewise). No row where there is no such file.

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
    settled = [name for name in _SAME_RUN if name != "metric"]
    then = scores.melt(settled, ["nmi_geometric", "acc"], "metric", "then")
    records = short_texts() if records is None else records
    fresh = records[~records["stale"].astype(bool)].rename(columns={"value": "now"})
    fresh = fresh.assign(records=fresh["experiment"] + "/" + fresh["key"])
    both = then.merge(fresh[[*_SAME_RUN, "now", "records"]], "left", _SAME_RUN)
    return both.fillna({"records": ""})[columns]


def _plan(experiment: str, profile: str, records: pd.DataFrame) -> dict[tuple, Spec]:
    """Map what tells a cell to one of its specs, for all cells on a data set that is recorded.

    The order is the grid's within a data set, and the catalogue's of data sets.
    """
    plan: dict[tuple, Spec] = {}
    for spec in _specs(experiment, profile, records, seeds=(0,)):
        plan.setdefault(cell_of(spec), spec)
    return plan


def _specs(experiment, profile, records, seeds):
    """Yield the specs of an experiment on each data set that is recorded."""
    catalogue, names = data.available_datasets(), {*records["dataset"]}
    # Points that a run draws are no data set: their cells come with the name of any.
    known = [name for name in catalogue if name in names] or catalogue[:1]
    return chain.from_iterable(specs(experiment, profile, name, seeds) for name in known)


def cell_of(spec: Spec) -> tuple:
    """Tell the cell of a run: its identity without the seed."""
    *fields, _seed, settings = spec.identity
    return (*fields, settings)


def record_cells(records):
    """Tell the cell of each record by its identity without the seed."""
    cells = list(records[_CELL].itertuples(index=False, name=None))
    return pd.Series(cells, records.index, dtype=object)


def _refuse_mixed_rows(records):
    """Raise ReportError if two protocols, or two fingerprints of the data, share a row."""
    runs = records.drop_duplicates("key")
    # A random encoder drawn anew for each seed is a replicate, not another copy of the data.
    copies = runs["fingerprint"].str.replace(r"-random\d+(?=-|$)", "-random", regex=True)
    protocols = map(_protocol, runs["settings"], runs["alpha"], runs["temperature"])
    protocols = pd.Series([*protocols], runs.index, dtype=object)
    columns = {"two protocols": protocols, "two copies of the data": copies}
    for what, column in columns.items():
        for row, values in column.groupby([runs[name] for name in _ROW], sort=False):
            if values.nunique() < 2:
                continue
            one, other = values.drop_duplicates().index[:2]
            found = ", and ".join(f"{values[run]} of {runs['key'][run]}" for run in (one, other))
            shared = f"{what} would share the row {row[-1]!r} of {runs['experiment'][one]}: {found}"
            advice = "remove the records of one, or give its cells a label of their own"
            raise ReportError(f"{shared}; {advice}")


def _protocol(settings, alpha, temperature):
    """Write down what was run, but for the number of documents, which ``asked`` tells apart."""
    whole = json.loads(settings) | {"alpha": alpha, "T": temperature, "n_train": "any"}
    return json.dumps(whole, sort_keys=True)
