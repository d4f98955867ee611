"""A pack for a machine without a network: written here, copied, run there, and merged here."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from snnl_book import results

ROOT = Path(__file__).resolve().parents[2]
RUN = ("lexicon", "--models", "original", "--seeds", "42")


def test_the_records_of_a_machine_without_a_network_come_back(
    packages, command, no_network, results_folder, tmp_path
):
    written, there = tmp_path / "pack", tmp_path / "there"
    status, output, error = command("pack", "lexicon", str(written))
    assert (status, error) == (0, "") and "opinion_lexicon" in output
    shutil.copytree(written, there / "pack")
    shutil.rmtree(written)
    places = {"SNNL_DATA": "pack", "SNNL_CACHE": "cache", "SNNL_RESULTS": str(there / "results")}
    done = subprocess.run(
        [sys.executable, "-m", "snnl_book", "run", *RUN],
        cwd=there,
        env=os.environ | {"PYTHONPATH": str(ROOT), "HOME": str(there)} | places,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert results.load_results("lexicon").empty
    status, output, error = command("merge", str(there / "results"))
    assert (status, error) == (0, "")
    merged = results.load_results("lexicon")
    assert set(merged["model"]) == {"original"} and set(merged["seed"]) == {42}
    assert merged["value"].notna().all() and set(merged["status"]) == {"ok"}
    _, output, _ = command("missing", *RUN[:1], *RUN[3:])
    assert "original" not in output, "the merged run counts as made"
