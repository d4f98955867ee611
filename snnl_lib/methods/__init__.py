"""Methods that cluster without labels: on vectors or pixels, and by fine-tuning a transformer."""

from snnl_lib.methods.clusterbert import ClusterBERT
from snnl_lib.methods.deep_clustering import DEC, IDEC, N2D, VaDE
from snnl_lib.methods.sccl import SCCL

__all__ = ["DEC", "IDEC", "N2D", "SCCL", "ClusterBERT", "VaDE"]
