"""How close a run is to its paper's protocol, by the rules of ``grades.toml``."""

import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from snnl_book import data
from snnl_book.experiments.cells import DRAWN
from snnl_book.results import Spec

GRADES = ("stand-in", "reduced", "paper's protocol")
"""The grades, the lowest first."""
ADDED = ("-readings", "-rivals", "-ablation")
"""Endings of the experiments that vary another one, whose rules they share."""


@cache
def _rules():
    rules = tomllib.loads(Path(__file__).with_name("grades.toml").read_text("utf-8"))["rule"]
    if odd := [rule for rule in rules if rule["grade"] not in GRADES[:2]]:
        raise ValueError(f"grades.toml: there is no grade {odd[0]['grade']!r}")
    return rules


def notes(spec: Spec) -> dict[str, tuple[str, float | None]]:
    """Return how a run differs from its paper's protocol: difference -> (grade, share of the data).

    The share is None if the difference is not in the amount of data.
    """
    family = spec.experiment
    for ending in ADDED:
        family = family.removesuffix(ending)
    share = None
    if spec.dataset != DRAWN:
        share = spec.n_train / data.describe(spec.dataset).forms[0].documents[0]
    differences = {}
    for rule in _rules():
        part = rule.get("part", False)
        fits = family in rule["experiments"] and not (part and (share is None or share >= 1))
        for name, values in rule["when"].items():
            fits = fits and (getattr(spec, name, None) or spec.get(name)) in values
        if fits:
            says = rule["says"].format(n_train=spec.n_train)
            differences[says] = (rule["grade"], share if part else None)
    return differences


def grade(specs: Iterable[Spec]) -> str:
    """Return the grades of some runs, the lowest first, each with its differences in parentheses.

    An example is ``stand-in (MiniLM for RoBERTa), reduced (2,000 texts of a corpus, 5 to 18 %)``.
    Runs without a difference have the grade ``paper's protocol``.
    """
    shares_of: dict[str, dict[str, set]] = {level: {} for level in GRADES[:2]}
    for spec in specs:
        for difference, (level, share) in notes(spec).items():
            shares_of[level].setdefault(difference, set()).add(share)
    parts = []
    for level, differences in shares_of.items():
        if differences:
            words = [f"{name}{_percent(shares)}" for name, shares in differences.items()]
            parts.append(f"{level} ({'; '.join(words)})")
    return ", ".join(parts) or GRADES[-1]


def _percent(shares):
    """Return the range of some shares of a data set as text, empty if none is known."""
    known = [f"{100 * share:.0f}" for share in sorted(filter(None, shares))]
    ends = " to ".join(dict.fromkeys(known[:1] + known[-1:]))
    return f", {ends} %" if known else ""
