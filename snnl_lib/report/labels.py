"""What tables and figures call a model, by its alpha or its vectors, as the families do."""

from snnl_lib.experiments import classification, images, short_texts, text_clustering

LABELS = {
    (model, alpha): label
    for model in classification.NETWORKS
    for alpha, label in classification.LABELS.items()
}
LABELS |= {
    (model, text_clustering.ALPHAS[model]): label for model, label in text_clustering.LABELS.items()
}
"""What the text paper's tables call a model and its alpha."""
IMAGE_LABELS = {(model, "pixels"): name for model, name in (images.LABELS | images.DEEP).items()}
SHORT_LABELS = {("plain", embedding): name for embedding, name in short_texts.PLAIN.items()}
SHORT_LABELS |= {("sccl", "minilm"): "SCCL", ("tsdae", short_texts.START): "TSDAE"}
SHORT_LABELS |= dict.fromkeys(
    [("clusterbert", short_texts.START), ("clusterbert", "minilm")], "ClusterBERT"
)
"""What tables of images and of short texts call a model and its vectors."""
