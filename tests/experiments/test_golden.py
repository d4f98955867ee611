"""Golden values: each experiment's tiny runs give the numbers in golden.csv, or the experiment has
a new revision.

A change that moves a number makes recorded results stale, and only the revision says so. When this
test fails and the change is meant, raise the experiment's ``revision`` in
the family of its experiment, then write the new values with ``python
tests/experiments/test_golden.py``.

The last bits of a processor's arithmetic change with the order of its sums, and training and
k-means make more of them: a document moves from one cluster to another. So the values hold to
``TOLERANCE`` only for the arithmetic with which they were written (``ARITHMETIC``); elsewhere, as
on another maker's processor, they are compared to ``ELSEWHERE``, with a warning. Some tiny runs
have no golden values even so (``UNSTEADY``: what moves by more than the tolerance when each input
is changed by a ten-millionth). UMAP and t-SNE are chaotic, as every layout made by many small steps
is. Linear discriminant analysis of 300 documents of 300 features inverts what cannot be inverted,
and the step at which logistic regression stops hangs on those bits. Two epochs of an autoencoder
often end where a document or two lie halfway between two clusters, unless each feature is scaled.
``test_text_clustering.py`` and ``test_maps.py`` look at all of these.
"""

import csv
import hashlib
import math
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where conftest is
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

# Before numpy and torch: this file also runs as a script, with one thread and the same kernels.
import conftest
import numpy as np
import pytest
import torch

from snnl_book import data
from snnl_book.experiments import EXPERIMENTS, PROFILES, run, specs
from snnl_book.experiments.short_texts import PUBLISHED, RANKINGS

GOLDEN = Path(__file__).with_name("golden.csv")
COLUMNS = ["experiment", "model", "reading", "alpha", "metric", "revision", "value"]
TOLERANCE, ELSEWHERE = 1e-4, 0.05  # absolute; for chs, which has no upper bound, relative
ARITHMETIC = "b683da7f"  # of the machine that wrote golden.csv
UNSTEADY = {  # experiment -> models, readings or embeddings
    "classification-rivals": {"lda"},
    "classification-readings": {
        "100 documents",
        "100 documents, as many steps as with all",
        "100 documents, best epoch on a held-out tenth",
        "100 documents, loss in the first half only",
        "300 documents, loss in the first half only",
        "300 documents, loss in the first half only, learning rate divided by 10 at halftime",
        "300 documents, loss in the second half only",
        "100 documents, loss in the second half only",
        "100 documents, as many steps as with all, loss in the first half only",
        "100 documents, as many steps as with all, loss in the second half only",
    },
    "clustering-readings": {
        "inputs not scaled",
        "one scale for all features",
        "squared error",
        "squared error, inputs not scaled",
        "squared error, inputs not scaled, logistic output",
        "linear code",
        "fixed temperature 0.3",
        "fixed temperature 0.5",
        "k-means fitted on training codes",
        "normalised codes",
        "squared error, inputs not scaled, normalised codes",
        "Gaussian mixture",
        "squared error, inputs not scaled, Gaussian mixture",
        "as many directions as LDA",
        "squared error, inputs not scaled, as many directions as LDA",
        "loss on the code only",
        "squared error, inputs not scaled, loss on the code only",
        "loss in the first half only",
        "loss in the second half only",
    },
    "clustering-rivals": {"umap", "logreg", "logreg-predictions", "lda-predictions", "encoder"},
    "annealing": {
        "step divided by the falling T, cosine distance",
        "step times the falling T, cosine distance",
    },
    # MiniLM's vectors and ClusterBERT have golden values in the experiment ``clusterbert``.
    "labels": {
        "100 labels",
        "squared error, inputs not scaled, 100 labels",
        "squared error, inputs not scaled, 100 labels, one pass an epoch",
        "tfidf",
        "minilm",
        "minilm-cls",
        "clusterbert",
    },
    "tsne": {"original", "ae", "lc-d", "ae-d"},
    "images": {
        "umap",
        "n2d",
        "weight divided by the falling T",
        "weight times the falling T",
        "normalised codes",
        "loss in the first half only",
        "loss in the second half only",
    },
    "clusterbert": {"UMAP + k-means", "UMAP + IDEC", "IDEC"},
}
SENSITIVE = {
    "images": {"ae", "ae-d", "ae-10", "dec", "idec", "vade"},
    "unseen": {"ae", "ae-d", "ae-classifier", "supcon"},
    "clusterbert": {"tsdae", "clusterbert", "sccl"},
    "clusterbert-ablation": {"clusterbert", "tsdae"},
}  # as unsteady, but with no other golden run: compared by the arithmetic that wrote them
NOT_EVERYWHERE = {
    *PUBLISHED,
    *RANKINGS,
}  # weights and data that a machine may lack; golden rows are those that any can compute
SHORT = ("clusterbert", "clusterbert-ablation", "retrieval")
HOW = (
    "raise the revision of {!r} in the family of its experiment and regenerate with `python"
    " tests/experiments/test_golden.py`"
)


def read_golden(path=GOLDEN):
    """Read golden values: (experiment, model, reading, alpha, metric) -> (revision, value)."""
    with path.open(newline="") as file:
        rows = csv.DictReader(file)
        return {
            (r["experiment"], r["model"], r["reading"], float(r["alpha"]), r["metric"]): (
                int(r["revision"]),
                float(r["value"]),
            )
            for r in rows
        }


def dataset(experiment):
    """Name the data of an experiment's golden values: MNIST for images, since only it is at hand
    wherever SNNL_DATA is set; for short texts the default.
    """
    return {"images": "mnist", "unseen": "digits"}.get(
        experiment, "newsgroups20_openings" if experiment in SHORT else "newsgroups4"
    )


def what(spec):
    """Tell a run from others of its model and alpha: by its reading, and where nothing but
    temperature or embedding differs by that.
    """
    some = (
        spec.n_train == PROFILES["tiny"]["short_documents"]
        and spec.model == "plain"
        and spec.get("clusterer") == "kmeans"
    )
    rest = {"annealing": f"at {spec.temperature}"} | dict.fromkeys(
        SHORT, f"on {spec.embedding}" + (" on some documents" if some else "")
    )
    rest |= {"labels": "" if spec.embedding == "spacy" else f"on {spec.embedding}"}
    return " ".join(filter(None, [spec.get("reading"), rest.get(spec.experiment)]))


def compute(experiment, left_out=frozenset()):
    """Carry out the tiny runs of an experiment for seed 42 (not those in ``UNSTEADY``, and no
    models left out), in the form of ``read_golden``.
    """
    chosen = [
        spec
        for spec in specs(experiment, "tiny", dataset(experiment), 42)
        if not {spec.model, spec.get("reading"), spec.embedding, spec.get("task")}
        & (UNSTEADY.get(experiment, set()) | left_out | NOT_EVERYWHERE)
    ]
    names = [(experiment, spec.model, what(spec), float(spec.alpha)) for spec in chosen]
    assert len({*names}) == len(names), "two runs have the same name in golden.csv"
    return {
        (*name, metric): (spec.revision, value)
        for name, spec in zip(names, chosen, strict=True)
        for metric, value in run(spec, "cpu").metrics.items()
        if metric != "shared_seconds"  # a time, which no two runs share
    }


def arithmetic():
    """Name this machine's arithmetic by what it makes of the same numbers (8 hex digits)."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    x, weights = (
        torch.tensor(random.random(shape, dtype=np.float32) - 0.5).clone()
        for shape in ((256, 300), (300, 500))
    )
    unit = torch.nn.functional.normalize(x)
    found = [
        x @ weights,
        torch.sigmoid(x @ weights),
        unit @ unit.T,
        torch.logsumexp(unit @ unit.T / 0.1, dim=1),
        x.var(dim=0).sqrt(),
        # What a transformer adds: SCCL has moved where only this differed.
        torch.nn.functional.scaled_dot_product_attention(*[x.reshape(8, 32, 12, 25)] * 3),
        torch.nn.functional.gelu(torch.nn.functional.layer_norm(x, (300,))),
        torch.nn.functional.dropout(x, 0.1),
    ]
    return hashlib.sha256(b"".join(values.numpy().tobytes() for values in found)).hexdigest()[:8]


def complaints(golden, computed, tolerance=TOLERANCE):
    """List what is wrong between the golden values and those just computed, a sentence each."""
    found = []
    for row in sorted(golden.keys() | computed.keys()):
        name = f"{', '.join(filter(None, row[:3]))}, alpha {row[3]:g}, {row[4]}"
        if row not in golden:
            found.append(f"{name}: not in golden.csv; {HOW.format(row[0])}")
        elif row not in computed:
            found.append(f"{name}: in golden.csv, but no longer computed; {HOW.format(row[0])}")
        else:
            (old_revision, old), (revision, value) = golden[row], computed[row]
            scale = abs(old) if row[4] == "chs" else 1
            same = (math.isnan(old) and math.isnan(value)) or abs(value - old) <= tolerance * scale
            if old_revision != revision:
                found.append(
                    f"{name}: golden.csv is of revision {old_revision}, the code of {revision}:"
                    " regenerate with `python tests/experiments/test_golden.py`"
                )
            elif not same:
                found.append(
                    f"{name}: moved from {old:.6g} to {value:.6g} within revision {revision}; if"
                    f" that is meant, {HOW.format(row[0])}"
                )
    return found


def regenerate(path, computed):
    """Write golden values, unless one has moved while its revision has not: then return the
    complaints and leave the file.
    """
    golden = read_golden(path) if path.exists() else {}
    both = golden.keys() & computed.keys()
    moved = [row for row in both if golden[row][0] == computed[row][0]]
    refused = complaints({row: golden[row] for row in moved}, {row: computed[row] for row in moved})
    if not refused:
        with path.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(
                [*row[:3], f"{row[3]:g}", row[4], revision, value]
                for row, (revision, value) in computed.items()
            )
    return refused


@pytest.fixture(scope="module")
def nothing_trained_before(packages, tmp_path_factory):
    """A cache of these tests alone: a stage that older code trained would give its old values."""
    with pytest.MonkeyPatch.context() as patch:
        yield conftest.empty_but_for(packages, tmp_path_factory.mktemp("golden") / "cache", patch)


@pytest.mark.parametrize(
    "experiment",
    [
        # Other recipes of ClusterBERT, and what else its stages are used for.
        pytest.param(
            name, marks=[pytest.mark.slow] * (name in ("clusterbert-ablation", "retrieval"))
        )
        for name in EXPERIMENTS
        if name != "tsne"
    ],
)
def test_tiny_runs_give_the_golden_values_or_the_experiment_has_a_new_revision(
    nothing_trained_before, experiment
):
    if data.locate(dataset(experiment)) is None and dataset(experiment) == "mnist":
        pytest.skip("MNIST is not on this machine")
    left_out = (
        SENSITIVE.get(experiment, frozenset())
        if (here := arithmetic()) != ARITHMETIC
        else frozenset()
    )
    golden = {
        row: value
        for row, value in read_golden().items()
        if row[0] == experiment and row[1] not in left_out
    }
    assert golden or left_out, (
        f"golden.csv has no row of {experiment}: regenerate with `python"
        " tests/experiments/test_golden.py`"
    )
    if here != ARITHMETIC:
        warnings.warn(
            f"golden.csv was written with another arithmetic ({ARITHMETIC}, here {here}): values"
            f" are compared to {ELSEWHERE}",
            stacklevel=1,
        )
    wrong = complaints(
        golden, compute(experiment, left_out), TOLERANCE if here == ARITHMETIC else ELSEWHERE
    )
    assert not wrong, "\n".join(wrong)


def test_golden_values_are_of_existing_experiments_and_what_has_none_exists_too():
    assert {row[0] for row in read_golden()} == set(EXPERIMENTS) - {"tsne"}
    for experiment, names in UNSTEADY.items():
        found = specs(experiment, "tiny", dataset(experiment), 42)
        assert names <= {
            name for spec in found for name in (spec.model, spec.get("reading"), spec.embedding)
        }


# ---------------------------------------------------------------- the comparison itself, on
# invented values

ROW, CHS = ("clustering", "ae", "", 0.0, "acc"), ("clustering", "ae", "", 0.0, "chs")


@pytest.mark.parametrize(
    ("golden", "computed"),
    [
        ({ROW: (1, 0.5)}, {ROW: (1, 0.50009)}),
        ({ROW: (1, 0.5)}, {ROW: (1, 0.49991)}),
        ({CHS: (1, 1000.0)}, {CHS: (1, 1000.09)}),
        ({ROW: (1, math.nan)}, {ROW: (1, math.nan)}),
    ],
)
def test_values_within_the_tolerance_are_the_same(golden, computed):
    assert complaints(golden, computed) == []


@pytest.mark.parametrize(
    ("golden", "computed", "said"),
    [
        (
            {ROW: (1, 0.5)},
            {ROW: (1, 0.5002)},
            (
                "moved from 0.5 to 0.5002 within revision 1; if that is meant, raise the revision"
                " of 'clustering'"
            ),
        ),
        ({ROW: (1, 0.5)}, {ROW: (1, 0.4998)}, "moved from 0.5 to 0.4998"),
        ({CHS: (1, 1000.0)}, {CHS: (1, 1000.2)}, "moved from 1000 to 1000.2"),
        ({CHS: (1, 0.01)}, {CHS: (1, 0.01009)}, "moved from 0.01"),
        ({ROW: (1, 0.5)}, {ROW: (1, math.nan)}, "moved from 0.5 to nan"),
        ({ROW: (1, math.nan)}, {ROW: (1, 0.5)}, "moved from nan to 0.5"),
        (
            {ROW: (1, 0.5)},
            {ROW: (2, 0.5)},
            (
                "golden.csv is of revision 1, the code of 2: regenerate with `python"
                " tests/experiments/test_golden.py`"
            ),
        ),
        (
            {ROW: (2, 0.5)},
            {ROW: (1, 0.5)},
            "golden.csv is of revision 2, the code of 1: regenerate",
        ),
        ({}, {ROW: (1, 0.5)}, "not in golden.csv; raise the revision of 'clustering'"),
        (
            {ROW: (1, 0.5)},
            {},
            "in golden.csv, but no longer computed; raise the revision of 'clustering'",
        ),
    ],
)
def test_a_moved_value_another_revision_and_a_missing_row_are_told_with_what_to_do(
    golden, computed, said
):
    (sentence,) = complaints(golden, computed)
    assert said in sentence and "python tests/experiments/test_golden.py" in sentence


@pytest.mark.parametrize(
    ("value", "same"), [(0.549, True), (0.451, True), (0.551, False), (math.nan, False)]
)
def test_with_another_arithmetic_values_are_compared_to_a_coarser_tolerance(value, same):
    assert (complaints({ROW: (1, 0.5)}, {ROW: (1, value)}, ELSEWHERE) == []) == same
    assert complaints({ROW: (1, 0.5)}, {ROW: (2, 0.5)}, ELSEWHERE), "the revision counts everywhere"


def test_an_arithmetic_is_named_the_same_each_time_and_by_its_last_bits(monkeypatch):
    here, normalize = arithmetic(), torch.nn.functional.normalize
    assert arithmetic() == here
    monkeypatch.setattr(
        torch.nn.functional, "normalize", lambda x: normalize(x.double()).float()
    )  # rounded in another place
    assert arithmetic() != here


def test_the_script_writes_what_the_test_reads_and_refuses_a_value_that_moved_within_a_revision(
    tmp_path,
):
    path = tmp_path / "golden.csv"
    assert regenerate(path, {ROW: (1, 0.1 + 0.2), CHS: (1, math.nan)}) == []
    assert complaints(read_golden(path), {ROW: (1, 0.1 + 0.2), CHS: (1, math.nan)}) == []
    before = path.read_text()
    assert regenerate(path, {ROW: (1, 0.4), CHS: (1, math.nan)}), (
        "the revision is what must move first"
    )
    assert path.read_text() == before
    assert regenerate(path, {ROW: (2, 0.4), CHS: (2, math.nan)}) == []
    assert read_golden(path)[ROW] == (2, 0.4)


if __name__ == "__main__":
    sys.exit(
        "\n".join(
            regenerate(
                GOLDEN, {row: value for name in EXPERIMENTS for row, value in compute(name).items()}
            )
        )
        or None
    )
