"""The papers' claims: judged by rule 2 (``judge``), and answered by the chapters after rule 1."""

from pathlib import Path

import pandas as pd

from snnl_lib import results
from snnl_lib.paper import PAPERS
from snnl_lib.paper import claims_of_rule_1 as registered
from snnl_lib.report.judgement import judge, sensitivity

__all__ = ["ANSWER", "PAPERS", "VERDICTS", "answer", "from_tests", "judge", "registered"]
__all__ += ["describe", "sensitivity", "write"]

VERDICTS = ("reproduced", "partly", "not reproduced", "matches", "differs", "not attempted")
ANSWER = ["claim", "ours", "95 % interval", "verdict", "records"]


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
    for name in ("seeds", "corpora", "grade"):
        lines.append(f"  {name + ':':<9}{claim[name]}")
    return "\n".join([*lines, f"  rule 1:  {claim['verdict_1']}", f"  rule 2:  {claim['verdict']}"])


def answer(claim: str, ours: str, interval: str, verdict: str, records: str = "") -> dict[str, str]:
    """Answer one claim.

    Our number, its 95 % interval (a dash where there is none), one of ``VERDICTS``, perhaps with
    more words, and ``report.behind``.
    """
    return dict(zip(ANSWER, (claim, ours, interval, verdict, records), strict=True))


def from_tests(table: pd.DataFrame) -> list[dict[str, str]]:
    """Answer the claims that a ``report.claim_table`` tests, one answer a sentence.

    Of one cell it has the gain, of several how many go the paper's way.
    """
    answers = []
    for sentence, cells in table.groupby("the paper says", sort=False):
        gains = pd.to_numeric(cells["gain"].str.replace(",", ""), errors="coerce").dropna()
        metrics = cells["tested as"].str.rsplit(", ", n=1).str[1].unique()
        ours, interval = "not recorded", "–"
        if len(gains) and len(cells) == 1:
            ours = f"{cells['gain'].item()} ({metrics[0]})"
            interval = cells["95 % interval"].item()
        elif len(gains):
            mean = f", mean {gains.mean():+.3f} ({metrics[0]})" if len(metrics) == 1 else ""
            ours = f"better in {(gains > 0).sum()} of {len(gains)}{mean}"
            above = (cells["verdict"] == "reproduced").sum()
            interval = f"above 0 in {above} of {len(cells)}"
        records = " ".join(dict.fromkeys(" ".join(cells["records"]).split()))
        answers.append(answer(sentence, ours, interval, cells["the sentence"].iloc[0], records))
    return answers


def write(chapter: str, answers: list[dict[str, str]]) -> pd.DataFrame:
    """Write a chapter's answers to ``tables/claims-<chapter>.csv``, for the page of claims.

    Returns them for ``write_table``. Answers to what is no claim of this chapter are left out,
    since a chapter also tests sentences of its own. Raises ValueError if one of its claims has no
    answer or two, or a verdict is none of ``VERDICTS``.
    """
    claimed = registered().query("chapter == @chapter")
    given = pd.DataFrame(answers, columns=ANSWER)
    given = given[given["claim"].isin(claimed["claim"])]
    if left := [claim for claim in claimed["claim"] if (given["claim"] == claim).sum() != 1]:
        claim = f"the claim {left[0]!r} of snnl_lib/paper/claims.csv"
        raise ValueError(f"{chapter} must answer once, and does not, {claim}")
    if odd := [verdict for verdict in given["verdict"] if not verdict.startswith(VERDICTS)]:
        raise ValueError(f"a verdict begins with one of {', '.join(VERDICTS)}, got {odd[0]!r}")
    table = claimed.merge(given, on="claim", validate="one_to_one")
    results.write_atomically(Path("tables") / f"claims-{chapter}.csv", table.to_csv(index=False))
    return table[["claim", "where", "reported", "ours", "95 % interval", "verdict", "records"]]
