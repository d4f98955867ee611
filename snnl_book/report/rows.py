"""Rows of a declaration: the cell of the plan that each names, and the runs recorded of it."""

import math
import re
from functools import cache
from typing import NamedTuple

import pandas as pd

from snnl_book import data, results
from snnl_book.experiments import EXPERIMENTS, specs
from snnl_book.experiments.cells import DRAWN
from snnl_book.paper import ClaimError
from snnl_book.report.contrasts import base
from snnl_book.report.documents import are_classes
from snnl_book.report.select import cell_of, record_cells
from snnl_book.results import Spec


@cache
def _plan(experiment, dataset):
    # Points that a run draws are no data set: their cells come with the name of any.
    name = data.available_datasets()[0] if dataset == DRAWN else dataset
    return [spec for spec in specs(experiment, "full", name, (0,)) if spec.dataset == dataset]


def named_cells(row: dict, dataset: str | None = None) -> list[Spec]:
    """Return the cell of the plan that a row of a declaration names, as specs of seed 0.

    There are several specs only if the cell was run on several numbers of documents. A row without
    a data set is one on ``dataset``, and a row without ``reading`` is the main setting if there is
    one. Raises ClaimError if it names no cell or several.
    """
    return [*_named_cells(tuple(sorted(row.items())), dataset)]


@cache
def _named_cells(items, dataset):  # a claim asks for its rows thousands of times
    row = dict(items)
    experiment = row["experiment"]
    dataset = row.get("dataset", dataset)
    _check_name("experiment", experiment, EXPERIMENTS)
    _check_name("data set", dataset, [*data.available_datasets(), DRAWN])
    values = {name: row[name] for name in row.keys() - {"experiment", "dataset", "metric"}}
    cells = [
        spec
        for spec in _plan(experiment, dataset)
        if all(_value_of(spec, name) == value for name, value in values.items())
    ]
    if "reading" not in values:
        cells = [spec for spec in cells if spec.get("reading") is None] or cells
    labels = {(s.embedding, s.model, s.alpha, s.temperature, s.settings): s.label for s in cells}
    if len(labels) != 1:
        names = ", ".join(dict.fromkeys(labels.values()))
        count = f"{len(labels)} cells ({names})" if labels else "no cell"
        raise ClaimError(f"the row {row} names {count} of the plan on {dataset}, but must name one")
    return cells


def _check_name(noun, name, names):
    if name not in names:
        raise ClaimError(f"there is no {noun} {name!r}: choose one of {', '.join(names)}")


def _value_of(spec, name):
    """Return a field of a spec, or else a setting."""
    return getattr(spec, name) if name in Spec.__dataclass_fields__ else spec.get(name)


class Run(NamedTuple):
    """A recorded run, with its score on one metric.

    ``encoder`` names the draw of a random encoder, or is empty. ``classes`` is True if the answers
    behind the score are classes and not clusters.
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
        self.cells: dict[tuple, dict[int, dict]] = {}  # by cell and seed, the record of each run
        for cell, row in zip(record_cells(records), records.to_dict("records"), strict=True):
            run = self.cells.setdefault(cell, {}).setdefault(row["seed"], row | {"scores": {}})
            run["scores"][row["metric"]] = row["value"]
        self._read: dict[tuple, tuple] = {}  # what ``runs`` returned

    def sized(self, rows: list[dict], dataset: str | None) -> list[dict]:
        """Return rows that are compared, with one number of documents for all if there is one.

        The runs of a seed then used the same documents. Of several numbers it is the one with the
        most seeds, and then the largest.
        """
        seeds_by_size = [
            {
                spec.n_train: len(self.cells.get(cell_of(spec), ()))
                for spec in named_cells(row, dataset)
            }
            for row in rows
        ]
        common = set.intersection(*({n for n in seeds if seeds[n]} for seeds in seeds_by_size))
        if not common:
            return rows
        size = max(common, key=lambda n: (min(seeds[n] for seeds in seeds_by_size), n))
        return [row | {"n_train": size} for row in rows]

    def runs(self, row: dict, dataset: str | None, metric: str) -> tuple[Spec, dict[int, Run]]:
        """Return the cell that a row names and its runs by seed, in the order of the seeds' list.

        Of several numbers of documents it takes the largest with the most seeds.
        """
        question = (*sorted((name, str(value)) for name, value in row.items()), dataset, metric)
        if question not in self._read:
            cells = {spec: self.cells.get(cell_of(spec), {}) for spec in named_cells(row, dataset)}
            if base(metric) not in EXPERIMENTS[row["experiment"]].metrics:
                choice = ", ".join(EXPERIMENTS[row["experiment"]].metrics)
                problem = f"{row['experiment']} has no metric {metric!r}"
                raise ClaimError(f"{problem}: choose one of {choice}")
            spec = max(cells, key=lambda spec: (len(cells[spec]), spec.n_train))
            self._read[question] = (spec, runs_of(cells[spec], metric))
        return self._read[question]


def runs_of(rows: dict[int, dict], metric: str) -> dict[int, Run]:
    """Return a Run for each of a cell's records, by seed, whatever its status.

    ``rows`` are rows of records by seed, each with ``scores``: metric -> value.
    """
    name, _, epoch = metric.partition("@")
    scores = {seed: run["scores"].get(name, math.nan) for seed, run in rows.items()}
    if epoch and rows:
        curves = results.load_curves(pd.DataFrame(rows.values()))
        curves = curves[curves["epoch"] == int(epoch)] if len(curves) else curves
        scores = dict(zip(curves["seed"], curves[name], strict=True)) if len(curves) else {}
    return {
        seed: Run(
            scores.get(seed, math.nan),
            run["status"],
            "".join(re.findall(r"-(random\d+)", run["fingerprint"])),
            f"{run['experiment']}/{run['key']}",
            run["stale"],
            are_classes(metric, run["scores"]),
            run.get("profile", "full"),
        )
        for seed, run in rows.items()
    }
