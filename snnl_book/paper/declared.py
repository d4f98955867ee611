"""The papers' claims as they are declared in ``claims/*.toml``: each a list of contrasts.

tests/paper checks what a declaration may say, and ``report.judgement`` its rows against the plan.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from snnl_book.paper.tables import literature, paper_short_texts, paper_table
from snnl_lib import SnnlError

PAPERS = {
    "text": "agarap2021text",
    "image": "agarap2020improving",
    "ClusterBERT": "clusterbert2023",
}
"""The papers, and their entries in the bibliography."""

WORDS = ("marginal", "slim", "sharply", "by a wide margin", "on par")
ROW = {
    *("experiment", "dataset", "embedding", "model", "alpha", "temperature", "reading"),
    *("clusterer", "n_train", "task", "metric"),
}
LOWER_IS_BETTER = {"dbi", "snn", "common", "loss", "kl", "epochs_to_pure"}


class ClaimError(SnnlError):
    """A claim is not declared as it has to be."""


@dataclass(frozen=True)
class Contrast:
    """One comparison of weighted cells.

    Args:
        says: what is compared, for a table.
        test: "> 0", "within", "= v", "at least v", "rank" or "more than half".
        metric: as records name it; ``name@epoch`` is read from the curve.
        cells: (weight, row) pairs, the claimed winner with a positive weight; a row tells a cell of
            the plan by some of the names in ``ROW``.
        unit: over what the interval is taken, "seed", "encoder" or "corpus".
        words: one of ``WORDS``, where the sentence has such a word.
        value: the paper's number.
        rank, reported: of a rank the place, and the numbers that others report.
        best: the statistic is the best of so many seeds.
        corpora: the units, where these are corpora.
        not_attempted: why nothing tests it; with cells, why none of their runs is recorded.
        printed: the paper's own value of the comparison, with the sign that the contrast has: above
            0 where the paper has the claimed winner ahead. None where the paper prints no numbers.
        published: the scores that the paper or the literature reports for each row, by data set:
            the highest where there are several, nothing for a claimed winner.
    """

    says: str
    test: str
    metric: str
    cells: tuple[tuple[float, dict], ...]
    unit: str = "seed"
    words: str = ""
    value: float | None = None
    rank: int = 1
    reported: tuple[float, ...] = ()
    best: int | None = None
    corpora: tuple[str, ...] = ()
    not_attempted: str = ""
    printed: float | None = None
    published: tuple[dict[str, float], ...] = ()


@dataclass(frozen=True)
class Reading:
    """Other settings under which a claim is judged again.

    Args:
        name: how claims refer to it.
        says: what differs, in words that complete "judged ...".
        rows: (row, changes) pairs. A row that has all values of the first gets those of the second;
            without changes it stays as it is.
        unit: over what the interval is taken instead.
        seeds: "paper" or "new", where the reading is a choice of seeds.
    """

    name: str
    says: str
    rows: tuple[tuple[dict, dict], ...] = ()
    unit: str = ""
    seeds: str = ""

    def changed_row(self, row: dict) -> dict | None:
        """Return the row as this reading has it, None if the reading does not list it."""
        for listed, changes in self.rows:
            if listed.items() <= row.items():
                return row | changes
        return None

    def applied(self, contrast: Contrast) -> Contrast:
        """Return the contrast as this reading has it.

        It stays as it is unless the reading lists all of its rows, so that rows of two settings are
        never compared by accident.
        """
        rows = [self.changed_row(row) for _, row in contrast.cells]
        if None in rows or rows == [row for _, row in contrast.cells]:
            return contrast
        weights = [weight for weight, _ in contrast.cells]
        cells = tuple(zip(weights, rows, strict=True))
        return replace(contrast, cells=cells, unit=self.unit or contrast.unit)


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, where it stands, and the contrasts that test it.

    Args:
        named: words of the ``quote``, and all rivals that they mean.
        changes: what would change our mind.
        changed: what of the declaration changed since rule 1, and why.
        readings: other settings under which it is judged again.
        after_seeing: why it was declared after its result had been seen; empty if it was not. Such
            a claim is judged on seeds that were run afterwards.
        seeds: "paper" or "new", the only ones that it is judged on; empty: all.
        runs: how many runs the paper's numbers are taken over, None where it does not say.
    """

    name: str
    chapter: str
    claim: str
    where: str
    reported: str
    quote: str
    changes: str
    named: dict = field(default_factory=dict)
    changed: str = ""
    not_attempted: str = ""
    readings: tuple[Reading, ...] = ()
    after_seeing: str = ""
    seeds: str = ""
    paper: str = ""
    runs: int | None = None
    contrasts: tuple[Contrast, ...] = ()


def registered_claims(folder: Path | None = None) -> tuple[Claim, ...]:
    """Read the claims of all papers from ``text.toml``, ``image.toml`` and ``clusterbert.toml``.

    ``folder``: where they lie (default: the library's own). A paper without a file has none.
    """
    folder = Path(__file__).with_name("claims") if folder is None else Path(folder)
    paths = {paper: folder / f"{paper.lower()}.toml" for paper in PAPERS}
    return tuple(
        claim
        for paper, path in paths.items()
        if path.exists()
        for claim in _claims(tomllib.loads(path.read_text("utf-8")), paper)
    )


def _claims(tables, paper):
    """Make the claims of a file, which may also declare readings and the paper's number of runs."""
    readings = {
        name: Reading(name, **table | {"rows": tuple(map(tuple, table.get("rows", ())))})
        for name, table in tables.get("readings", {}).items()
    }
    return [_claim(table, paper, readings, tables.get("runs")) for table in tables["claim"]]


def _claim(table, paper, readings, runs):
    contrasts = [
        contrast for part in table.get("contrast", ()) for contrast in _contrasts(dict(part))
    ]
    parts = {name: value for name, value in table.items() if name != "contrast"}
    parts["readings"] = tuple(readings[name] for name in table.get("readings", ()))
    return Claim(**parts, paper=paper, runs=runs, contrasts=tuple(contrasts))


# ---------------------------------------------------------------- contrasts

_CONTRAST = {part.name for part in fields(Contrast)}


def _contrasts(table) -> Iterator[Contrast]:
    """Yield the contrasts of a table, one for each combination of the values that ``each`` lists.

    A value whose name is that of a contrast's or a row's part becomes this part. Every value fills
    ``{name}`` in texts.
    """
    lists = table.pop("each", {})
    for values in product(*lists.values()):
        yield _contrast(table, dict(zip(lists, values, strict=True)))


def _contrast(table, names):
    """Make one contrast of a table, with the values of ``names`` filled in."""
    table = {name: _filled(value, names) for name, value in table.items()}
    table.update({name: value for name, value in names.items() if name in _CONTRAST})
    common = {name: value for name, value in names.items() if name in ROW - _CONTRAST}
    table["cells"] = _cells(table, common)
    table["corpora"] = tuple(table.get("corpora", ()))
    if table["test"] == "rank" and "value" in table:
        table["reported"] = _numbers(table, table.pop("value"))
    elif "value" in table:
        (table["value"],) = _numbers(table, table["value"])
    printed = _printed_scores(table) if "printed" in table else []
    table["published"] = _published(table, printed)
    if printed:
        table["printed"] = _printed(table, printed)
    return Contrast(**table)


def _cells(table, common):
    """Take the cells out of a table, and return them as (weight, row) pairs.

    The parts in ``common``, and those that the table has in common for all rows, are added to each
    row. With ``over``, a list of parts, the cells are repeated for each of these.
    """
    common = common | table.pop("common", {})
    cells = product(table.pop("over", [{}]), table.pop("cells", []))
    return tuple((float(weight), common | over | row) for over, (weight, row) in cells)


def _filled(value, names):
    """Return a value with ``{name}`` filled in, in all texts within it."""
    if isinstance(value, str):
        name = value[1:-1] if value[:1] == "{" else ""
        if name in names:  # the whole text: a number stays a number
            return names[name]
        return value.format_map(names) if names else value
    if isinstance(value, list):
        return [_filled(part, names) for part in value]
    if isinstance(value, dict):
        return {name: _filled(part, names) for name, part in value.items()}
    return value


@cache
def _read(source, name):
    if source == "short_texts":
        return paper_short_texts()
    return paper_table(name) if source == "table" else literature(name)


def _numbers(table, reference) -> tuple[float, ...]:
    """Return the paper's numbers that a ``value`` refers to.

    They are in a table of the text paper, the literature or a table of the ClusterBERT paper, or
    stated in the sentence. Metric and data set are the contrast's unless the reference has others.
    """
    if "stated" in reference:
        return (float(reference["number"]),)
    _, numbers, reference = _source_of(reference)
    for name, value in (
        ("metric", table["metric"]),
        ("dataset", table["cells"][0][1].get("dataset")),
    ):
        if name in numbers and value:
            reference.setdefault(name, value)
    return tuple(_matching(numbers, reference)["value"].dropna())


def _printed(table, scores) -> float:
    """Return the paper's own value of a contrast, from the ``scores`` of its rows by data set."""
    means = [np.mean(list(by_dataset.values())) for by_dataset in scores]
    weighted = [weight * mean for (weight, _), mean in zip(table["cells"], means, strict=True)]
    total = round(float(sum(weighted)) - (table.get("value") or 0.0), 6)
    return -total if table["metric"] in LOWER_IS_BETTER else total


def _printed_scores(table) -> list[dict[str, float]]:
    """Return the paper's numbers on each row of a contrast, by data set.

    ``printed`` refers to one table for all rows, or lists a reference for each row. Model, metric
    and so on are those of the row, unless the reference has others or the ``label`` of a line.
    """
    cells, printed = table["cells"], table["printed"]
    references = printed if isinstance(printed, list) else [printed] * len(cells)
    pairs = zip(cells, references, strict=True)
    return [_row_scores(table, row, reference) for (_, row), reference in pairs]


def _row_scores(table, row, reference, complete=True) -> dict[str, float]:
    """Return the paper's numbers on one row, by data set: if ``complete``, one for each."""
    corpora = table["corpora"] or (row.get("dataset"),)
    if "stated" in reference:
        return dict.fromkeys(corpora, float(reference["number"]))
    source, numbers, reference = _source_of(reference)
    if source == "table":
        reference.setdefault("statistic", "mean")
    of_row = {"metric": table["metric"]} | row
    if "label" in reference:
        of_row = {name: of_row[name] for name in ("metric", "dataset") if name in of_row}
    reference = {name: value for name, value in of_row.items() if name in numbers} | reference
    matching = _matching(numbers, reference).dropna(subset="value")
    names = matching["dataset"] if "dataset" in numbers else corpora
    scores = dict(zip(names, matching["value"].astype(float), strict=complete))
    if len(scores) < len(matching):
        raise ClaimError(f"{reference} names several numbers of one data set")
    return {name: scores[name] for name in corpora if complete or name in scores}


def _published(table, printed) -> tuple[dict[str, float], ...]:
    """Return the published scores of each row by data set, where it is a rival and they are known.

    They are the paper's own, ``printed``, and those that ``published`` refers to: of the
    literature, or of the paper's tables where the comparison has no ``printed``.
    """
    cells = table["cells"]
    scores = [dict(own) for own in printed] or [{} for _ in cells]
    reference = table.get("published", {})
    for own, (_, row) in zip(scores, cells, strict=True):
        if "literature" in reference:
            more = _literature_scores(table)
        elif reference:
            more = _row_scores(table, row, reference, complete=False)
        else:
            more = {}
        for dataset, score in more.items():
            own[dataset] = max(score, own.get(dataset, score))
    return tuple(own if weight < 0 else {} for (weight, _), own in zip(cells, scores, strict=True))


def _literature_scores(table) -> dict[str, float]:
    """Return what the literature reports for a rival, by data set."""
    _, numbers, reference = _source_of(table["published"])
    # Other works call it NMI with either mean.
    reference["metric"] = table["metric"].removesuffix("_geometric")
    corpora = table["corpora"] or tuple({row["dataset"] for _, row in table["cells"]})
    scores = _matching(numbers, reference)
    scores = scores[scores["dataset"].isin(corpora)].dropna(subset="value")
    return dict(zip(scores["dataset"], scores["value"], strict=True))


def _matching(numbers, values):
    """Return the rows of a frame that have these values, by column."""
    keep = np.ones(len(numbers), bool)
    for column, value in values.items():
        keep &= (numbers[column] == value).to_numpy()
    return numbers[keep]


def _source_of(reference):
    """Return the name of a reference's source, its numbers, and the rest of the reference."""
    rest = dict(reference)
    source = next(name for name in ("table", "literature", "short_texts") if name in rest)
    return source, _read(source, rest.pop(source)), rest
