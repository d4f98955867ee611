"""InferSent (Conneau et al., 2017; Secs. 1.4 and 3.1 of the text paper): a bidirectional LSTM over
word vectors, max-pooled.

Three forms, each named as what it is wherever it appears: ``infersent`` (the published weights,
where the user has them), ``infersent-nli`` (trained here on natural-language-inference pairs) and
``infersent-random`` (never trained, as in Wieting and Kiela, 2019). A document is an integer array
of the rows of a word-vector table, in order; a row below 0 is a word without a vector.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from snnl_lib import SnnlError, whole_file
from snnl_lib.cache import Checkpoint
from snnl_lib.embeddings.nli import UNITS
from snnl_lib.training import build, named_seed


class EncoderError(SnnlError):
    """Weights that are not there, or are not what they should be."""


class InferSent(nn.Module):
    """The encoder: ``forward(words [B, T, D], lengths [B] on the CPU)`` -> [B, 2 * units], the
    maximum of the states over each sentence.

    Positions at or after a sentence's length do not count, whatever they hold; lengths are at least
    1.
    """

    def __init__(self, word_size=300, units=UNITS):
        super().__init__()
        self.enc_lstm = nn.LSTM(
            word_size, units, bidirectional=True, batch_first=True
        )  # named as in the published weights

    def forward(self, words, lengths):
        packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(
            self.enc_lstm(packed)[0], batch_first=True, padding_value=-torch.inf
        )
        return states.amax(dim=1)


def random_encoder(seed=0, word_size=300, units=UNITS) -> InferSent:
    """Build an encoder that is never trained: weights uniform in ±1/sqrt(units), PyTorch's own and
    Wieting and Kiela's choice.
    """
    return build(InferSent, word_size, units, seed=seed).eval()


def load_encoder(path: Path) -> InferSent:
    """Load an encoder from its weights (the published ``infersent1.pkl``, or a file of
    ``train_nli``).

    Raises EncoderError if the file is not there, damaged, or holds other tensors than the encoder
    has.
    """
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        encoder = InferSent(
            saved["enc_lstm.weight_ih_l0"].shape[1], saved["enc_lstm.weight_hh_l0"].shape[1]
        )
        encoder.load_state_dict(saved)
    except FileNotFoundError as error:
        raise EncoderError(f"the weights {path} are not there") from error
    except Exception as error:  # a damaged or foreign file can raise nearly anything
        raise EncoderError(
            f"{path} is damaged or holds no InferSent encoder ({type(error).__name__}): remove it and get it again"
        ) from error
    return encoder.eval()


def save_encoder(encoder: InferSent, path: Path) -> None:
    """Save an encoder's weights, whole or not at all."""
    with whole_file(path) as file:
        torch.save(encoder.state_dict(), file)


def _batch(documents, table, device):
    """Look up the words of some documents: (words [B, T, D], lengths [B])."""
    rows = [torch.from_numpy(np.ascontiguousarray(document)).long() for document in documents]
    lengths = torch.tensor([len(row) for row in rows])
    return table[pad_sequence(rows, batch_first=True).to(device)], lengths


@torch.no_grad()
def encode(
    encoder: InferSent,
    documents: list[np.ndarray],
    table: np.ndarray,
    *,
    device="cpu",
    batch_size=64,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Encode documents in batches of similar length: yields (indices of a batch, float32 vectors
    [B, 2 * units]).

    ``documents`` hold rows of ``table`` [V, D]; words without a vector are passed over, and a
    document without any is zeros.
    """
    documents = [document[document >= 0] for document in documents]
    encoder, table = encoder.to(device).eval(), torch.as_tensor(table, device=device)
    lengths = np.array([len(document) for document in documents])
    order = np.argsort(lengths, kind="stable")
    empty = order[: np.searchsorted(lengths[order], 1)]
    if len(empty):
        yield empty, np.zeros((len(empty), 2 * encoder.enc_lstm.hidden_size), dtype=np.float32)
    for start in range(len(empty), len(order), batch_size):
        index = order[start : start + batch_size]
        words, length = _batch([documents[i] for i in index], table, device)
        yield index, encoder(words, length).float().cpu().numpy()


# ---------------------------------------------------------------- natural-language inference


class _NliClassifier(nn.Module):
    """Entailment, neutral or contradiction from [u, v, |u - v|, u * v] of two sentence vectors, by
    one hidden layer.
    """

    def __init__(self, word_size, units, hidden):
        super().__init__()
        self.encoder = InferSent(word_size, units)
        self.head = nn.Sequential(nn.Linear(8 * units, hidden), nn.ReLU(), nn.Linear(hidden, 3))

    def forward(self, words, lengths):
        u, v = self.encoder(words, lengths).chunk(2)  # premises first, then hypotheses
        return self.head(torch.cat([u, v, (u - v).abs(), u * v], dim=1))


def train_nli(
    pairs,
    table,
    *,
    device="cpu",
    progress=None,
    units=UNITS,
    hidden=512,
    epochs=6,
    batch_size=256,
    learning_rate=5e-4,
    seed=42,
    checkpoint=None,
):
    """Train an encoder on natural-language-inference pairs and score it on held-out ones.

    Args:
        pairs: dict of ``train``, ``dev`` and ``test``, each (premises, hypotheses, labels):
            documents as for ``encode``, each with a known word, and int labels 0 entailment, 1
            neutral, 2 contradiction.
        table: word vectors [V, D], which stay as they are.
        progress: called with one line an epoch, or None.
        checkpoint: file from which a training that was killed goes on, and which goes at its end;
            None keeps none.

    Returns (encoder of the epoch with the best dev accuracy, ``{"nli_dev_acc", "nli_test_acc",
    "nli_epoch"}``). Raises ValueError if a document has no known word.
    """
    for premises, hypotheses, labels in pairs.values():
        if (
            len(premises) != len(hypotheses)
            or len(premises) != len(labels)
            or not all(len(d) and d.min() >= 0 for d in (*premises, *hypotheses))
        ):
            raise ValueError(
                "each pair needs a premise, a hypothesis and a label, and each sentence at least one word, all with a vector"
            )
    table = torch.as_tensor(table, device=device)
    model = build(_NliClassifier, table.shape[1], units, hidden, seed=seed).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    order = torch.Generator().manual_seed(named_seed(seed, "batches"))

    def logits(split, index):
        premises, hypotheses, _ = split
        return model(
            *_batch([premises[i] for i in index] + [hypotheses[i] for i in index], table, device)
        )

    @torch.no_grad()
    def accuracy(split):
        model.eval()
        right = 0
        for index in torch.arange(len(split[2])).split(batch_size):
            right += (
                (logits(split, index).argmax(dim=1).cpu() == torch.as_tensor(split[2])[index])
                .sum()
                .item()
            )
        model.train()
        return right / len(split[2])

    train, kept = (
        pairs["train"],
        Checkpoint(checkpoint, model=model, optimizer=optimizer, order=order),
    )
    best, scores = None, {"nli_dev_acc": -1.0}
    first_epoch, first, total = 0, 0, 0.0
    if reached := kept.restore():
        first_epoch, first, total, best, scores = (
            reached[name] for name in ("epoch", "batch", "total", "best", "scores")
        )
        order.set_state(reached["epoch_order"])
    for epoch in range(first_epoch, epochs):
        drawn_from = order.get_state()
        parts = torch.randperm(len(train[2]), generator=order).split(batch_size)
        for number in range(first, len(parts)):
            index = parts[number]
            loss = F.cross_entropy(
                logits(train, index), torch.as_tensor(train[2], dtype=torch.long)[index].to(device)
            )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(index)
            state = {
                "epoch": epoch,
                "batch": number + 1,
                "total": total,
                "best": best,
                "scores": scores,
                "epoch_order": drawn_from,
            }
            if kept.save_if_due(**state) and progress is not None:
                progress(
                    f"epoch {epoch + 1} of {epochs}: batch {number + 1} of {len(parts)}, kept in a checkpoint"
                )
        dev = accuracy(pairs["dev"])
        if dev > scores["nli_dev_acc"]:
            scores = {"nli_dev_acc": dev, "nli_epoch": float(epoch)}
            best = {name: value.detach().clone() for name, value in model.state_dict().items()}
        if progress is not None:
            progress(
                f"epoch {epoch + 1} of {epochs}: training loss {total / len(train[2]):.3f}, SNLI dev accuracy {dev:.3f}"
            )
        first, total = 0, 0.0
    model.load_state_dict(best)
    scores["nli_test_acc"] = accuracy(pairs["test"])
    kept.remove()
    return model.encoder.cpu().eval(), scores
