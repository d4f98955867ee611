"""The inference pairs, and what names them and weights."""

import re

import pytest

from snnl_book.cache import file_fingerprint
from snnl_book.data import DataError
from snnl_book.embeddings import nli
from snnl_book.embeddings.nli import load_pairs


def test_the_fingerprint_of_weights_is_the_beginning_of_their_sha256(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    assert file_fingerprint(tmp_path / "file") == "ba7816bf"  # FIPS 180-2, appendix B.1


def test_the_inference_pairs_are_the_documented_ones():
    try:
        pairs = load_pairs()
    except DataError:
        pytest.skip("the inference pairs are not at hand")
    assert {name: len(frame) for name, frame in pairs.items()} == {
        "train": 48_523,
        "dev": 9_842,
        "test": 9_824,
    }
    for frame in pairs.values():
        assert {"premise", "hypothesis", "label"} <= set(frame.columns)
        share = frame["label"].value_counts(normalize=True)
        assert sorted(share.index) == [0, 1, 2] and share.min() > 0.2
        assert frame["premise"].str.strip().ne("").all()
    assert set(pairs["train"]["source"]) == set(nli.PAIR_SOURCES)
    # Which label means what: a contradiction says "nobody" or "no" more often than an
    # entailment does.
    dev = pairs["dev"]
    denies = (
        dev["hypothesis"]
        .str.contains(r"\b(?:nobody|no|sleeping|asleep)\b", case=False)
        .groupby(dev["label"])
        .mean()
    )
    assert denies[2] > 3 * denies[0]
    held_out = set(zip(dev["premise"], dev["hypothesis"], strict=True)) | set(
        zip(pairs["test"]["premise"], pairs["test"]["hypothesis"], strict=True)
    )
    assert not held_out & set(
        zip(pairs["train"]["premise"], pairs["train"]["hypothesis"], strict=True)
    )


def test_without_the_pairs_the_error_names_both_places_and_what_to_do(
    empty_cache, tmp_path, monkeypatch
):
    with pytest.raises(DataError, match="the inference pairs are not on this machine") as caught:
        load_pairs()
    assert f"(looked in {empty_cache / 'snli'})" in str(
        caught.value
    ) and "use infersent-random" in str(caught.value)
    monkeypatch.setenv("SNNL_DATA", str(tmp_path))
    with pytest.raises(
        DataError, match=re.escape(f"(looked in {tmp_path / 'snli'} and {empty_cache / 'snli'})")
    ):
        load_pairs()


def test_half_of_the_pairs_are_not_the_pairs_and_damaged_ones_are_named(empty_cache):
    folder = empty_cache / "snli"
    folder.mkdir()
    for name in ("train", "dev"):
        (folder / f"{name}.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="the inference pairs are not on this machine"):
        load_pairs()
    (folder / "test.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="is damaged or not the published file") as caught:
        load_pairs()
    assert str(folder / "train.parquet") in str(caught.value)
