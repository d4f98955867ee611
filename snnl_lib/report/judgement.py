"""Rule 2 for all claims: declarations and records become verdicts, grades and how firm they are."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from snnl_lib import data, results
from snnl_lib.experiments import EXPERIMENTS, PAPER_SEEDS, specs
from snnl_lib.experiments.cells import DRAWN
from snnl_lib.experiments.grades import GRADES, grade
from snnl_lib.paper import Claim, ClaimError, Contrast, declared, registered_claims
from snnl_lib.report import contrasts
from snnl_lib.report.select import record_cells, select
from snnl_lib.results import Spec

LOST = ("diverged", "failed")
MARGINS = (0.01, 0.02)  # those of VARIANTS
FALSE_DISCOVERIES = 0.05  # two-sided
FIVE, CORRECTED = "the paper's five seeds alone", "Benjamini-Hochberg"
VARIANTS = (FIVE, "a margin of 1 point", "a margin of 2 points", CORRECTED)
UNITS = {"seed": "seeds", "encoder": "encoders", "corpus": "corpora"}
_WITH = {"stand-in": ", with a stand-in", "reduced": ", with a reduced protocol"}


# ---------------------------------------------------------------- rows and their runs


@cache
def _plan(experiment, dataset):
    # Points that a run draws are no data set: their cells come with the name of any.
    name = data.available_datasets()[0] if dataset == DRAWN else dataset
    return [spec for spec in specs(experiment, "full", name, (0,)) if spec.dataset == dataset]


def named_cells(row: dict, dataset: str | None = None) -> list[Spec]:
    """Find the cell of the plan that a row of a declaration names, as specs of seed 0.

    There are several only if they differ in nothing but the number of documents. ``dataset`` stands
    in for the row's own. A row without ``reading`` means the main setting where there is one.
    Raises ClaimError if it names no cell or several.
    """
    experiment, dataset = row["experiment"], row.get("dataset", dataset)
    known = data.available_datasets()
    for what, name, names in (
        ("experiment", experiment, EXPERIMENTS),
        ("data set", dataset, [*known, DRAWN]),
    ):
        if name not in names:
            raise ClaimError(f"there is no {what} {name!r}: choose one of {', '.join(names)}")
    asked = {name: row[name] for name in row.keys() - {"experiment", "dataset", "metric"}}
    if asked.get("n_train") == declared.MOST:
        del asked["n_train"]

    def told(spec, name):
        return getattr(spec, name) if name in Spec.__dataclass_fields__ else spec.get(name)

    found = [
        spec
        for spec in _plan(experiment, dataset)
        if all(told(spec, name) == wanted for name, wanted in asked.items())
    ]
    if "reading" not in asked:
        found = [spec for spec in found if spec.get("reading") is None] or found
    rows = {(s.embedding, s.model, s.alpha, s.temperature, s.settings): s.label for s in found}
    if len(rows) != 1:
        which = ", ".join(dict.fromkeys(rows.values()))
        many = f"{len(rows)} cells ({which})" if rows else "no cell"
        raise ClaimError(f"the row {row} names {many} of the plan on {dataset}")
    return found


@dataclass(frozen=True)
class Run:
    """What a record says of one metric, and what its run rests on."""

    value: float
    status: str
    documents: float
    encoder: str
    record: str
    stale: bool


_RUN = ["experiment", "profile", "key", "embedding", "model", "alpha", "seed", "status"]
_RUN += ["n_train", "n_test", "fingerprint", "stale"]


class Book:
    """The records by cell, looked up once for all claims. ``records`` are as ``select`` returns."""

    def __init__(self, records: pd.DataFrame):
        self.cells: dict[tuple, dict[int, dict]] = {}  # cell -> seed -> what is recorded of the run
        columns = (records[name].tolist() for name in (*_RUN, "metric", "value"))
        for cell, *run, metric, value in zip(record_cells(records), *columns, strict=True):
            made = self.cells.setdefault(cell, {})
            made.setdefault(
                run[_RUN.index("seed")], dict(zip(_RUN, run, strict=True)) | {"scores": {}}
            )["scores"][metric] = value
        self.known: dict[tuple, tuple] = {}

    def runs(self, row: dict, dataset: str | None, metric: str) -> tuple[Spec, dict[int, Run]]:
        """Return the cell that a row names and its runs by seed, in the order of the seeds' list.

        Of several numbers of documents the largest with the most seeds.
        """
        asked = (*sorted((name, str(value)) for name, value in row.items()), dataset, metric)
        if asked not in self.known:
            cells = {spec: self.cells.get(_cell(spec), {}) for spec in named_cells(row, dataset)}
            if contrasts.base(metric) not in EXPERIMENTS[row["experiment"]].metrics:
                raise ClaimError(f"{row['experiment']} has no metric {metric!r}")
            spec = max(cells, key=lambda spec: (len(cells[spec]), spec.n_train))
            self.known[asked] = (spec, _runs(cells[spec], metric))
        return self.known[asked]


def _cell(spec):
    *fields, _seed, settings = spec.identity
    return (*fields, settings)


def _runs(made, metric):
    """Read a metric of a cell's records, whatever became of each run: seed -> Run."""
    name, _, epoch = metric.partition("@")
    scores = {seed: run["scores"].get(name, math.nan) for seed, run in made.items()}
    if epoch and made:
        curves = results.load_curves(pd.DataFrame(made.values()))
        curves = curves[curves["epoch"] == int(epoch)] if len(curves) else curves
        scores = dict(zip(curves["seed"], curves[name], strict=True)) if len(curves) else {}
    return {
        seed: Run(
            scores.get(seed, math.nan),
            run["status"],
            run["scores"].get("queries", run["n_test"] or run["n_train"]),
            "".join(re.findall(r"-(random\d+)", run["fingerprint"])),
            f"{run['experiment']}/{run['key']}",
            run["stale"],
        )
        for seed, run in made.items()
    }


# ---------------------------------------------------------------- one contrast


@dataclass(frozen=True)
class Setting:
    """What a judgement is made with: these seeds (None: all) and this margin."""

    seeds: frozenset | None = None
    points: float = contrasts.POINTS


@dataclass(frozen=True)
class Judged:
    """A contrast and what is found of it; ``corpora`` are the means of each, if they are units."""

    contrast: Contrast
    verdict: str
    found: contrasts.Estimate = contrasts.NOTHING
    seeds: tuple[int, ...] = ()  # how many, one entry a corpus
    corpora: dict[str, float] = field(default_factory=dict)
    specs: tuple[Spec, ...] = ()
    runs: tuple[Run, ...] = ()
    note: str = ""


class _Block:
    """The runs of a comparison on one corpus: values [rows, seeds] of the seeds common to all."""

    def __init__(self, book, contrast, cells, corpus, setting):
        metrics = [row.get("metric", contrast.metric) for _, row in cells]
        rows = zip(cells, metrics, strict=True)
        looked_up = [book.runs(row, corpus, metric) for (_, row), metric in rows]
        self.specs = [spec for spec, _ in looked_up]
        self.corpus, self.best, level = corpus, contrast.best, contrast.test == "= v"
        # Of a value the score itself is shown, of all else how much better one is.
        self.signs = [
            -1 if contrasts.base(metric) in contrasts.LOWER and not level else 1
            for metric in metrics
        ]
        self.weights = np.array([weight for weight, _ in cells])
        made = [
            {
                seed: run
                for seed, run in runs.items()
                if setting.seeds is None or seed in setting.seeds
            }
            for _, runs in looked_up
        ]
        self.unfair = [
            spec.label
            for spec, runs, weight in zip(self.specs, made, self.weights, strict=True)
            if 2 * sum(_is_void(run, weight) for run in runs.values()) > len(runs)
        ]
        self.seeds = [seed for seed in made[0] if all(seed in runs for runs in made)]
        self.runs = [[runs[seed] for seed in self.seeds] for runs in made]
        self._score()
        self.counted = all(contrasts.base(metric) in contrasts.DOCUMENTS for metric in metrics)

    def _score(self):
        """Fill in the values: a lost run of a winner is the worst there is, never a dropped pair; a
        pair whose rival is lost, or that was not measured, is no pair.
        """
        values = np.array([[run.value for run in runs] for runs in self.runs], dtype=float)
        lost = np.array([[run.status in LOST for run in runs] for runs in self.runs], dtype=bool)
        values, lost = (each.reshape(len(self.weights), -1) for each in (values, lost))
        values[lost] = math.nan
        most = np.nanmax(values, initial=0)
        for place, (sign, weight) in enumerate(zip(self.signs, self.weights, strict=True)):
            if weight > 0:
                values[place, lost[place]] = 0 if sign > 0 else 2 * most
        kept = ~np.isnan(values).any(axis=0)
        self.lost, self.values = lost[:, kept].any(), values[:, kept]
        self.seeds = [seed for seed, keep in zip(self.seeds, kept, strict=True) if keep]
        self.runs = [
            [run for run, keep in zip(runs, kept, strict=True) if keep] for runs in self.runs
        ]
        states = [[run.status == "collapsed" for run in runs] for runs in self.runs]
        self.collapsed = np.array(states, dtype=bool).reshape(values.shape[0], -1).any(axis=0)

    def differences(self, keep):
        """Return the weighted sum of the rows for each seed that is kept."""
        values = self.values[:, keep] * np.array(self.signs)[:, None]
        if self.best:
            values = np.array([contrasts.best_of(row, self.best) for row in values])
        return self.weights @ values

    def encoders(self, keep):
        """Return for each seed that is kept which random encoder it has."""
        drawn = ["".join(run.encoder for run in runs) for runs in zip(*self.runs, strict=True)]
        return np.array(drawn)[keep]

    def floor(self):
        documents = [np.mean([run.documents for run in runs]) for runs in self.runs]
        return contrasts.floor(self.weights, self.values.mean(axis=1), documents)


def _is_void(run, weight):
    """Tell if a run says nothing: it collapsed, or it is a rival's and lost."""
    return run.status == "collapsed" or (run.status in LOST and weight < 0)


def _units(blocks, unit, leave_out):
    """Return the value of each unit, without the collapsed runs if they are to be left out."""
    kept = [~block.collapsed if leave_out else np.ones_like(block.collapsed) for block in blocks]
    found = [block.differences(keep) for block, keep in zip(blocks, kept, strict=True)]
    if unit == "corpus":
        return [values.mean() for values in found if len(values)]
    (values,) = found
    encoders = blocks[0].encoders(kept[0])
    if unit == "seed" or len(values) < len(encoders):  # the best of as many as there are
        return values
    return [values[encoders == name].mean() for name in dict.fromkeys(encoders)]


def judge_contrast(contrast: Contrast, book: Book, setting: Setting) -> Judged:
    """Judge a contrast by its records. Raises ClaimError if a row names no cell, or several."""
    if contrast.not_attempted:
        return Judged(contrast, "not attempted", note=contrast.not_attempted)
    if contrast.test not in ("rank", "more than half"):
        return _compare(contrast, contrast.cells, book, setting)
    if contrast.test == "rank":
        (winner,) = (cell for cell in contrast.cells if cell[0] > 0)
        groups = [([winner, cell], None) for cell in contrast.cells if cell[0] < 0]
        groups += [([winner], number) for number in contrast.reported]
    else:
        groups = []
        for cell in contrast.cells:  # a winner opens the next comparison
            groups += [([], None)] if cell[0] > 0 else []
            groups[-1][0].append(cell)
    plain = replace(contrast, test="> 0")
    parts = [_compare(replace(plain, value=v), cells, book, setting) for cells, v in groups]
    fair = [part for part in parts if part.verdict in contrasts.SIGNS]
    if not fair:
        return replace(parts[0], contrast=contrast)
    verdicts = [part.verdict for part in fair]
    if contrast.test == "rank":
        verdict = contrasts.rank(verdicts, contrast.rank)
        note = f"against the strongest of {len(fair)} rivals"
    else:
        verdict = contrasts.more_than_half([part.verdict for part in parts])
        note = f"above 0 in {verdicts.count('reproduced')} of {len(parts)}"
    hardest = min(fair, key=lambda part: part.found.mean)
    made = {
        name: tuple(dict.fromkeys(sum((getattr(p, name) for p in fair), ())))
        for name in ("specs", "runs")
    }
    return replace(hardest, contrast=contrast, verdict=verdict, note=note, **made)


def _compare(contrast, cells, book, setting):
    """Judge one comparison of weighted cells."""
    every = [
        _Block(book, contrast, cells, corpus, setting) for corpus in contrast.corpora or (None,)
    ]
    specs_ = tuple(spec for block in every for spec in block.specs)
    blocks = [block for block in every if block.seeds and not block.unfair]
    if not blocks:
        if unfair := next((block.unfair for block in every if block.unfair), None):
            why = f"most runs of {unfair[0]} collapsed or broke off"
            return Judged(contrast, "no fair test", specs=specs_, note=why)
        return Judged(contrast, "not attempted", specs=specs_, note="no run is recorded")
    shown = contrast.test in ("= v", "at least v")  # the score, not its distance from the value
    sign = blocks[0].signs[0]
    value = sign * contrast.value if contrast.value is not None else 0.0
    floor = 0.0
    if all(block.counted for block in blocks):
        floor = math.hypot(*(block.floor() for block in blocks)) / len(blocks)
    rivals = [
        abs(row.mean())
        for block in blocks
        for row, weight in zip(block.values, block.weights, strict=True)
        if weight < 0
    ]
    scale = abs(value) if value else float(np.mean(rivals)) if rivals else math.nan
    facts = {"words": contrast.words, "scale": scale, "points": setting.points}
    facts |= {"fraction": contrasts.base(contrast.metric) in contrasts.FRACTIONS}
    facts |= {"value": value if shown else 0.0}

    def tested(leave_out):
        values = np.array(_units(blocks, contrast.unit, leave_out)) - (0 if shown else value)
        found = contrasts.estimate(values, floor)
        if any(block.lost for block in blocks):
            found = found._replace(flat=False)
        return found, contrasts.judge(found, contrast.test, **facts)

    found, verdict = tested(False)
    note = "the units hardly differ" if found.flat else ""
    if any(block.collapsed.any() for block in blocks):
        _, without = tested(True)
        if without != verdict:
            note = f"with collapsed runs {verdict}, without them {without}"
            verdict = "undecided"
    return Judged(
        contrast,
        verdict,
        found,
        tuple(len(block.seeds) for block in blocks),
        _means(blocks) if contrast.corpora else {},
        specs_,
        tuple(run for block in blocks for runs in block.runs for run in runs),
        note,
    )


def _means(blocks):
    return {b.corpus: float(b.differences(np.ones_like(b.collapsed)).mean()) for b in blocks}


# ---------------------------------------------------------------- all claims


def judge(
    records: pd.DataFrame | None = None,
    seeds: Sequence[int] | None = None,
    claims: Sequence[Claim] | None = None,
) -> pd.DataFrame:
    """Judge all claims by rule 2, one row a claim.

    Args:
        records: as ``select`` returns them (default: all of the experiments that claims name).
        seeds: take these alone (default: all that are recorded).
        claims: as ``registered_claims`` returns them (default: those of the papers).

    Returns the columns of ``COLUMNS``; ``contrasts`` holds a list of dicts, ``verdict`` the whole
    verdict with grade, staleness and fragility, ``kind`` its first words alone, and ``verdict_1``
    that of rule 1. Raises ClaimError if a declaration names no cell of the plan, or several.
    """
    claims = registered_claims() if claims is None else claims
    book = _book(claims, records)
    found = _verdicts(claims, book, seeds)
    made, kinds = found.pop("rule 2")
    frozen = rule_1()
    rows = []
    for place, (claim, judged) in enumerate(zip(claims, made, strict=True)):
        changes = {name: kind[place] for name, (_, kind) in found.items()}
        rows.append(_row(claim, judged, kinds[place], changes, frozen))
    return pd.DataFrame(rows, columns=COLUMNS)


def sensitivity(
    records: pd.DataFrame | None = None, claims: Sequence[Claim] | None = None
) -> pd.DataFrame:
    """Count the verdicts of rule 2, and of what would make one fragile: a row each.

    Columns: judged with, one for each first word of a verdict, and fragile, how many claims have
    another verdict than by rule 2.
    """
    claims = registered_claims() if claims is None else claims
    found = {name: kinds for name, (_, kinds) in _verdicts(claims, _book(claims, records)).items()}
    words = {name: [_word(kind) for kind in kinds] for name, kinds in found.items()}
    columns = sorted({word for kinds in words.values() for word in kinds})
    rows = [
        {"judged with": name}
        | {column: kinds.count(column) for column in columns}
        | {"fragile": sum(a != b for a, b in zip(kinds, words["rule 2"], strict=True))}
        for name, kinds in words.items()
    ]
    return pd.DataFrame(rows, columns=["judged with", *columns, "fragile"])


COLUMNS = ["name", "claim", "paper", "chapter", "where", "reported", "ours", "interval", "units"]
COLUMNS += ["seeds", "corpora", "grade", "verdict", "kind", "fragile", "verdict_1", "headline"]
COLUMNS += ["changes", "changed", "records", "contrasts"]


def rule_1(folder: Path | None = None) -> dict[str, str]:
    """Read the frozen verdicts of rule 1, by the claim's sentence or name; none if there are none.

    ``folder``: where ``rule-1.csv`` lies (default: the library's own).
    """
    folder = Path(declared.__file__).with_name("claims") if folder is None else folder
    path = folder / "rule-1.csv"
    if not path.exists():
        return {}
    lines = path.read_text("utf-8").splitlines(keepends=True)
    skipped = sum(line.startswith("#") for line in lines)
    table = pd.read_csv(path, skiprows=skipped, dtype=str, keep_default_na=False)
    return dict(zip(table["claim"], table["verdict"], strict=True))


def _book(claims, records):
    if records is None:
        rows = (row for c in claims for each in c.contrasts for _, row in each.cells)
        names = dict.fromkeys(row["experiment"] for row in rows)
        found = [select(name) for name in names if name in EXPERIMENTS]
        records = pd.concat(found, ignore_index=True) if found else select("clustering", seeds=())
    return Book(records)


def _verdicts(claims, book, seeds=None):
    """Judge with rule 2 and each of its ``VARIANTS``: name -> (judged contrasts, verdicts), both
    lists over the claims.
    """
    chosen = None if seeds is None else frozenset(seeds)
    five = frozenset(PAPER_SEEDS) if chosen is None else chosen & frozenset(PAPER_SEEDS)
    settings = {"rule 2": Setting(chosen), FIVE: Setting(five)}
    for name, points in zip(VARIANTS[1:3], MARGINS, strict=True):
        settings[name] = Setting(chosen, points)
    found = {}
    for name, setting in settings.items():
        made = [[_told(claim, each, book, setting) for each in claim.contrasts] for claim in claims]
        found[name] = made
    found[CORRECTED] = _corrected(found["rule 2"])
    return {
        name: (made, [_whole(*pair) for pair in zip(claims, made, strict=True)])
        for name, made in found.items()
    }


def _told(claim, contrast, book, setting):
    """As ``judge_contrast``, with an error that says where."""
    try:
        return judge_contrast(contrast, book, setting)
    except ClaimError as error:
        raise ClaimError(f"{claim.name}, {contrast.says!r}: {error}") from None


def _corrected(made):
    """Leave undecided what the Benjamini-Hochberg correction over all ``> 0`` contrasts does."""
    tested = [
        each
        for judged in made
        for each in judged
        if each.contrast.test == "> 0"
        and np.isfinite(each.found.p)
        and not each.contrast.chosen_afterwards
        and each.found.units >= contrasts.FEWEST
    ]
    if not tested:
        return made
    adjusted = stats.false_discovery_control([each.found.p for each in tested])
    weak = {id(each) for each, p in zip(tested, adjusted, strict=True) if p > FALSE_DISCOVERIES}

    def corrected(each):
        # "Sharply" may be contradicted by a small gain, which is no matter of its sign.
        signed = each.verdict == "reproduced" or not each.contrast.words
        falls = id(each) in weak and signed and contrasts.SIGNS.get(each.verdict)
        return replace(each, verdict="undecided") if falls else each

    return [[corrected(each) for each in judged] for judged in made]


def _whole(claim, judged):
    """Combine the verdicts of a claim's contrasts, leaving out what was chosen afterwards."""
    if claim.not_attempted:
        return f"not attempted ({claim.not_attempted})"
    counted = [each for each in judged if not each.contrast.chosen_afterwards]
    if not counted:
        return "not attempted (only readings chosen afterwards)"
    kind = contrasts.combine([each.verdict for each in counted])
    if kind == "not attempted":
        return f"not attempted ({counted[0].note})"
    have = min(counted, key=lambda each: len(each.corpora) - len(each.contrast.corpora))
    there, all_ = len(have.corpora), len(have.contrast.corpora)
    if there < all_ and kind in contrasts.SIGNS and contrasts.SIGNS[kind]:
        word = "partly" if contrasts.SIGNS[kind] > 0 else "contradicted"
        kind = f"{word} ({there} of {all_} corpora)"
    return kind


def _word(verdict):
    return verdict.split(" (")[0]


def _grade(claim, judged):
    if claim.grade:  # "stand-in: this for that", or what stands in alone
        level, colon, words = claim.grade.partition(": ")
        words = words if colon and level in GRADES else claim.grade
        return f"{level if level in GRADES else 'stand-in'} ({words})"
    counted = [each for each in judged if not each.contrast.chosen_afterwards]
    rows = [spec for each in counted if each.runs for spec in each.specs]
    return grade(rows or [spec for each in counted for spec in each.specs])


def _row(claim, judged, kind, changes, frozen):
    """Make the row of a claim in ``judge``'s table."""
    differ = {name: _word(other) for name, other in changes.items() if _word(other) != _word(kind)}
    fragile = "; ".join(f"{name}: {word}" for name, word in differ.items())
    graded = "–" if claim.not_attempted else _grade(claim, judged)
    tested = _word(kind) not in ("not attempted", "no fair test")
    verdict = kind + (_WITH.get(_word(graded), "") if tested else "")
    counted = [each for each in judged if not each.contrast.chosen_afterwards]
    verdict += "; from stale records" if any(r.stale for e in counted for r in e.runs) else ""
    verdict += f"; fragile ({fragile})" if fragile else ""
    told = [_contrast_row(each) for each in judged]
    alone = told[0] if len(told) == 1 else None
    corpora = {name for each in judged for name in each.corpora}
    corpora |= {spec.dataset for each in judged if each.runs for spec in each.specs} - {DRAWN}
    made = {name: getattr(claim, name) for name in COLUMNS if hasattr(claim, name)}
    return made | {
        "ours": alone["ours"] if alone else _counted(counted),
        "interval": alone["interval"] if alone else "–",
        "units": ", ".join(dict.fromkeys(each["counted"] for each in told)),
        "seeds": _ends([count for each in judged for count in each.seeds]),
        "corpora": ", ".join(sorted(corpora)),
        "grade": graded,
        "verdict": verdict,
        "kind": kind,
        "fragile": fragile,
        "verdict_1": frozen.get(claim.claim, frozen.get(claim.name, "–")),
        "records": " ".join(dict.fromkeys(run.record for each in judged for run in each.runs)),
        "contrasts": told,
    }


def _counted(judged):
    verdicts = [each.verdict for each in judged]
    return ", ".join(f"{verdicts.count(name)} {name}" for name in dict.fromkeys(verdicts)) or "–"


def _ends(counts):
    return " to ".join(dict.fromkeys(map(str, (min(counts), max(counts))))) if counts else "–"


def _contrast_row(judged):
    """Describe a judged contrast for tables: numbers as they are, and as they are printed."""
    contrast, found = judged.contrast, judged.found
    signed = "" if contrast.test in ("= v", "at least v") else "+"
    digits = 3 if contrasts.base(contrast.metric) in contrasts.FRACTIONS else 2

    def shown(number):
        return f"{number:{signed},.{digits}f}" if math.isfinite(number) else "–"

    spread = "–" if math.isnan(found.low) else f"{shown(found.low)} to {shown(found.high)}"
    verdict = judged.verdict
    if contrast.chosen_afterwards:
        verdict += " (chosen afterwards: enters no verdict)"
    return {
        "says": contrast.says,
        "test": " ".join(filter(None, (contrast.test, contrast.words))),
        "metric": contrast.metric,
        "value": contrast.value,
        "mean": found.mean,
        "low": found.low,
        "high": found.high,
        "p": found.p,
        "ours": f"{shown(found.mean)} ({contrast.metric})" if found.units else "not recorded",
        "interval": spread,
        "unit": contrast.unit,
        "units": found.units,
        "counted": f"{found.units} {UNITS[contrast.unit] if found.units != 1 else contrast.unit}",
        "seeds": _ends(judged.seeds),
        "corpora": judged.corpora,
        "wins": sum(mean > 0 for mean in judged.corpora.values()),
        "verdict": verdict,
        "note": judged.note,
        "records": " ".join(dict.fromkeys(run.record for run in judged.runs)),
    }
