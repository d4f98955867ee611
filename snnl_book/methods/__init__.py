"""Methods as scikit-learn's estimators: clusterings without labels, of vectors or pixels and by
fine-tuning a transformer, and codes that labels have disentangled.
"""

from snnl_book.methods.clusterbert import ClusterBERT
from snnl_book.methods.deep_clustering import DEC, IDEC, N2D, VaDE
from snnl_book.methods.disentangled import DisentangledAutoencoder
from snnl_book.methods.sccl import SCCL

__all__ = ["DEC", "IDEC", "N2D", "SCCL", "ClusterBERT", "DisentangledAutoencoder", "VaDE"]
