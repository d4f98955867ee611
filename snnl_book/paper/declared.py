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
ROW = {"experiment", "dataset", "embedding", "model", "alpha", "temperature", "reading"}
ROW |= {"clusterer", "n_train", "task", "metric"}
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
        published: the rival's published score in the contrast's metric, by data set, where one was
            found.
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
    published: dict[str, float] = field(default_factory=dict)


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
    headline: bool = False
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
                raise ClaimError(f"{path.name} is no TOML: {error}") from error
            claims += _claims(tables, paper, path.name)
    names = [claim.name for claim in claims]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ClaimError(f"two claims have the name {twice[0]!r}")
    return tuple(claims)


def _claims(tables, paper, file):
    """Make the claims of a file, which may also declare readings and the paper's number of runs."""
    _refuse_unknown(tables, {"claim", "readings", "runs"}, file)
    readings = {
        name: _reading(table, name, f"{file}, the reading {name}")
        for name, table in tables.get("readings", {}).items()
    }
    made = []
    for table in tables.get("claim", []):
        where = f"{file}, {table.get('name', 'no name')}"
        claim = _claim(table, paper, where, readings)
        made.append(replace(claim, runs=tables.get("runs")))
    return made


def _reading(table, name, where):
    _refuse_unknown(table, {"says", "rows", "unit", "seeds"}, where)
    _refuse_missing(table | {"name": name}, Reading, where)
    if bool(table.get("rows")) == bool(table.get("seeds")):
        raise ClaimError(f"{where}: a reading changes rows, or chooses seeds")
    rows = []
    for pair in table.get("rows", []):
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], dict)):
            raise ClaimError(f"{where}: rows are pairs of a row and its changes, got {pair!r}")
        for part in pair:
            _refuse_unknown(part, ROW, where)
        rows.append(tuple(pair))
    _refuse_unlisted(table, {"unit": UNITS, "seeds": SEEDS}, where)
    return Reading(name, **(table | {"rows": tuple(rows)}))


def _refuse_unlisted(table, known, where):
    """Raise ClaimError if a table has a value that is not among those known for its key."""
    for key, values in known.items():
        if table.get(key, "") not in ("", *values):
            choice = ", ".join(values)
            raise ClaimError(f"{where}: there is no {key} {table[key]!r}: choose one of {choice}")


def _claim(table, paper, where, readings):
    table = dict(table)
    contrasts = table.pop("contrast", [])
    filled_in = {"paper", "contrasts", "runs"}
    _refuse_unknown(table, {each.name for each in fields(Claim)} - filled_in, where)
    _refuse_missing(table, Claim, where)
    _refuse_unlisted(table, {"seeds": SEEDS}, where)
    if table.get("after_seeing") and table.get("seeds") != "new":
        raise ClaimError(f'{where}: a claim declared after_seeing is judged on the seeds "new"')
    if "replaced" in table and table["replaced"].keys() != {"encoder", "verdict"}:
        raise ClaimError(f"{where}: replaced names the earlier encoder and verdict")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", table["name"]):
        raise ClaimError(f"{where}: a name is made of small letters, digits and hyphens")
    if bool(contrasts) == bool(table.get("not_attempted")):
        raise ClaimError(f"{where}: a claim has contrasts, or says why it is not_attempted")
    made = [
        contrast
        for place, each in enumerate(contrasts, start=1)
        for contrast in _contrasts(each, f"{where}, contrast {place}")
    ]
    for name in table.get("readings", []):
        if name not in readings:
            raise ClaimError(f"{where}: there is no reading {name!r} in its file")
        if readings[name].rows and all(readings[name].applied(each) is each for each in made):
            raise ClaimError(f"{where}: the reading {name!r} changes none of its comparisons")
    table["readings"] = tuple(readings[name] for name in table.get("readings", []))
    return Claim(**table, paper=paper, contrasts=tuple(made))


# ---------------------------------------------------------------- contrasts

_CONTRAST = {each.name for each in fields(Contrast)}


def _contrasts(table, where) -> Iterator[Contrast]:
    """Make the contrasts of a table, one for each combination of what ``each`` lists.

    What is named as a part of a contrast or of a row is one; any name fills ``{name}`` in texts.
    """
    each = table.get("each", {})
    _refuse_unknown(table, (_CONTRAST - {"reported"}) | {"each", "common", "over"}, where)
    for name, values in each.items():
        if not isinstance(values, list):
            raise ClaimError(f"{where}: each lists values, and {name} is {values!r}")
        if name not in ROW | _CONTRAST and f"{{{name}}}" not in str(table):
            raise ClaimError(f"{where}: nothing has a {{{name}}} for what each lists")
    for values in product(*each.values()):
        yield _contrast(table, dict(zip(each, values, strict=True)), where)


def _contrast(table, names, where):
    """Make one contrast of a table, with ``names`` filled in.

    With ``over``, rows, the cells are repeated for each of them.
    """
    try:
        table = {name: _filled(value, names) for name, value in table.items() if name != "each"}
    except KeyError as error:
        raise ClaimError(f"{where}: {{{error.args[0]}}} is not among what each lists") from error
    common, cells = table.pop("common", {}), table.pop("cells", [])
    common = {name: names[name] for name in names if name in ROW - _CONTRAST} | common
    table |= {name: names[name] for name in names.keys() & _CONTRAST}
    rows = []
    for over, cell in product(table.pop("over", [{}]), cells):
        if not (isinstance(cell, list) and len(cell) == 2 and isinstance(cell[1], dict)):
            raise ClaimError(f"{where}: a cell is a weight and a row, got {cell!r}")
        rows.append((float(cell[0]), common | over | cell[1]))
        _refuse_unknown(rows[-1][1], ROW, where)
    table |= {"cells": tuple(rows), "corpora": tuple(table.get("corpora", ()))}
    _refuse_missing(table, Contrast, where)
    if table.get("test") == "rank" and "value" in table:
        table["reported"] = _numbers(table, table.pop("value"), where)
    elif "value" in table:
        table["value"], *more = _numbers(table, table["value"], where)
        if more:
            raise ClaimError(f"{where}: the value names {len(more) + 1} numbers")
    if "printed" in table:
        table["printed"] = _printed(table, where)
    if "published" in table:
        table["published"] = _published(table, where)
    contrast = Contrast(**table)
    _check(contrast, where)
    return contrast


def _filled(value, names):
    """Fill ``{name}`` in texts, however deep they lie."""
    if isinstance(value, str):
        whole = value[1:-1] if value[:1] == "{" else ""  # a number stays one
        return names[whole] if whole in names else value.format_map(names) if names else value
    if isinstance(value, list):
        return [_filled(each, names) for each in value]
    if isinstance(value, dict):
        return {name: _filled(each, names) for name, each in value.items()}
    return value


def _check(contrast, where):
    """Raise ClaimError if the parts of a contrast do not go together."""
    for what, known in (("test", TESTS), ("unit", UNITS), ("words", ("", *WORDS))):
        if (given := getattr(contrast, what)) not in known:
            choice = ", ".join(filter(None, known))
            raise ClaimError(f"{where}: there is no {what} {given!r}: choose one of {choice}")
    won = sum(weight > 0 for weight, _ in contrast.cells)
    quoted = contrast.value is not None or contrast.reported
    won_all = won == len(contrast.cells) > 0
    for wrong, why in (
        (not (contrast.cells or contrast.not_attempted), "a contrast has cells"),
        (contrast.cells and not won, "a claimed winner has a positive weight"),
        (contrast.test == "rank" and won != 1, "a rank is that of one winner"),
        (contrast.test in ("= v", "at least v") and contrast.value is None, "its test has a value"),
        (won_all and not quoted, "a winner has a rival, or a value"),
        (contrast.rank != 1 and contrast.test != "rank", "a place is that of the test rank"),
        (
            contrast.words and (contrast.words == "on par") != (contrast.test == "at least v"),
            "on par goes with at least v, and nothing else does",
        ),
        (
            contrast.words not in ("", "on par") and contrast.test not in ("> 0", "within"),
            "words go with > 0 or within",
        ),
        (contrast.best is not None and contrast.unit == "corpus", "the best is one of seeds"),
        (contrast.best is not None and contrast.best < 2, "the best is one of two or more"),
        ((contrast.unit == "corpus") != bool(contrast.corpora), "corpora go with the unit corpus"),
        (
            any(("dataset" in row) == bool(contrast.corpora) for _, row in contrast.cells),
            "a row has a dataset, unless corpora are the units",
        ),
        (any("experiment" not in row for _, row in contrast.cells), "a row has an experiment"),
    ):
        if wrong:
            raise ClaimError(f"{where}: {why}")


_KNOWN = {"table": (1, 2, 3, 4), "literature": ("images", "short-texts"), "short_texts": (True,)}
"""Where the papers' and the literature's numbers are."""


@cache
def _read(kind, which):
    if kind == "short_texts":
        return paper_short_texts()
    return paper_table(which) if kind == "table" else literature(which)


def _numbers(table, asked, where) -> tuple[float, ...]:
    """Look up the paper's numbers that a ``value`` names: at least one.

    In a table of the text paper, the literature, a table of the ClusterBERT paper, or as stated in
    the sentence. Metric and data set are the contrast's own unless it names others.
    """
    if not isinstance(asked, dict):
        raise ClaimError(f"{where}: a value is never typed, it names the paper's number")
    if asked.keys() == {"stated", "number"}:
        return (float(asked["number"]),)
    asked = dict(asked)
    kind, numbers = _numbers_asked_for(asked, where)
    own = {"metric": table["metric"], "dataset": table["cells"][0][1].get("dataset")}
    asked = {name: own[name] for name in own if name in numbers and own[name]} | asked
    _refuse_unknown(asked, {*numbers.columns} - {"value"}, f"{where}, value")
    numbers = tuple(_chosen(numbers, asked)["value"].dropna())
    if not numbers:
        raise ClaimError(f"{where}: the value {asked} names no number of the {kind}")
    return numbers


def _printed(table, where) -> float:
    """Add up the paper's numbers on the rows of a contrast as the contrast does its own.

    ``printed`` names one table for all rows, or lists where each row's number is; of a row's number
    model, metric and so on are the row's own unless it names others, or the ``label`` of a line.
    """
    if table.get("test") not in ("> 0", "within"):
        raise ClaimError(f"{where}: printed goes with the tests > 0 and within")
    asked = table["printed"]
    if isinstance(asked, dict) and asked.keys() == {"stated", "number"}:
        return float(asked["number"])
    each = asked if isinstance(asked, list) else [asked] * len(table["cells"])
    if len(each) != len(table["cells"]):
        raise ClaimError(f"{where}: printed lists a number for each row")
    total = 0.0
    for (weight, row), one in zip(table["cells"], each, strict=True):
        total += weight * _row_number(table, row, one, f"{where}, printed")
    total -= table.get("value") or 0.0
    total = round(total, 6)
    return -total if table["metric"] in LOWER_IS_BETTER else total


def _row_number(table, row, asked, where):
    """Look up the paper's number on one row, of several corpora their mean."""
    if asked.keys() == {"stated", "number"}:
        return float(asked["number"])
    asked = dict(asked)
    kind, numbers = _numbers_asked_for(asked, where)
    if kind == "table":
        asked.setdefault("statistic", "mean")
    _refuse_unknown(asked, {*numbers.columns} - {"value"}, where)
    own = {"metric": table["metric"]} | row
    if "label" in asked:
        own = {name: own[name] for name in ("metric", "dataset") if name in own}
    own = {name: value for name, value in own.items() if name in numbers}
    found = _chosen(numbers, own | asked)
    corpora = table["corpora"] or (row.get("dataset"),)
    if "dataset" in numbers:
        found = found[found["dataset"].isin(corpora)]
    wanted = len(corpora) if "dataset" in numbers else 1
    if len(found) != wanted or found["value"].isna().any():
        raise ClaimError(f"{where}: {own | asked} names {len(found)} numbers, not {wanted}")
    return float(found["value"].mean())


def _published(table, where) -> dict[str, float]:
    """Look up the published scores of a rival, by data set. Those not found anywhere are left out.

    Raises ClaimError if the literature does not have the rival at all.
    """
    asked = dict(table["published"])
    kind, numbers = _numbers_asked_for(asked, where)
    if kind != "literature":
        raise ClaimError(f"{where}: a published score is one of the literature")
    _refuse_unknown(asked, {"method"}, f"{where}, published")
    if not any(weight < 0 for weight, _ in table["cells"]):
        raise ClaimError(f"{where}: a published score is that of a rival among the rows")
    found = _chosen(numbers, asked)
    if found.empty:
        raise ClaimError(f"{where}: the literature has no method {asked.get('method')!r}")
    # Others write NMI, whichever mean it has.
    found = _chosen(found, {"metric": table["metric"].removesuffix("_geometric")})
    corpora = table["corpora"] or tuple({row["dataset"] for _, row in table["cells"]})
    found = found[found["dataset"].isin(corpora)].dropna(subset="value")
    return dict(zip(found["dataset"], found["value"], strict=True))


def _chosen(numbers, wanted):
    for column, value in wanted.items():
        numbers = numbers[numbers[column] == value]
    return numbers


def _numbers_asked_for(asked, where):
    """Take the name of a source of numbers out of ``asked``, and return it and its numbers."""
    kind = next((name for name in _KNOWN if name in asked), None)
    if kind is None or asked[kind] not in _KNOWN[kind]:
        raise ClaimError(f"{where}: a value names a table, literature, short_texts or stated")
    return kind, _read(kind, asked.pop(kind))


def _refuse_unknown(table, known, where):
    if unknown := sorted(table.keys() - known):
        choice = ", ".join(sorted(known))
        raise ClaimError(f"{where}: there is no key {unknown[0]!r}: choose from {choice}")


def _refuse_missing(table, kind, where):
    needed = [each.name for each in fields(kind) if each.default is each.default_factory is MISSING]
    if missing := [name for name in needed if table.get(name) in (None, "")]:
        raise ClaimError(f"{where}: {missing[0]} is missing")
