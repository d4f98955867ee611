"""The papers' claims, judged by rule 2 from the records."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from snnl_book.experiments import EXPERIMENTS, PAPER_SEEDS
from snnl_book.experiments.cells import DRAWN, NEW_SEEDS
from snnl_book.experiments.grades import grade
from snnl_book.paper import PAPERS, Claim, ClaimError, declared, registered_claims
from snnl_book.report import contrasts
from snnl_book.report.judgement import Setting, judge_contrast
from snnl_book.report.rows import Book
from snnl_book.report.select import select
from snnl_book.report.tables import show_ends

__all__ = ["PAPERS", "VARIANTS", "by_setting", "describe", "grounds", "judge", "of", "rule_1"]
__all__ += ["said", "sensitivity", "tested", "verdicts"]

FALSE_DISCOVERIES = 0.05  # two-sided
FIVE, CORRECTED = "the paper's five seeds alone", "Benjamini-Hochberg"
MARGINS = {"a margin of 1 point": 0.01, "a margin of 2 points": 0.02}
POINTS = (0.5, 1, 1.5, 2, 3)
SEEDS = {"all": None, FIVE: frozenset(PAPER_SEEDS), "its first three": frozenset(PAPER_SEEDS[:3])}
LIMITED = {"paper": frozenset(PAPER_SEEDS), "new": frozenset(NEW_SEEDS)}
"""The seeds that a claim may be limited to (``Claim.seeds``)."""
VARIANTS = (FIVE, *MARGINS, CORRECTED)
"""What a verdict that is not fragile stands."""
BARE = "intervals of the seeds alone"
"""What the documents add to an interval is left out (``contrasts.floor``)."""
UNITS = {"seed": "seeds", "encoder": "encoders", "corpus": "corpora"}
_WITH = {"stand-in": ", with a stand-in", "reduced": ", with a reduced protocol"}


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
    book = _book(claims, records, seeds)
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
    """Count the verdicts of rule 2, of what would make one fragile, and ``BARE``: a row each.

    Columns: judged with, one for each first word of a verdict, fragile, how many claims have
    another first word than by rule 2, and which: the names of those.
    """
    claims = registered_claims() if claims is None else claims
    book = _book(claims, records)
    found = _verdicts(claims, book) | {BARE: _found(claims, book, Setting(floor=False))}
    words = {name: [_word(kind) for kind in kinds] for name, (_, kinds) in found.items()}
    columns = sorted({word for kinds in words.values() for word in kinds})
    rows = []
    for name, kinds in words.items():
        same = zip(claims, kinds, words["rule 2"], strict=True)
        which = [claim.name for claim, kind, usual in same if kind != usual]
        row = {"judged with": name} | {column: kinds.count(column) for column in columns}
        rows.append(row | {"fragile": len(which), "which": ", ".join(which)})
    return pd.DataFrame(rows, columns=["judged with", *columns, "fragile", "which"])


def by_setting(
    records: pd.DataFrame | None = None, claims: Sequence[Claim] | None = None
) -> pd.DataFrame:
    """Judge all claims with other margins (``POINTS``) and other seeds (``SEEDS``) than rule 2's.

    Returns a row a claim and setting: name, margin (in points), seeds (in words), verdict.
    """
    claims = registered_claims() if claims is None else claims
    book, rows = _book(claims, records), []
    for points, (words, seeds) in product(POINTS, SEEDS.items()):
        _, kinds = _found(claims, book, Setting(seeds, points / 100))
        row = {"margin": points, "seeds": words}
        pairs = zip(claims, kinds, strict=True)
        rows += [{"name": claim.name, **row, "verdict": verdict} for claim, verdict in pairs]
    return pd.DataFrame(rows)


def of(chapter: str, seeds: Sequence[int] | None = None) -> pd.DataFrame:
    """Judge all claims by these seeds (default: all that are recorded), and keep the rows of
    ``judge`` that a chapter tells.

    Raises ClaimError if it tells none.
    """
    judged = judge(seeds=seeds)
    if chapter not in set(judged["chapter"]):
        told = ", ".join(sorted(set(judged["chapter"])))
        raise ClaimError(f"no claim is told in the chapter {chapter!r}: choose one of {told}")
    return judged[judged["chapter"] == chapter].reset_index(drop=True)


def verdicts(judged: pd.DataFrame) -> pd.DataFrame:
    """Make of rows of ``judge`` a table of claims: claim, the paper, ours, verdict, records."""
    ours = [_ours(row) for row in judged.itertuples()]
    shown = judged[["claim", "reported", "verdict", "records"]].assign(ours=ours)
    columns = ["claim", "the paper", "ours", "verdict", "records"]
    return shown.rename(columns={"reported": "the paper"})[columns]


def grounds(judged: pd.DataFrame) -> pd.DataFrame:
    """Make of rows of ``judge`` a table of what verdicts stand on, to be folded under ``verdicts``.

    Columns: claim, grade, fragile, by rule 1, what would change our mind, records.
    """
    names = {"verdict_1": "by rule 1", "changes": "what would change our mind"}
    table = judged.assign(fragile=judged["fragile"].replace("", "no")).rename(columns=names)
    return table[["claim", "grade", "fragile", *names.values(), "records"]]


def _ours(claim):
    """Our numbers on a claim: mean and interval of one contrast; of several the lowest and the
    highest mean, if they have one metric in common, and how they came out.
    """
    found = sorted(
        (each for each in claim.contrasts if each["units"]), key=lambda each: each["mean"]
    )
    if len(claim.contrasts) == 1:
        return claim.ours if claim.interval == "–" else f"{claim.ours}, {claim.interval}"
    if len({each["metric"] for each in found}) != 1:
        return claim.ours
    (low, _, metric), (high, *_) = (found[place]["ours"].partition(" ") for place in (0, -1))
    ends = low if low == high else f"from {low} to {high}"
    return f"{ends} {metric}: {claim.ours}"


def tested(judged: pd.DataFrame) -> pd.DataFrame:
    """Make of rows of ``judge`` a table of their contrasts.

    Columns: claim, contrast, test, ours, 95 % interval, over (units), verdict, records.
    """
    names = {"says": "contrast", "interval": "95 % interval", "counted": "over"}
    rows = [
        {"claim": claim} | {names.get(name, name): value for name, value in each.items()}
        for claim, told in zip(judged["claim"], judged["contrasts"], strict=True)
        for each in told
    ]
    columns = ["claim", "contrast", "test", "ours", "95 % interval", "over", "verdict", "records"]
    return pd.DataFrame(rows, columns=columns)


def said(judged: pd.DataFrame, says: str = "") -> str:
    """Say what one contrast of rows of ``judge`` found: mean, 95 % interval and units.

    It is the first that ``says`` these words; without, the first of all. Of one that has no number
    it is told why. Raises ClaimError if none says so.

    >>> said(of("12_images", seeds=()))
    'not recorded (0 seeds)'
    """
    told = [each for told in judged["contrasts"] for each in told if says in ("", each["says"])]
    if not told:
        raise ClaimError(f"no contrast of these claims says {says!r}: see claims.tested")
    spread = f"95 % interval {told[0]['interval']}, " if told[0]["units"] > 1 else ""
    return f"{told[0]['ours'].partition(' (')[0]} ({spread}{told[0]['counted']})"


def describe(claim: dict) -> str:
    """Describe a row of ``judge``: the claim, its contrasts, and the verdicts of both rules."""
    lines = [f"{claim['name']}: {claim['claim']}", f"  {claim['paper']}, {claim['where']}"]
    for each in claim["contrasts"]:
        wins = f", {each['wins']} of {len(each['corpora'])} above 0" if each["corpora"] else ""
        seeds = f", seeds: {each['seeds']}" if each["unit"] != "seed" else ""
        units = f"{each['counted']}{wins}{seeds}"
        note = f" ({each['note']})" if each["note"] else ""
        found = f"{each['ours']}, {each['interval']}; {units}: " if each["units"] else ""
        lines += [f"  - {each['says']} [{each['test']}]", f"    {found}{each['verdict']}{note}"]
    lines += [f"  {name + ':':<9}{claim[name]}" for name in ("seeds", "corpora", "grade")]
    return "\n".join([*lines, f"  rule 1:  {claim['verdict_1']}", f"  rule 2:  {claim['verdict']}"])


def in_short(judged: pd.DataFrame) -> str:
    """Count the verdicts of rows of ``judge``, the most frequent first: "5 partly, 3 undecided"."""
    counts = judged["kind"].map(_word).value_counts()
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())


COLUMNS = ["name", "claim", "paper", "chapter", "where", "reported", "ours", "interval", "units"]
COLUMNS += ["seeds", "corpora", "grade", "verdict", "kind", "fragile", "verdict_1", "headline"]
COLUMNS += ["changes", "changed", "records", "contrasts"]


def rule_1() -> dict[str, str]:
    """Read the frozen verdicts of rule 1, by the claim's sentence or name."""
    path = Path(declared.__file__).with_name("claims") / "rule-1.csv"
    table = pd.read_csv(path, comment="#", dtype=str, keep_default_na=False)
    return dict(zip(table["claim"], table["verdict"], strict=True))


def _book(claims, records, seeds=None):
    if records is None:
        rows = (row for c in claims for each in c.contrasts for _, row in each.cells)
        names = dict.fromkeys(row["experiment"] for row in rows)
        found = [select(name, seeds=seeds) for name in names if name in EXPERIMENTS]
        records = pd.concat(found, ignore_index=True) if found else select("clustering", seeds=())
    return Book(records)


def _verdicts(claims, book, seeds=None):
    """Judge with rule 2 and each of its ``VARIANTS``: name -> (judged contrasts, verdicts), both
    lists over the claims.
    """
    chosen = None if seeds is None else frozenset(seeds)
    five = frozenset(PAPER_SEEDS) if chosen is None else chosen & frozenset(PAPER_SEEDS)
    settings = {"rule 2": Setting(chosen), FIVE: Setting(five)}
    settings |= {name: Setting(chosen, points) for name, points in MARGINS.items()}
    found = {name: _found(claims, book, setting) for name, setting in settings.items()}
    corrected = _corrected(found["rule 2"][0])
    return found | {CORRECTED: (corrected, [*map(_whole, claims, corrected)])}


def _found(claims, book, setting):
    """Judge with one setting: judged contrasts and verdicts, both lists over the claims."""
    made = [[_told(claim, each, book, setting) for each in claim.contrasts] for claim in claims]
    return made, [*map(_whole, claims, made)]


def _told(claim, contrast, book, setting):
    """As ``judge_contrast``, on the seeds of the claim, with an error that says where."""
    if claim.seeds:
        own, chosen = LIMITED[claim.seeds], setting.seeds
        setting = replace(setting, seeds=own if chosen is None else own & chosen)
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
        # A word may be contradicted by a gain of the wrong size, which is no matter of its sign.
        signed = each.verdict == "reproduced" or each.found.high < 0
        return replace(each, verdict="undecided") if id(each) in weak and signed else each

    return [[corrected(each) for each in judged] for judged in made]


def _counted(judged):
    """Leave out what was chosen afterwards."""
    return [each for each in judged if not each.contrast.chosen_afterwards]


def _whole(claim, judged):
    """Combine the verdicts of a claim's contrasts."""
    counted = _counted(judged)
    if not counted:
        why = claim.not_attempted or "only readings chosen afterwards"
        return f"not attempted ({why})"
    kind = contrasts.combine([each.verdict for each in counted])
    if kind == "not attempted":
        return f"{kind} ({counted[0].note})"
    fewest = min(counted, key=lambda each: len(each.corpora) - len(each.contrast.corpora))
    there, declared_ = len(fewest.corpora), len(fewest.contrast.corpora)
    if there < declared_ and contrasts.SIGNS.get(kind):
        kind = "partly" if contrasts.SIGNS[kind] > 0 else "contradicted"
        return f"{kind} ({there} of {declared_} corpora)"
    return kind


def _word(verdict):
    return verdict.split(" (")[0]


def _grade(judged):
    rows = [spec for each in _counted(judged) if each.runs for spec in each.specs]
    return grade(rows or [spec for each in judged for spec in each.specs])


def _row(claim, judged, kind, changes, frozen):
    """Make the row of a claim in ``judge``'s table."""
    others = {name: _word(other) for name, other in changes.items()}
    if claim.seeds:  # none of which may be among the paper's
        others.pop(FIVE)
    differ = {name: other for name, other in others.items() if other != _word(kind)}
    fragile = "; ".join(f"{name}: {word}" for name, word in differ.items())
    graded = "–" if claim.not_attempted else _grade(judged)
    told, counted = [_contrast_row(each) for each in judged], _counted(judged)
    runs = [run for each in judged for run in each.runs]
    verdict = kind
    if _word(kind) not in ("not attempted", "no fair test"):
        verdict += _WITH.get(_word(graded), "")
    if any(run.stale for each in counted for run in each.runs):
        verdict += "; from stale records"
    if claim.after_seeing:
        verdict += "; declared after seeing"
    words = [each.verdict for each in counted]
    counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    corpora = {spec.dataset for each in judged if each.runs for spec in each.specs} - {DRAWN}
    changed = claim.changed
    if claim.replaced:
        before = "Tested with `{encoder}`, the claim had the verdict *{verdict}*."
        changed = f"{changed} {before.format(**claim.replaced)}".strip()
    return {name: getattr(claim, name) for name in COLUMNS if hasattr(claim, name)} | {
        "changed": changed,
        "ours": told[0]["ours"] if len(told) == 1 else counts or "–",
        "interval": told[0]["interval"] if len(told) == 1 else "–",
        "units": ", ".join(dict.fromkeys(each["counted"] for each in told)),
        "seeds": show_ends([count for each in judged for count in each.seeds]),
        "corpora": ", ".join(sorted(corpora)),
        "grade": graded,
        "verdict": verdict + (f"; fragile ({fragile})" if fragile else ""),
        "kind": kind,
        "fragile": fragile,
        "verdict_1": frozen.get(claim.claim, frozen.get(claim.name, "–")),
        "records": _named(runs),
        "contrasts": told,
    }


def _named(runs):
    return " ".join(dict.fromkeys(run.record for run in runs))


def _contrast_row(judged):
    """Describe a judged contrast for tables: numbers as they are, and as they are printed."""
    contrast, found = judged.contrast, judged.found
    signed = "" if contrast.test in ("= v", "at least v") else "+"
    digits = 3 if contrasts.base(contrast.metric) in contrasts.FRACTIONS else 2
    mean, low, high = (f"{number:{signed},.{digits}f}" for number in found[:3])
    later = " (chosen afterwards: enters no verdict)" if contrast.chosen_afterwards else ""
    nothing = "too few runs" if judged.runs else "not recorded"  # for the best of so many
    made = {name: getattr(contrast, name) for name in ("says", "metric", "value", "unit")}
    made |= found._asdict()
    return made | {
        "test": " ".join(filter(None, (contrast.test, contrast.words))),
        "ours": f"{mean} ({contrast.metric})" if found.units else nothing,
        "interval": f"{low} to {high}" if found.units > 1 else "–",
        "counted": f"{found.units} {UNITS[contrast.unit] if found.units != 1 else contrast.unit}",
        "seeds": show_ends(judged.seeds),
        "corpora": judged.corpora,
        "wins": sum(mean > 0 for mean in judged.corpora.values()),
        "verdict": judged.verdict + later,
        "note": judged.note,
        "records": _named(judged.runs),
    }
