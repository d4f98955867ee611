"""A checkpoint is whole or absent, and belongs to one training."""

import errno
import io
import os
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from snnl_lib import checkpoint
from snnl_lib.checkpoint import CacheError, Checkpoint, cache_file, whole_file


def test_all_kinds_of_parts_and_of_progress_come_back(tmp_path):
    weight = torch.nn.Parameter(torch.randn(2))
    parts = {"weight": weight, "layer": torch.nn.Linear(2, 3), "drawn": torch.Generator()}
    parts["numbers"] = np.random.default_rng(1)
    kept = Checkpoint(str(tmp_path / "kept.pt"), "one", **parts)
    progress = {"rows": [{"epoch": np.int64(3), "loss": np.float32(0.5)}], "sums": torch.ones(2)}
    kept.save(**progress)
    before = weight.detach().clone(), parts["layer"].weight.detach().clone()
    drawn = torch.rand(2), torch.rand(2, generator=parts["drawn"]), parts["numbers"].random()
    with torch.no_grad():
        weight.zero_()
        parts["layer"].weight.zero_()
    restored = kept.restore()
    assert torch.equal(weight, before[0]) and torch.equal(parts["layer"].weight, before[1])
    again = torch.rand(2), torch.rand(2, generator=parts["drawn"]), parts["numbers"].random()
    assert torch.equal(again[0], drawn[0]) and torch.equal(again[1], drawn[1])
    assert again[2] == drawn[2]
    assert restored["rows"] == [{"epoch": 3, "loss": 0.5}]
    assert torch.equal(restored["sums"], torch.ones(2))
    kept.remove()
    assert not kept.path.exists()
    kept.remove()


def test_no_training_continues_from_the_file_of_another_or_from_a_damaged_one(tmp_path):
    weight, path = torch.zeros(2), tmp_path / "kept.pt"
    assert Checkpoint(None, weight=weight).restore() == {}
    assert Checkpoint(path, weight=weight).restore() == {}
    Checkpoint(path, "one", weight=weight).save(step=1)
    with pytest.raises(CacheError, match=r"kept\.pt belongs to another training run: remove it"):
        Checkpoint(path, "another", weight=weight).restore()
    for damaged in (b"torn", path.read_bytes()[:-9]):
        path.write_bytes(damaged)
        with pytest.raises(CacheError, match=r"kept\.pt is damaged .*: remove it"):
            Checkpoint(path, weight=weight).restore()


def test_a_checkpoint_that_cannot_be_used_says_what_does_not_fit(tmp_path):
    path = tmp_path / "kept.pt"
    Checkpoint(path, model=torch.nn.Linear(2, 3)).save(step=1)
    longer = torch.nn.Sequential(torch.nn.Linear(2, 3))
    for parts, problem in (
        ({"model": longer}, r"does not fit the part 'model' \(.*Missing key.*0\.weight"),
        ({"model": torch.nn.Linear(2, 4)}, r"does not fit the part 'model' \(.*size mismatch"),
        ({"model": longer, "means": torch.zeros(2)}, "holds model, but .* has model, means"),
    ):
        with pytest.raises(CacheError, match=rf"(?s)kept\.pt .*{problem}.*: remove it"):
            Checkpoint(path, **parts).restore()
    torch.save(longer.state_dict(), path)
    with pytest.raises(CacheError, match=r"kept\.pt is not a checkpoint, .*: remove it"):
        Checkpoint(path, model=longer).restore()
    path.unlink()
    path.mkdir()
    with pytest.raises(CacheError, match=r"kept\.pt could not be read \(Is a directory\)"):
        Checkpoint(path, model=longer).restore()


def test_the_checkpoint_of_a_training_on_the_cpu_leaves_accelerators_alone(tmp_path, monkeypatch):
    def asked(*device):
        raise AssertionError("a GPU is started")

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch, "get_device_module", asked)
    layer = torch.nn.Linear(2, 3)
    parts = {"layer": layer, "optimizer": torch.optim.Adam(layer.parameters())}
    Checkpoint(tmp_path / "kept.pt", **parts).save(step=1)
    assert Checkpoint(tmp_path / "kept.pt", **parts).restore() == {"step": 1}


def test_a_checkpoint_holds_the_random_state_of_the_accelerator_that_trains(tmp_path, monkeypatch):
    class Parameter:  # as on the second of two GPUs
        device = torch.device("cuda:1")

        def parameters(self):
            return [self]

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            pass

    states = [torch.tensor([1]), torch.tensor([2])]
    module = SimpleNamespace(get_rng_state_all=lambda: [*states])
    module.set_rng_state_all = lambda restored: states.__setitem__(slice(None), restored)
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    kept = Checkpoint(tmp_path / "kept.pt", model=Parameter())
    kept.save(step=1)
    states[:] = torch.tensor([3]), torch.tensor([4])
    assert kept.restore() == {"step": 1}
    assert states == [3, 2]


def test_a_checkpoint_is_saved_when_its_time_has_come_and_not_before(tmp_path, monkeypatch):
    kept = Checkpoint(str(tmp_path / "kept.pt"), weight=torch.zeros(2))  # as loaded from a model
    assert not kept.save_if_due(step=1)
    assert not kept.path.exists()
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN", 0)
    assert kept.save_if_due(step=2)
    assert kept.restore() == {"step": 2}


def test_a_file_is_whole_or_as_it_was_and_old_leftovers_go(tmp_path):
    path, old, new = tmp_path / "a.bin", tmp_path / ".a1.tmp", tmp_path / ".a2.tmp"
    old.touch()
    new.touch()
    os.utime(old, (time.time() - 3700,) * 2)
    with whole_file(path) as file:
        file.write(b"first")
    assert path.read_bytes() == b"first" and new.exists() and not old.exists()
    with pytest.raises(KeyboardInterrupt), whole_file(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"first" and sorted(tmp_path.iterdir()) == [new, path]


def test_a_file_that_cannot_be_written_is_named_before_the_training_too(tmp_path):
    (tmp_path / "file").write_text("in the way")
    kept = Checkpoint(tmp_path / "file" / "kept.pt", weight=torch.zeros(2))
    for use in (kept.restore, lambda: kept.save(step=1)):
        with pytest.raises(CacheError, match=r"kept\.pt could not be written"):
            use()


@pytest.mark.parametrize("value", [np.zeros(2), range(3), {"path": time}])
def test_what_could_not_be_read_again_is_not_saved(tmp_path, value):
    with pytest.raises(TypeError, match="must be numbers, strings, tensors"):
        Checkpoint(tmp_path / "kept.pt", weight=torch.zeros(2)).save(rows=[{"x": value}])
    assert not [*tmp_path.iterdir()]


def test_a_parameter_of_another_shape_is_not_filled_with_a_saved_number(tmp_path):
    Checkpoint(tmp_path / "kept.pt", weight=torch.zeros(1)).save()
    with pytest.raises(CacheError, match=r"shape \(1,\), but this run has \(3,\)"):
        Checkpoint(tmp_path / "kept.pt", weight=torch.zeros(3)).restore()


def test_a_full_disk_is_reported_as_a_file_that_cannot_be_written(tmp_path):
    class FullDisk(io.BytesIO):
        def write(self, data):
            if self.tell() > 50_000:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(data)

    path = tmp_path / "kept.pt"
    problem = r"kept\.pt could not be written \(No space left on device"
    with pytest.raises(CacheError, match=problem), cache_file(path):
        torch.save(torch.zeros(50_000), FullDisk())
    assert not [*tmp_path.iterdir()]
    with pytest.raises(RuntimeError, match="of torch"), cache_file(path):
        raise RuntimeError("of torch")


def test_the_key_tells_arrays_apart_by_their_numbers_types_and_shapes():
    numbers = np.arange(6)
    facts = [
        numbers,
        numbers + 1,
        numbers.reshape(2, 3),
        numbers.astype(np.int32),
        np.array(["rain", "sun"], dtype=object),
        np.array(["rain", "moon"], dtype=object),
    ]
    assert len({checkpoint.key({"images": array}) for array in facts}) == len(facts)
    assert checkpoint.key({"images": numbers}) == checkpoint.key({"images": np.arange(6)})
