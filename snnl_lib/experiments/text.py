"""The classification experiments of the text paper (Tables 1-2): what one run does. ``text_grids``
says which runs there are.

Where the paper is silent the choice is made here, in ``CHOICES``, and shown next to the table it
can move.
"""

import numpy as np
import torch
import torch.nn.functional as F

from snnl_lib import metrics
from snnl_lib.losses import soft_nearest_neighbor_loss
from snnl_lib.models import ConvNet, FeedForwardNet
from snnl_lib.results import Outcome, Spec
from snnl_lib.training import build, forward, train

CHOICES = {
    "subset": "the training documents are drawn uniformly without replacement, a new draw for each seed; those without a known word are left out and counted",
    "hidden": "hidden layers are counted after their nonlinearity, their losses are summed, and the output layer is not one of them",
    "cross_entropy": "the mean over the batch; a last, smaller batch is used",
    "epoch": "the last epoch is reported",
    "standardising": "each feature of an InferSent embedding is standardised by its training mean and standard deviation; word-vector means are fed as they "
    "are",
    "convolution": "the convolution has 32 filters and no pooling; its stride and kernel grow with the number of features, so that 64 positions, "
    "2,048 values in all, are left",
    "scaling": "for the binary cross entropy each feature is scaled to [0, 1] by its training minimum and maximum; test values beyond are clipped",
    "reconstruction": "the binary cross entropy is the mean over documents and features",
    "code": "LC(D) applies the loss to units 1-100 of the code; k-means sees all 128",
    "kmeans": "k-means (k = number of classes, 10 starts) is fitted on the test documents' codes, and the six metrics are computed on these",
    "entanglement": "snn is Eq. 4 at T = 0.1 on the first 2,000 test documents: of the code, or the mean over a classifier's hidden layers",
    "pca": "PCA to 128 components is fitted on the unscaled training vectors",
    "rivals": "labelled rivals are fitted on the training documents, the others on the test documents alone; linear discriminant analysis shrinks its "
    "covariance (Ledoit and Wolf), UMAP goes to as many dimensions as classes (20 neighbours by cosine, minimal distance 0), the Gaussian mixture has full "
    "covariances on the 128 components of PCA, as of Orig., fitted on the training documents; "
    "InferSent embeddings are standardised except for k-means and the mixture, which see what Orig. sees",
    "labels": "with few labels the autoencoder sees the labelled documents alone, for as many steps as with all of them; a thirtieth of these is an epoch "
    "of Eq. 6",
    "no labels": "tf-idf's words, SIF's weights, the direction that it removes and the vectors of SIF (corpus) come from the training documents; MiniLM is as "
    "published; ClusterBERT is fine-tuned on 2,000 training documents, without their labels, and k-means then sees the test documents alone",
    "t-SNE": "all test documents, scikit-learn's t-SNE, started from their two principal components",
}

ENTANGLEMENT_DOCUMENTS = 2000
# ---------------------------------------------------------------- losses and inputs


def cross_entropy(output, features, labels):
    """Eq. 2, mean over the batch."""
    return F.cross_entropy(output, labels)


def entanglement(features, labels) -> float:
    """Measure Eq. 4 at one common temperature (``CHOICES["entanglement"]``), comparable between
    runs; log(classes) is what chance gives.
    """
    first = slice(ENTANGLEMENT_DOCUMENTS)
    return soft_nearest_neighbor_loss(
        torch.as_tensor(features[first]), torch.as_tensor(labels[first]), temperature=0.1
    ).item()


def standardize(train_x, test_x):
    """Give each feature a training mean of 0 and standard deviation of 1
    (``CHOICES["standardising"]``); arrays [N, D], float32.
    """
    mean, deviation = train_x.mean(axis=0), train_x.std(axis=0)
    deviation[train_x.min(axis=0) == train_x.max(axis=0)] = (
        1  # where rounding can leave the deviation a little above 0
    )
    return (train_x - mean) / deviation, (test_x - mean) / deviation


def supervised_contrastive_loss(features, labels, temperature):
    """Compute the supervised contrastive loss of Khosla et al. (2020) on cosines, "out" form: a
    rival of Eq. 4.

    Like Eq. 4 it is a softmax over the rest of the batch, but the mean over the class mates stands
    outside the logarithm, so that every class mate has to be near, and not only one. features [B,
    D], labels [B]; anchors without a class mate are left out.
    """
    unit = F.normalize(features, dim=1)
    itself = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    logits = (unit @ unit.T / temperature).masked_fill(itself, torch.finfo(unit.dtype).min / 4)
    mates = (labels[:, None] == labels) & ~itself
    losses = -((logits - logits.logsumexp(dim=1, keepdim=True)) * mates).sum(dim=1) / mates.sum(
        dim=1
    ).clamp_min(1)
    return losses.sum() / mates.any(dim=1).sum().clamp_min(1)


def number(temperature):
    """Turn a spec's temperature into what ``train`` takes."""
    return (
        temperature
        if temperature == "annealed"
        else 1.0
        if temperature == "none"
        else float(temperature)
    )


# ---------------------------------------------------------------- one run


def build_classifier(spec: Spec, in_features: int, classes: int):
    """Build the network of a classification spec with the weights of its seed."""
    if spec.model == "cnn":
        sizes = {name: spec[name] for name in ("filters", "positions", "kernel")}
        return build(ConvNet, in_features, classes, **sizes, seed=spec.seed)
    return build(
        FeedForwardNet,
        in_features,
        classes,
        spec["hidden_sizes"],
        before_relu=spec.get("before_relu", False),
        seed=spec.seed,
    )


def _inputs(spec, task):
    return (
        standardize(task.train_x, task.test_x)
        if spec.get("standardize")
        else (task.train_x, task.test_x)
    )


def _with_output(hidden, output):
    return hidden | {"output": output}


def _train_classifier(spec, train_x, train_y, task, device, after_epoch=None, progress=None):
    model = build_classifier(spec, train_x.shape[1], task.classes)
    history = train(
        model,
        train_x,
        train_y,
        cross_entropy,
        epochs=spec["epochs"],
        seed=spec.seed,
        alpha=spec.alpha,
        temperature=number(spec.temperature),
        layers=spec["layers"],
        select=_with_output if spec.get("with_output") else None,
        regularizer=supervised_contrastive_loss if spec.model == "supcon" else None,
        device=device,
        after_epoch=after_epoch,
        progress=progress,
    )
    return model, history


def run_classification(spec: Spec, task, device, progress) -> Outcome:
    """Train a classifier on Eq. 7 and score it on the test documents.

    With ``held_out`` a share of the training documents is kept back, and the epoch with the best
    accuracy on it is reported.
    """
    (train_x, test_x), train_y = _inputs(spec, task), task.train_y
    kept_back = round(len(train_y) * spec.get("held_out", 0))
    held_x, held_y = train_x[:kept_back], train_y[:kept_back]
    best = {"held_acc": -1.0}

    def after_epoch(model):
        found = {
            "test_acc": metrics.classification_scores(
                task.test_y, forward(model, test_x).argmax(axis=1)
            )["acc"]
        }
        if kept_back:
            found["held_acc"] = metrics.classification_scores(
                held_y, forward(model, held_x).argmax(axis=1)
            )["acc"]
            if found["held_acc"] > best["held_acc"]:
                best.update(
                    held_acc=found["held_acc"],
                    weights={name: value.clone() for name, value in model.state_dict().items()},
                )
        return found

    model, history = _train_classifier(
        spec, train_x[kept_back:], train_y[kept_back:], task, device, after_epoch, progress
    )
    if history.diverged:
        return Outcome({}, history.curve, "diverged", history.diverged)
    if kept_back:
        model.load_state_dict(best["weights"])
    predictions = forward(model, test_x).argmax(axis=1)
    scores = metrics.classification_scores(task.test_y, predictions)
    _, hidden = model(torch.as_tensor(test_x[:1], device=device))
    layers = [forward(model, test_x[:ENTANGLEMENT_DOCUMENTS], layer=name) for name in hidden]
    scores["snn"] = float(np.mean([entanglement(layer, task.test_y) for layer in layers]))
    collapsed = len(np.unique(predictions)) == 1
    reason = f"every test document was given class {predictions[0]}" if collapsed else ""
    return Outcome(scores, history.curve, "collapsed" if collapsed else "ok", reason)


def run_rival(spec: Spec, task, device, progress) -> Outcome:
    """Classify the test documents in another way, from the same documents, labels and vectors."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from threadpoolctl import threadpool_limits

    if spec.model == "supcon":
        return run_classification(spec, task, device, progress)
    (train_x, test_x), curve = _inputs(spec, task), None
    if spec.model == "ffn-knn":  # neighbours in the last hidden layer
        model, history = _train_classifier(
            spec, train_x, task.train_y, task, device, progress=progress
        )
        curve, layer = history.curve, f"hidden{len(spec['hidden_sizes'])}"
        if history.diverged:
            return Outcome({}, curve, "diverged", history.diverged)
        train_x, test_x = forward(model, train_x, layer=layer), forward(model, test_x, layer=layer)
    with threadpool_limits(1):
        if spec.model == "lda":
            classifier = LinearDiscriminantAnalysis(solver="lsqr")
        elif spec.model == "logreg":
            classifier = LogisticRegression(max_iter=1000)
        else:  # knn, ffn-knn
            classifier = KNeighborsClassifier(spec["neighbours"])
        predictions = classifier.fit(train_x, task.train_y).predict(test_x)
    return Outcome(metrics.classification_scores(task.test_y, predictions), curve)
