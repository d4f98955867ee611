"""Rule 2 for one contrast, on its records: pairs, units, what broke down, and the verdict."""

import math
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np

from snnl_book.paper import Contrast
from snnl_book.report import contrasts
from snnl_book.report.rows import Book, Run, runs_of
from snnl_book.results import Spec

LOST = ("diverged", "failed")


@dataclass(frozen=True)
class Setting:
    """What a judgement is made with: these seeds (None: all), this margin, and ``contrasts.floor``
    or not.
    """

    seeds: frozenset | None = None
    points: float = contrasts.POINTS
    floor: bool = True


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
    """The runs of a comparison on one corpus: ``pairs``, one for each seed common to all rows."""

    def __init__(self, book, contrast, cells, corpus, setting):
        metrics = [contrasts.base(row.get("metric", contrast.metric)) for _, row in cells]
        rows = book.sized([row for _, row in cells], corpus)
        found = [book.runs(row, corpus, row.get("metric", contrast.metric)) for row in rows]
        self.corpus, self.best, self.specs = corpus, contrast.best, [spec for spec, _ in found]
        # Of a value the score itself is shown, of all else how much better one is.
        self.lower = np.array([metric in contrasts.LOWER_IS_BETTER for metric in metrics])
        self.signs = np.where(self.lower & (contrast.test != "= v"), -1, 1)
        self.weights = np.array([weight for weight, _ in cells])
        self.counted = contrasts.DOCUMENTS.issuperset(metrics)
        made = [
            {seed: runs[seed] for seed in runs if setting.seeds is None or seed in setting.seeds}
            for _, runs in found
        ]
        self.unfair = [
            spec.label
            for spec, runs, weight in zip(self.specs, made, self.weights, strict=True)
            if 2 * sum(_is_void(run, weight) for run in runs.values()) > len(runs)
        ]
        common = [seed for seed in made[0] if all(seed in runs for runs in made)]
        filled = [self._filled([runs[seed] for runs in made]) for seed in common]
        pairs = [pair for pair in filled if not any(math.isnan(run.value) for run in pair)]
        self.pairs = [pair for pair in pairs if len({run.stale for run in pair}) == 1]
        self.mixed = len(self.pairs) < len(pairs)
        self.scores = np.array([[run.value for run in pair] for pair in self.pairs])
        self.collapsed, self.lost = (
            np.array([any(run.status in states for run in pair) for pair in self.pairs], dtype=bool)
            for states in (("collapsed",), LOST)
        )

    def _filled(self, pair):
        """Give a lost run of a winner the worst score there is, so that its pair is never dropped.

        That is 0, or where lower is better twice the highest of the pair. One of a rival has none.
        """
        known = [run.value for run in pair if run.status not in LOST]
        worst = np.where(self.lower, 2 * max(known, default=1.0), 0.0)
        worst = np.where(self.weights > 0, worst, math.nan)
        return [
            run._replace(value=float(value)) if run.status in LOST else run
            for run, value in zip(pair, worst, strict=True)
        ]

    def units(self, unit, keep):
        """Return the value of each unit, of the pairs to be kept (bool [pairs]).

        The weighted sums of the rows, whose mean is the one value of a corpus.
        """
        rows = (self.scores[keep] * self.signs).T
        if self.best:
            rows = np.array([contrasts.best_of(row, self.best) for row in rows])
        sums = self.weights @ rows
        if unit == "corpus":
            return [sums.mean()] if len(sums) else []
        names = ["".join(run.encoder for run in pair) for pair in self.pairs]
        names = np.array(names, dtype=object)[keep]
        if unit == "seed" or len(sums) < len(names):  # the best of as many as there are
            return [*sums]
        return [sums[names == name].mean() for name in dict.fromkeys(names)]

    def floor(self):
        documents = [[run.documents for run in pair] for pair in self.pairs]
        means = (np.mean(each, axis=0) for each in (self.scores, documents))
        return contrasts.floor(self.weights, *means)


def _is_void(run, weight):
    """Tell if a run says nothing: it collapsed, or it is a rival's and lost."""
    return run.status == "collapsed" or (run.status in LOST and weight < 0)


def judge_contrast(contrast: Contrast, book: Book, setting: Setting) -> Judged:
    """Judge a contrast by its records. Raises ClaimError if a row names no cell, or several."""
    if contrast.not_attempted and not contrast.cells:
        return Judged(contrast, "not attempted", note=contrast.not_attempted)
    if contrast.test not in ("rank", "more than half"):
        return _compare(contrast, contrast.cells, book, setting)
    groups: list[tuple[list, float | None]] = []
    if contrast.test == "rank":
        (winner,) = (cell for cell in contrast.cells if cell[0] > 0)
        groups = [([winner, cell], None) for cell in contrast.cells if cell[0] < 0]
        groups += [([winner], number) for number in contrast.reported]
    else:
        for cell in contrast.cells:  # a winner opens the next comparison
            groups += [([], None)] if cell[0] > 0 else []
            groups[-1][0].append(cell)
    plain = replace(contrast, test="> 0")
    parts = [_compare(replace(plain, value=v), cells, book, setting) for cells, v in groups]
    tested = [part for part in parts if part.runs]
    if not tested:
        return replace(parts[0], contrast=contrast)
    if contrast.test == "rank":  # who collapsed is no rival, who is not recorded still is one
        verdicts = [part.verdict for part in parts if part.verdict != "no fair test"]
        verdict, note = contrasts.rank(verdicts, contrast.rank), "against the strongest rival"
    else:
        verdicts = [part.verdict for part in parts]
        verdict = contrasts.more_than_half(verdicts)
        note = f"above 0 in {verdicts.count('reproduced')} of {len(parts)}"
    hardest = min(tested, key=lambda part: part.found.mean)
    rows = tuple(dict.fromkeys(spec for part in tested for spec in part.specs))
    runs = tuple(dict.fromkeys(run for part in tested for run in part.runs))
    made = {"contrast": contrast, "verdict": verdict, "note": note, "specs": rows, "runs": runs}
    return replace(hardest, **made)


def judge_value(records, metric: str, value: float) -> Judged:
    """Judge that a row has this mean, as a claim of it is judged (``= v``).

    ``records``, a frame, are those of one metric and row, as ``select`` returns them. The unit is
    the encoder where its weights are random, else the seed.
    """
    rows = {row["seed"]: row for row in records.to_dict("records")}
    made = {seed: row | {"scores": {metric: row["value"]}} for seed, row in rows.items()}
    runs = runs_of(made, metric)
    unit = "encoder" if any(run.encoder for run in runs.values()) else "seed"
    asked = Contrast("", "= v", metric, ((1, {}),), unit, value=value)
    spec = SimpleNamespace(label=next(iter(records["label"]), ""))
    one = {"runs": lambda *row: (spec, runs), "sized": lambda rows, corpus: rows}
    return judge_contrast(asked, SimpleNamespace(**one), Setting())  # a book of this row only


def _compare(contrast, cells, book, setting):
    """Judge one comparison of weighted cells."""
    corpora = contrast.corpora or (None,)
    every = [_Block(book, contrast, cells, corpus, setting) for corpus in corpora]
    rows = tuple(spec for block in every for spec in block.specs)
    unfair = [label for block in every for label in block.unfair]
    blocks = [block for block in every if block.pairs and not block.unfair]
    if not blocks:
        verdict, note = "not attempted", contrast.not_attempted or "no run is recorded"
        if any(block.mixed for block in every):
            note = "of each pair of runs one is stale"
        if unfair:
            verdict, note = "no fair test", f"most runs of {unfair[0]} collapsed or broke off"
        return Judged(contrast, verdict, specs=rows, note=note)
    shown = contrast.test in ("= v", "at least v")  # the score, not its distance from the value
    value = float(blocks[0].signs[0] * (contrast.value or 0))
    floors = [block.floor() if block.counted and setting.floor else 0.0 for block in blocks]
    rivals = [abs(block.scores[:, block.weights < 0].mean(axis=0)) for block in blocks]
    facts = {"words": contrast.words, "points": setting.points, "value": value if shown else 0.0}
    facts["scale"] = abs(value) or (np.mean(rivals) if len(rivals[0]) else math.nan)
    facts["fraction"] = contrasts.base(contrast.metric) in contrasts.FRACTIONS

    def tested(leave_out):
        kept = [~(block.collapsed & leave_out) for block in blocks]
        pairs = zip(blocks, kept, strict=True)
        values = [unit for block, keep in pairs for unit in block.units(contrast.unit, keep)]
        shift = 0.0 if shown else value
        found = contrasts.estimate(np.array(values) - shift, math.hypot(*floors) / len(blocks))
        found = found._replace(flat=found.flat and not any(b.lost.any() for b in blocks))
        return found, contrasts.judge(found, contrast.test, **facts)

    found, verdict = tested(False)
    note = "the units hardly differ" if found.flat else ""
    if any(block.collapsed.any() for block in blocks):
        _, without = tested(True)
        if without != verdict:
            note = f"with collapsed runs {verdict}, without them {without}"
            verdict = "undecided"
    everything = slice(None)
    means = {b.corpus: b.units("corpus", everything)[0] for b in blocks if b.corpus}
    seeds = tuple(len(block.pairs) for block in blocks)
    runs = tuple(run for block in blocks for pair in block.pairs for run in pair)
    return Judged(contrast, verdict, found, seeds, means, rows, runs, note)
