"""The clustering experiments of the text paper (Secs. 2.3, 3.4-3.6; Tables 3-4, Figures 1-2): what
one run does.

A run makes codes of the test documents, clusters them with k-means and scores the clusters;
``text.CHOICES`` holds what the paper leaves open.
"""

import numpy as np
import pandas as pd
import torch.nn.functional as F
from scipy.special import expit

from snnl_lib import metrics
from snnl_lib.experiments import short_texts
from snnl_lib.experiments.settings import STAGES
from snnl_lib.experiments.short_text_grids import TRAINED
from snnl_lib.experiments.text import entanglement, number, standardize
from snnl_lib.experiments.text_grids import CODE_UNITS, COMPONENTS, NEIGHBOURS, RIVALS
from snnl_lib.methods.deep_clustering import umap
from snnl_lib.models import Autoencoder
from snnl_lib.results import Outcome, Spec
from snnl_lib.training import build, forward, named_seed, train

COLLAPSED_SHARE = 0.01
"""A code has collapsed when, rounded to 3 decimals, fewer than this share of the documents have
distinct codes.
"""

# ---------------------------------------------------------------- losses and inputs


def binary_cross_entropy(output, features, labels):
    """Eq. 3 with its printed sign slip put right, from logits; mean over documents and features."""
    return F.binary_cross_entropy_with_logits(output, features)


def squared_error(output, features, labels):
    """The mean squared error in place of Eq. 3; mean over documents and features."""
    return F.mse_loss(output, features)


def scale_to_unit(train_x, test_x, scaling="feature"):
    """Scale arrays [N, D] to [0, 1] by the training minimum and maximum, of each ``feature`` or one
    for all (``global``); ``none``: as they are.
    """
    if scaling == "none":
        return train_x, test_x
    axis = 0 if scaling == "feature" else None
    low, high = train_x.min(axis=axis), train_x.max(axis=axis)
    width = np.where(high > low, high - low, 1)
    return tuple(np.clip((x - low) / width, 0, 1).astype(np.float32) for x in (train_x, test_x))


# ---------------------------------------------------------------- one run


def _first_units(hidden, output):
    return {"code": hidden["code"][:, :CODE_UNITS]}


def train_autoencoder(spec: Spec, train_x, train_y, device="cpu", progress=None):
    """Train the autoencoder of a spec (``ae``, ``lc-d`` or ``ae-d``) on features [N, D], scaled as
    it asks; returns (model, History).
    """
    options = {name: spec.get(name, False) for name in ("linear_code", "before_nonlinearity")}
    model = build(Autoencoder, train_x.shape[1], **options, seed=spec.seed)
    select = _first_units if spec.model == "lc-d" else None
    history = train(
        model,
        train_x,
        train_y,
        squared_error if spec.get("reconstruction") else binary_cross_entropy,
        epochs=spec["epochs"],
        seed=spec.seed,
        alpha=spec.alpha,
        temperature=number(spec.temperature),
        select=select,
        steps_per_epoch=spec.get("steps_per_epoch"),
        device=device,
        progress=progress,
    )
    return model, history


def _codes(spec, task, device, progress):
    """Make the codes of a spec: (training codes, test codes, curve, why it diverged)."""
    if spec.model == "original":
        return task.train_x, task.test_x, None, ""
    if spec.model == "pca":
        pca = _pca(spec["components"], task, spec.seed)
        return pca.transform(task.train_x), pca.transform(task.test_x), None, ""
    if spec.model == "clusterbert":
        try:
            model, _ = short_texts.fine_tune(spec, task, device, progress)
        except short_texts.Diverged as error:
            return None, None, error.curve, str(error)
        codes = model.embeddings[STAGES[spec["stage"]]][: len(task.train_x)]
        return codes, codes, model.curve, ""
    train_x, test_x = scale_to_unit(task.train_x, task.test_x, spec["scaling"])
    model, history = train_autoencoder(spec, train_x, task.train_y, device, progress)
    if history.diverged:
        return None, None, history.curve, history.diverged
    codes = [forward(model, x, layer="code")[:, : spec.get("clustered")] for x in (train_x, test_x)]
    if spec.get("before_nonlinearity"):
        codes = [expit(values) for values in codes]
    return *codes, history.curve, ""


def _pca(components, task, seed):
    from sklearn.decomposition import PCA

    return PCA(min(components, *task.train_x.shape), random_state=named_seed(seed, "pca")).fit(
        task.train_x
    )


def _kmeans(spec, classes):
    from sklearn.cluster import KMeans

    return KMeans(
        classes, n_init=spec["kmeans_starts"], random_state=named_seed(spec.seed, "kmeans")
    )


def collapsed(codes) -> str:
    """Say why codes [N, D] count as collapsed (``COLLAPSED_SHARE``), or nothing."""
    distinct = len(np.unique(codes.round(3), axis=0)) / len(codes)
    return (
        f"only {distinct:.2%} of the test documents have distinct codes (3 decimals)"
        if distinct < COLLAPSED_SHARE
        else ""
    )


def run_clustering(spec: Spec, task, device, progress) -> Outcome:
    """Make codes as in Sec. 3.4, cluster those of the test documents and score the clusters."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        train_codes, codes, curve, diverged = _codes(spec, task, device, progress)
        if diverged:
            return Outcome({}, curve, "diverged", diverged)
        return score_codes(
            spec, task, codes, curve, train_codes if spec.get("fitted_on") == "train" else None
        )


def score_codes(spec: Spec, task, codes, curve=None, fitted_on=None) -> Outcome:
    """Cluster the test documents' codes [N, D] with k-means, fitted on them or on other codes, and
    score the clusters.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        kmeans = _kmeans(spec, task.classes)
        clusters = (
            kmeans.fit_predict(codes) if fitted_on is None else kmeans.fit(fitted_on).predict(codes)
        )
        scores = metrics.clustering_scores(codes, clusters, task.test_y)
    scores["snn"] = entanglement(codes, task.test_y)
    reason = collapsed(codes)
    return Outcome(scores, curve, "collapsed" if reason else "ok", reason)


def spherical_kmeans(features, k, starts=10, seed=0, iterations=300):
    """Cluster features [N, D] by the cosine to k mean directions (Dhillon and Modha, 2001): int
    clusters [N] of the best of some starts.
    """
    from sklearn.cluster import kmeans_plusplus

    unit = features / np.maximum(
        np.linalg.norm(features, axis=1, keepdims=True), np.finfo(np.float32).tiny
    )
    random, best, found = np.random.RandomState(seed), -np.inf, None
    for _ in range(starts):
        centres, clusters = kmeans_plusplus(unit, k, random_state=random)[0], None
        for _ in range(iterations):
            cosines, before = unit @ centres.T, clusters
            clusters = cosines.argmax(axis=1)
            if before is not None and (clusters == before).all():
                break
            sums = np.eye(k, dtype=unit.dtype)[clusters].T @ unit
            lengths = np.linalg.norm(sums, axis=1, keepdims=True)
            centres = np.where(
                lengths > 0, sums / np.maximum(lengths, np.finfo(np.float32).tiny), centres
            )
        if (total := cosines.max(axis=1).sum()) > best:
            best, found = total, clusters
    return found


def run_rival(spec: Spec, task, device, progress) -> Outcome:
    """Cluster the test documents in another way and score the clusters, on the representation that
    was clustered.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression
    from sklearn.mixture import GaussianMixture
    from threadpoolctl import threadpool_limits

    train_x, test_x = (
        standardize(task.train_x, task.test_x)
        if spec.get("standardize")
        else (task.train_x, task.test_x)
    )
    codes, clusters = test_x, None
    with threadpool_limits(1):
        if spec.model == "lda":
            classifier = LinearDiscriminantAnalysis(
                solver="eigen", shrinkage="auto", n_components=task.classes - 1
            )
            codes = classifier.fit(train_x, task.train_y).transform(test_x)
        elif spec.model.startswith("logreg"):
            classifier = LogisticRegression(max_iter=1000).fit(train_x, task.train_y)
            codes = classifier.predict_proba(test_x)
            clusters = codes.argmax(axis=1) if spec.model == "logreg-predictions" else None
        elif spec.model == "spherical-kmeans":
            clusters = spherical_kmeans(
                test_x, task.classes, spec["kmeans_starts"], named_seed(spec.seed, "kmeans")
            )
        elif spec.model == "umap":
            codes = umap(
                n_components=task.classes,
                n_neighbors=20,
                min_dist=0.0,
                metric="cosine",
                random_state=named_seed(spec.seed, "umap"),
            ).fit_transform(test_x)
        elif spec.model == "gmm":
            codes = _pca(COMPONENTS, task, spec.seed).transform(test_x)
            mixture = GaussianMixture(
                task.classes,
                n_init=spec["kmeans_starts"],
                random_state=named_seed(spec.seed, "kmeans"),
            )
            clusters = mixture.fit_predict(codes)
        if clusters is None:
            clusters = _kmeans(spec, task.classes).fit_predict(codes)
        return Outcome(metrics.clustering_scores(codes, clusters, task.test_y))


def run_labels(spec: Spec, task, device, progress) -> Outcome:
    """Carry out one point of the curve of accuracy against the number of labels."""
    if spec.model in TRAINED:
        return short_texts.run_test_documents(spec, task, device, progress)
    return (run_rival if spec.model in RIVALS else run_clustering)(spec, task, device, progress)


def run_lexicon(spec: Spec, task, device, progress) -> Outcome:
    """Make codes of opinion words (Figure 1), trained and held-out ones, and see whether words of
    one polarity lie together.

    Scores, of the held-out words and, as ``train_...``, of the others: ``acc``, k-means into two
    clusters, and ``neighbours``, the mean share of a word's 10 nearest words that have its
    polarity. Points: as many words of either kind as the spec shows, half of them positive, on
    their two principal components; ``row`` is the place in the lexicon's held-out or training part.
    """
    from sklearn.decomposition import PCA
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        *codes, curve, diverged = _codes(spec, task, device, progress)
        if diverged:
            return Outcome({}, curve, "diverged", diverged)
        scores, points = {}, []
        for prefix, held_out, found, labels, rows in (
            ("train_", 0, codes[0], task.train_y, task.train_rows),
            ("", 1, codes[1], task.test_y, task.test_rows),
        ):
            clusters = _kmeans(spec, task.classes).fit_predict(found)
            scores |= {
                f"{prefix}acc": metrics.clustering_accuracy(labels, clusters),
                f"{prefix}neighbours": neighbours(found, labels),
            }
            order = np.random.default_rng(named_seed(spec.seed, "shown words")).permutation(
                len(labels)
            )
            shown = np.concatenate(
                [
                    order[labels[order] == label][: spec["shown"] // task.classes]
                    for label in range(task.classes)
                ]
            )
            plane = PCA(2, random_state=named_seed(spec.seed, "pca")).fit_transform(found[shown])
            frame = {
                "row": rows[shown],
                "label": labels[shown],
                "held_out": held_out,
                "x": plane[:, 0],
                "y": plane[:, 1],
            }
            points.append(pd.DataFrame(frame))
    reason = collapsed(codes[1])
    return Outcome(scores, curve, "collapsed" if reason else "ok", reason, pd.concat(points))


def neighbours(points, labels):
    """Return the mean share of a point's 10 nearest points that have its class."""
    from sklearn.neighbors import NearestNeighbors

    near = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(points).kneighbors(return_distance=False)
    return float((labels[near] == labels[:, None]).mean())


def run_tsne(spec: Spec, task, device, progress) -> Outcome:
    """Map codes of the test documents to the plane, or to space, with t-SNE (Sec. 3.6): points with
    row number, class and coordinates.

    With ``points`` so many of them are drawn, with ``shown_classes`` from so many classes, which
    are drawn too. Scored by the final Kullback-Leibler divergence (``kl``) and by ``neighbours``,
    the mean share of a point's 10 nearest points in the map that have its class. A collapsed code
    has no map: scikit-learn breaks down on points that all coincide.
    """
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        _, codes, curve, diverged = _codes(spec, task, device, progress)
        if diverged:
            return Outcome({}, curve, "diverged", diverged)
        if reason := collapsed(codes):
            return Outcome({}, curve, "collapsed", reason)
        chosen = _shown(spec, task)
        rate = spec.get(
            "map_learning_rate", spec["learning_rate"]
        )  # ClusterBERT has a learning rate of its own among its settings
        own = {
            "perplexity": spec["perplexity"],
            "learning_rate": rate,
            "n_components": spec.get("dimensions", 2),
        }
        tsne = TSNE(
            **own,
            max_iter=spec["iterations"],
            init="pca",
            random_state=named_seed(spec.seed, "t-SNE"),
            n_jobs=1,
        )
        places, labels = (
            tsne.fit_transform(np.asarray(codes, dtype=np.float32)[chosen]),
            task.test_y[chosen],
        )
        scores = {"kl": float(tsne.kl_divergence_), "neighbours": neighbours(places, labels)}
    coordinates = dict(zip("xyz", places.T, strict=False))
    return Outcome(
        scores,
        curve,
        points=pd.DataFrame({"row": task.test_rows[chosen], "label": labels} | coordinates),
    )


def _shown(spec, task):
    """The places of the test documents that a map shows."""
    if not spec.get("points"):
        return np.arange(len(task.test_y))
    order = np.random.default_rng(named_seed(spec.seed, "shown points")).permutation(
        len(task.test_y)
    )
    if spec.get("shown_classes"):
        classes = np.random.default_rng(named_seed(spec.seed, "shown classes")).permutation(
            task.classes
        )[: spec["shown_classes"]]
        order = order[np.isin(task.test_y[order], classes)]
    return order[: spec["points"]]
