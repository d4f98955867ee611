"""The papers' claims as they are declared in ``claims/*.toml``: each a list of contrasts.

What a declaration may say is checked here, and against the plan by ``report.judgement``.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields, replace
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

TESTS = ("> 0", "within", "= v", "at least v", "rank", "more than half")
WORDS = ("marginal", "slim", "sharply", "by a wide margin", "on par")
UNITS = ("seed", "encoder", "corpus")
ROW = {
    *("experiment", "dataset", "embedding", "model", "alpha", "temperature", "reading"),
    *("clusterer", "n_train", "task", "metric"),
}
LOWER_IS_BETTER = {"dbi", "snn", "common", "loss", "kl", "epochs_to_pure"}
SEEDS = ("paper", "new")
"""Seeds that a claim or a reading may be limited to: the paper's own, or those made afterwards."""
MOST = "most"
"""In place of a row's ``n_train``: the largest number of documents with the most seeds."""


class ClaimError(SnnlError):
    """A claim is not declared as it has to be."""


@dataclass(frozen=True)
class Contrast:
    """One comparison of weighted cells.

    Args:
        says: what is compared, for a table.
        test: one of ``TESTS``.
        metric: as records name it; ``name@epoch`` is read from the curve.
        cells: (weight, row) pairs, the claimed winner with a positive weight; a row tells a cell of
            the plan by some of the names in ``ROW``.
        unit: over what the interval is taken, one of ``UNITS``.
        words: one of ``WORDS``, where the sentence has such a word.
        value: the paper's number.
        rank, reported: of a rank the place, and the numbers that others report.
        best: the statistic is the best of so many seeds.
        corpora: the units, where these are corpora.
        not_attempted: why nothing tests it; with cells, why none of their runs is recorded.
        chosen_afterwards: its reading was chosen because it comes near the paper's numbers; it is
            shown, and enters no verdict.
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
    chosen_afterwards: bool = False
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
        seeds: one of ``SEEDS``, where the reading is a choice of seeds.
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
        seeds: one of ``SEEDS``, the only ones that it is judged on; empty: all.
        replaced: where the claim was moved to another encoder, the ``encoder`` that it was tested
            with before and the ``verdict`` it had.
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
    replaced: dict[str, str] = field(default_factory=dict)
    paper: str = ""
    runs: int | None = None
    contrasts: tuple[Contrast, ...] = ()


def registered_claims(folder: Path | None = None) -> tuple[Claim, ...]:
    """Read the claims of all papers from ``text.toml``, ``image.toml`` and ``clusterbert.toml``.

    ``folder``: where they lie (default: the library's own). A paper without a file has none. Raises
    ClaimError, naming the file, the claim and what is wrong.
    """
    folder = Path(__file__).with_name("claims") if folder is None else Path(folder)
    claims = []
    for paper in PAPERS:
        path = folder / f"{paper.lower()}.toml"
        if path.exists():
            try:
                tables = tomllib.loads(path.read_text("utf-8"))
            except tomllib.TOMLDecodeError as error:
                raise ClaimError(f"{path.name} is not valid TOML: {error}") from error
            claims += _claims(tables, paper, path.name)
    names = [claim.name for claim in claims]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ClaimError(f"two claims have the name {repeated[0]!r}: rename one")
    return tuple(claims)


def _claims(tables, paper, file):
    """Make the claims of a file, which may also declare readings and the paper's number of runs."""
    _refuse_unknown(tables, {"claim", "readings", "runs"}, file)
    readings = {
        name: _reading(table, name, f"{file}, the reading {name}")
        for name, table in tables.get("readings", {}).items()
    }
    claims = []
    for table in tables.get("claim", []):
        location = f"{file}, {table.get('name', 'no name')}"
        claim = _claim(table, paper, location, readings)
        claims.append(replace(claim, runs=tables.get("runs")))
    return claims


def _reading(table, name, location):
    _refuse_unknown(table, {"says", "rows", "unit", "seeds"}, location)
    _refuse_missing(table | {"name": name}, Reading, location)
    if bool(table.get("rows")) == bool(table.get("seeds")):
        raise ClaimError(f"{location}: a reading must either change rows or choose seeds")
    rows = []
    for pair in table.get("rows", []):
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], dict)):
            raise ClaimError(
                f"{location}: rows must be pairs of a row and its changes, got {pair!r}"
            )
        for part in pair:
            _refuse_unknown(part, ROW, location)
        rows.append(tuple(pair))
    _refuse_unlisted(table, {"unit": UNITS, "seeds": SEEDS}, location)
    return Reading(name, **(table | {"rows": tuple(rows)}))


def _refuse_unlisted(table, values_of, location):
    """Raise ClaimError if a table has a value that ``values_of`` does not list for its key."""
    for key, values in values_of.items():
        if table.get(key, "") not in ("", *values):
            choice = ", ".join(values)
            raise ClaimError(
                f"{location}: there is no {key} {table[key]!r}: choose one of {choice}"
            )


def _claim(table, paper, location, readings):
    table = dict(table)
    contrasts = table.pop("contrast", [])
    filled_in = {"paper", "contrasts", "runs"}
    _refuse_unknown(table, {part.name for part in fields(Claim)} - filled_in, location)
    _refuse_missing(table, Claim, location)
    _refuse_unlisted(table, {"seeds": SEEDS}, location)
    if table.get("after_seeing") and table.get("seeds") != "new":
        raise ClaimError(f'{location}: a claim declared after_seeing must have the seeds "new"')
    if "replaced" in table and table["replaced"].keys() != {"encoder", "verdict"}:
        raise ClaimError(f"{location}: replaced must name the earlier encoder and verdict")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", table["name"]):
        raise ClaimError(
            f"{location}: a name must consist of lower-case letters, digits and hyphens"
        )
    if bool(contrasts) == bool(table.get("not_attempted")):
        raise ClaimError(
            f"{location}: a claim must either have contrasts or say why it is not_attempted"
        )
    contrasts = [
        contrast
        for number, declaration in enumerate(contrasts, start=1)
        for contrast in _contrasts(declaration, f"{location}, contrast {number}")
    ]
    for name in table.get("readings", []):
        if name not in readings:
            raise ClaimError(f"{location}: there is no reading {name!r} in this file")
        unchanged = [readings[name].applied(contrast) is contrast for contrast in contrasts]
        if readings[name].rows and all(unchanged):
            raise ClaimError(f"{location}: the reading {name!r} changes none of its comparisons")
    table["readings"] = tuple(readings[name] for name in table.get("readings", []))
    return Claim(**table, paper=paper, contrasts=tuple(contrasts))


# ---------------------------------------------------------------- contrasts

_CONTRAST = {part.name for part in fields(Contrast)}


def _contrasts(table, location) -> Iterator[Contrast]:
    """Yield the contrasts of a table, one for each combination of the values that ``each`` lists.

    A value whose name is that of a contrast's or a row's part becomes this part. Every value fills
    ``{name}`` in texts.
    """
    lists = table.get("each", {})
    _refuse_unknown(table, (_CONTRAST - {"reported"}) | {"each", "common", "over"}, location)
    for name, values in lists.items():
        if not isinstance(values, list):
            raise ClaimError(
                f"{location}: under each, {name} must be a list of values, got {values!r}"
            )
        if name not in ROW | _CONTRAST and f"{{{name}}}" not in str(table):
            raise ClaimError(
                f"{location}: each lists values of {name}, but nothing contains {{{name}}}"
            )
    for values in product(*lists.values()):
        yield _contrast(table, dict(zip(lists, values, strict=True)), location)


def _contrast(table, names, location):
    """Make one contrast of a table, with the values of ``names`` filled in."""
    try:
        table = {name: _filled(value, names) for name, value in table.items() if name != "each"}
    except KeyError as error:
        raise ClaimError(f"{location}: each lists no values for {{{error.args[0]}}}") from error
    table.update({name: value for name, value in names.items() if name in _CONTRAST})
    common = {name: value for name, value in names.items() if name in ROW - _CONTRAST}
    table["cells"] = _cells(table, common, location)
    table["corpora"] = tuple(table.get("corpora", ()))
    _refuse_missing(table, Contrast, location)
    if table.get("test") == "rank" and "value" in table:
        table["reported"] = _numbers(table, table.pop("value"), location)
    elif "value" in table:
        numbers = _numbers(table, table["value"], location)
        if len(numbers) > 1:
            raise ClaimError(
                f"{location}: the value names {len(numbers)} numbers, but must name one"
            )
        table["value"] = numbers[0]
    printed = _printed_scores(table, location) if "printed" in table else []
    table["published"] = _published(table, printed, location)
    if printed:
        table["printed"] = _printed(table, printed)
    contrast = Contrast(**table)
    _check(contrast, location)
    return contrast


def _cells(table, common, location):
    """Take the cells out of a table, and return them as (weight, row) pairs.

    The parts in ``common``, and those that the table has in common for all rows, are added to each
    row. With ``over``, a list of parts, the cells are repeated for each of these.
    """
    common = common | table.pop("common", {})
    cells = []
    for over, cell in product(table.pop("over", [{}]), table.pop("cells", [])):
        if not (isinstance(cell, list) and len(cell) == 2 and isinstance(cell[1], dict)):
            raise ClaimError(f"{location}: a cell must be a weight and a row, got {cell!r}")
        weight, row = cell
        row = common | over | row
        _refuse_unknown(row, ROW, location)
        cells.append((float(weight), row))
    return tuple(cells)


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


def _check(contrast, location):
    """Raise ClaimError if the parts of a contrast do not go together."""
    for name, values in (("test", TESTS), ("unit", UNITS), ("words", ("", *WORDS))):
        value = getattr(contrast, name)
        if value not in values:
            choice = ", ".join(filter(None, values))
            raise ClaimError(f"{location}: there is no {name} {value!r}: choose one of {choice}")
    winners = sum(weight > 0 for weight, _ in contrast.cells)
    quoted = contrast.value is not None or contrast.reported
    only_winners = winners == len(contrast.cells) > 0
    for is_wrong, rule in (
        (not (contrast.cells or contrast.not_attempted), "a contrast must have cells"),
        (contrast.cells and not winners, "the claimed winner must have a positive weight"),
        (contrast.test == "rank" and winners != 1, "the test rank needs exactly one winner"),
        (
            contrast.test in ("= v", "at least v") and contrast.value is None,
            "its test needs a value",
        ),
        (only_winners and not quoted, "a winner needs a rival or a value"),
        (contrast.rank != 1 and contrast.test != "rank", "a rank other than 1 needs the test rank"),
        (
            contrast.words and (contrast.words == "on par") != (contrast.test == "at least v"),
            "the words on par and the test at least v must be used together",
        ),
        (
            contrast.words not in ("", "on par") and contrast.test not in ("> 0", "within"),
            "other words need the test > 0 or within",
        ),
        (
            contrast.best is not None and contrast.unit == "corpus",
            "best does not work with the unit corpus",
        ),
        (contrast.best is not None and contrast.best < 2, "best must be at least 2"),
        (
            (contrast.unit == "corpus") != bool(contrast.corpora),
            "corpora and the unit corpus must be used together",
        ),
        (
            any(("dataset" in row) == bool(contrast.corpora) for _, row in contrast.cells),
            "a row must name its dataset, unless corpora are the units",
        ),
        (
            any("experiment" not in row for _, row in contrast.cells),
            "a row must name its experiment",
        ),
    ):
        if is_wrong:
            raise ClaimError(f"{location}: {rule}")


_SOURCES = {"table": (1, 2, 3, 4), "literature": ("images", "short-texts"), "short_texts": (True,)}
"""Where the papers' and the literature's numbers are."""


@cache
def _read(source, name):
    if source == "short_texts":
        return paper_short_texts()
    return paper_table(name) if source == "table" else literature(name)


def _numbers(table, reference, location) -> tuple[float, ...]:
    """Return the paper's numbers that a ``value`` refers to, at least one.

    They are in a table of the text paper, the literature or a table of the ClusterBERT paper, or
    stated in the sentence. Metric and data set are the contrast's unless the reference has others.
    """
    if not isinstance(reference, dict):
        raise ClaimError(f"{location}: a value must refer to the paper's number, got {reference!r}")
    if reference.keys() == {"stated", "number"}:
        return (float(reference["number"]),)
    source, numbers, reference = _source_of(reference, location)
    for name, value in (
        ("metric", table["metric"]),
        ("dataset", table["cells"][0][1].get("dataset")),
    ):
        if name in numbers and value:
            reference.setdefault(name, value)
    _refuse_unknown(reference, {*numbers.columns} - {"value"}, f"{location}, value")
    values = tuple(_matching(numbers, reference)["value"].dropna())
    if not values:
        raise ClaimError(f"{location}: the value {reference} names no number of the {source}")
    return values


def _printed(table, scores) -> float:
    """Return the paper's own value of a contrast, from the ``scores`` of its rows by data set."""
    means = [np.mean(list(by_dataset.values())) for by_dataset in scores]
    weighted = [weight * mean for (weight, _), mean in zip(table["cells"], means, strict=True)]
    total = round(float(sum(weighted)) - (table.get("value") or 0.0), 6)
    return -total if table["metric"] in LOWER_IS_BETTER else total


def _printed_scores(table, location) -> list[dict[str, float]]:
    """Return the paper's numbers on each row of a contrast, by data set.

    ``printed`` refers to one table for all rows, or lists a reference for each row. Model, metric
    and so on are those of the row, unless the reference has others or the ``label`` of a line.
    """
    if table.get("test") not in ("> 0", "within"):
        raise ClaimError(f"{location}: printed needs the test > 0 or within")
    cells, printed = table["cells"], table["printed"]
    references = printed if isinstance(printed, list) else [printed] * len(cells)
    if len(references) != len(cells) or "stated" in printed:
        raise ClaimError(f"{location}: printed must list a number for each row")
    return [
        _row_scores(table, row, reference, f"{location}, printed")
        for (_, row), reference in zip(cells, references, strict=True)
    ]


def _row_scores(table, row, reference, location, complete=True) -> dict[str, float]:
    """Return the paper's numbers on one row, by data set: if ``complete``, one for each.

    Otherwise data sets may be missing, but none may have two numbers.
    """
    corpora = table["corpora"] or (row.get("dataset"),)
    if reference.keys() == {"stated", "number"}:
        return dict.fromkeys(corpora, float(reference["number"]))
    source, numbers, reference = _source_of(reference, location)
    if source == "table":
        reference.setdefault("statistic", "mean")
    _refuse_unknown(reference, {*numbers.columns} - {"value"}, location)
    of_row = {"metric": table["metric"]} | row
    if "label" in reference:
        of_row = {name: of_row[name] for name in ("metric", "dataset") if name in of_row}
    reference = {name: value for name, value in of_row.items() if name in numbers} | reference
    matching = _matching(numbers, reference)
    if "dataset" in numbers:
        matching = matching[matching["dataset"].isin(corpora)]
    if not complete:
        matching = matching.dropna(subset="value")
    count = len(matching)
    is_wrong = count != len(corpora) if complete else count > len(corpora)
    if is_wrong or matching["value"].isna().any():
        raise ClaimError(f"{location}: {reference} names {count} numbers, not {len(corpora)}")
    datasets = matching["dataset"] if "dataset" in numbers else corpora
    return dict(zip(datasets, matching["value"].astype(float), strict=False))


def _published(table, printed, location) -> tuple[dict[str, float], ...]:
    """Return the published scores of each row by data set, where it is a rival and they are known.

    They are the paper's own, ``printed``, and those that ``published`` refers to: of the
    literature, or of the paper's tables where the comparison has no ``printed``.
    """
    cells = table["cells"]
    if "published" in table and not any(weight < 0 for weight, _ in cells):
        raise ClaimError(f"{location}: a published score needs a rival among the rows")
    scores = [dict(own) for own in printed] or [{} for _ in cells]
    reference = table.get("published", {})
    for own, (_, row) in zip(scores, cells, strict=True):
        if "literature" in reference:
            more = _literature_scores(table, location)
        elif reference:
            more = _row_scores(table, row, reference, f"{location}, published", complete=False)
        else:
            more = {}
        for dataset, score in more.items():
            own[dataset] = max(score, own.get(dataset, score))
    return tuple(own if weight < 0 else {} for (weight, _), own in zip(cells, scores, strict=True))


def _literature_scores(table, location) -> dict[str, float]:
    """Return what the literature reports for a rival, by data set."""
    source, numbers, reference = _source_of(table["published"], location)
    if source != "literature":
        raise ClaimError(f"{location}: a published score must come from the literature")
    _refuse_unknown(reference, {"method"}, f"{location}, published")
    scores = _matching(numbers, reference)
    if scores.empty:
        raise ClaimError(f"{location}: the literature has no method {reference.get('method')!r}")
    # Other works call it NMI with either mean.
    scores = _matching(scores, {"metric": table["metric"].removesuffix("_geometric")})
    corpora = table["corpora"] or tuple({row["dataset"] for _, row in table["cells"]})
    scores = scores[scores["dataset"].isin(corpora)].dropna(subset="value")
    return dict(zip(scores["dataset"], scores["value"], strict=True))


def _matching(numbers, values):
    """Return the rows of a frame that have these values, by column."""
    keep = np.ones(len(numbers), bool)
    for column, value in values.items():
        keep &= (numbers[column] == value).to_numpy()
    return numbers[keep]


def _source_of(reference, location):
    """Return the name of a reference's source, its numbers, and the rest of the reference."""
    rest = dict(reference)
    source = next((name for name in _SOURCES if name in rest), None)
    if source is None or rest[source] not in _SOURCES[source]:
        raise ClaimError(
            f"{location}: a value must name a table, literature, short_texts or stated"
        )
    return source, _read(source, rest.pop(source)), rest


def _refuse_unknown(table, keys, location):
    if unknown := sorted(table.keys() - keys):
        choice = ", ".join(sorted(keys))
        raise ClaimError(f"{location}: there is no key {unknown[0]!r}: choose from {choice}")


def _refuse_missing(table, declared_class, location):
    """Raise ClaimError if a table lacks a field of a class that has no default."""
    for field_ in fields(declared_class):
        has_default = field_.default is not MISSING or field_.default_factory is not MISSING
        if not has_default and table.get(field_.name) in (None, ""):
            raise ClaimError(f"{location}: {field_.name} is missing")
