"""Deep clustering: equations against values worked out by hand, what a fit leaves alone, and that
each method finds classes that lie apart.
"""

import math
import warnings
from functools import cache, partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.mixture import GaussianMixture
from torch import distributions as D

from snnl_book.methods.deep_clustering import (
    DEC,
    IDEC,
    N2D,
    ClusteringAutoencoder,
    VaDE,
    autoencoder,
    dec,
    n2d,
    pretrain,
    soft_assignment,
    target_distribution,
    vade,
)
from snnl_lib.metrics import clustering_accuracy
from snnl_lib.models import Autoencoder
from snnl_lib.seeds import BATCH_SIZE
from snnl_lib.training import build, forward, named_seed

CLASSES, WIDTH = 4, 100
NORMALIZED = ("DEC", "IDEC")
TRAINED = {"DEC": DEC, "IDEC": IDEC, "VaDE": VaDE}
BRIEF = {
    "DEC": partial(DEC, max_steps=6),
    "IDEC": partial(IDEC, max_steps=6),
    "VaDE": partial(VaDE, epochs=3),
    "N2D": N2D,
}


class Narrow(ClusteringAutoencoder):
    """The autoencoder with layers of 32, 16 and 32 units, which the methods accept as well."""

    def __init__(self, in_features, code_size, *, unit_range=False, scale=None):
        Autoencoder.__init__(self, in_features, (32, 16, 32), code_size, linear_code=True)
        self.unit_range, self.scale = unit_range, scale


def pretrained(features, code_size=CLASSES, epochs=60, seed=42, **settings):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(autoencoder, "ClusteringAutoencoder", Narrow)
        return pretrain(features, code_size, epochs=epochs, seed=seed, **settings)


def prints(points=512, flipped=0.1, seed=0):
    """Four patterns of a hundred black or white pixels, a tenth of each copy's pixels flipped."""
    random = np.random.default_rng(seed)
    patterns, labels = random.random((CLASSES, WIDTH)) < 0.5, np.arange(points) % CLASSES
    features = patterns[labels] ^ (random.random((points, WIDTH)) < flipped)
    return features.astype(np.float32), labels


@pytest.fixture(autouse=True)
def one_thread():
    """UMAP sets torch back to all cores."""
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def copies():
    return prints()


@pytest.fixture(scope="module")
def start_for(copies):
    """Pretrain an autoencoder once: (method, scale, shift) -> (features, autoencoder)."""

    @cache
    def start(normalize, scale, shift):
        features = copies[0] * np.float32(scale) + np.float32(shift)
        epochs = 300 if normalize else 60 if scale == 1 else 100
        return features, pretrained(features, epochs=epochs, normalize=normalize)[0]

    return lambda name, scale=1, shift=0: start(name in NORMALIZED, scale, shift)


@pytest.fixture(scope="module")
def fitted(copies, start_for):
    """One fit of each method to the copies."""
    methods = {
        "DEC": DEC(CLASSES, seed=42, max_steps=150),
        "IDEC": IDEC(CLASSES, seed=42, max_steps=150),
        "VaDE": VaDE(CLASSES, seed=42, epochs=40),
        "N2D": N2D(CLASSES, seed=42),
    }
    for name, method in methods.items():
        features, start = start_for(name)
        method.fit(features, autoencoder=start)
    return methods


def weights(*modules):
    parameters = [parameter for module in modules for parameter in module.parameters()]
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


def codes_of(start, features):
    return forward(start, features * np.float32(start.scale or 1), layer="code")


@pytest.fixture
def adam_rates(monkeypatch):
    """The learning rate of each step of Adam."""
    rates, step = [], torch.optim.Adam.step

    def noting(self, *args, **settings):
        rates.append(self.param_groups[0]["lr"])
        return step(self, *args, **settings)

    monkeypatch.setattr(torch.optim.Adam, "step", noting)
    return rates


# ---------------------------------------------------------------- the autoencoder


def test_the_autoencoder_is_that_of_the_papers_with_a_linear_code():
    model = ClusteringAutoencoder(784, 10)
    layers = [*model.encoder, model.code, *model.decoder, model.output]
    assert [layer.out_features for layer in layers] == [500, 500, 2000, 10, 2000, 500, 500, 784]
    code = model(torch.randn(50, 784))[1]["code"]
    assert code.min() < 0 and code.max() > 1


def test_the_reconstruction_and_its_error_value_by_value():
    output, x = torch.tensor([[0.0, 2.0, -1.0]]), torch.tensor([[1.0, 0.25, 0.0]])
    p = [0.5, 1 / (1 + math.exp(-2)), 1 / (1 + math.e)]
    entropy = -np.array(x * np.log(p) + (1 - x) * np.log1p(-np.array(p)))
    squares = [[0.5, 1.75**2 / 2, 0.5]]
    for unit_range, shown, error in ((True, [p], entropy), (False, output, squares)):
        model = Narrow(3, 2, unit_range=unit_range)
        np.testing.assert_allclose(model.reconstruct(output), shown, rtol=1e-6)
        np.testing.assert_allclose(model.error(output, x), error, rtol=1e-6)


def test_features_within_0_and_1_are_reconstructed_by_a_logistic_output():
    for low, high, unit_range in (
        (0, 1, True),
        (0.5, 0.5, True),
        (0, 1.001, False),
        (-1, 1, False),
    ):
        features = np.linspace(low, high, 40).reshape(8, 5)
        assert pretrained(features, 2, epochs=1)[0].unit_range is unit_range


def test_pretraining_lowers_the_mean_error_of_the_first_weights_and_depends_on_its_seed(copies):
    for scale, shift in ((1, 0), (10, -5)):
        x = copies[0][:BATCH_SIZE] * np.float32(scale) + np.float32(shift)
        model, history = pretrained(x, 3, epochs=30, seed=5)
        first = build(Narrow, WIDTH, 3, unit_range=model.unit_range, seed=5)
        features = torch.as_tensor(x)
        error = first.error(first(features)[0], features).mean().item() * (2 if shift else 1)
        losses = history.curve["loss"]
        assert losses.iloc[0] == pytest.approx(error, rel=1e-5), "one batch an epoch"
        assert len(losses) == 30 and losses.iloc[-1] < 0.95 * losses.iloc[0]
        again, other = (pretrained(x, 3, epochs=30, seed=seed)[0] for seed in (5, 6))
        assert torch.equal(weights(model), weights(again))
        assert not torch.equal(weights(model), weights(other))


def test_pretraining_that_breaks_says_so(copies, monkeypatch):
    broken = lambda output, x, labels: output.mean() * math.nan  # noqa: E731
    monkeypatch.setattr("snnl_lib.training.binary_cross_entropy", broken)
    assert "the loss was nan in epoch 0" in pretrained(copies[0], epochs=3)[1].diverged


def test_one_number_scales_normalised_features_to_a_mean_square_of_1(copies):
    for scale, shift in ((1, 0), (10, -5), (0.003, 0), (1e6, 0)):
        x = copies[0] * np.float32(scale) + np.float32(shift)
        model, _ = pretrained(x, 3, epochs=1, normalize=True)
        assert ((x.astype(np.float64) * model.scale) ** 2).mean() == pytest.approx(1)
        assert not model.unit_range
    with pytest.raises(ValueError, match="must not all be 0"):
        pretrained(np.zeros((20, 5)), 2, normalize=True)


@pytest.mark.parametrize("points", [200, 600])
def test_pretraining_takes_as_many_updates_as_asked_for_whatever_the_points(points, adam_rates):
    pretrained(prints(points=points)[0], epochs=200, normalize=True, updates=7)
    assert len(adam_rates) == 7


def test_features_on_another_scale_are_the_same_features_for_dec_and_idec(copies):
    for name in NORMALIZED:
        memberships = []
        for factor in (1, 10):
            x = copies[0] * np.float32(factor)
            start = pretrained(x, epochs=20, normalize=True)[0]
            method = BRIEF[name](CLASSES, seed=42).fit(x, autoencoder=start)
            memberships.append(method.memberships(x))
            np.testing.assert_array_equal(  # later points are scaled as in the pretraining
                method.transform(x[:3]), codes_of(method.autoencoder, x[:3])
            )
        np.testing.assert_allclose(*memberships, atol=1e-3)


def test_an_autoencoder_that_does_not_fit_is_refused(copies, start_for):
    features = copies[0]
    for name in TRAINED:
        wrong = start_for("VaDE" if name in NORMALIZED else "DEC")[1]
        with pytest.raises(
            ValueError, match=rf"{name} needs an autoencoder from .*normalize={name in NORMALIZED}"
        ):
            BRIEF[name](CLASSES).fit(features, autoencoder=wrong)
    start = start_for("VaDE")[1]
    with pytest.raises(TypeError, match=r"fit\(X, autoencoder=\.\.\.\)"):
        VaDE(CLASSES).fit(features, start)
    with pytest.raises(ValueError, match=r"features in \[0, 1\], but X has values from -10 to 10"):
        VaDE(CLASSES).fit(20 * features - 10, autoencoder=start)
    with pytest.raises(ValueError, match=r"\[N, 100\].*got \(512, 50\)"):
        VaDE(CLASSES).fit(features[:, :50], autoencoder=start)
    with pytest.raises(TypeError, match="got Autoencoder"):
        N2D(CLASSES).fit(features, autoencoder=Autoencoder(WIDTH))


def test_n2d_takes_an_autoencoder_of_either_kind(copies, start_for, monkeypatch):
    monkeypatch.setattr(n2d, "fit_umap", lambda vectors, seed, **settings: (None, vectors))
    for name in ("DEC", "VaDE"):
        start = start_for(name)[1]
        found = N2D(CLASSES, seed=42).fit(copies[0], autoencoder=start)
        np.testing.assert_array_equal(found.manifold, codes_of(start, copies[0]))


def test_n2d_gives_equal_rows_one_cluster_and_keeps_the_position_of_others(copies, monkeypatch):
    random = np.random.default_rng(0)
    monkeypatch.setattr(
        n2d, "fit_umap", lambda x, seed, **settings: (None, random.normal(size=(len(x), CLASSES)))
    )
    start = pretrained(copies[0], 20, epochs=1)[0]  # codes too wide for a tree by default
    alone = N2D(CLASSES, seed=42).fit(copies[0], autoencoder=start)
    np.testing.assert_array_equal(alone.map.predict(alone.fitted_codes), alone.manifold)
    np.testing.assert_array_equal(alone.labels_, alone.mixture.predict(alone.manifold))
    twice = np.repeat(copies[0][:60], 2, axis=0)
    found = N2D(CLASSES, seed=42).fit(twice, autoencoder=start)
    np.testing.assert_array_equal(found.labels_[::2], found.labels_[1::2])
    np.testing.assert_array_equal(found.predict(twice), found.labels_)


# ---------------------------------------------------------------- DEC's equations


def test_soft_assignments_are_equation_1_point_by_point():
    random = np.random.default_rng(0)
    codes, centroids = 3 * random.normal(size=(40, 5)), 3 * random.normal(size=(6, 5))
    found = soft_assignment(torch.as_tensor(codes), torch.as_tensor(centroids)).numpy()
    for i, code in enumerate(codes):
        nearness = [1 / (1 + ((code - centroid) ** 2).sum()) for centroid in centroids]
        np.testing.assert_allclose(found[i], np.array(nearness) / sum(nearness), rtol=1e-12)
    # By way of the scalar product these distances would be 0 or 2 in float32.
    far, centroids = torch.tensor([[4096.0, 1.0]]), torch.tensor([[4096.0, 0.5], [4096.0, 0.0]])
    torch.testing.assert_close(soft_assignment(far, centroids), torch.tensor([[0.8, 0.5]]) / 1.3)


def test_the_gradient_of_an_assignment_is_right_and_finite_where_a_code_is_a_centroid():
    random = np.random.default_rng(0)
    inputs = [
        torch.tensor(random.normal(size=size), requires_grad=True) for size in ((4, 3), (2, 3))
    ]
    assert torch.autograd.gradcheck(soft_assignment, inputs)
    same = torch.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True)
    soft_assignment(same, torch.tensor([[1.0, 2.0], [0.0, 0.0]]))[:, 0].log().sum().backward()
    # q = 1 / (1 + 1 / (1 + |z|²)) of the first code only moves with its distance from the second
    # centroid.
    z = torch.tensor([1.0, 2.0])
    torch.testing.assert_close(same.grad[0], 2 * z / (1 + z @ z) / (2 + z @ z))


def test_targets_are_equation_3_point_by_point_also_for_an_empty_cluster():
    q = np.random.default_rng(0).dirichlet(np.ones(5), size=30)
    found = target_distribution(torch.as_tensor(q)).numpy()
    squares = q**2 / q.sum(axis=0)
    np.testing.assert_allclose(found, squares / squares.sum(axis=1, keepdims=True), rtol=1e-12)
    for dtype in (torch.float32, torch.float64):
        q = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0]], dtype=dtype)
        p = target_distribution(q)
        torch.testing.assert_close(p[:, :2], target_distribution(q[:, :2]))
        assert p[:, 2].tolist() == [0, 0]


@pytest.mark.parametrize("kind", [DEC, IDEC])
def test_a_fit_is_k_means_and_then_the_papers_steps_spelt_out(copies, start_for, kind):
    start = start_for(kind.__name__)[1]
    x = torch.as_tensor(copies[0])
    x = x / x.square().mean().sqrt()
    settings = {"update_interval": 3, "tolerance": 0, "seed": 42}
    method = kind(CLASSES, max_steps=7, **settings).fit(copies[0], autoencoder=start)

    model = build(Narrow, WIDTH, CLASSES, seed=0)
    model.load_state_dict(start.state_dict())
    kmeans = KMeans(CLASSES, n_init=20, random_state=named_seed(42, "centroids"))
    kmeans.fit(forward(model, x, layer="code"))
    unmoved = kind(CLASSES, max_steps=0, seed=42).fit(copies[0], autoencoder=start)
    np.testing.assert_array_equal(unmoved.predict(copies[0]), kmeans.labels_)
    centroids = torch.tensor(kmeans.cluster_centers_, dtype=torch.float32, requires_grad=True)
    parameters = [*model.parameters(), centroids]
    optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
    if kind is IDEC:
        optimizer = torch.optim.Adam(parameters, lr=0.001)
    order = torch.Generator().manual_seed(named_seed(42, "batches"))
    batches = [batch for _ in range(4) for batch in torch.randperm(512, generator=order).split(256)]
    for step, batch in enumerate(batches[:7]):
        if step % 3 == 0:
            with torch.no_grad():
                target = target_distribution(soft_assignment(model(x)[1]["code"], centroids))
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
    assert (weights(model) - weights(start)).abs().max() > 1e-3, "it has moved"


def test_memberships_are_soft_assignments_and_only_idec_trains_the_decoder(
    copies, fitted, start_for
):
    for name in NORMALIZED:
        method, start = fitted[name], start_for(name)[1]
        codes = torch.as_tensor(codes_of(method.autoencoder, copies[0]))
        expected = soft_assignment(codes, method.centroids).detach().numpy()
        found = method.memberships(copies[0])
        assert found.shape == (512, CLASSES) and found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        np.testing.assert_array_equal(method.predict(copies[0]), expected.argmax(axis=1))
        decoders = [weights(each.decoder, each.output) for each in (method.autoencoder, start)]
        assert torch.equal(*decoders) == (name == "DEC")


@pytest.mark.parametrize("kind", [DEC, IDEC])
def test_it_takes_at_most_so_many_steps_and_the_curve_has_a_row_for_each_update(
    copies, start_for, monkeypatch, kind
):
    steps, targets = [], []
    loss, sharpen = kind._loss, dec.target_distribution
    monkeypatch.setattr(kind, "_loss", lambda *batch: steps.append(1) or loss(*batch))
    monkeypatch.setattr(dec, "target_distribution", lambda q: targets.append(1) or sharpen(q))
    for max_steps, tolerance, taken, rows in (
        (23, 0.0, 23, [0, 5, 10, 15, 20]),
        (20, 0.0, 20, [0, 5, 10, 15]),
        (23, 1.1, 5, [0, 5]),
        (0, 0.0, 0, []),
    ):
        steps.clear()
        targets.clear()
        method = kind(CLASSES, max_steps=max_steps, update_interval=5, tolerance=tolerance)
        method.fit(copies[0], autoencoder=start_for(kind.__name__)[1])
        assert len(steps) == taken and len(targets) == len(rows)
        assert method.diverged == "" and not method.autoencoder.training
        if rows:
            assert list(method.curve.columns) == ["step", "loss", "changed"]
            assert method.curve["step"].tolist() == rows
            assert method.curve["changed"].iloc[0] == 0, "the first assignments are k-means'"


def test_it_ends_when_fewer_than_the_tolerance_have_changed_their_cluster(copies, start_for):
    class Scripted(DEC):
        """One of ten points changes its cluster at the second update, none later."""

        asked = -1

        def _memberships(self, features):
            self.asked += 1
            clusters = np.arange(10) % 2
            clusters[0] = self.asked > 0
            return np.where(np.eye(2)[clusters] > 0, np.float32(0.9), np.float32(0.1))

    for tolerance, rows in ((0.11, 2), (0.1, 3), (0.01, 3), (0.0, 5)):
        method = Scripted(2, max_steps=10, update_interval=2, tolerance=tolerance)
        method.fit(copies[0][:10], autoencoder=start_for("DEC")[1])
        assert method.curve["step"].tolist() == list(range(0, 2 * rows, 2))
        assert method.curve["changed"].tolist()[1:] == [0.1, 0, 0, 0][: rows - 1]
    # Two clusters of five, and each point belongs to its own by 0.9: the targets are 81 to 1.
    divergence = (0.81 * math.log(0.81 / 0.82 / 0.9) + 0.01 * math.log(0.01 / 0.82 / 0.1)) / 0.82
    assert method.curve["loss"].iloc[0] == pytest.approx(divergence, rel=1e-5)


# ---------------------------------------------------------------- VaDE


@pytest.fixture
def mixture(copies, start_for):
    """A VaDE that has only been started, with random numbers for its mixture and variances."""
    method = VaDE(CLASSES, seed=42, epochs=0).fit(copies[0], autoencoder=start_for("VaDE")[1])
    random = torch.Generator().manual_seed(0)
    own = [method.logits, method.means, method.log_variances, *method.spread.parameters()]
    for parameter in own:
        parameter.data = torch.randn(parameter.shape, generator=random)
    method.spread.weight.data /= 10
    return method


def test_the_joint_density_is_that_of_a_gaussian_mixture(mixture):
    codes = 2 * torch.randn(30, CLASSES, generator=torch.Generator().manual_seed(1))
    parts = D.Independent(D.Normal(mixture.means, (mixture.log_variances / 2).exp()), 1)
    expected = D.Categorical(logits=mixture.logits).logits + parts.log_prob(codes[:, None])
    torch.testing.assert_close(mixture.log_joint(codes), expected, rtol=1e-5, atol=1e-4)


def test_vades_loss_is_the_reconstruction_and_two_divergences_for_the_same_noise(copies, mixture):
    for unit_range in (True, False):
        mixture.autoencoder.unit_range = unit_range
        x = torch.as_tensor(copies[0][:40])
        x = 0.2 + 0.6 * x if unit_range else 3 * x - 1  # grey values, not only 0 and 1
        found = mixture._loss(x, torch.Generator().manual_seed(5))

        code, hidden = mixture.autoencoder.encode(x)
        own = D.Normal(code, (mixture.spread(hidden["encoder3"]) / 2).exp())
        noise = torch.randn(code.shape, generator=torch.Generator().manual_seed(5))
        z = own.loc + own.scale * noise
        output = mixture.autoencoder.decode(z)[0]
        error = (output - x).square() / 2
        if unit_range:
            error = F.binary_cross_entropy(torch.sigmoid(output), x, reduction="none")
        prior = D.Categorical(logits=mixture.logits)
        parts = D.Normal(mixture.means, (mixture.log_variances / 2).exp())
        gamma = D.Categorical(logits=prior.logits + parts.log_prob(z[:, None]).sum(dim=2))
        points = D.Normal(own.loc[:, None], own.scale[:, None])
        to_parts = D.kl_divergence(points, parts).sum(dim=2)  # [B, k]
        expected = error.sum(dim=1) + (gamma.probs * to_parts).sum(dim=1)
        expected = (expected + D.kl_divergence(gamma, prior)).mean()
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-3)
        assert gamma.probs.amax(dim=1).min() < 0.9, "the clusters are weighed, not chosen"
        parameters = [mixture.logits, mixture.means, mixture.log_variances]
        parameters += [*mixture.spread.parameters(), *mixture.autoencoder.parameters()]
        gradients = [torch.autograd.grad(loss, parameters) for loss in (found, expected)]
        for ours, theirs in zip(*gradients, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


def test_vade_starts_from_a_gaussian_mixture_of_the_codes(copies, start_for):
    start = start_for("VaDE")[1]
    method = VaDE(CLASSES, seed=42, epochs=0).fit(copies[0], autoencoder=start)
    codes = codes_of(start, copies[0])
    settings = {"covariance_type": "diag", "n_init": 10}
    settings["random_state"] = named_seed(42, "centroids")
    expected = GaussianMixture(CLASSES, **settings).fit(codes)
    for ours, theirs in (
        (method.logits.softmax(dim=0), expected.weights_),
        (method.means, expected.means_),
        (method.log_variances.exp(), expected.covariances_),
    ):
        np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-4)
    np.testing.assert_array_equal(method.predict(copies[0]), expected.predict(codes))
    np.testing.assert_array_equal(method.transform(copies[0]), codes)
    variance = expected.weights_ @ expected.covariances_
    found = method.spread(torch.randn(5, 32)).exp().detach().numpy()
    np.testing.assert_allclose(found, np.tile(variance, (5, 1)), rtol=1e-4)


def test_an_epoch_of_vade_is_all_points_at_a_falling_rate(
    copies, start_for, monkeypatch, adam_rates
):
    start, seen = start_for("VaDE")[1], []
    adam_rates.clear()  # which trains the autoencoder, too

    def constant(self, x, noise):
        seen.append(x)
        return (self.means * 0).sum() + len(x)

    monkeypatch.setattr(VaDE, "_loss", constant)
    x = copies[0][:300]
    method = VaDE(CLASSES, epochs=25, lowest_rate=0.0017)
    method.fit(x, autoencoder=start)
    assert [len(batch) for batch in seen] == [256, 44] * 25, "the smaller last batch too"
    for epoch in range(3):
        rows = torch.cat(seen[2 * epoch : 2 * epoch + 2]).numpy()
        np.testing.assert_array_equal(np.unique(rows, axis=0), np.unique(x, axis=0))
    assert method.curve["epoch"].tolist() == list(range(25))
    assert method.curve["loss"].iloc[0] == pytest.approx((256 * 256 + 44 * 44) / 300)
    full = np.array([0.002] * 20 + [0.0018] * 20 + [0.0017] * 10)
    assert adam_rates == pytest.approx(full * np.arange(1, 51) / 100)
    adam_rates.clear()
    method.set_params(epochs=60).fit(x, autoencoder=start)
    assert adam_rates[98:100] == pytest.approx([0.0017 * 0.99, 0.0017])
    assert adam_rates[100:] == pytest.approx([0.0017] * 20)


def heaps(seed=0, each=60):
    """Points in three heaps that lie far apart, and their heaps."""
    labels = np.repeat([0, 1, 2], each)
    return 3 * labels[:, None] + np.random.default_rng(seed).normal(0, 0.3, (3 * each, 8)), labels


def test_vade_finds_three_far_heaps_with_its_defaults():
    points, labels = heaps()
    method = VaDE(3, pretrain_epochs=100).fit(points)
    assert clustering_accuracy(labels, method.labels_) == 1
    assert method.curve["loss"].iloc[-1] < method.curve["loss"].iloc[0]


@pytest.mark.parametrize("name", TRAINED)
def test_clusters_that_are_not_used_cause_a_warning(name, start_for):
    features, start = start_for(name)
    method = BRIEF[name](20, seed=42)
    with pytest.warns(
        UserWarning, match=r"^only \d+ of 20 clusters are used: try a smaller k"
    ) as caught:
        method.fit(np.tile(features[:6], (5, 1)), autoencoder=start)
    found = next(warning for warning in caught if "clusters are used" in str(warning.message))
    assert found.filename == __file__
    assert str(found.message).startswith(f"only {len(np.unique(method.labels_))} of 20 ")


def test_everything_of_vade_is_trained_with_noise_from_its_seed(copies, start_for, monkeypatch):
    features, start = start_for("VaDE")
    first, last = (
        VaDE(CLASSES, seed=42, epochs=epochs).fit(features, autoencoder=start) for epochs in (0, 2)
    )
    for name in ("logits", "means", "log_variances"):
        assert not torch.equal(getattr(first, name), getattr(last, name)), name
    for part in ("encoder", "code", "decoder", "output"):
        both = [weights(getattr(method.autoencoder, part)) for method in (first, last)]
        assert not torch.equal(*both), part
    assert not torch.equal(weights(first.spread), weights(last.spread))
    other_noise = lambda seed, name: named_seed(seed + (name == "noise"), name)  # noqa: E731
    monkeypatch.setattr(vade, "named_seed", other_noise)
    other = VaDE(CLASSES, seed=42, epochs=2).fit(features, autoencoder=start)
    assert (last.curve["loss"] != other.curve["loss"]).all()


# ---------------------------------------------------------------- N2D


def test_n2d_gives_points_and_their_like_the_same_clusters(copies, fitted):
    method = fitted["N2D"]
    assert method.manifold.shape == (512, CLASSES) and method.labels_.shape == (512,)
    assert (method.predict(copies[0]) == method.labels_).mean() > 0.95
    patterns, labels = prints(points=640)
    expected = method.labels_[:CLASSES][labels[512:]]
    assert (method.predict(patterns[512:]) == expected).mean() > 0.95


def test_n2d_is_set_up_as_its_paper_says(copies, start_for, monkeypatch):
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
    start = start_for("N2D")[1]
    method = N2D(CLASSES, seed=42).fit(copies[0], autoencoder=start)
    settings = {"n_components": CLASSES, "n_neighbors": 20, "min_dist": 0.0}
    assert seen["umap"] == settings | {"random_state": named_seed(42, "umap"), "n_jobs": 1}
    codes = codes_of(start, copies[0])
    moved = np.linalg.norm(seen["codes"] - codes, axis=1) / np.linalg.norm(codes, axis=1)
    assert ((moved > 0) & (moved < 5e-3)).all(), "ties are broken by a thousandth"
    np.testing.assert_array_equal(method.manifold, seen["codes"][:, ::-1])
    assert seen["mixture"] == (CLASSES, {"n_init": 10, "random_state": named_seed(42, "centroids")})
    assert clustering_accuracy(copies[1], method.labels_) > 0.95, "the map is clustered"


# ---------------------------------------------------------------- what they find


def test_every_method_finds_classes_that_lie_apart(copies, fitted):
    features, labels = copies
    for name, method in fitted.items():
        clusters, codes = method.predict(features), method.transform(features)
        assert np.issubdtype(clusters.dtype, np.integer), name
        assert clustering_accuracy(labels, clusters) >= 0.95 and method.diverged == "", name
        assert codes.shape == (512, CLASSES) and codes.dtype == np.float32
        if name in TRAINED:
            assert method.curve["loss"].notna().all()
    losses = fitted["VaDE"].curve["loss"]
    assert losses.iloc[-5:].mean() < losses.iloc[:5].mean() - 0.5


def test_features_on_another_scale_are_clustered_too(copies, start_for):
    # DEC and IDEC see the same features on any scale; to VaDE these are grey values no longer.
    features, start = start_for("VaDE", 10, -5)
    clusters = VaDE(CLASSES, seed=42, epochs=20).fit_predict(features, autoencoder=start)
    assert clustering_accuracy(copies[1], clusters) >= 0.95


def test_real_digits_are_clustered_better_than_by_k_means_on_the_codes():
    digits = load_digits()
    features, labels = (digits.data[:1024] / 16).astype(np.float32), digits.target[:1024]
    plain = pretrained(features, 10, epochs=80)[0]
    normalized = pretrained(features, 10, epochs=300, normalize=True)[0]
    for method, start in (
        (DEC(10, seed=42, max_steps=1000), normalized),
        (IDEC(10, seed=42, max_steps=1000, gamma=6.4), normalized),  # 0.1 D, as in its code
        (VaDE(10, seed=42, epochs=30), plain),
    ):
        kmeans = KMeans(10, n_init=20, random_state=0).fit_predict(codes_of(start, features))
        clusters = method.fit(features, autoencoder=start).predict(features)
        assert len(set(clusters)) == 10, method
        gain = clustering_accuracy(labels, clusters) - clustering_accuracy(labels, kmeans)
        assert gain > 0.02, method


# ---------------------------------------------------------------- seeds, and what is left alone


def everything(method):
    """All tensors of a fitted method."""
    names = ("centroids", "logits", "means", "log_variances", "manifold", "clusters")
    named = {name: getattr(method, name) for name in names if hasattr(method, name)}
    named = {name: torch.as_tensor(values).detach() for name, values in named.items()}
    return named | {"weights": weights(method.autoencoder)}


@pytest.mark.parametrize("name", BRIEF)
def test_a_seed_gives_the_same_bits_and_a_fit_leaves_everything_else_alone(copies, start_for, name):
    features = copies[0][:100] if name == "N2D" else copies[0]
    start = start_for(name)[1].train()
    start.zero_grad()
    before = weights(start).clone()
    state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = BRIEF[name](CLASSES, seed=42).fit(features, autoencoder=start)
    assert torch.equal(torch.get_rng_state(), state[0]), "torch's global random state has moved"
    np.testing.assert_array_equal(np.random.get_state()[1], state[1])  # noqa: NPY002
    assert torch.equal(weights(start), before) and start.training
    assert all(parameter.grad is None for parameter in start.parameters())
    assert not first.autoencoder.training

    torch.manual_seed(999)  # global states, which nothing may draw from
    np.random.seed(999)  # noqa: NPY002
    again, other = (
        BRIEF[name](CLASSES, seed=seed).fit(features.astype(np.float64), autoencoder=start)
        for seed in (42, 73)
    )
    found, same, another = everything(first), everything(again), everything(other)
    assert all(torch.equal(found[part], same[part]) for part in found)
    assert first.curve.equals(again.curve)
    moved = "manifold" if name == "N2D" else "weights"
    assert not torch.equal(found[moved], another[moved])


def test_a_progress_bar_appears_only_when_asked_for(copies, start_for, capsys):
    for name in TRAINED:
        for progress in (None, "digits of seed 42"):
            method = BRIEF[name](CLASSES, progress=progress)
            method.fit(copies[0], autoencoder=start_for(name)[1])
            assert ("digits of seed 42" in capsys.readouterr().err) is bool(progress), name


# ---------------------------------------------------------------- edges


@pytest.mark.parametrize("name", BRIEF)
def test_numbers_of_clusters_at_the_edges_and_beyond(copies, start_for, name):
    features, start = copies[0][:12], start_for(name)[1]
    most = 10 if name == "N2D" else 12
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="umap")
        for k, x in ((1, copies[0][:60]), (most, features)):
            found = BRIEF[name](k).fit(x, autoencoder=start)
            assert set(found.predict(x)) <= set(range(k)) and found.diverged == ""
    for k in (13, 0, -1, True, 4.0, "4", None):
        with pytest.raises(ValueError, match=rf"number of points \(12\), got {k!r}"):
            BRIEF[name](k).fit(features, autoencoder=start)
    if name == "N2D":
        with pytest.raises(ValueError, match=r"at least 13 \(the .*clusters plus 2\), got 12"):
            N2D(11).fit(features)  # before it pretrains


@pytest.mark.parametrize(
    ("name", "settings", "problem"),
    [
        (name, {setting: value}, f"{setting} must be a .* number .*, got {value}")
        for name, setting, values in (
            ("DEC", "max_steps", (1.5, -1, None)),
            ("DEC", "update_interval", (0, -1, 1.5, True)),
            ("DEC", "tolerance", (None, -1, math.nan)),
            ("DEC", "code_size", (0,)),
            ("IDEC", "update_interval", (0,)),
            ("IDEC", "learning_rate", (-1, math.nan, math.inf)),
            ("IDEC", "gamma", (-1, None)),
            ("VaDE", "epochs", (1.5, -1)),
            ("VaDE", "lowest_rate", (-1, None)),
        )
        for value in values
    ],
)
def test_settings_out_of_their_range_are_refused_before_the_pretraining(
    copies, monkeypatch, name, settings, problem
):
    monkeypatch.setattr("snnl_lib.training.train", lambda *_, **__: pytest.fail("it pretrains"))
    with pytest.raises(ValueError, match=problem):
        TRAINED[name](CLASSES, **settings).fit(copies[0])


BAD = {
    "NaN": np.where(np.arange(WIDTH) == 3, np.nan, np.zeros((20, WIDTH))),
    "infinity": np.where(np.arange(WIDTH) == 3, -np.inf, np.zeros((20, WIDTH))),
    "1D": np.zeros(WIDTH),
    "3": np.zeros((2, 10, WIDTH)),
    "strings": np.full((20, WIDTH), "0"),
    "0 sample": np.zeros((0, WIDTH)),
}
"""Bad features, by what the error must name."""


def test_bad_features_are_refused_by_fit_predict_transform_and_pretraining(fitted):
    for named, features in BAD.items():
        method = fitted["DEC"]
        for use in (DEC(2).fit, method.predict, method.transform):
            with pytest.raises(ValueError, match=named):
                use(features)
        with pytest.raises(ValueError, match="features must be"):
            pretrained(features)
    with pytest.raises(ValueError, match=r"X has 50 features, but .* is expecting 100"):
        fitted["DEC"].predict(np.zeros((3, 50)))


# ---------------------------------------------------------------- fits that break


@pytest.mark.parametrize("name", TRAINED)
def test_a_loss_that_is_not_a_number_ends_the_fit_and_another_fit_can_follow(
    copies, start_for, name
):
    class Breaking(TRAINED[name]):
        batches = 0

        def _loss(self, *batch):
            self.batches += 1
            return super()._loss(*batch) * (math.nan if 5 < self.batches <= 8 else 1)

    settings = {"max_steps": 20, "update_interval": 2, "tolerance": 0}
    time, rows, where = "step", [0, 2, 4, 6], "at step 6"
    if name == "VaDE":
        settings, time, rows, where = {"epochs": 20}, "epoch", [0, 1, 2], "in epoch 2"
    found = Breaking(CLASSES, seed=42, **settings)
    with pytest.warns(UserWarning, match=rf"broke down \(the loss was nan {where}\)"):
        found.fit(copies[0], autoencoder=start_for(name)[1])
    assert found.diverged == f"the loss was nan {where}"
    assert found.curve[time].tolist() == rows
    assert found.curve["loss"].isna().tolist() == [False] * (len(rows) - 1) + [True]
    assert not found.autoencoder.training
    found.batches = 100
    assert found.fit(copies[0], autoencoder=start_for(name)[1]).diverged == ""


@pytest.mark.parametrize("name", TRAINED)
def test_a_fit_that_breaks_in_its_very_last_step_is_reported_too(copies, start_for, name):
    class BadGradient(TRAINED[name]):
        def _loss(self, *batch):  # finite, but the slope of sqrt at 0 is not
            loss = super()._loss(*batch)
            return loss + (0 * loss).abs().sqrt()

    settings = {"epochs": 1} if name == "VaDE" else {"max_steps": 1}
    method = BadGradient(CLASSES, seed=42, **settings)
    with pytest.warns(UserWarning, match="the training broke down") as caught:
        method.fit(copies[0][:BATCH_SIZE], autoencoder=start_for(name)[1])
    assert [warning.filename for warning in caught] == [__file__], "it points at the call"
    assert not weights(method.autoencoder.encoder).isfinite().all(), "the case is the one meant"
    assert method.diverged
