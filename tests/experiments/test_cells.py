"""Cells: each label stands for one row, and each seed belongs to its cell."""

from collections import Counter

import pytest

from snnl_book.experiments.cells import FIFTEEN_SEEDS, PAPER_SEEDS, PROFILES
from snnl_book.experiments.plan import EXPERIMENTS, specs


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_label_stands_for_one_row_of_what_a_table_shows(experiment):
    shown = Counter(
        (
            spec.model if experiment == "classification" else "",  # Table 1 and Table 2
            *(spec.dataset, spec.embedding, spec.n_train, spec.temperature, spec.label),
        )
        for spec in specs(experiment, "full", "auto", 42)
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
