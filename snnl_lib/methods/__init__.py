from snnl_lib.methods.clusterbert import ClusterBERT
from snnl_lib.methods.deep_clustering import DEC, IDEC, N2D, VaDE
from snnl_lib.methods.sccl import SCCL
