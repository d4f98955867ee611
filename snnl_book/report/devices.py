"""Runs on an accelerator next to the same runs on a CPU."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from snnl_book.experiments import EXPERIMENTS
from snnl_book.records import DEVICE_TYPES, run_key
from snnl_book.report.select import select
from snnl_book.report.statistics import interval

_CELL = ["experiment", "dataset", "embedding", "model", "label", "asked"]


def beside_the_cpu() -> pd.DataFrame:
    """Compare the accuracy of each row that has runs on an accelerator with its runs on a CPU.

    Scores and seconds are means and medians over the seeds that both devices have. If a row was
    run on the accelerator alone, they are those of the accelerator.

    Returns a frame with the columns of a row (``experiment``, ``dataset``, ``embedding``,
    ``model``, ``label``, ``asked``), the type of the accelerator (``device_type``), the number of
    ``seeds``, both means (``accelerator``, ``cpu``), their ``difference`` with its 95 % interval
    (``low``, ``high``), both median seconds (``accelerator_seconds``, ``cpu_seconds``), and the
    ``records`` of the accelerator. What is not recorded is NaN.
    """
    rows = []
    for device_type, name in product(DEVICE_TYPES, EXPERIMENTS):
        ours = select(name, device_type=device_type)
        if ours.empty:
            continue
        cpu = select(name)
        ours, cpu = ours[ours["metric"] == "acc"], cpu[cpu["metric"] == "acc"]
        for cell, runs in ours.groupby(_CELL, sort=False):
            runs = runs.assign(key=[run_key(Path(key)) for key in runs["key"]])
            both = runs.merge(cpu, on="key", suffixes=("", "_cpu"))
            row = dict(zip(_CELL, cell, strict=True)) | {"device_type": device_type}
            rows.append(row | _compared(name, runs, both))
    return pd.DataFrame(rows)


def _compared(name, runs, both):
    """Return means, seconds and the difference of a row's runs, by seed where both devices ran."""
    shown = runs if both.empty else both
    low, high = interval(both["value"] - both["value_cpu"])
    return {
        "seeds": len(shown),
        "accelerator": shown["value"].mean(),
        "cpu": both["value_cpu"].mean(),
        "difference": (both["value"] - both["value_cpu"]).mean(),
        "low": low,
        "high": high,
        "accelerator_seconds": shown["seconds"].median(),
        "cpu_seconds": both["seconds_cpu"].median() if len(both) else np.nan,
        "records": " ".join(f"{name}/{key}" for key in runs["key"]),
    }
