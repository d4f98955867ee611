"""Pictures that a single chapter draws, and whose code would teach nothing there."""

import textwrap
from dataclasses import dataclass

import numpy as np

from snnl_book import data
from snnl_book.embeddings import words
from snnl_book.report.figures import LOSS, NEUTRAL, class_look


@dataclass
class Documents:
    """Test documents on their way to a score: a row of each array for each document."""

    texts: list[str]
    vectors: np.ndarray
    codes: np.ndarray
    clusters: np.ndarray


def typical(documents: Documents, word: str) -> int:
    """Return the row of the document of middling length whose vector is nearest to a word's."""
    remains = {"com", "edu", "writes", "quot"}  # of addresses and of markup
    kept = [data.preprocess(text).split() for text in documents.texts]
    plain = [i for i, own in enumerate(kept) if 20 <= len(own) <= 45 and not remains & {*own}]
    lengths = np.linalg.norm(documents.vectors, axis=1)
    near = documents.vectors @ words.vocabulary()[word].vector / lengths
    return max(plain, key=lambda i: near[i])


def six_steps(documents: Documents, row: int, counts: np.ndarray, class_names: list[str]):
    """Draw one document on its way from the text to a score.

    ``counts`` says how many documents of each class (rows) are in each cluster (columns), with the
    clusters in the order of their classes.
    """
    import matplotlib.pyplot as plt

    shape = {"height_ratios": [0.7, 1, 1]}
    figure, axes = plt.subplots(3, 2, figsize=(7.4, 7.8), gridspec_kw=shape)
    _draw_words(axes[0], documents.texts[row])
    _draw_vectors(axes[1], documents, row)
    _draw_clusters(axes[2, 0], documents, row)
    _draw_counts(axes[2, 1], counts, class_names)
    score = f"score: accuracy {np.trace(counts) / counts.sum():.3f}"
    steps = ("text", "words", "vectors", "code", "clusters", score)
    for number, (axis, step) in enumerate(zip(axes.flat, steps, strict=True), 1):
        axis.set_title(f"{number}. {step}", fontsize=12)
        plt.setp([axis.xaxis.label, axis.yaxis.label], size=11)
        axis.grid(visible=False)
    figure.suptitle("Six steps lead from a document to a score", x=0.01, ha="left")
    return figure


def _draw_words(axes, text):
    """Write the opening of a text, and the first words that preprocessing keeps of it."""
    opening = " ".join(text.split())[:200]
    kept = ", ".join(data.preprocess(text).split()[:18])
    for axis, line in zip(axes, (opening, kept), strict=True):
        lines = textwrap.fill(f"{line} …", 30)
        axis.text(0, 1, lines, va="top", fontsize=11, linespacing=1.5)
        axis.axis("off")


def _draw_vectors(axes, documents, row):
    """Draw the vectors of a document's words with their mean below, and its code."""
    vocabulary = words.vocabulary()
    kept = dict.fromkeys(data.preprocess(documents.texts[row]).split())
    known = [word for word in kept if vocabulary[word].has_vector][:12]
    vectors = np.stack([vocabulary[word].vector for word in known])
    gap = np.full(vectors.shape[1], np.nan)
    stripes = np.vstack([vectors, gap, documents.vectors[row]])[:, :60]
    axes[0].imshow(stripes, aspect="auto", cmap="RdBu", vmin=-4, vmax=4)
    axes[0].set_yticks(range(len(known) + 2), [*known, "", "mean"], fontsize=9)
    axes[0].set(xticks=[], xlabel="the first 60 of 300 features")
    axes[1].imshow(documents.codes[row].reshape(8, 16), cmap="viridis", vmin=0, vmax=1)
    axes[1].set(xticks=[], yticks=[], xlabel="128 numbers between 0 and 1")


def _draw_clusters(axis, documents, row):
    """Draw the codes on two principal components, coloured by cluster, with a ring around one."""
    from sklearn.decomposition import PCA

    flat = PCA(2, random_state=0).fit_transform(documents.codes)
    for cluster in np.unique(documents.clusters):
        axis.scatter(*flat[documents.clusters == cluster].T, s=12, **class_look(cluster))
    axis.scatter(*flat[row], s=160, facecolor="none", edgecolor="black", linewidth=1.6)
    axis.set(xticks=[], yticks=[], xlabel="component 1", ylabel="component 2")


def _draw_counts(axis, counts, class_names):
    """Draw how many documents of each class are in each cluster."""
    import seaborn as sns

    few = len(class_names) < 10
    look = {"annot": few, "fmt": "d", "cmap": "Blues", "cbar": False, "xticklabels": False}
    sns.heatmap(counts, yticklabels=class_names, ax=axis, **look)
    axis.tick_params("y", labelsize=9 if few else 6, labelrotation=0)
    axis.set_xlabel("cluster")


def autoencoder(widths: list[int], code_units: int):
    """Draw the autoencoder with a bar for each layer, and which layers carry the loss."""
    import matplotlib.pyplot as plt

    kinds = ["input", *["ReLU"] * 3, "logistic", *["ReLU"] * 3, "logistic"]
    pale, grey = "#F7DCA0", "#BBBBBB"
    colours = [grey, pale, pale, pale, LOSS, pale, pale, pale, grey]
    figure, axis = plt.subplots(figsize=(8.2, 4))
    for place, (width, colour) in enumerate(zip(widths, colours, strict=True)):
        look = {"width": 0.45, "edgecolor": "black", "hatch": "///" * (place == 4)}
        bar = axis.bar(place, width, bottom=-width / 2, color=colour, **look)
        axis.bar_label(bar, [f"{width:,}"], padding=3, fontsize=11)
    names = ["x", "enc1", "enc2", "enc3", "code", "dec1", "dec2", "dec3", "output"]
    ticks = [f"{name}\n{kind}" for name, kind in zip(names, kinds, strict=True)]
    axis.set_xticks(range(9), ticks, fontsize=10)
    arrow = {"arrowstyle": "->", "color": "black"}
    part = f"LC(D):\n{code_units} units"
    axis.annotate(part, (4, -70), (4, -640), ha="center", arrowprops=arrow)
    axis.annotate("AE(D): all seven hidden layers", (4, -1210), ha="center")
    axis.hlines(-1290, 0.7, 7.3, color="black")
    axis.set(yticks=[], ylim=(-1400, 1300))
    axis.set_title("AE(D) applies the loss to every hidden layer, LC(D) to part of the code")
    axis.grid(visible=False)
    return figure


def benchmark(recorded, order: list[str]):
    """Draw time and memory of the losses in ``order`` against the batch size."""
    import matplotlib.pyplot as plt

    looks = [(LOSS, "-", "o"), (NEUTRAL[1], "--", "s"), (NEUTRAL[2], "-.", "^")]
    looks += [(NEUTRAL[3], ":", "D"), ("black", "-", "")]
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.9))
    sizes = sorted(recorded["batch"].unique())
    panels = (("seconds", 1000, "milliseconds"), ("memory", 1, "MiB"))
    for axis, (column, factor, unit) in zip(axes, panels, strict=True):
        for loss, (colour, line, marker) in zip(order, looks, strict=True):
            rows = recorded[recorded["loss"] == loss].dropna(subset=column)
            label = {"ours": "library", "bound": "three products"}.get(loss, loss)
            look = {"color": colour, "linestyle": line, "marker": marker, "label": label}
            axis.plot(rows["batch"], rows[column] * factor, **look)
        axis.set(xlabel="batch size", ylabel=unit, xscale="log", yscale="log")
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=10)
        axis.minorticks_off()
    labels = axes[0].get_legend_handles_labels()
    figure.legend(*labels, loc="outside lower center", ncols=5, fontsize=10)
    title = "On a CPU, the library is the fastest and needs the least memory"
    figure.suptitle(title, x=0.01, ha="left")
    return figure
