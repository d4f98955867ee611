"""How close a run is to its paper's protocol, by the rules of ``grades.toml``."""

import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from snnl_book import data
from snnl_book.experiments.cells import DRAWN
from snnl_book.results import Spec

GRADES = ("distant", "close", "as published")
"""The grades, the lowest first."""
CHOICE = "our choice"
"""What a setting is called that the paper does not print; it does not change the grade."""
CLOSE_SHARE = 0.5
"""Runs on at least this share of the paper's data are close, runs on less are distant."""
ADDED = ("-readings", "-rivals", "-ablation")
"""Endings of the experiments that vary another one, whose rules they share."""


@cache
def _rules():
    rules = tomllib.loads(Path(__file__).with_name("grades.toml").read_text("utf-8"))["rule"]
    for rule in rules:
        if rule.get("grade", "part") not in (*GRADES[:2], "choice", "part"):
            raise ValueError(f"grades.toml: there is no grade {rule['grade']!r}")
    return rules


def notes(spec: Spec) -> dict[str, tuple[str, float | None]]:
    """Return how a run differs from its paper's protocol: difference -> (grade, share of the data).

    The grade is ``CHOICE`` for a setting that the paper does not print. The share is None if the
    difference is not in the amount of data.
    """
    family = spec.experiment
    for ending in ADDED:
        family = family.removesuffix(ending)
    share = None
    if spec.dataset != DRAWN:
        share = spec.n_train / data.describe(spec.dataset).forms[0].documents[0]
    differences = {}
    for rule in _rules():
        is_part = rule.get("part", False)
        fits = family in rule["experiments"] and not (is_part and (share is None or share >= 1))
        for name, values in rule["when"].items():
            fits = fits and (getattr(spec, name, None) or spec.get(name)) in values
        if fits:
            of_share = GRADES[1] if share is None or share >= CLOSE_SHARE else GRADES[0]
            level = {"choice": CHOICE}.get(rule.get("grade"), rule.get("grade", of_share))
            difference = rule["says"].format(n_train=spec.n_train)
            differences[difference] = (level, share if is_part else None)
    return differences


def grade(specs: Iterable[Spec]) -> str:
    """Return the grades of some runs, the lowest first, each with its differences in parentheses.

    An example is ``distant (MiniLM instead of RoBERTa; 2,000 texts of each corpus, 5 to 18 % of the
    data), close (batches of 32 instead of 8)``. Runs without a difference are graded ``as
    published``. Settings that the paper does not print come last, as ``our choice (...)``.
    """
    shares_of: dict[str, dict[str, set]] = {level: {} for level in (*GRADES[:2], CHOICE)}
    for spec in specs:
        for difference, (level, share) in notes(spec).items():
            shares_of[level].setdefault(difference, set()).add(share)
    parts = []
    for level, differences in shares_of.items():
        if level == CHOICE and not parts:
            parts.append(GRADES[-1])
        if differences:
            words = [f"{name}{_percent(shares)}" for name, shares in differences.items()]
            parts.append(f"{level} ({'; '.join(words)})")
    return ", ".join(parts)


def lowest(grades: str) -> str:
    """Return the lowest of the grades that ``grade`` returned, without the differences.

    >>> lowest("distant (MiniLM instead of RoBERTa), close (batches of 32 instead of 8)")
    'distant'
    """
    return grades.partition(" (")[0].partition(",")[0]


def _percent(shares):
    """Return the range of some shares of a data set as text, empty if none is known."""
    known = [f"{100 * share:.0f}" for share in sorted(filter(None, shares))]
    ends = " to ".join(dict.fromkeys(known[:1] + known[-1:]))
    return f", {ends} % of the data" if known else ""
