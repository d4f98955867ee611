"""Tables and pages made when the book is rendered: claims, equations, runs, status and cost.

A claim or an equation that the book does not show stops the build.
"""

import csv
import importlib
import inspect
import re
from collections import Counter
from pathlib import Path

import nbformat
import pandas as pd
from claims_picture import svg_of
from run_pages import page_of

from snnl_book import experiments, report, results
from snnl_book.experiments import second_corpus, short_texts
from snnl_book.experiments.cells import ALL_SHORT_TEXTS, CONFIRMING_SEEDS
from snnl_book.experiments.grades import lowest
from snnl_book.paper import registered_claims
from snnl_book.report import claims, findings
from snnl_book.report.devices import beside_the_cpu
from snnl_lib import SnnlError

ROOT = Path(__file__).resolve().parents[2]
BUILT = "made when the book was built"
TAG = r"\\\\tag\{(\d+)\}"  # of an equation, in a notebook's JSON
PLAYGROUND = "02_soft_nearest_neighbor_loss"
UNSCALED = "squared error, inputs not scaled"
SAME = "The comparisons are those of rule 1."


def write(folder: Path, contents: list[str], chapters: list[Path]) -> None:
    """Write the tables of the pages in the table of contents into ``folder/tables``.

    The executed chapters are in ``folder``. Raises SnnlError if a chapter does not show its claims,
    or an equation lacks its chapter, function or test.
    """
    if f"book/{PLAYGROUND}" in contents:
        _write_playground(folder)
    for name, make in MADE.items():
        if f"book/{name}" in contents:
            # The pages of runs list the runs on all devices; everything else counts a CPU's.
            records = results.load_results(device_type=None if name == "runs" else "cpu")
            for table, frame in make(folder, chapters, records).items():
                results.write_atomically(
                    folder / "tables" / f"{table}.csv", frame.to_csv(index=False)
                )


# ---------------------------------------------------------------- claims


def claims_made(
    folder: Path, chapters: list[Path], records: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """Judge all claims, and return tables of each paper's claims, of the rules and of values.

    The values are numbers that pages print. Raises SnnlError if a claim names a chapter that does
    not show its verdict.
    """
    _check_chapters_show(registered_claims(), chapters)
    judged = claims.judge()
    whole = judged["claim"] + " (" + judged["where"] + ")"
    levels = judged["grade"].map(lowest)
    verdicts = claims.verdicts(judged).assign(claim=whole, grade=levels)
    verdicts["verdict"] = judged["short verdict"]
    tables = {"verdicts": _counts(judged), "claims-contrasts": claims.tested(judged)}
    for paper in claims.PAPERS:
        is_of_paper = judged["paper"] == paper
        name = f"claims-{paper.lower()}"
        tables[name] = verdicts[is_of_paper]
        tables[f"{name}-more"] = _details(judged[is_of_paper])
    links = {chapter: f"{chapter}.html" for chapter in judged["chapter"]}
    results.write_atomically(folder / "tables" / "claims-picture.html", svg_of(judged, links))
    tables["claims-rules"] = _by_rules(judged)
    changes = judged[["claim", "changed"]].replace("", SAME)
    tables["claims-changes"] = changes.assign(records=BUILT)
    tables["values"] = _values(judged)
    return tables


def _write_playground(folder):
    """Write the playground of its chapter, as executed, for the front page."""
    notebook = nbformat.read(folder / f"{PLAYGROUND}.ipynb", 4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pages = ["".join(output.get("data", {}).get("text/html", "")) for output in outputs]
    (page,) = [html for html in pages if "data-snnl-playground" in html]
    results.write_atomically(folder / "tables" / "playground.html", page)


def _details(judged):
    """Make a table of grades, remarks, other readings, and what would change the verdicts."""
    readings = [
        "; ".join(f"{reading}: {verdict}" for reading, verdict in verdicts.items()) or "–"
        for verdicts in judged["readings"]
    ]
    return pd.DataFrame(
        {
            "claim": judged["claim"],
            "grade": judged["grade"],
            "remarks": judged["remarks"].replace("", "–"),
            "other readings": readings,
            "what would change our mind": judged["changes"],
            "page": judged["chapter"],
            "records": BUILT,
        }
    )


def _by_rules(judged):
    """Set the verdicts of all rules next to each other."""
    columns = {
        "claim": judged["claim"],
        **{name: judged[name] for name in claims.RULES},
        "rule 3 now": judged["kind"],
        "moved by": judged.apply(claims.moved_by, axis=1),
    }
    return pd.DataFrame(columns).assign(records=BUILT)


def _check_chapters_show(declared, chapters):
    """Raise SnnlError if a claim's chapter is not in the book, or does not call claims.of on it."""
    code = {
        path.stem: "\n".join(
            cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"
        )
        for path in chapters
    }
    for claim in declared:
        call = rf"""claims\.of\(\s*["']{re.escape(claim.chapter)}["']"""
        if claim.chapter not in code:
            problem = "is not in the book: correct its name"
        elif not re.search(call, code[claim.chapter]):
            problem = f'does not show its verdict: call claims.of("{claim.chapter}") in it'
        else:
            continue
        raise SnnlError(f"the chapter {claim.chapter} of the claim {claim.name} {problem}")


def _counts(judged):
    """Count the verdicts, one column per paper."""
    verdicts = judged["kind"].map(claims.word)
    counts = pd.crosstab(verdicts, judged["paper"], margins=True, margins_name="all three")
    columns = [*claims.PAPERS, "all three"]
    counts = counts.reindex(index=[*claims.VERDICTS, "all three"], columns=columns, fill_value=0)
    counts = counts.rename(index={"all three": "claims"}).rename_axis("verdict").reset_index()
    return counts.assign(records=BUILT)


def _values(judged):
    """Return the numbers that pages print in their prose (the role ``value``), by name."""
    by_name = judged.set_index("name")
    classified = by_name.loc["disentangling-classifies-better", "contrasts"]
    precise = classified[0]  # the feed-forward network on averaged vectors
    codes = report.recorded("clustering", "ag_news").query("metric == 'acc'")
    codes = codes.groupby("label")["value"].mean()
    readings = report.recorded("clustering-readings", "ag_news").query("metric == 'acc'")
    variants = pd.concat([codes, readings.groupby("label")["value"].mean()])
    with_loss = variants[variants.index.str.startswith(("AE(D)", "LC(D)"))]
    best_of_layers = _best_of_layers()
    text_uses = _means_of_labels("ag_news", 20_000)
    words = ("SIF", "SIF, own vectors")
    short = _short_texts("ClusterBERT", "MiniLM, mean", *words)
    verdicts = judged["kind"].map(claims.word)
    early, all_seeds, rate = _early_loss(), _early_loss(None), _cut_rate()
    on_top = _on_top_of_cut("the first half only")
    unseen = _unseen_classes("mnist").groupby("label")["value"].mean()
    newsgroups, harm, lower_rate = _on_newsgroups()
    training = _gains_of_training()
    on_minilm = report.recorded("labels", "ag_news", "minilm").query("metric == 'acc'")
    on_minilm = on_minilm.query("n_train == 20_000").groupby("model")["value"].mean()
    few = _smallest_lead(300)
    trained, vectors = float(short["ClusterBERT"]), float(short["MiniLM, mean"])
    averaged = max(float(short[method]) for method in words)
    values = {
        "claims": f"{len(judged)}",
        "hold": f"{(verdicts == 'holds').sum()}",
        "untested": f"{(verdicts == 'not tested').sum()}",
        "smallest": _smallest(judged),
        "acc-ae": f"{codes['AE']:.3f}",
        "acc-ae-d": f"{codes['AE(D)']:.3f}",
        "acc-ae-d-squared": f"{text_uses[f'AE(D), {UNSCALED}']:.3f}",
        "acc-exchanged": f"{text_uses['AE with a classifier on its code']:.3f}",
        "acc-exchanged-raw": f"{text_uses[f'AE with a classifier on its code, {UNSCALED}']:.3f}",
        "minilm-svm": f"{on_minilm['svm']:.3f}",
        "minilm-ae-d": f"{on_minilm['ae-d']:.3f}",
        "encoder-behind": f"{-_encoder_behind()['mean']:.3f}",
        "unseen-ae": f"{unseen['AE']:.3f}",
        "unseen-ae-d": f"{unseen['AE(D)']:.3f}",
        "unseen-exchanged": f"{unseen['AE with a classifier on its code']:.3f}",
        "newsgroups-ae": f"{newsgroups['AE']:.3f}",
        "newsgroups-ae-d": f"{newsgroups['AE(D)']:.3f}",
        "newsgroups-exchanged": f"{newsgroups['AE with a classifier on its code']:.3f}",
        "newsgroups-harm": f"{-harm['mean']:.3f}",
        "newsgroups-rate": f"{lower_rate['mean']:.3f}",
        "acc-loss-best": f"{max(with_loss.max(), best_of_layers['with the loss']):.3f}",
        "acc-plain-best": f"{best_of_layers['without']:.3f}",
        "acc-best": f"{max(text_uses.values()):.3f}",
        "few-lead": f"{few['mean']:.3f}",
        "few-interval": f"{few['low']:.3f} to {few['high']:.3f}",
        "ffn-gain": _signed(precise["mean"]),
        "ffn-interval": precise["interval"].replace("-", "−"),
        "early-gain": f"{early['mean']:.3f}",
        "early-interval": f"{early['low']:.3f} to {early['high']:.3f}",
        "early-all": f"{all_seeds['mean']:.3f}",
        "early-seeds": f"{all_seeds['seeds']}",
        "rate-gain": f"{rate['mean']:.3f}",
        "rate-interval": f"{rate['low']:.3f} to {rate['high']:.3f}",
        "on-top": _signed(on_top["mean"]),
        "on-top-interval": f"{_signed(on_top['low'])} to {_signed(on_top['high'])}",
        "left-on": _signed(_on_top_of_cut("both halves")["mean"]),
        "nmi-clusterbert": short["ClusterBERT"],
        "nmi-minilm": short["MiniLM, mean"],
        "nmi-words": f"{averaged:.3f}",
        "nmi-vectors-gain": f"{vectors - averaged:.3f}",
        "nmi-training-gain": f"{trained - vectors:.3f}",
        "training-interval": training["ClusterBERT"][1],
        "pooled-gain": training["mean pooling"][0],
        "pooled-interval": training["mean pooling"][1],
        "own-questions": f"{sum('rival' in claim.where for claim in registered_claims())}",
    }
    return pd.DataFrame({"name": [*values], "text": [*values.values()]})


def _unseen_classes(dataset):
    """Return the accuracies of k-means on classes that are not in the training data."""
    embedding = "pixels" if "mnist" in dataset else "spacy"
    return report.recorded("unseen", dataset, embedding).query("metric == 'acc'")


def _on_newsgroups():
    """Return mean accuracies on raw inputs, and what the loss and a lower rate change in classes.

    All are of 20 Newsgroups.
    """
    codes, classes = ("clustering-readings", "clustering-rivals"), "classification"
    names = (*codes, classes, f"{classes}-readings")
    runs = pd.concat([report.recorded(name, second_corpus.CORPUS, seeds="all") for name in names])
    codes = runs.query("metric == 'acc'").groupby("label")["value"].mean()
    codes = codes[codes.index.str.endswith(f", {UNSCALED}")]
    lower = f"{second_corpus.ALL}, {second_corpus.CUT}, alpha 0"
    pairs = [("SNNL 100", "Baseline"), (lower, f"{second_corpus.ALL}, alpha 0")]
    harm, lower_rate = report.differences(runs, pairs).to_dict("records")
    return codes.rename(lambda label: label.removesuffix(f", {UNSCALED}")), harm, lower_rate


def _signed(value):
    return f"{value:+.3f}".replace("-", "−")


def _best_of_layers():
    """Return the highest mean accuracy of k-means on any layer of a text classifier."""
    runs = report.recorded("clustering-rivals", "ag_news", model="ffn-hidden")
    runs = runs[runs["metric"].str.fullmatch(r"hidden\d_(normalized_)?acc")]
    of_loss = runs["alpha"].ne(0).map({True: "with the loss", False: "without"})
    means = runs.groupby([of_loss, runs["label"], runs["metric"]])["value"].mean()
    return means.groupby(level=0).max().to_dict()


def _encoder_behind():
    """Return the accuracy of AE(D)'s encoder as a classifier minus AE(D)'s, on raw inputs."""
    rivals = report.recorded("clustering-rivals", "ag_news", model="ffn-hidden")
    codes = rivals[rivals["metric"] == "hidden4_normalized_acc"].query("alpha == 0")
    codes = codes.assign(metric="acc", recorded_as=codes["metric"])
    runs = pd.concat([report.recorded("clustering-readings", "ag_news"), codes])
    pair = ("each hidden layer of the encoder as a classifier", f"AE(D), {UNSCALED}")
    return report.differences(runs, [pair]).iloc[0]


def _early_loss(seeds=CONFIRMING_SEEDS):
    """Return what the loss in the first half of the epochs adds to a text classifier's accuracy.

    Only the seeds count that were kept for confirming it, or all seeds if ``seeds`` is None.
    """
    runs = _halfway_runs(seeds)
    pair = ("20,000 documents, loss in the first half only", "20,000 documents, alpha 0")
    return report.differences(runs, [pair]).iloc[0]


CUT = "20,000 documents{}, learning rate divided by 10 at halftime{}"


def _cut_rate():
    """Return what a learning rate divided by 10 halfway adds without the loss, on these seeds."""
    pair = (CUT.format("", ", alpha 0"), "20,000 documents, alpha 0")
    return report.differences(_halfway_runs(CONFIRMING_SEEDS), [pair]).iloc[0]


def _on_top_of_cut(epochs):
    """Return what the loss adds in some epochs if the learning rate is divided by 10 halfway."""
    pair = (CUT.format(f", loss in {epochs}", ""), CUT.format("", ", alpha 0"))
    return report.differences(_halfway_runs(CONFIRMING_SEEDS), [pair]).iloc[0]


def _halfway_runs(seeds):
    """Return the runs of the text classifier on averaged vectors, with one name for a baseline."""
    runs = report.recorded("classification-readings", "ag_news", "spacy", model="ffn")
    if seeds is not None:
        return runs[runs["seed"].isin(seeds)]
    baseline = report.recorded("classification", "ag_news", "spacy", seeds="all", model="ffn")
    baseline = baseline.query("alpha == 0").assign(label="20,000 documents, alpha 0")
    return pd.concat([runs, baseline])


def _gains_of_training():
    """Return what ClusterBERT's training adds to the NMI of MiniLM's mean, over the six corpora.

    Each gain is followed by its 95 % interval over the corpora, as texts.
    """
    corpora = [*short_texts.DATASETS][:6]
    pooled = report.short_texts("clusterbert-ablation").query("reading == 'mean pooling'")
    runs = pd.concat([report.short_texts("clusterbert"), pooled.assign(method="mean pooling")])
    runs = runs.query("metric == 'nmi_geometric' and asked == 2000 and clusterer == 'kmeans'")
    means = runs.pivot_table("value", "dataset", "method").reindex(corpora)
    gains = {name: means[name] - means["MiniLM, mean"] for name in ("ClusterBERT", "mean pooling")}
    spans = {name: report.interval(gain) for name, gain in gains.items()}
    return {
        name: (f"{gain.mean():.3f}", "{:.3f} to {:.3f}".format(*spans[name]).replace("-", "−"))
        for name, gain in gains.items()
    }


def _smallest_lead(labels):
    """Return the smallest lead of the support vector machine over a form of AE(D) on texts."""
    runs = findings.uses_of_labels("ag_news").query("labels == @labels")
    forms = [name for name in runs["method"].unique() if name.split(",")[0] == "AE(D)"]
    pairs = [("support vector machine", form) for form in forms]
    leads = findings.differences_by_labels(runs, pairs)
    return leads.loc[leads["mean"].idxmin()]


def _short_texts(*methods):
    """Return methods' mean NMI over the ClusterBERT paper's corpora, 2,000 texts of each.

    Only seeds that all methods have are counted.
    """
    corpora = [*short_texts.DATASETS][:6]
    runs = report.short_texts("clusterbert").query("metric == 'nmi_geometric' and asked == 2000")
    runs = runs.query("method in @methods and clusterer == 'kmeans' and dataset in @corpora")
    runs = runs.groupby("seed").filter(lambda of_seed: {*of_seed["method"]} == {*methods})
    return {
        method: report.show_number(report.over_corpora(of_method, corpora), "nmi_geometric")
        for method, of_method in runs.groupby("method")
    }


def _means_of_labels(dataset, labels):
    """Return the mean accuracy of every recorded use of so many labels, by its name."""
    runs = findings.uses_of_labels(dataset)
    return runs[runs["labels"] == labels].groupby("method")["value"].mean().to_dict()


def _smallest(judged):
    """Return a sentence on the differences that our runs of the text classifiers can show."""
    halves = sorted(
        (contrast["high"] - contrast["low"]) / 2
        for contrasts in judged.query("chapter == '07_text_classification'")["contrasts"]
        for contrast in contrasts
        if contrast["metric"] == "acc"
        and contrast["direction"] != "unfair"
        and contrast["test"].startswith("> 0")
        and contrast["units"] >= 5
    )
    if not halves:
        return ""
    return (
        f"With 7,600 test documents and our seeds, the half-widths for text classifiers range from"
        f" {halves[0]:.3f} to {halves[-1]:.3f}. A true difference as large as the half-width would"
        " be detected in about half of all repetitions."
    )


# ---------------------------------------------------------------- equations


def equations_made(
    folder: Path, chapters: list[Path], records: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """Index the equations of each paper: the chapter, the function and the test of each."""
    text = {path.stem: path.read_text() for path in chapters}
    with (ROOT / "book" / "equations.csv").open(newline="") as file:
        listed = list(csv.DictReader(file))
    derived = {(stem, number) for stem, page in text.items() for number in re.findall(TAG, page)}
    unmatched = derived ^ {(row["chapter"], row["label"].split("-")[1]) for row in listed}
    if unmatched:
        chapter, number = min(unmatched)
        problem = f"Eq. {number} of {chapter} is in the chapter or in book/equations.csv"
        raise SnnlError(f"{problem}, and not in the other: add it there")
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
            "function or class, and its test": f"{function}\n\n{_test(row)}",
        }
        tables[row["label"].split("-")[0]].append(cells)
    return {
        f"equations-{part}": pd.DataFrame(rows).assign(records=BUILT)
        for part, rows in tables.items()
    }


def _test(row):
    """Return the name of an equation's test.

    Raises SnnlError unless the test and the function exist and the function's docstring names the
    equation.
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
        problem = f"{row['function']} does not exist, or its docstring does not name Eq. {number}"
        raise SnnlError(f"book/equations.csv: {problem}")
    file, test = row["test"].split("::")
    if not (ROOT / file).exists() or f"def {test}(" not in (ROOT / file).read_text():
        raise SnnlError(f"book/equations.csv: there is no test {row['test']}")
    return f"`{test}` in `{file}`"


# ---------------------------------------------------------------- runs


def runs_made(folder: Path, chapters: list[Path], records: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Write a page and a file of records for each experiment, and return a table of experiments."""
    rows = []
    for name, of_experiment, runs in _by_experiment(records):
        row = {
            "page": f"runs/{name}",
            "what it is": experiments.EXPERIMENTS[name].title,
            "recorded": f"{len(runs):,}",
            "not ok": (runs["status"] != "ok").sum(),
            "stale": report.stale(runs).sum(),
            "hours of computing": _hours(of_experiment),
            "records": BUILT,
        }
        rows.append(row)
        file = of_experiment.drop(columns="rows").to_csv(index=False)
        results.write_atomically(folder / "runs" / "tables" / f"{name}.csv", file)
        page = page_of(name, of_experiment)
        results.write_atomically(folder / "runs" / f"{name}.md", page)
    return {"runs": pd.DataFrame(rows)}


def _by_experiment(records):
    """Yield for each experiment its name, its records, and the first record of each run."""
    for name in experiments.EXPERIMENTS:
        of_experiment = records[records["experiment"] == name]
        yield name, of_experiment, of_experiment.drop_duplicates("key")


def _hours(records):
    """Return the hours of computing of records, as the tables print them."""
    hours = report.computing_seconds(records) / 3600
    return f"{hours:,.1f}" if hours >= 0.05 else "under 0.1"


# ---------------------------------------------------------------- status and cost


def running_made(
    folder: Path, chapters: list[Path], records: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """Return the tables of the page on running the book: what is recorded, and what it costs.

    They are about the chapters executed by this build, the runs of the full profile that are
    recorded, stale, missing or unavailable on this machine, and the cost of steps of training and
    of the recorded runs.
    """
    executed, machines = _executed(folder, chapters)
    runs, reasons = _status_of_runs(records)
    unmet = reasons.most_common() or [("nothing is unavailable", 0)]
    tables = {
        "status-chapters": pd.DataFrame(executed),
        "status-runs": pd.DataFrame(runs),
        "status-where": pd.DataFrame(machines)
        .value_counts(sort=False)
        .rename("chapters")
        .reset_index(),
        "status-reasons": pd.DataFrame(unmet, columns=["reason", "runs "]),
    }
    tables = {name: table.assign(records=BUILT) for name, table in tables.items()}
    return tables | {
        "status-orphans": _table_of_orphans(report.orphans()),
        "performance-steps": pd.DataFrame(_cost_of_steps()),
        "performance-devices": pd.DataFrame(_on_two_devices()),
        "performance-runs": pd.DataFrame(_cost_of_runs(records)),
    }


def _executed(folder, chapters):
    """Return rows on the execution of each chapter, and rows on the machine that executed it."""
    executed = []
    machines = []
    for path in chapters:
        note = nbformat.read(folder / path.name, 4).metadata["snnl"]  # of build.execute
        executed.append(
            {
                "page": path.stem,
                "profile": note["profile"],
                "data": note["dataset"],
                "seeds": note["seeds"] or "default",
                "minutes": f"{note['seconds'] / 60:.1f}",
                "peak memory": f"{note['memory_mb']:,} MB",
                "when (UTC)": note["created"][:16].replace("T", " "),
            }
        )
        machines.append({name: note[name] for name in ("device", "versions", "commit")})
    return executed, machines


def _status_of_runs(records):
    """Return a row for each experiment, and count the reasons why runs are unavailable here."""
    rows = []
    reasons = Counter()
    for name, _, runs in _by_experiment(records):
        todo = [run for run in experiments.status(name) if run.verdict != "done"]
        unmet = [run.unmet for run in todo if run.unmet]
        reasons.update(unmet)
        rows.append(
            {
                "page": f"runs/{name}",
                "recorded": f"{len(runs):,}",
                "not ok": (runs["status"] != "ok").sum(),
                "revision": experiments.EXPERIMENTS[name].revision,
                "stale": report.stale(runs).sum(),
                "missing": sum(not run.unmet and run.verdict != "stale" for run in todo),
                "unavailable": len(unmet),
            }
        )
    return rows, reasons


def _table_of_orphans(orphans):
    """List the records that belong to no run of the plan; without any, a row says so."""
    if orphans.empty:
        rows = [{"record": "every record belongs to a planned run", "records": BUILT}]
    else:
        names = [f"{run.experiment}/{run.key}" for run in orphans.itertuples()]
        rows = [{"record": f"`{name}`", "records": name} for name in names]
    return pd.DataFrame(rows)


def _cost_of_steps():
    steps = [
        {
            "step": row.step,
            "share of products": f"{row.share:.2f}",
            "milliseconds": f"{row.seconds * 1e3:,.0f}",
            "middle half": f"{row.low * 1e3:,.0f} to {row.high * 1e3:,.0f}",
            "rival": row.rival,
            "rival's milliseconds": "–"
            if pd.isna(row.ratio)
            else f"{row.rival_seconds * 1e3:,.0f}",
            "ratio": "–" if pd.isna(row.ratio) else f"{row.ratio:.2f}",
            "device": row.device,
            "records": report.benchmark_files("step"),
        }
        for row in report.benchmark("step").itertuples()
    ]
    return steps or [{"step": "not measured", "records": BUILT}]


def _on_two_devices():
    """Return a row for each setting that was run on a GPU, with its CPU runs of the same seeds."""
    return [
        {
            "page": f"runs/{row.experiment}",
            "row": f"{row.label}, {row.dataset}",
            "model": row.model,
            "documents": "all" if row.asked >= ALL_SHORT_TEXTS else f"{row.asked:,}",
            "seeds": row.seeds,
            "GPU": report.show_number(row.accelerator, "acc"),
            "CPU": report.show_number(row.cpu, "acc"),
            "difference": "–" if pd.isna(row.difference) else f"{row.difference:+.3f}",
            "95 % interval": report.show_interval(row.low, row.high, "acc"),
            "seconds on the GPU": f"{row.accelerator_seconds:,.0f}",
            "on the CPU": "–" if pd.isna(row.cpu_seconds) else f"{row.cpu_seconds:,.0f}",
            "records": row.records,
        }
        for row in beside_the_cpu().itertuples()
    ] or [{"row": "no run on a GPU is recorded", "records": BUILT}]


def _cost_of_runs(records):
    records = records.assign(shared=report.includes_shared_training(records))
    rows = []
    for name, of_experiment, runs in _by_experiment(records):
        shared = runs["shared"].sum()
        rows.append(
            {
                "page": f"runs/{name}",
                "recorded": f"{len(runs):,}",
                "median seconds": f"{runs['seconds'].median():,.0f}",
                "longest": f"{runs['seconds'].max():,.0f}",
                "hours in all": _hours(of_experiment),
                "runs whose seconds include shared training": f"{shared}" if shared else "–",
                "devices": "; ".join(runs["device"].unique()),
                "records": BUILT,
            }
        )
    return rows


MADE = {
    "claims": claims_made,
    "equations": equations_made,
    "runs": runs_made,
    "running": running_made,
}
"""The functions that make the tables of each page, by the page's name."""
