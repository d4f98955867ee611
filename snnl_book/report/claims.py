"""The verdicts on the papers' claims, as chapters, pages and the command line show them."""

import re
from collections import Counter

import pandas as pd

from snnl_book.paper import PAPERS as PAPERS
from snnl_book.paper.declared import WORDS
from snnl_book.report import contrasts
from snnl_book.report.judged_claims import ALL_SEEDS as ALL_SEEDS
from snnl_book.report.judged_claims import COLLAPSED as COLLAPSED
from snnl_book.report.judged_claims import RULES, UNITS, word
from snnl_book.report.judged_claims import VERDICTS as VERDICTS
from snnl_book.report.judged_claims import differences as differences
from snnl_book.report.judged_claims import earlier as earlier
from snnl_book.report.judged_claims import judge as judge
from snnl_book.report.judged_claims import of as of
from snnl_book.report.judgement import NOT_RECORDED
from snnl_book.report.words import in_words, listing

_HEADINGS = {"text": "The-text-paper", "image": "The-image-paper", "ClusterBERT": "ClusterBERT"}
_DIRECTIONS = {
    "holds": ("holds", "hold"),
    "fails": ("fails", "fail"),
    "open": ("is open", "are open"),
    "unfair": ("is unfair", "are unfair"),
    "not tested": ("is not tested", "are not tested"),
}
SCORES = {
    "acc": "accuracy",
    "nmi_geometric": "NMI",
    "sil": "silhouette",
    "dunn": "Dunn index",
    "chs": "CHS",
    "neighbours": "share of neighbours of the same class",
    "neighbours@20": "share of neighbours of the same class, epoch 20",
    "common@20": "loss at one temperature, epoch 20",
}
"""The names that verdicts use for scores; others keep the names of records."""
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


def verdicts(judged: pd.DataFrame) -> pd.DataFrame:
    """Make a table of claims from rows of ``judge``.

    Columns: claim, the paper, ours, size, verdict, grade, records.
    """
    ours = [_with_words(_ours(row)) for row in judged.itertuples()]
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
        came_out = re.sub(r"(?<![\w.])-(?=\d)", "−", _came_out(row))
        lines.append(f"- {verdict}: {claim}. {came_out}")
    return "\n".join([*lines, "", _LINKS])


_LINKS = """\
For what the verdicts mean, see [our rule](claims.md#The-rule); for the paper's numbers and ours \
in each comparison, see [The claims](claims.md)."""


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


def tally(judged: pd.DataFrame) -> str:
    """Count the verdicts of rows of ``judge`` in a sentence, the best first.

    >>> tally(pd.DataFrame({"kind": ["open", "holds", "open"]}))
    'Of the three claims, one holds and two are open.'
    >>> tally(pd.DataFrame({"kind": ["open", "open"]}))
    'Both claims are open.'
    """
    counts = judged["kind"].map(word).value_counts().reindex(_BEST_FIRST).dropna().astype(int)
    if len(counts) == 1:
        number = "Both" if len(judged) == 2 else f"All {in_words(len(judged))}"
        return f"{number} claims {_COUNTED[counts.index[0]][1]}."
    parts = [f"{in_words(count)} {_COUNTED[kind][count > 1]}" for kind, count in counts.items()]
    return f"Of the {in_words(len(judged))} claims, {listing(parts)}."


_COUNTED = _DIRECTIONS | {
    "holds in part": ("holds in part", "hold in part"),
    "mixed": ("is mixed", "are mixed"),
    "fails in part": ("fails in part", "fail in part"),
}
_BEST_FIRST = ["holds", "holds in part", "mixed", "open", "fails in part", "fails", "not tested"]


def _came_out(claim):
    """Say in one sentence how the comparisons of a claim came out, or what its only one measured.

    It ends with why comparisons are open, unfair or not tested.
    """
    directions = [contrast["direction"] for contrast in claim.contrasts]
    seen = "declared after seeing" in claim.verdict
    if {*directions} <= {"not tested"} and seen:
        return "We added this claim after seeing our runs: only runs with new seeds can test it."
    if {*directions} <= {"not tested"}:
        return f"No recorded run tests it{_reasons(claim.contrasts, 'not tested')}."
    if len(directions) == 1:
        return _measured(claim, claim.contrasts[0])
    counts = {name: directions.count(name) for name in dict.fromkeys(directions)}
    if len(counts) == 1:
        number = "Both" if len(directions) == 2 else f"All {in_words(len(directions))}"
        end = f"{_DIRECTIONS[directions[0]][1]}{_reasons(claim.contrasts, directions[0])}"
        return f"{number} comparisons {end}."
    parts = [
        f"{in_words(count)} {_DIRECTIONS[name][count > 1]}"
        f"{_reasons(claim.contrasts, name, ' with new seeds' * seen)}"
        for name, count in counts.items()
    ]
    return f"Of {in_words(len(directions))} comparisons, {listing(parts)}."


def _measured(claim, contrast):
    """Say what the only comparison of a claim measured."""
    if not contrast["units"]:
        return "There are too few runs."
    ours, ends = claim.ours, claim.interval
    if "(nmi_geometric)" in ours:  # short texts, whose scores are given in points
        ours, ends = (re.sub(r"\d+\.\d+", _in_points, text) for text in (ours, ends))
        ours = ours.replace(" (", " points (")
    ours = _with_words(ours)
    interval = "" if ends == "–" else f", 95 % interval {ends}"
    reason = f"; {_reason(contrast)}" if _reason(contrast) else ""
    in_direction = "Counted in the direction of the claim, our difference is"
    says = in_direction if contrast["test"].startswith("> 0") else "We measured"
    return f"{says} {ours.removesuffix(')')}{interval}{reason})."


def _with_words(ours):
    """Replace the names of scores in parentheses by their words."""
    return re.sub(r"\(([\w@]+)\)", lambda name: f"({SCORES.get(name[1], name[1])})", ours)


def _in_points(match):
    """Return a matched number times 100, with one decimal."""
    return f"{100 * float(match[0]):.1f}"


def _reasons(contrasts_of_claim, direction, needed=""):
    """Return why comparisons have a direction, in parentheses, or nothing.

    Reasons that apply to only some of the comparisons are counted. ``needed`` says what kind of
    runs is missing.
    """
    chosen = [contrast for contrast in contrasts_of_claim if contrast["direction"] == direction]
    counts = Counter(map(_reason, chosen))
    if counts.keys() <= {""}:
        return ""
    if len(counts) == 1:
        return f" ({', '.join(counts)})"
    parts = [
        f"{in_words(count)} because {reason or f'there are no runs{needed}'}"
        for reason, count in counts.most_common()
    ]
    return f" ({'; '.join(parts)})"


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
    if "best of" in contrast["says"] and contrast["units"] <= 1:
        return "there are too few runs for an interval around their best"
    if contrast["units"] < contrasts.FEWEST:
        return f"there are fewer than three {UNITS[contrast['unit']]}"
    if contrast["note"] == "the units hardly differ":
        return (
            "all runs give the same difference, so we cannot compute an interval, and without one"
            " our rule decides nothing"
        )
    if contrast["test"] == "more than half":
        clear, compared = re.findall(r"\d+", contrast["note"].removeprefix("above 0"))
        gain = "gain" if int(clear) > 1 else "gains"
        return f"{clear if clear != '0' else 'none'} of {compared} methods {gain} clearly"
    if contrast["test"] == "> 0":
        return "the interval contains 0"
    words = re.sub("^(> 0|at least v) ?", "", contrast["test"])
    limit = f"the limit for *{words}*" if words in WORDS else "the limit"
    return f"the interval crosses {limit}"


def moved_by(row: pd.Series) -> str:
    """Say what moved a claim's verdict from rule 2 to now: the rule or the runs.

    ``row`` is a row of ``judge``. Rule 3's verdict on the records of rule 2 separates the rule,
    with its choice of comparisons, from the runs made since. Only the words of verdicts are
    compared, because rules 2 and 3 count differently.

    >>> row = {"rule 2": "partly (1 of 2)", "rule 3 before": "open", "kind": "holds"}
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
        causes.append("the rule")
    if word(row["rule 3 before"]) != word(row["kind"]):
        causes.append("the runs")
    return ", then ".join(causes) or "nothing"


def _ours(claim):
    """Return our numbers on a claim as text.

    One comparison gives its mean and interval. Several give the lowest and the highest mean (if
    they share a metric) and their outcomes. Scores and differences are not put in one range.
    """
    if len(claim.contrasts) == 1:
        return claim.ours if claim.interval == "–" else f"{claim.ours}, {claim.interval}"
    fair = [contrast for contrast in claim.contrasts if contrast["direction"] != "unfair"]
    measured = [contrast for contrast in fair if contrast["units"]]
    if len({contrast["metric"] for contrast in measured}) != 1:
        return claim.ours
    measured = sorted(measured, key=lambda contrast: contrast["mean"])
    numbers = [contrast["ours"].partition(" ")[0] for contrast in measured]
    low, high = numbers[0], numbers[-1]
    ends = low if low == high else f"from {low} to {high}"
    if len({number[0] in "+-" for number in numbers}) > 1:
        ends = listing(numbers)
    return f"{ends} ({measured[0]['metric']}): {claim.ours}"
