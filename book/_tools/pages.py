"""What is made when the book is rendered: the tables of claims, equations, status and cost, and the
pages of runs.

What does not fit together stops the build.
"""

import csv
import importlib
import inspect
import json
import re
from collections import Counter
from html import escape
from pathlib import Path

import later_page
import nbformat
import pandas as pd
from _ext.book_extension import groups, label_of
from claims_picture import svg_of

from snnl_book import experiments, report, results
from snnl_book.experiments.cells import DRAWN
from snnl_book.experiments.grades import lowest
from snnl_book.paper import registered_claims
from snnl_book.report import claims, findings
from snnl_book.report.select import asked_by
from snnl_lib import SnnlError

ROOT = Path(__file__).resolve().parents[2]
BUILT = "made when the book was built"
SHOWN_SCORES = 6  # on the pages of runs; the files have them all
TAG = r"\\\\tag\{(\d+)\}"  # of an equation, in a notebook's JSON
PLAYGROUND = "02_soft_nearest_neighbor_loss"
SAME = "The comparisons are those of rule 1."


def write(folder: Path, contents: list[str], chapters: list[Path]) -> None:
    """Write the tables of those pages that the table of contents names into ``folder/tables``; in
    ``folder`` are the executed chapters.

    Raises SnnlError if a chapter does not show its claims, or an equation lacks its chapter,
    function or test.
    """
    records = results.load_results()
    if f"book/{PLAYGROUND}" in contents:
        _write_playground(folder)
    for name, make in MADE.items():
        if f"book/{name}" in contents:
            for table, frame in make(folder, chapters, records).items():
                results.write_atomically(
                    folder / "tables" / f"{table}.csv", frame.to_csv(index=False)
                )


# ---------------------------------------------------------------- claims


def claims_made(
    folder: Path, chapters: list[Path], records: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """Judge all claims by their records: tables of each paper's, of the verdicts of all rules, and
    the numbers that pages print.

    Raises SnnlError if a claim names a chapter that does not show its verdict.
    """
    _refuse_untold(registered_claims(), chapters)
    judged = claims.judge()
    whole = judged["claim"] + " (" + judged["where"] + ")"
    levels = judged["grade"].map(lowest)
    shown = claims.verdicts(judged).assign(claim=whole, grade=levels)
    tables = {"verdicts": _counts(judged), "claims-contrasts": claims.tested(judged)}
    for paper in claims.PAPERS:
        own, name = judged["paper"] == paper, f"claims-{paper.lower()}"
        tables[name] = shown[own]
        tables[f"{name}-more"] = _more(judged[own])
    links = {chapter: f"{chapter}.html" for chapter in judged["chapter"]}
    results.write_atomically(folder / "tables" / "claims-picture.html", svg_of(judged, links))
    tables["claims-rules"] = _by_rules(judged)
    tables["said"] = _said(judged)
    return tables


def _write_playground(folder):
    """Write the playground of its chapter, as executed, for the front page."""
    notebook = nbformat.read(folder / f"{PLAYGROUND}.ipynb", 4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = ["".join(output.get("data", {}).get("text/html", "")) for output in outputs]
    (page,) = [html for html in shown if "data-snnl-playground" in html]
    results.write_atomically(folder / "tables" / "playground.html", page)


def _more(judged):
    """Say for each claim how close its runs are, its verdict under other readings, and what would
    change it.
    """
    readings = [
        "; ".join(f"{says}: {kind}" for says, kind in found.items()) or "–"
        for found in judged["readings"]
    ]
    return pd.DataFrame(
        {
            "claim": judged["claim"],
            "grade": judged["grade"],
            "other readings": readings,
            "what would change our mind": judged["changes"],
            "page": judged["chapter"],
            "records": BUILT,
        }
    )


def _by_rules(judged):
    """Set the verdicts of all rules next to each other, with what changed in the declaration."""
    columns = {"claim": judged["claim"]}
    columns |= {name: judged[name] for name in claims.RULES}
    columns["rule 3 now"] = judged["kind"]
    columns["what changed in what is compared"] = judged["changed"].replace("", SAME)
    return pd.DataFrame(columns).assign(records=BUILT)


def _refuse_untold(claimed, chapters):
    """Raise SnnlError if a claim's chapter is not in the book, or does not call claims.of on it."""
    code = {
        path.stem: "\n".join(
            cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"
        )
        for path in chapters
    }
    for claim in claimed:
        told = rf"""claims\.of\(\s*["']{re.escape(claim.chapter)}["']"""
        if claim.chapter not in code:
            wrong = "is not in the book"
        elif not re.search(told, code[claim.chapter]):
            wrong = f'does not show its verdict: it never calls claims.of("{claim.chapter}")'
        else:
            continue
        raise SnnlError(f"the chapter {claim.chapter} of the claim {claim.name} {wrong}")


def _counts(judged):
    """Count the verdicts, one column per paper."""
    kinds = judged["kind"].map(claims.word)
    counts = pd.crosstab(kinds, judged["paper"], margins=True, margins_name="all three")
    columns = [*claims.PAPERS, "all three"]
    counts = counts.reindex(index=[*claims.VERDICTS, "all three"], columns=columns, fill_value=0)
    counts = counts.rename(index={"all three": "claims"}).rename_axis("verdict").reset_index()
    return counts.assign(records=BUILT)


def _said(judged):
    """The numbers that pages say in their prose (the role ``said``), by name."""
    by_name = judged.set_index("name")
    classified = by_name.loc["disentangling-classifies-better", "contrasts"]
    start = by_name.loc["before-its-start", "contrasts"][0]
    codes = report.recorded("clustering", "ag_news").query("metric == 'acc'")
    codes = codes.groupby("label")["value"].mean()
    said = {
        "claims": f"{len(judged)}",
        "smallest": _smallest(judged),
        "acc-ae": f"{codes['AE']:.3f}",
        "acc-ae-d": f"{codes['AE(D)']:.3f}",
        "acc-best": f"{max(_means_of_labels('ag_news', 20_000).values()):.3f}",
        "mnist-svm-ahead": _ahead("mnist"),
        "cells": f"{len(classified)}",
        "cells-lower": f"{sum(cell['mean'] < 0 for cell in classified)}",
        "start-gain": f"{start['mean']:+.3f}",
    }
    return pd.DataFrame({"name": [*said], "text": [*said.values()]})


def _ahead(dataset):
    """Say at how many numbers of labels a support vector machine is ahead of AE(D)."""
    rival = "support vector machine, its own classes"
    ahead, tried = findings.where_best(findings.uses_of_labels(dataset), rival, "AE(D)")
    return f"{'every number' if ahead == tried else f'{ahead} of {tried} numbers'} of labels"


def _means_of_labels(dataset, labels):
    """Return the mean accuracy of every recorded use of so many labels, by its name."""
    runs = findings.uses_of_labels(dataset)
    return runs[runs["labels"] == labels].groupby("method")["value"].mean().to_dict()


def _smallest(judged):
    """Say which differences in accuracy our runs of the text classifiers can show."""
    rows = [
        each
        for own in judged.query("chapter == '07_text_classification'")["contrasts"]
        for each in own
        if each["metric"] == "acc" and each["test"].startswith("> 0") and each["units"] >= 5
    ]
    halves = sorted((each["high"] - each["low"]) / 2 for each in rows)
    if not halves:
        return ""
    return (
        f"With 7,600 test documents and our seeds, the comparisons of text classifiers can show"
        f" differences in accuracy from {halves[0]:.3f} (the most precise) to {halves[-1]:.3f}."
    )


# ---------------------------------------------------------------- equations


def equations_made(
    folder: Path, chapters: list[Path], records: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """Index the equations of each paper: where each is derived, what computes it, and which test
    compares the two.
    """
    text = {path.stem: path.read_text() for path in chapters}
    with (ROOT / "book" / "equations.csv").open(newline="") as file:
        listed = list(csv.DictReader(file))
    derived = {(stem, number) for stem, page in text.items() for number in re.findall(TAG, page)}
    if odd := derived ^ {(row["chapter"], row["label"].split("-")[1]) for row in listed}:
        raise SnnlError(
            "Eq. {1} of {0} is in the chapter or in book/equations.csv, and not in the"
            " other".format(*min(odd))
        )
    api = "".join(path.read_text() for path in (ROOT / "book" / "api").glob("*.md"))
    documented = set(re.findall(r"^\.\. auto\w+:: (\S+)$", api, re.MULTILINE))
    tables = {"eq": [], "cb": []}
    for row in listed:
        function = f"`{row['function']}`"
        if row["function"] in documented:
            function = f"{{py:obj}}`~{row['function']}`"
        cells = {
            "equation": f"{{eq}}`{row['label']}`",
            "what it is": row["what"],
            "page": row["chapter"],
            "function": function,
            "test": _test(row),
        }
        tables[row["label"].split("-")[0]].append(cells)
    return {
        f"equations-{part}": pd.DataFrame(rows).assign(records=BUILT)
        for part, rows in tables.items()
    }


def _test(row):
    """Name the test of an equation. Raises SnnlError unless it exists, and the function, and the
    function's docstring names the equation.
    """
    module, name = row["function"].rsplit(".", 1)
    value = getattr(importlib.import_module(module), name, None)
    number = int(row["label"].split("-")[1])
    spans = (
        re.findall(r"Eqs?\.\s+(\d+)(?:(?:-| and )(\d+))?", inspect.getdoc(value) or "")
        if value
        else []
    )
    if not any(int(first) <= number <= int(last or first) for first, last in spans):
        raise SnnlError(
            f"book/equations.csv: {row['function']} does not exist, or its docstring does not name"
            f" Eq. {number}"
        )
    file, test = row["test"].split("::")
    if not (ROOT / file).exists() or f"def {test}(" not in (ROOT / file).read_text():
        raise SnnlError(f"book/equations.csv: there is no test {row['test']}")
    return f"`{test}` in `{file}`"


# ---------------------------------------------------------------- runs


def runs_made(folder: Path, chapters: list[Path], records: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Write a page for each experiment with all of its recorded runs, and one file with their
    records; returns the table of experiments.
    """
    rows = []
    for name, experiment in experiments.EXPERIMENTS.items():
        own = records[records["experiment"] == name]
        runs, hours = own.drop_duplicates("key"), report.computing_seconds(own) / 3600
        row = {
            "page": f"runs/{name}",
            "what it is": experiment.title,
            "recorded": len(runs),
            "not ok": (runs["status"] != "ok").sum(),
        }
        rows.append(
            row
            | {
                "stale": report.stale(runs).sum(),
                "hours of computing": f"{hours:,.1f}",
                "records": BUILT,
            }
        )
        results.write_atomically(
            folder / "runs" / "tables" / f"{name}.csv", own.drop(columns="rows").to_csv(index=False)
        )
        results.write_atomically(folder / "runs" / f"{name}.md", _page_of_runs(name, own))
    return {"runs": pd.DataFrame(rows)}


def _page_of_runs(name, records):
    """The page of an experiment: runs that differ by the seed alone stand together; what many share
    is told once, by a letter and a number.
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
            f"{experiments.EXPERIMENTS[name].title}. All records as one file: {{download}}`CSV"
            f" <tables/{name}.csv>`."
        ),
    ]
    lines += [
        (
            f"In the repository each is a file under `results/{name}/`, named after its settings"
            " and its seed. What is shortened in the tables:"
        ),
        "",
    ]
    lines += [f"- {letter}: `{text}`" for own in letters.values() for text, letter in own.items()]
    records = records.assign(
        group=[groups(f"{name}/{key}")[0] for key in records["key"]],
        shared=report.includes_shared_training(records),
        stale=report.stale(records),
    )
    for dataset, own in records.groupby("dataset", sort=False):
        lines += ["", f"## {dataset}", ""]
        for group, runs in own.groupby("group", sort=False):
            lines += _group(name, group, runs, letters)
    return "\n".join(lines) + "\n"


def _group(name, group, records, letters):
    """One setting with all of its seeds: what it is, its runs, the command to make them again."""
    first, key = records.iloc[0], group.split("/", 1)[1]
    settings = ", ".join(
        f"{name} {value}"
        for name, value in json.loads(first["settings"]).items()
        if value is not None
    )
    wide = records.pivot_table(
        index="key", columns="metric", values="value", sort=False, dropna=False
    )
    scores, rows = list(records["metric"].unique()[:SHOWN_SCORES]), []
    runs = records.drop_duplicates("key").sort_values("seed")
    for run in runs.itertuples():
        stale = f"stale: made by revision {run.revision}" if run.stale else ""
        row = [
            run.seed,
            "; ".join(filter(None, (run.status, run.reason, stale))),
            f"{run.n_train:,} / {run.n_test:,}",
        ]
        row += [report.show_number(wide.loc[run.key, metric], metric) for metric in scores]
        seconds = f"{run.seconds:,.0f}{', shared training included' if run.shared else ''}"
        row += [seconds, run.created[:10], run.commit]
        rows.append(
            row
            + [
                letters[column][getattr(run, column)]
                for column in ("versions", "device", "fingerprint")
            ]
        )
    head = [
        "seed",
        "status",
        "documents (train / test)",
        *scores,
        "seconds",
        "made",
        "commit",
        "versions",
        "device",
        "data",
    ]
    head = "".join(f"<th scope='col'>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    what = (
        f"**{first['model']}**, {first['embedding']}, alpha {first['alpha']:g}, temperature"
        f" {first['temperature']}; {settings}"
    )
    seeds = " ".join(str(seed) for seed in sorted(records["seed"].unique()))
    costly = "--costly " * any(spec.needs for spec in asked_by(records))
    where = "" if first["dataset"] == DRAWN else f"--dataset {first['dataset']} "
    again = f"python -m snnl_book run {name} {where}--seeds {seeds} {costly}--again --keys '{key}'"
    table = f'<table class="table runs"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return [
        f"({label_of(group)})=",
        "",
        what,
        "",
        "```{raw} html",
        table,
        "```",
        "",
        "```",
        again,
        "```",
        "",
    ]


# ---------------------------------------------------------------- status and cost


def status_made(
    folder: Path, chapters: list[Path], records: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """Tell what this build executed, on what and for how long, and what of the full profile is
    recorded, stale, missing or out of reach.
    """
    made, where = [], []
    for path in chapters:
        note = nbformat.read(folder / path.name, 4).metadata["snnl"]  # of build.execute
        row = {
            "page": path.stem,
            "profile": note["profile"],
            "data": note["dataset"],
            "seeds": note["seeds"] or "default",
            "minutes": f"{note['seconds'] / 60:.1f}",
        }
        row |= {
            "peak memory": f"{note['memory_mb']:,} MB",
            "when (UTC)": note["created"][:16].replace("T", " "),
        }
        made.append(row)
        where.append({name: note[name] for name in ("device", "versions", "commit")})
    recorded, reasons = [], Counter()
    for name, experiment in experiments.EXPERIMENTS.items():
        todo = [row for row in experiments.status(name) if row.verdict != "done"]
        unmet = [row.unmet for row in todo if row.unmet]
        runs = records[records["experiment"] == name].drop_duplicates("key")
        row = {
            "page": f"runs/{name}",
            "recorded": len(runs),
            "not ok": (runs["status"] != "ok").sum(),
            "revision": experiment.revision,
        }
        row |= {
            "stale": report.stale(runs).sum(),
            "missing": sum(not row.unmet and row.verdict != "stale" for row in todo),
            "out of reach": len(unmet),
        }
        recorded.append(row)
        reasons.update(unmet)
    tables = {"status-chapters": pd.DataFrame(made), "status-runs": pd.DataFrame(recorded)}
    tables["status-where"] = (
        pd.DataFrame(where).value_counts(sort=False).rename("chapters").reset_index()
    )
    tables["status-reasons"] = pd.DataFrame(
        reasons.most_common() or [("nothing is out of reach", 0)],
        columns=["why a run is out of reach here", "runs "],
    )
    tables = {name: table.assign(records=BUILT) for name, table in tables.items()}
    return tables | {"status-orphans": _orphans_told(report.orphans())}


def _orphans_told(lost):
    """List the records that no run of the plan asks for, or say in a row that there are none."""
    if lost.empty:
        told = [{"record": "every record belongs to a run of the plan", "records": BUILT}]
    else:
        names = [f"{run.experiment}/{run.key}" for run in lost.itertuples()]
        told = [{"record": f"`{name}`", "records": name} for name in names]
    return pd.DataFrame(told)


def performance_made(
    folder: Path, chapters: list[Path], records: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """Tell what each chapter costs, as ``python -m benchmarks.chapters`` measured it, and what the
    recorded runs took.
    """
    measured = report.benchmark("chapters").set_index("chapter")
    rows = []
    for path in chapters:
        row = {"page": path.stem, "minutes": "not measured"}
        if path.stem in measured.index:
            own = measured.loc[path.stem]
            row |= {
                "minutes": f"{own['seconds'] / 60:.1f}",
                "peak memory": f"{own['memory']:,.0f} MB",
                "data": own["dataset"],
                "expected": own["expected"],
            }
        rows.append(row)
    steps = [
        {
            "step": row.step,
            "share of the bound": f"{row.share:.2f}",
            "milliseconds": f"{row.seconds * 1e3:,.0f}",
            "middle half": f"{row.low * 1e3:,.0f} to {row.high * 1e3:,.0f}",
            "rival": row.rival,
            "its milliseconds": "–" if pd.isna(row.ratio) else f"{row.rival_seconds * 1e3:,.0f}",
            "times as long": "–" if pd.isna(row.ratio) else f"{row.ratio:.2f}",
            "device": row.device,
            "records": report.benchmark_files("step"),
        }
        for row in report.benchmark("step").itertuples()
    ] or [{"step": "not measured", "records": BUILT}]
    took, records = [], records.assign(shared=report.includes_shared_training(records))
    for name in experiments.EXPERIMENTS:
        own = records[records["experiment"] == name]
        runs = own.drop_duplicates("key")
        shared = runs["shared"].sum()
        row = {
            "page": f"runs/{name}",
            "recorded": len(runs),
            "median seconds": f"{runs['seconds'].median():,.0f}",
            "longest": f"{runs['seconds'].max():,.0f}",
        }
        took.append(
            row
            | {
                "hours in all": f"{report.computing_seconds(own) / 3600:,.1f}",
                "shared training included": f"in {shared}" if shared else "–",
                "devices": "; ".join(runs["device"].unique()),
                "records": BUILT,
            }
        )
    chapters_took = (
        pd.DataFrame(rows).fillna("–").assign(records=report.benchmark_files("chapters"))
    )
    tables = {"performance-chapters": chapters_took, "performance-steps": pd.DataFrame(steps)}
    return tables | {"performance-runs": pd.DataFrame(took)}


MADE = {
    "claims": claims_made,
    "equations": equations_made,
    "runs": runs_made,
    "status": status_made,
    "performance": performance_made,
    "later_results": lambda folder, chapters, records: later_page.tables(),
}
"""What makes the tables of each page, by its name; each takes the folder, the chapters and all
records.
"""
