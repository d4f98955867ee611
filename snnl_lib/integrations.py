"""The loss where people train: sentence-transformers, DistributedDataParallel, a monitor.

Nothing here imports sentence-transformers; its models are called as torch modules.
"""

from functools import partial

import torch
import torch.nn.functional as F

from snnl_lib.losses import SoftNearestNeighborLoss, soft_nearest_neighbor_loss
from snnl_lib.models import hidden_layers

CITATION = """
@inproceedings{frosst2019analyzing,
  title = {Analyzing and Improving Representations with the Soft Nearest Neighbor Loss},
  author = {Frosst, Nicholas and Papernot, Nicolas and Hinton, Geoffrey}, year = {2019},
  booktitle = {International Conference on Machine Learning} }
@article{agarap2021text,
  title = {Text Classification and Clustering with Annealing Soft Nearest Neighbor Loss},
  author = {Agarap, Abien Fred}, year = {2021}, journal = {arXiv preprint arXiv:2107.14597} }
"""


class SentenceSoftNearestNeighborLoss(torch.nn.Module):
    """Eq. 4 of sentence embeddings as a loss of sentence-transformers, for texts with class labels.

    It is used like that package's ``BatchHardTripletLoss``: a data set with one column of texts and
    a column ``label`` of integers, and ``BatchSamplers.GROUP_BY_LABEL``, so that texts have class
    mates in their batch.

    Args:
        model: a SentenceTransformer, or any module that takes a dict of tensors and returns one
            with ``"sentence_embedding"``, a float tensor [B, D].
        temperature: T > 0, ``"annealed"`` (Eq. 6) or ``"learnable"`` (the trainer's optimiser gets
            it with the model).
        epoch: for ``"annealed"`` a function without arguments that returns the epoch >= 0, such as
            ``lambda: trainer.state.epoch``, which may name a trainer that is made later. The
            trainer counts parts of an epoch: T falls with every step.
        gather_across_devices: under DistributedDataParallel, take the loss of the texts of all
            ranks (``gathered``).
        options: ``distance``, ``chunk_size`` and ``ignore_index`` of
            ``soft_nearest_neighbor_loss``; by the last, texts without a label may stay.

    ``forward(sentence_features, labels)`` takes a list with one dict, what the model takes, and an
    integer tensor [B]; it returns the loss, a tensor [].

    Raises:
        ValueError: ``"annealed"`` without ``epoch``, several columns of texts, and what
            ``SoftNearestNeighborLoss`` raises.

    >>> model = lambda features: {"sentence_embedding": features["x"]}
    >>> loss = SentenceSoftNearestNeighborLoss(model, temperature=1.0)
    >>> features = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> loss([{"x": features}], torch.tensor([0, 0, 1]))
    tensor(0.5470)
    """

    def __init__(
        self, model, temperature=1.0, *, epoch=None, gather_across_devices=False, **options
    ):
        super().__init__()
        if temperature == "annealed" and not callable(epoch):
            advice = "a function that returns the epoch, such as lambda: trainer.state.epoch"
            raise ValueError(f'temperature "annealed" needs epoch, {advice}; got {epoch!r}')
        self.model, self.epoch = model, epoch  # the trainer looks for the name model
        self.gather_across_devices = gather_across_devices
        self.criterion = SoftNearestNeighborLoss(temperature, **options)

    def forward(self, sentence_features, labels):
        if len(sentence_features) != 1:
            problem = f"needs one column of texts, got {len(sentence_features)}"
            raise ValueError(f"the loss {problem}: remove the others from the data set")
        embeddings = self.model(sentence_features[0])["sentence_embedding"]
        if self.gather_across_devices:
            embeddings, labels = gathered(embeddings, labels)
        return self.criterion(embeddings, labels, epoch=self.epoch and self.epoch())

    def get_config_dict(self):
        """Return the settings (a dict), which the trainer writes into the model card."""
        names = ("temperature", "distance", "ignore_index")
        settings = {name: getattr(self.criterion, name) for name in names}
        return settings | {"gather_across_devices": self.gather_across_devices}

    @property
    def citation(self):
        """What to cite, in BibTeX (a string); the trainer writes it into the model card."""
        return CITATION


def gathered(features, labels):
    """Gather the rows of all ranks with their gradient, so that the loss is the whole batch's.

    For training under DistributedDataParallel: every rank calls it with its own rows and computes
    the loss of all of them, the same on each rank. ::

        loss = soft_nearest_neighbor_loss(*gathered(features, labels), temperature)

    The gradient of the parameters is then that of a single process with the whole batch, with no
    factor to be set right: each of the W ranks differentiates the same loss, and what W copies of
    it say about a row is added up on the rank that the row came from, W times the gradient;
    DistributedDataParallel takes the mean over the ranks, which divides by W. (Where rows of other
    ranks are gathered without a gradient, the first factor is 1, and the result W times too small.)

    Other rows as ``references`` spare computing the same table of pairs on each rank. But then each
    rank has a mean over its own anchors with class mates, and the mean of these means is that of
    the whole batch only if all ranks have the same number of them.

    Args:
        features: float tensor [..., B, D]; B may differ between ranks, all else may not.
        labels: integer tensor [..., B].

    Returns:
        The rows of all ranks in their order, [..., sum of B, D], and their labels (int64); the
        arguments themselves where torch.distributed is not initialised or has one rank.

    >>> features, labels = torch.eye(2), torch.tensor([0, 1])
    >>> gathered(features, labels)[0] is features
    True
    """
    group = torch.distributed
    if not group.is_available() or not group.is_initialized() or group.get_world_size() == 1:
        return features, labels
    from torch.distributed.nn.functional import all_gather  # not in every build of torch

    own = labels.shape[-1]
    counts = [int(count) for count in all_gather(torch.tensor([own], device=features.device))]
    missing = max(counts) - own  # ranks exchange tensors of one shape
    rows = all_gather(F.pad(features, (0, 0, 0, missing)))
    names = all_gather(F.pad(labels.long(), (0, missing)))
    rows = [part[..., :count, :] for part, count in zip(rows, counts, strict=True)]
    names = [part[..., :count] for part, count in zip(names, counts, strict=True)]
    return torch.cat(rows, dim=-2), torch.cat(names, dim=-1)


class EntanglementMonitor:
    """How entangled the classes are in each layer of a network, measured while it trains.

    The temperature stays the same, so that values of different epochs can be compared. Gradients,
    training mode and torch's random state stay as they are, and no hook stays in the network.

    Args:
        model: a torch module.
        layers: names of its submodules, or a dict from name to a function that picks the tensor
            [B, ...] out of what the submodule returned, as for ``models.hidden_layers``.
        temperature: T > 0; 0.1 tells layers apart that all look alike at 1.
        distance: ``"cosine"`` or ``"sqeuclidean"``.
        max_samples: how many rows to measure with, a whole number above 0.
        forward: a function (model, inputs) that calls the model; default: ``model(inputs)``.

    ``history`` is the list of what ``record`` returned, for ``pandas.DataFrame(monitor.history)``.

    Raises:
        ValueError: a bad ``max_samples``, batches without a row, and what ``hidden_layers`` and
            ``soft_nearest_neighbor_loss`` raise when something is recorded.

    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
    >>> held_out = [(torch.eye(4), torch.tensor([0, 0, 1, 1]))]
    >>> monitor = EntanglementMonitor(model, ["0", "1"], temperature=0.1)
    >>> monitor.record(held_out, epoch=0).keys()
    dict_keys(['epoch', '0', '1'])
    """

    def __init__(
        self,
        model,
        layers,
        temperature=1.0,
        *,
        distance="cosine",
        max_samples=2048,
        forward=lambda model, inputs: model(inputs),
    ):
        if not max_samples >= 1:
            raise ValueError(f"max_samples must be a whole number above 0, got {max_samples!r}")
        self.model, self.layers, self.forward = model, layers, forward
        self.loss = partial(soft_nearest_neighbor_loss, temperature=temperature, distance=distance)
        self.max_samples, self.history = max_samples, []

    @torch.no_grad()
    def record(self, batches, **when):
        """Measure the entanglement now, add it to ``history`` and return it.

        ``batches`` is an iterable of pairs, what the model takes and an integer tensor [B] of
        labels, such as a DataLoader. It is read until there are ``max_samples`` rows: give
        held-out rows, each time the same, that are not sorted by class. Returns a dict: ``when``,
        such as ``epoch=3``, then for each layer its loss, a float.
        """
        modes = [(module, module.training) for module in self.model.modules()]
        devices = {tensor.device for tensor in self.model.parameters() if tensor.is_cuda}
        rows, labels = {name: [] for name in self.layers}, []
        eager = torch.compiler.set_stance("force_eager")  # a graph compiled before has no hooks
        with (
            eager,
            torch.random.fork_rng(devices),
            hidden_layers(self.model, self.layers) as hidden,
        ):
            try:
                self.model.eval()
                for inputs, names in batches:
                    self.forward(self.model, inputs)
                    for name, parts in rows.items():
                        parts.append(hidden[name].flatten(1))
                    labels.append(names.to(parts[0].device))
                    if sum(map(len, labels)) >= self.max_samples:
                        break
            finally:
                for module, training in modes:
                    module.training = training
        if not labels:
            raise ValueError("batches must have rows to measure with, got none")
        labels = torch.cat(labels)[: self.max_samples]
        for name, parts in rows.items():
            layer = torch.cat(parts)[: self.max_samples]
            when[name] = self.loss(layer, labels).item()
        self.history.append(when)
        return when
