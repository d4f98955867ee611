"""The loss where people train: as one of sentence-transformers, over several ranks, and as a
monitor of layers.
"""

import json
import pickle
import re
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from snnl_lib.integrations import EntanglementMonitor, SentenceSoftNearestNeighborLoss, gathered
from snnl_lib.losses import annealed_temperature, soft_nearest_neighbor_loss
from snnl_lib.models import hidden_layers

torch.set_num_threads(1)


@pytest.fixture
def random():
    return torch.Generator().manual_seed(0)


# ---------------------------------------------------------------- sentence-transformers


class Embedder(torch.nn.Module):
    """What a sentence transformer looks like from outside."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(5, 4)

    def forward(self, features):
        return features | {"sentence_embedding": self.layer(features["x"])}


def test_the_sentence_loss_is_equation_4_of_the_embeddings_and_asks_for_the_epoch(random):
    model, labels = Embedder(), torch.arange(12) % 3
    features = {"x": torch.randn(12, 5, generator=random)}
    embeddings = model(features)["sentence_embedding"]
    for options in ({}, {"distance": "sqeuclidean", "ignore_index": 2}, {"temperature": 0.2}):
        found = SentenceSoftNearestNeighborLoss(model, **options)([features], labels)
        assert torch.equal(found, soft_nearest_neighbor_loss(embeddings, labels, **options))
    found.backward()
    assert model.layer.weight.grad.any()
    epochs = iter([0, 2.5])
    loss = SentenceSoftNearestNeighborLoss(model, "annealed", epoch=lambda: next(epochs))
    for epoch in (0, 2.5):
        expected = soft_nearest_neighbor_loss(embeddings, labels, annealed_temperature(epoch))
        assert torch.equal(loss([features], labels), expected)


def test_the_sentence_loss_says_its_settings_and_what_to_cite():
    loss = SentenceSoftNearestNeighborLoss(
        Embedder(), "learnable", distance="sqeuclidean", ignore_index=-1
    )
    settings = {"temperature": "learnable", "distance": "sqeuclidean", "ignore_index": -1}
    settings |= {"gather_across_devices": False}
    assert json.loads(json.dumps(loss.get_config_dict())) == settings
    options = {"temperature": np.float32(0.5), "ignore_index": np.int64(-1)}
    settings = SentenceSoftNearestNeighborLoss(Embedder(), **options).get_config_dict()
    assert options.items() <= json.loads(json.dumps(settings)).items()
    keys = re.findall(r"^@\w+\{(\w+),", loss.citation, re.MULTILINE)
    assert keys == ["frosst2019analyzing", "agarap2021text"]


def test_the_sentence_loss_refuses_bad_arguments_and_a_second_column_of_texts():
    for arguments, named in (
        ({"temperature": "annealed"}, "epoch.* got None"),
        ({"temperature": "annealed", "epoch": 3}, "epoch.* got 3"),
        ({"epoch": 3}, "epoch must be a function .* got 3"),
        ({"temperature": -1}, "temperature .*-1"),
        ({"distance": "euclidean"}, "distance .*euclidean"),
    ):
        with pytest.raises(ValueError, match=named):
            SentenceSoftNearestNeighborLoss(Embedder(), **arguments)
    columns = [{"x": torch.eye(5)}, {"x": torch.eye(5)}]
    with pytest.raises(ValueError, match="one column of texts, got 2"):
        SentenceSoftNearestNeighborLoss(Embedder())(columns, torch.tensor([0, 0, 1, 1, 1]))


@pytest.mark.parametrize("temperature", ["annealed", "learnable"])
def test_the_trainer_of_sentence_transformers_moves_the_temperature(
    temperature, small_roberta, newsgroups4, tmp_path
):
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.base.sampler import BatchSamplers

    folder = small_roberta / "backbones" / "roberta-base"
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    model.max_seq_length = 16
    corpus, batches = newsgroups4.train, []
    rows = np.concatenate([np.flatnonzero(corpus.labels == k)[:8] for k in range(4)])
    texts, labels = [corpus.texts[i] for i in rows], corpus.labels[rows].tolist()

    class Watched(SentenceSoftNearestNeighborLoss):
        def forward(self, sentence_features, labels):
            epoch = self.epoch and self.epoch()
            now = torch.as_tensor(self.criterion.current_temperature(epoch), dtype=torch.double)
            batches.append((labels, now.item()))
            return super().forward(sentence_features, labels)

    epoch = (lambda: trainer.state.epoch) if temperature == "annealed" else None
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=str(tmp_path),
            per_device_train_batch_size=16,
            num_train_epochs=2,
            batch_sampler=BatchSamplers.GROUP_BY_LABEL,
            learning_rate_mapping={"log_temperature": 0.05} if epoch is None else {},
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=Dataset.from_dict({"text": texts, "label": labels}),
        loss=Watched(model, temperature, epoch=epoch),
    )
    trainer.train()
    temperatures = [value for _, value in batches]
    assert len(batches) == 4 and temperatures[0] == 1
    if temperature == "annealed":
        assert temperatures == [annealed_temperature(step / 2) for step in range(4)]
    else:
        assert all(0.01 < abs(np.log(t)) < 0.2 for t in temperatures[1:])
    for names, _ in batches:
        assert names.unique(return_counts=True)[1].min() >= 2  # the sampler's classmates
    model.save_pretrained(str(tmp_path / "saved"))
    assert "frosst2019analyzing" in (tmp_path / "saved" / "README.md").read_text()


# ---------------------------------------------------------------- ranks

# Rows, and the classes of all of them in the order of the ranks; how many belong to the first rank;
# a label to be ignored.
SHARED_OUT = {
    "alike": ([0, 1, 2, 0, 1, 2, 0, 1] * 2, 8, None),
    "classes of their own": ([0, 0, 0, 0, 0, 0, 1, 3, 1, 1, 2, 2, 1, 2, 2, 4], 8, None),
    "rows to be ignored": ([0, -1, -1, -1, -1, 1, 0, 2, 1, 0, 1, 0, 1, -1, 2, 2], 8, -1),
    "more rows on one rank": ([0, 1, 2, 0, 1, 2, 0, 1] * 2, 5, None),
}


def linear(weights):
    layer = torch.nn.Linear(*weights.T.shape, bias=False, dtype=weights.dtype)
    layer.weight.data.copy_(weights)
    return layer


def trains_on_a_rank(rank, ranks, folder):
    """The gradients of the weights on one of two ranks, for each way to share rows out."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks
    )
    inputs, weights = torch.load(f"{folder}/task.pt")
    found = {}
    for name, (labels, first, ignored) in SHARED_OUT.items():
        mine = slice(0, first) if rank == 0 else slice(first, None)
        network, labels = DistributedDataParallel(linear(weights)), torch.tensor(labels)
        rows, names = gathered(network(inputs[mine]), labels[mine])
        loss = soft_nearest_neighbor_loss(rows, names, 0.2, ignore_index=ignored)
        loss.backward()
        found[name] = loss.detach(), network.module.weight.grad, names
    embedder = Embedder().double()
    embedder.layer.load_state_dict({"weight": weights, "bias": torch.zeros(len(weights))})
    network = DistributedDataParallel(embedder)
    loss = SentenceSoftNearestNeighborLoss(network, 0.2, gather_across_devices=True)
    labels = torch.tensor(SHARED_OUT["classes of their own"][0]).chunk(ranks)[rank]
    value = loss([{"x": inputs.chunk(ranks)[rank]}], labels)
    value.backward()
    found["sentences"] = value.detach(), embedder.layer.weight.grad, labels
    torch.save(found, f"{folder}/found{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:more than half")
def test_two_ranks_that_gather_have_the_gradients_of_one_process_after_ddp(tmp_path, random):
    inputs = torch.randn(16, 5, generator=random, dtype=torch.float64)
    weights = torch.randn(4, 5, generator=random, dtype=torch.float64)
    torch.save((inputs, weights), tmp_path / "task.pt")
    torch.multiprocessing.spawn(trains_on_a_rank, args=(2, str(tmp_path)), nprocs=2)
    ranks = [torch.load(tmp_path / f"found{rank}.pt") for rank in range(2)]
    for name, (labels, first, ignored) in SHARED_OUT.items():
        network, labels = linear(weights), torch.tensor(labels)
        expected = soft_nearest_neighbor_loss(network(inputs), labels, 0.2, ignore_index=ignored)
        expected.backward()
        for loss, gradient, names in (rank[name] for rank in ranks):
            torch.testing.assert_close(loss, expected.detach(), atol=1e-12, rtol=1e-12)
            torch.testing.assert_close(gradient, network.weight.grad, atol=1e-12, rtol=1e-12)
            assert torch.equal(names, labels)
        # The mean of the ranks' own losses, which is not the loss of the batch:
        parts = [slice(0, first), slice(first, None)]
        alone = [soft_nearest_neighbor_loss(inputs[p] @ weights.T, labels[p], 0.2) for p in parts]
        assert abs(sum(alone) / 2 - expected) > 1e-3
        if name == "classes of their own":
            for found in ranks:
                torch.testing.assert_close(found["sentences"][0], expected.detach())
                torch.testing.assert_close(found["sentences"][1], network.weight.grad)


def test_where_there_is_one_process_gathering_returns_what_it_was_given(tmp_path):
    features, labels = torch.eye(4, requires_grad=True), torch.arange(4)
    found = gathered(features, labels)
    assert found[0] is features and found[1] is labels
    meet = f"file://{tmp_path}/meet"
    torch.distributed.init_process_group("gloo", init_method=meet, rank=0, world_size=1)
    try:
        found = gathered(features, labels)
    finally:
        torch.distributed.destroy_process_group()
    assert found[0] is features and found[1] is labels


# ---------------------------------------------------------------- the monitor


class Noisy(torch.nn.Module):
    """Draws random numbers in evaluation, too."""

    def forward(self, x):
        return x + 1e-9 * torch.rand_like(x)


@pytest.fixture
def network(random):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), Noisy()]
    network = torch.nn.Sequential(*layers, torch.nn.Unflatten(1, (2, 4)))
    network[1].eval()  # frozen while the rest is trained
    return network


@pytest.fixture
def held_out(random):
    features, labels = torch.randn(40, 6, generator=random), torch.arange(40) % 4
    return [(features[part : part + 16], labels[part : part + 16]) for part in (0, 16, 32)]


def test_the_monitor_gives_the_loss_of_each_layer_over_all_batches(network, held_out):
    monitor = EntanglementMonitor(network, ["0", "4"], temperature=0.3)
    found = monitor.record(held_out, epoch=7)
    features, labels = (torch.cat(parts) for parts in zip(*held_out, strict=True))
    network.eval()
    with hidden_layers(network, ["0", "4"]) as hidden:
        network(features)
    expected = {
        name: soft_nearest_neighbor_loss(layer.flatten(1), labels, 0.3).item()
        for name, layer in hidden.items()
    }
    assert list(found) == ["epoch", "0", "4"] and found.pop("epoch") == 7
    assert found == pytest.approx(expected, rel=1e-5)
    monitor.record(held_out[:1], epoch=8, step=3)
    assert [len(row) for row in monitor.history] == [2, 4]


def test_the_monitor_takes_labels_and_layers_of_other_types_and_is_pickled(network, held_out):
    expected = EntanglementMonitor(network, ["0", "2"]).record(held_out)
    for convert in (np.asarray, torch.Tensor.tolist):
        batches = [(x, convert(y)) for x, y in held_out]
        monitor = EntanglementMonitor(network, (name for name in ("0", "2")))
        assert monitor.record(batches) == pytest.approx(expected)
        assert pickle.loads(pickle.dumps(monitor)).record(batches) == pytest.approx(expected)


def test_the_monitor_leaves_no_trace(network, held_out):
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network(held_out[0][0]).sum().backward()
    gradient = network[0].weight.grad.clone()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    loader = torch.utils.data.DataLoader(
        [(x, y) for batch in held_out for x, y in zip(*batch, strict=True)], batch_size=10
    )  # which draws a seed even where it does not shuffle
    EntanglementMonitor(network, ["0", "2"]).record(loader)
    assert torch.equal(torch.rand(3), expected)
    assert [module.training for module in network] == [True, False, True, True, True]
    assert network.training and torch.equal(network[0].weight.grad, gradient)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.modules())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_the_monitor_leaves_no_trace_where_the_model_fails(network, held_out):
    torch.manual_seed(5)
    monitor = EntanglementMonitor(network, ["0"])
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        monitor.record([held_out[0], (torch.ones(4, 5), torch.zeros(4))])
    assert not monitor.history and network.training and not network[1].training
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in network.modules())
    assert torch.is_grad_enabled() and torch.initial_seed() == 5


def test_the_monitor_reads_no_more_batches_than_it_measures_with(network, held_out):
    taken = []
    batches = (taken.append(batch) or batch for batch in held_out)
    found = EntanglementMonitor(network, ["0"], max_samples=20).record(batches)
    assert len(taken) == 2
    features, labels = (torch.cat(parts)[:20] for parts in zip(*held_out, strict=True))
    with torch.no_grad():
        expected = soft_nearest_neighbor_loss(network[0](features), labels)
    assert found["0"] == pytest.approx(expected.item(), rel=1e-5)


def test_the_monitor_takes_a_way_to_call_the_model_and_to_pick_a_tensor(held_out):
    embedder = Embedder()
    batches = [({"x": x[:, :5]}, y) for x, y in held_out]
    picked = EntanglementMonitor(
        embedder,
        {"layer": lambda result: result[:, :2]},
        distance="sqeuclidean",
        forward=lambda model, inputs: model(features=inputs),
    ).record(batches)
    features, labels = (torch.cat(parts) for parts in zip(*held_out, strict=True))
    with torch.no_grad():
        codes = embedder.layer(features[:, :5])[:, :2]
    expected = soft_nearest_neighbor_loss(codes, labels, distance="sqeuclidean").item()
    assert picked == pytest.approx({"layer": expected}, rel=1e-5)


def test_the_monitor_refuses_bad_arguments_and_batches_without_rows(network):
    for arguments, named in (
        ({"layers": ["0"], "max_samples": 0}, "max_samples .*got 0"),
        ({"layers": ["0"]}, "batches .*one row"),
        ({"layers": ["9"]}, "layers .*'9'"),
        ({"layers": "0"}, "layers .*'0'"),
    ):
        with pytest.raises(ValueError, match=named):
            EntanglementMonitor(network, **arguments).record([])
    with pytest.raises(ValueError, match=r"batches .*one row"):
        EntanglementMonitor(network, ["0"]).record([(torch.ones(0, 6), torch.ones(0).long())])


def test_the_monitor_refuses_a_keyword_that_is_the_name_of_a_layer(held_out):
    network = torch.nn.Sequential(OrderedDict(epoch=torch.nn.Linear(6, 3)))
    monitor = EntanglementMonitor(network, ["epoch"])
    with pytest.raises(ValueError, match="has a layer 'epoch' too: rename the keyword argument"):
        monitor.record(held_out, epoch=3)
    assert not monitor.history
    assert monitor.record(held_out, step=3).keys() == {"step", "epoch"}


def test_the_monitor_measures_in_inference_mode_and_a_model_that_was_compiled(network, held_out):
    expected = EntanglementMonitor(network, ["0"]).record(held_out)["0"]
    with torch.inference_mode():
        found = EntanglementMonitor(network, ["0"]).record(held_out)["0"]
    assert found == pytest.approx(expected)
    compiled = torch.compile(network, backend="eager")
    compiled.eval()
    with torch.no_grad():
        compiled(held_out[0][0])  # its graph is cached, without hooks
    found = EntanglementMonitor(compiled, ["_orig_mod.0"]).record(held_out)["_orig_mod.0"]
    assert found == pytest.approx(expected)
