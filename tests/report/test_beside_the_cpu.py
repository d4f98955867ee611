"""Runs on an accelerator next to those on a CPU."""

import pytest
from conftest import ROOT

from snnl_book import report, results
from snnl_book.experiments import specs
from snnl_book.report.devices import beside_the_cpu


@pytest.fixture
def recorded(monkeypatch):
    """Read the committed records."""
    monkeypatch.setenv("SNNL_RESULTS", str(ROOT / "results"))


def test_a_row_is_compared_over_the_seeds_that_both_devices_have(results_folder):
    (spec, *_), (second, *_), (third, *_) = (
        [
            spec
            for spec in specs("clustering", dataset="ag_news", seeds=seed)
            if (spec.embedding, spec.model) == ("spacy", "ae")
        ]
        for seed in (42, 1234, 73)
    )
    made = ((spec, 0.8, 0.81), (second, 0.7, 0.73), (third, 0.9, None))
    for each, on_gpu, on_cpu in made:
        for device_type, value in (("cuda", on_gpu), ("cpu", on_cpu)):
            if value is not None:
                record = results.Record(
                    each, "f0-f1", {"acc": value}, 20_000, 7600, 1.0, "x", device_type=device_type
                )
                results.write_record(record)
    (row,) = beside_the_cpu().to_dict("records")
    assert row["seeds"] == 2 and len(row["records"].split()) == 3
    assert row["accelerator"] == pytest.approx(0.75) and row["cpu"] == pytest.approx(0.77)
    assert row["difference"] == pytest.approx(-0.02) and row["low"] < -0.02 < row["high"]


def test_without_runs_on_an_accelerator_there_is_no_row(results_folder):
    assert beside_the_cpu().empty


def test_what_the_page_on_running_says_of_the_gpu(recorded):
    table = beside_the_cpu()
    shown = sum(len(names.split()) for names in table["records"])
    assert shown == results.load_results(device_type="cuda")["key"].nunique() == 67
    memory = report.benchmark("memory")["mebibytes"] / 1024
    page = " ".join((ROOT / "book" / "running.md").read_text().split())
    small, tuned, encoder = memory
    assert f"at most {small:.1f} GB" in page and f"at most {tuned:.1f} GB" in page
    assert f"whose training took {encoder:.0f} GB" in page
    assert tuned < 5 and "allow 5 GB of its memory for each" in page
    several = table.dropna(subset="low")
    assert len(several) >= 9 and ((several["low"] <= 0) & (several["high"] >= 0)).all()
