"""The papers' claims, judged by rule 3 from the records."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from snnl_book import data
from snnl_book.experiments import EXPERIMENTS, PAPER_SEEDS
from snnl_book.experiments.cells import DRAWN, NEW_SEEDS
from snnl_book.experiments.grades import grade
from snnl_book.paper import Claim, ClaimError, Reading, declared, registered_claims
from snnl_book.report import contrasts
from snnl_book.report.judgement import Judged, Setting, judge_contrast
from snnl_book.report.rows import Book
from snnl_book.report.select import select
from snnl_book.report.tables import show_ends
from snnl_book.report.words import listing

VERDICTS = ("holds", "holds in part", "mixed", "open", "fails in part", "fails", "not tested")
"""All verdicts there are."""
LIMITED = {"paper": frozenset(PAPER_SEEDS), "new": frozenset(NEW_SEEDS)}
"""The seeds that a claim or a reading may be limited to."""
UNITS = {"seed": "seeds", "encoder": "encoders", "corpus": "corpora"}
COLLAPSED = Reading("collapsed", "without collapsed runs")
ALL_SEEDS = Reading("all-seeds", "on all seeds, including those seen before the declaration")
RULES = {"rule 1": "rule-1.csv", "rule 2": "rule-2.csv", "rule 3 before": "rule-3-before.csv"}
"""Earlier verdicts, frozen; ``rule 3 before`` judges the records that rule 2 was judged on."""
LARGEST_P = 0.05
"""The largest corrected p-value with which a comparison would still hold."""
COLUMNS = [
    *("name", "claim", "paper", "chapter", "where", "reported", "ours", "interval", "units"),
    *("seeds", "corpora", "grade", "size", "verdict", "short verdict", "remarks", "kind"),
    *("readings", "provisional", *RULES, "changes", "changed", "records", "contrasts"),
]


def judge(
    records: pd.DataFrame | None = None,
    seeds: Sequence[int] | None = None,
    claims: Sequence[Claim] | None = None,
) -> pd.DataFrame:
    """Judge all claims by rule 3, one row per claim.

    Args:
        records: as ``select`` returns them (default: all of the experiments that claims name).
        seeds: use only these (default: all that are recorded).
        claims: as ``registered_claims`` returns them (default: those of the papers).

    Returns the columns of ``COLUMNS``: ``kind`` is the verdict, one of ``VERDICTS`` with its
    counts; ``verdict`` adds the ``remarks``, such as reasons why comparisons are not fair, and
    what it depends on, and ``short verdict`` leaves the remarks out; ``readings`` maps each
    reading to its verdict; ``contrasts`` holds a dictionary per comparison. Raises ClaimError if a
    declaration names no cell of the plan, or several.
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
    """Judge the claims of one chapter only, which takes less time than ``judge``.

    ``seeds`` are those to judge by (default: all that are recorded). Returns the rows of ``judge``
    for these claims, except that ``adjusted p``, and the remark on it in ``verdict``, cover only
    their comparisons. Raises ClaimError
    if no claim belongs to the chapter.
    """
    claims = registered_claims()
    own = [claim for claim in claims if claim.chapter == chapter]
    if not own:
        choice = ", ".join(sorted({claim.chapter for claim in claims}))
        raise ClaimError(f"no claim belongs to the chapter {chapter!r}: choose one of {choice}")
    return judge(seeds=seeds, claims=own)


def differences(name: str, reading: str = "", seeds: Sequence[int] | None = None) -> pd.DataFrame:
    """Return the comparisons of one claim as numbers, on all seeds, for ``figures.forest``.

    Args:
        name: the claim's name, as in ``registered_claims``.
        reading: one of the claim's readings (default: as it is declared).
        seeds: use only these (default: all that are recorded).

    Returns a row per comparison: label (what it compares), mean, low and high (its interval by rule
    3), paper (the paper's own value), direction, size, units, counted (the units in words),
    provisional (whether the interval leaves out the choice of test documents) and records. Raises
    ClaimError for an unknown claim or reading.

    >>> differences("before-lda", "squared-error")["label"].iloc[0]
    'acc, averaged vectors: AE(D) against linear discriminant analysis'
    """
    claims = {claim.name: claim for claim in registered_claims()}
    if name not in claims:
        raise ClaimError(
            f"there is no claim {name!r}: report.claims.judge()['name'] lists all names"
        )
    claim = claims[name]
    known = {each.name: each for each in claim.readings}
    if reading and reading not in known:
        raise ClaimError(f"{name} has no reading {reading!r}: choose one of {', '.join(known)}")
    chosen = None if seeds is None else frozenset(seeds)
    book = Book(_records_of([claim], seeds))
    rows = []
    for judged in _judged(claim, book, Setting(chosen), known.get(reading)):
        row = comparison_row(judged, None)
        printed = judged.contrast.printed
        row["paper"] = np.nan if printed is None else printed
        rows.append(row | {"label": row["says"]})
    columns = ["label", "mean", "low", "high", "paper", "direction", "size", "units", "counted"]
    return pd.DataFrame(rows)[[*columns, "provisional", "records"]]


def earlier(rule: str) -> dict[str, str]:
    """Read the frozen verdicts of one of ``RULES``, by the claim's name (rule 1: its sentence)."""
    path = Path(declared.__file__).with_name("claims") / RULES[rule]
    table = pd.read_csv(path, comment="#", dtype=str, keep_default_na=False)
    return dict(zip(table["claim"], table["verdict"], strict=True))


def word(verdict: str) -> str:
    """Return a verdict without its counts and what it depends on.

    >>> word("holds in part (2 of 3)"), word("not tested; provisional")
    ('holds in part', 'not tested')
    """
    return verdict.split(" (")[0].split(";")[0]


def _counts(words):
    counts = {word: words.count(word) for word in dict.fromkeys(words)}
    plural = {"holds": "hold", "fails": "fail"}
    return ", ".join(
        f"{n} {plural.get(word, word) if n > 1 else word}" for word, n in counts.items()
    )


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
    if any(run.status == "collapsed" for comparison in _fair(judged) for run in comparison.runs):
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
        if any(comparison.runs for comparison in _fair(changed)):
            # The other comparisons would mix two readings in one verdict.
            part = f" (judged on {len(changed)} of {len(judged)} comparisons)"
            verdicts[reading.says] = _whole(changed) + part * (len(changed) < len(judged))
    return verdicts


def _adjusted(judged_claims):
    """Return the Benjamini-Hochberg p-values of all ``> 0`` comparisons, by their identity."""
    tests = [
        comparison
        for judged in judged_claims
        for comparison in judged
        if comparison.contrast.test == "> 0"
        and comparison.direction != "unfair"
        and np.isfinite(comparison.estimate.p)
        and comparison.estimate.units >= contrasts.FEWEST
    ]
    if not tests:
        return {}
    adjusted = stats.false_discovery_control([test.estimate.p for test in tests])
    return {id(test): float(p) for test, p in zip(tests, adjusted, strict=True)}


def _fair(judged: list[Judged]) -> list[Judged]:
    """Leave out the unfair comparisons, which decide nothing."""
    return [comparison for comparison in judged if comparison.direction != "unfair"]


def _whole(judged):
    """Combine the comparisons of a claim into its verdict."""
    directions = [comparison.direction for comparison in judged]
    return contrasts.combine(directions or ["not tested"])


def _row(claim, judged, readings, adjusted, frozen):
    """Make the row of a claim in ``judge``'s table."""
    fair = _fair(judged)
    verdict = _whole(judged)
    rows = [comparison_row(comparison, adjusted.get(id(comparison))) for comparison in judged]
    shown = [comparison for comparison in fair if comparison.runs] or judged
    runs = [run for comparison in shown for run in comparison.runs]
    remarks = _untested(claim, judged) + _uncertain(judged, adjusted)
    conditions = _depends(claim, judged, verdict, readings)
    directions = _counts([comparison.direction for comparison in judged])
    sizes = _counts([comparison.size for comparison in judged if comparison.size])
    return {name: getattr(claim, name) for name in COLUMNS if hasattr(claim, name)} | {
        "ours": rows[0]["ours"] if len(rows) == 1 else directions or "–",
        "interval": rows[0]["interval"] if len(rows) == 1 else "–",
        "units": ", ".join(dict.fromkeys(row["counted"] for row in rows)),
        "seeds": show_ends([count for comparison in fair for count in comparison.seeds]),
        "corpora": ", ".join(sorted(_corpora(judged))),
        "grade": _grade(judged) if judged and verdict != "not tested" else "–",
        "size": sizes,
        "verdict": "; ".join([verdict, *remarks, *conditions]),
        "short verdict": "; ".join([verdict, *conditions]),
        "remarks": "; ".join(remarks),
        "kind": verdict,
        "readings": readings,
        "provisional": any(comparison.provisional for comparison in fair),
        "records": _named(runs),
        "contrasts": rows,
        **{
            name: table.get(claim.claim, table.get(claim.name, "–"))
            for name, table in frozen.items()
        },
    }


def _depends(claim, judged, verdict, readings):
    """List what a verdict depends on, and what weakens it."""
    conditions = []
    if any(_compares_spaces(comparison.contrast) for comparison in judged):
        conditions.append("compares scores of different spaces")
    for other in dict.fromkeys(map(word, readings.values())):
        if other != word(verdict):
            names = [name for name, of_reading in readings.items() if word(of_reading) == other]
            conditions.append(f"{other} if judged {_any_of(names)}")
    if any(run.stale for comparison in judged for run in comparison.runs):
        conditions.append("from stale records")
    if claim.after_seeing:
        conditions.append("declared after seeing")
    if any(comparison.provisional for comparison in _fair(judged)):
        conditions.append("provisional")
    return conditions


def _compares_spaces(contrast):
    """Return whether a contrast compares an internal score in one space with that in another."""
    spaces = [
        {name: value for name, value in row.items() if name != "clusterer"}
        for _, row in contrast.cells
    ]
    is_internal = contrasts.base(contrast.metric) in contrasts.INTERNAL
    return is_internal and any(space != spaces[0] for space in spaces)


def _any_of(readings):
    """List readings; those that differ only in the number of labels or the output are merged.

    >>> _any_of(["with 100 labels", "with Adam", "with 3,000 labels"])
    'with 100 or 3,000 labels and with Adam'
    """
    choices = {}
    for reading in readings:
        parts = re.match(r"(.*?)([\d,]+(?= labels)|linear|logistic|$)(.*)", reading)
        choices.setdefault((parts[1], parts[3]), []).append(parts[2])
    joined = [(start, listing(words, "or"), end) for (start, end), words in choices.items()]
    return listing([*map("".join, joined)])


def _untested(claim, judged):
    """List which comparisons of a claim are unfair, or lack all runs or those of some corpora."""
    gaps = [claim.not_attempted] if claim.not_attempted else []
    unfair = [comparison for comparison in judged if comparison.direction == "unfair"]
    reasons = {}
    for comparison in unfair:
        reason = _why_unfair(comparison, judged)
        reasons.setdefault(re.sub(r" \(.*?\)", "", reason), []).append(reason)
    if reasons:  # of several scores of one rival, the list of comparisons has the numbers
        shown = [full[0] if len({*full}) == 1 else short for short, full in reasons.items()]
        share = f"{len(unfair)} of {len(judged)} comparisons " * (len(judged) > 1)
        gaps.append(f"{share}not fair: {listing(shown)}")
    untested = [comparison for comparison in judged if comparison.direction == "not tested"]
    if untested:
        share = f"{len(untested)} of {len(judged)} comparisons not tested"
        gaps.append(share if len(untested) < len(judged) else untested[0].note)
    for comparison in judged:
        corpora = comparison.contrast.corpora
        if comparison.runs and len(comparison.corpora) < len(corpora):
            gaps.append(f"{len(comparison.corpora)} of {len(corpora)} corpora")
            break
    return gaps


def _uncertain(judged, adjusted):
    """Say how many comparisons would not hold if their p-values were corrected."""
    holding = [comparison for comparison in judged if comparison.direction == "holds"]
    weak = sum(adjusted.get(id(comparison), 0.0) > LARGEST_P for comparison in holding)
    if not weak:
        return []
    share = f"{weak} of {len(judged)} comparisons"
    return [f"{share} would not hold after correction for multiple tests"]


def _why_unfair(comparison, judged):
    """Return why a comparison is unfair, with the data set's name.

    The vectors are named too if they are InferSent's and other comparisons of the claim use others.
    """
    reason = comparison.note
    for name in {spec.dataset for spec in comparison.specs} - {DRAWN}:
        title = re.split(r":| \(", data.describe(name).title)[0]
        reason = reason.replace(f" on {name},", f" on {title},")
    is_infersent = {*map(_uses_infersent, judged)} == {True, False}
    if is_infersent and _uses_infersent(comparison):
        words, opening, numbers = reason.partition(" (")
        reason = f"{words} on InferSent{opening}{numbers}"
    return reason


def _uses_infersent(comparison):
    return any(spec.embedding.startswith("infersent") for spec in comparison.specs)


def _recorded_specs(judged):
    return [spec for each in _fair(judged) if each.runs for spec in each.specs]


def _corpora(judged):
    return {spec.dataset for spec in _recorded_specs(judged)} - {DRAWN}


def _grade(judged):
    all_specs = [spec for comparison in judged for spec in comparison.specs]
    return grade(_recorded_specs(judged) or all_specs)


def _named(runs):
    return " ".join(dict.fromkeys(run.record for run in runs))


def comparison_row(judged, adjusted):
    """Describe a judged comparison for tables: numbers as they are, and as they are printed."""
    contrast, ours = judged.contrast, judged.estimate
    difference = any(weight < 0 for weight, _ in contrast.cells)
    sign = "+" if difference or contrast.test not in ("= v", "at least v") else ""
    digits = 2 if contrasts.base(contrast.metric) in ("chs", "dbi") else 3
    mean, low, high = (f"{number:{sign},.{digits}f}" for number in ours[:3])
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
        "direction": judged.direction,
        "size": judged.size,
        "adjusted p": "–" if adjusted is None else f"{adjusted:.3f}",
        "note": judged.note,
        "provisional": judged.provisional,
        "records": _named(judged.runs),
    }
