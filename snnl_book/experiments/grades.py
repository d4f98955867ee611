"""How near a run is to its paper's protocol, by the rules of ``grades.toml``."""

import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from snnl_book import data
from snnl_book.experiments.cells import DRAWN
from snnl_book.results import Spec

GRADES = ("stand-in", "reduced", "paper's protocol")
"""From the lowest."""
ADDED = ("-readings", "-rivals", "-ablation")
"""Endings of experiments with rows that no paper has: their rules are those of what they vary."""


@cache
def _rules():
    rules = tomllib.loads(Path(__file__).with_name("grades.toml").read_text("utf-8"))["rule"]
    if odd := [rule for rule in rules if rule["grade"] not in GRADES[:2]]:
        raise ValueError(f"grades.toml: there is no grade {odd[0]['grade']!r}")
    return rules


def notes(spec: Spec) -> dict[str, tuple[str, float | None]]:
    """Say in what a run differs from its paper's protocol: what -> (grade, share of the data).

    The share is None where the difference is not one of size.
    """
    family = spec.experiment
    for ending in ADDED:
        family = family.removesuffix(ending)
    share = None
    if spec.dataset != DRAWN:
        share = spec.n_train / data.describe(spec.dataset).forms[0].documents[0]
    found = {}
    for rule in _rules():
        part = rule.get("part", False)
        fits = family in rule["experiments"] and not (part and (share is None or share >= 1))
        for name, values in rule["when"].items():
            fits = fits and (getattr(spec, name, None) or spec.get(name)) in values
        if fits:
            says = rule["says"].format(n_train=spec.n_train)
            found[says] = (rule["grade"], share if part else None)
    return found


def grade(specs: Iterable[Spec]) -> str:
    """Grade what rests on some runs, the lowest grade first, with what stands for what and with
    what share of the data: ``stand-in (MiniLM for RoBERTa), reduced (2,000 texts of a corpus, 5 to
    18 %)``, or ``paper's protocol``.
    """
    found: dict[str, dict[str, set]] = {}
    for spec in specs:
        for says, (level, share) in notes(spec).items():
            found.setdefault(level, {}).setdefault(says, set()).add(share)
    told = []
    for level in GRADES[:2]:
        words = [f"{says}{_percent(shares)}" for says, shares in found.get(level, {}).items()]
        told += [f"{level} ({'; '.join(words)})"] if words else []
    return ", ".join(told) or GRADES[-1]


def _percent(shares):
    """Write down shares of a data set; nothing if they are none."""
    known = [f"{100 * share:.0f}" for share in sorted(filter(None, shares))]
    ends = " to ".join(dict.fromkeys(known[:1] + known[-1:]))
    return f", {ends} %" if known else ""
