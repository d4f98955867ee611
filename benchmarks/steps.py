"""One step of ClusterBERT and of AE(D) against the time of its matrix products, and of a rival's
step on the same batches.

The bound is the time of all matrix products, forward and backward, that the step cannot do without,
as plain calls on matrices of the same shapes: nothing for padding, for what is added or drawn
between them, or for the optimiser. The small products inside attention are left out of it.
"""

from contextlib import suppress
from functools import partial
from itertools import cycle, pairwise

import numpy as np
import torch

from snnl_book.embeddings.backbones import Pieces, backbone_folder
from snnl_book.methods.clusterbert import ClusterBERT, batches_of_like_length
from snnl_book.methods.tsdae import delete_words
from snnl_book.recipes import Recipe
from snnl_lib.models import Autoencoder
from snnl_lib.seeds import BATCH_SIZE
from snnl_lib.training import binary_cross_entropy, build, take_step, train

from . import rivals

TEXTS, VOCABULARY, CLUSTERS, BATCHES = 2000, 3236, 20, 8  # of StackOverflow's titles, and steps
WEIGHT = 0.8  # lambda of Eq. 4
LAYERS = (300, 500, 500, 2000, 128, 2000, 500, 500, 300)  # of AE(D)


def products(shapes, device):
    """Return what carries out matrix products on matrices of its own.

    ``shapes`` are (rows, inputs, outputs, how many of the three): of a layer's output, of the
    gradient by its weights and of the one by its inputs.
    """
    made = {}

    def matrix(*shape):
        if shape not in made:
            made[shape] = torch.randn(shape, device=device)
        return made[shape]

    layers = [
        (matrix(rows, inputs), matrix(outputs, inputs), matrix(rows, outputs), count)
        for rows, inputs, outputs, count in shapes
    ]

    @torch.no_grad()
    def carried_out():
        for x, weight, gradient, count in layers:
            pairs = (x, weight.T), (gradient.T, x), (gradient, weight)
            for left, right in pairs[:count]:
                torch.mm(left, right)

    return carried_out


def in_order(actions):
    """Return an action that is the next of some each time, and after the last the first again."""
    turn = cycle(actions)
    return lambda: next(turn)()


# ---------------------------------------------------------------- ClusterBERT


def titles():
    """Texts as word pieces, made up in the shape of StackOverflow's titles: 11.9 pieces in the
    mean, a twentieth has fewer than 5, another one more than 21.
    """
    random = np.random.default_rng(0)
    lengths = random.gamma(5.7, 2.1, TEXTS).round().astype(int).clip(1, 60)
    vocabulary = random.choice(np.arange(1996, 29_000), VOCABULARY, replace=False)
    ids = [random.choice(vocabulary, length).astype(np.int32) for length in lengths]
    return Pieces(ids, [np.arange(length) for length in lengths], start=101, end=102, pad=0, cut=0)


def noisy(model, batch, random):
    """What ``ClusterBERT`` reads of a batch when it draws from ``random``."""
    pieces, ratio = model.pieces, model._recipe.deletion
    return [delete_words(pieces.ids[i], pieces.words[i], ratio, random) for i in batch]


def shapes_of_clusterbert(model, read, written, texts):
    """List the products of a step that reads and writes so many pieces of so many texts."""
    config = model.encoder.transformer.config
    width, inner = config.hidden_size, config.intermediate_size
    encoder = 4 * [(read, width, width, 3)] + [(read, width, inner, 3), (read, inner, width, 3)]
    # Of the attention to one vector neither queries nor keys make a difference.
    decoder = 5 * [(written, width, width, 3)] + [(texts, width, width, 3)]
    decoder += [(written, width, inner, 3), (written, inner, width, 3)]
    kept = len(np.unique(np.concatenate(model.pieces.ids))) + 1
    ends = [(written, width, width, 3), (written, width, kept, 3), (texts, width, model.k, 3)]
    return config.num_hidden_layers * (encoder + decoder) + ends


def clusterbert(device):
    """Return the sides of ClusterBERT's step, both losses of Eq. 4: name -> function."""
    model = ClusterBERT(CLUSTERS, recipe=Recipe(), seed=0, device=device)
    model.pieces = titles()
    model._build()
    model.encoder.train()
    model.decoder.train()
    with model._sources("clustering"):
        lengths = np.array([len(ids) for ids in model.pieces.ids])
        batches = batches_of_like_length(lengths, model._recipe.batch_size, model._order)[:BATCHES]
    targets = torch.eye(CLUSTERS, device=device)[torch.arange(TEXTS) % CLUSTERS]

    def ours(i):
        model._deletion = np.random.default_rng(i)
        losses = model._losses(batches[i], WEIGHT, targets[torch.as_tensor(batches[i])])
        take_step(model._optimizer, WEIGHT * losses[1] + (1 - WEIGHT) * losses[0])

    read = [noisy(model, batch, np.random.default_rng(i)) for i, batch in enumerate(batches)]
    bounds = []
    for batch, texts in zip(batches, read, strict=True):
        pieces = sum(map(len, texts)) + 2 * len(batch), lengths[batch].sum() + len(batch)
        bounds.append(products(shapes_of_clusterbert(model, *pieces, len(batch)), device))
    sides = {"bound": in_order(bounds)}
    sides["ours"] = in_order([partial(ours, i) for i in range(len(batches))])
    clean = [[model.pieces.ids[i] for i in batch] for batch in batches]
    pairs = [
        [[part.to(device) for part in model.pieces.batch(texts)] for texts in pair]
        for pair in zip(read, clean, strict=True)
    ]
    with suppress(ImportError):
        sides["rival"] = denoising(pairs, device)
    return sides


def denoising(batches, device):
    """Return a step of sentence-transformers' loss, which is Eq. 1, on (noisy, clean) batches."""
    with backbone_folder("minilm") as folder:
        loss = rivals.denoising_loss(str(folder), device)
    optimizer = torch.optim.Adam(loss.parameters(), lr=2e-5, fused=True)
    features = [
        [{"input_ids": ids, "attention_mask": mask} for ids, mask in pair] for pair in batches
    ]
    return in_order([lambda pair=pair: take_step(optimizer, loss(pair, None)) for pair in features])


# ---------------------------------------------------------------- AE(D)


def autoencoder(device):
    """Return the sides of AE(D): ``BATCHES`` steps each, for a training is not made for one."""
    random = np.random.default_rng(0)
    x = random.random((BATCHES * BATCH_SIZE, LAYERS[0]), dtype=np.float32)
    y = random.integers(4, size=len(x))
    shapes = [
        (BATCH_SIZE, inputs, outputs, 3 if i else 2)
        for i, (inputs, outputs) in enumerate(pairwise(LAYERS))
    ]
    # Eq. 4 of a hidden layer: the table of cosines, and its gradient, one product as it is
    # symmetric.
    shapes += [(BATCH_SIZE, width, BATCH_SIZE, 1) for width in LAYERS[1:-1]]
    shapes += [(BATCH_SIZE, BATCH_SIZE, width, 1) for width in LAYERS[1:-1]]
    carried_out = products(shapes, device)

    def trained(**settings):
        model = build(Autoencoder, LAYERS[0], seed=0)
        settings = {"epochs": 1, "seed": 0, "alpha": 100} | settings
        train(model, x, y, binary_cross_entropy, device=device, **settings)

    return {
        "bound": lambda: [carried_out() for _ in range(BATCHES)],
        "ours": trained,
        "rival": lambda: trained(regularizer=rivals.usual),
    }


# ---------------------------------------------------------------- the comparison

STEPS = {
    "ClusterBERT": (clusterbert, 1, "DenoisingAutoEncoderLoss"),
    "AE(D)": (autoencoder, BATCHES, "usual formula"),
}
"""What makes the sides, how many steps one call of them is, and the rival."""


def compare(device, in_turn, repeats):
    """Time the sides of each step in turn, and yield a row of the table each.

    ``in_turn`` and ``repeats`` are those of ``python -m benchmarks``. ``share`` is bound / ours and
    ``ratio`` rival / ours, both the median over the turns.
    """
    for name, (make, steps, rival) in STEPS.items():
        times = {
            side: np.array(own) / steps
            for side, own in in_turn(make(device), device, repeats).items()
        }
        low, middle, high = np.quantile(times["ours"], [0.25, 0.5, 0.75])
        row = {"step": name, "share": np.median(times["bound"] / times["ours"])}
        row |= {"seconds": middle, "low": low, "high": high, "bound": np.median(times["bound"])}
        there = "rival" in times
        row |= {"rival": rival if there else f"{rival}: sentence-transformers is not installed"}
        row |= {"rival_seconds": np.median(times["rival"]) if there else np.nan}
        row |= {"ratio": np.median(times["rival"] / times["ours"]) if there else np.nan}
        yield row | {"turns": len(times["ours"])}
