"""Rows of a declaration: the cell of the plan that each names, and the runs recorded of it."""

import math
import re
from functools import cache
from typing import NamedTuple

import pandas as pd

from snnl_book import answers, data, results
from snnl_book.experiments import EXPERIMENTS, specs
from snnl_book.experiments.cells import DRAWN
from snnl_book.paper import ClaimError, declared
from snnl_book.report.contrasts import base
from snnl_book.report.documents import set_of
from snnl_book.report.select import cell_of, record_cells
from snnl_book.results import Spec


@cache
def _plan(experiment, dataset):
    # Points that a run draws are no data set: their cells come with the name of any.
    name = data.available_datasets()[0] if dataset == DRAWN else dataset
    return [spec for spec in specs(experiment, "full", name, (0,)) if spec.dataset == dataset]


def named_cells(row: dict, dataset: str | None = None) -> list[Spec]:
    """Find the cell of the plan that a row of a declaration names, as specs of seed 0.

    There are several only if they differ in nothing but the number of documents. ``dataset`` stands
    in for the row's own. A row without ``reading`` means the main setting where there is one.
    Raises ClaimError if it names no cell or several.
    """
    return [*_named_cells(tuple(sorted(row.items())), dataset)]


@cache
def _named_cells(items, dataset):  # a claim asks for its rows thousands of times
    row = dict(items)
    experiment, dataset = row["experiment"], row.get("dataset", dataset)
    known = data.available_datasets()
    for what, name, names in (
        ("experiment", experiment, EXPERIMENTS),
        ("data set", dataset, [*known, DRAWN]),
    ):
        if name not in names:
            raise ClaimError(f"there is no {what} {name!r}: choose one of {', '.join(names)}")
    asked = {name: row[name] for name in row.keys() - {"experiment", "dataset", "metric"}}
    if asked.get("n_train") == declared.MOST:
        del asked["n_train"]

    def told(spec, name):
        return getattr(spec, name) if name in Spec.__dataclass_fields__ else spec.get(name)

    found = [
        spec
        for spec in _plan(experiment, dataset)
        if all(told(spec, name) == wanted for name, wanted in asked.items())
    ]
    if "reading" not in asked:
        found = [spec for spec in found if spec.get("reading") is None] or found
    rows = {(s.embedding, s.model, s.alpha, s.temperature, s.settings): s.label for s in found}
    if len(rows) != 1:
        which = ", ".join(dict.fromkeys(rows.values()))
        many = f"{len(rows)} cells ({which})" if rows else "no cell"
        raise ClaimError(f"the row {row} names {many} of the plan on {dataset}")
    return found


class Run(NamedTuple):
    """What a record says about one metric.

    ``encoder`` names the draw of a random encoder, or is empty. ``classes`` is True where the
    answers behind the score are classes and not clusters.
    """

    value: float
    status: str
    encoder: str
    record: str
    stale: bool
    classes: bool = False
    profile: str = "full"


class Book:
    """The records by cell, looked up once for all claims. ``records`` are as ``select`` returns."""

    def __init__(self, records: pd.DataFrame):
        self.cells: dict[tuple, dict[int, dict]] = {}  # cell -> seed -> what is recorded of the run
        for cell, row in zip(record_cells(records), records.to_dict("records"), strict=True):
            run = self.cells.setdefault(cell, {}).setdefault(row["seed"], row | {"scores": {}})
            run["scores"][row["metric"]] = row["value"]
        self.known: dict[tuple, tuple] = {}

    def sized(self, rows: list[dict], dataset: str | None) -> list[dict]:
        """Settle the number of documents of rows that are compared: the same for all, if there is
        one, so that the runs of a seed saw the same documents. With the most seeds, then the
        largest.
        """
        made = [
            {
                spec.n_train: len(self.cells.get(cell_of(spec), ()))
                for spec in named_cells(row, dataset)
            }
            for row in rows
        ]
        common = set.intersection(*({n for n in sizes if sizes[n]} for sizes in made))
        if not common:
            return rows
        size = max(common, key=lambda n: (min(sizes[n] for sizes in made), n))
        return [row | {"n_train": size} for row in rows]

    def runs(self, row: dict, dataset: str | None, metric: str) -> tuple[Spec, dict[int, Run]]:
        """Return the cell that a row names and its runs by seed, in the order of the seeds' list.

        Of several numbers of documents the largest with the most seeds.
        """
        asked = (*sorted((name, str(value)) for name, value in row.items()), dataset, metric)
        if asked not in self.known:
            cells = {spec: self.cells.get(cell_of(spec), {}) for spec in named_cells(row, dataset)}
            if base(metric) not in EXPERIMENTS[row["experiment"]].metrics:
                raise ClaimError(f"{row['experiment']} has no metric {metric!r}")
            spec = max(cells, key=lambda spec: (len(cells[spec]), spec.n_train))
            self.known[asked] = (spec, runs_of(cells[spec], metric))
        return self.known[asked]


def runs_of(made: dict[int, dict], metric: str) -> dict[int, Run]:
    """Read a metric of a cell's records, whatever became of each run: seed -> Run.

    ``made`` are rows of records by seed, each with ``scores``: metric -> value.
    """
    name, _, epoch = metric.partition("@")
    scores = {seed: run["scores"].get(name, math.nan) for seed, run in made.items()}
    if epoch and made:
        curves = results.load_curves(pd.DataFrame(made.values()))
        curves = curves[curves["epoch"] == int(epoch)] if len(curves) else curves
        scores = dict(zip(curves["seed"], curves[name], strict=True)) if len(curves) else {}
    return {
        seed: Run(
            scores.get(seed, math.nan),
            run["status"],
            "".join(re.findall(r"-(random\d+)", run["fingerprint"])),
            f"{run['experiment']}/{run['key']}",
            run["stale"],
            _are_classes(metric, run["scores"]),
            run.get("profile", "full"),
        )
        for seed, run in made.items()
    }


def _are_classes(metric, scores):
    name = set_of(metric)
    return answers.metric_of(name, "f1_micro") in scores or name.endswith("neighbours_")
