"""What tables and figures call a model, by its alpha or its vectors, as the families do."""

from itertools import product

from snnl_book.experiments import classification, short_texts, text_clustering

_NAMES = text_clustering.LABELS
_CLASSIFIERS = product(classification.NETWORKS, classification.LABELS.items())
LABELS = {(model, alpha): label for model, (alpha, label) in _CLASSIFIERS}
LABELS |= {(model, alpha): _NAMES[model] for model, alpha in text_clustering.ALPHAS.items()}
"""What the text paper's tables call a model and its alpha."""
SHORT_LABELS = {("plain", embedding): name for embedding, name in short_texts.PLAIN.items()}
SHORT_LABELS |= {("sccl", "minilm"): "SCCL", ("tsdae", short_texts.START): "TSDAE"}
SHORT_LABELS |= {("clusterbert", name): "ClusterBERT" for name in (short_texts.START, "minilm")}
"""What tables of short texts call a model and its vectors."""
