"""The files of measurements: where and when each row was measured, and rows that replace others."""

from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from snnl_book import results


def facts(device: str) -> dict:
    """Return the columns that name the device, with one thread, and the code that measured."""
    return {
        "device": results.device_name(device),
        "threads": 1,
        "versions": results.versions(),
        "commit": results.commit(),
    }


def now() -> str:
    """Return the current time for the column ``created``."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def with_row(path: Path, row: dict, keys: str | list[str]) -> pd.DataFrame:
    """Return the table in a file, with a new row in place of an older one with the same keys."""
    table = pd.DataFrame([row | {"created": now()}])
    if path.exists():
        table = pd.concat([pd.read_csv(path), table]).drop_duplicates(keys, keep="last")
    return table
