"""What the runs that are left to a GPU come to: operations counted in one step, times their steps.

Nothing of it is a time that was measured. ``python -m benchmarks.operations`` writes
``results/bench/operations-counted.csv``.
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch.utils.flop_counter import FlopCounterMode

from snnl_lib import data, experiments, results
from snnl_lib.experiments import EXPERIMENTS, short_texts
from snnl_lib.recipes import BATCH_SIZE, Recipe
from snnl_lib.results import Spec
from snnl_lib.training import Training, train_stack

FEATURES = {"spacy": 300, "pixels": 784}
FEATURES |= dict.fromkeys(("infersent", "infersent-nli", "infersent-random"), 4096)
CLASSES = 10
RATE = 5e12  # operations a second: a fraction of what any GPU of a data centre promises
STEP = 0.003  # seconds a step takes however little there is to compute


def _counted(action) -> int:
    with FlopCounterMode(display=False) as counter:
        action()
    return counter.get_total_flops()


def of_network(spec: Spec) -> int:
    """Count the operations of one step of what a run trains first, on vectors drawn at random."""
    random = np.random.default_rng(0)
    features = FEATURES[spec.embedding]
    vectors = random.random((BATCH_SIZE, features), dtype=np.float32)
    labels = np.arange(BATCH_SIZE) % CLASSES
    task = experiments.Task(vectors, labels, vectors, labels, CLASSES, 0, 0)
    asked = next(EXPERIMENTS[spec.experiment].run(spec, task, "cpu", None), None)
    if asked is None:  # nothing is trained
        return 0
    training: Training = getattr(asked, "training", asked)
    return _counted(lambda: train_stack([replace(training, epochs=1, after_epoch=None)], "cpu"))


def of_texts() -> float:
    """Count the operations of a step of ClusterBERT with both losses, for one text of 12 pieces."""
    from . import steps

    step, texts = steps.clusterbert("cpu")["ours"], Recipe().batch_size
    return _counted(lambda: [step() for _ in range(steps.BATCHES)]) / steps.BATCHES / texts


def epochs_of(spec: Spec) -> float:
    """Count the epochs of a run of TSDAE or ClusterBERT, warm-up included."""
    stages = spec["warm_up"] + spec["adaptation_epochs"]
    if spec.model == "clusterbert":
        stages += spec["reclusterings"] * spec["clustering_epochs"] + spec["hardening_epochs"]
    return stages


def documents_of(spec: Spec) -> int:
    """Count the training documents of a run: at most as many as its paper's data set has."""
    return min(spec.n_train, data.describe(spec.dataset).forms[0].documents[0])


def left_to_a_gpu() -> Iterator[tuple[Spec, int]]:
    """Yield one spec of each row that is left out for its cost, and how many runs of it are."""
    rows: dict[tuple, list[Spec]] = {}
    for name in EXPERIMENTS:
        on_texts = experiments.status(name, "full", "ag_news")
        for spec, verdict, *_ in on_texts or experiments.status(name, "full"):
            if verdict != "done" and spec.needs:
                kind = (name, spec.dataset, spec.embedding, spec.model, spec.n_train, spec.label)
                rows.setdefault(kind, []).append(spec)
    yield from ((specs[0], len(specs)) for specs in rows.values())


def rows_of() -> Iterator[dict]:
    """Yield a row of the table for each row of the papers' tables that is left to a GPU."""
    a_text, known = of_texts(), {}
    for spec, runs in left_to_a_gpu():
        documents = documents_of(spec)
        if spec.model in short_texts.TRAINED:
            if spec["clusterer"] != "kmeans":  # trained once for all ways to cluster
                continue
            size = Recipe().batch_size
            epochs = spec["steps"] * size / documents if spec.model == "sccl" else epochs_of(spec)
            step = a_text * size
        else:
            kind = (spec.experiment, spec.embedding, spec.model, spec.alpha, spec.settings)
            step = known[kind] = known[kind] if kind in known else of_network(spec)
            if not step:
                continue
            size, epochs = BATCH_SIZE, spec.get("epochs") or spec["pretrain_epochs"]
        steps = math.ceil(documents / size) * epochs + (spec.get("max_steps") or 0)
        yield {
            "experiment": spec.experiment,
            "dataset": spec.dataset,
            "row": f"{spec.label}, {spec.embedding}",
            "documents": documents,
            "runs": runs,
            "steps": round(steps),
            "teraoperations": step * steps / 1e12,
            "hours": runs * max(step * steps / RATE, steps * STEP) / 3600,
        }


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operations", description=__doc__)
    folder = results.results_dir("full") / "bench"
    parser.add_argument("--out", type=Path, default=folder, help="folder of the table")
    out = parser.parse_args().out / "operations-counted.csv"
    torch.set_num_threads(1)
    facts = {"versions": results.versions(), "commit": results.commit()}
    table = pd.DataFrame(rows_of()).assign(**facts)
    results.write_atomically(out, table.to_csv(index=False, float_format="%.4g"))
    print(f"{out}: {table['hours'].sum():.1f} hours, counted and not measured")


if __name__ == "__main__":
    main()
