"""The papers' claims, judged by rule 3 from the records."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from snnl_book.experiments import EXPERIMENTS, PAPER_SEEDS
from snnl_book.experiments.cells import DRAWN, NEW_SEEDS
from snnl_book.experiments.grades import grade
from snnl_book.paper import PAPERS, Claim, ClaimError, Reading, declared, registered_claims
from snnl_book.paper.declared import WORDS
from snnl_book.report import contrasts
from snnl_book.report.judgement import NOT_RECORDED, Judged, Setting, judge_contrast
from snnl_book.report.rows import Book
from snnl_book.report.select import select
from snnl_book.report.tables import show_ends

__all__ = [
    "PAPERS",
    "VERDICTS",
    "describe",
    "differences",
    "earlier",
    "finding",
    "in_short",
    "judge",
    "listed",
    "moved_by",
    "of",
    "tested",
    "verdicts",
    "word",
]

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
    verdicts = [_judged(claim, book, Setting(_seeds(claim.seeds, chosen))) for claim in claims]
    adjusted = _adjusted(verdicts)
    frozen = {name: earlier(name) for name in RULES}
    rows = []
    for claim, judged in zip(claims, verdicts, strict=True):
        readings = _by_readings(claim, judged, book, chosen)
        rows.append(_row(claim, judged, readings, adjusted, frozen))
    return pd.DataFrame(rows, columns=COLUMNS)


def of(chapter: str, seeds: Sequence[int] | None = None) -> pd.DataFrame:
    """Judge the claims of one chapter alone, which takes a part of the time of ``judge``.

    ``seeds`` are those to judge by (default: all that are recorded). Returns the rows of ``judge``
    for these claims, except that ``adjusted p`` counts their comparisons alone. Raises ClaimError
    if no claim belongs to the chapter.
    """
    claims = registered_claims()
    own = [claim for claim in claims if claim.chapter == chapter]
    if not own:
        choice = ", ".join(sorted({claim.chapter for claim in claims}))
        raise ClaimError(f"no claim belongs to the chapter {chapter!r}: choose one of {choice}")
    return judge(seeds=seeds, claims=own)


def verdicts(judged: pd.DataFrame) -> pd.DataFrame:
    """Make a table of claims from rows of ``judge``.

    Columns: claim, the paper, ours, size, verdict, grade, records.
    """
    ours = [_ours(row) for row in judged.itertuples()]
    columns = ["claim", "reported", "size", "verdict", "grade", "records"]
    table = judged[columns].assign(ours=ours).rename(columns={"reported": "the paper"})
    return table[["claim", "the paper", "ours", "size", "verdict", "grade", "records"]]


def listed(judged: pd.DataFrame) -> str:
    """List rows of ``judge`` in Markdown, one line per claim.

    A line has the verdict, the claim, and how its comparisons came out. The verdict links to the
    claims of its paper on the page *The claims*.
    """
    lines = []
    for row in judged.itertuples():
        verdict = f"**[{word(row.kind).capitalize()}](claims.md#{_HEADINGS[row.paper]})**"
        verdict += " (provisional)" * row.provisional
        claim = f"{row.claim[0].upper()}{row.claim[1:]}"
        lines.append(f"- {verdict}: {claim}. {_came_out(row)}")
    link = "For the papers' numbers and ours in each comparison, see [The claims](claims.md)."
    if judged["provisional"].any():
        link += " The interval of a *provisional* verdict leaves out the choice of test documents."
    return "\n".join([*lines, "", link])


def tested(judged: pd.DataFrame) -> pd.DataFrame:
    """Make a table of comparisons from rows of ``judge``.

    Columns: claim, comparison, test, ours, 95 % interval, the paper, over (units), direction, size,
    adjusted p, records.
    """
    names = {"says": "comparison", "interval": "95 % interval", "counted": "over"}
    rows = [
        {"claim": claim} | {names.get(name, name): value for name, value in contrast.items()}
        for claim, contrasts_of_claim in zip(judged["claim"], judged["contrasts"], strict=True)
        for contrast in contrasts_of_claim
    ]
    columns = ["claim", "comparison", "test", "ours", "95 % interval", "the paper", "over"]
    columns += ["direction", "size", "adjusted p", "records"]
    return pd.DataFrame(rows, columns=columns)


def finding(judged: pd.DataFrame, says: str = "") -> str:
    """Return the mean, 95 % interval and units of one comparison in rows of ``judge``.

    It is the first comparison that ``says`` these words; without words it is the first of all. If
    the comparison has no number, the reason is returned. Raises ClaimError if no comparison says
    these words.

    >>> finding(of("11_images", seeds=()))
    'not recorded (0 seeds)'
    """
    for contrast in [contrast for of_claim in judged["contrasts"] for contrast in of_claim]:
        if says in ("", contrast["says"]):
            spread = f"95 % interval {contrast['interval']}, " if contrast["units"] > 1 else ""
            return f"{contrast['ours'].partition(' (')[0]} ({spread}{contrast['counted']})"
    raise ClaimError(f"no comparison of these claims says {says!r}: choose one of claims.tested")


def differences(name: str, reading: str = "", seeds: Sequence[int] | None = None) -> pd.DataFrame:
    """Return the comparisons of one claim as numbers, by all seeds: what ``figures.forest`` draws.

    Args:
        name: the claim's, as ``registered_claims`` has it.
        reading: one of the claim's readings (default: as it is declared).
        seeds: take these alone (default: all that are recorded).

    Returns a row per comparison: label (what it compares), mean, low and high (its interval by rule
    3), paper (the paper's own value), direction, size, units, counted (the units in words) and
    records. Raises ClaimError if there is no such claim or reading.

    >>> differences("before-lda", "squared-error")["label"].iloc[0]
    'acc, averaged vectors: AE(D) against linear discriminant analysis'
    """
    claims = {claim.name: claim for claim in registered_claims()}
    if name not in claims:
        raise ClaimError(f"there is no claim {name!r}: see report.claims.judge()['name']")
    claim = claims[name]
    known = {each.name: each for each in claim.readings}
    if reading and reading not in known:
        raise ClaimError(f"{name} has no reading {reading!r}: choose one of {', '.join(known)}")
    chosen = None if seeds is None else frozenset(seeds)
    book = Book(_records_of([claim], seeds))
    rows = []
    for judged in _judged(claim, book, Setting(chosen), known.get(reading)):
        row = _contrast_row(judged, None)
        printed = judged.contrast.printed
        row["paper"] = np.nan if printed is None else printed
        rows.append(row | {"label": row["says"]})
    columns = ["label", "mean", "low", "high", "paper", "direction", "size", "units", "counted"]
    return pd.DataFrame(rows)[[*columns, "records"]]


def describe(claim: dict) -> str:
    """Describe a row of ``judge``: the claim, its comparisons, and the verdicts of all rules."""
    lines = [f"{claim['name']}: {claim['claim']}", f"  {claim['paper']}, {claim['where']}"]
    for contrast in claim["contrasts"]:
        lines.append(f"  - {contrast['says']} [{contrast['test']}]")
        lines.append(f"    {_described(contrast)}")
    lines += [f"  {name}: {claim[name]}" for name in ("seeds", "corpora", "grade")]
    lines += [f"  {reading}: {verdict}" for reading, verdict in claim["readings"].items()]
    lines += [f"  {name}: {claim[name]}" for name in RULES]
    return "\n".join([*lines, f"  rule 3: {claim['verdict']}"])


def _described(contrast):
    """Describe our numbers on a comparison, and how it came out, in one line."""
    numbers = ""
    if contrast["units"]:
        numbers = f"{contrast['ours']}, {contrast['interval']}; {contrast['counted']}"
        if contrast["corpora"]:
            numbers += f", {contrast['wins']} of {len(contrast['corpora'])} above 0"
        if contrast["unit"] != "seed":
            numbers += f", seeds: {contrast['seeds']}"
        numbers += ": "
    size = f", {contrast['size']} (the paper: {contrast['the paper']})" if contrast["size"] else ""
    note = f" ({contrast['note']})" if contrast["note"] else ""
    return f"{numbers}{contrast['direction']}{size}{note}"


def in_short(judged: pd.DataFrame) -> str:
    """Count the verdicts of rows of ``judge``, the most frequent first: "5 holds, 3 open"."""
    counts = judged["kind"].map(word).value_counts()
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


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


_HEADINGS = {"text": "The-text-paper", "image": "The-image-paper", "ClusterBERT": "ClusterBERT"}
_DIRECTIONS = {
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "open": ("is open", "are open"),
    "unfair": ("is unfair", "are unfair"),
    "not tested": ("is not tested", "are not tested"),
}


def _came_out(claim):
    """Say in one sentence how the comparisons of a claim came out, or what its only one measured.

    It ends with why comparisons are open, unfair or not tested. Comparisons whose reading was
    chosen afterwards do not count.
    """
    counted = [contrast for contrast in claim.contrasts if contrast["direction"] in _DIRECTIONS]
    directions = [contrast["direction"] for contrast in counted]
    if {*directions} <= {"not tested"}:
        seen = "declared after seeing" in claim.verdict
        after = "We declared it after seeing our runs, so only new seeds count."
        return after if seen else f"No recorded run tests it{_reasons(counted, 'not tested')}."
    if len(directions) == 1:
        return _measured(claim, counted[0])
    counts = {name: directions.count(name) for name in dict.fromkeys(directions)}
    if len(counts) == 1:
        number = "Both" if len(directions) == 2 else f"All {len(directions)}"
        end = f"{_DIRECTIONS[directions[0]][1]}{_reasons(counted, directions[0])}"
        return f"{number} comparisons {end}."
    parts = [
        f"{count} {_DIRECTIONS[name][count > 1]}{_reasons(counted, name)}"
        for name, count in counts.items()
    ]
    return f"Of {len(directions)} comparisons, {_and(parts)}."


def _measured(claim, contrast):
    """Say what the only comparison of a claim measured."""
    if not contrast["units"]:
        return "There are too few runs."
    ours = claim.ours.replace("(sil)", "(silhouette)").replace("(nmi_geometric)", "(NMI)")
    interval = "" if claim.interval == "–" else f", 95 % interval {claim.interval}"
    reason = f"; {_reason(contrast)}" if _reason(contrast) else ""
    says = "In the claimed direction we" if contrast["test"].startswith("> 0") else "We"
    return f"{says} measured {ours.removesuffix(')')}{interval}{reason})."


def _reasons(contrasts_of_claim, direction):
    """Return why comparisons have a direction, each reason once and in parentheses, or nothing."""
    chosen = [contrast for contrast in contrasts_of_claim if contrast["direction"] == direction]
    reasons = dict.fromkeys(filter(None, map(_reason, chosen)))
    return f" ({'; '.join(reasons)})" if reasons else ""


def _reason(contrast):
    """Return why a comparison is open, unfair or not tested; an empty text for others."""
    note = contrast["note"]
    if contrast["direction"] == "open":
        return _why_open(contrast)
    if contrast["direction"] == "unfair":
        is_weak = "below its published" in note
        return "our run of the rival scores below its published value" if is_weak else note
    return note if contrast["direction"] == "not tested" and note != NOT_RECORDED else ""


def _why_open(contrast):
    """Return why the interval of a comparison decides nothing."""
    if contrast["units"] < contrasts.FEWEST:
        return f"fewer than three {UNITS[contrast['unit']]}"
    if contrast["test"] == "more than half":
        return contrast["note"].replace("above 0", "a clear gain")
    if contrast["test"] == "> 0":
        return "the interval contains 0"
    words = re.sub("^(> 0|at least v) ?", "", contrast["test"])
    limit = f"the limit for *{words}*" if words in WORDS else "the limit"
    return f"the interval crosses {limit}"


_WORDS_OF_RULE_2 = {
    "reproduced": "holds",
    "matches": "holds",
    "partly": "holds in part",
    "contradicted": "fails",
    "differs": "fails",
    "undecided": "open",
    "no fair test": "open",
    "not attempted": "not tested",
}


def moved_by(row: pd.Series) -> str:
    """Say what moved a claim's verdict from rule 2 to now: the rule, what is compared, or the runs.

    ``row`` is a row of ``judge``. Rule 3 on the records of rule 2 tells the rule (and what is
    compared, where the declaration changed) from the runs made since.

    >>> row = {"rule 2": "partly (1 of 2)", "rule 3 before": "open", "kind": "holds", "changed": ""}
    >>> moved_by(pd.Series(row))
    'the rule, then the runs'
    """
    old = row["rule 2"].partition(" (")[0]
    if old in ("", "–"):
        return "a new claim"
    old = _WORDS_OF_RULE_2.get(old, old)
    if old == "fails" and " of " in row["rule 2"]:
        old = "fails in part"
    causes = []
    if old != word(row["rule 3 before"]):
        causes.append("what is compared" if row["changed"] else "the rule")
    if row["rule 3 before"] != row["kind"]:
        causes.append("the runs")
    return ", then ".join(causes) or "nothing"


COLUMNS = [
    *("name", "claim", "paper", "chapter", "where", "reported", "ours", "interval", "units"),
    *("seeds", "corpora", "grade", "size", "verdict", "kind", "readings", "provisional"),
    *(*RULES, "changes", "changed", "records", "contrasts"),
]


def _records_of(claims, seeds):
    """Return the records of all experiments that the claims and their readings name."""
    rows = [row for claim in claims for contrast in claim.contrasts for _, row in contrast.cells]
    for reading in [reading for claim in claims for reading in claim.readings]:
        rows += [changes for _, changes in reading.rows if "experiment" in changes]
    names = dict.fromkeys(row["experiment"] for row in rows)
    records = [select(name, seeds=seeds) for name in names if name in EXPERIMENTS]
    return pd.concat(records, ignore_index=True) if records else select("clustering", seeds=())


def _seeds(limit, chosen):
    """Return the seeds that are among the chosen ones and within a limit of ``LIMITED``.

    None stands for all seeds.
    """
    limited = LIMITED.get(limit)
    if chosen is None or limited is None:
        return limited if chosen is None else chosen
    return limited & chosen


def _judged(claim, book, setting, reading=None):
    """Judge a claim's comparisons, under a reading if one is given."""
    judged = []
    for contrast in claim.contrasts:
        changed = reading.applied(contrast) if reading else contrast
        try:
            judged.append(judge_contrast(changed, book, setting, claim.runs or 1))
        except ClaimError as error:
            raise ClaimError(f"{claim.name}, {contrast.says!r}: {error}") from None
    return judged


def _by_readings(claim, judged, book, chosen):
    """Return the verdict on a claim under each reading that has runs, by the reading's words."""
    verdicts = {}
    seeds = _seeds(claim.seeds, chosen)
    if any(run.status == "collapsed" for comparison in judged for run in comparison.runs):
        without_collapsed = Setting(seeds, collapsed=False)
        verdicts[COLLAPSED.says] = _whole(_judged(claim, book, without_collapsed))
    if claim.seeds:
        verdicts[ALL_SEEDS.says] = _whole(_judged(claim, book, Setting(chosen)))
    for reading in claim.readings:
        setting = Setting(_seeds(reading.seeds, chosen) if reading.seeds else seeds)
        judged_anew = _judged(claim, book, setting, reading)
        changed = [
            new
            for new, main in zip(judged_anew, judged, strict=True)
            if new.contrast != main.contrast or reading.seeds
        ]
        if any(comparison.runs for comparison in changed):
            # The other comparisons would mix two readings in one verdict.
            part = f" ({len(changed)} of {len(judged)} comparisons)"
            verdicts[reading.says] = _whole(changed) + part * (len(changed) < len(judged))
    return verdicts


def _adjusted(judged_claims):
    """Return the Benjamini-Hochberg p-values of all ``> 0`` comparisons, by their identity."""
    tests = [
        comparison
        for judged in judged_claims
        for comparison in _counted(judged)
        if comparison.contrast.test == "> 0"
        and np.isfinite(comparison.estimate.p)
        and comparison.estimate.units >= contrasts.FEWEST
    ]
    if not tests:
        return {}
    adjusted = stats.false_discovery_control([test.estimate.p for test in tests])
    return {id(test): float(p) for test, p in zip(tests, adjusted, strict=True)}


def _counted(judged: list[Judged]) -> list[Judged]:
    """Leave out the comparisons whose reading was chosen afterwards."""
    return [comparison for comparison in judged if not comparison.contrast.chosen_afterwards]


def _whole(judged):
    """Combine the comparisons of a claim into its verdict."""
    directions = [comparison.direction for comparison in _counted(judged)]
    return contrasts.combine(directions or ["not tested"])


def _row(claim, judged, readings, adjusted, frozen):
    """Make the row of a claim in ``judge``'s table."""
    counted = _counted(judged)
    verdict = _whole(judged)
    rows = [_contrast_row(comparison, adjusted.get(id(comparison))) for comparison in judged]
    runs = [run for comparison in judged for run in comparison.runs]
    changed = claim.changed
    if claim.replaced:
        before = "Tested with `{encoder}`, the claim had the verdict *{verdict}*."
        changed = f"{changed} {before.format(**claim.replaced)}".strip()
    directions = _counts([comparison.direction for comparison in counted])
    sizes = _counts([comparison.size for comparison in counted if comparison.size])
    return {name: getattr(claim, name) for name in COLUMNS if hasattr(claim, name)} | {
        "ours": rows[0]["ours"] if len(rows) == 1 else directions or "–",
        "interval": rows[0]["interval"] if len(rows) == 1 else "–",
        "units": ", ".join(dict.fromkeys(row["counted"] for row in rows)),
        "seeds": show_ends([count for comparison in judged for count in comparison.seeds]),
        "corpora": ", ".join(sorted(_corpora(judged))),
        "grade": _grade(judged) if counted and verdict != "not tested" else "–",
        "size": sizes,
        "verdict": "; ".join([verdict, *_depends(claim, counted, verdict, readings)]),
        "kind": verdict,
        "readings": readings,
        "provisional": any(comparison.provisional for comparison in counted),
        "changed": changed,
        "records": _named(runs),
        "contrasts": rows,
        **{
            name: table.get(claim.claim, table.get(claim.name, "–"))
            for name, table in frozen.items()
        },
    }


def _depends(claim, counted, verdict, readings):
    """List what a verdict depends on, and what weakens it."""
    conditions = []
    for other in dict.fromkeys(map(word, readings.values())):
        if other != word(verdict):
            names = [name for name, of_reading in readings.items() if word(of_reading) == other]
            conditions.append(f"{other} {_and(names)}")
    conditions += _untested(claim, counted)
    if any(run.stale for comparison in counted for run in comparison.runs):
        conditions.append("from stale records")
    if claim.after_seeing:
        conditions.append("declared after seeing")
    if any(comparison.provisional for comparison in counted):
        conditions.append("provisional")
    return conditions


def _untested(claim, counted):
    """List which comparisons of a claim are unfair, or lack all runs or those of some corpora."""
    gaps = [claim.not_attempted] if claim.not_attempted else []
    reasons = [comparison.note for comparison in counted if comparison.direction == "unfair"]
    if reasons:
        gaps.append(f"not a fair comparison: {_and([*dict.fromkeys(reasons)])}")
    untested = [comparison for comparison in counted if comparison.direction == "not tested"]
    if untested:
        share = f"{len(untested)} of {len(counted)} comparisons not tested"
        gaps.append(share if len(untested) < len(counted) else untested[0].note)
    for comparison in counted:
        corpora = comparison.contrast.corpora
        if comparison.runs and len(comparison.corpora) < len(corpora):
            gaps.append(f"{len(comparison.corpora)} of {len(corpora)} corpora")
            break
    return gaps


def _and(words):
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _counts(words):
    return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))


def _recorded_specs(judged):
    return [spec for comparison in judged if comparison.runs for spec in comparison.specs]


def _corpora(judged):
    return {spec.dataset for spec in _recorded_specs(judged)} - {DRAWN}


def _grade(judged):
    all_specs = [spec for comparison in judged for spec in comparison.specs]
    return grade(_recorded_specs(_counted(judged)) or all_specs)


def _named(runs):
    return " ".join(dict.fromkeys(run.record for run in runs))


def _ours(claim):
    """Return our numbers on a claim as text.

    Of one comparison these are mean and interval; of several the lowest and the highest mean, if
    they share a metric, and how they came out.
    """
    if len(claim.contrasts) == 1:
        return claim.ours if claim.interval == "–" else f"{claim.ours}, {claim.interval}"
    measured = [contrast for contrast in claim.contrasts if contrast["units"]]
    if len({contrast["metric"] for contrast in measured}) != 1:
        return claim.ours
    measured = sorted(measured, key=lambda contrast: contrast["mean"])
    low, _, metric = measured[0]["ours"].partition(" ")
    high, _, _ = measured[-1]["ours"].partition(" ")
    ends = low if low == high else f"from {low} to {high}"
    return f"{ends} {metric}: {claim.ours}"


def _contrast_row(judged, adjusted):
    """Describe a judged comparison for tables: numbers as they are, and as they are printed."""
    contrast, ours = judged.contrast, judged.estimate
    sign = "" if contrast.test in ("= v", "at least v") else "+"
    digits = 3 if contrasts.base(contrast.metric) in contrasts.FRACTIONS else 2
    mean, low, high = (f"{number:{sign},.{digits}f}" for number in ours[:3])
    remark = " (chosen afterwards: enters no verdict)" if contrast.chosen_afterwards else ""
    reason = "too few runs" if judged.runs else "not recorded"  # too few: for the best of several
    reported = contrast.printed if contrast.printed is not None else contrast.value
    return {
        "says": contrast.says,
        "metric": contrast.metric,
        "value": contrast.value,
        "unit": contrast.unit,
        "mean": ours.mean,
        "low": ours.low,
        "high": ours.high,
        "units": ours.units,
        "p": ours.p,
        "test": " ".join(filter(None, (contrast.test, contrast.words))),
        "ours": f"{mean} ({contrast.metric})" if ours.units else reason,
        "interval": f"{low} to {high}" if ours.units > 1 else "–",
        "the paper": "–" if reported is None else f"{reported:{sign},.{digits}f}",
        "counted": f"{ours.units} {UNITS[contrast.unit] if ours.units != 1 else contrast.unit}",
        "seeds": show_ends(judged.seeds),
        "corpora": judged.corpora,
        "wins": sum(mean > 0 for mean in judged.corpora.values()),
        "direction": judged.direction + remark,
        "size": judged.size,
        "adjusted p": "–" if adjusted is None else f"{adjusted:.3f}",
        "note": judged.note,
        "provisional": judged.provisional,
        "records": _named(judged.runs),
    }
