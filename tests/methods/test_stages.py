"""The checkpoints of ClusterBERT's finished stages."""

import numpy as np
import pytest
import torch

from snnl_book.methods import _stages
from snnl_lib.checkpoint import CacheError


def test_a_finished_stage_is_read_back_and_a_file_that_does_not_serve_is_named(tmp_path):
    path, rows = tmp_path / "stage.pt", [{"stage": 1, "loss": 0.5}]
    trained = {"weight": torch.ones(2, 3)}
    embeddings = {"texts": np.eye(2, dtype=np.float32)}
    results = {"rows": rows, "seconds": 2.0, "embeddings": embeddings, "clusters": np.arange(2)}
    _stages.save(path, weights=trained, **results)

    fresh = {"weight": torch.nn.Parameter(torch.zeros(2, 3))}
    loaded = _stages.load(path, fresh)
    assert (fresh["weight"] == 1).all() and loaded["rows"] == rows and loaded["seconds"] == 2
    assert (loaded["embeddings"]["texts"] == np.eye(2)).all() and [*loaded["clusters"]] == [0, 1]

    for other in ({"weight": torch.zeros(3)}, {"bias": torch.zeros(2, 3)}):
        with pytest.raises(CacheError, match=r"weights of another model .*: remove it"):
            _stages.load(path, other)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CacheError, match=r"stage\.pt is damaged .*: remove it"):
        _stages.load(path, fresh)
    (tmp_path / "folder").mkdir()
    with pytest.raises(CacheError, match=r"could not be read \(Is a directory\)"):
        _stages.load(tmp_path / "folder", fresh)
