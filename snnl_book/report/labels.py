"""Names of models in tables and figures, by alpha or by vectors, as the families give them."""

from itertools import product

from snnl_book.experiments import classification, short_texts, text_clustering

_NAMES = text_clustering.LABELS
_CLASSIFIERS = product(classification.NETWORKS, classification.LABELS.items())
LABELS = {
    **{(model, alpha): label for model, (alpha, label) in _CLASSIFIERS},
    **{(model, alpha): _NAMES[model] for model, alpha in text_clustering.ALPHAS.items()},
}
"""The names that the text paper's tables give a model and its alpha."""
SHORT_LABELS = {
    **{("plain", embedding): name for embedding, name in short_texts.PLAIN.items()},
    ("sccl", "minilm"): "SCCL",
    ("tsdae", short_texts.START): "TSDAE",
    ("clusterbert", short_texts.START): "ClusterBERT",
    ("clusterbert", "minilm"): "ClusterBERT",
}
"""The names that tables of short texts give a model and its vectors."""
