"""The papers' claims, typed in once with their place, and what the chapters find of each."""

from pathlib import Path

import pandas as pd

from snnl_lib import results

PAPERS = {
    "text": "agarap2021text",
    "image": "agarap2020improving",
    "ClusterBERT": "clusterbert2023",
}
"""The papers, and their entries in the bibliography."""

VERDICTS = ("reproduced", "partly", "not reproduced", "matches", "differs", "not attempted")
ANSWER = ["claim", "ours", "95 % interval", "verdict", "records"]


def registered() -> pd.DataFrame:
    """Read the claims: columns paper, chapter (which judges it), claim, where (in the paper),
    reported (its number), changes (what would change our mind).

    ``headline`` is yes for those that the landing page shows.
    """
    return pd.read_csv(Path(__file__).parents[1] / "paper" / "claims.csv", keep_default_na=False)


def answer(claim: str, ours: str, interval: str, verdict: str, records: str = "") -> dict[str, str]:
    """Answer one claim: our number, its 95 % interval (a dash where there is none), one of
    ``VERDICTS``, perhaps with more words, and ``report.behind``.
    """
    return dict(zip(ANSWER, (claim, ours, interval, verdict, records), strict=True))


def from_tests(table: pd.DataFrame) -> list[dict[str, str]]:
    """Answer the claims that a ``report.claim_table`` tests: one answer a sentence, of one cell its
    gain, of several how many go the paper's way.
    """
    answers = []
    for sentence, cells in table.groupby("the paper says", sort=False):
        gains = pd.to_numeric(cells["gain"].str.replace(",", ""), errors="coerce").dropna()
        metrics = cells["tested as"].str.rsplit(", ", n=1).str[1].unique()
        ours, interval = "not recorded", "–"
        if len(gains) and len(cells) == 1:
            ours, interval = (
                f"{cells['gain'].iloc[0]} ({metrics[0]})",
                cells["95 % interval"].iloc[0],
            )
        elif len(gains):
            mean = f", mean {gains.mean():+.3f} ({metrics[0]})" if len(metrics) == 1 else ""
            ours, interval = (
                f"better in {(gains > 0).sum()} of {len(gains)}{mean}",
                f"above 0 in {(cells['verdict'] == 'reproduced').sum()} of {len(cells)}",
            )
        records = " ".join(dict.fromkeys(" ".join(cells["records"]).split()))
        answers.append(answer(sentence, ours, interval, cells["the sentence"].iloc[0], records))
    return answers


def write(chapter: str, answers: list[dict[str, str]]) -> pd.DataFrame:
    """Write a chapter's answers to ``tables/claims-<chapter>.csv``, which the page of claims
    gathers; returns them for ``write_table``.

    Answers to what is no claim of this chapter are left out, since a chapter also tests sentences
    of its own. Raises ValueError if one of its claims has no answer or two, or a verdict is none of
    ``VERDICTS``.
    """
    claimed = registered().query("chapter == @chapter")
    given = pd.DataFrame(answers, columns=ANSWER)
    given = given[given["claim"].isin(claimed["claim"])]
    if left := [claim for claim in claimed["claim"] if (given["claim"] == claim).sum() != 1]:
        raise ValueError(
            f"{chapter} must answer once, and does not, the claim {left[0]!r} of snnl_lib/paper/claims.csv"
        )
    if odd := [verdict for verdict in given["verdict"] if not verdict.startswith(VERDICTS)]:
        raise ValueError(f"a verdict begins with one of {', '.join(VERDICTS)}, got {odd[0]!r}")
    table = claimed.merge(given, on="claim", validate="one_to_one")
    results.write_atomically(Path("tables") / f"claims-{chapter}.csv", table.to_csv(index=False))
    return table[["claim", "where", "reported", "ours", "95 % interval", "verdict", "records"]]
