"""Methods as scikit-learn estimators.

DEC, IDEC, VaDE and N2D cluster vectors or pixels without labels. ClusterBERT and SCCL cluster texts
by fine-tuning a transformer, TextKMeans without any training. DisentangledAutoencoder learns codes
with the help of labels.
"""

from snnl_book.methods.clusterbert import ClusterBERT
from snnl_book.methods.deep_clustering import DEC, IDEC, N2D, VaDE
from snnl_book.methods.disentangled import DisentangledAutoencoder
from snnl_book.methods.sccl import SCCL
from snnl_book.methods.text_kmeans import TextKMeans

__all__ = [
    "DEC",
    "IDEC",
    "N2D",
    "SCCL",
    "ClusterBERT",
    "DisentangledAutoencoder",
    "TextKMeans",
    "VaDE",
]
