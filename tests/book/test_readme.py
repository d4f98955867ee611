"""The README and the page "Running it": their examples run, their commands and links exist, and
their numbers follow from the records.
"""

import json
import re
import shlex
from pathlib import Path

import pages
import pandas as pd
import picture
import pytest
from scipy import stats

from snnl_book import experiments, report
from snnl_book.__main__ import _parser, main
from snnl_book.experiments import PAPER_SEEDS
from snnl_book.paper import registered_claims
from snnl_book.report import claims, findings

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
RUNNING = (ROOT / "book" / "running.md").read_text()
PAGES = {"README.md": README, "book/running.md": RUNNING}
BOTH = "\n".join(PAGES.values())
MAKEFILE = (ROOT / "Makefile").read_text()
both = pytest.mark.parametrize("name", PAGES)


def said(text):
    """A text without its line breaks."""
    return " ".join(text.split())


def fenced(text):
    """The lines of a page's blocks of commands, continued ones joined."""
    fences = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    blocks = (block for kind, block in fences if kind in ("", "bash"))
    return "".join(blocks).replace("\\\n", "").splitlines()


def commands(text):
    """What follows ``python -m snnl_book`` in a page's blocks, as a list of arguments."""
    found = (line.partition("python -m snnl_book ")[2] for line in fenced(text))
    return [shlex.split(line, comments=True) for line in found if line]


def tabled(text):
    """The commands in a page's tables of numbers, row -> arguments after ``run``."""
    begins = re.findall(r"begins\s+with\s+`([^`]+)`:", text)
    (begin,) = begins or [""]
    rows = re.findall(r"^\| \*([^*]+)\*.*?\| `([^`]+)` \|", text, re.MULTILINE)
    return {
        row: shlex.split(f"{begin} {command}" if command.startswith("--") else command)
        for row, command in rows
    }


@pytest.fixture(scope="module")
def judged():
    return claims.judge()


# ---------------------------------------------------------------- form


def test_the_readmes_links_lead_to_files_and_headings():
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) > 8
    for link in links:
        path, _, heading = link.partition("#")
        assert (ROOT / path).is_file(), link
        page = (ROOT / path).read_text() if heading else ""
        titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
        anchors = {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}
        assert heading in {*anchors, ""}, link
    for title, path in re.findall(r"\[([^\]]+)\]\((book/\w+\.md)\)", README):
        assert (ROOT / path).read_text().startswith(f"# {title.partition(':')[0]}"), path


# ---------------------------------------------------------------- examples and commands


def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts, loss = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(loss.strip().splitlines()) <= 7
    scope = {}
    exec(loss, scope)
    assert scope["features"].grad.abs().sum() > 0
    exec(texts, scope)
    assert len(scope["model"].labels_) == len(scope["texts"])
    assert (tmp_path / "my-clusters").is_dir()


def test_the_command_that_clusters_texts_runs_as_it_stands(tmp_path, monkeypatch, packages):
    (command,) = re.findall(r"^python -m snnl_book (cluster .*)$", README, re.MULTILINE)
    rows = [f"{subject} {n}" for subject in ("wine", "list", "rain") for n in range(10)]
    (tmp_path / "texts.csv").write_text("title\n" + "\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 0
    assert "cluster" in (tmp_path / "clusters.csv").read_text().splitlines()[0]


@both
def test_the_make_commands_exist(name):
    targets = re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE)
    named = re.findall(r"(?:^|`)make ([a-z-]+)", PAGES[name], re.MULTILINE)
    assert named and set(named) <= set(targets)


@both
def test_the_command_line_takes_each_command(name):
    given = commands(PAGES[name]) + [["run", *each] for each in tabled(PAGES[name]).values()]
    assert len(given) >= 3
    for arguments in given:
        _parser().parse_args(arguments)  # ends the test where it refuses
    named = {word for word in re.findall(r"`python -m snnl_book (\w+)", PAGES[name])}
    known = re.search(r"\{([\w,]+)\}", _parser().format_help())[1].split(",")
    assert named and named <= set(known)


def test_a_claim_that_is_asked_for_exists():
    asked = [each[1:] for each in commands(BOTH) if each[0] == "claims" and each[1:]]
    assert asked and {name for (name,) in asked} <= {claim.name for claim in registered_claims()}


def test_the_settings_of_snakemake_are_the_snakefiles():
    snakefile = (ROOT / "Snakefile").read_text()
    known = re.findall(r'"(\w+)":', re.search(r"^DEFAULTS = \{(.*?)\}", snakefile, re.M | re.S)[1])
    told = re.search(r"`--config` takes ([^;]+);", said(RUNNING))[1]
    assert re.findall(r"`(\w+)`", told) == known
    lines = [line.partition("#")[0] for line in fenced(RUNNING) if "bin/snakemake" in line]
    used = {name for line in lines for name in re.findall(r" (\w+)=", line)}
    assert used and used <= set(known)
    rules = re.findall(r"^rule (\w+):", snakefile, re.MULTILINE)
    assert set(re.findall(r"snakemake (\w+)", "\n".join(lines))) <= set(rules)
    profiles = {path.name for path in (ROOT / "profiles").iterdir()} - {"default"}
    assert set(re.findall(r"--profile profiles/(\w+)", RUNNING)) == profiles


# ---------------------------------------------------------------- numbers


def test_the_answer_is_that_of_the_records_and_of_the_first_page(judged):
    numbers = pages._values(judged).set_index("name")["text"]
    page = (ROOT / "book" / "index.md").read_text()
    page = re.sub(r"\{value\}`([\w-]+)`", lambda name: numbers[name[1]], page)
    answer = said(README.partition("**What came out.**")[2].partition("![Points of")[0])
    assert answer in said(re.sub(r"^:.*$", "", page, flags=re.MULTILINE))  # without directives
    answers = re.split(r" (?=\d\. \*\*)", answer)[1:]
    assert len(answers) == 5
    assert all(len(re.findall(r"\d\.\d+", each)) <= 2 for each in answers)
    nmi = [numbers[name] for name in ("nmi-words", "nmi-minilm", "nmi-clusterbert")]
    words, vectors, trained = map(float, nmi)
    assert trained > vectors > words  # "good vectors help, and so can ClusterBERT's training"
    own = judged.set_index("name")
    precise = own.loc["disentangling-classifies-better", "contrasts"][0]
    assert precise["direction"] == "open" and not precise["provisional"]
    early, paper = pages._early_loss(), float(precise["the paper"])
    assert early["low"] > 0 and abs(early["mean"] - paper) < 0.002  # "about the paper's gain"
    cells = own.loc["disentangling-classifies-better", "contrasts"]
    assert precise["units"] == max(cell["units"] for cell in cells)
    assert "holds" not in {cell["direction"] for cell in cells}
    means = pages._means_of_labels("ag_news", 20_000)
    assert max(means, key=means.get).startswith("support vector machine")
    for dataset, most in (("ag_news", 20_000), ("mnist", 10_000), ("fashion_mnist", 10_000)):
        for labels in (most, 300):  # "more accurate, on images and on texts", "with only 300"
            uses = pd.Series(pages._means_of_labels(dataset, labels))
            with_loss = uses[uses.index.str.startswith(("AE(D)", "LC(D)"))]
            assert uses["support vector machine"] > with_loss.max()
            if labels == most:  # "with a plain classifier in its place, ... better on images"
                over = uses["AE with a classifier on its code"] - uses["AE(D)"]
                assert over > 0.01 if dataset != "ag_news" else 0 < over < 0.015
    unscaled = ", squared error, inputs not scaled"  # "and about as well on news"
    raw = [means[name + unscaled] for name in ("AE with a classifier on its code", "AE(D)")]
    assert abs(raw[0] - raw[1]) < 0.005
    newsgroups, lost, lower_rate = pages._on_newsgroups()  # "better ... on posts", "does harm"
    assert newsgroups["AE with a classifier on its code"] > newsgroups["AE(D)"] + 0.02
    assert lost["high"] < -0.02 and lower_rate["low"] > 0
    for dataset in ("ag_news", "newsgroups20", "mnist", "fashion_mnist"):  # "harder"
        unseen = pages._unseen_classes(dataset)
        pairs = [(label, "AE") for label in ("AE(D)", "AE with a classifier on its code")]
        harm = report.differences(unseen, pairs)
        assert (harm["high"] < 0).all() and (harm["mean"] < -0.08).all()
    svm, with_loss = (float(numbers[f"minilm-{name}"]) for name in ("svm", "ae-d"))
    assert svm > with_loss > max(means.values())  # "Start from good sentence vectors"
    behind = pages._encoder_behind()  # "slightly less accurately than those on unscaled ones"
    assert behind["high"] < 0 and behind["mean"] > -0.01
    training = pages._gains_of_training()
    pooled, as_it_is = (float(training[name][0]) for name in ("mean pooling", "ClusterBERT"))
    assert 0 < pooled < as_it_is / 2  # "but much less if ClusterBERT averages"
    assert float(numbers["nmi-training-gain"]) == as_it_is
    assert numbers["own-questions"] == "4"
    assert "Four of the claims are our own" in (ROOT / "book" / "claims.md").read_text()


def test_the_text_classifier_gains_by_smaller_steps_rather_than_by_the_loss():
    readings = report.recorded("classification-readings", "ag_news", "spacy", model="ffn")
    early = "label == '20,000 documents, loss in the first half only' and metric == 'acc'"
    means = pages._means_of_labels("ag_news", 20_000)
    assert max(means.values()) > readings.query(early)["value"].mean()
    on_new = readings[readings["seed"].isin(experiments.cells.CONFIRMING_SEEDS)]
    rate = pages._cut_rate()  # "but without the loss, a smaller learning rate ..."
    assert rate["low"] > 0 and rate["mean"] > pages._early_loss()["mean"]
    on_top = pages._on_top_of_cut("the first half only")  # "the loss adds nothing"
    assert on_top["low"] < 0 < on_top["high"] and on_top["mean"] < 0
    assert pages._on_top_of_cut("both halves")["high"] < 0
    halfway = "20,000 documents, loss in the first half only"
    pairs = [("best epoch on a held-out tenth, alpha 0", halfway)]
    behind = report.differences(on_new, pairs).iloc[0]
    assert behind["low"] < 0 < behind["high"] and abs(behind["mean"]) < 0.0015  # "about as well"
    restarted = f"{halfway}, Adam restarted at halftime"  # "the gain is gone if Adam restarts"
    (again,) = report.differences(on_new, [(restarted, halfway)]).to_dict("records")
    (gain,) = report.differences(on_new, [(restarted, "20,000 documents, alpha 0")]).to_dict(
        "records"
    )
    assert again["high"] < 0 and abs(gain["mean"]) < 0.0015


def test_the_falling_temperature_gains_less_than_the_longer_step_on_points():
    rows = findings.annealing_effects().set_index(["setting", "label"])["mean"]
    points = rows[f"points, epoch {findings.EPOCH}"]
    alone, lower = points["growing strength alone"], points["a falling temperature alone"]
    assert alone > 2 * max(lower, 0)
    for dataset in ("mnist", "fashion_mnist"):  # "a low fixed one does about as well"
        runs = findings.uses_of_labels(dataset).query("labels == 10000")
        means = runs.groupby("method")["value"].mean()
        assert means["AE(D), fixed temperature 0.15"] > means["AE(D)"] - 0.005
        pairs = [("AE(D), 5 epochs", "AE(D), 5 epochs, fixed temperature 0.15")]
        runs = report.recorded("images", dataset, "pixels")
        assert report.differences(runs, pairs).iloc[0]["high"] < 0  # "after fewer epochs"
    texts = [report.recorded(name, "ag_news") for name in ("clustering", "clustering-readings")]
    texts = pd.concat(texts).query("metric == 'acc'").pivot_table("value", "seed", "label")
    lead = (texts["AE(D)"] - texts["AE(D), fixed temperature 0.15"]).dropna()
    half = stats.t.ppf(0.975, len(lead) - 1) * lead.sem()
    assert len(lead) == 5 and abs(lead.mean()) < half  # "on AG News the difference is not clear"


def test_the_pictures_show_what_the_records_say(judged):
    drawn = picture.VERDICTS.read_text()
    assert drawn == picture.verdicts_svg(judged), "run make picture"
    counted = json.loads(re.search(r"<desc>(.*?)</desc>", drawn)[1])
    total = sum(sum(row.values()) for row in counted.values())
    assert total == len(judged) == len(registered_claims())
    assert not judged["provisional"].any()  # or README, index.md and claims.md must name them
    assert f"*Of {total} claims" in said(README)
    untested, hold = (
        sum(row[kind] for row in counted.values()) for kind in ("not tested", "holds")
    )
    assert f"only {hold} hold outright, and {untested} were not tested." in said(README)


def test_the_moving_points_end_with_neighbours_of_their_class():
    positions, classes = picture.descent()
    shares = [picture.same_class_neighbours(x, classes) for x in (positions[0], positions[-1])]
    assert shares[0] < 0.4 and shares[1] > 0.95
    drawn = picture.MOTION.read_text()
    assert f"Before the loss {shares[0]:.0%}" in drawn and f"after it {shares[1]:.0%}" in drawn
    assert drawn.count('class="m"') == picture.POINTS
    assert "prefers-reduced-motion" in drawn and len(drawn) < 80_000


def row_of(label):
    (line,) = [line for line in RUNNING.splitlines() if line.startswith(f"| *{label}*")]
    *_, paper, ours, _ = (cell.strip() for cell in line.split("|"))
    return float(paper), ours


@pytest.mark.parametrize(
    ("label", "experiment"),
    [
        ("Orig.", "clustering"),
        ("AE(D)", "clustering"),
        ("Baseline", "classification"),
        ("SNNL 100", "classification"),
    ],
)
def test_the_numbers_are_the_records_means(label, experiment):
    records = report.recorded(
        experiment, "ag_news", model="ffn" if experiment == "classification" else None
    )
    ours = records[(records["label"] == label) & (records["metric"] == "acc")]["value"]
    seeds = {"clustering": 15, "classification": 5}
    assert len(ours) == seeds[experiment] and set(records["n_train"]) == {20000}
    paper = report.paper_table(1 if experiment == "classification" else 4)
    theirs = paper.query(
        "label == @label and metric == 'acc' and embedding == 'spacy' and statistic == 'mean'"
    )["value"].item()
    assert row_of(label) == (pytest.approx(theirs), f"{ours.mean():.3f}")


@pytest.mark.parametrize("method", ["TF-IDF", "TSDAE", "ClusterBERT"])
def test_the_numbers_of_short_texts_are_the_records_means_and_say_if_these_are_old(method):
    chosen = "dataset == 'stackoverflow' and clusterer == 'kmeans' and metric == 'nmi_geometric'"
    ours = report.short_texts().query(f"{chosen} and method == @method and asked == 2000")
    assert len(ours) in (2, 3)
    old = " (to be run again)" if ours["stale"].any() else ""
    theirs = (
        report.paper_short_texts()
        .query(f"{chosen} and label == @method + '+kmeans'")["value"]
        .item()
    )
    assert row_of(method) == (pytest.approx(theirs), f"{ours['value'].mean():.3f}{old}")


@pytest.mark.parametrize(
    ("label", "dataset"), [("MNIST", "mnist"), ("Fashion-MNIST", "fashion_mnist")]
)
def test_the_numbers_of_images_are_the_records_best_of_the_first_four_seeds(label, dataset):
    records = report.recorded("images", dataset, "pixels", seeds=PAPER_SEEDS[:4])
    ours = records[(records["label"] == "AE(D), alpha 1") & (records["metric"] == "acc")]["value"]
    assert len(ours) == 4 and set(records["n_train"]) == set(records["n_test"]) == {10000}
    theirs = (
        report.literature()
        .query("method == 'AE(D)' and metric == 'acc' and dataset == @dataset")["value"]
        .item()
    )
    assert row_of(label) == (pytest.approx(theirs), f"{ours.max():.3f}")
