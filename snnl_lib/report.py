"""Records beside the papers: tables, intervals, verdicts and figures. Nothing here trains."""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from snnl_lib import results
from snnl_lib.experiments import EXPERIMENTS

LOWER_IS_BETTER = {"dbi", "snn"}
POINTS = {"acc", "f1_micro", "f1_macro", "nmi", "ari", "sil"}  # fractions, for which "within 1.5 points" means something
MATCH = 0.015
LABELS = {("ffn", 0): "Baseline", ("ffn", 100): "SNNL 100", ("ffn", -100): "SNNL -100"}
LABELS |= {("pca", 0): "Orig.", ("ae", 0): "AE", ("lc-d", 100): "LC(D)", ("ae-d", 100): "AE(D)"}
PALETTE = dict(zip(LABELS.values(), ["#0072B2", "#E69F00", "#CC79A7", "#0072B2", "#009E73", "#E69F00", "#CC79A7"], strict=True))
MARKERS = dict(zip(LABELS.values(), "osDosD^", strict=True))
"""Colours from the Okabe-Ito palette, safe for colour-blind readers, always with a marker shape of their own."""


# ---------------------------------------------------------------- the papers' numbers, ours, and verdicts


def paper_table(number: int) -> pd.DataFrame:
    """Read one of the text paper's Tables 1-4: columns label, model, alpha, embedding, metric, statistic (mean or best), value, printed, source."""
    return pd.read_csv(Path(__file__).parent / "paper" / f"table{number}.csv", dtype={"printed": str})


def recorded(experiment: str, dataset: str, embedding: str = "spacy", profile: str = "full", seeds=None) -> pd.DataFrame:
    """Load an experiment's records on one corpus and embedding, with each row's label, of the largest number of documents that has all seeds.

    Adds ``label`` (the paper's name of the row) and ``stale`` (made by an older revision of the experiment).
    """
    records = results.load_results(experiment, profile)
    records = records[(records["dataset"] == dataset) & (records["embedding"] == embedding)]
    if seeds is not None:
        records = records[records["seed"].isin(seeds)]
    if records.empty:
        return records.assign(label=[], stale=[])
    asked = records["settings"].str.extract(r'"n_train": (\d+)')[0].astype(int)
    by_size = records.groupby(asked)["seed"].nunique()
    records = records[asked == max(by_size.index[by_size == by_size.max()])]
    labels = [LABELS.get((model, alpha), f"{model} {alpha:g}") for model, alpha in zip(records["model"], records["alpha"], strict=True)]
    return records.assign(label=labels, stale=records["revision"] < EXPERIMENTS[experiment].revision)


def interval(values) -> tuple[float, float]:
    """Return the 95 % t-interval of the mean of some numbers; (nan, nan) for fewer than two."""
    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        return np.nan, np.nan
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return values.mean() - half, values.mean() + half


def matches(paper_mean: float, values, metric: str) -> bool:
    """Tell if the paper's mean lies in our 95 % interval, or within 1.5 points of our mean (DESIGN: written before the runs)."""
    low, high = interval(values)
    return bool(low <= paper_mean <= high or (metric in POINTS and abs(paper_mean - np.mean(values)) <= MATCH))


def paired(records: pd.DataFrame, metric: str, winner: str, loser: str) -> dict:
    """Judge "winner beats loser on metric" from differences paired by seed.

    Returns the claim, the mean difference in the claimed direction, its 95 % interval, the number of seeds and the verdict: ``reproduced`` if
    the interval lies wholly on the claimed side, else ``not reproduced``; ``not attempted`` with fewer than two seeds.
    """
    values = records[records["metric"] == metric].pivot_table(index="seed", columns="label", values="value")
    pair = values.reindex(columns=[winner, loser]).dropna()
    difference = (pair[winner] - pair[loser]).to_numpy() * (-1 if metric in LOWER_IS_BETTER else 1)
    low, high = interval(difference)
    verdict = "not attempted" if len(difference) < 2 else "reproduced" if low > 0 else "not reproduced"
    mean = difference.mean() if len(difference) else np.nan
    return {"winner": winner, "loser": loser, "metric": metric, "difference": mean, "low": low, "high": high, "seeds": len(difference), "verdict": verdict}


def together(verdicts) -> str:
    """Combine the verdicts of a claim's cells: all, some (``partly``) or none reproduced."""
    verdicts = set(verdicts)
    return verdicts.pop() if len(verdicts) == 1 else "partly"


# ---------------------------------------------------------------- tables


def show_number(value: float, metric: str) -> str:
    """Format a score as the papers do: points for fractions, two decimals for the indices."""
    if not np.isfinite(value):
        return "–"
    return f"{value:.3f}" if metric in POINTS or metric == "snn" else f"{value:,.0f}" if metric == "chs" else f"{value:.2f}"


def beside_paper(number: int, records: pd.DataFrame, embedding: str = "spacy") -> pd.DataFrame:
    """Set our records beside one of the paper's tables: one row a model and metric, ready to print."""
    rows = []
    paper = paper_table(number)
    paper["printed"] = [text if not text.endswith("%") else f"{value:.4f}" for text, value in zip(paper["printed"], paper["value"], strict=True)]
    for (label, metric), cells in paper[paper["embedding"] == embedding].groupby(["label", "metric"], sort=False):
        cell = cells.set_index("statistic")
        ours = records[(records["label"] == label) & (records["metric"] == metric)]
        row = {"model": label, "metric": metric, "paper mean": cell.loc["mean", "printed"], "paper best": cell.loc["best", "printed"]}
        finite = ours["value"].dropna()
        odd = ours.loc[ours["status"] != "ok", "status"].value_counts()
        row["runs"] = f"{len(ours)}" + "".join(f", {count} {name}" for name, count in odd.items()) + (", stale" if len(ours) and ours["stale"].any() else "")
        if finite.empty:
            rows.append(row | {"our verdict": "not attempted" if ours.empty else "no run ended with a number"})
            continue
        low, high = interval(finite)
        theirs, mean = cell.loc["mean", "value"], finite.mean()
        row |= {
            "our mean": show_number(mean, metric),
            "95 % interval": f"{show_number(low, metric)} to {show_number(high, metric)}",
            "sd": show_number(finite.std(), metric),
            "our best": show_number(finite.min() if metric in LOWER_IS_BETTER else finite.max(), metric),
            "difference": ("+" if mean >= theirs else "") + show_number(mean - theirs, metric),
            "our verdict": "matches" if matches(theirs, finite, metric) else "differs",
        }
        rows.append(row)
    columns = ["model", "metric", "paper mean", "paper best", "our mean", "95 % interval", "sd", "our best", "difference", "runs", "our verdict"]
    return pd.DataFrame(rows).reindex(columns=columns).fillna("–")


def claim_table(records: pd.DataFrame, claims: list[tuple[str, str, str, str]]) -> pd.DataFrame:
    """Judge claims (sentence, metric, winner, loser) one row each, ready to print; rows that share a sentence also get its verdict as a whole."""
    rows = []
    for sentence, metric, winner, loser in claims:
        result = paired(records, metric, winner, loser)
        spread = f"{show_number(result['low'], metric)} to {show_number(result['high'], metric)}"
        row = {"the paper says": sentence, "tested as": f"{winner} against {loser}, {metric}", "gain": show_number(result["difference"], metric)}
        rows.append(row | {"95 % interval": spread, "seeds": result["seeds"], "verdict": result["verdict"]})
    table = pd.DataFrame(rows)
    return table.assign(**{"the sentence": table.groupby("the paper says")["verdict"].transform(together)})


def means(records: pd.DataFrame, metrics: list[str]) -> pd.DataFrame:
    """Summarise runs of any profile: one row a model, the mean of each metric over the seeds, ready to print."""
    if records.empty:
        return pd.DataFrame({"model": []})
    table = records[records["metric"].isin(metrics)].pivot_table(index="label", columns="metric", values="value", sort=False)
    table = table.reindex(columns=metrics).apply(lambda column: column.map(lambda value: show_number(value, column.name)))
    statuses = records.drop_duplicates("key").groupby("label", sort=False)["status"]
    runs = statuses.agg(lambda found: ", ".join(f"{count} {name}" for name, count in found.value_counts().items()))
    return table.assign(runs=runs).rename_axis("model").rename_axis(None, axis=1).reset_index()


def provenance(records: pd.DataFrame) -> str:
    """Say in one sentence where a table's numbers come from."""
    if records.empty:
        return "No runs are recorded."
    runs = records.drop_duplicates("key")

    def spell(column, form="{}"):
        return " and ".join(form.format(value) for value in sorted(runs[column].unique()))

    seeds = ", ".join(str(seed) for seed in dict.fromkeys(runs["seed"]))
    minutes = runs["seconds"].sum() / 60
    return (
        f"{len(runs)} runs of the {spell('profile')} profile on {spell('dataset')}: {spell('n_train', '{:,}')} training and {spell('n_test', '{:,}')} test "
        f"documents, seeds {seeds}; {spell('device')}; {spell('versions')}; commit {spell('commit')}; data {spell('fingerprint')}; "
        f"{runs['created'].min()[:10]} to {runs['created'].max()[:10]}; {minutes:,.1f} minutes of computing."
    )


def write_table(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Write a table to ``tables/<name>.csv`` beside the chapter, from which the page shows it and offers it; returns the table."""
    results.write_atomically(Path("tables") / f"{name}.csv", table.to_csv(index=False))
    return table


def glue(name: str, text: str) -> None:
    """Put a text under a name into the chapter, so that prose can quote it and no number is typed in."""
    import myst_nb

    myst_nb.glue(name, str(text), display=False)


# ---------------------------------------------------------------- figures


def style() -> None:
    """Set the look shared by all figures of the book."""
    import matplotlib as mpl
    import seaborn as sns

    sns.set_theme(context="notebook", style="whitegrid", palette="colorblind", rc={"figure.dpi": 110, "savefig.bbox": "tight", "axes.titlelocation": "left"})
    mpl.rcParams["figure.constrained_layout.use"] = True


def seed_figure(records: pd.DataFrame, paper: pd.DataFrame, metrics: list[str], title: str):
    """Draw every run as a point with the 95 % interval of the mean, and the paper's mean as a black bar; one panel a metric."""
    import matplotlib.pyplot as plt

    labels = list(dict.fromkeys(paper["label"]))
    figure, axes = plt.subplots(1, len(metrics), figsize=(3.4 * len(metrics), 3.4), squeeze=False)
    for axis, metric in zip(axes[0], metrics, strict=True):
        for x, label in enumerate(labels):
            values = records[(records["label"] == label) & (records["metric"] == metric)]["value"].dropna()
            axis.scatter(x + np.linspace(-0.16, 0.16, len(values)), values, color=PALETTE[label], marker=MARKERS[label], s=34, alpha=0.8)
            low, high = interval(values)
            axis.vlines(x + 0.3, low, high, color=PALETTE[label], linewidth=2.5)
            mean = paper[(paper["label"] == label) & (paper["metric"] == metric) & (paper["statistic"] == "mean")]["value"]
            axis.hlines(mean, x - 0.38, x + 0.38, color="black", linewidth=1.6)
        axis.set_xticks(range(len(labels)), labels)
        axis.set_xlim(-0.6, len(labels) - 0.4)
        axis.set_ylabel(metric + (" (lower is better)" if metric in LOWER_IS_BETTER else ""))
        if metric == "chs":
            axis.set_yscale("log")
    signs = [
        plt.Line2D([], [], color="grey", marker="o", linestyle="", label="one of our runs"),
        plt.Line2D([], [], color="grey", marker="|", linestyle="", markersize=12, markeredgewidth=2.5, label="95 % interval of our mean"),
        plt.Line2D([], [], color="black", linewidth=1.6, label="the paper's mean"),
    ]
    figure.legend(handles=signs, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def curve_figure(curves: pd.DataFrame, column: str, ylabel: str, title: str):
    """Draw a quantity over the epochs: one line a run, colour and line style by model."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    curves = curves.assign(label=[LABELS.get((model, alpha), model) for model, alpha in zip(curves["model"], curves["alpha"], strict=True)])
    figure, axis = plt.subplots(figsize=(7.5, 3.6))
    sns.lineplot(curves, x="epoch", y=column, hue="label", style="label", units="seed", estimator=None, palette=PALETTE, ax=axis)
    axis.set(xlabel="epoch", ylabel=ylabel)
    sns.move_legend(axis, "center left", bbox_to_anchor=(1, 0.5), frameon=False, title=None)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure
