"""InferSent (Conneau et al., 2017; Secs. 1.4 and 3.1 of the text paper), in three forms.

InferSent is a bidirectional LSTM over word vectors, max-pooled. The forms have different names:
``infersent`` (the published weights, if the user has them), ``infersent-nli`` (trained here on
pairs for natural language inference) and ``infersent-random`` (not trained, as in Wieting and
Kiela, 2019). A document is an integer array of row numbers in a table of word vectors, in order; a
number below 0 is a word without a vector.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from snnl_book import cache, data, embeddings
from snnl_book.embeddings import nli, words
from snnl_lib.checkpoint import Checkpoint, whole_file
from snnl_lib.devices import exact_layers
from snnl_lib.training import build, named_seed, take_step

REVISION = 1  # raise it when a change can move a sentence vector; cached ones are then ignored


class EncoderError(embeddings.EmbeddingError):
    """Weights that are missing, or not those of an InferSent encoder."""


# ---------------------------------------------------------------- the encoder


class InferSent(nn.Module):
    """The encoder: ``forward(words [B, T, D], lengths [B] on the CPU)`` -> [B, 2 * units].

    A sentence's vector is the maximum of its states. Positions at or after its length are ignored;
    lengths are at least 1.
    """

    def __init__(self, word_size=300, units=nli.UNITS):
        super().__init__()
        self.units = units
        # The name in the published weights.
        self.enc_lstm = nn.LSTM(word_size, units, bidirectional=True, batch_first=True)

    def forward(self, words, lengths):
        lengths = lengths.to(words.device)[:, None]
        steps = torch.arange(words.shape[1]).to(words.device)
        is_padding = steps >= lengths
        # The two directions run separately, the second on reversed documents. A packed sequence
        # would compute both step by step, three times as slowly on a CPU.
        reverse = torch.where(is_padding, steps, lengths - 1 - steps)[..., None].expand_as(words)
        weights = self.enc_lstm._flat_weights
        start = words.new_zeros(1, len(words), self.units)
        states = [
            torch.lstm(inputs, (start, start), part, True, 1, 0.0, self.training, False, True)[0]
            for inputs, part in ((words, weights[:4]), (words.gather(1, reverse), weights[4:]))
        ]
        return torch.cat(states, 2).masked_fill(is_padding[..., None], -torch.inf).amax(dim=1)


def random_encoder(seed=0, word_size=300, units=nli.UNITS) -> InferSent:
    """Return an encoder with random weights, uniform in ±1/sqrt(units).

    That is PyTorch's default, and what Wieting and Kiela (2019) chose.
    """
    return build(InferSent, word_size, units, seed=seed).eval()


def load_encoder(path: Path) -> InferSent:
    """Load an encoder from the published ``infersent1.pkl`` or a file of ``save_encoder``.

    Raises EncoderError if the file is missing, damaged, or holds other tensors than the encoder's.
    """
    if not path.exists():
        raise EncoderError(f"there is no weights file {path}: check the path")
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        word_size = weights["enc_lstm.weight_ih_l0"].shape[1]
        encoder = InferSent(word_size, weights["enc_lstm.weight_hh_l0"].shape[1])
        encoder.load_state_dict(weights)
    except Exception as error:  # a damaged file can raise nearly anything
        problem = f"{path} is damaged or holds no InferSent encoder"
        raise EncoderError(f"{problem}: remove it, then download or train it again") from error
    return encoder.eval()


def save_encoder(encoder: InferSent, path: Path) -> None:
    """Save an encoder's weights, completely or not at all."""
    with whole_file(path) as file:
        torch.save(encoder.state_dict(), file)


def _batch(documents, table, device):
    """Look up the words of some documents: (words [B, T, D], lengths [B])."""
    rows = [torch.from_numpy(np.ascontiguousarray(document)).long() for document in documents]
    lengths = torch.tensor([len(row) for row in rows])
    return table[pad_sequence(rows, batch_first=True).to(device)], lengths


@torch.no_grad()
def encode(
    encoder: InferSent, documents: list, table: np.ndarray, *, device="cpu", batch_size=64
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Encode documents in batches of similar length.

    Yields (indices of a batch, float32 vectors [B, 2 * units]). ``documents`` hold row numbers of
    ``table`` [V, D]. Words without a vector are skipped, and a document without any is zeros.
    """
    documents = [document[document >= 0] for document in documents]
    encoder = encoder.to(device).eval()
    table = torch.as_tensor(table, device=device)
    lengths = np.array([len(document) for document in documents])
    order = np.argsort(lengths, kind="stable")
    empty = order[: np.searchsorted(lengths[order], 1)]
    if len(empty):
        yield empty, np.zeros((len(empty), 2 * encoder.enc_lstm.hidden_size), dtype=np.float32)
    for start in range(len(empty), len(order), batch_size):
        index = order[start : start + batch_size]
        batch = _batch([documents[i] for i in index], table, device)
        with exact_layers():
            vectors = encoder(*batch).float().cpu().numpy()
        yield index, vectors


# ---------------------------------------------------------------- texts to vectors


def embed_texts(texts: list, method: str, device="cpu") -> np.ndarray:
    """Embed texts by one of the three forms, as ``embeddings.embed`` does.

    Each document is encoded once and cached. Raises EmbeddingError for missing weights, CacheError
    for a damaged file of vectors.
    """
    if method == "infersent":  # the published weights know other word vectors, and sentence marks
        documents = [("<s>", *data.preprocess(text).split(), "</s>") for text in texts]
        contents = [" ".join(document).encode() for document in documents]
    else:
        documents = words.word_rows(texts)
        contents = [rows.astype("<i4").tobytes() for rows in documents]
    keys = [hashlib.sha256(content).hexdigest()[:32] for content in contents]

    def compute(missing):
        return _encode([documents[i] for i in missing], method, device)

    revision = "" if REVISION == 1 else f"-{REVISION}"
    name = f"{method}-{embeddings.fingerprint(method)}{revision}{cache.device_suffix(device)}"
    return cache.cached_rows(data.cache_dir() / "embeddings" / name, keys, 2 * nli.UNITS, compute)


def _encode(documents, method, device):
    if method.startswith("infersent-random"):
        seed = embeddings.seed_of_random_encoder(method)
        encoder = random_encoder(seed)
        table = words.word_vectors()
    elif method == "infersent-nli":
        encoder = load_encoder(trained_weights(device))
        table = words.word_vectors()
    else:
        weights, glove = embeddings.published_files()
        encoder = load_encoder(weights)
        documents, table = _read_glove(glove, documents)
        # A document of <s> and </s> alone has no words.
        documents = [rows if (rows[1:-1] >= 0).any() else rows[:0] for rows in documents]
    batches = encode(encoder, documents, table, device=device)
    if not sys.stderr.isatty():  # even a disabled bar would take a lock: training.progress_bar
        yield from batches
        return
    with tqdm(total=len(documents), desc=method, unit="doc", leave=False) as bar:
        for index, vectors in batches:
            yield index, vectors
            bar.update(len(index))


def _read_glove(path, documents):
    """Read the vectors of the documents' words; return (documents as row numbers, table)."""
    row_of = dict.fromkeys(chain.from_iterable(documents), -1)
    table = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            word, _, numbers = line.rstrip().partition(" ")
            # Some entries have two words: "email name@domain.com 0.1 ...".
            if word in row_of and numbers.count(" ") == 299:
                row_of[word] = len(table)
                table.append(np.array(numbers.split(" "), dtype=np.float32))
    if not table:
        raise EncoderError(f"{path} does not hold 300-d GloVe vectors of English words")
    rows = [np.array([row_of[word] for word in words], dtype=np.int32) for words in documents]
    return rows, np.stack(table)


# ---------------------------------------------------------------- training on inference


class _NliClassifier(nn.Module):
    """Entailment, neutral or contradiction from two sentence vectors u and v.

    One hidden layer sees [u, v, |u - v|, u * v].
    """

    def __init__(self, word_size, units, hidden):
        super().__init__()
        self.encoder = InferSent(word_size, units)
        self.head = nn.Sequential(nn.Linear(8 * units, hidden), nn.ReLU(), nn.Linear(hidden, 3))

    def forward(self, premises, hypotheses):
        u, v = self.encoder(*premises), self.encoder(*hypotheses)
        return self.head(torch.cat([u, v, (u - v).abs(), u * v], dim=1))


class _NliTraining:
    """A classifier of inference pairs under training: network, optimiser and order of the pairs."""

    def __init__(self, table, recipe, device):
        self.table = torch.as_tensor(table, device=device)
        self.recipe = recipe
        self.device = torch.device(device)
        sizes = self.table.shape[1], recipe["units"], recipe["hidden"]
        self.model = build(_NliClassifier, *sizes, seed=recipe["seed"]).to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=recipe["learning_rate"])
        self.order = torch.Generator().manual_seed(named_seed(recipe["seed"], "batches"))

    def logits(self, split, index):
        """Return the logits [B, 3] of the pairs of a split that ``index`` [B] names."""
        sides = (_batch([side[i] for i in index], self.table, self.device) for side in split[:2])
        precision = self.recipe["precision"]
        # Without AVX-512, oneDNN refuses an LSTM in bfloat16; torch's own kernels compute it.
        able = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)()
        kernels = torch.backends.mkldnn.flags(able or precision != "bfloat16", allow_tf32=None)
        # CUDA's autocast would compute an LSTM in float16, in which small gradients vanish.
        rounded = self.device.type == "cpu" and precision != "float32"
        autocast = torch.autocast("cpu", getattr(torch, precision), enabled=rounded)
        with exact_layers(), autocast, kernels:
            return self.model(*sides).float()

    @torch.no_grad()
    def accuracy(self, split):
        """Return the share of a split's pairs that are classified correctly."""
        self.model.eval()
        labels = torch.as_tensor(split[2])
        correct = 0
        for index in _batches_by_length(split[0], self.recipe["batch_size"]):
            predictions = self.logits(split, index).argmax(dim=1).cpu()
            correct += (predictions == labels[index]).sum().item()
        self.model.train()
        return correct / len(labels)

    def train_epoch(self, split, state, saved, progress):
        """Pass once over a split, and return its mean loss.

        ``state`` counts the batches and the losses of this epoch, so that the checkpoint ``saved``
        can resume within it. ``progress`` is called with a line for each checkpoint.
        """
        labels = torch.as_tensor(split[2], dtype=torch.long)
        batches = _batches_by_length(split[0], self.recipe["batch_size"], self.order)
        for index in batches[state["batch"] :]:
            loss = F.cross_entropy(self.logits(split, index), labels[index].to(self.device))
            take_step(self.optimizer, loss)
            state["total"] += loss.item() * len(index)
            state["batch"] += 1
            if saved.save_if_due(**state):
                progress(f"batch {state['batch']} of {len(batches)}, kept in a checkpoint")
        return state["total"] / len(labels)


def train_nli(
    pairs, table, *, device="cpu", progress=lambda line: None, checkpoint=None, **changes
):
    """Train an encoder on natural-language-inference pairs and score it on held-out ones.

    Args:
        pairs: dict of ``train``, ``dev`` and ``test``, each (premises, hypotheses, labels):
            documents as for ``encode``, each with a known word, and int labels 0 entailment, 1
            neutral, 2 contradiction.
        table: word vectors [V, D], which are not trained.
        changes: settings that differ from ``nli.RECIPE``.
        progress: is called with one line per epoch.
        checkpoint: a file from which a killed training continues, removed at its end. None keeps
            no file.

    Returns (encoder of the epoch with the best dev accuracy, ``{"nli_dev_acc", "nli_test_acc",
    "nli_epoch"}``). Raises ValueError if a document has no known word, TypeError for what
    ``nli.RECIPE`` does not have.
    """
    for split in pairs.values():
        _check_pairs(*split)
    if unknown := changes.keys() - nli.RECIPE.keys():
        raise TypeError(f"the recipe has no setting {' and no setting '.join(unknown)}")
    recipe = nli.RECIPE | changes
    training = _NliTraining(table, recipe, device)
    model, order = training.model, training.order
    saved = Checkpoint(checkpoint, model=model, optimizer=training.optimizer, order=order)
    state = saved.restore()
    if state:
        order.set_state(state["epoch_order"])
    else:
        scores = {"nli_dev_acc": -1.0}
        state = {"epoch": 0, "batch": 0, "total": 0.0, "best": None, "scores": scores}
    for epoch in range(state["epoch"], recipe["epochs"]):
        state.update(epoch=epoch, epoch_order=order.get_state())
        name = f"epoch {epoch + 1} of {recipe['epochs']}"
        loss = training.train_epoch(
            pairs["train"], state, saved, lambda line, name=name: progress(f"{name}: {line}")
        )
        accuracy = training.accuracy(pairs["dev"])
        if accuracy > state["scores"]["nli_dev_acc"]:
            state["scores"] = {"nli_dev_acc": accuracy, "nli_epoch": float(epoch)}
            weights = model.state_dict().items()
            state["best"] = {name: value.detach().clone() for name, value in weights}
        progress(f"{name}: training loss {loss:.3f}, SNLI dev accuracy {accuracy:.3f}")
        state.update(batch=0, total=0.0)
    model.load_state_dict(state["best"])
    scores = state["scores"] | {"nli_test_acc": training.accuracy(pairs["test"])}
    saved.remove()
    return model.encoder.cpu().eval(), scores


def _batches_by_length(documents, batch_size, order=None):
    """Return batches of documents of similar length, shuffled by the generator ``order`` if any."""
    lengths = torch.tensor([len(document) for document in documents])
    if order is None:
        return lengths.argsort(stable=True).split(batch_size)
    pools = torch.randperm(len(lengths), generator=order).split(50 * batch_size)
    sorted_pools = [pool[lengths[pool].argsort(stable=True)] for pool in pools]
    batches = [batch for pool in sorted_pools for batch in pool.split(batch_size)]
    return [batches[i] for i in torch.randperm(len(batches), generator=order)]


def _check_pairs(premises, hypotheses, labels):
    if not len(premises) == len(hypotheses) == len(labels):
        counts = f"{len(premises)}, {len(hypotheses)} and {len(labels)}"
        raise ValueError(f"premises, hypotheses and labels must be equal in number, got {counts}")
    if not all(len(words) and words.min() >= 0 for words in (*premises, *hypotheses)):
        raise ValueError(
            "each sentence must have a word, and each word a vector: leave out all others"
        )


def trained_weights(device: str = "cpu") -> Path:
    """Return the file of the trained encoder's weights; train the encoder first if necessary."""
    weights, _ = nli.trained_files()
    if not weights.exists():
        train_infersent_nli(device)
    return weights


def train_infersent_nli(device="cpu") -> dict[str, float]:
    """Train the encoder of ``infersent-nli``, cache it, and return its accuracies.

    The accuracies are on SNLI dev and test.
    """
    weights, scores_file = nli.trained_files()
    under_way = weights.with_name(f"{weights.stem}-{str(device).split(':')[0]}-under-way.pt")
    encoder, scores = train_nli(
        nli.pairs_as_rows(),
        words.word_vectors(),
        device=device,
        progress=partial(print, file=sys.stderr, flush=True),
        checkpoint=under_way,
    )
    with whole_file(scores_file) as file:
        file.write(json.dumps(scores).encode())
    save_encoder(encoder, weights)  # last: if the weights exist, the scores do too
    return scores
