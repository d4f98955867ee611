"""Rule 3 for one comparison of a claim, on its records: pairs, units, fairness, direction."""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from snnl_book.experiments.short_texts import RANKINGS
from snnl_book.paper import Contrast
from snnl_book.paper.declared import LOWER_IS_BETTER
from snnl_book.report import contrasts, documents
from snnl_book.report.rows import Book, Run, runs_of
from snnl_book.results import Spec

LOST = ("diverged", "failed")
NOT_RECORDED = "no run is recorded"
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
        estimate: the mean over units and its interval. Where a claim is about a value this is the
            score itself, elsewhere how much better the claimed winner is.
        size: our difference compared with the paper's (``contrasts.size``).
        seeds: how many, one entry per corpus.
        corpora: where these are the units, the mean of each one that has runs.
        specs, runs: the cells and the runs behind it.
        note: why it is not tested or unfair, or what else to know.
        provisional: whether some of its records lack the answers that the interval needs.
    """

    contrast: Contrast
    direction: str
    estimate: contrasts.Estimate = contrasts.NOTHING
    size: str = ""
    seeds: tuple[int, ...] = ()
    corpora: dict[str, float] = field(default_factory=dict)
    specs: tuple[Spec, ...] = ()
    runs: tuple[Run, ...] = ()
    note: str = ""
    provisional: bool = False


class _Block:
    """The runs of a comparison on one corpus: ``pairs``, one for each seed that all rows have."""

    def __init__(self, contrast, cells, recorded, corpus=None, setting=Setting()):
        """``recorded`` are the label, the data set and the runs by seed of each cell."""
        self.corpus = corpus
        self.best = contrast.best
        self.unit = contrast.unit
        self.has_own_documents = corpus and not any(row.get("task") in RANKINGS for _, row in cells)
        self.metrics = _metrics(contrast, cells)
        self.weights = np.array([weight for weight, _ in cells])
        bases = [contrasts.base(metric) for metric in self.metrics]
        self.lower = np.array([score in LOWER_IS_BETTER for score in bases])
        self.signs = np.where(self.lower & (contrast.test != "= v"), -1, 1)
        rows = [(label, dataset, _chosen(runs, setting)) for label, dataset, runs in recorded]
        has_runs = all(runs for _, _, runs in rows)
        self.unfair = self._unfair(rows, contrast.published) if has_runs else ""
        runs_of_rows = [runs for _, _, runs in rows]
        common = [seed for seed in runs_of_rows[0] if all(seed in runs for runs in runs_of_rows)]
        filled = [self._filled([runs[seed] for runs in runs_of_rows]) for seed in common]
        pairs = [pair for pair in filled if not any(math.isnan(run.value) for run in pair)]
        self.pairs = [pair for pair in pairs if len({run.stale for run in pair}) == 1]
        self.mixed = len(self.pairs) < len(pairs)
        self.scores = np.array([[run.value for run in pair] for pair in self.pairs])

    def _unfair(self, rows, published):
        """Return why the rows cannot be compared fairly, or an empty text."""
        for row, (label, dataset, runs) in enumerate(rows):
            is_rival = self.weights[row] < 0
            void = sum(
                run.status == "collapsed" or (run.status in LOST and is_rival)
                for run in runs.values()
            )
            if 2 * void > len(runs):
                ended = sorted({run.status for run in runs.values()} - {"ok"})
                return f"most runs of {label} {' or '.join(ended)}"
            score = published[row].get(dataset) if published else None
            values = [run.value for run in runs.values() if not math.isnan(run.value)]
            in_points = contrasts.base(self.metrics[row]) in contrasts.FRACTIONS
            if score and values and in_points and np.mean(values) < score - BELOW_PUBLISHED:
                name = contrasts.base(self.metrics[row]).split("_")[0].upper()
                ours = f"{name} {np.mean(values):.3f} on {dataset}, published {score:.3f}"
                return f"our {label} is below its published score ({ours})"
        return ""

    def _filled(self, pair):
        """Give a lost run of a winner the worst score, so that its pair is never dropped.

        The worst score is 0, or twice the highest of the pair where lower is better. A lost run of
        a rival gets no score.
        """
        values = [run.value for run in pair if run.status not in LOST]
        worst = np.where(self.lower, 2 * max(values, default=1.0), 0.0)
        worst = np.where(self.weights > 0, worst, math.nan)
        return [
            run._replace(value=float(value)) if run.status in LOST else run
            for run, value in zip(pair, worst, strict=True)
        ]

    def units(self):
        """Return the values of the units: each the mean weighted sum of the rows over its pairs."""
        scores = (self.scores * self.signs).T
        if self.best:
            scores = np.array([contrasts.best_of(row, self.best) for row in scores])
        sums = self.weights @ scores
        groups = self._groups()
        if self.best and len(sums) < len(self.pairs):  # the best of as many as there are
            return [*sums]
        return [sums[group].mean() for group in groups]

    def _groups(self):
        """Return for each unit the indices of its pairs."""
        indices = np.arange(len(self.pairs))
        if self.unit == "corpus":
            return [indices]
        if self.unit == "seed":
            return [*indices[:, None]]
        encoders = np.array(["".join(run.encoder for run in pair) for pair in self.pairs])
        return [indices[encoders == name] for name in dict.fromkeys(encoders.tolist())]

    def weighted_influences(self):
        """Return for each unit the (weight, influences) of its runs; None without answers."""
        if not any(contrasts.base(metric) in documents.COUNTED for metric in self.metrics):
            return []
        if self.best and len(self.pairs) < self.best:
            return []
        groups = self._groups()
        weighted = []
        for group in groups:
            unit = []
            for pair in group:
                share = 1 / len(group) / len(groups)
                for row, run in enumerate(self.pairs[pair]):
                    if self.best:
                        signed_scores = self.signs[row] * self.scores[:, row]
                        share = contrasts.best_weights(signed_scores, self.best)[pair]
                    weight = self.signs[row] * self.weights[row] * share
                    influences = self._influences(run, self.metrics[row])
                    if influences is None:
                        return None
                    unit.append((weight, influences))
            weighted.append(unit)
        return weighted

    def _influences(self, run, metric):
        if contrasts.base(metric) not in documents.COUNTED or run.status in LOST:
            return np.array([], dtype=int), np.array([])
        experiment, key = run.record.split("/", 1)
        return documents.influences(experiment, key, metric, run.classes, run.profile)


def _chosen(runs, setting):
    """Return the runs by seed that a setting judges by."""
    return {
        seed: run
        for seed, run in runs.items()
        if (setting.seeds is None or seed in setting.seeds)
        and (setting.collapsed or run.status != "collapsed")
    }


def judge_contrast(contrast: Contrast, book: Book, setting: Setting, runs: int = 1) -> Judged:
    """Judge a comparison by its records.

    ``runs`` is the number of runs whose mean the paper reports. Raises ClaimError if a row names no
    cell, or several.
    """
    if contrast.not_attempted and not contrast.cells:
        return Judged(contrast, "not tested", note=contrast.not_attempted)
    if contrast.test not in ("rank", "more than half"):
        return _compare(contrast, contrast.cells, book, setting, runs)
    plain = replace(contrast, test="> 0")
    parts = []
    for places, value in _groups_of(contrast):
        cells = [contrast.cells[place] for place in places]
        published = tuple(contrast.published[place] for place in places if contrast.published)
        part = replace(plain, value=value, published=published)
        parts.append(_compare(part, cells, book, setting, runs))
    tested = [part for part in parts if part.runs and part.direction != "unfair"]
    if not tested:
        unfair = [part for part in parts if part.direction == "unfair"]
        return replace([*unfair, *parts][0], contrast=contrast)
    # An unfair rival does not count, but one that is not recorded does.
    directions = [part.direction for part in parts if part.direction != "unfair"]
    if contrast.test == "rank":
        direction = contrasts.rank(directions, contrast.rank)
        note = "against the strongest rival"
    else:
        direction = contrasts.more_than_half([part.direction for part in parts])
        note = f"above 0 in {directions.count('holds')} of {len(parts)}"
    hardest = min(tested, key=lambda part: part.estimate.mean)
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
    """Split a rank, or "more than half", into comparisons: pairs (places of cells, value)."""
    if contrast.test == "more than half":
        groups = []
        for place, (weight, _) in enumerate(contrast.cells):
            if weight > 0:  # each winner starts a comparison
                groups.append(([], None))
            groups[-1][0].append(place)
        return groups
    (winner,) = (place for place, (weight, _) in enumerate(contrast.cells) if weight > 0)
    rivals = [place for place, (weight, _) in enumerate(contrast.cells) if weight < 0]
    against_rivals = [([winner, rival], None) for rival in rivals]
    return against_rivals + [([winner], number) for number in contrast.reported]


def _compare(contrast, cells, book, setting, runs):
    """Judge one comparison of weighted cells."""
    blocks = []
    specs = []
    for corpus in contrast.corpora or (None,):
        rows = book.sized([row for _, row in cells], corpus)
        recorded = []
        for row, metric in zip(rows, _metrics(contrast, cells), strict=True):
            spec, runs_of_cell = book.runs(row, corpus, metric)
            recorded.append((spec.label, spec.dataset, runs_of_cell))
            specs.append(spec)
        blocks.append(_Block(contrast, cells, recorded, corpus, setting))
    return replace(_judged(contrast, blocks, runs), specs=tuple(specs))


def judge_value(records, metric: str, value: float) -> Judged:
    """Judge that a row has the mean ``value``, as rule 3 judges a claim about it (``= v``).

    ``records``, a frame, are those of one metric and row, as ``select`` returns them. The unit is
    the encoder if its weights are random, else the seed.
    """
    rows = {row["seed"]: row for row in records.to_dict("records")}
    scored = {seed: row | {"scores": {metric: row["value"]}} for seed, row in rows.items()}
    runs = runs_of(scored, metric)
    unit = "encoder" if any(run.encoder for run in runs.values()) else "seed"
    cells = ((1, {}),)
    contrast = Contrast("", "= v", metric, cells, unit, value=value)
    label = next(iter(records["label"]), "the row")
    return _judged(contrast, [_Block(contrast, cells, [(label, "", runs)])])


def _metrics(contrast, cells):
    return [row.get("metric", contrast.metric) for _, row in cells]


def _judged(contrast, all_blocks, runs=1):
    """Judge a comparison by its blocks, one per corpus."""
    unfair = next((block.unfair for block in all_blocks if block.unfair), "")
    paired = [block for block in all_blocks if block.pairs]
    fair = [block for block in paired if not block.unfair]
    blocks = fair or paired  # an unfair comparison is shown, and decides nothing
    if not blocks:
        note = contrast.not_attempted or NOT_RECORDED
        if any(block.mixed for block in all_blocks):
            note = "one run of each pair was made by an earlier version of the code"
        direction = "unfair" if unfair else "not tested"
        return Judged(contrast, direction, note=unfair or note)
    is_about_score = contrast.test in ("= v", "at least v")  # not about a distance from the value
    value = float(blocks[0].signs[0] * (contrast.value or 0))
    of_documents = _document_half_width(blocks)
    units = np.array([unit for block in blocks for unit in block.units()])
    differences = units if is_about_score else units - value
    estimate = contrasts.estimate(differences, of_documents or 0.0)
    estimate = estimate._replace(flat=estimate.flat and not _have_lost_runs(blocks))
    direction = contrasts.direction(
        estimate,
        contrast.test,
        words=contrast.words,
        fraction=contrasts.base(contrast.metric) in contrasts.FRACTIONS,
        scale=abs(value) or _rivals_mean(blocks),
        value=value if is_about_score else 0.0,
    )
    runs_of_paper = len(all_blocks) if contrast.unit == "corpus" else runs
    # Our mean over some corpora cannot be compared with the paper's mean over all of them.
    is_whole = len(fair) == len(all_blocks)
    size = contrasts.size(estimate, contrast.printed or 0.0, runs_of_paper) if is_whole else ""
    return Judged(
        contrast,
        direction if fair else "unfair",
        estimate,
        size=size,
        seeds=tuple(len(block.pairs) for block in blocks),
        corpora={block.corpus: float(block.units()[0]) for block in blocks if block.corpus},
        runs=tuple(run for block in blocks for pair in block.pairs for run in pair),
        note=unfair or ("the units hardly differ" if estimate.flat else ""),
        provisional=of_documents is None,
    )


def _document_half_width(blocks):
    """Return the half-width that the documents alone give the mean; None without answers.

    It is 0 for corpora that share no documents, because then the spread between them includes it.
    """
    if blocks[0].has_own_documents:
        return 0.0
    units = []
    for block in blocks:
        weighted = block.weighted_influences()
        if weighted is None:
            return None
        units += [[(weight / len(blocks), each) for weight, each in unit] for unit in weighted]
    return documents.half_width(units) if units else 0.0


def _have_lost_runs(blocks):
    return any(run.status in LOST for block in blocks for pair in block.pairs for run in pair)


def _rivals_mean(blocks):
    """Return the mean score of the rivals, nan if there are none."""
    rivals = [block.scores[:, block.weights < 0] for block in blocks if (block.weights < 0).any()]
    return float(np.mean([abs(scores.mean(axis=0)) for scores in rivals])) if rivals else math.nan
