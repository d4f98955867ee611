"""The soft nearest neighbor loss against Eq. 4 in 150-digit arithmetic, a second library, its
properties and its edges.
"""

import decimal
import math
import re
import warnings
import weakref
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pytorch_metric_learning.distances import CosineSimilarity, LpDistance
from pytorch_metric_learning.losses import NCALoss
from torch.distributed.nn.functional import all_gather
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from snnl_lib import _pairs
from snnl_lib.losses import (
    SoftNearestNeighborLoss,
    annealed_temperature,
    composite_loss,
    reference_loss,
    soft_nearest_neighbor_loss,
)

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:more than half of the anchors")  # seen below

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
DISTANCES = ["cosine", "sqeuclidean"]
LABELS = [0, 0, 1, 1, 1, 2, 0]  # classes of three, and class 2 alone: an anchor without a positive
VALUE_TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 2e-4,
    torch.float16: 2e-4,
    torch.bfloat16: 2e-4,
}  # halves are computed in float32 ...
GRADIENT_TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 2e-4,
    torch.float16: 2e-3,
    torch.bfloat16: 1e-2,
}  # ... but their gradient is rounded to half


@pytest.fixture
def random():
    return torch.Generator().manual_seed(0)


# ---------------------------------------------------------------- the oracle: Eq. 4 as printed,
# in decimals


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
    """Return the losses (nan without a positive), their mean, and the mean's gradient by central
    differences.

    150 digits and steps of 1e-30 make every digit of a float64 exact: no stable rearrangement of
    Eq. 4 is needed, and a loss of 1e-80 still has its full precision.
    """
    labels = labels.tolist()
    with decimal.localcontext(prec=150):
        rows = [[Decimal(x) for x in row] for row in features.detach().double().tolist()]
        temperature, step = Decimal(temperature), Decimal("1e-30")

        def mean(shifted):
            kept = [
                loss
                for loss in decimal_losses(shifted, labels, temperature, distance)
                if loss is not None
            ]
            return sum(kept) / len(kept)

        gradient = torch.zeros(features.shape, dtype=torch.float64)
        for i, row in enumerate(rows):
            for j, x in enumerate(row):
                above, below = (
                    [*rows[:i], [*row[:j], x + h, *row[j + 1 :]], *rows[i + 1 :]]
                    for h in (step, -step)
                )
                gradient[i, j] = float((mean(above) - mean(below)) / (2 * step))
        losses = [
            math.nan if loss is None else float(loss)
            for loss in decimal_losses(rows, labels, temperature, distance)
        ]
        return torch.tensor(losses, dtype=torch.float64), float(mean(rows)), gradient


def assert_near(actual, expected, tolerance):
    """Two-sided, relative to each value; entries of a gradient may lie within the tolerance of its
    largest entry.
    """
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(
        actual.detach().double().cpu(),
        expected,
        rtol=tolerance,
        atol=tolerance * expected.abs().max().item() if expected.ndim else 0,
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", VALUE_TOLERANCE, ids=str)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("temperature", [0.01, 0.1, 1.0, 100])
def test_value_and_gradient_are_those_of_equation_4_by_a_double_loop(
    distance, temperature, dtype, device, random
):
    features = (
        torch.randn(7, 3, generator=random, dtype=torch.float64).to(device, dtype).requires_grad_()
    )
    labels = torch.tensor(LABELS, device=device)
    losses, mean, gradient = oracle(features, labels, temperature, distance)

    value = soft_nearest_neighbor_loss(features, labels, temperature, distance=distance)
    value.backward()
    each = soft_nearest_neighbor_loss(
        features, labels, temperature, distance=distance, reduction="none"
    )

    assert_near(value, mean, VALUE_TOLERANCE[dtype])
    # Anchor by anchor, so that a mistake in a small loss does not hide behind a large one;
    # below 1e-37 float32 has no digits.
    np.testing.assert_allclose(
        each.detach().cpu().double(), losses.nan_to_num(0), rtol=VALUE_TOLERANCE[dtype], atol=1e-37
    )
    assert features.grad.dtype == dtype
    assert_near(features.grad, gradient, GRADIENT_TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_equation_4_still_holds_where_every_row_is_thousands_of_temperatures_away(dtype, random):
    # All weights underflow to 0 here; only their ratio is an ordinary number. Squared
    # distances alone get this far.
    features, labels = (
        (10 * torch.randn(7, 3, generator=random, dtype=torch.float64)).to(dtype).requires_grad_(),
        torch.tensor(LABELS),
    )
    _, mean, gradient = oracle(features, labels, 0.01, "sqeuclidean")
    value = soft_nearest_neighbor_loss(features, labels, 0.01, distance="sqeuclidean")
    value.backward()
    assert mean > 1000
    assert_near(value, mean, VALUE_TOLERANCE[dtype])
    assert_near(features.grad, gradient, GRADIENT_TOLERANCE[dtype])


@pytest.mark.parametrize(
    ("distance", "points", "expected"),
    [
        # Unit vectors at 0, 90 and 180 degrees: the outer two have distance 2 from each
        # other and 1 from the middle one.
        (
            "cosine",
            [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]],
            [math.log1p(math.e), 0, math.log1p(math.e)],
        ),
        # On a line at 0, 1 and 1: the first has both others at 1, the last has its own
        # class at 1 and the other at 0.
        ("sqeuclidean", [[0.0], [1.0], [1.0]], [math.log(2), 0, math.log1p(math.e)]),
    ],
)
def test_three_points_at_known_places_give_the_losses_worked_out_on_paper(
    distance, points, expected
):
    each = soft_nearest_neighbor_loss(
        torch.tensor(points, dtype=torch.float64),
        torch.tensor([0, 1, 0]),
        distance=distance,
        reduction="none",
    )
    assert each.tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "unit", [100.0, 1e20]
)  # the square of 1e20 is beyond float32 but not float64
def test_squared_distances_of_thousands_keep_their_ratio_at_temperature_1_too(unit):
    # On a line at 0, 1 and 1.5 units: all weights underflow to 0, but the middle point has
    # its own class 0.75 units² farther away than the other.
    points, labels = (
        torch.tensor([[0.0], [unit], [1.5 * unit]], dtype=torch.float64),
        torch.tensor([0, 0, 1]),
    )
    each = soft_nearest_neighbor_loss(points, labels, distance="sqeuclidean", reduction="none")
    assert each.tolist() == pytest.approx([0, 0.75 * unit**2, 0], rel=1e-12, abs=1e-12)


def test_a_class_100_temperatures_nearer_than_the_other_has_a_loss_of_e_to_the_minus_100():
    points, labels = (
        torch.tensor([[0.0], [0.0], [10.0]], dtype=torch.float64),
        torch.tensor([0, 0, 1]),
    )
    each = soft_nearest_neighbor_loss(points, labels, distance="sqeuclidean", reduction="none")
    assert each.tolist() == pytest.approx([math.exp(-100), math.exp(-100), 0], rel=1e-12, abs=0)


def test_squared_distances_that_overflow_are_all_the_same_and_leave_the_loss_finite():
    points = torch.tensor(
        [[0.0], [1e20], [-1e20]]
    )  # the first lies in the middle of the others, one of which has its class
    assert soft_nearest_neighbor_loss(
        points, torch.tensor([0, 0, 1]), distance="sqeuclidean", reduction="none"
    )[0].item() == pytest.approx(math.log(2))
    for scale in (
        1e-4,
        1.0,
        1e10,
    ):  # the last are infinitely far apart in float32, the first not quite
        assert (
            soft_nearest_neighbor_loss(
                points * scale, torch.tensor([0, 0, 0]), distance="sqeuclidean"
            )
            == 0
        )


def test_squared_distances_count_in_full_up_to_a_quarter_of_the_largest_float32():
    points = torch.tensor([[0.0], [9e18], [0.0]])  # the first has the other class beside it
    assert 0.2 < 9e18**2 / torch.finfo(torch.float32).max < 0.25
    each = soft_nearest_neighbor_loss(
        points, torch.tensor([0, 0, 1]), distance="sqeuclidean", reduction="none"
    )
    assert each[0].item() == pytest.approx(9e18**2, rel=1e-6)


@pytest.mark.parametrize("chunk_size", [None, 3])
@pytest.mark.parametrize("distance", DISTANCES)
def test_gradient_with_respect_to_features_and_temperature_passes_gradcheck(
    distance, chunk_size, random
):
    features = torch.randn(5, 3, generator=random, dtype=torch.float64, requires_grad=True)
    temperature = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 0, 1, 2])
    assert torch.autograd.gradcheck(
        lambda x, t: soft_nearest_neighbor_loss(
            x, labels, t, distance=distance, chunk_size=chunk_size
        ),
        (features, temperature),
    )


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_gradient_of_one_temperature_for_several_batches_passes_gradcheck(
    reduction, distance, random
):
    features, labels = (
        torch.randn(2, 4, 3, generator=random, dtype=torch.float64),
        torch.tensor([[0, 0, 1, 1], [0, 1, 0, 2]]),
    )
    temperature = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda t: soft_nearest_neighbor_loss(
            features, labels, t, distance=distance, reduction=reduction
        ),
        temperature,
    )
    assert not features.requires_grad  # the features are fixed here, and stay so


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("temperature", [0.05, 0.5, 1.0, 20.0])
def test_nca_loss_of_pytorch_metric_learning_gives_the_same_value_and_gradient(
    distance, temperature, random
):
    theirs = (
        CosineSimilarity()
        if distance == "cosine"
        else LpDistance(normalize_embeddings=False, p=2, power=2)
    )
    features = 0.3 * torch.randn(24, 5, generator=random, dtype=torch.float64)
    # Class 9 occurs once. Their loss drops anchors whose own mass is exactly 0 before its
    # mean: anchors without a positive, and
    # those that underflow, which the small features keep from happening. So both means run
    # over the same 23 anchors.
    labels = torch.cat([torch.arange(23) % 4, torch.tensor([9])])
    ours_in, theirs_in = features.clone().requires_grad_(), features.clone().requires_grad_()
    ours = soft_nearest_neighbor_loss(ours_in, labels, temperature, distance=distance)
    second = NCALoss(softmax_scale=1 / temperature, distance=theirs)(theirs_in, labels)
    ours.backward()
    second.backward()
    assert_near(ours, second.item(), 1e-9)
    assert_near(ours_in.grad, theirs_in.grad, 1e-9)


# ---------------------------------------------------------------- the reference: Eq. 4 as the
# book prints it


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("temperature", [0.01, 0.1, 1.0, 100])
def test_the_reference_is_equation_4_by_a_double_loop(distance, temperature, dtype, random):
    features = torch.randn(7, 3, generator=random, dtype=torch.float64).to(dtype).requires_grad_()
    labels = torch.tensor(LABELS)
    _, mean, gradient = oracle(features, labels, temperature, distance)
    value = reference_loss(features, labels, temperature, distance=distance)
    value.backward()
    assert_near(value, mean, VALUE_TOLERANCE[dtype])
    assert_near(features.grad, gradient, GRADIENT_TOLERANCE[dtype])


def test_of_itself_the_reference_takes_cosine_distance_at_temperature_1(random):
    features, labels = torch.randn(7, 3, generator=random), torch.tensor(LABELS)
    told = reference_loss(features, labels, 1.0, distance="cosine")
    assert reference_loss(features, labels) == told


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("distance", "scale"), [("cosine", 1), ("sqeuclidean", 300)])
def test_the_reference_computes_half_precision_in_float32_as_the_loss_does(dtype, distance, scale):
    generator = torch.Generator().manual_seed(3)
    features = (scale * torch.randn(20, 5, generator=generator)).to(dtype)
    labels = torch.arange(20) % 3
    told = reference_loss(features, labels, 1e-3, distance=distance)
    assert told.dtype == torch.float32 and torch.isfinite(told)
    found = soft_nearest_neighbor_loss(features, labels, 1e-3, distance=distance)
    torch.testing.assert_close(told, found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("chunk_size", [None, 7])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize(
    "temperature", [0.02, 0.3]
)  # where terms are scaled and where they need not be
def test_the_loss_and_its_gradients_are_those_of_the_reference(
    distance, temperature, dtype, chunk_size, random
):
    features = torch.randn(2, 3, 40, 5, generator=random, dtype=dtype).relu()
    features[0, 0, 0] = 0  # a row that a ReLU has emptied
    labels = torch.randint(0, 5, (2, 3, 40), generator=random)
    labels[1, 1] = torch.arange(40)  # a batch without class mates
    labels[1, 2, 0] = 99  # one row without
    fixed = []
    for loss, options in (
        (reference_loss, {}),
        (soft_nearest_neighbor_loss, {"chunk_size": chunk_size}),
    ):
        x, t = (
            features.clone().requires_grad_(),
            torch.tensor(temperature, dtype=dtype, requires_grad=True),
        )
        value = loss(x, labels, t, distance=distance, **options)
        plain = loss(x, labels, temperature, distance=distance, **options)
        torch.testing.assert_close(plain, value)
        gradients = torch.autograd.grad(
            (value * torch.arange(1.0, 7).reshape(2, 3).to(dtype)).sum(), (x, t)
        )
        fixed.append((value.detach(), *gradients))
    for expected, actual in zip(*fixed, strict=True):
        assert actual.dtype == dtype and actual.shape == expected.shape
        assert_near(actual, expected, 1e-9 if dtype == torch.float64 else 2e-4)


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_gradient_of_the_reference_can_be_differentiated_again(distance, random):
    features = torch.randn(5, 3, generator=random, dtype=torch.float64, requires_grad=True)
    temperature = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 0, 1, 2])
    assert torch.autograd.gradgradcheck(
        lambda x, t: reference_loss(x, labels, t, distance=distance), (features, temperature)
    )


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_reference_runs_under_the_transforms_of_torch_func(distance, random):
    features = torch.randn(3, 7, 2, generator=random, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([LABELS, LABELS[::-1], [0] * 7])

    def loss(x, y):
        return reference_loss(x, y, 0.3, distance=distance)

    values = torch.vmap(loss)(features, labels)
    torch.testing.assert_close(
        values, soft_nearest_neighbor_loss(features, labels, 0.3, distance=distance)
    )
    (expected,) = torch.autograd.grad(values.sum(), features)
    torch.testing.assert_close(torch.vmap(torch.func.grad(loss))(features, labels), expected)
    jacobian = torch.func.jacrev(loss)(features, labels)  # [3, 3, 7, 2]: no batch sees another
    torch.testing.assert_close(torch.stack([jacobian[i, i] for i in range(3)]), expected)
    torch.testing.assert_close(jacobian.sum(dim=0), expected)
    assert torch.func.hessian(loss)(features[0], labels[0]).isfinite().all()


TRANSFORMS = {
    "grad": lambda loss, x, y: torch.func.grad(loss)(x[0], y[0]),
    "jacrev": lambda loss, x, y: torch.func.jacrev(loss)(x[0], y[0]),
    "jacfwd": lambda loss, x, y: torch.func.jacfwd(loss)(x[0], y[0]),
    "vmap": lambda loss, x, y: torch.vmap(loss)(x, y),
    "vmap over grad": lambda loss, x, y: torch.vmap(torch.func.grad(loss))(x, y),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize(
    "loss",
    [
        soft_nearest_neighbor_loss,
        SoftNearestNeighborLoss("learnable"),
        lambda x, y: composite_loss(
            x.sum(), {"layer": x}, y, alpha=1, temperature=0.3, check_finite=False
        ),
    ],
    ids=["function", "module", "composite"],
)
def test_inside_a_transform_of_torch_func_the_loss_says_what_to_use(loss, transform, random):
    features, labels = torch.randn(3, 7, 2, generator=random), torch.tensor([LABELS] * 3)
    with pytest.raises(
        RuntimeError,
        match=(
            r"^soft_nearest_neighbor_loss does not run inside .*: use reference_loss there, or .*"
            r" leading axes"
        ),
    ):
        TRANSFORMS[transform](loss, features, labels)


def test_the_reference_refuses_a_wrong_argument_by_name():
    features, labels = torch.ones(4, 2), torch.tensor([0, 0, 1, 1])
    for arguments, options, error, shown in (
        (
            (features, labels),
            {"distance": "euclidean"},
            ValueError,
            "distance must be one of cosine, sqeuclidean",
        ),
        (
            (features, labels, 0),
            {},
            ValueError,
            "temperature must be a finite number above 0, got 0",
        ),
        ((features, labels[:3]), {}, ValueError, "features must be"),
        ((features.long(), labels), {}, TypeError, "features must be a floating-point tensor"),
    ):
        with pytest.raises(error, match=shown):
            reference_loss(*arguments, **options)


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
    features = draw(
        arrays(
            np.float64,
            (rows, columns),
            elements=st.floats(-10, 10, width=32, allow_subnormal=False),
        )
    )
    labels = draw(arrays(np.int64, rows, elements=st.integers(0, 3)))
    return torch.from_numpy(features), torch.from_numpy(labels)


@PROPERTY
@given(batches(), temperatures, distances, st.randoms(use_true_random=False))
def test_permuting_the_rows_permutes_the_losses_and_keeps_the_mean(
    batch, temperature, distance, rng
):
    features, labels = batch
    order = list(range(len(labels)))
    rng.shuffle(order)
    for reduction in ("none", "mean"):
        before = soft_nearest_neighbor_loss(
            features, labels, temperature, distance=distance, reduction=reduction
        )
        after = soft_nearest_neighbor_loss(
            features[order], labels[order], temperature, distance=distance, reduction=reduction
        )
        torch.testing.assert_close(
            after, before[order] if reduction == "none" else before, rtol=1e-9, atol=1e-11
        )


@PROPERTY
@given(
    batches(),
    temperatures,
    distances,
    st.lists(st.integers(-(2**62), 2**62), min_size=4, max_size=4, unique=True),
)
def test_the_names_of_the_classes_do_not_matter(batch, temperature, distance, names):
    features, labels = batch
    before = soft_nearest_neighbor_loss(
        features, labels, temperature, distance=distance, reduction="none"
    )
    after = soft_nearest_neighbor_loss(
        features, torch.tensor(names)[labels], temperature, distance=distance, reduction="none"
    )
    assert torch.equal(after, before)


@pytest.mark.parametrize(
    "scales",
    [(1e-3, 1e-3, 1e-3), (-1e-3, -1e-3, -1e-3), (1e30, 1e-30, 1e30), (-1e30, -1e-30, -1e30)],
)
def test_cosine_distance_ignores_the_length_of_rows_along_an_axis_too(scales):
    features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]) * torch.tensor(scales)[:, None]
    each = soft_nearest_neighbor_loss(features, torch.tensor([0, 0, 1]), reduction="none")
    assert each.tolist() == pytest.approx(
        [math.log1p(1 / math.e)] * 2 + [0], rel=1e-6
    )  # the own class at distance 0, the other at 1


@pytest.mark.parametrize("offset", [2**24, -(2**24) - 1, 2**40, -(2**63)])
def test_neighbouring_numbers_are_different_classes_also_where_float32_does_not_tell_them_apart(
    offset,
):
    # Vectors at right angles, all at distance 1: a class of two has one neighbour of three.
    labels = torch.tensor([0, 0, offset, offset + 1])
    each = soft_nearest_neighbor_loss(torch.eye(4), labels, reduction="none")
    assert each.tolist() == pytest.approx([math.log(3), math.log(3), 0, 0], rel=1e-6)


KINDS = [
    torch.bool,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
]


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_labels_may_be_integers_of_every_size_and_truth_values(dtype):
    each = soft_nearest_neighbor_loss(
        torch.eye(5), torch.tensor([1, 1, 0, 0, 0]).to(dtype), reduction="none"
    )
    assert each.tolist() == pytest.approx([math.log(4)] * 2 + [math.log(2)] * 3, rel=1e-6)


def test_no_batches_have_no_losses():
    features = torch.zeros(0, 4, 2, requires_grad=True)
    losses = soft_nearest_neighbor_loss(features, torch.zeros(0, 4, dtype=torch.long))
    losses.sum().backward()
    assert losses.shape == (0,) and features.grad.shape == (0, 4, 2)


@PROPERTY
@given(batches(), temperatures, st.lists(st.floats(1e-6, 1e6), min_size=8, max_size=8))
def test_cosine_distance_ignores_the_length_of_each_row(batch, temperature, scales):
    features, labels = batch
    scaled = features * torch.tensor(scales[: len(labels)], dtype=torch.float64)[:, None]
    before = soft_nearest_neighbor_loss(features, labels, temperature, reduction="none")
    torch.testing.assert_close(
        soft_nearest_neighbor_loss(scaled, labels, temperature, reduction="none"),
        before,
        rtol=1e-9,
        atol=1e-11,
    )


@PROPERTY
@given(batches(), temperatures, st.lists(st.floats(-100, 100, width=32), min_size=4, max_size=4))
def test_squared_distance_ignores_where_the_origin_is(batch, temperature, origin):
    features, labels = batch
    moved = features + torch.tensor(origin[: features.shape[1]], dtype=torch.float64)
    before = soft_nearest_neighbor_loss(
        features, labels, temperature, distance="sqeuclidean", reduction="none"
    )
    after = soft_nearest_neighbor_loss(
        moved, labels, temperature, distance="sqeuclidean", reduction="none"
    )
    torch.testing.assert_close(
        after, before, rtol=1e-7, atol=1e-7
    )  # the sum with the origin itself is rounded


@PROPERTY
@given(batches(), temperatures, distances, st.sampled_from([torch.float32, torch.float64]))
def test_losses_are_finite_and_never_negative_and_cosine_has_a_ceiling(
    batch, temperature, distance, dtype
):
    features, labels = batch
    losses = soft_nearest_neighbor_loss(
        features.to(dtype), labels, temperature, distance=distance, reduction="none"
    )
    assert torch.isfinite(losses).all() and (losses >= 0).all()
    if distance == "cosine":  # at worst one positive at distance 2 and all others at distance 0
        assert (losses <= 2 / temperature + math.log(len(labels)) + 1e-4 / temperature).all()


@PROPERTY
@given(
    batches(), temperatures, distances, st.integers(1, 9), st.sampled_from(["mean", "sum", "none"])
)
def test_chunks_of_any_size_give_the_value_and_gradient_of_the_whole(
    batch, temperature, distance, chunk_size, reduction
):
    features, labels = batch
    results = []
    for size in (None, chunk_size):
        x, t = (
            features.clone().requires_grad_(),
            torch.tensor(temperature, dtype=torch.float64, requires_grad=True),
        )
        loss = soft_nearest_neighbor_loss(
            x, labels, t, distance=distance, reduction=reduction, chunk_size=size
        )
        loss.sum().backward()
        results.append((loss.detach(), x.grad, t.grad))
    for whole, chunked in zip(*results, strict=True):
        torch.testing.assert_close(
            chunked, whole, rtol=1e-9, atol=1e-9 * max(1, whole.abs().max().item())
        )


# ---------------------------------------------------------------- edges

ANGLES = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-0.8, 0.6]]
EDGES = {
    "a batch of one": ([[1.0, 2.0]], [0]),
    "two of one class": ([[1.0, 2.0], [2.0, 1.0]], [0, 0]),
    "two of two classes": ([[1.0, 2.0], [2.0, 1.0]], [0, 1]),
    "one class": (ANGLES, [3, 3, 3, 3]),
    "singletons only": (ANGLES, [0, 1, 2, 3]),
    "one pair beside singletons": (ANGLES, [0, 1, 0, 2]),
    "identical rows": ([[0.3, -0.7]] * 4, [0, 0, 1, 1]),
    "rows of zeros only": ([[0.0, 0.0]] * 4, [0, 0, 1, 1]),
    "one row of zeros": ([[0.0, 0.0], *ANGLES[1:]], [0, 0, 1, 1]),
    "opposite rows of a class": ([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], [0, 0, 1, 1]),
    "tight clusters": ([[1.0, 0.0], [1.0, 1e-6], [0.0, 1.0], [1e-6, 1.0]], [0, 0, 1, 1]),
    "tight clusters far out": (
        [[1000.0, 0.0], [1000.0, 1e-3], [0.0, 1000.0], [1e-3, 1000.0]],
        [0, 0, 1, 1],
    ),
    "tiny rows": ([[1e-20, 0.0], [0.0, 1e-20], [1e-20, 1e-20], [-1e-20, 0.0]], [0, 0, 1, 1]),
}


@pytest.mark.parametrize("chunk_size", [None, 3])
@pytest.mark.parametrize("temperature", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("edge", EDGES)
def test_value_and_gradients_are_finite_in_float32_on(edge, distance, temperature, chunk_size):
    rows, labels = EDGES[edge]
    features, t = (
        torch.tensor(rows, requires_grad=True),
        torch.tensor(temperature, requires_grad=True),
    )
    loss = soft_nearest_neighbor_loss(
        features, torch.tensor(labels), t, distance=distance, chunk_size=chunk_size
    )
    loss.backward()
    assert torch.isfinite(loss) and loss >= 0
    assert torch.isfinite(features.grad).all()
    assert torch.isfinite(t.grad)  # masking before the division by T would make this one NaN


@pytest.mark.parametrize("chunk_size", [None, 3])
@pytest.mark.parametrize("temperature", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize(
    ("edge", "expected"),
    [
        ("a batch of one", 0),
        ("two of one class", 0),
        ("two of two classes", 0),
        ("one class", 0),
        ("singletons only", 0),
        ("identical rows", math.log(3)),  # one of three equally near neighbours has the class
        ("rows of zeros only", math.log(3)),
    ],
)
def test_value_is_known_on(edge, expected, distance, temperature, chunk_size):
    rows, labels = EDGES[edge]
    loss = soft_nearest_neighbor_loss(
        torch.tensor(rows),
        torch.tensor(labels),
        temperature,
        distance=distance,
        chunk_size=chunk_size,
    )
    assert loss.item() == pytest.approx(expected, rel=1e-5, abs=1e-30)


def test_a_row_of_zeros_has_cosine_distance_1_to_everything_but_still_counts():
    features, labels = (
        torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]], dtype=torch.float64),
        torch.tensor([0, 0, 1]),
    )
    each = soft_nearest_neighbor_loss(features, labels, reduction="none")
    # Anchor 0 sees two neighbours at distance 1; anchor 1 sees its own class at distance 1
    # and the other at 0.
    assert each.tolist() == pytest.approx([math.log(2), math.log1p(math.e), 0], rel=1e-12)


@pytest.mark.parametrize("temperature", [0.01, 0.02, 0.03])
@pytest.mark.parametrize(
    ("distance", "centre"), [("cosine", 0.0), ("sqeuclidean", 0.0), ("sqeuclidean", 1000.0)]
)
def test_tiny_losses_of_tight_clusters_are_right_to_a_thousandth_in_float32(
    distance, centre, temperature, random
):
    # Four points 0.0005 apart around each of two centres. For squared distances also far from
    # the origin, where the expanded
    # form |x|² + |y|² - 2xy leaves no digit. The oracle gets the float32 rows, so rounding
    # the input is no excuse.
    centres = torch.tensor([[1.0, 0.0, 0.0], [0.4, 0.5, 0.0]]) + centre
    features = (
        centres.repeat_interleave(4, 0) + 5e-4 * torch.randn(8, 3, generator=random)
    ).requires_grad_()
    labels = torch.arange(8) // 4
    losses, _, gradient = oracle(features, labels, temperature, distance)
    assert losses.max() < 1e-4 and (
        temperature > 0.01 or losses.max() < 1e-15
    )  # the case is the one meant

    each = soft_nearest_neighbor_loss(
        features, labels, temperature, distance=distance, reduction="none"
    )
    each.mean().backward()
    np.testing.assert_allclose(each.detach().double(), losses, rtol=1e-3)
    assert_near(features.grad, gradient, 1e-3)


@pytest.mark.parametrize(
    "temperature", [0.024, 0.026]
)  # 2 / T on either side of 80, where terms are scaled and where they need not be
def test_gradient_is_right_where_the_own_class_lies_opposite_and_the_other_beside_each_point(
    temperature,
):
    features = torch.tensor([[1.0, 0.0], [-1.0, 0.1], [1.0, 0.1], [-1.0, 0.0]], requires_grad=True)
    labels = torch.tensor([0, 0, 1, 1])
    _, mean, gradient = oracle(features, labels, temperature, "cosine")
    value = soft_nearest_neighbor_loss(features, labels, temperature)
    value.backward()
    assert mean > 70  # the weight of the own class is e^-70 of the other's
    assert_near(value, mean, 2e-4)
    assert_near(features.grad, gradient, 1e-3)


@pytest.mark.parametrize(
    "count", [8, 40]
)  # libraries change their formula for distances as points become many
def test_squared_distance_ignores_where_the_origin_is_to_the_last_bit_where_the_sums_are_exact(
    count, random
):
    near = torch.randint(0, 9, (count, 3), generator=random) / 1024
    labels, found = torch.arange(count) % 3, []
    for features in (near, near + 1024):
        loss = soft_nearest_neighbor_loss(
            features.requires_grad_(), labels, 1e-5, distance="sqeuclidean"
        )
        found.append((loss.detach(), *torch.autograd.grad(loss, features)))
    assert all(torch.equal(here, there) for here, there in zip(*found, strict=True))


@pytest.mark.parametrize("chunk_size", [None, 2])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("labels", [[4], [0, 1, 2, 3]], ids=["one row", "four classes"])
def test_a_batch_without_positives_gives_0_and_a_zero_gradient_through_the_graph(
    labels, reduction, chunk_size, random
):
    features = torch.randn(len(labels), 3, generator=random, requires_grad=True)
    loss = soft_nearest_neighbor_loss(
        features, torch.tensor(labels), 0.1, reduction=reduction, chunk_size=chunk_size
    )
    assert loss.requires_grad  # a training step must be able to call backward on it
    loss.sum().backward()
    assert torch.equal(loss.detach(), torch.zeros_like(loss))
    assert torch.equal(features.grad, torch.zeros_like(features))


# ---------------------------------------------------------------- reductions, axes, chunks


@pytest.mark.parametrize("distance", DISTANCES)
def test_mean_leaves_out_anchors_without_a_positive_while_none_gives_them_0(distance, random):
    features, labels = (
        torch.randn(7, 3, generator=random, dtype=torch.float64),
        torch.tensor(LABELS),
    )
    each, total, mean = (
        soft_nearest_neighbor_loss(features, labels, distance=distance, reduction=r)
        for r in ("none", "sum", "mean")
    )
    assert each.shape == (7,) and total.shape == mean.shape == ()
    assert each[5] == 0 and (each[[0, 1, 2, 3, 4, 6]] > 0).all()
    assert total.item() == pytest.approx(each.sum().item(), rel=1e-12)
    assert mean.item() == pytest.approx(each.sum().item() / 6, rel=1e-12)  # six, not seven


@pytest.mark.parametrize("chunk_size", [None, 4])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("distance", DISTANCES)
def test_leading_axes_equal_a_loop_over_the_batches(distance, reduction, chunk_size, random):
    features = torch.randn(2, 3, 6, 4, generator=random, dtype=torch.float64)
    labels = torch.randint(0, 3, (2, 3, 6), generator=random)
    labels[0, 1] = torch.arange(
        6
    )  # a batch without positives among others: its mean is 0, theirs are not touched
    labels[1, 2] = torch.tensor(
        [0, 0, 1, 2, 3, 4]
    )  # only two anchors count here: each batch has its own denominator
    together, apart = features.clone().requires_grad_(), features.clone().requires_grad_()
    loss = soft_nearest_neighbor_loss(
        together, labels, 0.3, distance=distance, reduction=reduction, chunk_size=chunk_size
    )
    rows = [
        soft_nearest_neighbor_loss(
            apart[i, j], labels[i, j], 0.3, distance=distance, reduction=reduction
        )
        for i in range(2)
        for j in range(3)
    ]
    looped = torch.stack(rows).reshape(loss.shape)
    assert loss.shape == ((2, 3, 6) if reduction == "none" else (2, 3))
    weights = torch.rand(
        loss.shape, generator=random, dtype=torch.float64
    )  # an unequal pull on each output
    (loss * weights).sum().backward()
    (looped * weights).sum().backward()
    torch.testing.assert_close(loss, looped, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(together.grad, apart.grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("chunk_size", [1, 3, 7, 50])
def test_chunks_in_float32_agree_with_the_whole_also_where_the_last_is_smaller(
    distance, chunk_size, random
):
    features, labels = torch.randn(7, 3, generator=random), torch.tensor(LABELS)
    whole, chunked = features.clone().requires_grad_(), features.clone().requires_grad_()
    expected = soft_nearest_neighbor_loss(whole, labels, 0.1, distance=distance)
    actual = soft_nearest_neighbor_loss(
        chunked, labels, 0.1, distance=distance, chunk_size=chunk_size
    )
    expected.backward()
    actual.backward()
    assert_near(actual, expected.item(), 1e-5)
    assert_near(chunked.grad, whole.grad.double(), 1e-5)


@pytest.mark.parametrize(
    ("at_once", "chunk_size", "expected"),
    [(40, None, [2, 2, 2, 1]), (1, None, [1] * 7), (10**9, None, [7]), (40, 3, [3, 3, 1])],
)
def test_so_many_anchors_are_handled_at_a_time_as_the_memory_holds_or_as_it_is_told(
    at_once, chunk_size, expected, monkeypatch, random
):
    assert _pairs.PAIRS_AT_ONCE * 4 == 2**28  # bytes of a float32 each: a quarter of a gigabyte
    taken, logits = [], _pairs._logits
    monkeypatch.setattr(
        _pairs,
        "_logits",
        lambda anchors, *others: taken.append(anchors.shape[-2]) or logits(anchors, *others),
    )
    monkeypatch.setattr(_pairs, "PAIRS_AT_ONCE", at_once)
    features, labels = (
        torch.randn(2, 7, 3, generator=random),
        torch.tensor([LABELS, LABELS]),
    )  # 14 pairs of an anchor in each batch
    soft_nearest_neighbor_loss(features, labels, **{"chunk_size": chunk_size} if chunk_size else {})
    assert taken == expected
    SoftNearestNeighborLoss(**{"chunk_size": chunk_size} if chunk_size else {})(features, labels)
    assert taken == 2 * expected
    if chunk_size is None:
        composite_loss(torch.zeros(2), {"layer": features}, labels, alpha=1, temperature=1.0)
        assert taken == 3 * expected


@pytest.mark.parametrize(
    ("reduction", "forward", "backward"), [("mean", 1, 0), ("sum", 1, 0), ("none", 0, 1)]
)
def test_a_gradient_is_computed_once_and_only_where_one_is_needed(
    reduction, forward, backward, monkeypatch, random
):
    calls, gradient = [], _pairs._points_gradient
    monkeypatch.setattr(
        _pairs, "_points_gradient", lambda *arguments: calls.append(1) or gradient(*arguments)
    )
    features, labels = torch.randn(7, 3, generator=random), torch.tensor(LABELS)
    soft_nearest_neighbor_loss(features, labels, reduction=reduction)
    assert len(calls) == 0
    loss = soft_nearest_neighbor_loss(features.requires_grad_(), labels, reduction=reduction)
    assert len(calls) == forward
    loss.sum().backward()
    assert len(calls) == forward + backward


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


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_no_table_of_all_pairs_waits_for_the_backward_pass_and_chunks_never_hold_one(
    reduction, distance, random
):
    batch = 512
    features, labels = (
        torch.randn(batch, 2, generator=random, requires_grad=True),
        torch.arange(batch) % 4,
    )
    for chunk_size in (None, 8):
        with Alive() as alive:
            loss = soft_nearest_neighbor_loss(
                features, labels, distance=distance, reduction=reduction, chunk_size=chunk_size
            )
            between = alive.now()
            loss.sum().backward()
        assert between < batch * batch / 2
        assert (
            alive.most < batch * batch / 2 if chunk_size else alive.most > batch * batch
        )  # the count sees what it should see


# ---------------------------------------------------------------- references


@pytest.mark.parametrize("chunk_size", [None, 3])
@pytest.mark.parametrize("distance", DISTANCES)
def test_references_are_neighbours_with_a_gradient_and_without_a_loss_of_their_own(
    distance, chunk_size, random
):
    whole = torch.randn(2, 11, 3, generator=random, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[*LABELS, 0, 2, 1, 1]] * 2)
    temperature = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    expected = soft_nearest_neighbor_loss(
        whole, labels, temperature, distance=distance, reduction="none"
    )[..., :7]
    expected_gradients = torch.autograd.grad(expected.sum(), (whole, temperature))
    batch, more = (
        whole.detach()[..., :7, :].requires_grad_(),
        whole.detach()[..., 7:, :].requires_grad_(),
    )
    references = {"references": more, "reference_labels": labels[..., 7:]}
    for reduction in ("none", "sum"):
        found = soft_nearest_neighbor_loss(
            batch,
            labels[..., :7],
            temperature,
            distance=distance,
            reduction=reduction,
            chunk_size=chunk_size,
            **references,
        )
        torch.testing.assert_close(found, expected if reduction == "none" else expected.sum(-1))
        *gradients, by_temperature = torch.autograd.grad(found.sum(), (batch, more, temperature))
        torch.testing.assert_close(torch.cat(gradients, dim=-2), expected_gradients[0])
        torch.testing.assert_close(by_temperature, expected_gradients[1])


def test_an_empty_memory_bank_changes_nothing_and_a_bank_gives_a_lonely_anchor_its_positive(random):
    features, labels = torch.randn(7, 3, generator=random), torch.tensor(LABELS)
    empty = soft_nearest_neighbor_loss(
        features,
        labels,
        references=torch.empty(0, 3),
        reference_labels=torch.empty(0, dtype=torch.long),
    )
    assert torch.equal(empty, soft_nearest_neighbor_loss(features, labels))
    losses = soft_nearest_neighbor_loss(
        features,
        labels,
        reduction="none",
        references=features[5:6] + 0.1,
        reference_labels=labels[5:6],
    )
    assert (losses > 0).all()  # class 2 occurs once in the batch


def test_the_mean_over_a_single_anchor_with_a_positive_is_its_loss():
    # Vectors at right angles: the first has its class in the references and the other beside
    # it, both at distance 1; the second has no positive.
    rows = torch.eye(3)
    loss = soft_nearest_neighbor_loss(
        rows[:2], torch.tensor([0, 1]), references=rows[2:], reference_labels=torch.tensor([0])
    )
    assert loss.item() == pytest.approx(math.log(2), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16], ids=str)
def test_references_of_another_dtype_take_that_of_the_features(dtype, random):
    features, more = (
        torch.randn(7, 3, generator=random),
        torch.randn(4, 3, generator=random).to(dtype),
    )
    found = [
        soft_nearest_neighbor_loss(
            features,
            torch.tensor(LABELS),
            references=references,
            reference_labels=torch.tensor([0, 1, 2, 0]),
        )
        for references in (more, more.float())
    ]
    assert found[0].dtype == torch.float32 and torch.equal(*found)


def gathered(rank, ranks, folder):
    """One rank of a run over several processes: its half of the rows, the other rows gathered with
    their gradient.
    """
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks
    )
    inputs, labels, weights = torch.load(f"{folder}/task.pt")
    mine, my_labels = inputs.chunk(ranks)[rank], labels.chunk(ranks)[rank]
    weights.requires_grad_()
    rows = all_gather(mine @ weights)
    others = torch.cat([rows[k] for k in range(ranks) if k != rank])
    other_labels = torch.cat([part for k, part in enumerate(labels.chunk(ranks)) if k != rank])
    loss = soft_nearest_neighbor_loss(
        rows[rank], my_labels, 0.2, references=others, reference_labels=other_labels
    )
    loss.backward()
    for value in (
        loss := loss.detach(),
        weights.grad,
    ):  # what DistributedDataParallel does with gradients
        torch.distributed.all_reduce(value)
        value /= ranks
    if rank == 0:
        torch.save((loss, weights.grad), f"{folder}/found.pt")
    torch.distributed.destroy_process_group()


def test_two_ranks_that_gather_their_rows_have_the_loss_and_the_gradient_of_one_process(
    tmp_path, random
):
    inputs, labels = torch.randn(16, 5, generator=random, dtype=torch.float64), torch.arange(16) % 3
    weights = torch.randn(5, 4, generator=random, dtype=torch.float64)
    torch.save((inputs, labels, weights.clone()), tmp_path / "task.pt")
    torch.multiprocessing.spawn(gathered, args=(2, str(tmp_path)), nprocs=2)
    loss, gradient = torch.load(tmp_path / "found.pt")
    weights.requires_grad_()
    expected = soft_nearest_neighbor_loss(inputs @ weights, labels, 0.2)
    expected.backward()
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(gradient, weights.grad)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_differentiating_the_gradient_is_refused_and_not_ignored(reduction, random):
    features = torch.randn(7, 3, generator=random, requires_grad=True)
    loss = soft_nearest_neighbor_loss(features, torch.tensor(LABELS), reduction=reduction).sum()
    with pytest.raises(RuntimeError, match=r"cannot be differentiated again .*reference_loss can"):
        torch.autograd.grad(loss, features, create_graph=True)


# ---------------------------------------------------------------- rows without a label

UNKNOWN = [-1, 0, 0, 1, -1, 1, 1, 2, -1, 0]  # three of ten; class 2 alone


def value_and_gradients(features, labels, temperature, references=(), **options):
    """Return a loss and its gradients by the features, the temperature and the references, under an
    unequal pull.
    """
    x, t = (
        features.clone().requires_grad_(),
        torch.tensor(temperature, dtype=features.dtype, requires_grad=True),
    )
    inputs = [x, t]
    if references:
        inputs.append(references[0].clone().requires_grad_())
        options |= {"references": inputs[2], "reference_labels": references[1]}
    loss = soft_nearest_neighbor_loss(x, labels, t, **options)
    fixed = soft_nearest_neighbor_loss(
        x, labels, temperature, **options
    )  # a number takes another way than a tensor
    torch.testing.assert_close(fixed, loss)
    kept = labels != -1 if loss.ndim == labels.ndim else None
    pull = (
        torch.ones_like(loss) if kept is None else kept.cumsum(-1).to(loss.dtype)
    )  # the n-th row that is left is pulled n times
    gradients = torch.autograd.grad(((loss + fixed) * pull).sum(), inputs)
    return [loss.detach(), *gradients]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("with_references", [False, True])
@pytest.mark.parametrize("chunk_size", [None, 1, 3])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("temperature", [0.02, 0.3])
@pytest.mark.parametrize("distance", DISTANCES)
def test_rows_to_be_ignored_count_as_absent(
    distance, temperature, reduction, chunk_size, with_references, dtype, random
):
    features, labels = (
        torch.randn(10, 3, generator=random, dtype=torch.float64).to(dtype),
        torch.tensor(UNKNOWN),
    )
    features[4] = math.nan  # no number of such a row may matter
    more, more_labels = (
        torch.randn(5, 3, generator=random, dtype=torch.float64).to(dtype),
        torch.tensor([2, -1, 0, -1, 3]),
    )
    kept, more_kept = labels != -1, more_labels != -1
    options = {"distance": distance, "reduction": reduction}
    references = (
        [(more, more_labels), (more[more_kept], more_labels[more_kept])]
        if with_references
        else [(), ()]
    )
    actual = value_and_gradients(
        features,
        labels,
        temperature,
        references[0],
        ignore_index=-1,
        chunk_size=chunk_size,
        **options,
    )
    expected = value_and_gradients(
        features[kept], labels[kept], temperature, references[1], **options
    )

    def spread(rows, where):
        return torch.zeros(len(where), *rows.shape[1:], dtype=dtype).index_put((where,), rows)

    expected[1] = spread(expected[1], kept)
    if with_references:
        expected[3] = spread(expected[3], more_kept)
    if reduction == "none":
        expected[0] = spread(expected[0], kept)
    for here, there in zip(actual, expected, strict=True):
        assert_near(here, there, 1e-9 if dtype == torch.float64 else 2e-4)
    assert (actual[1][~kept] == 0).all() and (actual[0] == 0).sum() >= (reduction == "none") * 3


@pytest.mark.parametrize("chunk_size", [None, 4])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("temperature", [0.02, 0.3])
@pytest.mark.parametrize("distance", DISTANCES)
def test_each_batch_has_its_own_rows_to_be_ignored(
    distance, temperature, reduction, chunk_size, random
):
    features = torch.randn(2, 2, 10, 3, generator=random, dtype=torch.float64)
    rows = [UNKNOWN, UNKNOWN[::-1], [-1] * 10, [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]]
    labels = torch.tensor(rows).reshape(2, 2, 10)
    options = {
        "distance": distance,
        "reduction": reduction,
        "chunk_size": chunk_size,
        "ignore_index": -1,
    }
    together = value_and_gradients(features, labels, temperature, **options)
    apart = [
        value_and_gradients(features[i, j], labels[i, j], temperature, **options)
        for i in range(2)
        for j in range(2)
    ]
    for k in range(2):
        assert_near(together[k].flatten(0, 1), torch.stack([each[k] for each in apart]), 1e-9)
    assert_near(together[2], sum(each[2] for each in apart).item(), 1e-9)
    assert (together[0][1, 0] == 0).all() and (together[1][1, 0] == 0).all()


@pytest.mark.parametrize("temperature", [0.02, 0.3])
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_batch_of_rows_to_be_ignored_gives_0_and_a_zero_gradient(
    reduction, distance, temperature, random
):
    features, labels = torch.randn(4, 3, generator=random), torch.full((4,), 255, dtype=torch.uint8)
    references = (torch.randn(2, 3, generator=random), torch.tensor([255, 1], dtype=torch.uint8))
    for bank in ((), references):
        for result in value_and_gradients(
            features,
            labels,
            temperature,
            bank,
            reduction=reduction,
            distance=distance,
            ignore_index=255,
        ):
            assert torch.equal(result, torch.zeros_like(result))


def test_a_label_that_does_not_occur_changes_no_bit_and_minus_1_is_a_class_unless_ignored(random):
    features, labels = torch.randn(7, 3, generator=random), torch.tensor(LABELS)
    for temperature in (0.02, 0.3):
        plain, ignoring = (
            value_and_gradients(features, labels, temperature, ignore_index=index)
            for index in (None, -1)
        )
        assert all(torch.equal(here, there) for here, there in zip(plain, ignoring, strict=True))
    unknown = torch.where(labels == 1, -1, labels)
    assert torch.equal(
        soft_nearest_neighbor_loss(features, unknown), soft_nearest_neighbor_loss(features, labels)
    )
    assert soft_nearest_neighbor_loss(
        features, unknown, ignore_index=-1
    ) != soft_nearest_neighbor_loss(features, labels)


@pytest.mark.parametrize("index", [0, 2**40, -(2**63)])
def test_the_label_to_be_ignored_may_be_any_whole_number(index, random):
    features, labels = torch.randn(7, 3, generator=random), torch.tensor(LABELS)
    expected = soft_nearest_neighbor_loss(features[labels != 1], labels[labels != 1])
    found = soft_nearest_neighbor_loss(
        features, torch.where(labels == 1, index, labels + 1), ignore_index=np.int64(index)
    )
    torch.testing.assert_close(found, expected)


def test_module_and_composite_loss_ignore_the_same_rows(random):
    features, labels = torch.randn(10, 3, generator=random), torch.tensor(UNKNOWN)
    expected = soft_nearest_neighbor_loss(features[labels != -1], labels[labels != -1], 0.3)
    torch.testing.assert_close(
        SoftNearestNeighborLoss(0.3, ignore_index=-1)(features, labels), expected
    )
    composite = composite_loss(
        torch.tensor(0.7), {"layer": features}, labels, alpha=2, temperature=0.3, ignore_index=-1
    )
    torch.testing.assert_close(composite, 0.7 + 2 * expected)


def test_ignoring_rows_compiles_in_one_graph(random):
    features, labels = (
        torch.randn(10, 3, generator=random, requires_grad=True),
        torch.tensor(UNKNOWN),
    )

    def loss(x):
        return soft_nearest_neighbor_loss(x, labels, 0.3, ignore_index=-1)

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(
        torch.autograd.grad(compiled(features), features),
        torch.autograd.grad(loss(features), features),
    )


# ---------------------------------------------------------------- dtypes, autocast, compile


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("distance", DISTANCES)
def test_half_precision_is_computed_and_returned_in_float32(distance, dtype, random):
    # 300 apart: the squared distance would overflow float16, and bfloat16 sums would lose the
    # small terms.
    features, labels = (200 * torch.randn(32, 8, generator=random)).to(dtype), torch.arange(32) % 4
    loss = soft_nearest_neighbor_loss(features, labels, 0.1, distance=distance)
    assert loss.dtype == torch.float32
    assert torch.equal(
        loss, soft_nearest_neighbor_loss(features.float(), labels, 0.1, distance=distance)
    )


def test_float64_stays_float64_even_with_a_float32_temperature(random):
    features, labels = (
        torch.randn(7, 3, generator=random, dtype=torch.float64),
        torch.tensor(LABELS),
    )
    assert soft_nearest_neighbor_loss(features, labels, torch.tensor(0.5)).dtype == torch.float64


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)], ids=str)
def test_a_temperature_tensor_of_one_value_moves_neither_shape_nor_dtype(shape, random):
    features, labels = torch.randn(2, 7, 3, generator=random), torch.tensor([LABELS, LABELS])
    expected = soft_nearest_neighbor_loss(features, labels, 0.5)
    actual = soft_nearest_neighbor_loss(
        features, labels, torch.full(shape, 0.5, dtype=torch.float64)
    )
    torch.testing.assert_close(actual, expected)  # compares shape and dtype too


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)], ids=str)
def test_a_temperature_tensor_has_its_gradient_in_its_own_shape_and_dtype(shape, distance, random):
    features, labels = torch.randn(7, 3, generator=random), torch.tensor(LABELS)
    temperature = torch.full(shape, 0.5, dtype=torch.float64, requires_grad=True)
    loss = soft_nearest_neighbor_loss(features, labels, temperature, distance=distance)
    loss.backward()
    step = 1e-5
    above, below = (
        soft_nearest_neighbor_loss(features.double(), labels, 0.5 + h, distance=distance).item()
        for h in (step, -step)
    )
    torch.testing.assert_close(
        temperature.grad,
        torch.full(shape, (above - below) / (2 * step), dtype=torch.float64),
        rtol=1e-4,
        atol=0,
    )
    assert loss.shape == () and loss.dtype == torch.float32


@pytest.mark.parametrize("chunk_size", [None, 3])
@pytest.mark.parametrize("distance", DISTANCES)
def test_autocast_changes_neither_value_nor_gradient(distance, chunk_size, random):
    features, labels = torch.randn(7, 3, generator=random), torch.tensor(LABELS)
    plain, cast = features.clone().requires_grad_(), features.clone().requires_grad_()
    expected = soft_nearest_neighbor_loss(
        plain, labels, 0.05, distance=distance, chunk_size=chunk_size
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = soft_nearest_neighbor_loss(
            cast, labels, 0.05, distance=distance, chunk_size=chunk_size
        )
    expected.backward()
    actual.backward()
    assert actual.dtype == torch.float32 and torch.equal(actual, expected)
    assert torch.equal(cast.grad, plain.grad)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_autocast_over_the_backward_pass_does_not_change_the_gradient(reduction, random):
    features, labels = torch.randn(7, 3, generator=random), torch.tensor(LABELS)
    plain, cast = features.clone().requires_grad_(), features.clone().requires_grad_()
    soft_nearest_neighbor_loss(plain, labels, 0.05, reduction=reduction).sum().backward()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        soft_nearest_neighbor_loss(cast, labels, 0.05, reduction=reduction).sum().backward()
    assert torch.equal(cast.grad, plain.grad)


@pytest.mark.parametrize("distance", ["cosine", "sqeuclidean"])
@pytest.mark.parametrize("temperature", [0.5, 0.01])
@pytest.mark.parametrize(
    ("cached", "tile", "at_once"), [(30, 3, 2**26), (1, 1, 2**26), (25, 2, 40)]
)
def test_however_the_table_is_cut_up_value_and_gradient_are_the_same(
    cached, tile, at_once, temperature, distance, monkeypatch, random
):
    features = torch.randn(2, 7, 3, generator=random, dtype=torch.float64)
    labels = torch.stack([torch.tensor(LABELS), torch.tensor(LABELS).flip(0)])

    def both(reduction):
        points, learned = (
            features.clone().requires_grad_(),
            torch.tensor(temperature, dtype=torch.float64, requires_grad=True),
        )
        loss = soft_nearest_neighbor_loss(
            points, labels, learned, distance=distance, reduction=reduction
        )
        fixed = soft_nearest_neighbor_loss(
            points, labels, temperature, distance=distance, reduction=reduction
        )
        return [
            loss,
            fixed,
            *torch.autograd.grad((loss.sin() + 2 * fixed.cos()).sum(), [points, learned]),
        ]

    expected = both("mean"), both("none")
    for name, value in (("CACHED_PAIRS", cached), ("TILE", tile), ("PAIRS_AT_ONCE", at_once)):
        monkeypatch.setattr(_pairs, name, value)
    for found, wanted in zip((both("mean"), both("none")), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("temperature", "distance", "bounded"),
    [
        (0.025, "cosine", True),  # the least weight is e^-80 of the largest
        (0.0249, "cosine", False),
        (torch.tensor(0.5), "cosine", False),  # a look at its value would break a graph
        (0.5, "sqeuclidean", False),
    ],
)
def test_blocks_fit_the_cache_and_their_terms_are_scaled_only_where_they_may_vanish(
    temperature, distance, bounded, monkeypatch, random
):
    seen, block_losses = [], _pairs._block_losses

    def noting(logits, labels, kept, start, bounded, weight):
        seen.append((logits.shape[-2], bounded))
        return block_losses(logits, labels, kept, start, bounded, weight)

    monkeypatch.setattr(_pairs, "_block_losses", noting)
    monkeypatch.setattr(_pairs, "CACHED_PAIRS", 30)  # four rows of seven pairs
    features, labels = torch.randn(7, 3, generator=random), torch.tensor(LABELS)
    soft_nearest_neighbor_loss(features, labels, temperature, distance=distance)
    assert seen == [(4, bounded), (3, bounded)]


@pytest.mark.parametrize("options", [{}, {"chunk_size": 3}, {"reduction": "none"}], ids=str)
def test_compiled_in_one_graph_it_has_the_same_gradient(options, random):
    features, labels = torch.randn(7, 3, generator=random, requires_grad=True), torch.tensor(LABELS)
    temperature = torch.tensor(0.3, requires_grad=True)

    def loss(x, y, temperature):
        return soft_nearest_neighbor_loss(x, y, temperature, **options).sum()

    found = torch.autograd.grad(
        torch.compile(loss, backend="aot_eager", fullgraph=True)(features, labels, temperature),
        [features, temperature],
    )
    torch.testing.assert_close(
        found, torch.autograd.grad(loss(features, labels, temperature), [features, temperature])
    )


def test_on_the_meta_device_it_gives_shapes():
    features, labels = (
        torch.empty(3, 7, 4, device="meta", requires_grad=True),
        torch.empty(3, 7, dtype=torch.long, device="meta"),
    )
    loss = soft_nearest_neighbor_loss(features, labels, 0.1)
    loss.sum().backward()
    assert loss.is_meta and loss.shape == (3,) and features.grad.shape == features.shape


def test_compiled_in_one_graph_it_gives_the_same_value_and_lets_nan_through(random):
    features, labels = torch.randn(7, 3, generator=random), torch.tensor(LABELS)
    compiled = torch.compile(
        lambda x, y: soft_nearest_neighbor_loss(x, y, 0.1), backend="eager", fullgraph=True
    )
    torch.testing.assert_close(
        compiled(features, labels), soft_nearest_neighbor_loss(features, labels, 0.1)
    )
    features[0, 0] = math.nan
    assert compiled(
        features, labels
    ).isnan()  # a look at the values would break the graph, so here NaN propagates


# ---------------------------------------------------------------- errors

X, Y = torch.ones(4, 2), torch.tensor([0, 0, 1, 1])


@pytest.mark.parametrize(
    ("features", "labels", "options", "error", "shown"),
    [
        (X.tolist(), Y, {}, TypeError, "list"),
        (X.numpy(), Y, {}, TypeError, "ndarray"),
        (X.long(), Y, {}, TypeError, "int64"),
        (X.to(torch.complex64), Y, {}, TypeError, "complex64"),
        (X, Y.tolist(), {}, TypeError, "list"),
        (X, Y.float(), {}, TypeError, "float32"),
        (X, Y.to(torch.complex64), {}, TypeError, "complex64"),
        (X[0], Y, {}, ValueError, r"^features must be .*B, D.* and labels .*\(2,\) and \(4,\)"),
        (X, Y[:3], {}, ValueError, r"\(4, 2\) and \(3,\)"),
        (X, Y[None], {}, ValueError, r"\(4, 2\) and \(1, 4\)"),
        (
            X.expand(3, 4, 2),
            Y,
            {},
            ValueError,
            r"\(3, 4, 2\) and \(4,\)",
        ),  # labels are never broadcast
        (X[:0], Y[:0], {}, ValueError, r"\(0, 2\)"),
        (X[:, :0], Y, {}, ValueError, r"\(4, 0\)"),
        (X[None, :, :0], Y[None], {}, ValueError, r"\(1, 4, 0\)"),
        (
            X,
            Y,
            {"distance": "euclidean"},
            ValueError,
            "^distance must be .*cosine, sqeuclidean.*'euclidean'",
        ),
        (X, Y, {"distance": None}, ValueError, "None"),
        (X, Y, {"reduction": "max"}, ValueError, "^reduction must be .*mean, sum, none.*'max'"),
        (X, Y, {"temperature": 0}, ValueError, "above 0, got 0"),
        (X, Y, {"temperature": -0.5}, ValueError, "got -0.5"),
        (X, Y, {"temperature": math.nan}, ValueError, "got nan"),
        (X, Y, {"temperature": math.inf}, ValueError, "got inf"),
        (X, Y, {"temperature": True}, ValueError, "got True"),
        (X, Y, {"temperature": "1"}, ValueError, "got '1'"),
        (X, Y, {"temperature": "annealed"}, ValueError, "got 'annealed'"),
        (X, Y, {"temperature": None}, ValueError, "got None"),
        (X, Y, {"temperature": torch.ones(2)}, ValueError, r"shape \(2,\)"),
        (X, Y, {"temperature": torch.ones(0)}, ValueError, r"shape \(0,\)"),
        (
            X,
            Y,
            {"references": X},
            TypeError,
            "reference_labels must be an integer tensor, got NoneType",
        ),
        (
            X,
            Y,
            {"reference_labels": Y},
            TypeError,
            "references must be a floating-point tensor, got NoneType",
        ),
        (
            X,
            Y,
            {"references": X, "reference_labels": Y[:3]},
            ValueError,
            r"references must be .*R, D.*\(4, 2\) and \(3,\)",
        ),
        (
            X,
            Y,
            {"references": X[:, :1], "reference_labels": Y},
            ValueError,
            r"references must be \[R, 2\], got \(4, 1\)",
        ),
        (
            X,
            Y,
            {"references": X.repeat(1, 2), "reference_labels": Y},
            ValueError,
            r"references must be \[R, 2\], got \(4, 4\)",
        ),
        (
            X,
            Y,
            {"references": X[None], "reference_labels": Y[None]},
            ValueError,
            r"references must be \[R, 2\], got \(1, 4, 2\)",
        ),
        (
            X,
            Y,
            {"references": X * math.nan, "reference_labels": Y},
            ValueError,
            "references must be finite, got nan",
        ),
        (X, Y, {"chunk_size": 0}, ValueError, "got 0"),
        (X, Y, {"chunk_size": -1}, ValueError, "got -1"),
        (X, Y, {"chunk_size": 2.0}, ValueError, "got 2.0"),
        (X, Y, {"chunk_size": True}, ValueError, "got True"),
        (
            X,
            Y,
            {"ignore_index": -1.0},
            ValueError,
            "^ignore_index must be a whole number or None, got -1.0",
        ),
        (X, Y, {"ignore_index": False}, ValueError, "ignore_index.*got False"),
        (
            X.masked_fill(Y[:, None] == 1, math.nan),
            Y,
            {"ignore_index": 0},
            ValueError,
            "finite, got nan",
        ),
        (X.masked_fill(Y[:, None] == 1, math.nan), Y, {}, ValueError, "finite, got nan"),
        (X.masked_fill(Y[:, None] == 1, math.inf), Y, {}, ValueError, "finite, got inf"),
        (X.half().masked_fill(Y[:, None] == 1, -math.inf), Y, {}, ValueError, "finite, got -inf"),
    ],
)
def test_a_wrong_argument_raises_and_the_message_shows_it(features, labels, options, error, shown):
    with pytest.raises(error, match=shown):
        soft_nearest_neighbor_loss(features, labels, **options)


@pytest.mark.filterwarnings("error")
def test_the_look_for_nan_in_features_with_a_gradient_gives_no_warning():
    torch.set_warn_always(True)  # or only the first of a process would be seen
    try:
        soft_nearest_neighbor_loss(X.clone().requires_grad_(), Y).backward()
    finally:
        torch.set_warn_always(False)


# ---------------------------------------------------------------- anchors without a class mate

ALONE = "more than half of the anchors have no class mate in their batch"


def warnings_of(labels, **options):
    """What the loss of so many random rows says, called three times."""
    labels = torch.tensor(labels)
    features = torch.randn(*labels.shape, 3, generator=torch.Generator().manual_seed(0))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for _ in range(3):
            soft_nearest_neighbor_loss(features, labels, **options)
    return said


@pytest.mark.parametrize("temperature", [0.01, 1.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("chunk_size", [None, 2])
def test_lonely_anchors_in_the_majority_are_told_once(reduction, chunk_size, temperature):
    options = {"reduction": reduction, "chunk_size": chunk_size, "temperature": temperature}
    (said,) = warnings_of([0, 0, 1, 2, 3], **options)
    assert str(said.message).startswith(ALONE) and said.category is UserWarning
    assert said.filename == __file__
    assert not warnings_of([0, 0, 1, 2], **options)  # a half is not more than that


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ([-1, -1, -1, -1, -1, 0, 0], False),
        ([-1, -1, -1, -1, -1, 0, 0, 1, 2, 3], True),
        ([-1, -1, -1, -1, -1, 0, 0, 1, 2], False),
        ([-1, -1, -1], False),  # no anchor at all
        ([0, 1, -1], True),
    ],
)
def test_rows_to_be_ignored_are_no_lonely_anchors(labels, told, reduction):
    assert bool(warnings_of(labels, ignore_index=-1, reduction=reduction)) == told


def test_unsigned_labels_are_compared_with_the_one_to_be_ignored():
    labels = torch.tensor([255, 255, 255, 0, 0], dtype=torch.uint8)
    with warnings.catch_warnings(action="error"):
        soft_nearest_neighbor_loss(torch.randn(5, 3), labels, ignore_index=255)


def test_class_mates_among_the_references_keep_anchors_company():
    more = {"references": torch.randn(4, 3), "reference_labels": torch.tensor([1, 2, 3, 3])}
    assert not warnings_of([0, 0, 1, 2, 3], **more)
    assert not warnings_of([7, 8, 1, 2], **more)
    assert warnings_of([7, 8, 9, 2, 3], **more)
    lonely = {"reference_labels": torch.tensor([4, 5, 6, 7])}  # references are no anchors
    assert not warnings_of([0, 0, 1, 2], **more | lonely)


def test_lonely_anchors_are_counted_over_all_batches():
    assert warnings_of([[0, 0, 0], [0, 1, 2], [0, 1, 2]])
    assert not warnings_of([[0, 0, 0], [0, 0, 0], [0, 1, 2]])


def test_the_modules_say_it_too_and_who_does_his_own_checks_is_not_told():
    features, labels = torch.randn(3, 3), torch.arange(3)
    with pytest.warns(UserWarning, match=ALONE):
        SoftNearestNeighborLoss()(features, labels)
    composite = dict(alpha=1, temperature=1.0)
    with pytest.warns(UserWarning, match=ALONE):
        composite_loss(torch.zeros(()), {"layer": features}, labels, **composite)
    with warnings.catch_warnings(action="error"):
        soft_nearest_neighbor_loss(features, labels, check_finite=False)
        composite_loss(
            torch.zeros(()), {"layer": features}, labels, **composite, check_finite=False
        )


def test_a_compiled_loss_is_one_graph_and_does_not_look_for_lonely_anchors():
    features, labels = torch.randn(3, 3, requires_grad=True), torch.arange(3)
    compiled = torch.compile(soft_nearest_neighbor_loss, backend="eager", fullgraph=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert compiled(features, labels) == 0
    assert not [warning for warning in said if ALONE in str(warning.message)]


def test_on_the_meta_device_nobody_looks_for_lonely_anchors():
    features, labels = torch.empty(3, 3, device="meta"), torch.empty(3, dtype=int, device="meta")
    with warnings.catch_warnings(action="error"):
        soft_nearest_neighbor_loss(features, labels)


# ---------------------------------------------------------------- Eq. 6


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((0,), 1.0),
        ((1,), 0.6830201283771977),
        ((9,), 0.28183829312644537),
        ((29,), 0.15402219556410243),
        ((0, 2), 2**-0.55),
        ((3, 1, 0.5), 0.5),
        ((7, 1, 0), 1.0),
        ((0, 4, 2), 1 / 16),
    ],
)
def test_annealed_temperature_follows_equation_6(arguments, expected):
    assert annealed_temperature(*arguments) == pytest.approx(expected, rel=1e-12)
    assert type(annealed_temperature(*arguments)) is float


def test_annealed_temperature_only_falls():
    values = [annealed_temperature(epoch) for epoch in range(50)]
    assert all(later < earlier for earlier, later in pairwise(values))


@pytest.mark.parametrize("arguments", [("1",), (None,)])
def test_annealed_temperature_refuses_what_is_no_number(arguments):
    with pytest.raises((TypeError, ValueError)):
        annealed_temperature(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        (-1,),
        (math.nan,),
        (math.inf,),
        (0, 0),
        (0, -1),
        (0, math.nan),
        (0, math.inf),
        (0, 1, -0.1),
        (0, 1, math.nan),
        (0, 1, math.inf),
    ],
)
def test_annealed_temperature_refuses_numbers_out_of_range(arguments):
    with pytest.raises(ValueError, match="epoch must be >= 0"):
        annealed_temperature(*arguments)


# ---------------------------------------------------------------- the module


@pytest.mark.parametrize(
    "options",
    [{}, {"distance": "sqeuclidean"}, {"reduction": "none"}, {"reduction": "sum", "chunk_size": 2}],
    ids=str,
)
def test_module_with_a_number_is_the_function_and_ignores_the_epoch(options, random):
    features, labels = torch.randn(7, 3, generator=random), torch.tensor(LABELS)
    loss = SoftNearestNeighborLoss(0.3, **options)
    assert torch.equal(
        loss(features, labels), soft_nearest_neighbor_loss(features, labels, 0.3, **options)
    )
    assert torch.equal(loss(features, labels, epoch=5), loss(features, labels))
    assert list(loss.parameters()) == [] and len(loss.state_dict()) == 0


def test_module_with_annealed_uses_the_temperature_of_the_epoch(random):
    features, labels = torch.randn(7, 3, generator=random), torch.tensor(LABELS)
    loss = SoftNearestNeighborLoss("annealed")
    for epoch in (0, 1, 29):
        assert torch.equal(
            loss(features, labels, epoch=epoch),
            soft_nearest_neighbor_loss(features, labels, (1 + epoch) ** -0.55),
        )


def test_module_names_the_words_that_a_temperature_may_be():
    told = 'temperature must be a number, "annealed" or "learnable", got \'anealed\''
    with pytest.raises(ValueError, match=re.escape(told)):
        SoftNearestNeighborLoss("anealed")


def test_module_with_annealed_needs_the_epoch():
    loss = SoftNearestNeighborLoss("annealed")
    for needs in (lambda: loss(X, Y), loss.current_temperature):
        with pytest.raises(ValueError, match="epoch=epoch"):
            needs()


def test_module_has_temperature_1_by_default_takes_references_and_shows_its_settings(random):
    features, more, labels = (
        torch.randn(7, 3, generator=random),
        torch.randn(4, 3, generator=random),
        torch.tensor(LABELS),
    )
    references = {"references": more, "reference_labels": torch.tensor([0, 1, 2, 0])}
    loss = SoftNearestNeighborLoss()
    assert torch.equal(loss(features, labels), soft_nearest_neighbor_loss(features, labels, 1.0))
    assert torch.equal(
        loss(features, labels, **references),
        soft_nearest_neighbor_loss(features, labels, 1.0, **references),
    )
    shown = (
        "SoftNearestNeighborLoss(temperature='annealed', distance='sqeuclidean', reduction='sum',"
        " chunk_size=4, ignore_index=-1)"
    )
    assert (
        repr(
            SoftNearestNeighborLoss(
                "annealed", distance="sqeuclidean", reduction="sum", chunk_size=4, ignore_index=-1
            )
        )
        == shown
    )


def test_learnable_temperature_gets_the_gradient_of_finite_differences(random):
    features, labels = (
        torch.randn(7, 3, generator=random, dtype=torch.float64),
        torch.tensor(LABELS),
    )
    loss = SoftNearestNeighborLoss("learnable").double()
    (parameter,) = loss.parameters()
    assert loss.current_temperature().item() == 1
    loss(features, labels).backward()
    step = 1e-5
    differences = [
        soft_nearest_neighbor_loss(features, labels, math.exp(h)).item() for h in (step, -step)
    ]
    expected = (differences[0] - differences[1]) / (2 * step)
    assert abs(expected) > 1e-3
    assert parameter.grad.item() == pytest.approx(expected, rel=1e-7)


def test_learnable_temperature_learns_and_stays_positive(random):
    features, labels = torch.randn(32, 4, generator=random), torch.arange(32) % 2
    features[:, 0] += 2 * labels  # some structure, so that another temperature is better
    loss = SoftNearestNeighborLoss("learnable")
    optimizer = torch.optim.SGD(loss.parameters(), lr=0.5)
    values = []
    for _ in range(20):
        value = loss(features, labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[-1] < values[0] - 1e-3
    assert (
        loss.current_temperature().item() > 0 and abs(loss.current_temperature().item() - 1) > 0.05
    )


def test_learnable_temperature_is_saved_and_loaded(random):
    features, labels = torch.randn(7, 3, generator=random), torch.tensor(LABELS)
    trained, fresh = SoftNearestNeighborLoss("learnable"), SoftNearestNeighborLoss("learnable")
    torch.nn.init.constant_(trained.log_temperature, math.log(0.2))
    assert not torch.equal(fresh(features, labels), trained(features, labels))
    fresh.load_state_dict(trained.state_dict())
    assert torch.equal(fresh(features, labels), trained(features, labels))
    assert_near(
        fresh(features, labels), soft_nearest_neighbor_loss(features, labels, 0.2).item(), 1e-5
    )


@pytest.mark.parametrize(
    "arguments",
    [{"temperature": t} for t in (0, -1, math.nan, True, "fast", None)]
    + [
        {"distance": "l2"},
        {"reduction": "max"},
        {"chunk_size": 0},
        {"chunk_size": "4"},
        {"ignore_index": 0.5},
    ],
    ids=str,
)
def test_module_refuses_bad_arguments_when_it_is_built(arguments):
    ((name, value),) = arguments.items()
    with pytest.raises(ValueError, match=f"^{name} must be .*{value!r}"):
        SoftNearestNeighborLoss(**arguments)


# ---------------------------------------------------------------- Eqs. 7 and 8


@pytest.fixture
def layers(random):
    """Three layers of a batch of seven; the primary loss depends on a weight of its own."""
    hidden = {
        name: torch.randn(7, width, generator=random, dtype=torch.float64, requires_grad=True)
        for name, width in (("a", 2), ("b", 5), ("c", 3))
    }
    return torch.tensor(0.7, dtype=torch.float64, requires_grad=True), hidden, torch.tensor(LABELS)


def terms(hidden, labels, temperature):
    return {
        name: soft_nearest_neighbor_loss(x, labels, temperature).item()
        for name, x in hidden.items()
    }


@pytest.mark.parametrize("alpha", [100, -100, 0.5])
@pytest.mark.parametrize(
    ("choice", "used"),
    [("sum", "abc"), (["a"], "a"), (["c", "a"], "ac"), (("b", "c"), "bc")],
    ids=str,
)
def test_composite_loss_adds_alpha_times_the_losses_of_the_chosen_layers(
    layers, alpha, choice, used
):
    primary, hidden, labels = layers
    expected = 0.7 + alpha * sum(terms(hidden, labels, 0.3)[name] for name in used)
    loss = composite_loss(primary, hidden, labels, alpha=alpha, temperature=0.3, layers=choice)
    loss.backward()
    assert loss.item() == pytest.approx(expected, rel=1e-10)
    assert primary.grad == 1
    assert {
        name for name, x in hidden.items() if x.grad is not None and x.grad.abs().max() > 0
    } == set(used)


def test_composite_loss_sums_all_layers_unless_told_otherwise(layers):
    primary, hidden, labels = layers
    default = composite_loss(primary, hidden, labels, alpha=2, temperature=0.3)
    assert default.item() == pytest.approx(
        0.7 + 2 * sum(terms(hidden, labels, 0.3).values()), rel=1e-10
    )


@pytest.mark.parametrize("choice", ["sum", "min"])
def test_composite_loss_weighs_each_batch_by_its_own_alpha(choice, random):
    hidden = {name: torch.randn(3, 7, 4, generator=random, dtype=torch.float64) for name in "ab"}
    primary, alpha, labels = (
        torch.rand(3, generator=random, dtype=torch.float64),
        torch.tensor([2.0, 0.0, -1.0]),
        torch.tensor([LABELS] * 3),
    )
    found = composite_loss(primary, hidden, labels, alpha=alpha, temperature=0.3, layers=choice)
    reduced = {"sum": sum, "min": min}[choice]
    expected = [
        primary[i].item()
        + alpha[i].item()
        * reduced(terms({name: x[i] for name, x in hidden.items()}, labels[i], 0.3).values())
        for i in range(3)
    ]
    assert found.tolist() == pytest.approx(expected, rel=1e-10)
    one = composite_loss(
        primary, hidden, labels, alpha=torch.tensor(0.0, requires_grad=True), temperature=0.3
    )
    assert (
        torch.equal(one, primary) and one.requires_grad
    )  # a weight that is learned may pass through 0


@pytest.mark.parametrize("alpha", [3, -3])
def test_composite_loss_with_min_sees_the_least_entangled_layer_only(layers, alpha):
    primary, hidden, labels = layers
    each = terms(hidden, labels, 0.3)
    least = min(each, key=each.get)
    assert len(set(each.values())) == 3
    loss = composite_loss(primary, hidden, labels, alpha=alpha, temperature=0.3, layers="min")
    loss.backward()
    assert loss.item() == pytest.approx(
        0.7 + alpha * each[least], rel=1e-10
    )  # for a negative alpha too: the layer is chosen, then weighed
    assert [
        name for name, x in hidden.items() if x.grad is not None and x.grad.abs().max() > 0
    ] == [least]


def test_composite_loss_with_alpha_0_is_the_primary_loss_and_spares_the_work(layers):
    primary, hidden, labels = layers
    loss = composite_loss(primary, hidden, labels, alpha=0, temperature=0.3)
    loss.backward()
    assert torch.equal(loss, primary)
    assert all(x.grad is None for x in hidden.values())


def test_composite_loss_takes_layers_with_more_axes_row_by_row(layers, random):
    primary, _, labels = layers
    maps = torch.randn(7, 4, 3, generator=random, dtype=torch.float64)
    loss = composite_loss(primary, {"conv": maps}, labels, alpha=1, temperature=0.3)
    assert loss.item() == pytest.approx(
        0.7 + soft_nearest_neighbor_loss(maps.reshape(7, 12), labels, 0.3).item(), rel=1e-10
    )


def test_composite_loss_passes_a_gradient_to_a_temperature_tensor(layers):
    primary, hidden, labels = layers
    temperature = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    composite_loss(primary, hidden, labels, alpha=2, temperature=temperature).backward()
    step = 1e-6
    sums = [sum(terms(hidden, labels, 0.3 + h).values()) for h in (step, -step)]
    assert temperature.grad.item() == pytest.approx(2 * (sums[0] - sums[1]) / (2 * step), rel=1e-6)


def test_composite_loss_looks_for_nan_unless_told_not_to(layers):
    primary, hidden, labels = layers
    hidden = hidden | {"b": torch.full((7, 2), math.nan, dtype=torch.float64)}
    with pytest.raises(ValueError, match="got nan"):
        composite_loss(primary, hidden, labels, alpha=1, temperature=0.3)
    assert soft_nearest_neighbor_loss(hidden["b"], labels, check_finite=False).isnan()
    assert composite_loss(
        primary, hidden, labels, alpha=1, temperature=0.3, check_finite=False
    ).isnan()


@pytest.mark.parametrize(
    ("hidden", "options", "shown"),
    [
        ({}, {}, "empty"),
        ([X], {}, "hidden must be a dict"),
        ({"a": X[:, 0]}, {}, r"features must be \[..., B, D\]"),
        ({"a": X}, {"alpha": 0, "temperature": -1.0}, "temperature.*got -1.0"),
        ({"a": X}, {"layers": ["a", "z"]}, r"\['a'\], got \['a', 'z'\]"),
        ({"a": X}, {"layers": []}, r"got \[\]"),
        (
            {"a": X},
            {"layers": "a"},
            "got 'a'",
        ),  # a bare name is a slip: "sum" and "min" are the only words
        ({"a": X}, {"layers": "max"}, "got 'max'"),
        ({"a": X}, {"alpha": math.nan}, "alpha.*got nan"),
        ({"a": X}, {"alpha": -math.inf}, "alpha.*got -inf"),
        ({"a": X}, {"alpha": "100"}, "alpha.*got '100'"),
        ({"a": X}, {"alpha": None}, "alpha.*got None"),
        ({"a": X}, {"alpha": True}, "alpha.*got True"),
        ({"a": X}, {"temperature": 0}, "temperature.*got 0"),
        ({"a": X}, {"temperature": "annealed"}, "temperature.*got 'annealed'"),
        ({"a": X[:3]}, {}, r"\(3, 2\) and \(4,\)"),
    ],
)
def test_composite_loss_refuses(hidden, options, shown):
    with pytest.raises(ValueError, match=shown):
        composite_loss(torch.tensor(1.0), hidden, Y, **{"alpha": 1, "temperature": 1.0} | options)


def test_composite_loss_takes_no_list_of_labels():
    with pytest.raises(TypeError, match="labels must be an integer tensor, got list"):
        composite_loss(torch.tensor(1.0), {"a": X}, Y.tolist(), alpha=1, temperature=1.0)


@pytest.mark.parametrize("hidden", [{}, {"b": X}])
def test_composite_loss_checks_names_even_where_alpha_is_0(hidden):
    # The baseline of a pair runs with alpha = 0: a misspelt layer must not wait for the
    # method's run.
    with pytest.raises(ValueError):
        composite_loss(torch.tensor(1.0), hidden, Y, alpha=0, temperature=1.0, layers=["a"])
