"""The training loop: the same seed gives the same bits, runs of a seed are paired, and a run that
breaks says so.
"""

import math
import pickle
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from snnl_lib.checkpoint import CacheError
from snnl_lib.losses import FEW_CLASS_MATES, annealed_temperature, soft_nearest_neighbor_loss
from snnl_lib.models import Autoencoder, FeedForwardNet
from snnl_lib.training import (
    Diverged,
    build,
    cross_entropy,
    forward,
    named_seed,
    raise_if_diverged,
    squared_error,
    train,
)

torch.set_num_threads(1)

N, BATCH = 90, 32  # batches of 32, 32 and 26: the last is smaller


@pytest.fixture(scope="module")
def blobs():
    """Three classes in five dimensions that a line separates; the last column numbers the rows, so
    that a recorder knows which rows a batch holds.
    """
    random = np.random.default_rng(0)
    labels = np.arange(N) % 3
    features = random.normal(scale=0.3, size=(N, 6)) + 2 * np.eye(3)[labels].repeat(2, axis=1)
    features[:, 5] = np.arange(N) / N
    return features.astype(np.float32), labels


def run(blobs, seed=7, epochs=3, primary=cross_entropy, **options):
    """Train a small classifier; returns (model, history)."""
    model = build(FeedForwardNet, 6, 3, (8, 6), seed=seed)
    settings = {"batch_size": BATCH, "temperature": 0.5} | options
    return model, train(model, *blobs, primary, epochs=epochs, seed=seed, **settings)


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


class Recorder:
    """A primary loss that notes which rows each batch held."""

    def __init__(self):
        self.batches = []

    def __call__(self, output, features, labels):
        self.batches.append((features[:, 5] * N).round().int().tolist())
        return F.cross_entropy(output, labels)


# ---------------------------------------------------------------- random sources


def test_named_seeds_never_change_and_differ_by_name_and_seed():
    # A change would silently unpair every recorded run from new ones.
    assert named_seed(42, "weights") == 1366180961
    assert named_seed(42, "batches") == 1106088122
    assert named_seed(31415926, "kmeans") == 3370128806
    names = ("subset", "weights", "batches", "kmeans", "tsne")
    values = [named_seed(seed, name) for seed in (42, 1234, 73, 1024, 31415926) for name in names]
    assert len(set(values)) == len(values)
    assert all(type(value) is int and 0 <= value < 2**32 for value in values)
    for seed in (None, -1, 1.5, "42"):
        with pytest.raises(ValueError, match=f"seed must be a whole number .*, got {seed!r}"):
            named_seed(seed, "weights")


def test_the_same_seed_gives_the_same_bits_and_another_seed_another_run(blobs):
    for alpha in (0.0, 10.0):
        torch.manual_seed(1)
        first, history = run(blobs, alpha=alpha)
        torch.manual_seed(2)
        second, again = run(blobs, alpha=alpha)
        assert torch.equal(weights(first), weights(second))
        pd.testing.assert_frame_equal(history.curve, again.curve, check_exact=True)
    other, of_other = run(blobs, seed=8, alpha=10.0)
    assert not torch.equal(weights(first), weights(other))
    assert (history.curve["loss"] != of_other.curve["loss"]).all()


def test_training_leaves_the_global_random_states_as_they_were(blobs, tmp_path, monkeypatch):
    monkeypatch.setattr("snnl_lib.checkpoint.SECONDS_BETWEEN", 0.0)
    for _ in range(2):  # anew, and from a checkpoint
        torch.rand(7)
        before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
        run(blobs, alpha=1.0, checkpoint=tmp_path / "training.pt")
        assert torch.equal(torch.get_rng_state(), before[0])
        assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


def test_baseline_and_method_share_initial_weights_and_batches(blobs):
    recorders = Recorder(), Recorder()
    baseline, _ = run(blobs, primary=recorders[0], alpha=0.0)
    method, _ = run(blobs, primary=recorders[1], alpha=10.0, temperature="annealed", layers="min")
    assert recorders[0].batches == recorders[1].batches
    assert not torch.equal(weights(baseline), weights(method))
    start = [weights(run(blobs, alpha=alpha, learning_rate=0.0)[0]) for alpha in (0.0, 10.0)]
    assert torch.equal(*start)


# ---------------------------------------------------------------- batches


def test_each_epoch_is_one_permutation_from_the_seeds_generator_in_batches(blobs):
    # Recorded runs were made with these batches.
    recorder, generator = Recorder(), torch.Generator().manual_seed(named_seed(7, "batches"))
    run(blobs, primary=recorder, epochs=3)
    epochs = [torch.randperm(N, generator=generator).split(BATCH) for _ in range(3)]
    assert recorder.batches == [batch.tolist() for epoch in epochs for batch in epoch]


def test_a_last_batch_of_one_row_is_used_too(blobs):
    recorder = Recorder()
    _, history = run(blobs, primary=recorder, epochs=1, batch_size=N - 1, alpha=1.0)
    assert [len(batch) for batch in recorder.batches] == [N - 1, 1]
    assert not history.diverged


def test_a_number_of_steps_changes_what_an_epoch_is_and_no_batch(blobs):
    whole = Recorder()
    run(blobs, primary=whole, epochs=4)
    for epochs, steps in ((3, 4), (6, 2), (4, 3)):
        recorder = Recorder()
        settings = {"steps_per_epoch": steps, "temperature": "annealed"}
        _, history = run(blobs, primary=recorder, epochs=epochs, **settings)
        assert recorder.batches == whole.batches
        assert history.curve["epoch"].tolist() == list(range(epochs))
        assert history.curve["temperature"].nunique() == epochs


def test_the_curve_is_the_mean_over_the_documents_seen_in_an_epoch(blobs):
    # With a learning rate of 0 nothing moves, so each document has the same loss in each epoch.
    for steps in (None, 1, 2, 5, 7):
        recorder = Recorder()
        settings = {"learning_rate": 0.0, "steps_per_epoch": steps}
        model, history = run(blobs, primary=recorder, epochs=2, **settings)
        output = torch.as_tensor(forward(model, blobs[0]))
        losses = F.cross_entropy(output, torch.as_tensor(blobs[1]), reduction="none").numpy()
        half = len(recorder.batches) // 2
        for epoch, batches in enumerate((recorder.batches[:half], recorder.batches[half:])):
            expected = losses[np.concatenate(batches)].mean()
            assert history.curve["primary"].iloc[epoch] == pytest.approx(expected, rel=1e-5)
        assert history.curve["loss"].tolist() == history.curve["primary"].tolist()


# ---------------------------------------------------------------- what is trained


def test_cross_entropy_is_equation_2():
    logits = torch.tensor([[2.0, 0.5, -1.0], [0.0, 1.0, 3.0]])
    probabilities = logits.exp() / logits.exp().sum(dim=1, keepdim=True)
    expected = -(probabilities[0, 1].log() + probabilities[1, 2].log()) / 2
    torch.testing.assert_close(cross_entropy(logits, None, torch.tensor([1, 2])), expected)


@pytest.mark.parametrize(
    ("alpha", "layers", "temperature"),
    [(0.0, "sum", "annealed"), (10.0, "sum", "annealed"), (-2.0, ["hidden2"], 0.5)],
)
def test_training_is_adam_on_equation_7_step_by_step(blobs, alpha, layers, temperature):
    recorder = Recorder()
    settings = {"alpha": alpha, "layers": layers, "temperature": temperature}
    trained, history = run(blobs, primary=recorder, learning_rate=0.01, **settings)

    # The same steps spelt out, from the same weights and over the same batches.
    model = build(FeedForwardNet, 6, 3, (8, 6), seed=7)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    features, labels = map(torch.as_tensor, blobs)
    temperatures, sums = [], np.zeros((3, 2))
    for step, batch in enumerate(recorder.batches):
        epoch = step // 3
        temperatures.append(0.5 if temperature == 0.5 else (1 + epoch) ** -0.55)
        output, hidden = model(features[batch])
        primary = loss = F.cross_entropy(output, labels[batch])
        for name in hidden if layers == "sum" else layers:
            term = soft_nearest_neighbor_loss(hidden[name], labels[batch], temperatures[-1])
            loss = loss + alpha * term
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sums[epoch] += len(batch) * np.array([loss.item(), primary.item()])
    torch.testing.assert_close(weights(trained), weights(model), rtol=1e-4, atol=1e-5)
    assert list(history.curve.columns) == ["epoch", "temperature", "loss", "primary"]
    assert history.curve["temperature"].tolist() == pytest.approx(temperatures[::3])
    np.testing.assert_allclose(history.curve[["loss", "primary"]], sums / N, rtol=1e-4)


def first_units_and_output(hidden, output):
    return {"code": hidden["code"][:, :2], "output": output}


def test_select_decides_which_tensors_the_loss_is_applied_to(blobs):
    # With a learning rate of 0 the curve has the loss of the initial weights.
    model = build(Autoencoder, 6, (5, 4), 4, seed=7)
    features, labels = map(torch.as_tensor, blobs)
    settings = {"epochs": 1, "seed": 7, "batch_size": N, "learning_rate": 0.0}
    settings |= {"alpha": 3.0, "temperature": 0.5, "select": first_units_and_output}
    history = train(model, *blobs, squared_error, **settings)
    output, hidden = model(features)
    selected = hidden["code"][:, :2], output
    added = sum(soft_nearest_neighbor_loss(part, labels, 0.5).item() for part in selected)
    primary = F.mse_loss(output, features).item()
    expected = pytest.approx([primary, primary + 3 * added], rel=1e-5)
    assert history.curve[["primary", "loss"]].iloc[0].tolist() == expected


def test_a_regularizer_takes_the_place_of_equation_4_in_every_layer(blobs):
    calls = []

    def regularizer(values, labels, temperature):
        calls.append((tuple(values.shape), len(labels), temperature))
        return values.square().mean()

    settings = {"regularizer": regularizer, "alpha": 3.0, "temperature": "annealed"}
    model, history = run(blobs, epochs=2, learning_rate=0.0, batch_size=N, **settings)
    shapes, temperatures = ((N, 8), (N, 6)), (1.0, 2**-0.55)
    assert calls == [(shape, N, now) for now in temperatures for shape in shapes]
    _, hidden = model(torch.as_tensor(blobs[0]))
    added = 3 * sum(values.square().mean().item() for values in hidden.values())
    found = (history.curve["loss"] - history.curve["primary"]).tolist()
    assert found == pytest.approx([added, added], rel=1e-5)


def test_rows_of_the_ignored_label_are_left_out_of_equation_4(blobs):
    features, labels = torch.as_tensor(blobs[0]), torch.as_tensor(blobs[1])
    labels = labels.where(torch.arange(N) % 2 == 0, -1)

    def primary(output, x, y):
        return 0 * output.sum()

    settings = {"primary": primary, "alpha": 2.0, "ignore_index": -1, "learning_rate": 0.0}
    model, history = run((features, labels), epochs=1, batch_size=N, **settings)
    _, hidden = model(features[::2])
    terms = [soft_nearest_neighbor_loss(part, labels[::2], 0.5) for part in hidden.values()]
    assert history.curve["loss"].iloc[0] == pytest.approx(2 * sum(terms).item(), rel=1e-5)


def test_labels_of_any_integer_type_and_reversed_arrays_train_alike(blobs):
    features, labels = (np.asarray(values) for values in blobs)
    _, expected = run((features, labels))
    for same in (labels.astype("int32"), labels.astype("uint8")):
        pd.testing.assert_frame_equal(run((features, same))[1].curve, expected.curve)
    reversed_twice = features[::-1].copy()[::-1]
    pd.testing.assert_frame_equal(run((reversed_twice, labels))[1].curve, expected.curve)


def test_settings_that_cannot_be_trained_with_are_refused(blobs):
    for settings, named in (
        ({"alpha": math.inf}, "alpha .* inf"),
        ({"alpha": 1.0, "layers": ["hidden9"]}, "hidden9"),
        ({"alpha": 1.0, "temperature": "learnable"}, "learnable"),
        ({"alpha": 0.0, "layers": ["hidden9"]}, "hidden9"),
        ({"alpha": 0.0, "temperature": -1}, 'temperature .* "annealed", got -1'),
        ({"alpha": "much"}, "alpha .* 'much'"),
        ({"epochs": 2.5}, "epochs must be a whole number, got 2.5"),
        ({"batch_size": 32.0}, "batch_size must be a whole number, got 32.0"),
        ({"steps_per_epoch": 2.0}, "steps_per_epoch must be a whole number, got 2.0"),
        *(({name: 0}, f"{name} .* 0") for name in ("epochs", "batch_size", "steps_per_epoch")),
        ({"regularizer": squared_error, "layers": ["hidden1"]}, r"regularizer.*\['hidden1'\]"),
        ({"regularizer": squared_error, "ignore_index": -1}, "regularizer.*ignore_index=-1"),
        ({"weight": "by T"}, "weight .*'by T'"),
    ):
        with pytest.raises(ValueError, match=named):
            run(blobs, **settings)


def test_features_and_labels_that_cannot_be_trained_on_are_refused(blobs):
    x, y = blobs
    names = np.array(["sport", "world"])[y % 2]
    not_a_number, infinite = x.copy(), x.copy()
    not_a_number[17, 2], infinite[3, 1] = math.nan, -math.inf
    for features, labels, error, named in (
        (not_a_number, y, ValueError, "features must be finite, but row 17 contains nan"),
        (infinite, y, ValueError, "features must be finite, but row 3 contains -inf"),
        (x[:0], y[:0], ValueError, "features must have at least one row"),
        (x.astype(int), y, TypeError, r"features must be floating point, got torch\.int64"),
        (x, y.astype(float), TypeError, r"labels must be integers, got torch\.float64"),
        (pd.DataFrame(x), y, TypeError, r'features .*got DataFrame: .*to_numpy\("float32"\)'),
        (x, pd.Series(y, index=y), TypeError, r'labels .*got Series: .*to_numpy\("int64"\)'),
        (x, names, TypeError, r"names with np.unique\(labels, return_inverse=True\)"),
    ):
        with pytest.raises(error, match=named):
            run((features, labels))


def test_a_network_that_returns_no_hidden_layers_is_refused(blobs):
    network = torch.nn.Linear(6, 3)
    with pytest.raises(TypeError, match=r"must return \(output, hidden\), .*got Tensor"):
        train(network, *blobs, cross_entropy, epochs=1, seed=7, batch_size=2)
    with pytest.raises(TypeError, match=r"must return \(output, hidden\), .*got Tensor"):
        forward(network, blobs[0][:2])


def test_features_of_another_dtype_than_the_network_are_refused_unless_it_converts_them(blobs):
    features, labels = blobs[0].astype(float), blobs[1]
    problem = r"are float64 but the network is float32: convert .* float32, or .*model\.double\(\)"
    with pytest.raises(TypeError, match=problem):
        run((features, labels))
    with pytest.raises(TypeError, match=problem):
        forward(FeedForwardNet(6, 3), features)
    with pytest.raises(RuntimeError, match="dtype"):  # whole numbers are right for an Embedding
        forward(FeedForwardNet(6, 3), features.astype(int))

    class Converts(FeedForwardNet):
        def forward(self, x):
            return super().forward(x.float())

    model = Converts(6, 3)
    assert np.array_equal(forward(model, features), forward(model, blobs[0]))
    model.output.double()
    with pytest.raises(RuntimeError, match="same dtype"):  # the network has two
        forward(model, features)


def test_forward_takes_a_network_without_parameters(blobs):
    class Doubles(torch.nn.Module):
        def forward(self, x):
            return 2 * x, {}

    assert np.array_equal(forward(Doubles(), blobs[0]), 2 * blobs[0])


def test_one_warning_if_most_documents_have_no_classmate(blobs):
    features, labels = blobs
    alone = np.arange(N)
    few_labelled = np.where(alone < 60, -1, alone)

    def primary(output, features, labels):
        return output.square().mean()

    for y, settings, expected in (
        (labels, {"alpha": 1.0}, 0),
        (alone, {"alpha": 0.0}, 0),
        (alone, {"alpha": 1.0, "regularizer": primary}, 0),
        (alone, {"alpha": 1.0}, 1),
        (alone, {"alpha": lambda epoch: epoch}, 1),
        (few_labelled, {"alpha": 1.0}, 0),
        (few_labelled, {"alpha": 1.0, "ignore_index": -1}, 1),
        (np.eye(N, dtype=int), {"alpha": 1.0}, 1),
        (alone // 2, {"alpha": 1.0}, 1),  # classmates, but seldom in the same batch
        (labels, {"alpha": 1.0, "batch_size": 1}, 1),
        (0 * labels, {"alpha": 0.0}, 0),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run((features, y), primary=primary, **settings)
        assert [str(warning.message) for warning in caught] == [FEW_CLASS_MATES] * expected
        assert {warning.filename for warning in caught} <= {__file__}
    for y, ignored in ((0 * labels, None), (labels.clip(max=1), 0)):
        with pytest.warns(UserWarning, match="labels have fewer than two classes"):
            run((features, y), alpha=1.0, ignore_index=ignored)


def test_after_epoch_adds_columns_measured_in_eval_mode_and_training_goes_on_in_train_mode(blobs):
    modes = []

    class Watched(FeedForwardNet):
        def forward(self, x):
            modes.append(self.training)
            return super().forward(x)

    def after_epoch(model):
        assert not model.training
        return {"mean_weight": weights(model).mean().item()}

    model = build(Watched, 6, 3, (8,), seed=7).eval()
    settings = {"epochs": 2, "seed": 7, "batch_size": BATCH, "after_epoch": after_epoch}
    curve = train(model, *blobs, cross_entropy, **settings).curve
    assert modes == [True] * 6
    assert not model.training
    assert curve["mean_weight"].nunique() == 2
    assert curve["mean_weight"].iloc[-1] == weights(model).mean().item()


def test_a_progress_bar_appears_only_when_a_title_is_given(blobs, capsys):
    for title in (None, "lc-d seed 42"):
        run(blobs, epochs=1, progress=title)
        assert ("lc-d seed 42" in capsys.readouterr().err) is (title is not None)


# ---------------------------------------------------------------- a checkpoint


def test_a_training_that_was_stopped_goes_on_and_ends_with_the_same_bits(
    blobs, tmp_path, monkeypatch
):
    monkeypatch.setattr("snnl_lib.checkpoint.SECONDS_BETWEEN", 0.0)
    path, calls = tmp_path / "training.pt", []

    def stopped_in_the_third_epoch(model):
        calls.append(model)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return {}

    for steps in (None, 2):
        calls.clear()
        settings = {"epochs": 5, "alpha": 10.0, "temperature": "annealed", "steps_per_epoch": steps}
        expected, history = run(blobs, **settings)
        settings |= {"checkpoint": path, "after_epoch": stopped_in_the_third_epoch}
        with pytest.raises(KeyboardInterrupt):
            run(blobs, **settings)
        model, again = run(blobs, **settings)
        assert len(calls) == 3 + 3, "two of five epochs were kept"
        assert torch.equal(weights(model), weights(expected))
        pd.testing.assert_frame_equal(again.curve, history.curve, check_exact=True)
        path.unlink()


def test_a_training_goes_on_from_its_own_checkpoint_only(blobs, tmp_path, monkeypatch):
    monkeypatch.setattr("snnl_lib.checkpoint.SECONDS_BETWEEN", 0.0)
    features, labels = blobs
    started = {"features": features, "labels": labels, "seed": 7, "epochs": 3, "alpha": 1.0}
    started |= {"primary": cross_entropy, "checkpoint": tmp_path / "training.pt"}

    def trained(**changes):
        model = build(FeedForwardNet, 6, 3, (8, 6), seed=1)
        history = train(model, **started | changes)
        return weights(model), history.curve

    first, curve = trained()
    for change in (
        {"seed": 8},
        {"alpha": 2.0},
        {"epochs": 2},
        {"learning_rate": 0.1},
        {"temperature": 1.0},
        {"features": features + 1},
        {"labels": (labels + 1) % 3},
    ):
        with pytest.raises(CacheError, match="belongs to another training run"):
            trained(**change)
    again, same_curve = trained()
    assert torch.equal(again, first)
    pd.testing.assert_frame_equal(same_curve, curve, check_exact=True)


def first_units(hidden, output, units):
    return {"hidden2": hidden["hidden2"][:, :units]}


def test_a_checkpoint_tells_one_function_from_another_or_refuses_it(blobs, tmp_path, monkeypatch):
    monkeypatch.setattr("snnl_lib.checkpoint.SECONDS_BETWEEN", 0.0)
    path = tmp_path / "training.pt"
    settings = {"checkpoint": path, "select": partial(first_units, units=2)}
    _, history = run(blobs, alpha=lambda epoch: 1.0, **settings)
    _, again = run(blobs, alpha=lambda epoch: np.float32(0) + 1, **settings)
    pd.testing.assert_frame_equal(again.curve, history.curve, check_exact=True)
    for changes in (
        {"alpha": lambda epoch: 1.0 if epoch < 2 else 2.0},
        {"learning_rate": lambda epoch: 0.01 if epoch < 2 else 0.001},
        {"select": partial(first_units, units=3)},
        {"select": None},
    ):
        with pytest.raises(CacheError, match="belongs to another training run"):
            run(blobs, **{"alpha": lambda epoch: 1.0} | settings | changes)

    def local(hidden, output):
        return hidden

    for unnamed in (
        {"primary": lambda output, x, y: F.cross_entropy(output, y)},
        {"primary": Recorder().__call__},
        {"select": local},
        {"select": partial(local)},
        {"regularizer": torch.nn.CosineEmbeddingLoss()},
    ):
        with pytest.raises(ValueError, match="top level of a module"):
            run(blobs, **settings | unnamed)


# ---------------------------------------------------------------- runs that break


def test_a_loss_that_breaks_in_one_batch_stops_the_run_at_that_epoch(blobs):
    for bad in (math.nan, math.inf, -math.inf):
        calls, scored = [], []

        def breaks_in_epoch_2(output, features, labels, calls=calls, bad=bad):
            calls.append(1)
            factor = bad if len(calls) == 8 else 1  # the middle of three batches
            return F.cross_entropy(output, labels) * factor

        def after_epoch(model, scored=scored):
            scored.append(1)
            return {}

        model, history = run(blobs, epochs=6, primary=breaks_in_epoch_2, after_epoch=after_epoch)
        assert "epoch 2" in history.diverged
        assert history.curve["epoch"].tolist() == [0, 1, 2]
        assert len(calls) == 9 and len(scored) == 2, "a broken model is not scored"
        assert not model.training


def test_weights_that_break_in_the_very_last_step_are_reported_too(blobs):
    # The loss is finite and its gradient is not: sqrt has an infinite slope at 0.
    def finite_with_bad_gradient(output, features, labels):
        return (0 * output).sum().abs().sqrt()

    model, history = run(blobs, epochs=1, primary=finite_with_bad_gradient, batch_size=N)
    assert not weights(model).isfinite().all()
    assert "weights" in history.diverged and "epoch 0" in history.diverged


def test_what_diverged_is_raised_with_its_curve_and_all_else_is_handed_on(blobs):
    _, history = run(blobs, epochs=1)
    assert raise_if_diverged(history) is history
    _, broken = run(blobs, epochs=2, alpha=1e39)
    with pytest.raises(Diverged, match="epoch 0") as caught:
        raise_if_diverged(broken)
    assert caught.value.curve is broken.curve and len(broken.curve) == 1
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value) and copy.curve.equals(broken.curve)


# ---------------------------------------------------------------- the weight of the loss


def test_a_weight_multiplies_alpha_by_a_power_of_the_falling_temperature(blobs):
    falling = np.array([annealed_temperature(epoch) for epoch in range(3)])
    for temperature in ("annealed", 1.0):
        added = {}
        for weight in (None, "over T", "times T"):
            options = {"alpha": 3.0, "temperature": temperature, "weight": weight}
            _, history = run(blobs, **options, learning_rate=1e-12)  # which moves nothing
            added[weight] = (history.curve["loss"] - history.curve["primary"]).to_numpy()
        np.testing.assert_allclose(added["over T"], added[None] / falling, rtol=1e-4)
        np.testing.assert_allclose(added["times T"], added[None] * falling, rtol=1e-4)


def test_alpha_may_be_a_function_of_the_epoch(blobs):
    options = {"temperature": 1.0, "learning_rate": 1e-12}  # which moves nothing
    _, constant = run(blobs, alpha=3.0, **options)
    _, switched_off = run(blobs, alpha=lambda epoch: 3.0 if epoch < 2 else 0.0, **options)
    added, with_switch = ((h.curve["loss"] - h.curve["primary"]) for h in (constant, switched_off))
    np.testing.assert_allclose(with_switch[:2], added[:2], rtol=1e-4)
    assert (with_switch[2:] == 0).all() and (added > 0.1).all()


def test_the_learning_rate_may_be_a_function_of_the_epoch(blobs):
    _, constant = run(blobs, epochs=4, alpha=1.0, learning_rate=0.01)
    same, _ = run(blobs, epochs=2, alpha=1.0, learning_rate=0.01)
    stopped, falling = run(
        blobs, epochs=4, alpha=1.0, learning_rate=lambda epoch: 0.01 if epoch < 2 else 0.0
    )
    assert torch.equal(weights(stopped), weights(same))
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"learning_rate must be .* in epoch 1"):
            run(blobs, epochs=2, learning_rate=lambda epoch, last=wrong: last if epoch else 0.01)
    columns = ["temperature", "loss", "primary"]
    pd.testing.assert_frame_equal(
        falling.curve[columns][:2], constant.curve[columns][:2], check_exact=True
    )


# ---------------------------------------------------------------- forward


def test_forward_in_batches_equals_one_pass_and_leaves_the_model_as_it_was(blobs):
    model, _ = run(blobs, epochs=1)
    before = weights(model)
    for parameter in model.parameters():
        parameter.grad = None
    output, hidden = model(torch.as_tensor(blobs[0]))
    for batch_size in (1, 32, N, 1000):
        for layer, expected in {None: output, **hidden}.items():
            values = forward(model, blobs[0], layer=layer, batch_size=batch_size)
            assert type(values) is np.ndarray and values.dtype == np.float32
            np.testing.assert_allclose(values, expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert np.array_equal(forward(model, torch.as_tensor(blobs[0])), forward(model, blobs[0]))
    assert torch.equal(weights(model), before) and torch.is_grad_enabled()
    with pytest.raises(ValueError, match=r"layer must be None or one of .*hidden9"):
        forward(model, blobs[0], layer="hidden9")
