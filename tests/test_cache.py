"""Long training that is killed goes on to the same bits, and finished artefacts come back whole."""

import hashlib
import io
import time

import numpy as np
import pytest
import torch
from torch.optim import SGD, Adam

from snnl_book import cache
from snnl_book.embeddings import sentences
from snnl_book.methods.deep_clustering import DEC, IDEC, VaDE, pretrain
from snnl_book.methods.sccl import SCCL
from snnl_lib import checkpoint
from snnl_lib.checkpoint import CacheError, Checkpoint

POINTS = np.random.default_rng(3).random((300, 6)).astype(np.float32)
TABLE = np.random.default_rng(4).normal(size=(40, 8)).astype(np.float32)


def inference_pairs():
    random = np.random.default_rng(5)

    def documents(count):
        return [random.integers(40, size=random.integers(2, 6)) for _ in range(count)]

    return {
        split: (documents(count), documents(count), random.integers(3, size=count))
        for split, count in (("train", 20), ("dev", 9), ("test", 9))
    }


def sentence_encoder(path):
    small = {"units": 6, "hidden": 8, "epochs": 3, "batch_size": 6}
    encoder, scores = sentences.train_nli(inference_pairs(), TABLE, checkpoint=path, **small)
    return [*encoder.state_dict().values()], scores


def deep(method, **settings):
    def fitted(path):
        model, _ = pretrain(POINTS, 3, epochs=1, seed=1, normalize=method is not VaDE)
        found = method(3, seed=1, checkpoint=path, **settings).fit(POINTS, autoencoder=model)
        return [
            *found.autoencoder.state_dict().values(),
            torch.as_tensor(found.predict(POINTS)),
        ], found.curve.to_dict("list")

    return fitted


def contrasted(path):
    texts = ["sort a list", "sorting lists", "read a file", "files to be read", "lists of lists"]
    found = SCCL(2, steps=4, batch_size=2, seed=1, checkpoint=path).fit(texts)
    return [torch.as_tensor(found.embeddings), torch.as_tensor(found.labels_)], found.curve.to_dict(
        "list"
    )


TRAININGS = {
    "sentence encoder": (sentence_encoder, Adam, (1, 5, 9)),
    "DEC": (deep(DEC, max_steps=12, update_interval=3, tolerance=0), SGD, (4, 9)),
    "IDEC": (deep(IDEC, max_steps=12, update_interval=3, tolerance=0), Adam, (6, 11)),
    "VaDE": (deep(VaDE, epochs=4), Adam, (5, 7)),
    "SCCL": (contrasted, Adam, (2,)),
}


@pytest.mark.parametrize(
    ("name", "step"), [(name, step) for name, (_, _, steps) in TRAININGS.items() for step in steps]
)
def test_an_interrupted_training_goes_on_to_the_same_bits(tmp_path, monkeypatch, name, step):
    training, optimizer, _ = TRAININGS[name]
    weights, told = training(None)
    path, taken, original = tmp_path / "kept.pt", [], optimizer.step

    def interrupted(self, *args, **kwargs):
        if len(taken) == step:
            raise KeyboardInterrupt
        taken.append(len(self.state))
        return original(self, *args, **kwargs)

    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN", 0)
    with monkeypatch.context() as patch:
        patch.setattr(optimizer, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            training(path)
    assert path.exists()
    again, told_again = training(path)
    assert all(torch.equal(one, other) for one, other in zip(weights, again, strict=True))
    np.testing.assert_equal(told, told_again)
    assert not path.exists()


# ---------------------------------------------------------------- finished artefacts


def test_an_artefact_comes_back_to_the_last_bit_with_the_seconds_it_took_and_is_made_once(tmp_path):
    weights = torch.nn.Linear(3, 2).state_dict()
    calls, value = [], {"weights": dict(weights), "unit_range": True, "curve": {"loss": [0.5, 0.1]}}

    def compute():
        calls.append(1)
        time.sleep(0.05)
        return value

    path = tmp_path / "folder" / "network.bin"
    first, second = cache.cached(path, compute), cache.cached(path, compute)
    assert len(calls) == 1 and first.seconds == second.seconds >= 0.05
    found = second.value
    assert all(torch.equal(found["weights"][name], weights[name]) for name in weights)
    assert {**found, "weights": None} == {**value, "weights": None}
    assert [file.name for file in path.parent.iterdir()] == ["network.bin"]


def test_what_fails_while_it_is_computed_is_kept_nowhere(tmp_path):
    with pytest.raises(ZeroDivisionError):
        cache.cached(tmp_path / "a.bin", lambda: 1 / 0)
    assert not list(tmp_path.iterdir())


def test_what_is_kept_of_a_view_is_the_view_alone(tmp_path):
    large = torch.zeros(100_000)
    value = {"weights": [large[:10]], "whole": torch.ones(3)}
    path = tmp_path / "view.bin"
    found = cache.cached(path, lambda: value).value
    assert path.stat().st_size < 10_000
    assert torch.equal(cache.cached(path, None).value["weights"][0], large[:10])
    assert torch.equal(found["whole"], torch.ones(3))


def test_a_damaged_artefact_is_named_and_removing_it_is_all_there_is_to_do(tmp_path):
    path = tmp_path / "a.bin"
    cache.cached(path, lambda: torch.ones(3))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        CacheError, match=r"a\.bin is damaged: remove it, and the next run computes"
    ):
        cache.cached(path, lambda: torch.ones(3))
    path.unlink()
    assert torch.equal(cache.cached(path, lambda: torch.ones(3)).value, torch.ones(3))


def test_an_artefact_that_holds_code_is_refused_and_none_of_it_is_run(tmp_path):
    class Harmful:
        def __reduce__(self):
            return (exec, ("raise SystemExit('code from the file was run')",))

    content = io.BytesIO()
    torch.save((Harmful(), 1.0), content)
    checksum = hashlib.sha256(content.getvalue()).digest()
    (tmp_path / "a.bin").write_bytes(checksum + content.getvalue())
    with pytest.raises(CacheError, match="is damaged"):
        cache.cached(tmp_path / "a.bin", lambda: None)


@pytest.mark.parametrize("name", ["DEC", "VaDE", "SCCL"])
def test_no_training_goes_on_from_the_file_of_another(tmp_path, monkeypatch, name):
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN", 0)
    path = tmp_path / "kept.pt"
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "remove", lambda self: None)  # as where it was killed
        TRAININGS[name][0](path)
    kind = {"DEC": DEC, "VaDE": VaDE, "SCCL": SCCL}[name]
    with pytest.raises(cache.CacheError, match="belongs to another training run: remove it"):
        if name == "SCCL":
            kind(2, steps=4, batch_size=2, seed=2, checkpoint=path).fit(["a list", "a file", "c"])
        else:
            model, _ = pretrain(POINTS, 3, epochs=1, seed=1, normalize=kind is not VaDE)
            kind(3, seed=2, checkpoint=path).fit(POINTS, autoencoder=model)
