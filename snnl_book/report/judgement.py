"""Rule 3 for one comparison of a claim, on its records: pairs, units, fairness, direction."""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from snnl_book.paper import Contrast
from snnl_book.report import contrasts, documents
from snnl_book.report.rows import Book, Run, runs_of
from snnl_book.results import Spec

LOST = ("diverged", "failed")
BELOW_PUBLISHED = 0.03  # a rival of ours this far below its published score is not a fair one


@dataclass(frozen=True)
class Setting:
    """The runs to judge by: of these seeds (None: all), with or without collapsed ones."""

    seeds: frozenset | None = None
    collapsed: bool = True


@dataclass(frozen=True)
class Judged:
    """A comparison and what the records say about it.

    Args:
        direction: ``holds``, ``fails``, ``open``, ``unfair`` or ``not tested``.
        found: the mean over units and its interval; of a value the score itself, of all else how
            much better the claimed winner is.
        size: our difference compared with the paper's (``contrasts.size``).
        seeds: how many, one entry per corpus.
        corpora: where these are the units, the mean of each one that has runs.
        specs, runs: the cells and the runs behind it.
        note: why it is not tested or unfair, or what else to know.
        provisional: whether some of its records lack the answers that the interval needs.
    """

    contrast: Contrast
    direction: str
    found: contrasts.Estimate = contrasts.NOTHING
    size: str = ""
    seeds: tuple[int, ...] = ()
    corpora: dict[str, float] = field(default_factory=dict)
    specs: tuple[Spec, ...] = ()
    runs: tuple[Run, ...] = ()
    note: str = ""
    provisional: bool = False


class _Block:
    """The runs of a comparison on one corpus: ``pairs``, one per seed that all rows have."""

    def __init__(self, contrast, cells, found, corpus=None, setting=Setting()):
        """``found`` are the label, the data set and the runs by seed of each cell."""
        self.corpus, self.best, self.unit = corpus, contrast.best, contrast.unit
        self.metrics = _metrics(contrast, cells)
        self.weights = np.array([weight for weight, _ in cells])
        bases = [contrasts.base(metric) for metric in self.metrics]
        self.lower = np.array([score in contrasts.LOWER_IS_BETTER for score in bases])
        self.signs = np.where(self.lower & (contrast.test != "= v"), -1, 1)
        made = [(label, dataset, self._chosen(runs, setting)) for label, dataset, runs in found]
        self.unfair = self._unfair(made, contrast.published)
        made = [runs for _, _, runs in made]
        common = [seed for seed in made[0] if all(seed in runs for runs in made)]
        filled = [self._filled([runs[seed] for runs in made]) for seed in common]
        pairs = [pair for pair in filled if not any(math.isnan(run.value) for run in pair)]
        self.pairs = [pair for pair in pairs if len({run.stale for run in pair}) == 1]
        self.mixed = len(self.pairs) < len(pairs)
        self.scores = np.array([[run.value for run in pair] for pair in self.pairs])

    def _chosen(self, runs, setting):
        return {
            seed: run
            for seed, run in runs.items()
            if (setting.seeds is None or seed in setting.seeds)
            and (setting.collapsed or run.status != "collapsed")
        }

    def _unfair(self, made, published):
        """Say why the rows cannot be compared fairly, or nothing."""
        for (label, dataset, runs), weight in zip(made, self.weights, strict=True):
            void = sum(
                run.status == "collapsed" or (run.status in LOST and weight < 0)
                for run in runs.values()
            )
            if 2 * void > len(runs):
                return f"most runs of {label} collapsed or broke off"
            known = published.get(dataset) if weight < 0 else None
            values = [run.value for run in runs.values() if not math.isnan(run.value)]
            if known and values and np.mean(values) < known - BELOW_PUBLISHED:
                ours = f"{np.mean(values):.3f} on {dataset}, published {known:.3f}"
                return f"our {label} is below its published score ({ours})"
        return ""

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

    def units(self):
        """Return the values of the units: weighted sums of the rows; of a corpus their mean."""
        scores = (self.scores * self.signs).T
        if self.best:
            scores = np.array([contrasts.best_of(row, self.best) for row in scores])
        sums = self.weights @ scores
        groups = self._groups()
        if self.best and len(sums) < len(self.pairs):  # the best of as many as there are
            return [*sums]
        return [sums[group].mean() for group in groups]

    def _groups(self):
        """Return for each unit the places of its pairs."""
        places = np.arange(len(self.pairs))
        if self.unit == "corpus":
            return [places]
        if self.unit == "seed":
            return [*places[:, None]]
        encoders = np.array(["".join(run.encoder for run in pair) for pair in self.pairs])
        return [places[encoders == name] for name in dict.fromkeys(encoders.tolist())]

    def document_half_width(self):
        """Return the half-width that the documents alone give the mean; None if answers lack."""
        if not any(contrasts.base(metric) in documents.COUNTED for metric in self.metrics):
            return 0.0
        if self.best and len(self.pairs) < self.best:
            return 0.0
        groups, weighted = self._groups(), []
        for group in groups:
            unit = []
            for place in group:
                share = 1 / len(group) / len(groups)
                for row, run in enumerate(self.pairs[place]):
                    if self.best:
                        order = self.signs[row] * self.scores[:, row]
                        share = contrasts.best_weights(order, self.best)[place]
                    weight = self.signs[row] * self.weights[row] * share
                    influences = self._influences(run, self.metrics[row])
                    if influences is None:
                        return None
                    unit.append((weight, influences))
            weighted.append(unit)
        return documents.half_width(weighted)

    def _influences(self, run, metric):
        if contrasts.base(metric) not in documents.COUNTED or run.status in LOST:
            return np.array([], dtype=int), np.array([])
        experiment, key = run.record.split("/", 1)
        return documents.influences(experiment, key, metric, run.classes, run.profile)


def judge_contrast(contrast: Contrast, book: Book, setting: Setting, runs: int = 1) -> Judged:
    """Judge a comparison by its records.

    ``runs`` are how many the paper's numbers are a mean of. Raises ClaimError if a row names no
    cell, or several.
    """
    if contrast.not_attempted and not contrast.cells:
        return Judged(contrast, "not tested", note=contrast.not_attempted)
    if contrast.test not in ("rank", "more than half"):
        return _compare(contrast, contrast.cells, book, setting, runs)
    plain = replace(contrast, test="> 0")
    parts = [
        _compare(replace(plain, value=value), cells, book, setting, runs)
        for cells, value in _groups_of(contrast)
    ]
    tested = [part for part in parts if part.runs]
    if not tested:
        return replace(parts[0], contrast=contrast)
    # Whoever collapsed is no rival; whoever is not recorded still is one.
    directions = [part.direction for part in parts if part.direction != "unfair"]
    if contrast.test == "rank":
        direction, note = contrasts.rank(directions, contrast.rank), "against the strongest rival"
    else:
        direction = contrasts.more_than_half([part.direction for part in parts])
        note = f"above 0 in {directions.count('holds')} of {len(parts)}"
    hardest = min(tested, key=lambda part: part.found.mean)
    return replace(
        hardest,
        contrast=contrast,
        direction=direction,
        size="",
        note=note,
        specs=tuple(dict.fromkeys(spec for part in tested for spec in part.specs)),
        runs=tuple(dict.fromkeys(run for part in tested for run in part.runs)),
        provisional=any(part.provisional for part in tested),
    )


def _groups_of(contrast):
    """Split a rank, or "more than half", into comparisons: (cells, value) each."""
    if contrast.test == "more than half":
        groups = []
        for cell in contrast.cells:  # a winner opens the next comparison
            if cell[0] > 0:
                groups.append(([], None))
            groups[-1][0].append(cell)
        return groups
    (winner,) = (cell for cell in contrast.cells if cell[0] > 0)
    rivals = [cell for cell in contrast.cells if cell[0] < 0]
    recorded = [([winner, cell], None) for cell in rivals]
    return recorded + [([winner], number) for number in contrast.reported]


def _compare(contrast, cells, book, setting, runs):
    """Judge one comparison of weighted cells."""
    corpora = contrast.corpora or (None,)
    every, specs = [], []
    for corpus in corpora:
        rows = book.sized([row for _, row in cells], corpus)
        metrics = _metrics(contrast, cells)
        found = [book.runs(row, corpus, name) for row, name in zip(rows, metrics, strict=True)]
        named = [(spec.label, spec.dataset, made) for spec, made in found]
        every.append(_Block(contrast, cells, named, corpus, setting))
        specs += [spec for spec, _ in found]
    return replace(_judged(contrast, every, runs), specs=tuple(specs))


def judge_value(records, metric: str, value: float) -> Judged:
    """Judge that a row has this mean, as a claim about it is judged (``= v``).

    ``records``, a frame, are those of one metric and row, as ``select`` returns them. The unit is
    the encoder where its weights are random, else the seed.
    """
    rows = {row["seed"]: row for row in records.to_dict("records")}
    made = {seed: row | {"scores": {metric: row["value"]}} for seed, row in rows.items()}
    runs = runs_of(made, metric)
    unit = "encoder" if any(run.encoder for run in runs.values()) else "seed"
    cells = ((1, {}),)
    contrast = Contrast("", "= v", metric, cells, unit, value=value)
    label = next(iter(records["label"]), "the row")
    return _judged(contrast, [_Block(contrast, cells, [(label, "", runs)])])


def _metrics(contrast, cells):
    return [row.get("metric", contrast.metric) for _, row in cells]


def _judged(contrast, every, runs=1):
    """Judge a comparison by its blocks, one per corpus."""
    unfair = next((block.unfair for block in every if block.unfair), "")
    blocks = [block for block in every if block.pairs and not block.unfair]
    if not blocks:
        note = contrast.not_attempted or "no run is recorded"
        if any(block.mixed for block in every):
            note = "one run of each pair is stale"
        direction = "unfair" if unfair else "not tested"
        return Judged(contrast, direction, note=unfair or note)
    shown = contrast.test in ("= v", "at least v")  # the score, not its distance from the value
    value = float(blocks[0].signs[0] * (contrast.value or 0))
    widths = [block.document_half_width() for block in blocks]
    added = 0.0 if None in widths else math.hypot(*widths) / len(blocks)
    units = np.array([unit for block in blocks for unit in block.units()])
    found = contrasts.estimate(units if shown else units - value, added)
    found = found._replace(flat=found.flat and not _lost(blocks))
    direction = contrasts.direction(
        found,
        contrast.test,
        words=contrast.words,
        fraction=contrasts.base(contrast.metric) in contrasts.FRACTIONS,
        scale=abs(value) or _rivals_mean(blocks),
        value=value if shown else 0.0,
    )
    theirs = len(every) if contrast.unit == "corpus" else runs
    return Judged(
        contrast,
        direction,
        found,
        size=contrasts.size(found, contrast.printed or 0.0, theirs),
        seeds=tuple(len(block.pairs) for block in blocks),
        corpora={block.corpus: float(block.units()[0]) for block in blocks if block.corpus},
        runs=tuple(run for block in blocks for pair in block.pairs for run in pair),
        note=unfair or ("the units hardly differ" if found.flat else ""),
        provisional=None in widths,
    )


def _lost(blocks):
    return any(run.status in LOST for block in blocks for pair in block.pairs for run in pair)


def _rivals_mean(blocks):
    """The mean score of the rivals, nan if there are none."""
    rivals = [block.scores[:, block.weights < 0] for block in blocks if (block.weights < 0).any()]
    return float(np.mean([abs(scores.mean(axis=0)) for scores in rivals])) if rivals else math.nan
