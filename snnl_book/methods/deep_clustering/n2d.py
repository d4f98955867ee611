"""N2D (McConville, Santos-Rodriguez, Piechocki and Craddock, 2021), and UMAP in one thread."""

import os
from dataclasses import dataclass

import numpy as np

from snnl_book import require
from snnl_book.methods._saving import as_it_was_on_error
from snnl_book.methods.deep_clustering._method import DeepClustering
from snnl_lib.training import named_seed


def fit_umap(vectors, seed, **settings):
    """Fit UMAP with these settings to vectors [N, D], in one thread.

    Returns the fitted UMAP and the map [N, d]. The vectors are first moved by a thousandth of their
    length in random directions drawn from the seed. In word counts, all texts that share no word
    are equally far from each other, and UMAP takes the first rows of equally near points as
    neighbours. In a sorted corpus those would reveal the class; now they are random. Raises
    SnnlError if umap-learn is not installed.
    """
    # numba, started with more threads, raises torch's number of threads too.
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")
    require("umap")
    from umap import UMAP

    noise = np.random.default_rng(seed).normal(size=vectors.shape) / vectors.shape[1] ** 0.5
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    mapping = UMAP(n_jobs=1, random_state=seed, **settings)
    return mapping, mapping.fit_transform((vectors + 1e-3 * lengths * noise).astype(np.float32))


def cluster_map(vectors, k, seed):
    """Map vectors [N, D] to k dimensions by UMAP, and cluster the map, as N2D does with codes.

    Returns the map [N, k], and the Gaussian mixture fitted to it, which gives the clusters.
    """
    from sklearn.mixture import GaussianMixture

    settings = {"n_components": k, "n_neighbors": N2D.NEIGHBOURS, "min_dist": 0.0}
    _, manifold = fit_umap(vectors, named_seed(seed, "umap"), **settings)
    mixture = GaussianMixture(k, n_init=10, random_state=named_seed(seed, "centroids"))
    return manifold, mixture.fit(manifold.astype(np.float64))


@dataclass(eq=False, repr=False)
class N2D(DeepClustering):
    """(Not too) deep clustering (McConville, Santos-Rodriguez, Piechocki and Craddock, 2021).

    UMAP maps the codes to as many dimensions as there are clusters, with 20 neighbours and a
    minimal distance of 0. A Gaussian mixture with full covariances then clusters the map. Only the
    autoencoder is trained. N2D needs umap-learn, and two points more than clusters (``fit`` raises
    ValueError).

    UMAP cannot be saved without pickle, and does not place new points twice alike, so ``predict``
    works without it. A new point is placed at the mean position of its ``NEIGHBOURS`` nearest
    fitted codes, weighted by the inverse of their distances, and the mixture gives its cluster. A
    point that was fitted keeps its position. Equal points take the mean of their positions, so they
    have the same cluster.

    After ``fit``: ``manifold`` [N, k] is what was clustered, and ``labels_`` [N] is the result.
    ``seed`` determines UMAP and the mixture, and ``device`` computes the codes. ``checkpoint`` is
    accepted as by the other methods, and has no effect. ``progress``, ``pretrain_epochs`` and
    ``code_size`` concern the pretraining, as in DEC.

    >>> x = np.random.default_rng(42).random((60, 5))
    >>> N2D(2, seed=42, pretrain_epochs=1).fit(x).manifold.shape
    (60, 2)
    """

    NEIGHBOURS = 20  # as many as UMAP uses
    _EXTRA_POINTS = 2  # UMAP needs them
    _FITTED_TENSORS = ("fitted_codes", "manifold")
    _MIXTURE = ("weights_", "means_", "covariances_", "precisions_cholesky_")

    @as_it_was_on_error
    def fit(self, X, y=None, *, autoencoder=None):
        """Cluster X [N, D] and return self; ``y`` is ignored.

        A given ``autoencoder`` is copied and not changed; without one, ``fit`` pretrains its own.
        Raises ValueError for an X that is empty or not finite, or for k > N - 2; TypeError for an
        autoencoder given as ``y``; Diverged if the pretraining breaks down.
        """
        X, _, _ = self._start(X, y, autoencoder)
        self.fitted_codes = self._codes(X)
        self.manifold, self.mixture = cluster_map(self.fitted_codes, self.k, self.seed)
        self._fit_positions()
        return self._end(X)

    def _fit_positions(self):
        """Prepare to place new points on the map."""
        from sklearn.neighbors import KNeighborsRegressor

        neighbours = min(self.NEIGHBOURS, len(self.manifold))
        # The distance of a code to itself is exactly 0 in a tree, and not by brute force.
        self.map = KNeighborsRegressor(neighbours, weights="distance", algorithm="kd_tree")
        self.map.fit(self.fitted_codes, self.manifold)

    def _assign(self, X):
        positions = self.map.predict(self._codes(X))
        return self.mixture.predict(positions.astype(np.float64))

    def _saved_parts(self):
        tensors, facts = super()._saved_parts()
        for name in self._MIXTURE:
            tensors[name] = getattr(self.mixture, name)
        return tensors, facts

    def _load_parts(self, tensors, facts, folder):
        from sklearn.mixture import GaussianMixture

        super()._load_parts(tensors, facts, folder)
        self.manifold = tensors["manifold"].cpu().numpy()
        self.fitted_codes = tensors["fitted_codes"].cpu().numpy()
        self.mixture = GaussianMixture(self.k)
        for name in self._MIXTURE:
            setattr(self.mixture, name, tensors[name].cpu().numpy())
        self._fit_positions()
