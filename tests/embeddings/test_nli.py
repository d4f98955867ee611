"""The inference pairs, and what names them and weights."""

import pytest

from snnl_book.cache import file_fingerprint
from snnl_book.data import DataError
from snnl_book.embeddings.nli import load_pairs


def test_the_fingerprint_of_weights_is_the_beginning_of_their_sha256(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    assert file_fingerprint(tmp_path / "file") == "ba7816bf"  # FIPS 180-2, appendix B.1


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
