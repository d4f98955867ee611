"""Text classification: Tables 1-2 of the text paper, its readings, and other uses of its labels."""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from snnl_book.experiments import codes
from snnl_book.experiments.cells import (
    ALL,
    CONFIRMING_SEEDS,
    FIFTEEN_SEEDS,
    PAPER_SEEDS,
    Cell,
    Experiment,
    choices,
)
from snnl_book.results import Outcome, Spec
from snnl_lib.seeds import BATCH_SIZE

CHOICES = choices("text-classification")
"""Our choices where the text paper says nothing about classification."""

CONFIRMED = (1000, 3000, 20_000)
"""Numbers of documents with ``CONFIRMING_SEEDS``: the half of the epochs in which the loss acts was
chosen on runs with the fifteen seeds, so others have to confirm its effect."""
RECORDED_SEEDS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)  # Table 1 has these besides its own
LABELS = {0: "Baseline", 100: "SNNL 100", -100: "SNNL -100"}
RIVALS = {
    "lda": "linear discriminant analysis",
    "logreg": "logistic regression",
    "knn": "nearest neighbours",
    "supcon": "supervised contrastive",
}

# ---------------------------------------------------------------- cells


def _feed_forward(profile, embedding="spacy", **changes):
    """Return settings of Sec. 2.1's network: two hidden layers on averaged vectors, else one."""
    settings = {"epochs": profile["classification_epochs"], "layers": "sum"}
    if embedding == "spacy":
        return settings | {"hidden_sizes": [500, 500]} | changes
    return settings | {"hidden_sizes": [500], "standardize": True} | changes


def _convolutional(profile, embedding="spacy", **changes):
    """Return settings of the convolutional network."""
    settings = {
        "epochs": profile["convolution_epochs"],
        "layers": "sum",
        "filters": 32,
        "positions": 64,
        "kernel": None,
    }
    if embedding != "spacy":
        settings["standardize"] = True
    return settings | changes


NETWORKS = {"ffn": _feed_forward, "cnn": _convolutional}


def table_cells(profile: dict) -> Iterator[Cell]:
    """Yield the cells of Tables 1 and 2; training on all InferSent vectors has rows of its own."""
    sentences = profile["sentence_vectors"]
    for embedding in ("spacy", "infersent-random") if sentences else ("spacy",):
        for model, settings in NETWORKS.items():
            for alpha, label in LABELS.items():
                is_random = embedding == "infersent-random"
                options = settings(profile, embedding)
                yield Cell(label, embedding, model, alpha, options, drawn_anew=is_random)
    if not sentences:
        return
    hours = "on a CPU core, plus an hour (once) to embed the documents"
    both = f"{hours} and two and a half hours (once) to train the encoder"
    encoder = "on a CPU core, plus two and a half hours (once) to train the encoder"
    for embedding, model, seeds, n_train, cost in (
        ("infersent-nli", "ffn", None, None, f"five minutes {encoder}"),
        ("infersent-nli", "cnn", None, None, f"ten minutes {encoder}"),
        ("infersent-random", "ffn", None, ALL, f"20 minutes {hours}"),
        ("infersent-random", "cnn", None, ALL, f"an hour {hours}"),
        ("infersent-nli", "ffn", 3, ALL, f"20 minutes {both}"),
        ("infersent", "ffn", None, ALL, f"20 minutes {hours}"),
    ):
        settings = NETWORKS[model](profile, "infersent")
        fields = {"seeds": seeds, "n_train": n_train, "needs": cost}
        for alpha, label in LABELS.items():
            yield Cell(label, embedding, model, alpha, settings, **fields)


def reading_cells(profile: dict) -> Iterator[Cell]:
    """Yield cells that change one choice at a time, on averaged vectors with alpha 100."""

    def cell(reading, alpha=100, temperature="annealed", label=None, **changes):
        fields = {name: changes.pop(name) for name in ("seeds", "n_train") if name in changes}
        settings = _feed_forward(profile, **changes) | {"reading": reading}
        label = label or (reading if alpha == 100 else f"{reading}, alpha {alpha}")
        return Cell(label, "spacy", "ffn", alpha, settings, temperature, **fields)

    yield cell("minimum over layers", layers="min")
    yield cell("before the nonlinearity", before_relu=True)
    yield cell("output layer counted too", with_output=True)
    for alpha in (1, 10, 1000):
        yield cell(f"alpha {alpha}", alpha, label=f"alpha {alpha}")
    for temperature in ("1.0", "0.1"):
        yield cell(f"fixed temperature {temperature}", temperature=temperature)
    for reading, temperature, weight in codes.WEIGHTS:
        yield cell(reading, temperature=temperature, weight=weight)
    for alpha in LABELS:
        again = CONFIRMING_SEEDS * (alpha >= 0 and profile["n_train"] in CONFIRMED)
        seeds = (*PAPER_SEEDS, *again)
        yield cell("best epoch on a held-out tenth", alpha, held_out=0.1, seeds=seeds)
        yield cell("five hidden layers", alpha, hidden_sizes=[500] * 5)
    long = {"epochs": profile["more_epochs"]}
    yield cell(f"{long['epochs']} epochs", 0, **long)
    yield cell(f"{long['epochs']} epochs", **long)
    steps = {"steps_per_epoch": math.ceil(profile["n_train"] / BATCH_SIZE)}
    for n_train in profile["label_sizes"]:
        few = {"n_train": n_train}
        for alpha in (0, 100):
            seeds = FIFTEEN_SEEDS + CONFIRMING_SEEDS * (alpha == 0 and n_train in CONFIRMED)
            yield cell(f"{n_train:,} documents", alpha, seeds=seeds, **few)
            yield cell(f"{n_train:,} documents, as many steps as with all", alpha, **few, **steps)
            reading = f"{n_train:,} documents, best epoch on a held-out tenth"
            yield cell(reading, alpha, seeds=FIFTEEN_SEEDS, held_out=0.1, **few)
    yield from _half_cells(profile, cell, steps)
    yield from _step_cells(profile, cell)
    for reading, changes in (
        ("kernel 3, max pooling", {"kernel": 3}),
        ("8 filters, 256 positions", {"filters": 8, "positions": 256}),
    ):
        settings = _convolutional(profile, **changes) | {"reading": reading}
        yield Cell(reading, "spacy", "cnn", 0, settings, seeds=1)
    if profile["sentence_vectors"]:
        reading = "InferSent not standardised"
        settings = _feed_forward(profile, "infersent", standardize=False) | {"reading": reading}
        yield Cell(reading, "infersent-random", "ffn", 100, settings, seeds=1)


def _half_cells(profile, cell, steps):
    """Yield cells with the loss in only one half of the epochs.

    Chapter 7 explains by the loss in the second half why an early lead is lost. If it is right,
    the loss in the first half alone keeps the lead, and in the second half alone it does harm.
    """
    halves = codes.halves(profile["classification_epochs"])
    first, second = ({"loss_epochs": halves[name]} for name in ("first", "second"))
    for n_train in (*profile["label_sizes"], profile["n_train"]):
        seeds = FIFTEEN_SEEDS + CONFIRMING_SEEDS * (n_train in CONFIRMED)
        if n_train == profile["n_train"]:
            seeds = (*seeds, *(seed for seed in RECORDED_SEEDS if seed not in seeds))
        size = {"seeds": seeds, "n_train": n_train}
        yield cell(f"{n_train:,} documents, loss in the first half only", **size, **first)
    if profile["n_train"] in CONFIRMED:
        baseline = {"seeds": CONFIRMING_SEEDS, "n_train": profile["n_train"]}
        yield cell(f"{profile['n_train']:,} documents", 0, **baseline)
    all_of_them = {"n_train": profile["n_train"], "seeds": (*PAPER_SEEDS, *RECORDED_SEEDS)}
    reading = f"{profile['n_train']:,} documents, loss in the second half only"
    yield cell(reading, **all_of_them, **second)
    few = {"n_train": max(size for size in profile["label_sizes"] if size <= 3000)}
    documents = f"{few['n_train']:,} documents"
    yield cell(f"{documents}, loss in the second half only", seeds=FIFTEEN_SEEDS, **few, **second)
    for half_name, epochs in (("first", first), ("second", second)):
        reading = f"{documents}, as many steps as with all, loss in the {half_name} half only"
        yield cell(reading, **few, **steps, **epochs)


def _step_cells(profile, cell):
    """Yield cells that ask whether a smaller step explains what the loss in the first half gains.

    Adam divides each step by the size of past gradients. Those of the loss are large, so after the
    loss is switched off the steps remain small for a while. If this explains the gain, then a
    baseline whose learning rate is cut at halftime gains as much, and the gain is lost if Adam
    starts anew at halftime, without the sizes of past gradients.
    """
    half = profile["classification_epochs"] // 2
    sizes = {*CONFIRMED} & {*profile["label_sizes"], profile["n_train"]} or {profile["n_train"]}
    for n_train in sorted(sizes):
        documents = f"{n_train:,} documents"
        size = {"n_train": n_train, "seeds": CONFIRMING_SEEDS}
        for divisor in (3, 10):
            reading = f"{documents}, learning rate divided by {divisor} at halftime"
            yield cell(reading, 0, rate_cut=(half, divisor), **size)
        yield cell(f"{documents}, Adam restarted at halftime", 0, restart=half, **size)
        reading = f"{documents}, loss in the first half only, Adam restarted at halftime"
        yield cell(reading, loss_epochs=(0, half), restart=half, **size)
        # Does the loss help a network whose learning rate falls anyway?
        cut = {"rate_cut": (half, 10)}
        reading = "learning rate divided by 10 at halftime"
        yield cell(f"{documents}, loss in both halves, {reading}", **cut, **size)
        reading = f"{documents}, loss in the first half only, {reading}"
        yield cell(reading, loss_epochs=(0, half), **cut, **size)


def rival_cells(profile: dict) -> Iterator[Cell]:
    """Yield the cells of other methods on the same labels and vectors."""
    for embedding in ("spacy", "infersent-random") if profile["sentence_vectors"] else ("spacy",):
        settings = {} if embedding == "spacy" else {"standardize": True}
        for model in ("lda", "logreg", "knn"):
            if model == "knn":
                settings = settings | {"neighbours": codes.NEIGHBOURS}
            yield Cell(RIVALS[model], embedding, model, 0, settings)
    yield Cell(RIVALS["supcon"], "spacy", "supcon", 100, _feed_forward(profile))
    for alpha in (0, 100):
        settings = _feed_forward(profile) | {"neighbours": codes.NEIGHBOURS}
        yield Cell(f"neighbours in {LABELS[alpha]}", "spacy", "ffn-knn", alpha, settings)


# ---------------------------------------------------------------- runs


def build_classifier(spec: Spec, in_features: int, classes: int):
    """Build the network of a classification spec with the weights of its seed."""
    from snnl_lib.models import ConvNet, FeedForwardNet
    from snnl_lib.training import build

    network = ConvNet if spec.model == "cnn" else FeedForwardNet
    arguments = ("filters", "positions", "kernel", "hidden_sizes", "before_relu")
    options = {name: value for name, value in spec.settings if name in arguments}
    return build(network, in_features, classes, **options, seed=spec.seed)


def _with_output(hidden, output):
    return hidden | {"output": output}


def trained_classifier(spec, train_x, train_y, classes, device, progress=None, after_epoch=None):
    """Train a spec's network on Eq. 7.

    With ``restart``, Adam forgets past gradients after so many epochs, and the loss, if it has
    acted, stops. The later epochs then have the batches of the first ones. Returns (model, curve).
    Raises Diverged.
    """
    import pandas as pd

    from snnl_lib.losses import supervised_contrastive_loss
    from snnl_lib.training import cross_entropy, raise_if_diverged, train

    model = build_classifier(spec, train_x.shape[1], classes)
    train_once = partial(
        train,
        model,
        train_x,
        train_y,
        cross_entropy,
        seed=spec.seed,
        temperature=codes.temperature_of(spec),
        layers=spec["layers"],
        steps_per_epoch=spec.get("steps_per_epoch"),
        weight=spec.get("weight"),
        select=_with_output if spec.get("with_output") else None,
        regularizer=supervised_contrastive_loss if spec.model == "supcon" else None,
        after_epoch=after_epoch,
        device=device,
        progress=progress,
        **_learning_rate(spec),
    )
    epochs, restart = spec["epochs"], spec.get("restart")
    if restart is None:
        return model, raise_if_diverged(train_once(epochs=epochs, alpha=codes.alpha_of(spec))).curve
    first = raise_if_diverged(train_once(epochs=restart, alpha=spec.alpha)).curve
    second = raise_if_diverged(train_once(epochs=epochs - restart, alpha=0.0)).curve
    return model, pd.concat([first, second.assign(epoch=second["epoch"] + restart)])


def _learning_rate(spec):
    """Return ``train``'s learning rate if a spec divides it from some epoch on."""
    cut = spec.get("rate_cut")
    return {"learning_rate": partial(_cut_rate, *cut)} if cut else {}


def _cut_rate(start, divisor, epoch):
    return 1e-3 / divisor if epoch >= start else 1e-3


def run_network(spec: Spec, task, device, progress):
    """Train a classifier on Eq. 7 and score it on the test documents.

    With ``held_out`` a share of the training documents is kept back, and the epoch with the best
    accuracy on it is reported.
    """
    import torch

    from snnl_lib import metrics
    from snnl_lib.training import forward

    train_x, test_x = codes.standardized(spec, task)
    held_out = round(len(task.train_y) * spec.get("held_out", 0))
    best = {"held_acc": -1.0}

    def accuracy(model, features, labels):
        predictions = forward(model, features).argmax(axis=1)
        return metrics.classification_scores(labels, predictions)["acc"]

    def after_epoch(model):
        row = {"test_acc": accuracy(model, test_x, task.test_y)}
        if held_out:
            row["held_acc"] = accuracy(model, train_x[:held_out], task.train_y[:held_out])
            if row["held_acc"] > best["held_acc"]:
                weights = {name: value.clone() for name, value in model.state_dict().items()}
                best.update(held_acc=row["held_acc"], weights=weights)
        return row

    rest = train_x[held_out:], task.train_y[held_out:]
    model, curve = trained_classifier(
        spec, *rest, task.classes, device, progress, after_epoch=after_epoch
    )
    if held_out:
        model.load_state_dict(best["weights"])
    predictions = forward(model, test_x).argmax(axis=1)
    scores = metrics.classification_scores(task.test_y, predictions)
    _, hidden = model(torch.as_tensor(test_x[:1], device=next(model.parameters()).device))
    layers = [forward(model, test_x[: codes.ENTANGLEMENT_DOCUMENTS], layer=name) for name in hidden]
    scores["snn"] = float(np.mean([codes.entanglement(layer, task.test_y) for layer in layers]))
    outcome = Outcome(scores, curve, answers={"": predictions})
    if len(np.unique(predictions)) > 1:
        return outcome
    reason = f"every test document was given class {predictions[0]}"
    return outcome._replace(status="collapsed", reason=reason)


def run_rival(spec: Spec, task, device, progress):
    """Classify the test documents by another method, with the same labels and vectors."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    from snnl_lib import metrics
    from snnl_lib.training import forward

    if spec.model == "supcon":
        return run_network(spec, task, device, progress)
    train_x, test_x = codes.standardized(spec, task)
    curve = None
    if spec.model == "ffn-knn":  # neighbours in the last hidden layer
        model, curve = trained_classifier(
            spec, train_x, task.train_y, task.classes, device, progress
        )
        layer = f"hidden{len(spec['hidden_sizes'])}"
        train_x, test_x = (forward(model, x, layer=layer) for x in (train_x, test_x))
    if spec.model == "lda":
        classifier = LinearDiscriminantAnalysis(solver="lsqr")
    elif spec.model == "logreg":
        classifier = LogisticRegression(max_iter=1000)
    else:
        classifier = KNeighborsClassifier(spec["neighbours"])
    predictions = classifier.fit(train_x, task.train_y).predict(test_x)
    scores = metrics.classification_scores(task.test_y, predictions)
    return Outcome(scores, curve, answers={"": predictions})


METRICS = ("acc", "f1_micro", "f1_macro")
SCORES = (*METRICS, "snn")
EXPERIMENTS = {
    "classification": Experiment(
        "Text classification (text paper, Tables 1-2)", SCORES, table_cells, run_network
    ),
    "classification-readings": Experiment(
        "What the text paper leaves open about classification", SCORES, reading_cells, run_network
    ),
    "classification-rivals": Experiment(
        "Other uses of the same labels", METRICS, rival_cells, run_rival
    ),
}
