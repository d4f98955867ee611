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
from snnl_lib.data.places import wheel_name
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
        for name, content in files.items():
            if isinstance(content, np.ndarray):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.save(member, content)
            elif isinstance(content, bytes):
                archive.writestr(name, content)
            else:
                archive.writestr(f"{name}.json", json.dumps(content, default=np.ndarray.tolist))


def _under(folder, columns):
    return {f"{folder}/{name}": content for name, content in columns.items()}


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
        train, test = ({"rankings": p} if kind == "retrieval" else vars(p) for p in parts)
        folder = f"{name}/{form.fingerprint}"
        yield name, _under(f"{folder}/train", train) | _under(f"{folder}/test", test)


def _behind_embeddings(methods, tell):
    """Read what embeddings are made of: pairs of a name and the files of it."""
    if "infersent-nli" in methods:
        folder, columns = f"snli/{nli.pairs_fingerprint()}", ["premise", "hypothesis", "label"]
        try:
            pairs = {f"{folder}/{split}": frame for split, frame in nli.load_pairs().items()}
            tables = [_under(name, frame[columns].to_dict("list")) for name, frame in pairs.items()]
            yield "inference pairs", {k: v for table in tables for k, v in table.items()}
        except data.DataError as error:
            tell(f"without the runs on infersent-nli: {error}")
    if any(method.startswith(("spacy", "infersent-")) for method in methods):
        yield "word vectors", _under(f"packages/{wheel_name(VECTORS_PACKAGE)}/table", words.table())
    transformers = methods & {*embeddings.TRANSFORMERS}
    for name in sorted({backbones.parse(embedding)[0] for embedding in transformers}):
        if package := backbones.BACKBONES[name].package:
            folder = f"packages/{wheel_name(package)}/model"
            yield name, _under(folder, backbones.files_to_pack(name))
        else:
            tell(f"without the runs on {name}: a pack takes only weights that come in a package")
