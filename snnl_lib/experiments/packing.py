"""What experiments need, gathered into a pack: one file for a machine without spaCy or network.

A pack is a zip archive, laid out as the folder that ``SNNL_DATA`` names. Data sets, inference pairs
and spaCy's table of vectors are in it column by column, as they are once they are read, and MiniLM
with its weights rounded. Since it holds texts and a model, a pack is never committed.
"""

import json
import zipfile
from pathlib import Path

import numpy as np

from snnl_lib import SnnlError, data, embeddings, results, told_as, whole_file
from snnl_lib.data.places import PACK_COMMENT, wheel_name
from snnl_lib.embeddings import VECTORS_PACKAGE, backbones, nli, words
from snnl_lib.experiments.cells import DRAWN
from snnl_lib.experiments.short_texts import RANKINGS


def write(specs: list, out: Path, tell=print) -> list[str]:
    """Write what runs need into one file, which is not to be committed; returns what it holds.

    What cannot go into it is told, and the runs on that are left out. Word vectors are not brought
    for ``sif`` alone. Raises SnnlError if nothing fits, and DataError for a corpus that is out of
    reach and a file that cannot be written.
    """
    held = dict(_data_sets(specs, tell))
    if not held:
        names = " and ".join(dict.fromkeys(spec.experiment for spec in specs))
        raise SnnlError(f"nothing of {names} fits into a pack: run it where its data is")
    files = {"commit.txt": results.commit().encode()}
    if any(data.describe(name).kind != "images" for name in held):
        files["stop-words"] = sorted(data.stop_words())
    held |= _behind_embeddings({spec.embedding for spec in specs}, tell)
    for part in held.values():
        files |= part
    what, advice = f"the pack {out} could not be written", "make room, or name another file"
    with told_as(data.DataError, what, advice, of=OSError), whole_file(out) as file:
        write_files(file, files)
    return [*held]


def write_files(file, files: dict) -> None:
    """Write a pack: name -> bytes, or an array or what JSON holds, which ``data.columns`` reads."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = PACK_COMMENT.format(len(files)).encode()
        for name, content in files.items():
            if isinstance(content, np.ndarray):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.save(member, content)
            elif isinstance(content, bytes):
                archive.writestr(name, content)
            else:
                archive.writestr(f"{name}.json", json.dumps(content, default=np.ndarray.tolist))


def _files(folder, tables):
    """Name the columns of tables as files in a folder."""
    return {
        f"{folder}/{table}/{name}": content
        for table, columns in tables.items()
        for name, content in columns.items()
    }


def _data_sets(specs, tell):
    """Read the data sets of runs: pairs of a name and the files of its two parts."""
    rankings = {spec.get("task") for spec in specs} & {*RANKINGS}
    for name in sorted(({spec.dataset for spec in specs} | rankings) - {DRAWN}):
        kind = data.describe(name).kind
        try:
            if name in rankings and data.locate(name) is None:  # runs rank what is at hand
                raise data.DataError("the ranking task is not on this machine")
            form, _, _, parts = data.read(name)
        except data.DataError as error:
            if kind == "texts":
                raise
            tell(f"without the runs on {name}: {error}")
            continue
        tables = [{"rankings": part} if kind == "retrieval" else vars(part) for part in parts]
        parts = dict(zip(("train", "test"), tables, strict=True))
        yield name, _files(f"{name}/{form.fingerprint}", parts)


def _behind_embeddings(methods, tell):
    """Read what embeddings are made of: pairs of a name and the files of it."""
    if "infersent-nli" in methods:
        columns = ["premise", "hypothesis", "label"]
        try:
            frames = nli.load_pairs().items()
            tables = {split: frame[columns].to_dict("list") for split, frame in frames}
            yield "inference pairs", _files(f"snli/{nli.pairs_fingerprint()}", tables)
        except data.DataError as error:
            tell(f"without the runs on infersent-nli: {error}")
    if any(method.startswith(("spacy", "infersent-")) for method in methods):
        tables = {"table": words.table()}
        yield "word vectors", _files(f"packages/{wheel_name(VECTORS_PACKAGE)}", tables)
    transformers = methods & {*embeddings.TRANSFORMERS}
    for name in sorted({backbones.parse(embedding)[0] for embedding in transformers}):
        if package := backbones.BACKBONES[name].package:
            tables = {"model": backbones.files_to_pack(name)}
            yield name, _files(f"packages/{wheel_name(package)}", tables)
        else:
            tell(f"without the runs on {name}: a pack takes only weights that come in a package")
