"""What experiments need, gathered into a pack for a machine without spaCy, network or git."""

from pathlib import Path

import numpy as np

from snnl_lib import SnnlError, data, embeddings, results
from snnl_lib.data import pack
from snnl_lib.embeddings import backbones, nli, words
from snnl_lib.experiments.cells import DRAWN
from snnl_lib.experiments.short_texts import RANKINGS


def write(specs: list, out: Path, tell=print) -> list[str]:  # noqa: C901, PLR0912 - kinds of data
    """Write what runs need into one file, which is not to be committed; returns what it holds.

    What cannot go into it is told, and the runs on that are left out. Raises SnnlError if nothing
    fits, DataError for a corpus that is out of reach, and PackError if the file cannot be written.
    """
    rankings = {spec.get("task") for spec in specs} & {*RANKINGS}
    facts = {"commit": results.commit(), "corpora": {}, "nli": "", "backbones": {}}
    splits = {}
    for name in sorted(({spec.dataset for spec in specs} | rankings) - {DRAWN}):
        if name in rankings and data.locate(name) is None:  # runs rank what is at hand
            tell(f"without the runs on {name}: the ranking task is not on this machine")
            continue
        try:
            form, _, _, parts = data.read(name)
        except data.DataError as error:
            if data.describe(name).kind == "texts":
                raise
            tell(f"without the runs on {name}: {error}")
            continue
        facts["corpora"][name] = form.fingerprint
        if data.describe(name).kind == "short texts":
            facts["stop words"] = sorted(data.stop_words())
        for split, part in zip(("train", "test"), parts, strict=True):
            splits[f"{name}/{split}"] = _content(name, part)
    if not splits:
        names = " and ".join(dict.fromkeys(spec.experiment for spec in specs))
        raise SnnlError(f"nothing of {names} fits into a pack: run it where its data is")
    if any(spec.embedding == "infersent-nli" for spec in specs):
        try:
            for split, (premises, hypotheses, labels) in nli.pairs_as_rows().items():
                rows = [row for pair in zip(premises, hypotheses, strict=True) for row in pair]
                splits[f"nli/{split}"] = rows, np.repeat(labels, 2)
            facts["nli"] = nli.pairs_fingerprint()
        except data.DataError as error:
            tell(f"without the runs on infersent-nli: {error}")
    files = {}
    transformers = {s.embedding for s in specs if s.embedding in embeddings.TRANSFORMERS}
    for name in sorted({backbones.parse(embedding)[0] for embedding in transformers}):
        if backbones.BACKBONES[name].package:
            files[name] = backbones.files_to_pack(name)
            facts["backbones"][name] = backbones.fingerprint(name)
        else:
            tell(f"without the runs on {name}: a pack takes only weights that come in a package")
    pack.write_pack(out, words.word_vectors(), splits, facts, files)
    return [*splits, *files]


def _content(name, part):
    """What a pack holds of one part of a data set: (documents, labels)."""
    kind = data.describe(name).kind
    if kind == "retrieval":  # the parts are dev and test, and have no classes
        return part, []
    if kind == "images":
        return part.pixels, part.labels
    if kind == "short texts":  # what trains on them reads the texts themselves
        return part.texts, part.labels
    rows = words.own_rows if name == "opinion_lexicon" else words.word_rows
    return rows(part.texts), part.labels
