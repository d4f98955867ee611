"""Deep clustering: each method's equations against values worked out by hand, what it leaves alone,
and that it finds classes that lie apart.
"""

import math
import warnings
from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.mixture import GaussianMixture
from torch import distributions as D

from snnl_book.methods import deep_clustering
from snnl_book.methods.deep_clustering import (
    DEC,
    IDEC,
    N2D,
    ClusteringAutoencoder,
    VaDE,
    pretrain,
    soft_assignment,
    target_distribution,
)
from snnl_lib.metrics import clustering_accuracy
from snnl_lib.models import Autoencoder
from snnl_lib.seeds import BATCH_SIZE
from snnl_lib.training import build, forward, named_seed

CLASSES, WIDTH = 4, 100
NORMALIZED = ("DEC", "IDEC")
TRAINED = {
    "DEC": partial(DEC, max_steps=150),
    "IDEC": partial(IDEC, max_steps=150),
    "VaDE": partial(VaDE, epochs=40),
}
METHODS = TRAINED | {"N2D": N2D}  # umap is compiled once a process, in its first fit
BRIEF = {
    "DEC": partial(DEC, max_steps=6),
    "IDEC": partial(IDEC, max_steps=6),
    "VaDE": partial(VaDE, epochs=3),
    "N2D": N2D,
}


class Narrow(ClusteringAutoencoder):
    """The autoencoder with layers of 32, 16 and 32 units: the methods ask for no number of units,
    and most of what is looked at needs few.
    """

    def __init__(self, in_features, code_size, *, unit_range=False, scale=None):
        Autoencoder.__init__(self, in_features, (32, 16, 32), code_size, linear_code=True)
        self.unit_range, self.scale = unit_range, scale


def pretrained(features, code_size=CLASSES, epochs=60, seed=42, **settings):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deep_clustering, "ClusteringAutoencoder", Narrow)
        return pretrain(features, code_size, epochs=epochs, seed=seed, **settings)


def prints(points=512, flipped=0.1, seed=0):
    """Four black-and-white patterns of a hundred pixels, a tenth of each copy's pixels flipped:
    features in [0, 1], and classes.
    """
    random = np.random.default_rng(seed)
    patterns, labels = random.random((CLASSES, WIDTH)) < 0.5, np.arange(points) % CLASSES
    return (patterns[labels] ^ (random.random((points, WIDTH)) < flipped)).astype(
        np.float32
    ), labels


@pytest.fixture(autouse=True)
def one_thread():
    """UMAP sets torch back to all cores, whose threads wait for each other where other work shares
    them.
    """
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def copies():
    return prints()


@pytest.fixture(scope="module")
def start_for(copies):
    """Pretrain an autoencoder of a method on the copies for a seed, a scale and a shift, once:
    (name of the method, seed, scale, shift) -> (features, autoencoder).
    """

    @cache
    def start(normalize, seed, scale, shift):
        features = copies[0] * np.float32(scale) + np.float32(shift)
        epochs = 300 if normalize else 60 if scale == 1 else 100
        return features, pretrained(features, epochs=epochs, seed=seed, normalize=normalize)[0]

    return lambda name, seed=42, scale=1, shift=0: start(name in NORMALIZED, seed, scale, shift)


def fit_from(method, features, autoencoder):
    return method.fit(features, autoencoder=autoencoder)


@pytest.fixture
def autoencoder(request, start_for):
    """What the method of a test starts from (its parameter ``method`` or ``kind``); else VaDE's."""
    callspec = getattr(request.node, "callspec", None)
    asked = callspec.params if callspec else {}
    method = asked.get("method", asked.get("kind"))
    return start_for(getattr(method, "__name__", method))[1]


@pytest.fixture(scope="module")
def fitted(copies, start_for):
    """One fit of each method to the copies."""
    return {
        name: fit_from(method(CLASSES, seed=42), *start_for(name))
        for name, method in METHODS.items()
    }


@pytest.fixture(scope="module")
def digits():
    """Real data that scikit-learn brings along: 1,024 handwritten digits of 8 x 8 pixels, in [0,
    1], with an autoencoder for each method.
    """
    found = load_digits()
    features = (found.data[:1024] / 16).astype(np.float32)
    plain = pretrained(features, 10, epochs=80)[0]
    normalized = pretrained(features, 10, epochs=300, normalize=True)[0]
    starts = dict.fromkeys(NORMALIZED, normalized) | {"VaDE": plain}
    return features, found.target[:1024], starts


def weights(*modules):
    return torch.cat(
        [parameter.detach().flatten() for module in modules for parameter in module.parameters()]
    )


def random_states():
    state = np.random.get_state()  # noqa: NPY002 - the global state is what is looked at
    return torch.get_rng_state(), state[1].copy(), state[2]


def assert_untouched(before):
    after = random_states()
    assert torch.equal(after[0], before[0]), "torch's global random state has moved"
    assert np.array_equal(after[1], before[1]) and after[2] == before[2], (
        "NumPy's global random state has moved"
    )


class Seen:
    """An autoencoder that sees through: the code of a point is the point."""

    def encode(self, x):
        return x, {}


# ---------------------------------------------------------------- the autoencoder


def test_the_autoencoder_is_that_of_the_papers_with_a_linear_code():
    model = ClusteringAutoencoder(784, 10)
    layers = [*model.encoder, model.code, *model.decoder, model.output]
    assert [layer.out_features for layer in layers] == [500, 500, 2000, 10, 2000, 500, 500, 784]
    code = model(torch.randn(50, 784))[1]["code"]
    assert code.min() < 0 and code.max() > 1


@pytest.mark.parametrize("unit_range", [True, False])
def test_the_reconstruction_and_its_error_value_by_value(unit_range):
    model = Narrow(3, 2, unit_range=unit_range)
    output, x = torch.tensor([[0.0, 2.0, -1.0]]), torch.tensor([[1.0, 0.25, 0.0]])
    shown = [[0.5, 1 / (1 + math.exp(-2)), 1 / (1 + math.e)]] if unit_range else output.tolist()
    by_hand = [
        [
            math.log(2),
            0.25 * math.log(1 + math.exp(-2)) + 0.75 * math.log(1 + math.exp(2)),
            math.log(1 + math.exp(-1)),
        ]
    ]
    torch.testing.assert_close(model.reconstruct(output), torch.tensor(shown))
    torch.testing.assert_close(
        model.error(output, x), torch.tensor(by_hand if unit_range else [[0.5, 1.75**2 / 2, 0.5]])
    )


@pytest.mark.parametrize(
    ("low", "high", "unit_range"),
    [
        (0, 1, True),
        (0, 0.1, True),
        (0.5, 0.5, True),
        (0, 1.001, False),
        (-0.001, 1, False),
        (-3, -2, False),
        (0, 255, False),
    ],
)
def test_features_that_all_lie_from_0_to_1_are_reconstructed_by_a_logistic_output(
    low, high, unit_range
):
    assert (
        pretrained(np.linspace(low, high, 40).reshape(8, 5), 2, epochs=1)[0].unit_range
        is unit_range
    )


@pytest.mark.parametrize(("scale", "shift"), [(1, 0), (10, -5)])
def test_pretraining_starts_with_the_mean_error_of_the_first_weights_and_lowers_it(
    copies, scale, shift
):
    x = copies[0][:BATCH_SIZE] * np.float32(scale) + np.float32(shift)
    model, history = pretrained(x, 3, epochs=30, seed=5)
    first = build(Narrow, WIDTH, 3, unit_range=model.unit_range, seed=5)
    output, features = first(torch.as_tensor(x))[0], torch.as_tensor(x)
    expected = (
        F.binary_cross_entropy(torch.sigmoid(output), features)
        if shift == 0
        else (output - features).square().mean()
    )
    curve = history.curve
    assert curve["loss"].iloc[0] == pytest.approx(expected.item(), rel=1e-5), (
        "one batch an epoch, so that the first loss is that of the start"
    )
    assert (
        curve["epoch"].tolist() == list(range(30))
        and curve["loss"].iloc[-1] < 0.95 * curve["loss"].iloc[0]
        and history.diverged == ""
    )
    last = model.error(model(features)[0], features).mean().item() * (1 if shift == 0 else 2)
    assert last < curve["loss"].iloc[-1] * 1.05 and not model.training


def test_pretraining_depends_on_its_seed_alone(copies):
    (first, history), (again, same), (other, another) = (
        pretrained(copies[0], epochs=2, seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(weights(first), weights(again)) and history.curve.equals(same.curve)
    assert (
        not torch.equal(weights(first), weights(other))
        and (history.curve["loss"] != another.curve["loss"]).all()
    )


def test_the_order_of_the_points_comes_from_the_seed_too(copies, monkeypatch):
    first = pretrained(copies[0], epochs=2)[0]
    train = deep_clustering.training.train

    def with_another_seed(*args, seed, **settings):
        return train(*args, seed=seed + 1, **settings)

    monkeypatch.setattr(deep_clustering.training, "train", with_another_seed)
    assert not torch.equal(weights(first), weights(pretrained(copies[0], epochs=2)[0]))


def test_pretraining_leaves_the_global_random_states_alone(copies):
    before = random_states()
    pretrain(copies[0][:20], 3, epochs=1, seed=3)
    assert_untouched(before)


def test_pretraining_that_breaks_says_so(copies, monkeypatch):
    for name in ("binary_cross_entropy", "squared_error"):
        monkeypatch.setattr(
            f"snnl_lib.training.{name}", lambda output, x, labels: output.mean() * math.nan
        )
    assert "the loss was nan in epoch 0" in pretrained(copies[0], epochs=3)[1].diverged


# ---------------------------------------------------------------- normalised features


@pytest.mark.parametrize(("scale", "shift"), [(1, 0), (10, -5), (0.003, 0), (1e6, 0)])
def test_normalised_features_have_a_mean_square_of_1_and_a_linear_output(copies, scale, shift):
    x = copies[0] * np.float32(scale) + np.float32(shift)
    model, history = pretrained(x, 3, epochs=1, normalize=True, seed=5)
    norms = (x.astype(np.float64) * model.scale) ** 2
    assert (norms.sum(axis=1) / WIDTH).mean() == pytest.approx(1) and not model.unit_range
    first, features = build(Narrow, WIDTH, 3, seed=5), torch.as_tensor(x) * model.scale
    torch.testing.assert_close(model.reconstruct(torch.ones(2)), torch.ones(2))
    order = torch.Generator().manual_seed(named_seed(5, "batches"))
    batch = features[torch.randperm(512, generator=order)[:BATCH_SIZE]]
    expected = (first(batch)[0] - batch).square().mean().item()
    assert history.curve["loss"].iloc[0] == pytest.approx(expected, rel=0.1)


def test_one_number_scales_all_points_so_that_their_lengths_stay_in_proportion():
    x = np.array([[3.0, 4.0], [0.0, 0.0], [6.0, 8.0]])
    scale = pretrained(x, 2, epochs=1, normalize=True)[0].scale
    assert scale == pytest.approx((125 / 6) ** -0.5)


@pytest.mark.parametrize("method", NORMALIZED)
def test_features_on_another_scale_are_the_same_features(copies, method):
    found = []
    for factor in (1, 10):
        x = copies[0] * np.float32(factor)
        start = pretrained(x, epochs=20, normalize=True)[0]
        found.append(BRIEF[method](CLASSES, seed=42).fit(x, autoencoder=start).memberships(x))
    np.testing.assert_allclose(found[0], found[1], atol=1e-3)
    assert (found[0].argmax(axis=1) == found[1].argmax(axis=1)).mean() > 0.995


def test_the_scale_of_the_pretraining_is_that_of_all_later_points(copies, start_for):
    start = start_for("IDEC")[1]
    method = IDEC(CLASSES, seed=42, max_steps=2).fit(copies[0], autoencoder=start)
    few = copies[0][:3]
    alone = forward(method.autoencoder, few * np.float32(start.scale), layer="code")
    assert np.array_equal(method.transform(few), alone) and method.autoencoder.scale == start.scale


@pytest.mark.parametrize("points", [200, 600])
def test_as_many_updates_as_asked_for_whatever_the_number_of_points(monkeypatch, points):
    taken, step = [], torch.optim.Adam.step
    monkeypatch.setattr(
        torch.optim.Adam, "step", lambda *args, **own: taken.append(1) or step(*args, **own)
    )
    features = prints(points=points)[0]
    _, history = pretrained(features, epochs=200, normalize=True, updates=7)
    assert len(taken) == 7 and history.curve["epoch"].tolist() == [0]


def test_features_that_are_all_0_cannot_be_normalised():
    with pytest.raises(ValueError, match="must not all be 0 where they are to be normalised"):
        pretrained(np.zeros((20, 5)), 2, normalize=True)
    assert pretrained(np.zeros((20, 5)), 2, epochs=1)[0].scale is None


@pytest.mark.parametrize("method", TRAINED)
def test_an_autoencoder_of_the_wrong_features_is_refused(copies, start_for, method):
    wrong = start_for("VaDE" if method in NORMALIZED else "DEC")[1]
    wanted = rf"{method} starts from .* pretrain\(\.\.\., normalize={method in NORMALIZED}\)"
    with pytest.raises(ValueError, match=wanted):
        BRIEF[method](CLASSES).fit(copies[0], autoencoder=wrong)


@pytest.mark.parametrize("method", [DEC, IDEC, VaDE, N2D])
def test_an_autoencoder_in_the_place_of_y_is_refused(copies, autoencoder, method):
    with pytest.raises(TypeError, match=r"is given by its name: fit\(X, autoencoder=\.\.\.\)"):
        method(CLASSES).fit(copies[0], autoencoder)


def test_n2d_takes_an_autoencoder_of_either_kind(copies, start_for, monkeypatch):
    monkeypatch.setattr(
        deep_clustering, "fit_umap", lambda vectors, seed, **settings: (None, vectors)
    )
    for name in ("DEC", "VaDE"):
        start = start_for(name)[1]
        found = N2D(CLASSES, seed=42).fit(copies[0], autoencoder=start)
        features = copies[0] * np.float32(start.scale or 1)
        assert np.array_equal(found.manifold, forward(start, features, layer="code"))


@pytest.mark.parametrize("method", NORMALIZED)
def test_without_a_step_the_clusters_are_those_of_k_means_on_the_pretrained_codes(
    copies, start_for, method
):
    features, start = start_for(method)
    found = BRIEF[method](CLASSES, seed=42, max_steps=0).fit(features, autoencoder=start)
    codes = forward(start, features * np.float32(start.scale), layer="code")
    expected = KMeans(CLASSES, n_init=20, random_state=named_seed(42, "centroids"))
    assert np.array_equal(found.predict(features), expected.fit_predict(codes))


# ---------------------------------------------------------------- DEC's equations


def test_soft_assignments_are_those_worked_out_by_hand():
    # Squared distances 0 and 4, then 9 and 1: 1 and 1/5, then 1/10 and 1/2, made to sum to 1.
    found = soft_assignment(torch.tensor([[0.0], [3.0]]), torch.tensor([[0.0], [2.0]]))
    torch.testing.assert_close(found, torch.tensor([[5 / 6, 1 / 6], [1 / 6, 5 / 6]]))
    found = soft_assignment(
        torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 1.0], [0.0, 0.0], [1.0, -1.0]])
    )  # squared distances 0, 2 and 4
    torch.testing.assert_close(found, torch.tensor([[15 / 23, 5 / 23, 3 / 23]]))


def test_soft_assignments_are_equation_1_point_by_point():
    random = np.random.default_rng(0)
    codes, centroids = 3 * random.normal(size=(40, 5)), 3 * random.normal(size=(6, 5))
    found = soft_assignment(torch.as_tensor(codes), torch.as_tensor(centroids)).numpy()
    for i, code in enumerate(codes):
        nearness = [
            1 / (1 + sum((a - b) ** 2 for a, b in zip(code, centroid, strict=True)))
            for centroid in centroids
        ]
        assert found[i].tolist() == pytest.approx(
            [value / sum(nearness) for value in nearness], rel=1e-12
        )
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)


def test_soft_assignments_of_a_code_far_from_zero_lose_no_digits():
    # A distance by way of the scalar product would be 0 or 2 here, in float32.
    found = soft_assignment(
        torch.tensor([[4096.0, 1.0]]), torch.tensor([[4096.0, 0.5], [4096.0, 0.0]])
    )
    torch.testing.assert_close(found, torch.tensor([[0.8, 0.5]]) / 1.3)


def test_the_gradient_of_an_assignment_is_right_and_finite_where_a_code_is_a_centroid():
    random = np.random.default_rng(0)
    codes, centroids = (
        torch.tensor(random.normal(size=size), requires_grad=True) for size in ((4, 3), (2, 3))
    )
    assert torch.autograd.gradcheck(soft_assignment, (codes, centroids))
    same = torch.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True)
    centroids = torch.tensor([[1.0, 2.0], [0.0, 0.0]], requires_grad=True)
    soft_assignment(same, centroids)[:, 0].log().sum().backward()
    for values in (same.grad, centroids.grad):
        assert values.isfinite().all() and values.abs().sum() > 0
    # Of the code on the first centroid: q = 1 / (1 + 1 / (1 + |z|²)) moves with its distance
    # from the second one alone.
    z = torch.tensor([1.0, 2.0])
    torch.testing.assert_close(same.grad[0], 2 * z / (1 + z @ z) / (2 + z @ z))


def test_targets_are_those_worked_out_by_hand():
    # Shares 3/4 and 5/4: the squares 1/4, 1/4 over them are 1/3 and 1/5, that is 5 to 3; 1/16
    # and 9/16 are 1/12 and 9/20, that is 5 to 27.
    found = target_distribution(torch.tensor([[0.5, 0.5], [0.25, 0.75]]))
    torch.testing.assert_close(found, torch.tensor([[5 / 8, 3 / 8], [5 / 32, 27 / 32]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_cluster_to_which_nothing_is_assigned_gets_nothing(dtype):
    q = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0]], dtype=dtype)
    p = target_distribution(q)
    torch.testing.assert_close(p[:, :2], target_distribution(q[:, :2]))
    assert p[:, 2].tolist() == [0, 0]


def test_targets_are_equation_3_point_by_point():
    q = np.random.default_rng(0).dirichlet(np.ones(5), size=30)
    found = target_distribution(torch.as_tensor(q)).numpy()
    shares = [sum(q[i, j] for i in range(30)) for j in range(5)]
    for i in range(30):
        squares = [q[i, j] ** 2 / shares[j] for j in range(5)]
        assert found[i].tolist() == pytest.approx(
            [value / sum(squares) for value in squares], rel=1e-12
        )
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)


def test_targets_are_surer_than_the_assignments_and_help_small_clusters():
    q = np.array([[0.6, 0.3, 0.1], [0.1, 0.6, 0.3], [0.3, 0.1, 0.6]])  # clusters of one size
    sharper = target_distribution(torch.as_tensor(q)).numpy()
    np.testing.assert_allclose(sharper, q**2 / 0.46)
    assert (sharper.max(axis=1) > 0.78).all()
    undecided = target_distribution(torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.5, 0.5]]))[2]
    assert undecided[1] > 0.7, "between a cluster of 2.3 and one of 0.7 the small one"


def test_decs_divergence_is_equation_2_by_hand():
    method = DEC(2)
    method.autoencoder, method.centroids = Seen(), torch.tensor([[0.0], [2.0]])
    x = torch.tensor([[0.0], [3.0]])  # q = 5/6, 1/6 and 1/6, 5/6, as above
    assert method._loss(x, torch.tensor([[1.0, 0.0], [0.0, 1.0]])).item() == pytest.approx(
        math.log(6 / 5), rel=1e-6
    )
    assert method._loss(x, torch.tensor([[0.5, 0.5], [0.0, 1.0]])).item() == pytest.approx(
        (0.5 * math.log(3 / 5) + 0.5 * math.log(3) + math.log(6 / 5)) / 2
    )
    assert method._loss(x, torch.tensor([[5 / 6, 1 / 6], [1 / 6, 5 / 6]])).item() == pytest.approx(
        0, abs=1e-6
    )


@pytest.mark.parametrize("unit_range", [True, False])
@pytest.mark.parametrize("gamma", [0.1, 3.0])
def test_idecs_loss_is_equation_8_as_printed_divided_by_the_number_of_points(unit_range, gamma):
    random = np.random.default_rng(0)
    x, centroids = torch.tensor(random.random((7, 5))), torch.tensor(random.normal(size=(3, 2)))
    target = torch.tensor(random.dirichlet(np.ones(3), size=7))
    method = IDEC(3, gamma=gamma)
    method.autoencoder, method.centroids = (
        build(Narrow, 5, 2, unit_range=unit_range, seed=1).double(),
        centroids,
    )
    output, hidden = method.autoencoder(x)
    shown = (1 / (1 + np.exp(-output.detach().numpy()))) if unit_range else output.detach().numpy()
    error = sum((shown[i, j] - x[i, j].item()) ** 2 for i in range(7) for j in range(5)) / 7
    q = soft_assignment(hidden["code"], centroids).detach()
    divergence = (
        sum(
            (target[i, j] * math.log(target[i, j] / q[i, j])).item()
            for i in range(7)
            for j in range(3)
        )
        / 7
    )
    assert method._loss(x, target).item() == pytest.approx(error + gamma * divergence, rel=1e-10)
    assert gamma * divergence > 1e-3 and error > 1e-3, "both count"


def test_without_gamma_idec_moves_the_weights_as_the_reconstruction_does_and_no_centroid():
    random = np.random.default_rng(0)
    x, target = (
        torch.tensor(random.random((7, 5))),
        torch.tensor(random.dirichlet(np.ones(3), size=7)),
    )
    method = IDEC(3, gamma=0.0)
    method.autoencoder = build(Narrow, 5, 2, unit_range=True, seed=1).double()
    method.centroids = torch.tensor(random.normal(size=(3, 2)), requires_grad=True)
    parameters = list(method.autoencoder.parameters())
    plain = torch.autograd.grad(
        (torch.sigmoid(method.autoencoder(x)[0]) - x).square().sum() / 7, parameters
    )
    method._loss(x, target).backward()
    for parameter, expected in zip(parameters, plain, strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-10, atol=1e-14)
    assert method.centroids.grad is None or not method.centroids.grad.any()


@pytest.mark.parametrize("kind", [DEC, IDEC])
def test_a_fit_is_k_means_and_then_the_papers_steps_spelt_out(copies, autoencoder, kind):
    x = torch.as_tensor(copies[0])
    x = x / x.square().mean().sqrt()
    method = kind(CLASSES, seed=42, max_steps=7, update_interval=3, tolerance=0).fit(
        copies[0], autoencoder=autoencoder
    )

    model = build(Narrow, WIDTH, CLASSES, seed=0)
    model.load_state_dict(autoencoder.state_dict())
    centroids = (
        KMeans(CLASSES, n_init=20, random_state=named_seed(42, "centroids"))
        .fit(forward(model, x, layer="code"))
        .cluster_centers_
    )
    centroids = torch.tensor(centroids, dtype=torch.float32, requires_grad=True)
    parameters = [*model.parameters(), centroids]
    optimizer = (
        torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
        if kind is DEC
        else torch.optim.Adam(parameters, lr=0.001)
    )
    order = torch.Generator().manual_seed(named_seed(42, "batches"))
    batches = [batch for _ in range(4) for batch in torch.randperm(512, generator=order).split(256)]
    for step in range(7):
        if step % 3 == 0:
            with torch.no_grad():
                target = target_distribution(soft_assignment(model(x)[1]["code"], centroids))
        batch = batches[step]
        output, hidden = model(x[batch])
        q = soft_assignment(hidden["code"], centroids)
        loss = (target[batch] * (target[batch] / q).log()).sum(dim=1).mean()
        if kind is IDEC:
            loss = (output - x[batch]).square().sum(dim=1).mean() + 0.1 * loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.testing.assert_close(method.centroids.detach(), centroids.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(weights(method.autoencoder), weights(model), rtol=1e-4, atol=1e-5)
    assert (weights(model) - weights(autoencoder)).abs().max() > 1e-3, "it has moved"


@pytest.mark.parametrize("kind", [DEC, IDEC])
def test_dec_throws_the_decoder_away_and_idec_trains_it(fitted, autoencoder, kind):
    method = fitted[kind.__name__]
    decoders = [weights(model.decoder, model.output) for model in (method.autoencoder, autoencoder)]
    assert torch.equal(*decoders) == (kind is DEC)
    assert not torch.equal(weights(method.autoencoder.encoder), weights(autoencoder.encoder))


@pytest.mark.parametrize("kind", [DEC, IDEC])
def test_memberships_are_the_soft_assignments_of_the_codes_and_the_largest_is_the_cluster(
    copies, fitted, kind
):
    method = fitted[kind.__name__]
    scaled = torch.as_tensor(copies[0]) * method.autoencoder.scale
    codes = method.autoencoder(scaled)[1]["code"]
    expected = soft_assignment(codes, method.centroids).detach().numpy()
    found = method.memberships(copies[0])
    assert found.shape == (512, CLASSES) and found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.array_equal(method.predict(copies[0]), expected.argmax(axis=1))


# ---------------------------------------------------------------- when DEC ends


@pytest.mark.parametrize("kind", [DEC, IDEC])
@pytest.mark.parametrize(
    ("max_steps", "tolerance", "steps", "rows"),
    [
        (23, 0.0, 23, [0, 5, 10, 15, 20]),
        (20, 0.0, 20, [0, 5, 10, 15]),
        (23, 1.1, 5, [0, 5]),
        (5, 1.1, 5, [0]),
        (0, 0.0, 0, []),
    ],
)
def test_it_takes_at_most_so_many_steps_and_the_curve_has_a_row_for_each_update(
    copies, autoencoder, monkeypatch, kind, max_steps, tolerance, steps, rows
):
    taken, targets, loss, sharpen = [], [], kind._loss, deep_clustering.target_distribution
    monkeypatch.setattr(
        kind, "_loss", lambda self, *batch: taken.append(batch) or loss(self, *batch)
    )
    monkeypatch.setattr(
        deep_clustering, "target_distribution", lambda q: targets.append(1) or sharpen(q)
    )
    method = kind(
        CLASSES, seed=42, max_steps=max_steps, update_interval=5, tolerance=tolerance
    ).fit(copies[0], autoencoder=autoencoder)
    assert len(taken) == steps and len(targets) == len(rows)
    assert method.diverged == "" and not method.autoencoder.training
    if rows:
        assert (
            list(method.curve.columns) == ["step", "loss", "changed"]
            and method.curve["step"].tolist() == rows
        )
        assert method.curve["changed"].iloc[0] == 0, "the first assignments are those of k-means"


@pytest.mark.parametrize(("tolerance", "rows"), [(0.11, 2), (0.1, 3), (0.01, 3), (0.0, 5)])
def test_it_ends_when_fewer_than_the_tolerance_have_changed_their_cluster(
    copies, start_for, tolerance, rows
):
    # Of ten points one changes at the second update and none at the third and later: "fewer
    # than a tenth" is true at the third.
    class Scripted(DEC):
        asked = -1

        def _memberships(self, features):
            self.asked += 1
            clusters = np.arange(10) % 2
            clusters[0] = self.asked > 0
            return np.where(np.eye(2)[clusters] > 0, np.float32(0.9), np.float32(0.1))

    method = Scripted(2, max_steps=10, update_interval=2, tolerance=tolerance).fit(
        copies[0][:10], autoencoder=start_for("DEC")[1]
    )
    assert method.curve["step"].tolist() == list(range(0, 2 * rows, 2))
    assert method.curve["changed"].tolist()[1:] == [0.1, 0, 0, 0][: rows - 1]
    # Two clusters of five, of which each point belongs to its own by 0.9: the targets are 81 to 1.
    divergence = (0.81 * math.log(0.81 / 0.82 / 0.9) + 0.01 * math.log(0.01 / 0.82 / 0.1)) / 0.82
    assert method.curve["loss"].iloc[0] == pytest.approx(divergence, rel=1e-5)


# ---------------------------------------------------------------- VaDE


@pytest.fixture
def vade(copies, autoencoder):
    """One that has only been started: its mixture, and a layer for the variances, are given numbers
    of their own.
    """
    method = VaDE(CLASSES, seed=42, epochs=0).fit(copies[0], autoencoder=autoencoder)
    random = torch.Generator().manual_seed(0)
    for parameter in (
        method.logits,
        method.means,
        method.log_variances,
        *method.spread.parameters(),
    ):
        parameter.data = torch.randn(parameter.shape, generator=random)
    method.spread.weight.data /= 10
    return method


def test_the_joint_density_is_that_of_a_gaussian_mixture(vade):
    codes = 2 * torch.randn(30, CLASSES, generator=torch.Generator().manual_seed(1))
    prior = D.Categorical(logits=vade.logits)
    parts = D.Independent(D.Normal(vade.means, (vade.log_variances / 2).exp()), 1)
    found = vade.log_joint(codes)
    torch.testing.assert_close(
        found, prior.logits + parts.log_prob(codes[:, None]), rtol=1e-5, atol=1e-4
    )
    torch.testing.assert_close(
        found.logsumexp(dim=1),
        D.MixtureSameFamily(prior, parts).log_prob(codes),
        rtol=1e-5,
        atol=1e-4,
    )


@pytest.mark.parametrize("unit_range", [True, False])
def test_vades_loss_is_the_reconstruction_and_two_divergences_for_the_same_noise(
    copies, vade, unit_range
):
    vade.autoencoder.unit_range = unit_range
    x = torch.as_tensor(copies[0][:40]) if unit_range else 3 * torch.as_tensor(copies[0][:40]) - 1
    found = vade._loss(x, torch.Generator().manual_seed(5))

    code, hidden = vade.autoencoder.encode(x)
    own = D.Normal(code, (vade.spread(hidden["encoder3"]) / 2).exp())
    z = own.loc + own.scale * torch.randn(code.shape, generator=torch.Generator().manual_seed(5))
    output = vade.autoencoder.decode(z)[0]
    decoder = D.Bernoulli(logits=output) if unit_range else D.Normal(output, 1.0)
    constant = (
        0 if unit_range else WIDTH * math.log(2 * math.pi) / 2
    )  # of a Gaussian of variance 1, which no weight moves
    reconstruction = -decoder.log_prob(x).sum(dim=1) - constant
    prior, parts = (
        D.Categorical(logits=vade.logits),
        D.Normal(vade.means, (vade.log_variances / 2).exp()),
    )
    gamma = D.Categorical(logits=prior.logits + parts.log_prob(z[:, None]).sum(dim=2))
    to_parts = D.kl_divergence(D.Normal(own.loc[:, None], own.scale[:, None]), parts).sum(
        dim=2
    )  # [B, k]
    expected = reconstruction + (gamma.probs * to_parts).sum(dim=1) + D.kl_divergence(gamma, prior)
    torch.testing.assert_close(found, expected.mean(), rtol=1e-5, atol=1e-3)
    assert gamma.probs.amax(dim=1).min() < 0.9, "the clusters are weighed, not chosen"
    parameters = [
        vade.logits,
        vade.means,
        vade.log_variances,
        *vade.spread.parameters(),
        *vade.autoencoder.parameters(),
    ]
    for ours, theirs in zip(
        torch.autograd.grad(found, parameters),
        torch.autograd.grad(expected.mean(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_grey_values_have_the_cross_entropy_of_a_bernoulli_decoder(vade):
    x = torch.full((3, WIDTH), 0.3)
    losses = []
    for unit_range in (True, False):
        vade.autoencoder.unit_range = unit_range
        losses.append(vade._loss(x, torch.Generator().manual_seed(5)).item())
    code, hidden = vade.autoencoder.encode(x)
    z = code + (vade.spread(hidden["encoder3"]) / 2).exp() * torch.randn(
        code.shape, generator=torch.Generator().manual_seed(5)
    )
    p = torch.sigmoid(vade.autoencoder.decode(z)[0]).double().clamp(1e-12, 1 - 1e-12)
    bernoulli = -(0.3 * p.log() + 0.7 * (1 - p).log()).sum(dim=1).mean().item()
    gaussian = ((vade.autoencoder.decode(z)[0] - 0.3) ** 2 / 2).sum(dim=1).mean().item()
    assert losses[0] - losses[1] == pytest.approx(bernoulli - gaussian, rel=1e-4)


def test_vade_starts_from_a_gaussian_mixture_of_the_codes(copies, autoencoder):
    method = VaDE(CLASSES, seed=42, epochs=0).fit(copies[0], autoencoder=autoencoder)
    codes = forward(autoencoder, copies[0], layer="code")
    mixture = GaussianMixture(
        CLASSES, covariance_type="diag", n_init=10, random_state=named_seed(42, "centroids")
    ).fit(codes)
    for ours, theirs in (
        (method.logits.softmax(dim=0), mixture.weights_),
        (method.means, mixture.means_),
        (method.log_variances.exp(), mixture.covariances_),
    ):
        np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-4)
    assert np.array_equal(method.predict(copies[0]), mixture.predict(codes)) and np.array_equal(
        method.transform(copies[0]), codes
    )
    within = sum(
        weight * variance
        for weight, variance in zip(mixture.weights_, mixture.covariances_, strict=True)
    )
    variances = method.spread(torch.randn(5, 32)).exp().detach().numpy()
    np.testing.assert_allclose(
        variances, np.tile(within, (5, 1)), rtol=1e-4
    )  # of every point's code


@pytest.mark.parametrize(
    ("method", "module", "name"),
    [
        ("DEC", "cluster", "KMeans"),
        ("IDEC", "cluster", "KMeans"),
        ("VaDE", "mixture", "GaussianMixture"),
    ],
)
def test_the_start_is_the_best_of_twenty_or_ten_from_the_seed(
    copies, autoencoder, monkeypatch, method, module, name
):
    seen, kind = [], {"KMeans": KMeans, "GaussianMixture": GaussianMixture}[name]
    monkeypatch.setattr(
        f"sklearn.{module}.{name}",
        lambda *args, **settings: seen.append((args, settings)) or kind(*args, **settings),
    )
    BRIEF[method](CLASSES, seed=73).fit(copies[0], autoencoder=autoencoder)
    own = {"n_init": 20} if name == "KMeans" else {"n_init": 10, "covariance_type": "diag"}
    assert seen == [((CLASSES,), own | {"random_state": named_seed(73, "centroids")})]


def test_vade_has_an_epoch_of_all_points_and_ends_after_so_many(copies, autoencoder, monkeypatch):
    seen, loss = [], VaDE._loss
    monkeypatch.setattr(
        VaDE, "_loss", lambda self, x, noise: seen.append(x) or loss(self, x, noise)
    )
    x = copies[0][:300]
    method = VaDE(CLASSES, seed=42, epochs=3).fit(x, autoencoder=autoencoder)
    assert [len(batch) for batch in seen] == [256, 44] * 3, "the smaller last batch too"
    for epoch in range(3):
        rows = torch.cat(seen[2 * epoch : 2 * epoch + 2]).numpy()
        assert np.array_equal(np.unique(rows, axis=0), np.unique(x, axis=0))
    assert list(method.curve.columns) == ["epoch", "loss"] and method.curve["epoch"].tolist() == [
        0,
        1,
        2,
    ]


def test_the_curve_of_vade_is_the_mean_over_points_and_falls(
    copies, autoencoder, fitted, monkeypatch
):
    monkeypatch.setattr(VaDE, "_loss", lambda self, x, noise: (self.means * 0).sum() + len(x))
    method = VaDE(CLASSES, epochs=1).fit(copies[0][:300], autoencoder=autoencoder)
    assert method.curve["loss"].tolist() == pytest.approx([(256 * 256 + 44 * 44) / 300])
    losses = fitted["VaDE"].curve["loss"]
    assert len(losses) == 40 and losses.iloc[-5:].mean() < losses.iloc[:5].mean() - 0.5


def test_the_learning_rate_of_vade_falls_by_a_tenth_every_ten_epochs(
    copies, autoencoder, monkeypatch
):
    rates, step = [], torch.optim.Adam.step

    def noting(self, *args, **settings):
        rates.append(self.param_groups[0]["lr"])
        return step(self, *args, **settings)

    monkeypatch.setattr(torch.optim.Adam, "step", noting)
    VaDE(CLASSES, epochs=25).fit(copies[0], autoencoder=autoencoder)
    assert rates == pytest.approx(
        [0.002] * 20 + [0.0018] * 20 + [0.00162] * 10
    )  # two batches an epoch


def test_everything_of_vade_is_trained(autoencoder, copies):
    start, end = (
        VaDE(CLASSES, seed=42, epochs=epochs).fit(copies[0], autoencoder=autoencoder)
        for epochs in (0, 2)
    )
    for name in ("logits", "means", "log_variances"):
        assert not torch.equal(getattr(start, name), getattr(end, name)), name
    for part in ("encoder", "code", "decoder", "output"):
        assert not torch.equal(
            *(weights(getattr(method.autoencoder, part)) for method in (start, end))
        ), part
    assert not torch.equal(*(weights(method.spread) for method in (start, end)))


def test_the_noise_of_vade_comes_from_the_seed(copies, autoencoder, monkeypatch):
    first, again = (
        VaDE(CLASSES, seed=42, epochs=2).fit(copies[0], autoencoder=autoencoder) for _ in range(2)
    )
    assert first.curve.equals(again.curve)
    monkeypatch.setattr(
        deep_clustering, "named_seed", lambda seed, name: named_seed(seed + (name == "noise"), name)
    )
    other = VaDE(CLASSES, seed=42, epochs=2).fit(
        copies[0], autoencoder=autoencoder
    )  # the same batches and the same start
    assert (first.curve["loss"] != other.curve["loss"]).all()


# ---------------------------------------------------------------- N2D


def test_n2d_gives_the_points_that_it_was_fitted_on_their_own_clusters(copies, fitted):
    method = fitted["N2D"]
    assert method.manifold.shape == (512, CLASSES) and method.clusters.shape == (512,)
    assert (method.predict(copies[0]) == method.clusters).mean() > 0.95


def test_n2d_gives_other_points_the_clusters_of_their_like(fitted):
    patterns, labels = prints(points=640)
    assert (
        fitted["N2D"].predict(patterns[512:]) == fitted["N2D"].clusters[:CLASSES][labels[512:]]
    ).mean() > 0.95


def test_n2d_is_set_up_as_its_paper_says(copies, autoencoder, monkeypatch):
    import sklearn.mixture
    import umap

    seen = {}

    class StandIn:
        def __init__(self, **settings):
            seen["umap"] = settings

        def fit_transform(self, codes):
            seen["codes"] = codes
            return codes[:, ::-1]

    def mixture(k, **settings):
        seen["mixture"] = k, settings
        return GaussianMixture(k, **settings)

    monkeypatch.setattr(umap, "UMAP", StandIn)
    monkeypatch.setattr(sklearn.mixture, "GaussianMixture", mixture)
    method = N2D(CLASSES, seed=42).fit(copies[0], autoencoder=autoencoder)
    own = {
        "n_components": CLASSES,
        "n_neighbors": 20,
        "min_dist": 0.0,
        "random_state": named_seed(42, "umap"),
        "n_jobs": 1,
    }
    assert seen["umap"] == own, "euclidean distances, UMAP's default"
    codes = forward(autoencoder, copies[0], layer="code")
    moved = np.linalg.norm(seen["codes"] - codes, axis=1) / np.linalg.norm(codes, axis=1)
    assert ((moved > 0) & (moved < 5e-3)).all(), "ties are broken by a thousandth"
    assert np.array_equal(method.manifold, seen["codes"][:, ::-1])
    k, settings = seen["mixture"]
    assert (
        k == CLASSES
        and settings.get("covariance_type", "full") == "full"
        and settings["random_state"] == named_seed(42, "centroids")
    )
    assert clustering_accuracy(copies[1], method.clusters) > 0.95, "it is the map that is clustered"


# ---------------------------------------------------------------- what they find


@pytest.mark.parametrize("seed", [42, 73])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_classes_that_lie_apart(copies, fitted, start_for, method, seed):
    features, labels = copies
    found = (
        fitted[method]
        if seed == 42
        else fit_from(METHODS[method](CLASSES, seed=seed), *start_for(method, seed))
    )
    clusters = found.predict(features)
    assert (
        clusters.shape == (512,)
        and np.issubdtype(clusters.dtype, np.integer)
        and set(clusters) == set(range(CLASSES))
    )
    assert clustering_accuracy(labels, clusters) >= 0.95 and found.diverged == ""
    codes = found.transform(features)
    assert codes.shape == (512, CLASSES) and codes.dtype == np.float32


def test_the_networks_of_the_papers_size_find_them_too():
    features, labels = prints(points=BATCH_SIZE)
    starts = {}
    for normalize in (True, False):
        epochs = 60 if normalize else 25
        starts[normalize], history = pretrain(
            features, 10, epochs=epochs, seed=42, normalize=normalize
        )
        assert history.curve["loss"].iloc[-1] < 0.6 * history.curve["loss"].iloc[0]
    for method, least in (
        (DEC(CLASSES, seed=42, max_steps=8), 0.95),
        (IDEC(CLASSES, seed=42, max_steps=8, learning_rate=1e-4), 0.95),
        (VaDE(CLASSES, seed=42, epochs=8), 0.7),
    ):
        start = starts[method._NORMALIZED]
        # VaDE's first steps, at the paper's rate, can throw two of the four clusters together
        assert (
            clustering_accuracy(labels, method.fit(features, autoencoder=start).predict(features))
            >= least
        ), type(method).__name__


@pytest.mark.parametrize("method", TRAINED)
def test_real_digits_are_clustered_better_than_by_k_means_on_the_codes_that_it_starts_from(
    digits, method
):
    features, labels, start = digits[0], digits[1], digits[2][method]
    codes = forward(start, features * np.float32(start.scale or 1), layer="code")
    kmeans = clustering_accuracy(labels, KMeans(10, n_init=20, random_state=0).fit_predict(codes))
    found = {
        "DEC": DEC(10, seed=42, max_steps=1000),
        "IDEC": IDEC(10, seed=42, max_steps=1000, gamma=6.4),  # 0.1 D, as in its authors' code
        "VaDE": VaDE(10, seed=42, epochs=30),
    }[method]
    clusters = found.fit(features, autoencoder=start).predict(features)
    assert len(set(clusters)) == 10 and clustering_accuracy(labels, clusters) > kmeans + 0.02


@pytest.mark.parametrize("method", ["DEC", "IDEC"])
def test_training_makes_the_assignments_surer(digits, method):
    features, start = digits[0], digits[2][method]
    own = {"gamma": 6.4} if method == "IDEC" else {}  # 0.1 D, as in its authors' code
    memberships = [
        TRAINED[method](10, seed=42, max_steps=steps, **own)
        .fit(features, autoencoder=start)
        .memberships(features)
        for steps in (0, 140)
    ]
    before, after = (np.median(values.max(axis=1)) for values in memberships)
    assert after > before + 0.03


@pytest.mark.parametrize(("scale", "shift"), [(10, -5), (0.1, -0.05)])
@pytest.mark.parametrize("method", TRAINED)
def test_features_on_another_scale_are_clustered_too(copies, start_for, method, scale, shift):
    features, start = start_for(method, 42, scale, shift)
    found = {
        "DEC": DEC(CLASSES, seed=42, max_steps=30),
        "IDEC": IDEC(CLASSES, seed=42, max_steps=30),
        "VaDE": VaDE(CLASSES, seed=42, epochs=20),
    }[method]
    assert (
        clustering_accuracy(copies[1], found.fit(features, autoencoder=start).predict(features))
        >= 0.95
    )


# ---------------------------------------------------------------- seeds, and what is left alone


def everything(method):
    """All numbers of a fitted method, and what it says of the curve."""
    named = {
        name: torch.as_tensor(getattr(method, name)).detach()
        for name in ("centroids", "logits", "means", "log_variances", "manifold", "clusters")
        if hasattr(method, name)
    }
    return named | {"weights": weights(method.autoencoder)}


@pytest.mark.parametrize("method", BRIEF)
def test_the_same_seed_gives_the_same_bits_whatever_ran_before_and_another_seed_others(
    copies, autoencoder, method
):
    features = (
        copies[0][:100] if method == "N2D" else copies[0]
    )  # two batches an epoch, whose order is a part of the seed
    first = BRIEF[method](CLASSES, seed=42).fit(features, autoencoder=autoencoder)
    torch.manual_seed(999)  # global random states, which nothing may draw from
    np.random.seed(999)  # noqa: NPY002
    again, other = (
        BRIEF[method](CLASSES, seed=seed).fit(features, autoencoder=autoencoder)
        for seed in (42, 73)
    )
    found, same, another = everything(first), everything(again), everything(other)
    assert all(torch.equal(found[name], same[name]) for name in found) and first.curve.equals(
        again.curve
    )
    assert np.array_equal(first.predict(features), again.predict(features))
    moved = "manifold" if method == "N2D" else "weights"
    assert not torch.equal(found[moved], another[moved])


@pytest.mark.parametrize("method", BRIEF)
def test_a_fit_leaves_the_global_random_states_alone(copies, autoencoder, method):
    before = random_states()
    BRIEF[method](CLASSES, seed=42).fit(copies[0][:100], autoencoder=autoencoder).predict(
        copies[0][:100]
    )
    assert_untouched(before)


@pytest.mark.parametrize("method", BRIEF)
@pytest.mark.parametrize("training", [True, False])
def test_the_autoencoder_that_a_fit_starts_from_stays_as_it_is(copies, method, training):
    start = pretrained(copies[0], epochs=1, normalize=method in NORMALIZED)[0].train(training)
    start.zero_grad()
    before = weights(start).clone()
    found = BRIEF[method](CLASSES, seed=42).fit(copies[0][:100], autoencoder=start)
    assert torch.equal(weights(start), before) and start.training == training
    assert all(parameter.grad is None for parameter in start.parameters())
    assert not {id(parameter) for parameter in start.parameters()} & {
        id(parameter) for parameter in found.autoencoder.parameters()
    }
    assert not found.autoencoder.training


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint8])
@pytest.mark.parametrize("method", BRIEF)
def test_features_of_another_type_are_the_same_features(copies, autoencoder, fitted, method, dtype):
    features = copies[0].astype(dtype)
    if method == "N2D":  # its fit takes seconds
        assert np.array_equal(fitted["N2D"].transform(features), fitted["N2D"].transform(copies[0]))
        return
    first, second = (
        BRIEF[method](CLASSES, seed=42).fit(x, autoencoder=autoencoder)
        for x in (copies[0], features)
    )
    assert np.array_equal(first.predict(copies[0]), second.predict(features))
    assert torch.equal(weights(first.autoencoder), weights(second.autoencoder))
    (one, _), (other, _) = (pretrained(x, epochs=1) for x in (copies[0], features))
    assert torch.equal(weights(one), weights(other))


@pytest.mark.parametrize(("progress", "shown"), [(None, False), ("digits of seed 42", True)])
@pytest.mark.parametrize("method", TRAINED)
def test_a_progress_bar_appears_only_when_asked_for(
    copies, autoencoder, capsys, method, progress, shown
):
    BRIEF[method](CLASSES, progress=progress).fit(copies[0], autoencoder=autoencoder)
    assert ("digits of seed 42" in capsys.readouterr().err) is shown


# ---------------------------------------------------------------- edges


@pytest.mark.parametrize("method", BRIEF)
def test_one_cluster_holds_every_point(copies, autoencoder, method):
    features = copies[0][:60]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="umap")
        found = BRIEF[method](1).fit(features, autoencoder=autoencoder)
    assert set(found.predict(features)) == {0} and found.diverged == ""


@pytest.mark.parametrize("method", ["DEC", "IDEC", "VaDE"])
def test_as_many_clusters_as_points_are_possible(copies, autoencoder, method):
    features = copies[0][:12]
    found = BRIEF[method](12).fit(features, autoencoder=autoencoder)
    clusters = found.predict(features)
    assert (
        clusters.shape == (12,)
        and 0 <= clusters.min() <= clusters.max() < 12
        and found.diverged == ""
    )
    if method in NORMALIZED:
        found = BRIEF[method](12, max_steps=0).fit(features, autoencoder=autoencoder)
        assert len(set(found.predict(features))) == 12, "each starts at a point of its own"


def test_n2d_needs_two_points_more_than_clusters(copies, autoencoder, monkeypatch):
    told = "at least the number of clusters and 2 more, 13, got 12"
    with pytest.raises(ValueError, match=told), monkeypatch.context() as trained:
        trained.setattr(deep_clustering, "pretrain", None)  # it is told before that
        BRIEF["N2D"](11).fit(copies[0][:12])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="umap")
        assert BRIEF["N2D"](10).fit(copies[0][:12], autoencoder=autoencoder).manifold.shape == (
            12,
            10,
        )


@pytest.mark.parametrize("method", BRIEF)
@pytest.mark.parametrize("k", [13, 0, -1, True, 4.0, "4", None])
def test_a_number_of_clusters_that_is_none_is_refused(copies, autoencoder, method, k):
    with pytest.raises(
        ValueError,
        match=(
            "the number of clusters must be a whole number from 1 to the number of points, 12, got"
            f" {k!r}"
        ),
    ):
        BRIEF[method](k).fit(copies[0][:12], autoencoder=autoencoder)


BAD = {  # features, what an estimator says of them, and what pretrain says
    "not a number": (
        np.where(np.arange(WIDTH) == 3, np.nan, np.zeros((20, WIDTH))),
        "Input X contains NaN: X must be finite numbers",
        "features must be finite, got nan among them",
    ),
    "without end": (
        np.where(np.arange(WIDTH) == 3, -np.inf, np.zeros((20, WIDTH))),
        "Input X contains infinity .*: X must be finite numbers",
        "features must be finite, got -inf among them",
    ),
    "one axis": (
        np.zeros(WIDTH),
        r"Expected 2D array, got 1D array instead: X must be finite numbers \[N, D\]$",
        r"features must be a numeric array \[N, D\], got float64 of shape \(100,\)",
    ),
    "three axes": (
        np.zeros((2, 10, WIDTH)),
        "Found array with dim 3, while dim <= 2 is required",
        r"features must be a numeric array \[N, D\], got float64 of shape \(2, 10, 100\)",
    ),
    "text": (
        np.full((20, WIDTH), "0"),
        "not compatible with arrays of bytes/strings",
        r"features must be a numeric array \[N, D\], got <U1",
    ),
    "none": (np.zeros((0, WIDTH)), r"0 sample\(s\)", "empty"),
}


@pytest.mark.parametrize("method", BRIEF)
@pytest.mark.parametrize("bad", BAD)
def test_bad_features_are_refused_by_fit_and_by_predict(autoencoder, fitted, method, bad):
    features, said, _ = BAD[bad]
    with pytest.raises(ValueError, match=said):
        BRIEF[method](2).fit(features, autoencoder=autoencoder)
    for use in (fitted[method].predict, fitted[method].transform):
        with pytest.raises(ValueError, match=said):
            use(features)


@pytest.mark.parametrize("bad", BAD)
def test_bad_features_are_refused_by_pretraining(bad):
    features, _, said = BAD[bad]
    with pytest.raises(ValueError, match=said):
        pretrained(features)


def test_no_features_at_all_are_called_that():
    with pytest.raises(ValueError, match="features") as caught:
        pretrained(np.zeros((0, WIDTH)))
    assert "clusters" not in str(caught.value)


@pytest.mark.parametrize("method", ["DEC", "VaDE"])
def test_features_of_another_width_than_the_autoencoders_are_refused(copies, autoencoder, method):
    with pytest.raises(
        ValueError,
        match=r"features must be \[N, 100\], which the autoencoder was made for, got \(\d+, 50\)",
    ):
        BRIEF[method](2).fit(copies[0][:, :50], autoencoder=autoencoder)
    with pytest.raises(ValueError, match=r"X has 50 features, but .* is expecting 100"):
        BRIEF[method](2).fit(copies[0], autoencoder=autoencoder).predict(copies[0][:, :50])


# ---------------------------------------------------------------- fits that break


def breaking(kind, at):
    """A method whose loss is not a number from one batch on."""

    class Breaking(kind):
        batches = 0

        def _loss(self, *batch):
            self.batches += 1
            return super()._loss(*batch) * (math.nan if self.batches > at else 1)

    return Breaking


@pytest.mark.parametrize("kind", [DEC, IDEC])
def test_a_loss_of_dec_that_is_not_a_number_is_reported_with_the_curve_so_far(
    copies, autoencoder, kind
):
    found = breaking(kind, 5)(CLASSES, seed=42, max_steps=20, update_interval=2, tolerance=0).fit(
        copies[0], autoencoder=autoencoder
    )
    assert found.diverged == "the loss was nan at step 6"
    assert found.curve["step"].tolist() == [0, 2, 4, 6] and found.curve["loss"].isna().tolist() == [
        False,
        False,
        False,
        True,
    ]
    assert not found.autoencoder.training


def test_a_loss_of_vade_that_is_not_a_number_is_reported_with_the_curve_so_far(copies, autoencoder):
    found = breaking(VaDE, 5)(CLASSES, seed=42, epochs=20).fit(copies[0], autoencoder=autoencoder)
    assert found.diverged == "the loss was nan in epoch 2"  # the sixth of two batches an epoch
    assert found.curve["epoch"].tolist() == [0, 1, 2] and found.curve["loss"].isna().tolist() == [
        False,
        False,
        True,
    ]
    assert not found.autoencoder.training


@pytest.mark.parametrize("kind", TRAINED)
def test_a_fit_that_went_well_does_not_say_that_it_diverged(fitted, kind):
    assert (
        fitted[kind].diverged == ""
        and fitted[kind].curve["loss"].notna().all()
        and isinstance(fitted[kind].curve, pd.DataFrame)
    )


@pytest.mark.parametrize("kind", TRAINED)
def test_a_fit_that_breaks_in_its_very_last_step_is_reported_too(copies, autoencoder, kind):
    class BadGradient({"DEC": DEC, "IDEC": IDEC, "VaDE": VaDE}[kind]):
        def _loss(self, *batch):  # finite, and its gradient is not: sqrt has an infinite slope at 0
            loss = super()._loss(*batch)
            return loss + (0 * loss).abs().sqrt()

    own = {"epochs": 1} if kind == "VaDE" else {"max_steps": 1}
    found = BadGradient(CLASSES, seed=42, **own).fit(
        copies[0][:BATCH_SIZE], autoencoder=autoencoder
    )
    assert not weights(found.autoencoder.encoder).isfinite().all(), "the case is the one meant"
    assert found.diverged


@pytest.mark.parametrize("kind", TRAINED)
def test_a_method_whose_fit_diverged_can_be_fitted_again(copies, autoencoder, monkeypatch, kind):
    found = BRIEF[kind](
        CLASSES, seed=42, **({} if kind == "VaDE" else {"update_interval": 2, "tolerance": 0})
    )
    with monkeypatch.context() as patch:
        patch.setattr(
            type(found), "_loss", lambda self, x, *_: self.autoencoder(x)[0].mean() * math.nan
        )
        found.fit(copies[0], autoencoder=autoencoder)
    assert "nan" in found.diverged, "the case is the one meant"
    found.fit(copies[0], autoencoder=autoencoder)
    assert found.diverged == "" and len(found.curve) == 3


def test_an_autoencoder_of_other_features_or_of_another_kind_is_refused():
    x = np.random.default_rng(0).random((60, 5))
    autoencoder, _ = pretrain(x, 2, epochs=1)
    with pytest.raises(ValueError, match=r"of features in \[0, 1\], and X has others"):
        VaDE(3, epochs=1).fit(20 * x - 10, autoencoder=autoencoder)
    with pytest.raises(TypeError, match="one that pretrain returned, got Autoencoder"):
        N2D(3).fit(x, autoencoder=Autoencoder(5))
