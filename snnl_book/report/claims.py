"""The papers' claims, judged by rule 3 from the records."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from snnl_book.experiments import EXPERIMENTS, PAPER_SEEDS
from snnl_book.experiments.cells import DRAWN, NEW_SEEDS
from snnl_book.experiments.grades import grade
from snnl_book.paper import PAPERS, Claim, ClaimError, Reading, declared, registered_claims
from snnl_book.report import contrasts
from snnl_book.report.judgement import Judged, Setting, judge_contrast
from snnl_book.report.rows import Book
from snnl_book.report.select import select
from snnl_book.report.tables import show_ends

__all__ = ["PAPERS", "VERDICTS", "describe", "earlier", "in_short", "judge", "listed", "of", "said"]
__all__ += ["tested", "verdicts", "word"]

VERDICTS = ("holds", "holds in part", "mixed", "open", "fails in part", "fails", "not tested")
"""All verdicts there are."""
LIMITED = {"paper": frozenset(PAPER_SEEDS), "new": frozenset(NEW_SEEDS)}
"""The seeds that a claim or a reading may be limited to."""
UNITS = {"seed": "seeds", "encoder": "encoders", "corpus": "corpora"}
COLLAPSED = Reading("collapsed", "without collapsed runs")
ALL_SEEDS = Reading("all-seeds", "by all seeds, those seen before the declaration too")
RULES = {"rule 1": "rule-1.csv", "rule 2": "rule-2.csv", "rule 3 before": "rule-3-before.csv"}
"""Earlier verdicts, frozen; ``rule 3 before`` judges the records that rule 2 was judged on."""


def judge(
    records: pd.DataFrame | None = None,
    seeds: Sequence[int] | None = None,
    claims: Sequence[Claim] | None = None,
) -> pd.DataFrame:
    """Judge all claims by rule 3, one row per claim.

    Args:
        records: as ``select`` returns them (default: all of the experiments that claims name).
        seeds: take these alone (default: all that are recorded).
        claims: as ``registered_claims`` returns them (default: those of the papers).

    Returns the columns of ``COLUMNS``: ``kind`` is the verdict, one of ``VERDICTS`` with its
    counts; ``verdict`` adds what it depends on; ``readings`` maps each reading to its verdict;
    ``contrasts`` holds a dictionary per comparison. Raises ClaimError if a declaration names no
    cell of the plan, or several.
    """
    claims = registered_claims() if claims is None else claims
    book = Book(_records_of(claims, seeds) if records is None else records)
    chosen = None if seeds is None else frozenset(seeds)
    made = [_judged(claim, book, Setting(_seeds(claim.seeds, chosen))) for claim in claims]
    adjusted = _adjusted(made)
    frozen = {name: earlier(name) for name in RULES}
    rows = []
    for claim, judged in zip(claims, made, strict=True):
        readings = _by_readings(claim, judged, book, chosen)
        rows.append(_row(claim, judged, readings, adjusted, frozen))
    return pd.DataFrame(rows, columns=COLUMNS)


def of(chapter: str, seeds: Sequence[int] | None = None) -> pd.DataFrame:
    """Judge all claims by these seeds (default: all that are recorded), and keep the rows of
    ``judge`` that belong to a chapter.

    Raises ClaimError if none does.
    """
    judged = judge(seeds=seeds)
    if chapter not in set(judged["chapter"]):
        known = ", ".join(sorted(set(judged["chapter"])))
        raise ClaimError(f"no claim belongs to the chapter {chapter!r}: choose one of {known}")
    return judged[judged["chapter"] == chapter].reset_index(drop=True)


def verdicts(judged: pd.DataFrame) -> pd.DataFrame:
    """Make a table of claims from rows of ``judge``.

    Columns: claim, the paper, ours, size, verdict, grade, records.
    """
    ours = [_ours(row) for row in judged.itertuples()]
    columns = ["claim", "reported", "size", "verdict", "grade", "records"]
    shown = judged[columns].assign(ours=ours).rename(columns={"reported": "the paper"})
    return shown[["claim", "the paper", "ours", "size", "verdict", "grade", "records"]]


def listed(judged: pd.DataFrame) -> str:
    """List rows of ``judge`` in Markdown, one line per claim: sentence, verdict, where the paper
    makes it, the paper's number and ours.
    """
    lines = [
        f"- **{row.verdict.split('; ')[0].capitalize()}**: {row.claim} ({row.where})."
        f" The paper: {row.reported}. Ours: {_ours(row)}."
        for row in judged.itertuples()
    ]
    more = "[The claims](claims.md) has every comparison behind them, with intervals and grades."
    return "\n".join([*lines, "", more])


def tested(judged: pd.DataFrame) -> pd.DataFrame:
    """Make a table of comparisons from rows of ``judge``.

    Columns: claim, comparison, test, ours, 95 % interval, the paper, over (units), direction, size,
    adjusted p, records.
    """
    names = {"says": "comparison", "interval": "95 % interval", "counted": "over"}
    rows = [
        {"claim": claim} | {names.get(name, name): value for name, value in each.items()}
        for claim, comparisons in zip(judged["claim"], judged["contrasts"], strict=True)
        for each in comparisons
    ]
    columns = ["claim", "comparison", "test", "ours", "95 % interval", "the paper", "over"]
    columns += ["direction", "size", "adjusted p", "records"]
    return pd.DataFrame(rows, columns=columns)


def said(judged: pd.DataFrame, says: str = "") -> str:
    """Return what one comparison of rows of ``judge`` found: mean, 95 % interval and units.

    It is the first one that ``says`` these words; without words, the first of all. A comparison
    without a number gives the reason. Raises ClaimError if none says so.

    >>> said(of("11_images", seeds=()))
    'not recorded (0 seeds)'
    """
    found = [each for own in judged["contrasts"] for each in own if says in ("", each["says"])]
    if not found:
        raise ClaimError(f"no comparison of these claims says {says!r}: see claims.tested")
    spread = f"95 % interval {found[0]['interval']}, " if found[0]["units"] > 1 else ""
    return f"{found[0]['ours'].partition(' (')[0]} ({spread}{found[0]['counted']})"


def describe(claim: dict) -> str:
    """Describe a row of ``judge``: the claim, its comparisons, and the verdicts of all rules."""
    lines = [f"{claim['name']}: {claim['claim']}", f"  {claim['paper']}, {claim['where']}"]
    for each in claim["contrasts"]:
        wins = f", {each['wins']} of {len(each['corpora'])} above 0" if each["corpora"] else ""
        seeds = f", seeds: {each['seeds']}" if each["unit"] != "seed" else ""
        note = f" ({each['note']})" if each["note"] else ""
        size = f", {each['size']} (the paper: {each['the paper']})" if each["size"] else ""
        found = f"{each['ours']}, {each['interval']}; {each['counted']}{wins}{seeds}: "
        found = found if each["units"] else ""
        lines += [f"  - {each['says']} [{each['test']}]"]
        lines += [f"    {found}{each['direction']}{size}{note}"]
    lines += [f"  {name}: {claim[name]}" for name in ("seeds", "corpora", "grade")]
    lines += [f"  {says}: {kind}" for says, kind in claim["readings"].items()]
    lines += [f"  {name}: {claim[name]}" for name in RULES]
    return "\n".join([*lines, f"  rule 3: {claim['verdict']}"])


def in_short(judged: pd.DataFrame) -> str:
    """Count the verdicts of rows of ``judge``, the most frequent first: "5 holds, 3 open"."""
    counts = judged["kind"].map(word).value_counts()
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())


def word(verdict: str) -> str:
    """Return a verdict without its counts and what it depends on.

    >>> word("holds in part (2 of 3)"), word("not tested; provisional")
    ('holds in part', 'not tested')
    """
    return verdict.split(" (")[0].split(";")[0]


def earlier(rule: str) -> dict[str, str]:
    """Read the frozen verdicts of one of ``RULES``, by the claim's name (rule 1: or sentence)."""
    path = Path(declared.__file__).with_name("claims") / RULES[rule]
    table = pd.read_csv(path, comment="#", dtype=str, keep_default_na=False)
    return dict(zip(table["claim"], table["verdict"], strict=True))


COLUMNS = ["name", "claim", "paper", "chapter", "where", "reported", "ours", "interval", "units"]
COLUMNS += ["seeds", "corpora", "grade", "size", "verdict", "kind", "readings", "provisional"]
COLUMNS += ["headline", *RULES, "changes", "changed", "records", "contrasts"]


def _records_of(claims, seeds):
    rows = [row for c in claims for each in c.contrasts for _, row in each.cells]
    rows += [
        changes
        for claim in claims
        for reading in claim.readings
        for _, changes in reading.rows
        if "experiment" in changes
    ]
    names = dict.fromkeys(row["experiment"] for row in rows)
    found = [select(name, seeds=seeds) for name in names if name in EXPERIMENTS]
    return pd.concat(found, ignore_index=True) if found else select("clustering", seeds=())


def _seeds(limit, chosen):
    """Return the seeds that are among the chosen ones and within a limit of ``LIMITED``."""
    own = LIMITED.get(limit)
    return own if chosen is None else chosen if own is None else own & chosen


def _judged(claim, book, setting, reading=None):
    """Judge a claim's comparisons, under a reading if one is given."""
    made = []
    for contrast in claim.contrasts:
        asked = reading.applied(contrast) if reading else contrast
        try:
            judged = judge_contrast(asked, book, setting, claim.runs or 1)
        except ClaimError as error:
            raise ClaimError(f"{claim.name}, {contrast.says!r}: {error}") from None
        made.append(judged)
    return made


def _by_readings(claim, judged, book, chosen):
    """Judge a claim again under each reading that has runs: what differs -> verdict."""
    verdicts, own = {}, _seeds(claim.seeds, chosen)
    if any(run.status == "collapsed" for each in judged for run in each.runs):
        made = _judged(claim, book, Setting(own, collapsed=False))
        verdicts[COLLAPSED.says] = _whole(made)
    if claim.seeds:
        verdicts[ALL_SEEDS.says] = _whole(_judged(claim, book, Setting(chosen)))
    for reading in claim.readings:
        setting = Setting(_seeds(reading.seeds, chosen) if reading.seeds else own)
        made = _judged(claim, book, setting, reading)
        pairs = zip(made, judged, strict=True)
        moved = [each for each, main in pairs if each.contrast != main.contrast or reading.seeds]
        if any(each.runs for each in moved):
            verdicts[reading.says] = _whole(made)
    return verdicts


def _adjusted(made):
    """Return the Benjamini-Hochberg p-values of all ``> 0`` comparisons, by their identity."""
    tests = [
        each
        for judged in made
        for each in _counted(judged)
        if each.contrast.test == "> 0"
        and np.isfinite(each.found.p)
        and each.found.units >= contrasts.FEWEST
    ]
    if not tests:
        return {}
    adjusted = stats.false_discovery_control([each.found.p for each in tests])
    return {id(each): float(p) for each, p in zip(tests, adjusted, strict=True)}


def _counted(judged: list[Judged]) -> list[Judged]:
    """Leave out the comparisons whose reading was chosen afterwards."""
    return [each for each in judged if not each.contrast.chosen_afterwards]


def _whole(judged):
    """Combine the comparisons of a claim into its verdict."""
    return contrasts.combine([each.direction for each in _counted(judged)] or ["not tested"])


def _row(claim, judged, readings, adjusted, frozen):
    """Make the row of a claim in ``judge``'s table."""
    counted, kind = _counted(judged), _whole(judged)
    rows = [_contrast_row(each, adjusted.get(id(each))) for each in judged]
    runs = [run for each in judged for run in each.runs]
    changed = claim.changed
    if claim.replaced:
        before = "Tested with `{encoder}`, the claim had the verdict *{verdict}*."
        changed = f"{changed} {before.format(**claim.replaced)}".strip()
    directions = _counts([each.direction for each in counted])
    return {name: getattr(claim, name) for name in COLUMNS if hasattr(claim, name)} | {
        "ours": rows[0]["ours"] if len(rows) == 1 else directions or "–",
        "interval": rows[0]["interval"] if len(rows) == 1 else "–",
        "units": ", ".join(dict.fromkeys(each["counted"] for each in rows)),
        "seeds": show_ends([count for each in judged for count in each.seeds]),
        "corpora": ", ".join(sorted(_corpora(judged))),
        "grade": _grade(judged) if counted and kind != "not tested" else "–",
        "size": _counts([each.size for each in counted if each.size]),
        "verdict": "; ".join([kind, *_depends(claim, counted, kind, readings)]),
        "kind": kind,
        "readings": readings,
        "provisional": any(each.provisional for each in counted),
        "changed": changed,
        "records": _named(runs),
        "contrasts": rows,
        **{
            name: table.get(claim.claim, table.get(claim.name, "–"))
            for name, table in frozen.items()
        },
    }


def _depends(claim, counted, kind, readings):
    """List what a verdict depends on, and what weakens it."""
    found = []
    for verdict in dict.fromkeys(map(word, readings.values())):
        if verdict != word(kind):
            says = [name for name, other in readings.items() if word(other) == verdict]
            found.append(f"{verdict} {_and(says)}")
    found += _untested(claim, counted)
    marks = {
        "from stale records": any(run.stale for each in counted for run in each.runs),
        "declared after seeing": claim.after_seeing,
        "provisional": any(each.provisional for each in counted),
    }
    return found + [mark for mark, applies in marks.items() if applies]


def _untested(claim, counted):
    """List which comparisons of a claim are unfair, or lack all runs or those of some corpora."""
    found = [claim.not_attempted] if claim.not_attempted else []
    unfair = dict.fromkeys(each.note for each in counted if each.direction == "unfair")
    if unfair:
        found.append(f"not a fair comparison: {_and([*unfair])}")
    untested = [each for each in counted if each.direction == "not tested"]
    if untested:
        share = f"{len(untested)} of {len(counted)} comparisons not tested"
        found.append(share if len(untested) < len(counted) else untested[0].note)
    short = [
        each for each in counted if each.runs and len(each.corpora) < len(each.contrast.corpora)
    ]
    if short:
        found.append(f"{len(short[0].corpora)} of {len(short[0].contrast.corpora)} corpora")
    return found


def _and(words):
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _counts(words):
    return ", ".join(f"{words.count(each)} {each}" for each in dict.fromkeys(words))


def _corpora(judged):
    return {spec.dataset for each in judged if each.runs for spec in each.specs} - {DRAWN}


def _grade(judged):
    rows = [spec for each in _counted(judged) if each.runs for spec in each.specs]
    return grade(rows or [spec for each in judged for spec in each.specs])


def _named(runs):
    return " ".join(dict.fromkeys(run.record for run in runs))


def _ours(claim):
    """Our numbers on a claim: mean and interval of one comparison; of several the lowest and the
    highest mean, if they share a metric, and how they came out.
    """
    found = [each for each in claim.contrasts if each["units"]]
    found = sorted(found, key=lambda each: each["mean"])
    if len(claim.contrasts) == 1:
        return claim.ours if claim.interval == "–" else f"{claim.ours}, {claim.interval}"
    if len({each["metric"] for each in found}) != 1:
        return claim.ours
    (low, _, metric), (high, *_) = (found[place]["ours"].partition(" ") for place in (0, -1))
    ends = low if low == high else f"from {low} to {high}"
    return f"{ends} {metric}: {claim.ours}"


def _contrast_row(judged, adjusted):
    """Describe a judged comparison for tables: numbers as they are, and as they are printed."""
    contrast, found = judged.contrast, judged.found
    signed = "" if contrast.test in ("= v", "at least v") else "+"
    digits = 3 if contrasts.base(contrast.metric) in contrasts.FRACTIONS else 2
    mean, low, high = (f"{number:{signed},.{digits}f}" for number in found[:3])
    later = " (chosen afterwards: enters no verdict)" if contrast.chosen_afterwards else ""
    nothing = "too few runs" if judged.runs else "not recorded"  # for the best of so many
    theirs = contrast.printed if contrast.printed is not None else contrast.value
    return {
        "says": contrast.says,
        "metric": contrast.metric,
        "value": contrast.value,
        "unit": contrast.unit,
        "mean": found.mean,
        "low": found.low,
        "high": found.high,
        "units": found.units,
        "p": found.p,
        "test": " ".join(filter(None, (contrast.test, contrast.words))),
        "ours": f"{mean} ({contrast.metric})" if found.units else nothing,
        "interval": f"{low} to {high}" if found.units > 1 else "–",
        "the paper": "–" if theirs is None else f"{theirs:{signed},.{digits}f}",
        "counted": f"{found.units} {UNITS[contrast.unit] if found.units != 1 else contrast.unit}",
        "seeds": show_ends(judged.seeds),
        "corpora": judged.corpora,
        "wins": sum(mean > 0 for mean in judged.corpora.values()),
        "direction": judged.direction + later,
        "size": judged.size,
        "adjusted p": "–" if adjusted is None else f"{adjusted:.3f}",
        "note": judged.note,
        "provisional": judged.provisional,
        "records": _named(judged.runs),
    }
