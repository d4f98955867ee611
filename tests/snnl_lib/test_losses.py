"""The soft nearest neighbor loss against Eq. 4 in 150-digit arithmetic, its properties and its
edges.
"""

import decimal
import functools
import math
import warnings
import weakref
from decimal import Decimal
from itertools import pairwise, product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from snnl_lib import _pairs
from snnl_lib.losses import (
    SoftNearestNeighborLoss,
    annealed_temperature,
    composite_loss,
    reference_loss,
    soft_nearest_neighbor_loss,
    supervised_contrastive_loss,
)

torch.set_num_threads(1)
ALONE = "more than half of the anchors have no classmate"
pytestmark = pytest.mark.filterwarnings(f"ignore:{ALONE}")  # tested below

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
DISTANCES = ["cosine", "sqeuclidean"]
REDUCTIONS = ["mean", "sum", "none"]
TEMPERATURES = [0.02, 0.3]  # terms of cosines are scaled below 0.025
by_distance = pytest.mark.parametrize("distance", DISTANCES)

LABELS = [0, 0, 1, 1, 1, 2, 0]  # class 2 occurs once: an anchor without a classmate
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4}
HALVES = [torch.float16, torch.bfloat16]


@pytest.fixture
def random():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def batch(random):
    return torch.randn(7, 3, generator=random), torch.tensor(LABELS)


def value_and_gradients(
    features,
    labels,
    temperature,
    *,
    references=None,
    pull=None,
    function=soft_nearest_neighbor_loss,
    **options,
):
    """Return a loss and its gradients by the features, the temperature and the references.

    A temperature that is a number and one that is a tensor take different ways through the code;
    the gradient by the features is the sum over both. ``pull`` weights the losses.
    """
    inputs = [
        features.clone().requires_grad_(),
        torch.tensor(temperature, dtype=features.dtype, requires_grad=True),
    ]
    if references is not None:
        inputs.append(references.clone().requires_grad_())
        options["references"] = inputs[2]
    learned = function(inputs[0], labels, inputs[1], **options)
    fixed = function(inputs[0], labels, temperature, **options)
    torch.testing.assert_close(fixed, learned)
    pull = torch.ones_like(learned) if pull is None else pull
    gradients = torch.autograd.grad(((learned + fixed) * pull).sum(), inputs)
    return [learned.detach(), *gradients]


def assert_near(actual, expected, tolerance):
    """Compare relative to each value; entries of a gradient may be off by the tolerance times its
    largest entry.
    """
    expected = torch.as_tensor(expected, dtype=torch.float64)
    slack = tolerance * expected.abs().max().item() if expected.ndim else 0
    actual = actual.detach().double().cpu()
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=slack)


def assert_all_near(actual, expected, tolerance=1e-9):
    for each, wanted in zip(actual, expected, strict=True):
        assert each.shape == wanted.shape
        assert_near(each, wanted, tolerance)


# ---------------------------------------------------------------- the oracle: Eq. 4 in decimals


def decimal_distance(a, b, distance):
    if distance == "sqeuclidean":
        return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))
    norms = sum(x * x for x in a).sqrt() * sum(y * y for y in b).sqrt()
    return 1 - sum(x * y for x, y in zip(a, b, strict=True)) / norms if norms else Decimal(1)


def decimal_losses(rows, labels, temperature, distance):
    """Eq. 4 anchor by anchor, None where no other row has the anchor's class."""
    losses = []
    for i, anchor in enumerate(rows):
        same, everyone = Decimal(0), Decimal(0)
        for k, neighbour in enumerate(rows):
            if k != i:
                weight = (-decimal_distance(anchor, neighbour, distance) / temperature).exp()
                everyone += weight
                same += weight if labels[k] == labels[i] else 0
        losses.append(-(same / everyone).ln() if same else None)
    return losses


def oracle(features, labels, temperature, distance):
    """Return the losses (nan without a classmate), their mean, and the gradient of the mean by
    central differences.

    150 digits and steps of 1e-30 make every digit of a float64 exact: no stable rearrangement of
    Eq. 4 is needed, and a loss of 1e-80 still has its full precision.
    """
    labels = labels.tolist()
    with decimal.localcontext(prec=150):
        rows = [[Decimal(x) for x in row] for row in features.detach().double().tolist()]
        temperature, step = Decimal(temperature), Decimal("1e-30")

        def mean(shifted):
            losses = decimal_losses(shifted, labels, temperature, distance)
            kept = [loss for loss in losses if loss is not None]
            return sum(kept) / len(kept)

        gradient = torch.zeros(features.shape, dtype=torch.float64)
        for i, row in enumerate(rows):
            for j, x in enumerate(row):
                above, below = (
                    [*rows[:i], [*row[:j], x + h, *row[j + 1 :]], *rows[i + 1 :]]
                    for h in (step, -step)
                )
                gradient[i, j] = float((mean(above) - mean(below)) / (2 * step))
        losses = decimal_losses(rows, labels, temperature, distance)
        losses = [math.nan if loss is None else float(loss) for loss in losses]
        return torch.tensor(losses, dtype=torch.float64), float(mean(rows)), gradient


POINTS = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))


@functools.cache
def oracle_of_points(temperature, distance, scale):
    return oracle(scale * POINTS, torch.tensor(LABELS), temperature, distance)


# Ten times as far apart, all weights underflow to 0; only their ratio is an ordinary number.
@pytest.mark.parametrize(
    ("distance", "temperature", "scale"),
    [*product(DISTANCES, [0.01, 0.1, 1.0, 100], [1]), ("sqeuclidean", 0.01, 10)],
)
def test_value_and_gradient_are_those_of_equation_4_by_a_double_loop(distance, temperature, scale):
    losses, mean, gradient = oracle_of_points(temperature, distance, scale)
    assert mean < 1000 or scale == 10
    for dtype, device in product(TOLERANCE, DEVICES):
        labels = torch.tensor(LABELS, device=device)
        for function in (soft_nearest_neighbor_loss, reference_loss):
            features = (scale * POINTS).to(device, dtype).requires_grad_()
            value = function(features, labels, temperature, distance=distance)
            value.backward()
            assert value.dtype == features.grad.dtype == dtype
            assert_near(value, mean, TOLERANCE[dtype])
            assert_near(features.grad, gradient, TOLERANCE[dtype])
        each, total = (
            soft_nearest_neighbor_loss(
                features.detach(), labels, temperature, distance=distance, reduction=reduction
            )
            for reduction in ("none", "sum")
        )
        # Anchor by anchor, so that a mistake in a small loss does not hide behind a large one.
        # Below 1e-37 float32 has no digits. An anchor without a classmate counts in no mean.
        each, tolerance = each.cpu().double(), TOLERANCE[dtype]
        np.testing.assert_allclose(each, losses.nan_to_num(0), rtol=tolerance, atol=1e-37)
        assert_near(total, mean * 6, tolerance)


@pytest.mark.parametrize("temperature", [0.01, 0.03])
@pytest.mark.parametrize(
    ("distance", "centre"), [("cosine", 0.0), ("sqeuclidean", 0.0), ("sqeuclidean", 1000.0)]
)
def test_tiny_losses_of_tight_clusters_are_right_to_a_thousandth_in_float32(
    distance, centre, temperature, random
):
    # Four points 0.0005 apart around each of two centres, for squared distances also far from the
    # origin, where |x|² + |y|² - 2xy leaves no digit. The oracle gets the float32 rows, so rounding
    # the input is no excuse.
    centres = torch.tensor([[1.0, 0.0, 0.0], [0.4, 0.5, 0.0]]) + centre
    features = centres.repeat_interleave(4, 0) + 5e-4 * torch.randn(8, 3, generator=random)
    features.requires_grad_()
    labels = torch.arange(8) // 4
    losses, _, gradient = oracle(features, labels, temperature, distance)
    assert losses.max() < (1e-15 if temperature == 0.01 else 1e-4)

    options = {"distance": distance, "reduction": "none"}
    each = soft_nearest_neighbor_loss(features, labels, temperature, **options)
    each.mean().backward()
    np.testing.assert_allclose(each.detach().double(), losses, rtol=1e-3)
    assert_near(features.grad, gradient, 1e-3)


def scattered(scale, offset):
    rows = scale * torch.randn(200, 128, generator=torch.Generator().manual_seed(0)) + offset
    rows[100:120] = rows[:20]  # duplicates
    return rows, torch.arange(200) % 7, 100 * scale**2


def tiny_clusters(apart):
    rows = 1e-6 * torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    rows[:, 0] = apart * (torch.arange(60) % 3)
    return rows, torch.arange(60) // 3 % 2, 1e-12


@pytest.mark.parametrize(
    ("points", "tolerance"),
    [
        *((scattered(1.0, offset), 1e-5) for offset in (0.0, 1e3, 1e6)),
        *((scattered(*each), 1e-5) for each in ((1e-6, 0.0), (1e-6, 1.0), (1e6, 0.0))),
        *((tiny_clusters(apart), 1e-3) for apart in (1e3, 1e6)),
    ],
)
def test_squared_distances_in_float32_lose_nothing_far_from_the_origin(points, tolerance):
    rows, labels, temperature = points
    found, expected = (
        value_and_gradients(x, labels, temperature, function=function, distance="sqeuclidean")
        for x, function in ((rows, soft_nearest_neighbor_loss), (rows.double(), reference_loss))
    )
    for each, wanted in zip(found, expected, strict=True):
        assert_near(each, wanted, tolerance)


@pytest.mark.parametrize("temperature", [0.024, 0.026])  # on either side of 2 / T = 80
def test_gradient_is_right_where_class_mates_lie_opposite_and_other_classes_beside(temperature):
    features = torch.tensor([[1.0, 0.0], [-1.0, 0.1], [1.0, 0.1], [-1.0, 0.0]], requires_grad=True)
    labels = torch.tensor([0, 0, 1, 1])
    _, mean, gradient = oracle(features, labels, temperature, "cosine")
    value = soft_nearest_neighbor_loss(features, labels, temperature)
    value.backward()
    assert mean > 70  # the weight of the own class is e^-70 of the other's
    assert_near(value, mean, 2e-4)
    assert_near(features.grad, gradient, 1e-3)


# ---------------------------------------------------------------- values worked out on paper

LOG2, LOG1E = math.log(2), math.log1p(math.e)


@pytest.mark.parametrize(
    ("distance", "points", "labels", "expected"),
    [
        # Unit vectors at 0, 90 and 180 degrees.
        ("cosine", [[1, 0], [0, 1], [-1, 0]], [0, 1, 0], [LOG1E, 0, LOG1E]),
        # A row of zeros has distance 1 to everything, and still counts.
        ("cosine", [[0, 0], [1, 0], [1, 0]], [0, 0, 1], [LOG2, LOG1E, 0]),
        ("sqeuclidean", [[0], [1], [1]], [0, 1, 0], [LOG2, 0, LOG1E]),
        # All weights underflow, but the middle point has its mate 0.75 units² farther away.
        ("sqeuclidean", [[0], [100], [150]], [0, 0, 1], [0, 7500, 0]),
        ("sqeuclidean", [[0], [1e20], [1.5e20]], [0, 0, 1], [0, 7.5e39, 0]),
        # A class 100 temperatures nearer than the other has a loss of e^-100.
        ("sqeuclidean", [[0], [0], [10]], [0, 0, 1], [math.exp(-100)] * 2 + [0]),
    ],
)
def test_losses_of_a_few_points_are_those_worked_out_on_paper(distance, points, labels, expected):
    points, options = torch.tensor(points, dtype=torch.float64), {"reduction": "none"}
    each = soft_nearest_neighbor_loss(points, torch.tensor(labels), distance=distance, **options)
    assert each.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-60)


def test_squared_distances_are_right_up_to_a_quarter_of_the_largest_float32_and_finite_above():
    options = {"distance": "sqeuclidean", "reduction": "none"}
    points = torch.tensor([[0.0], [9e18], [0.0]])
    assert 0.2 < 9e18**2 / torch.finfo(torch.float32).max < 0.25
    each = soft_nearest_neighbor_loss(points, torch.tensor([0, 0, 1]), **options)
    assert each[0].item() == pytest.approx(9e18**2, rel=1e-6)
    points = torch.tensor([[0.0], [1e20], [-1e20]])  # overflowing distances count as the same
    each = soft_nearest_neighbor_loss(points, torch.tensor([0, 0, 1]), **options)
    assert each[0].item() == pytest.approx(LOG2)
    for scale in (1e-4, 1.0, 1e10):
        each = soft_nearest_neighbor_loss(points * scale, torch.tensor([0, 0, 0]), **options)
        assert not each.any()


@pytest.mark.parametrize("offset", [2**24, -(2**24) - 1, 2**40, -(2**63)])
def test_labels_that_float32_cannot_tell_apart_are_different_classes(offset):
    # Vectors at right angles, all at distance 1: a class of two has one neighbour of three.
    labels = torch.tensor([0, 0, offset, offset + 1])
    each = soft_nearest_neighbor_loss(torch.eye(4), labels, reduction="none")
    assert each.tolist() == pytest.approx([math.log(3), math.log(3), 0, 0], rel=1e-6)


def test_labels_may_be_integers_of_every_size_and_bools():
    unsigned = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]
    for dtype in (torch.bool, *unsigned, torch.int8, torch.int16, torch.int32, torch.int64):
        labels = torch.tensor([1, 1, 0, 0, 0]).to(dtype)
        each = soft_nearest_neighbor_loss(torch.eye(5), labels, reduction="none")
        assert each.tolist() == pytest.approx([math.log(4)] * 2 + [LOG2] * 3, rel=1e-6)


# ---------------------------------------------------------------- gradients, and second opinions


@by_distance
def test_gradients_pass_gradcheck(distance, random):
    features = torch.randn(2, 5, 3, generator=random, dtype=torch.float64, requires_grad=True)
    temperature = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[0, 1, 0, 1, 2], [0, 0, 1, 1, 1]])
    for reduction, chunk_size in product(REDUCTIONS, (None, 3)):
        options = {"distance": distance, "reduction": reduction, "chunk_size": chunk_size}
        loss = functools.partial(soft_nearest_neighbor_loss, **options)
        assert torch.autograd.gradcheck(
            lambda x, t, loss=loss: loss(x, labels, t), (features, temperature)
        )
        assert torch.autograd.gradcheck(
            lambda t, loss=loss: loss(features.detach(), labels, t), temperature
        )
    assert torch.autograd.gradgradcheck(
        lambda x, t: reference_loss(x, labels, t, distance=distance), (features, temperature)
    )


@by_distance
def test_the_loss_and_its_gradients_are_those_of_the_reference(distance, random):
    features = torch.randn(2, 3, 40, 5, generator=random, dtype=torch.float64).relu()
    features[0, 0, 0] = 0  # a row that a ReLU has emptied
    labels = torch.randint(0, 5, (2, 3, 40), generator=random)
    labels[1, 1] = torch.arange(40)  # a batch without classmates
    labels[1, 2, 0] = 99  # one row without
    for temperature, dtype in product(TEMPERATURES, TOLERANCE):
        arguments = features.to(dtype), labels, temperature
        options = {"distance": distance, "pull": torch.arange(1.0, 7).reshape(2, 3).to(dtype)}
        expected = value_and_gradients(*arguments, function=reference_loss, **options)
        for chunk_size in (None, 7):
            found = value_and_gradients(*arguments, chunk_size=chunk_size, **options)
            assert found[0].dtype == dtype
            assert_all_near(found, expected, TOLERANCE[dtype])


@by_distance
def test_the_reference_runs_under_the_transforms_of_torch_func(distance, random):
    features = torch.randn(3, 7, 2, generator=random, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([LABELS, LABELS[::-1], [0] * 7])

    def loss(x, y):
        return reference_loss(x, y, 0.3, distance=distance)

    values = torch.vmap(loss)(features, labels)
    expected_values = soft_nearest_neighbor_loss(features, labels, 0.3, distance=distance)
    torch.testing.assert_close(values, expected_values)
    (expected,) = torch.autograd.grad(values.sum(), features)
    torch.testing.assert_close(torch.vmap(torch.func.grad(loss))(features, labels), expected)
    jacobian = torch.func.jacrev(loss)(features, labels)  # [3, 3, 7, 2]: no batch sees another
    torch.testing.assert_close(torch.stack([jacobian[i, i] for i in range(3)]), expected)
    torch.testing.assert_close(jacobian.sum(dim=0), expected)


def test_inside_a_transform_of_torch_func_the_loss_names_what_to_use_instead(random):
    features, labels = torch.randn(3, 7, 2, generator=random), torch.tensor([LABELS] * 3)
    module = SoftNearestNeighborLoss("learnable")
    for transformed in (
        lambda: torch.func.grad(soft_nearest_neighbor_loss)(features[0], labels[0]),
        lambda: torch.func.jacfwd(soft_nearest_neighbor_loss)(features[0], labels[0]),
        lambda: torch.vmap(module)(features, labels),
    ):
        with pytest.raises(RuntimeError, match=r"reference_loss .*leading axes"):
            transformed()


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_differentiating_the_gradient_is_refused_and_not_ignored(reduction, batch):
    features = batch[0].requires_grad_()
    loss = soft_nearest_neighbor_loss(features, batch[1], reduction=reduction).sum()
    with pytest.raises(RuntimeError, match="use reference_loss instead"):
        torch.autograd.grad(loss, features, create_graph=True)


# ---------------------------------------------------------------- properties

# The same examples on every run, and no verdict on speed: a busy machine must not fail the suite.
PROPERTY = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
temperatures = st.sampled_from([0.01, 0.1, 1.0, 100.0])
distances = st.sampled_from(DISTANCES)


@st.composite
def batches(draw):
    rows, columns = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    numbers = st.floats(-10, 10, width=32, allow_subnormal=False)
    features = draw(arrays(np.float64, (rows, columns), elements=numbers))
    labels = draw(arrays(np.int64, rows, elements=st.integers(0, 3)))
    return torch.from_numpy(features), torch.from_numpy(labels)


def each_loss(features, labels, temperature, distance):
    options = {"distance": distance, "reduction": "none"}
    return soft_nearest_neighbor_loss(features, labels, temperature, **options)


@PROPERTY
@given(batches(), temperatures, st.lists(st.floats(1e-6, 1e6), min_size=8, max_size=8))
def test_cosine_distance_ignores_the_length_of_each_row(batch, temperature, scales):
    features, labels = batch
    scaled = features * torch.tensor(scales[: len(labels)], dtype=torch.float64)[:, None]
    before = each_loss(features, labels, temperature, "cosine")
    after = each_loss(scaled, labels, temperature, "cosine")
    torch.testing.assert_close(after, before, rtol=1e-9, atol=1e-11)


def test_cosine_distance_ignores_the_length_of_rows_along_an_axis_too():
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    for scales in ([1e-3] * 3, [-1e-3] * 3, [1e30, 1e-30, 1e30], [-1e30, -1e-30, -1e30]):
        each = each_loss(rows * torch.tensor(scales)[:, None], torch.tensor([0, 0, 1]), 1, "cosine")
        assert each.tolist() == pytest.approx([math.log1p(1 / math.e)] * 2 + [0], rel=1e-6)


@pytest.mark.parametrize("loss", [reference_loss, supervised_contrastive_loss])
def test_losses_written_in_torch_ignore_the_length_of_rows_and_keep_the_gradient_of_zeros_small(
    loss, batch
):
    features, labels = batch
    expected = loss(features, labels, 0.5)
    for scale in (1e-35, 1e-20, 1e-13, 1e20, 1e35):
        scales = torch.tensor([scale, 1.0] * 4)[:7, None]
        torch.testing.assert_close(loss(features * scales, labels, 0.5), expected)
    features[0] = 0
    loss(features.requires_grad_(), labels, 0.5).backward()
    assert features.grad.abs().max() < 10


def test_squared_distance_ignores_the_origin_to_the_last_bit_where_sums_are_exact(random):
    for count in (8, 40):  # libraries change their formula for distances as points become many
        near = torch.randint(0, 9, (count, 3), generator=random) / 1024
        arguments = torch.arange(count) % 3, 1e-5
        found = [
            value_and_gradients(points, *arguments, distance="sqeuclidean")[:2]
            for points in (near, near + 1024)
        ]
        assert all(torch.equal(here, there) for here, there in zip(*found, strict=True))


@PROPERTY
@given(batches(), temperatures, distances, st.integers(1, 9), st.sampled_from(REDUCTIONS))
def test_chunks_of_any_size_give_the_value_and_gradient_of_the_whole(
    batch, temperature, distance, chunk_size, reduction
):
    options = {"distance": distance, "reduction": reduction}
    whole = value_and_gradients(*batch, temperature, **options)
    chunked = value_and_gradients(*batch, temperature, chunk_size=chunk_size, **options)
    for found, expected in zip(chunked, whole, strict=True):
        slack = 1e-9 * max(1, expected.abs().max().item())
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=slack)


# ---------------------------------------------------------------- edges

ANGLES = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-0.8, 0.6]]
LOG3 = math.log(3)  # one of three equally near neighbours has the class
EDGES = {  # rows, labels, and the value where it is the same for both distances
    "two of one class": ([[1.0, 2.0], [2.0, 1.0]], [0, 0], 0),
    "one class": (ANGLES, [3, 3, 3, 3], 0),
    "one pair beside singletons": (ANGLES, [0, 1, 0, 2], None),
    "identical rows": ([[0.3, -0.7]] * 4, [0, 0, 1, 1], LOG3),
    "rows of zeros only": ([[0.0, 0.0]] * 4, [0, 0, 1, 1], LOG3),
    "one row of zeros": ([[0.0, 0.0], *ANGLES[1:]], [0, 0, 1, 1], None),
    "opposite rows of a class": ([[1.0, 0.0], [-1.0, 0.0]] * 2, [0, 0, 1, 1], None),
    "tight clusters": ([[1.0, 0.0], [1.0, 1e-6], [0.0, 1.0], [1e-6, 1.0]], [0, 0, 1, 1], None),
    "tiny rows": ([[1e-20, 0], [0, 1e-20], [1e-20, 1e-20], [-1e-20, 0]], [0, 0, 1, 1], None),
}


@pytest.mark.parametrize("edge", EDGES)
def test_value_and_gradients_are_finite_in_float32_on(edge):
    rows, labels, expected = EDGES[edge]
    features, labels = torch.tensor(rows), torch.tensor(labels)
    for distance, temperature, chunk_size in product(DISTANCES, (0.01, 1.0, 100.0), (None, 3)):
        options = {"distance": distance, "chunk_size": chunk_size}
        found = value_and_gradients(features, labels, temperature, **options)
        assert all(part.isfinite().all() for part in found) and found[0] >= 0
        if expected is not None:
            assert found[0].item() == pytest.approx(expected, rel=1e-5, abs=1e-30)


@pytest.mark.parametrize("labels", [[4], [0, 1, 2, 3], [-1] * 4], ids=str)
def test_a_batch_without_class_mates_gives_0_and_a_zero_gradient_through_the_graph(labels, random):
    features, labels = torch.randn(len(labels), 3, generator=random), torch.tensor(labels)
    bank = {"references": torch.randn(2, 3, generator=random)}
    bank["reference_labels"] = torch.tensor([-1, 9])
    for temperature, distance, reduction in product(TEMPERATURES, DISTANCES, REDUCTIONS):
        options = {"distance": distance, "reduction": reduction, "ignore_index": -1}
        for more in ({}, {"chunk_size": 2}, bank):
            for result in value_and_gradients(features, labels, temperature, **options, **more):
                assert torch.equal(result, torch.zeros_like(result))


# ---------------------------------------------------------------- reductions, axes, chunks


@pytest.mark.parametrize(
    ("at_once", "chunk_size", "expected"),
    [(40, None, [2, 2, 2, 1]), (1, None, [1] * 7), (10**9, None, [7]), (40, 3, [3, 3, 1])],
)
@by_distance
def test_a_chunk_has_as_many_anchors_as_the_memory_holds_or_as_the_caller_says(
    distance, at_once, chunk_size, expected, monkeypatch, random
):
    assert _pairs.PAIRS_AT_ONCE * 4 == 2**28  # bytes in float32: a quarter of a gigabyte
    chunks, logits = [], _pairs._logits

    def watched(points, chunk_start, chunk_end, *others):
        chunks.append(chunk_end - chunk_start)
        return logits(points, chunk_start, chunk_end, *others)

    monkeypatch.setattr(_pairs, "_logits", watched)
    # A chunk has an eighth of the pairs for squared distances, which also need a float64 table.
    monkeypatch.setattr(_pairs, "PAIRS_AT_ONCE", at_once * (1 if distance == "cosine" else 8))
    features = torch.randn(2, 7, 3, generator=random)  # 14 pairs of an anchor in both batches
    labels = torch.tensor([LABELS, LABELS])
    options = {"distance": distance} | ({"chunk_size": chunk_size} if chunk_size else {})
    soft_nearest_neighbor_loss(features, labels, **options)
    assert chunks == expected
    SoftNearestNeighborLoss(**options)(features, labels)
    assert chunks == 2 * expected
    options |= {"alpha": 1, "temperature": 1.0}
    composite_loss(torch.zeros(2), {"a": features}, labels, **options)
    assert chunks == 3 * expected


@pytest.mark.parametrize(
    ("cached", "tile", "at_once"), [(30, 3, 2**26), (1, 1, 2**26), (25, 2, 40)]
)
def test_however_the_table_is_cut_up_value_and_gradients_are_the_same(
    cached, tile, at_once, monkeypatch, random
):
    features = torch.randn(2, 7, 3, generator=random, dtype=torch.float64)
    labels = torch.tensor([LABELS, LABELS[::-1]])

    def results():
        for temperature, distance, reduction in product((0.5, 0.01), DISTANCES, ("mean", "none")):
            pull = torch.arange(1.0, 15).reshape(2, 7).double()
            options = {"distance": distance, "reduction": reduction}
            options["pull"] = pull if reduction == "none" else pull[:, 0]
            yield from value_and_gradients(features, labels, temperature, **options)

    expected = list(results())
    for name, value in (("CACHED_PAIRS", cached), ("TILE", tile), ("PAIRS_AT_ONCE", at_once)):
        monkeypatch.setattr(_pairs, name, value)
    assert_all_near(list(results()), expected, 1e-10)


def test_a_gradient_is_computed_once_and_only_where_one_is_needed(monkeypatch, batch):
    calls, gradient = [], _pairs._point_gradient

    def watched(*arguments):
        calls.append(1)
        return gradient(*arguments)

    monkeypatch.setattr(_pairs, "_point_gradient", watched)
    for reduction, in_forward in (("mean", 1), ("sum", 1), ("none", 0)):
        calls.clear()
        soft_nearest_neighbor_loss(*batch, reduction=reduction)
        assert not calls
        features = batch[0].clone().requires_grad_()
        loss = soft_nearest_neighbor_loss(features, batch[1], reduction=reduction)
        assert len(calls) == in_forward
        loss.sum().backward()
        assert len(calls) == 1


class Alive(TorchDispatchMode):
    """Counts the numbers in all tensors that are alive at once, of those made under it."""

    def __init__(self):
        super().__init__()
        self.made, self.most = [], 0

    def now(self):
        return sum(tensor.numel() for made in self.made if (tensor := made()) is not None)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.made += [
            weakref.ref(tensor)
            for tensor in tree_leaves(result)
            if isinstance(tensor, torch.Tensor) and tensor._base is None
        ]
        self.most = max(self.most, self.now())
        return result


def test_no_table_of_all_pairs_waits_for_the_backward_pass_and_chunks_never_hold_one(random):
    rows = 512
    features = torch.randn(rows, 2, generator=random, requires_grad=True)
    labels = torch.arange(rows) % 4
    for distance, reduction, chunk_size in product(DISTANCES, ("mean", "none"), (None, 8)):
        options = {"distance": distance, "reduction": reduction, "chunk_size": chunk_size}
        with Alive() as alive:
            loss = soft_nearest_neighbor_loss(features, labels, **options)
            between = alive.now()
            loss.sum().backward()
        assert between < rows * rows / 2
        # A whole table shows in the count, so that the count would see one in chunks.
        assert alive.most < rows * rows / 2 if chunk_size else alive.most > rows * rows


# ---------------------------------------------------------------- references


@by_distance
def test_references_are_neighbours_with_a_gradient_and_without_a_loss_of_their_own(
    distance, random
):
    points = torch.randn(2, 11, 3, generator=random, dtype=torch.float64)
    labels = torch.tensor([[*LABELS, 0, 2, 1, 1]] * 2)
    anchors = torch.zeros(2, 11, dtype=torch.float64)
    anchors[:, :7] = 1
    options = {"distance": distance, "reduction": "none"}
    losses, by_points, by_temperature = value_and_gradients(
        points, labels, 0.3, pull=anchors, **options
    )
    expected = losses[:, :7], by_points[:, :7], by_temperature, by_points[:, 7:]
    for reduction, chunk_size in product(("none", "sum"), (None, 3)):
        options = {"distance": distance, "reduction": reduction, "chunk_size": chunk_size}
        found = value_and_gradients(
            points[:, :7],
            labels[:, :7],
            0.3,
            references=points[:, 7:],
            reference_labels=labels[:, 7:],
            **options,
        )
        total = expected[0] if reduction == "none" else expected[0].sum(-1)
        assert_all_near(found, [total, *expected[1:]])


def test_an_empty_memory_bank_changes_nothing_and_a_bank_gives_a_lone_anchor_its_mate(batch):
    features, labels = batch
    nothing = {"references": torch.empty(0, 3), "reference_labels": torch.empty(0).long()}
    assert soft_nearest_neighbor_loss(*batch, **nothing) == soft_nearest_neighbor_loss(*batch)
    bank = {"references": features[5:6] + 0.1, "reference_labels": labels[5:6]}
    assert (soft_nearest_neighbor_loss(*batch, reduction="none", **bank) > 0).all()
    # Vectors at right angles: the first has its mate in the bank, and the other class beside it.
    rows, bank_label = torch.eye(3), torch.tensor([0])
    bank = {"references": rows[2:], "reference_labels": bank_label}
    loss = soft_nearest_neighbor_loss(rows[:2], torch.tensor([0, 1]), **bank)
    assert loss.item() == pytest.approx(LOG2, rel=1e-6)  # the mean over the only anchor with a mate


def test_references_of_another_dtype_take_that_of_the_features(batch, random):
    bank = torch.randn(4, 3, generator=random)
    for dtype in (torch.float64, torch.float16):
        found = [
            soft_nearest_neighbor_loss(
                *batch, references=references, reference_labels=torch.tensor([0, 1, 2, 0])
            )
            for references in (bank.to(dtype), bank.to(dtype).float())
        ]
        assert found[0].dtype == torch.float32 and torch.equal(*found)


# ---------------------------------------------------------------- rows without a label

UNKNOWN = [-1, 0, 0, 1, -1, 1, 1, 2, -1, 0]  # three of ten; class 2 occurs once


def spread(rows, where):
    return rows.new_zeros(len(where), *rows.shape[1:]).index_put((where,), rows)


@pytest.mark.parametrize("with_references", [False, True])
@by_distance
def test_ignored_rows_count_as_absent(distance, with_references, random):
    points = torch.randn(10, 3, generator=random, dtype=torch.float64)
    points[4] = math.nan  # no number of an ignored row may matter
    bank, bank_labels = torch.randn(5, 3, generator=random), torch.tensor([2, -1, 0, -1, 3])
    labels = torch.tensor(UNKNOWN)
    kept, bank_kept = labels != -1, bank_labels != -1
    for temperature, reduction, dtype in product(TEMPERATURES, REDUCTIONS, TOLERANCE):
        features, references = points.to(dtype), bank.to(dtype)
        pull = kept.cumsum(0).to(dtype) if reduction == "none" else torch.ones((), dtype=dtype)
        options = {"distance": distance, "reduction": reduction}
        few, many = dict(options), dict(options)
        if with_references:
            few |= {"references": references[bank_kept], "reference_labels": bank_labels[bank_kept]}
            many |= {"references": references, "reference_labels": bank_labels}
        few["pull"] = pull[kept] if reduction == "none" else pull
        expected = value_and_gradients(features[kept], labels[kept], temperature, **few)
        expected[1] = spread(expected[1], kept)
        if reduction == "none":
            expected[0] = spread(expected[0], kept)
        if with_references:
            expected[3] = spread(expected[3], bank_kept)
        many |= {"pull": pull, "ignore_index": -1}
        for chunk_size in (None, 1, 3):
            found = value_and_gradients(
                features, labels, temperature, chunk_size=chunk_size, **many
            )
            assert_all_near(found, expected, TOLERANCE[dtype])
            assert not found[1][~kept].any()


@pytest.mark.parametrize("ignore_index", [None, -1])
@by_distance
def test_leading_axes_equal_a_loop_over_the_batches(distance, ignore_index, random):
    features = torch.randn(2, 2, 10, 3, generator=random, dtype=torch.float64)
    rows = [UNKNOWN, UNKNOWN[::-1], [-1] * 10, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]]
    labels = torch.tensor(rows).reshape(2, 2, 10)
    places = list(product(range(2), range(2)))
    for temperature, reduction, chunk_size in product(TEMPERATURES, REDUCTIONS, (None, 4)):
        pull = torch.rand(2, 2, *[10] * (reduction == "none"), generator=random)
        options = {"distance": distance, "reduction": reduction}
        options |= {"chunk_size": chunk_size, "ignore_index": ignore_index}
        together = value_and_gradients(features, labels, temperature, pull=pull, **options)
        apart = [
            value_and_gradients(features[at], labels[at], temperature, pull=pull[at], **options)
            for at in places
        ]
        losses, by_features, by_temperature = zip(*apart, strict=True)
        for whole, parts in ((together[0], losses), (together[1], by_features)):
            assert_near(whole, torch.stack(parts).reshape(whole.shape), 1e-9)
        assert_near(together[2], sum(by_temperature), 1e-9)


def test_a_label_that_does_not_occur_changes_no_bit_and_minus_1_is_a_class_unless_ignored(batch):
    for temperature in TEMPERATURES:
        plain, ignoring = (
            value_and_gradients(*batch, temperature, ignore_index=index) for index in (None, -1)
        )
        assert all(torch.equal(here, there) for here, there in zip(plain, ignoring, strict=True))
    features, labels = batch
    unknown = torch.where(labels == 1, -1, labels)
    expected = soft_nearest_neighbor_loss(features, labels)
    assert soft_nearest_neighbor_loss(features, unknown) == expected
    assert soft_nearest_neighbor_loss(features, unknown, ignore_index=-1) != expected


def test_the_ignored_label_may_be_any_whole_number_in_the_module_and_composite_loss_too(batch):
    features, labels = batch
    expected = soft_nearest_neighbor_loss(features[labels != 1], labels[labels != 1], 0.3)
    for index in (0, 2**40, -(2**63)):
        names = torch.where(labels == 1, index, labels + 1)
        options = {"ignore_index": np.int64(index)}
        found = soft_nearest_neighbor_loss(features, names, 0.3, **options)
        torch.testing.assert_close(found, expected)
        module = SoftNearestNeighborLoss(0.3, **options)
        torch.testing.assert_close(module(features, names), expected)
        options |= {"alpha": 2, "temperature": 0.3}
        composite = composite_loss(torch.tensor(0.7), {"a": features}, names, **options)
        torch.testing.assert_close(composite, 0.7 + 2 * expected)


# ---------------------------------------------------------------- dtypes, autocast, compile


@by_distance
def test_half_precision_is_computed_in_float32(distance, random):
    # 300 apart: the squared distance would overflow float16, and bfloat16 would lose small terms.
    points, labels = 200 * torch.randn(32, 8, generator=random), torch.arange(32) % 4
    for dtype, function in product(HALVES, (soft_nearest_neighbor_loss, reference_loss)):
        half = points.to(dtype).requires_grad_()
        single = half.detach().float().requires_grad_()
        for temperature in (0.1, 1e-3):
            loss, expected = (
                function(x, labels, temperature, distance=distance) for x in (half, single)
            )
            assert loss.dtype == torch.float32 and loss.isfinite() and loss == expected
            (gradient,) = torch.autograd.grad(loss, half)
            (wanted,) = torch.autograd.grad(expected, single)
            assert torch.equal(gradient, wanted.to(dtype))


def test_a_temperature_tensor_moves_neither_shape_nor_dtype_and_has_its_own_gradient(random):
    features, labels = torch.randn(2, 7, 3, generator=random), torch.tensor([LABELS, LABELS])
    for shape, distance in product([(), (1,), (1, 1, 1)], DISTANCES):
        temperature = torch.full(shape, 0.5, dtype=torch.float64, requires_grad=True)
        loss = soft_nearest_neighbor_loss(features, labels, temperature, distance=distance)
        expected = soft_nearest_neighbor_loss(features, labels, 0.5, distance=distance)
        torch.testing.assert_close(loss, expected)  # compares shape and dtype too
        loss.sum().backward()
        below, above = (
            reference_loss(features.double(), labels, 0.5 + h, distance=distance).sum().item()
            for h in (-1e-5, 1e-5)
        )
        slope = torch.full(shape, (above - below) / 2e-5, dtype=torch.float64)
        torch.testing.assert_close(temperature.grad, slope, rtol=1e-4, atol=0)
    loss = soft_nearest_neighbor_loss(features.double(), labels, torch.tensor(0.5))
    assert loss.dtype == torch.float64


@pytest.mark.parametrize("loss", [reference_loss, supervised_contrastive_loss])
def test_autocast_does_not_change_the_losses_written_in_torch(batch, loss):
    features, labels = batch[:2]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = loss(features, labels, 0.1)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, loss(features, labels, 0.1))


def test_features_may_be_changed_in_place_after_the_loss():
    features = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    hidden = features * 2
    loss = soft_nearest_neighbor_loss(hidden, torch.arange(6) % 2, 0.1)
    (loss + hidden.relu_().sum()).backward()
    assert features.grad.isfinite().all()


def test_autocast_changes_neither_value_nor_gradient(batch):
    for distance, reduction, chunk_size in product(DISTANCES, ("mean", "none"), (None, 3)):
        options = {"distance": distance, "reduction": reduction, "chunk_size": chunk_size}
        plain = value_and_gradients(*batch, 0.05, **options)
        with torch.autocast("cpu", dtype=torch.bfloat16):  # over the backward pass too
            cast = value_and_gradients(*batch, 0.05, **options)
        assert all(torch.equal(here, there) for here, there in zip(plain, cast, strict=True))


def test_a_compiled_loss_does_not_look_at_values(batch):
    compiled = torch.compile(soft_nearest_neighbor_loss, backend="eager", fullgraph=True)
    features, labels = batch
    features[0, 0] = math.nan
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert compiled(features, labels).isnan()
        assert compiled(torch.randn(7, 3), torch.arange(7)) == 0
    assert not [warning for warning in caught if ALONE in str(warning.message)]


def test_on_the_meta_device_it_gives_shapes_without_a_warning():
    features = torch.empty(3, 7, 4, device="meta", requires_grad=True)
    labels = torch.empty(3, 7, dtype=torch.long, device="meta")
    with warnings.catch_warnings(action="error"):
        loss = soft_nearest_neighbor_loss(features, labels, 0.1)
    loss.sum().backward()
    assert loss.is_meta and loss.shape == (3,) and features.grad.shape == features.shape


# ---------------------------------------------------------------- errors

X, Y = torch.ones(4, 2), torch.tensor([0, 0, 1, 1])
HOLED = {value: X.masked_fill(Y[:, None] == 1, value) for value in (math.nan, math.inf, -math.inf)}


@pytest.mark.parametrize("function", [soft_nearest_neighbor_loss, reference_loss])
def test_rows_that_are_no_features_with_labels_are_refused(function):
    for features, labels, error, named in (
        (X.tolist(), Y, TypeError, "features .*list"),
        (X.numpy(), Y, TypeError, "features .*ndarray"),
        (X.long(), Y, TypeError, "features .*int64"),
        (X.to(torch.complex64), Y, TypeError, "features .*complex64"),
        (X, Y.tolist(), TypeError, r"labels .*list.* torch\.as_tensor"),
        (X, Y.float(), TypeError, r"labels .*float32.* \.long\(\)"),
        (X, F.one_hot(Y).float(), TypeError, r"labels .*float32.* \.argmax\(-1\)"),
        (X, Y.to(torch.complex64), TypeError, "labels .*complex64"),
        (X[0], Y, ValueError, r"features .*labels .*\(2,\) and \(4,\)"),
        (X, Y[:3], ValueError, r"\(4, 2\) and \(3,\)"),
        (X, Y[None], ValueError, r"\(4, 2\) and \(1, 4\)"),
        (X.expand(3, 4, 2), Y, ValueError, r"\(3, 4, 2\) and \(4,\)"),  # labels do not broadcast
        (X[:, :0], Y, ValueError, r"\(4, 0\)"),
        (X[None, :, :0], Y[None], ValueError, r"\(1, 4, 0\)"),
    ):
        with pytest.raises(error, match=named):
            function(features, labels)


BAD_OPTIONS = [
    *({"distance": value} for value in ("euclidean", None)),
    *({"reduction": value} for value in ("max", None)),
    *({"temperature": value} for value in (0, -0.5, math.nan, math.inf, True, "1", None)),
    *({"chunk_size": value} for value in (0, -1, 2.0, True, "4")),
    *({"ignore_index": value} for value in (-1.0, False)),
]


def test_a_bad_option_is_refused_by_name_and_value_and_by_the_module_when_it_is_built():
    for options in BAD_OPTIONS:
        ((name, value),) = options.items()
        shown = f"^{name} must be .*{value!r}$"
        with pytest.raises(ValueError, match=shown):
            soft_nearest_neighbor_loss(X, Y, **options)
        with pytest.raises(ValueError, match=shown):
            SoftNearestNeighborLoss(**options)
        if name in ("distance", "temperature"):
            with pytest.raises(ValueError, match=shown):
                reference_loss(X, Y, **options)
        if name != "reduction":
            with pytest.raises(ValueError, match=shown):  # even where it would not matter
                composite_loss(
                    torch.ones(()), {"a": X}, Y, **{"alpha": 0, "temperature": 1.0} | options
                )


@pytest.mark.parametrize("loss", [soft_nearest_neighbor_loss, reference_loss])
def test_a_temperature_tensor_out_of_range_or_of_several_values_is_refused(loss):
    for number in (0.0, -1.0, math.inf, math.nan):
        for temperature in (torch.tensor(number), torch.tensor([number], requires_grad=True)):
            with pytest.raises(ValueError, match="temperature must be a finite number above 0"):
                loss(X, Y, temperature)
    for size in (0, 2):
        with pytest.raises(ValueError, match=rf"temperature .*\({size},\)"):
            loss(X, Y, torch.ones(size))


def test_references_that_do_not_fit_are_refused():
    for options, error, named in (
        ({"references": X}, TypeError, "reference_labels .*NoneType"),
        ({"reference_labels": Y}, TypeError, "references .*NoneType"),
        ({"references": X, "reference_labels": Y[:3]}, ValueError, r"references .*\(3,\)"),
        ({"references": X[:, :1], "reference_labels": Y}, ValueError, r"\[R, 2\], got \(4, 1\)"),
        ({"references": X.repeat(1, 2), "reference_labels": Y}, ValueError, r"\(4, 4\)"),
        ({"references": X[None], "reference_labels": Y[None]}, ValueError, r"\(1, 4, 2\)"),
        ({"references": HOLED[math.nan], "reference_labels": Y}, ValueError, "references .*nan"),
    ):
        with pytest.raises(error, match=named):
            soft_nearest_neighbor_loss(X, Y, **options)


def test_numbers_that_are_not_finite_are_refused_unless_their_rows_are_ignored():
    for value, features in HOLED.items():
        for options in ({}, {"ignore_index": 0}):
            with pytest.raises(ValueError, match=f"features must be finite, but contain {value}"):
                soft_nearest_neighbor_loss(features, Y, **options)
        assert soft_nearest_neighbor_loss(features, Y, ignore_index=1) == 0
    with pytest.raises(ValueError, match="contain -inf"):
        soft_nearest_neighbor_loss(HOLED[-math.inf].half(), Y)
    assert soft_nearest_neighbor_loss(HOLED[math.nan], Y, check_finite=False).isnan()
    large = torch.full((4, 2), 3e38)  # the sum overflows, the values do not
    assert soft_nearest_neighbor_loss(large, Y).item() == pytest.approx(LOG3)


@pytest.mark.filterwarnings("error")
def test_the_check_for_nan_in_features_with_a_gradient_gives_no_warning():
    torch.set_warn_always(True)  # or only the first of a process would be seen
    try:
        soft_nearest_neighbor_loss(X.clone().requires_grad_(), Y).backward()
    finally:
        torch.set_warn_always(False)


# ---------------------------------------------------------------- anchors without a classmate


def warnings_of(labels, **options):
    """Return the warnings of three calls from one line, with random rows."""
    labels = torch.tensor(labels)
    features = torch.randn(*labels.shape, 3, generator=torch.Generator().manual_seed(0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            soft_nearest_neighbor_loss(features, labels, **options)
    return caught


def test_a_majority_of_anchors_without_a_class_mate_is_reported_once():
    for reduction, chunk_size, temperature in product(REDUCTIONS, (None, 2), (0.01, 1.0)):
        options = {"reduction": reduction, "chunk_size": chunk_size, "temperature": temperature}
        (warning,) = warnings_of([0, 0, 1, 2, 3], **options)
        assert str(warning.message).startswith(ALONE) and warning.category is UserWarning
        assert not warnings_of([0, 0, 1, 2], **options)  # a half is not more than that
    for reduction in REDUCTIONS:  # counted over all batches
        assert warnings_of([[0, 0, 0], [0, 1, 2], [0, 1, 2]], reduction=reduction)
        assert not warnings_of([[0, 0, 0], [0, 0, 0], [0, 1, 2]], reduction=reduction)


@pytest.mark.parametrize(
    ("labels", "warns"),
    [
        ([-1, -1, -1, -1, -1, 0, 0], False),
        ([-1, -1, -1, -1, -1, 0, 0, 1, 2, 3], True),
        ([-1, -1, -1, -1, -1, 0, 0, 1, 2], False),
        ([-1, -1, -1], False),  # no anchor at all
        ([0, 1, -1], True),
        ([0], False),  # a last batch of one row
    ],
)
def test_ignored_rows_do_not_count_as_anchors_without_a_class_mate(labels, warns):
    for reduction in ("mean", "none"):
        assert bool(warnings_of(labels, ignore_index=-1, reduction=reduction)) == warns


def test_class_mates_among_the_references_count_and_references_are_no_anchors():
    bank = {"references": torch.randn(4, 3), "reference_labels": torch.tensor([1, 2, 3, 3])}
    assert not warnings_of([0, 0, 1, 2, 3], **bank)
    assert not warnings_of([7, 8, 1, 2], **bank)
    assert warnings_of([7, 8, 9, 2, 3], **bank)
    bank["reference_labels"] = torch.tensor([4, 5, 6, 7])
    assert not warnings_of([0, 0, 1, 2], **bank)


def test_the_warning_points_at_the_line_of_the_caller_through_modules_too():
    features, labels = torch.randn(3, 3), torch.arange(3)
    options = {"alpha": 1, "temperature": 1.0}
    module, hidden = SoftNearestNeighborLoss(), {"layer": features}
    calls = (
        lambda: soft_nearest_neighbor_loss(features, labels),
        lambda: module(features, labels),
        lambda: torch.nn.Sequential(module).get_submodule("0")(features, labels),
        lambda: composite_loss(torch.zeros(()), hidden, labels, **options),
    )
    for call in calls:
        with pytest.warns(UserWarning, match=ALONE) as caught:
            call()
        assert (caught[0].filename, caught[0].lineno) == (__file__, call.__code__.co_firstlineno)
    with warnings.catch_warnings(action="error"):
        soft_nearest_neighbor_loss(features, labels, check_finite=False)
        SoftNearestNeighborLoss(check_finite=False)(features, labels)
        composite_loss(torch.zeros(()), hidden, labels, **options, check_finite=False)


# ---------------------------------------------------------------- Eq. 6


def test_annealed_temperature_follows_equation_6():
    for arguments, expected in (
        ((0,), 1.0),
        ((1,), 0.6830201283771977),
        ((9,), 0.28183829312644537),
        ((29,), 0.15402219556410243),
        ((0, 2), 2**-0.55),
        ((3, 1, 0.5), 0.5),
        ((7, 1, 0), 1.0),
        ((0, 4, 2), 1 / 16),
    ):
        assert annealed_temperature(*arguments) == pytest.approx(expected, rel=1e-12)
        assert type(annealed_temperature(*arguments)) is float
    values = [annealed_temperature(epoch) for epoch in range(50)]
    assert all(later < earlier for earlier, later in pairwise(values))


def test_annealed_temperature_refuses_numbers_out_of_range_and_other_things():
    bad = [(-1,), (math.nan,), (math.inf,), (0, 0), (0, -1), (0, math.nan), (0, math.inf)]
    for arguments in (*bad, (0, 1, -0.1), (0, 1, math.nan), (0, 1, math.inf)):
        with pytest.raises(ValueError, match=f"epoch={arguments[0]}"):
            annealed_temperature(*arguments)
    for epoch in ("1", None):
        with pytest.raises(TypeError):
            annealed_temperature(epoch)


# ---------------------------------------------------------------- the module


def test_module_with_a_number_is_the_function_and_ignores_the_epoch(batch, random):
    bank = {"references": torch.randn(4, 3, generator=random)}
    bank["reference_labels"] = torch.tensor([0, 1, 2, 0])
    for options, inputs in product(
        ({}, {"distance": "sqeuclidean"}, {"reduction": "none"}, {"chunk_size": 2}), ({}, bank)
    ):
        loss = SoftNearestNeighborLoss(0.3, **options)
        expected = soft_nearest_neighbor_loss(*batch, 0.3, **options, **inputs)
        assert torch.equal(loss(*batch, **inputs), expected)
        assert torch.equal(loss(*batch, epoch=5, **inputs), expected)
    assert list(loss.parameters()) == [] and len(loss.state_dict()) == 0
    assert SoftNearestNeighborLoss()(*batch) == soft_nearest_neighbor_loss(*batch, 1.0)


def test_module_with_annealed_uses_the_temperature_of_the_epoch_and_needs_it(batch):
    loss = SoftNearestNeighborLoss("annealed")
    for epoch in (0, 1, 29):
        expected = soft_nearest_neighbor_loss(*batch, (1 + epoch) ** -0.55)
        assert loss(*batch, epoch=epoch) == expected
    for needs_epoch in (lambda: loss(X, Y), loss.current_temperature):
        with pytest.raises(ValueError, match="epoch=epoch"):
            needs_epoch()
    with pytest.raises(ValueError, match='"annealed" or "learnable", got \'anealed\''):
        SoftNearestNeighborLoss("anealed")
    for value in (torch.tensor(0.5, requires_grad=True), torch.ones(2), np.array([0.5, 0.5])):
        with pytest.raises(ValueError, match='must be a number, "annealed" or "learnable", got'):
            SoftNearestNeighborLoss(value)


def test_learnable_temperature_starts_at_1_and_its_logarithm_gets_the_gradient(random):
    features = torch.randn(7, 3, generator=random, dtype=torch.float64)
    labels = torch.tensor(LABELS)
    loss = SoftNearestNeighborLoss("learnable").double()
    (parameter,) = loss.parameters()
    assert loss.current_temperature().item() == 1
    loss(features, labels).backward()
    above, below = (reference_loss(features, labels, math.exp(h)).item() for h in (1e-5, -1e-5))
    expected = (above - below) / 2e-5
    assert abs(expected) > 1e-3
    assert parameter.grad.item() == pytest.approx(expected, rel=1e-6)
    fresh = SoftNearestNeighborLoss("learnable").double()
    torch.nn.init.constant_(parameter, math.log(0.2))
    fresh.load_state_dict(loss.state_dict())
    assert fresh(features, labels) == loss(features, labels)
    assert_near(fresh(features, labels), reference_loss(features, labels, 0.2).item(), 1e-6)


# ---------------------------------------------------------------- Eqs. 7 and 8


@pytest.fixture
def layers(random):
    """Three layers of a batch of seven; the primary loss is a parameter of its own."""
    hidden = {
        name: torch.randn(7, width, generator=random, dtype=torch.float64, requires_grad=True)
        for name, width in (("a", 2), ("b", 5), ("c", 3))
    }
    return torch.tensor(0.7, dtype=torch.float64, requires_grad=True), hidden, torch.tensor(LABELS)


def terms(hidden, labels, temperature, distance="cosine"):
    return {
        name: reference_loss(x, labels, temperature, distance=distance).item()
        for name, x in hidden.items()
    }


@pytest.mark.parametrize(
    ("choice", "alpha"),
    [(None, 100), ("sum", -3), ("min", 0.5), ("min", -3), (["c", "a"], 100), (("b", "c"), 0.5)],
)
@by_distance
def test_composite_loss_adds_alpha_times_the_losses_of_the_chosen_layers(
    layers, alpha, choice, distance
):
    primary, hidden, labels = layers
    each = terms(hidden, labels, 0.3, distance)
    least = min(each, key=each.get)  # for a negative alpha too
    used = {None: "abc", "sum": "abc", "min": least}.get(choice if choice is None else str(choice))
    used = choice if used is None else used
    options = {"distance": distance} | ({} if choice is None else {"layers": choice})
    loss = composite_loss(primary, hidden, labels, alpha=alpha, temperature=0.3, **options)
    loss.backward()
    expected = 0.7 + alpha * sum(each[name] for name in used)
    assert loss.item() == pytest.approx(expected, rel=1e-10)
    assert primary.grad == 1
    moved = [name for name, x in hidden.items() if x.grad is not None and x.grad.any()]
    assert moved == sorted(used)


@pytest.mark.parametrize("choice", ["sum", "min"])
def test_composite_loss_weights_each_batch_by_its_own_alpha(choice, random):
    hidden = {name: torch.randn(3, 7, 4, generator=random, dtype=torch.float64) for name in "ab"}
    primary = torch.rand(3, generator=random, dtype=torch.float64)
    alpha, labels = torch.tensor([2.0, 0.0, -1.0]), torch.tensor([LABELS] * 3)
    found = composite_loss(primary, hidden, labels, alpha=alpha, temperature=0.3, layers=choice)
    reduced = {"sum": sum, "min": min}[choice]
    for i in range(3):
        each = terms({name: x[i] for name, x in hidden.items()}, labels[i], 0.3)
        expected = primary[i].item() + alpha[i].item() * reduced(each.values())
        assert found[i].item() == pytest.approx(expected, rel=1e-10)
    learned = torch.tensor(0.0, requires_grad=True)  # a learned weight may pass through 0
    found = composite_loss(primary, hidden, labels, alpha=learned, temperature=0.3)
    assert torch.equal(found, primary) and found.requires_grad


def test_composite_loss_with_alpha_0_is_the_primary_loss_and_saves_the_work(layers):
    primary, hidden, labels = layers
    loss = composite_loss(primary, hidden, labels, alpha=0, temperature=0.3)
    assert loss is primary


def test_composite_loss_flattens_further_axes_and_passes_on_the_temperature_gradient(
    layers, random
):
    primary, hidden, labels = layers
    maps = torch.randn(7, 4, 3, generator=random, dtype=torch.float64)
    loss = composite_loss(primary, {"conv": maps}, labels, alpha=1, temperature=0.3)
    expected = 0.7 + reference_loss(maps.reshape(7, 12), labels, 0.3).item()
    assert loss.item() == pytest.approx(expected, rel=1e-10)
    temperature = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    composite_loss(primary, hidden, labels, alpha=2, temperature=temperature).backward()
    above, below = (sum(terms(hidden, labels, 0.3 + h).values()) for h in (1e-6, -1e-6))
    assert temperature.grad.item() == pytest.approx((above - below) / 1e-6, rel=1e-6)


def test_composite_loss_refuses_what_it_cannot_add_up():
    for hidden, changes, error, named in (
        ({}, {}, ValueError, "hidden .*{}"),
        ([X], {}, ValueError, "hidden must be a dict of layers, got <class 'list'>$"),
        ({"a": X[:, 0]}, {}, ValueError, r"features .*\(4,\)"),
        ({"a": X[:3]}, {}, ValueError, r"\(3, 2\) and \(4,\)"),
        ({"a": X}, {"layers": ["a", "z"]}, ValueError, r"layers .*\['a'\], got \['a', 'z'\]"),
        ({"a": X}, {"layers": []}, ValueError, r"layers .*\[\]"),
        ({"a": X}, {"layers": "a"}, ValueError, "layers .*'a'"),  # a bare name is a slip
        ({"a": X}, {"layers": None}, ValueError, "layers .*None"),
        # A baseline must find the slip too.
        ({"b": X}, {"layers": ["a"], "alpha": 0}, ValueError, "layers"),
        ({"a": X}, {"alpha": math.nan}, ValueError, "alpha .*nan"),
        ({"a": X}, {"alpha": "100"}, ValueError, "alpha .*'100'"),
        ({"a": X}, {"alpha": True}, ValueError, "alpha .*True"),
        ({"a": X}, {"labels": Y.tolist()}, TypeError, r"labels .*list.*torch\.as_tensor"),
        ({"a": (X,)}, {}, TypeError, r"hidden\['a'\] must be a tensor, got tuple"),
        ({"a": X.long()}, {}, TypeError, "must be a floating-point tensor, got torch.int64"),
    ):
        options = {"labels": Y, "alpha": 1, "temperature": 1.0} | changes
        with pytest.raises(error, match=named):
            composite_loss(torch.tensor(1.0), hidden, **options)


# ---------------------------------------------------------------- several classes per row


@pytest.mark.parametrize("distance", DISTANCES)
def test_rows_with_several_classes_are_mates_if_they_share_one(distance):
    random = torch.Generator().manual_seed(3)
    x = torch.randn(14, 4, generator=random, dtype=torch.float64, requires_grad=True)
    classes = torch.rand(14, 3, generator=random) < 0.6
    assert (classes.int() @ classes.int().T > 1).sum() > 14, "rows share two classes"
    mates = (classes.double() @ classes.double().T > 0) & ~torch.eye(14, dtype=torch.bool)
    with torch.no_grad():
        unit = x / x.norm(dim=1, keepdim=True)
        tables = {"cosine": 1 - unit @ unit.T, "sqeuclidean": torch.cdist(x, x).square()}
        terms = torch.exp(-tables[distance] / 0.5).fill_diagonal_(0)
        by_hand = -torch.log((terms * mates).sum(1) / terms.sum(1))[mates.any(1)].mean()
    for labels in (classes, classes.int()):
        for chunk_size in (None, 5):
            loss = soft_nearest_neighbor_loss(
                x, labels, 0.5, distance=distance, chunk_size=chunk_size
            )
            assert loss.item() == pytest.approx(by_hand.item(), rel=1e-12)
        assert reference_loss(x, labels, 0.5, distance=distance).item() == pytest.approx(
            loss.item()
        )
        (ours,) = torch.autograd.grad(loss, x)
        (plain,) = torch.autograd.grad(reference_loss(x, labels, 0.5, distance=distance), x)
        assert torch.allclose(ours, plain, atol=1e-12)


def test_one_class_per_row_gives_the_loss_of_its_number():
    x, y = torch.randn(10, 3), torch.arange(10) % 3
    one_hot = F.one_hot(y)
    expected = soft_nearest_neighbor_loss(x, y, 0.3)
    assert soft_nearest_neighbor_loss(x, one_hot, 0.3) == pytest.approx(expected.item())
    halves = soft_nearest_neighbor_loss(
        x[:6], one_hot[:6], 0.3, references=x[6:], reference_labels=one_hot[6:]
    )
    numbers = soft_nearest_neighbor_loss(
        x[:6], y[:6], 0.3, references=x[6:], reference_labels=y[6:]
    )
    assert halves == pytest.approx(numbers.item())
    batches = [part.reshape(2, -1, 3) for part in (x[:6], x[6:], one_hot[:6], one_hot[6:])]
    both = soft_nearest_neighbor_loss(
        batches[0], batches[2], 0.3, references=batches[1], reference_labels=batches[3]
    )
    assert both.shape == (2,)  # with leading axes, three rows and two references
    hidden, primary = {"a": x.reshape(10, 3, 1)}, torch.tensor(1.0)
    joint = composite_loss(primary, hidden, one_hot.bool(), alpha=2, temperature=0.3)
    assert joint.item() == pytest.approx(1 + 2 * expected.item())


def test_several_classes_that_do_not_fit_are_refused():
    x, classes = torch.randn(4, 3), torch.ones(4, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"0 or 1, got values from 1 to 2"):
        soft_nearest_neighbor_loss(x, classes + torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="ignore_index must be None"):
        soft_nearest_neighbor_loss(x, classes, ignore_index=-1)
    column = r"squeeze\(-1\)\) or have at least two columns, got \(4, 1\)"
    for dtype in (torch.int64, torch.bool):
        labels = classes[:, :1].to(dtype)
        for loss in (soft_nearest_neighbor_loss, reference_loss):
            with pytest.raises(ValueError, match=column):
                loss(x, labels)
        with pytest.raises(ValueError, match=column):
            composite_loss(torch.tensor(1.0), {"a": x}, labels, alpha=1, temperature=1.0)
    for reference_labels, problem in (
        (classes[:, 0], r"reference_labels must be \[\.\.\., R, 2\], got \(4,\)"),
        (classes[:, :1], r"reference_labels must be \[\.\.\., R, 2\], got \(4, 1\)"),
        (2 * classes, "0 or 1, got values from 2 to 2"),
    ):
        with pytest.raises(ValueError, match=problem):
            soft_nearest_neighbor_loss(x, classes, references=x, reference_labels=reference_labels)


def test_an_empty_batch_gives_zero_with_a_gradient():
    x, y = torch.zeros(0, 3, requires_grad=True), torch.zeros(0, dtype=torch.int64)
    references, temperature = torch.ones(2, 3, requires_grad=True), torch.tensor(0.5)
    bank = {"references": references, "reference_labels": torch.tensor([0, 1])}
    with_bank = soft_nearest_neighbor_loss(x, y, temperature.requires_grad_(), **bank)
    for loss in (soft_nearest_neighbor_loss(x, y), reference_loss(x, y), with_bank):
        assert loss.item() == 0
        assert torch.autograd.grad(loss, x, retain_graph=True)[0].shape == (0, 3)
    for gradient in torch.autograd.grad(with_bank, (references, temperature)):
        assert not gradient.any()
    assert soft_nearest_neighbor_loss(x, y, reduction="none").shape == (0,)
    no_batches = soft_nearest_neighbor_loss(torch.zeros(0, 4, 2), torch.zeros(0, 4).long())
    assert no_batches.shape == (0,)


def test_a_learnable_temperature_starts_where_it_is_told_to():
    loss = SoftNearestNeighborLoss("learnable", initial_temperature=0.2)
    assert loss.current_temperature().item() == pytest.approx(0.2)
    for number in (0, math.inf):
        with pytest.raises(ValueError, match="temperature must be a finite number above 0"):
            SoftNearestNeighborLoss("learnable", initial_temperature=number)
    with pytest.raises(ValueError, match=r'initial_temperature must be 1 unless .* "learnable"'):
        SoftNearestNeighborLoss(initial_temperature=0.1)
