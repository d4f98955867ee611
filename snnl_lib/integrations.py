"""Tools for using the soft nearest neighbor loss in other training code.

The module has a loss for sentence-transformers, a function that gathers the rows of several GPUs,
and a monitor that measures how entangled (mixed) the classes are in each layer of a network. It
does not import sentence-transformers, but calls its models as torch modules.
"""

import operator
from contextlib import contextmanager
from functools import partial
from numbers import Integral

import numpy as np
import torch
import torch.nn.functional as F

from snnl_lib.devices import kept_random_states
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
    """The soft nearest neighbor loss (Eq. 4, see ``losses``) for sentence-transformers models.

    Use it like ``BatchHardTripletLoss`` of sentence-transformers: the data set needs one column of
    texts and a column ``label`` of integers. Set the batch sampler to
    ``BatchSamplers.GROUP_BY_LABEL``, so that texts have classmates (texts with the same label) in
    their batch.

    Args:
        model: a SentenceTransformer, or any module or function that takes a dict of tensors and
            returns a dict with ``"sentence_embedding"``, a float tensor [B, D].
        temperature: a number above 0, ``"annealed"`` (Eq. 6) or ``"learnable"``. The trainer
            optimises a learnable temperature together with the model.
        epoch: function without arguments that returns the epoch (at least 0), such as
            ``lambda: trainer.state.epoch``. It is required for ``"annealed"``. The trainer may be
            created after the loss. Because the trainer counts fractions of an epoch, T falls with
            every step.
        gather_across_devices: whether to compute the loss over the embeddings of all
            DistributedDataParallel processes, collected with ``gathered``.
        options: keyword arguments of ``SoftNearestNeighborLoss``: ``distance``, ``chunk_size``,
            ``ignore_index``, ``check_finite`` and ``initial_temperature``. With ``ignore_index``,
            the data may contain unlabelled texts.

    ``forward(sentence_features, labels)`` returns the loss, a scalar tensor. ``sentence_features``
    is a list of one dict, the input of the model. ``labels`` is an integer tensor [B].

    Raises:
        ValueError: ``epoch`` is not a function, or is missing for ``"annealed"``; the data set has
            several columns of texts; or ``SoftNearestNeighborLoss`` rejects an argument.

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
        if not callable(epoch) and (epoch is not None or temperature == "annealed"):
            expected = "a function that returns the epoch, such as lambda: trainer.state.epoch"
            condition = '(required only for temperature "annealed")'
            raise ValueError(f"epoch must be {expected} {condition}, got {epoch!r}")
        self.model = model  # the trainer expects this name
        self.epoch = epoch
        self.gather_across_devices = gather_across_devices
        self.criterion = SoftNearestNeighborLoss(temperature, **options)

    def forward(self, sentence_features, labels):
        if len(sentence_features) != 1:
            problem = f"needs one column of texts, got {len(sentence_features)}"
            raise ValueError(f"the loss {problem}: remove the other columns from the data set")
        embeddings = self.model(sentence_features[0])["sentence_embedding"]
        if self.gather_across_devices:
            embeddings, labels = gathered(embeddings, labels)
        epoch = None if self.epoch is None else self.epoch()
        return self.criterion(embeddings, labels, epoch=epoch)

    def get_config_dict(self):
        """Return a dict of the settings, which the trainer writes into the model card."""
        names = ("temperature", "distance", "ignore_index")
        settings = {name: getattr(self.criterion, name) for name in names}
        settings["gather_across_devices"] = self.gather_across_devices
        # The trainer writes them as JSON, which has no numpy numbers.
        return {
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in settings.items()
        }

    @property
    def citation(self):
        """BibTeX entries of the papers to cite, which the trainer writes into the model card."""
        return CITATION


def gathered(features, labels):
    """Return the rows of all processes, with gradients that flow back, for a loss over all rows.

    Use this function under DistributedDataParallel. Each process (called a *rank*) passes its own
    rows, and all ranks compute the same loss over the rows of all ranks::

        loss = soft_nearest_neighbor_loss(*gathered(features, labels), temperature)

    The gradient of the parameters then equals that of a single process with the whole batch and
    needs no correction. Each of the W ranks differentiates the same loss, so the rank that holds a
    row receives W times the row's gradient. DistributedDataParallel takes the mean over the ranks,
    which divides by W. (If the rows of other ranks were gathered without a gradient, the result
    would be W times too small.)

    Alternatively, pass the rank's own rows to the loss as ``features`` and those of the other ranks
    as ``references``, so that the ranks do not all compute the same table of pairs. Each rank then
    takes the mean over its own anchors. The mean of these means equals the loss of the whole batch
    only if all ranks have the same number of anchors with a classmate.

    Args:
        features: float tensor [..., B, D]; only B may differ between ranks.
        labels: integer tensor [..., B], or integer or bool tensor [..., B, C].

    Returns:
        The features [..., total B, D] and labels (int64) of all ranks, in the order of the ranks.
        The arguments themselves are returned if torch.distributed is not initialised or has only
        one rank.

    >>> features, labels = torch.eye(2), torch.tensor([0, 1])
    >>> gathered(features, labels)[0] is features
    True
    """
    group = torch.distributed
    if not group.is_available() or not group.is_initialized() or group.get_world_size() == 1:
        return features, labels
    own_count = features.shape[-2]
    counts = [
        int(count) for count in _of_all_ranks(torch.tensor([own_count], device=labels.device))
    ]
    padding = max(counts) - own_count  # ranks can only exchange tensors of the same shape
    all_rows = _GatherRows.apply(F.pad(features, (0, 0, 0, padding)))
    rows_axis = features.ndim - 2
    behind = (0, 0) * (labels.ndim - 1 - rows_axis)  # classes, which are not padded
    all_labels = _of_all_ranks(F.pad(labels.long(), (*behind, 0, padding)))
    all_rows = [rows[..., :count, :] for rows, count in zip(all_rows, counts, strict=True)]
    all_labels = [
        labels.narrow(rows_axis, 0, count) for labels, count in zip(all_labels, counts, strict=True)
    ]
    return torch.cat(all_rows, dim=-2), torch.cat(all_labels, dim=rows_axis)


def _of_all_ranks(tensor):
    """Return the tensors of all ranks in the order of the ranks; they must have the same shape."""
    parts = [torch.empty_like(tensor) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(parts, tensor.contiguous())
    return parts


class _GatherRows(torch.autograd.Function):
    """Gather the rows of all ranks; the backward pass adds up all ranks' gradients of a row."""

    @staticmethod
    def forward(ctx, rows):
        return tuple(_of_all_ranks(rows))

    @staticmethod
    def backward(ctx, *gradients):
        total = torch.stack(gradients)
        torch.distributed.all_reduce(total)
        return total[torch.distributed.get_rank()]


class EntanglementMonitor:
    """Use Eq. 4 to measure how entangled the classes are in each layer while a network trains.

    The temperature is fixed, so that epochs can be compared. A measurement does not change the
    gradients, the training mode or torch's random state, and it leaves no hooks (callbacks) in the
    network.

    Args:
        model: a torch module.
        layers: list of names of submodules of ``model``, or a dict that maps each name to a
            function, as for ``models.hidden_layers``.
        temperature: T > 0. Some differences between layers are visible at 0.1 but not at the
            default, 1.
        distance: ``"cosine"`` or ``"sqeuclidean"``.
        max_samples: maximum number of rows to measure, an integer above 0.
        forward: function (model, inputs) that calls the model; by default, ``model(inputs)``.

    The attribute ``history`` is a list of all results of ``record``.
    ``pandas.DataFrame(monitor.history)`` turns it into a table.

    Raises:
        ValueError: ``max_samples`` is below 1; or, when ``record`` is called, the batches have no
            rows, a keyword argument has the name of a layer, or another argument is invalid.

    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
    >>> held_out = [(torch.eye(4), torch.tensor([0, 0, 1, 1]))]
    >>> monitor = EntanglementMonitor(model, ["0", "1"], temperature=0.1)
    >>> monitor.record(held_out, epoch=0).keys()
    dict_keys(['epoch', '0', '1'])
    """

    def __init__(
        self, model, layers, temperature=1.0, *, distance="cosine", max_samples=2048, forward=None
    ):
        if not (isinstance(max_samples, Integral) and max_samples >= 1):
            raise ValueError(f"max_samples must be a whole number above 0, got {max_samples!r}")
        self.model = model
        self.layers = layers if isinstance(layers, dict | str) else list(layers)
        self.forward = forward or operator.call
        self.loss = partial(soft_nearest_neighbor_loss, temperature=temperature, distance=distance)
        self.max_samples = max_samples
        self.history = []

    @torch.no_grad()
    def record(self, batches, **when):
        """Measure the loss of each layer, add the result to ``history`` and return it.

        ``batches`` is an iterable of pairs, such as a DataLoader. Each pair is an input of the
        model and its labels, integers [B] in a tensor, array or list. Reading stops at
        ``max_samples`` rows. Pass the same held-out rows each time, and do not sort them by class.
        The result is a dict with the keyword arguments, such as ``epoch=3``, and the loss of each
        layer as a float.
        """
        rows = {name: [] for name in self.layers}
        if same := when.keys() & rows:
            advice = "rename the keyword argument of record"
            raise ValueError(f"the network has a layer {min(same)!r} too: {advice}")
        labels = []
        with self._undisturbed(), hidden_layers(self.model, self.layers) as hidden:
            self.model.eval()
            for inputs, batch_labels in batches:
                self.forward(self.model, inputs)
                for name, parts in rows.items():
                    parts.append(hidden[name].flatten(1))
                labels.append(torch.as_tensor(batch_labels).to(parts[0].device))
                if sum(map(len, labels)) >= self.max_samples:
                    break
        if not sum(map(len, labels)):
            raise ValueError("batches must contain at least one row, got none")
        labels = torch.cat(labels)[: self.max_samples]
        for name, parts in rows.items():
            layer = torch.cat(parts)[: self.max_samples]
            when[name] = self.loss(layer, labels).item()
        self.history.append(when)
        return when

    @contextmanager
    def _undisturbed(self):
        """Restore the random states and each module's mode at the end of a ``with`` block."""
        modes = [(module, module.training) for module in self.model.modules()]
        device = next((tensor.device for tensor in self.model.parameters()), "cpu")
        # A graph that was compiled before has no hooks, so the model runs eagerly.
        with torch.compiler.set_stance("force_eager"), kept_random_states(device):
            try:
                yield
            finally:
                for module, training in modes:
                    module.training = training
