"""Copy what runs need into a folder, a pack, for a machine without spaCy or a network.

There ``SNNL_DATA`` names the folder. It contains the published files of data sets and inference
pairs, spaCy's table of word vectors, and MiniLM with rounded weights. A pack contains texts and a
model, so it is never committed.
"""

import shutil
from pathlib import Path

from snnl_book import data, embeddings, results
from snnl_book.embeddings import backbones, nli, words
from snnl_book.experiments.cells import DRAWN
from snnl_book.experiments.short_texts import RANKINGS
from snnl_lib import SnnlError


def write(specs: list, folder: Path) -> list[str]:
    """Copy what runs need into a folder, and return the names of its contents.

    Whatever cannot be copied is printed, and the runs that need it are left
    out. Word vectors are not copied for ``sif`` alone. Raises SnnlError if nothing can be copied,
    and DataError if a corpus of texts cannot be found or fetched.
    """
    contents = [*_copy_data_sets(specs, folder)]
    if not contents:
        names = " and ".join(dict.fromkeys(spec.experiment for spec in specs))
        raise SnnlError(f"a pack can hold no data of {names}: run them where their data is")
    contents += _copy_resources({spec.embedding for spec in specs}, folder)
    (folder / "commit.txt").write_text(results.commit())
    return contents


def commit() -> str:
    """Return the commit of this checkout, or without git that of the one that wrote the pack."""
    checkout = results.commit()
    pack = data.user_folder("commit.txt")
    if checkout == "unknown" and pack and pack.exists():
        return pack.read_text()
    return checkout


def _copy(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _copy_data_sets(specs, folder):
    """Read, and thereby check, the data sets of runs, copy them and yield their names."""
    rankings = {spec.get("task") for spec in specs} & {*RANKINGS}
    for name in sorted(({spec.dataset for spec in specs} | rankings) - {DRAWN}):
        entry = data.describe(name)
        try:
            if name in rankings and data.locate(name) is None:  # runs rank only what is found
                raise data.DataError("the ranking task is not on this machine")
            form, source, *_ = data.read(name)
        except data.DataError as error:
            if entry.kind in ("texts", "words"):
                raise
            print(f"the pack leaves out the runs on {name}: {error}")
            continue
        for file in form.files:
            _copy(source / file, folder / (entry.folder or name) / file)
        yield name


def _copy_resources(methods, folder):
    """Copy word vectors, models and inference pairs of embeddings, and yield their names."""
    if "infersent-nli" in methods:
        try:
            source = nli.pairs_folder()
            for split in nli.PAIRS:
                _copy(source / f"{split}.parquet", folder / "snli" / f"{split}.parquet")
            yield "inference pairs"
        except data.DataError as error:
            print(f"the pack leaves out the runs on infersent-nli: {error}")
    if any(method.startswith(("spacy", "infersent-")) for method in methods):
        words.table()
        _copy(words.table_file(), folder / "packages" / words.table_file().name)
        yield "word vectors"
    transformers = methods & {*embeddings.TRANSFORMERS}
    for name in sorted({backbones.parse(embedding)[0] for embedding in transformers}):
        if backbones.BACKBONES[name].package:
            backbones.write_rounded(name, folder)
            yield name
        else:
            problem = "a pack takes only weights that come in a Python package"
            print(f"the pack leaves out the runs on {name}: {problem}")
