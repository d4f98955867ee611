"""k-means on a published sentence encoder's vectors, as an estimator that can be kept."""

from dataclasses import KW_ONLY, dataclass

import numpy as np
from sklearn.base import ClusterMixin

from snnl_book.embeddings import embed
from snnl_book.methods._fitting import check_clusters, distance_limits, k_means
from snnl_book.methods._saving import Estimator, as_it_was_on_error
from snnl_book.methods._texts import checked_texts
from snnl_lib.seeds import named_seed

PUBLISHED_PIECES = 256
"""How many word pieces of a text MiniLM reads as it was published."""
DIGITS = 5  # vectors that differ by less are equal: rounding depends on a text's batch


def embed_once(texts, method, *, device="cpu", max_pieces=PUBLISHED_PIECES) -> np.ndarray:
    """Return ``embed`` of texts, [N, D], where equal texts have exactly equal vectors.

    The vectors of ``minilm`` have length 1, as MiniLM was published.
    """
    from sklearn.preprocessing import normalize

    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    vectors = embed([*places], method, fit_texts=texts, device=device, max_pieces=max_pieces)
    first = {}
    rounded = np.round(vectors, DIGITS) + 0.0  # no negative zero
    rows = np.array([first.setdefault(row.tobytes(), i) for i, row in enumerate(rounded)])
    if method == "minilm":
        vectors = normalize(vectors)
    return vectors[rows[[places[text] for text in texts]]]


@dataclass(eq=False, repr=False)
class TextKMeans(ClusterMixin, Estimator):
    """k-means on the vectors of MiniLM as it was published, of length 1; nothing is trained.

    A scikit-learn estimator that takes texts. After ``fit``: ``labels_`` [N] are the clusters,
    ``centers`` [k, D] their means, and ``limits`` [k] the distances from them beyond which a text
    is an outlier (``distance_limits``).

    Args:
        k: the number of clusters.
        seed: determines where k-means starts.
        device: as torch names it.
        max_pieces: how many word pieces of a text are read, from 3 to 512.

    >>> texts = ["sort a list", "sorting lists", "red wine", "a dry red wine"]
    >>> model = TextKMeans(2, seed=42).fit(texts)
    >>> a, b = model.predict(["a list that is sorted", "white wine"])
    >>> bool(a == model.labels_[0] and b == model.labels_[2])
    True
    """

    k: int
    _: KW_ONLY
    seed: int = 0
    device: str = "cpu"
    max_pieces: int = PUBLISHED_PIECES

    @as_it_was_on_error
    def fit(self, texts: list[str], y=None):
        """Cluster N texts and return self; ``y`` is ignored.

        Raises ValueError for anything but a list of texts, for a k that is not a whole number from
        1 to N, and for a ``max_pieces`` that is out of its range.
        """
        vectors = self._embed(texts)
        check_clusters(self.k, len(vectors), "texts")
        kmeans = k_means(vectors, self.k, named_seed(self.seed, "kmeans"), stacklevel=4)
        self.centers = kmeans.cluster_centers_
        self.labels_ = self._assign(vectors)
        self.limits = distance_limits(vectors, self.centers, self.labels_)
        return self

    def predict(self, texts: list[str]) -> np.ndarray:
        """Return the clusters of any N texts, int array [N]. Raises as ``transform``."""
        return self._assign(self.transform(texts))

    def transform(self, texts: list[str]) -> np.ndarray:
        """Return the vectors of any N texts, of length 1, float32 array [N, D].

        Raises ValueError for anything but a list of texts, NotFittedError before ``fit``.
        """
        self._check_fitted()
        return self._embed(texts)

    def _assign(self, vectors):
        """Return the cluster whose mean is the nearest to each of the vectors [N, D]."""
        from sklearn.metrics import pairwise_distances_argmin

        return pairwise_distances_argmin(vectors, self.centers)

    def _embed(self, texts):
        options = {"device": self.device, "max_pieces": self.max_pieces}
        return embed_once(checked_texts(texts), "minilm", **options)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "centers")

    def _saved_parts(self):
        return {"centers": self.centers, "limits": self.limits}, {}

    def _load_parts(self, tensors, facts, folder):
        self.centers, self.limits = (tensors[name].cpu().numpy() for name in ("centers", "limits"))
