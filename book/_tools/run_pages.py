"""The page of an experiment's runs, as HTML in Markdown."""

import json
from html import escape
from pathlib import Path

import pandas as pd
from _ext.book_extension import groups, label_of

from snnl_book import experiments, report, results
from snnl_book.experiments.cells import DRAWN
from snnl_book.report.select import asked_by

SHOWN_SCORES = 7  # on the pages of runs; the files have them all


def page_of(name: str, records: pd.DataFrame) -> str:
    """Return the page of an experiment: one table with a part for each setting and a row for each
    run. Long texts that many runs share are letters with a number, explained above the table.
    """
    letters = {}
    for column, mark in (("versions", "V"), ("device", "D"), ("fingerprint", "F")):
        letters[column] = {
            text: f"{mark}{number}"
            for number, text in enumerate(dict.fromkeys(records[column]), start=1)
        }
    lines = [
        f"# Runs of {name}",
        "",
        (
            f"{experiments.EXPERIMENTS[name].title}. The record of each run is a file in"
            f" `results/{name}/`; {{download}}`one CSV file <tables/{name}.csv>` contains all of"
            f" these records. The table shows up to {SHOWN_SCORES} scores of each run. *Repeat*"
            " shows the command that repeats the runs of a setting."
        ),
        "",
        ":::{dropdown} Key to the columns V (versions), D (device) and F (data)",
    ]
    lines += [
        f"- {letter}: `{text}`" for texts in letters.values() for text, letter in texts.items()
    ]
    records = records.assign(
        group=[groups(f"{name}/{results.run_key(Path(key))}")[0] for key in records["key"]],
        shared=report.includes_shared_training(records),
        stale=report.stale(records),
    )
    scores = _scores_to_show(records)
    head = ["seed", "status", "train / test", *scores, "seconds", "date", "commit", *"VDF"]
    head = "".join(f"<th scope='col'>{escape(cell)}</th>" for cell in head)
    lines += [":::", "", "```{table-of-runs}"]
    lines += [f'<table class="table runs"><thead><tr>{head}</tr></thead>']
    for _, of_dataset in records.groupby("dataset", sort=False):
        for _, runs in of_dataset.groupby("group", sort=False):
            lines += _setting(name, runs, scores, letters)
    return "\n".join([*lines, "</table>", "```"]) + "\n"


def _scores_to_show(records):
    """Return the scores that most runs of an experiment have, in their order."""
    scores = records[~records["metric"].str.startswith(("empty_", "shared_"))]
    counts = scores.dropna(subset="value")["metric"].value_counts(sort=False)
    common = counts.sort_values(ascending=False, kind="stable").index[:SHOWN_SCORES]
    return [metric for metric in records["metric"].unique() if metric in common]


def _setting(name, records, scores, letters):
    """Return the part of the table for one setting, with the command that repeats it and a row for
    each run.
    """
    first, group = records.iloc[0], records["group"].iloc[0]
    values = json.loads(first["settings"]).items()
    settings = ", ".join(f"{setting} {value}" for setting, value in values if value is not None)
    again = _command(name, group, records)
    title = (
        f"{first['dataset']}: <b>{escape(first['model'])}</b>, {escape(first['embedding'])}, alpha"
        f" {first['alpha']:g}, temperature {first['temperature']}; {escape(settings)}"
    )
    columns = len(scores) + 9
    lines = [
        f'<tbody id="{label_of(group)}"><tr class="setting"><th scope="rowgroup"'
        f' colspan="{columns}"><div><span>{title}</span><details><summary>Repeat</summary>'
        f"<code>{escape(again, quote=False)}</code></details></div></th></tr>"
    ]
    wide = records.pivot_table(
        index="key", columns="metric", values="value", sort=False, dropna=False
    ).reindex(columns=scores)
    for run in records.drop_duplicates("key").sort_values("seed").itertuples():
        stale = f"stale: made by revision {run.revision}" if run.stale else ""
        numbers = [report.show_number(wide.loc[run.key, metric], metric) for metric in scores]
        row = [
            run.seed,
            "; ".join(filter(None, (run.status, run.reason, stale))),
            f"{run.n_train:,} / {run.n_test:,}",
            *numbers,
            f"{run.seconds:,.0f}{', shared training included' if run.shared else ''}",
            run.created[:10],
            run.commit,
            *(symbols[getattr(run, column)] for column, symbols in letters.items()),
        ]
        cells = "".join(f"<td>{escape(str(cell))}</td>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    return [*lines, "</tbody>"]


def _command(name, group, records):
    """Return the command that makes the runs of a group again."""
    dataset = records["dataset"].iloc[0]
    options = [] if dataset == DRAWN else [f"--dataset {dataset}"]
    options.append(f"--seeds {' '.join(str(seed) for seed in sorted(records['seed'].unique()))}")
    if any(spec.needs for spec in asked_by(records)):
        options.append("--costly")
    key = group.split("/", 1)[1]
    return f"python -m snnl_book run {name} {' '.join(options)} --again --keys '{key}'"
