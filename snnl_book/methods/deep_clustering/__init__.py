"""Deep clustering without labels, on vectors or pixels: DEC, IDEC, VaDE and N2D.

They are scikit-learn estimators: ``IDEC(10, seed=42).fit_predict(X)`` clusters the rows of X,
``predict`` assigns new rows, and ``transform`` returns their codes. All four start from an
autoencoder d-500-500-2000-c and back. They train one themselves, or copy the one given as
``fit(X, autoencoder=autoencoder)``, so that several methods can share it (``pretrain``). A
clustering that breaks down raises no error: it causes a warning, and ``diverged`` gives the reason.
Fewer clusters than ``k`` cause a warning too.

DEC and IDEC need an autoencoder of normalised features with a linear output
(``normalize=True``), as their papers do. VaDE needs an autoencoder of the features as they are,
because its likelihood describes those. N2D takes either: its authors' code uses the squared error
and a linear output, and does not normalise. The papers of DEC and IDEC pretrain layer by layer with
a fifth of the features dropped, and then train the whole network. We train the whole network at
once and drop nothing, as N2D does.
"""

from snnl_book.methods.deep_clustering.autoencoder import ClusteringAutoencoder, pretrain
from snnl_book.methods.deep_clustering.dec import DEC, IDEC, soft_assignment, target_distribution
from snnl_book.methods.deep_clustering.n2d import N2D, cluster_map, fit_umap
from snnl_book.methods.deep_clustering.vade import VaDE

__all__ = [
    "DEC",
    "IDEC",
    "N2D",
    "ClusteringAutoencoder",
    "VaDE",
    "cluster_map",
    "fit_umap",
    "pretrain",
    "soft_assignment",
    "target_distribution",
]
