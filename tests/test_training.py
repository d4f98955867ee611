"""The training loop: the same seed gives the same bits, runs of a seed are paired, and a run that
breaks says so.
"""

import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from snnl_lib.losses import annealed_temperature, soft_nearest_neighbor_loss
from snnl_lib.models import Autoencoder, ConvNet, FeedForwardNet
from snnl_lib.training import (
    Diverged,
    Training,
    build,
    forward,
    named_seed,
    raise_if_diverged,
    train,
    train_stack,
)

torch.set_num_threads(1)

N, BATCH = 90, 32  # batches of 32, 32 and 26: the last is smaller


def cross_entropy(output, features, labels):
    return F.cross_entropy(output, labels)


@pytest.fixture(scope="module")
def blobs():
    """Three classes in five dimensions that a line separates; the last column numbers the rows, so
    that batches can be told.
    """
    random = np.random.default_rng(0)
    labels = np.arange(N) % 3
    features = random.normal(scale=0.3, size=(N, 6)) + 2 * np.eye(3)[labels].repeat(2, axis=1)
    features[:, 5] = np.arange(N) / N
    return features.astype(np.float32), labels


def run(blobs, seed=7, epochs=3, hidden_sizes=(8, 6), primary=cross_entropy, **options):
    model = build(FeedForwardNet, 6, 3, hidden_sizes, seed=seed)
    return model, train(
        model,
        *blobs,
        primary,
        epochs=epochs,
        seed=seed,
        **{"batch_size": BATCH, "temperature": 0.5} | options,
    )


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


def test_named_seeds_never_change():
    # Pinned: a change here would silently unpair every recorded run from new ones.
    assert named_seed(42, "weights") == 1366180961
    assert named_seed(42, "batches") == 1106088122
    assert named_seed(31415926, "kmeans") == 3370128806


def test_named_seeds_differ_by_name_and_by_seed_and_suit_every_generator():
    values = [
        named_seed(seed, name)
        for seed in (42, 1234, 73, 1024, 31415926)
        for name in ("subset", "weights", "batches", "kmeans", "tsne")
    ]
    assert len(set(values)) == len(values)
    assert all(
        type(value) is int and 0 <= value < 2**32 for value in values
    )  # what NumPy's and scikit-learn's random_state take


@pytest.mark.parametrize("alpha", [0.0, 10.0])
def test_the_same_seed_gives_the_same_bits_whatever_ran_before(blobs, alpha):
    torch.manual_seed(1)
    first, history = run(blobs, alpha=alpha)
    torch.manual_seed(2)
    torch.rand(5)
    second, again = run(blobs, alpha=alpha)
    assert torch.equal(weights(first), weights(second))
    pd.testing.assert_frame_equal(history.curve, again.curve, check_exact=True)


def test_another_seed_gives_another_run(blobs):
    first, history = run(blobs, seed=7)
    second, other = run(blobs, seed=8)
    assert not torch.equal(weights(first), weights(second))
    assert (history.curve["loss"] != other.curve["loss"]).all()


def test_the_seed_of_training_alone_moves_the_batches(blobs):
    orders = []
    for seed in (1, 2):
        recorder = Recorder()
        train(
            build(FeedForwardNet, 6, 3, (8,), seed=7),
            *blobs,
            recorder,
            epochs=1,
            seed=seed,
            batch_size=BATCH,
        )
        orders.append(recorder.batches)
    assert orders[0] != orders[1]


def test_training_leaves_the_global_random_state_as_it_was(blobs):
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002 - the global state is what is looked at
    expected = torch.rand(3), np.random.rand(3)  # noqa: NPY002
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    run(blobs, alpha=1.0)
    assert torch.equal(torch.rand(3), expected[0])
    assert np.array_equal(np.random.rand(3), expected[1])  # noqa: NPY002


def test_baseline_and_method_share_initial_weights_and_batches(blobs):
    recorders = Recorder(), Recorder()
    baseline, _ = run(blobs, primary=recorders[0], alpha=0.0)
    method, _ = run(blobs, primary=recorders[1], alpha=10.0, temperature="annealed", layers="min")
    assert recorders[0].batches == recorders[1].batches
    assert not torch.equal(
        weights(baseline), weights(method)
    )  # so the pair differs by the method alone
    start = [weights(run(blobs, alpha=alpha, learning_rate=0.0)[0]) for alpha in (0.0, 10.0)]
    assert torch.equal(*start)


def test_each_epoch_sees_every_row_once_in_a_new_order_and_uses_the_smaller_last_batch(blobs):
    recorder = Recorder()
    run(blobs, primary=recorder, epochs=3)
    assert [len(batch) for batch in recorder.batches] == [32, 32, 26] * 3
    epochs = [[row for batch in recorder.batches[i : i + 3] for row in batch] for i in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(N)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] and epochs[0] != list(range(N))


def test_a_last_batch_of_one_row_is_used_too(blobs):
    recorder = Recorder()
    _, history = run(blobs, primary=recorder, epochs=1, batch_size=N - 1, alpha=1.0)
    assert [len(batch) for batch in recorder.batches] == [N - 1, 1]
    assert not history.diverged


# ---------------------------------------------------------------- epochs of so many steps


def test_with_a_number_of_steps_batches_go_on_over_all_documents_in_new_orders(blobs):
    recorder = Recorder()
    _, history = run(blobs, primary=recorder, epochs=3, steps_per_epoch=4, temperature="annealed")
    assert [len(batch) for batch in recorder.batches] == [32, 32, 26] * 4, (
        "twelve steps are four times over the documents"
    )
    passes = [
        [row for batch in recorder.batches[i : i + 3] for row in batch] for i in range(0, 12, 3)
    ]
    assert (
        all(sorted(rows) == list(range(N)) for rows in passes)
        and len({tuple(rows) for rows in passes}) == 4
    )
    assert (
        history.curve["epoch"].tolist() == [0, 1, 2] and history.curve["temperature"].nunique() == 3
    )


def test_with_fewer_steps_than_batches_the_next_epoch_goes_on_where_the_last_one_stopped(blobs):
    few, whole = Recorder(), Recorder()
    run(blobs, primary=few, epochs=6, steps_per_epoch=2)
    run(blobs, primary=whole, epochs=4)
    assert few.batches == whole.batches, "the same batches, whatever is called an epoch"


def test_steps_without_a_number_are_those_of_once_over_the_documents_bit_for_bit(blobs):
    model, history = run(blobs, alpha=10.0, temperature="annealed")
    for steps in (None, 3):
        again, other = run(blobs, alpha=10.0, temperature="annealed", steps_per_epoch=steps)
        assert torch.equal(weights(model), weights(again))
        pd.testing.assert_frame_equal(history.curve, other.curve, check_exact=True)
    # And they are those that recorded runs were made with: one permutation an epoch from the
    # generator of that name.
    recorder, order = Recorder(), torch.Generator().manual_seed(named_seed(7, "batches"))
    run(blobs, primary=recorder, epochs=2)
    assert recorder.batches == [
        batch.tolist()
        for _ in range(2)
        for batch in torch.randperm(N, generator=order).split(BATCH)
    ]


@pytest.mark.parametrize("steps", [1, 2, 5, 7])
def test_the_curve_is_the_mean_over_the_documents_seen_in_an_epoch(blobs, steps):
    # With a learning rate of 0 nothing moves: the epoch's mean must be that of the loss of
    # each document that it saw, as often as it saw it.
    recorder = Recorder()
    model, history = run(
        blobs, primary=recorder, epochs=2, learning_rate=0.0, steps_per_epoch=steps
    )
    losses = F.cross_entropy(
        torch.as_tensor(forward(model, blobs[0])), torch.as_tensor(blobs[1]), reduction="none"
    ).numpy()
    for epoch in range(2):
        seen = [
            row for batch in recorder.batches[epoch * steps : (epoch + 1) * steps] for row in batch
        ]
        assert history.curve["primary"].iloc[epoch] == pytest.approx(losses[seen].mean(), rel=1e-5)


# ---------------------------------------------------------------- what is trained


@pytest.mark.parametrize(("alpha", "layers"), [(0.0, "sum"), (10.0, "sum"), (-2.0, ["hidden2"])])
def test_training_is_adam_on_equation_7_step_by_step(blobs, alpha, layers):
    recorder = Recorder()
    trained, _ = run(
        blobs,
        primary=recorder,
        alpha=alpha,
        layers=layers,
        temperature="annealed",
        learning_rate=0.01,
    )

    # The same steps spelt out, from the same weights and over the same batches.
    model = build(FeedForwardNet, 6, 3, (8, 6), seed=7)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    features, labels = map(torch.as_tensor, blobs)
    for step, batch in enumerate(recorder.batches):
        output, hidden = model(features[batch])
        loss = F.cross_entropy(output, labels[batch])
        for name in hidden if layers == "sum" else layers:
            loss = loss + alpha * soft_nearest_neighbor_loss(
                hidden[name], labels[batch], (1 + step // 3) ** -0.55
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.testing.assert_close(weights(trained), weights(model), rtol=1e-4, atol=1e-5)


def test_loss_falls_and_the_classes_are_found_on_separable_blobs(blobs):
    model, history = run(blobs, epochs=30, alpha=1.0, learning_rate=0.02)
    curve = history.curve
    assert curve["loss"].iloc[-1] < 0.5 * curve["loss"].iloc[0]
    assert curve["primary"].iloc[-1] < 0.5 * curve["primary"].iloc[0]
    assert (forward(model, blobs[0]).argmax(axis=1) == blobs[1]).mean() > 0.97
    assert history.diverged == ""


def test_positive_alpha_disentangles_a_hidden_layer_and_negative_alpha_entangles_it(blobs):
    entangled = {}
    for alpha in (-10.0, 0.0, 10.0):
        model, _ = run(blobs, epochs=10, alpha=alpha, learning_rate=0.01)
        hidden = torch.as_tensor(forward(model, blobs[0], layer="hidden2"))
        entangled[alpha] = soft_nearest_neighbor_loss(hidden, torch.as_tensor(blobs[1]), 0.5).item()
    assert entangled[10.0] < entangled[0.0] - 0.05 < entangled[-10.0] - 0.1


def test_select_decides_what_the_loss_sees(blobs):
    # LC(D) of Tables 3 and 4: only some units of the code. With a learning rate of 0 the
    # curve shows the loss of the start.
    model = build(Autoencoder, 6, (5, 4), 4, seed=7)
    features, labels = torch.as_tensor(blobs[0]), torch.as_tensor(blobs[1])
    history = train(
        model,
        features,
        labels,
        lambda output, x, y: F.mse_loss(output, x),
        epochs=1,
        seed=7,
        alpha=3.0,
        temperature=0.5,
        batch_size=N,
        learning_rate=0.0,
        select=lambda hidden, output: {"code": hidden["code"][:, :2]},
    )
    output, hidden = model(features)
    primary, term = (
        F.mse_loss(output, features).item(),
        soft_nearest_neighbor_loss(hidden["code"][:, :2], labels, 0.5).item(),
    )
    assert term != pytest.approx(
        soft_nearest_neighbor_loss(hidden["code"], labels, 0.5).item(), rel=1e-3
    )
    assert history.curve[["primary", "loss"]].iloc[0].tolist() == pytest.approx(
        [primary, primary + 3 * term], rel=1e-5
    )


def test_select_is_given_the_output_too(blobs):
    # A reading of the text paper counts the output layer among those that the loss sees.
    model = build(FeedForwardNet, 6, 3, (8, 6), seed=7)
    features, labels = torch.as_tensor(blobs[0]), torch.as_tensor(blobs[1])
    history = train(
        model,
        features,
        labels,
        cross_entropy,
        epochs=1,
        seed=7,
        alpha=2.0,
        temperature=0.5,
        batch_size=N,
        learning_rate=0.0,
        select=lambda hidden, output: hidden | {"output": output},
    )
    output, hidden = model(features)
    terms = [
        soft_nearest_neighbor_loss(values, labels, 0.5).item()
        for values in (*hidden.values(), output)
    ]
    assert history.curve["loss"].iloc[0] == pytest.approx(
        history.curve["primary"].iloc[0] + 2 * sum(terms), rel=1e-5
    )


def test_a_regularizer_takes_the_place_of_equation_4_in_every_layer_at_the_temperature_of_the_epoch(
    blobs,
):
    seen = []

    def regularizer(values, labels, temperature):
        seen.append((tuple(values.shape), len(labels), temperature))
        return values.square().mean()

    model, history = run(
        blobs,
        epochs=2,
        alpha=3.0,
        temperature="annealed",
        regularizer=regularizer,
        learning_rate=0.0,
        batch_size=N,
    )
    assert seen == [
        ((N, 8), N, 1.0),
        ((N, 6), N, 1.0),
        ((N, 8), N, 2**-0.55),
        ((N, 6), N, 2**-0.55),
    ]
    _, hidden = model(torch.as_tensor(blobs[0]))
    added = 3 * sum(values.square().mean().item() for values in hidden.values())
    assert (history.curve["loss"] - history.curve["primary"]).tolist() == pytest.approx(
        [added, added], rel=1e-5
    )


def test_an_unknown_layer_or_temperature_or_a_weight_without_end_stops_training(blobs):
    with pytest.raises(ValueError, match="alpha must be a finite number, got inf"):
        run(blobs, alpha=math.inf)
    with pytest.raises(ValueError, match="hidden9"):
        run(blobs, alpha=1.0, layers=["hidden9"])
    with pytest.raises(ValueError, match="learnable"):
        run(blobs, alpha=1.0, temperature="learnable")


# ---------------------------------------------------------------- the curve


def test_curve_has_a_row_an_epoch_with_epoch_temperature_loss_and_primary(blobs):
    _, history = run(blobs, epochs=4, alpha=2.0, temperature="annealed")
    assert list(history.curve.columns) == ["epoch", "temperature", "loss", "primary"]
    assert history.curve["epoch"].tolist() == [0, 1, 2, 3]
    assert history.curve["temperature"].tolist() == pytest.approx([1, 2**-0.55, 3**-0.55, 4**-0.55])
    assert (history.curve["loss"] > history.curve["primary"]).all()


def test_curve_of_a_fixed_temperature_repeats_it(blobs):
    assert run(blobs, epochs=2, temperature=0.25)[1].curve["temperature"].tolist() == [0.25, 0.25]


def test_curve_is_the_mean_over_documents_not_over_batches(blobs):
    # With a learning rate of 0 nothing moves, so the mean over unequal batches must be the
    # loss of all rows at once.
    model, history = run(blobs, epochs=2, alpha=0.0, learning_rate=0.0, batch_size=80)
    whole = F.cross_entropy(
        torch.as_tensor(forward(model, blobs[0])), torch.as_tensor(blobs[1])
    ).item()
    assert history.curve["primary"].tolist() == pytest.approx([whole, whole], rel=1e-5)
    assert history.curve["loss"].tolist() == history.curve["primary"].tolist()


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
    history = train(
        model, *blobs, cross_entropy, epochs=2, seed=7, batch_size=BATCH, after_epoch=after_epoch
    )
    assert modes == [True] * 6
    assert not model.training
    assert list(history.curve.columns) == ["epoch", "temperature", "loss", "primary", "mean_weight"]
    assert (
        history.curve["mean_weight"].nunique() == 2
        and history.curve["mean_weight"].iloc[-1] == weights(model).mean().item()
    )


@pytest.mark.parametrize(("progress", "shown"), [(None, False), ("lc-d seed 42", True)])
def test_a_progress_bar_appears_only_when_asked_for(blobs, capsys, progress, shown):
    run(blobs, epochs=1, progress=progress)
    assert ("lc-d seed 42" in capsys.readouterr().err) is shown


# ---------------------------------------------------------------- runs that break


def test_a_huge_learning_rate_is_reported_as_diverged_with_its_epoch(blobs):
    _, history = run(blobs, epochs=20, alpha=1.0, learning_rate=1e30)
    last = int(history.curve["epoch"].iloc[-1])
    assert last < 19  # it stopped early
    assert f"epoch {last}" in history.diverged
    assert (
        not math.isfinite(history.curve["loss"].iloc[-1])
        and np.isfinite(history.curve["loss"].iloc[:-1]).all()
    )


@pytest.mark.parametrize(("value", "shown"), [(math.nan, "nan"), (math.inf, "nan|inf")])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_bad_input_is_reported_in_epoch_0_and_does_not_raise(blobs, value, shown, alpha):
    features = blobs[0].copy()
    features[17, 2] = value  # one number of one row of one batch is enough
    _, history = run((features, blobs[1]), epochs=5, alpha=alpha)
    assert "epoch 0" in history.diverged and any(
        word in history.diverged for word in shown.split("|")
    )
    assert len(history.curve) == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_breaks_in_one_batch_stops_the_run_at_that_epoch(blobs, bad):
    calls, seen = [], []

    def breaks_in_epoch_2(output, features, labels):
        calls.append(1)
        return F.cross_entropy(output, labels) * (
            bad if len(calls) == 8 else 1
        )  # the middle of three batches

    model, history = run(
        blobs,
        epochs=6,
        primary=breaks_in_epoch_2,
        after_epoch=lambda model: seen.append(1) or {"seen": 1},
    )
    assert "epoch 2" in history.diverged
    assert history.curve["epoch"].tolist() == [0, 1, 2]
    assert len(calls) == 9 and len(seen) == 2  # a broken model is not scored
    assert not model.training


def test_weights_that_break_in_the_very_last_step_are_reported_too(blobs):
    # The loss is finite and its gradient is not: sqrt has an infinite slope at 0. No later
    # loss shows the damage.
    def finite_with_bad_gradient(output, features, labels):
        return (0 * output).sum().abs().sqrt()

    model, history = run(blobs, epochs=1, primary=finite_with_bad_gradient, batch_size=N)
    assert not weights(model).isfinite().all()  # the case is the one meant
    assert "epoch 0" in history.diverged


# ---------------------------------------------------------------- forward


@pytest.fixture(scope="module")
def trained(blobs):
    return run(blobs)[0]


@pytest.mark.parametrize("batch_size", [1, 32, N, 1000])
def test_forward_in_batches_equals_one_pass(blobs, trained, batch_size):
    output, hidden = trained(torch.as_tensor(blobs[0]))
    for layer, expected in {None: output, **hidden}.items():
        values = forward(trained, blobs[0], layer=layer, batch_size=batch_size)
        assert type(values) is np.ndarray and values.dtype == np.float32
        np.testing.assert_allclose(values, expected.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_forward_takes_tensors_leaves_no_graph_and_changes_no_weight(blobs, trained):
    before = weights(trained)
    for parameter in trained.parameters():
        parameter.grad = None
    assert np.array_equal(forward(trained, torch.as_tensor(blobs[0])), forward(trained, blobs[0]))
    assert torch.equal(weights(trained), before)
    assert torch.is_grad_enabled()


def test_forward_of_an_unknown_layer_raises(blobs, trained):
    with pytest.raises(KeyError, match="hidden9"):
        forward(trained, blobs[0], layer="hidden9")


# ---------------------------------------------------------------- stacks of runs


def first_two(hidden, output):
    return {"hidden1": hidden["hidden1"][:, :2], "output": output}


def squared_error(output, features, labels):
    return F.mse_loss(output, features)


def in_float64(blobs, model_class, arguments, primary, seed, documents=N, **options):
    """Ask for a training on the first documents, in float64."""
    model = build(model_class, *arguments, seed=seed).double()
    features, labels = blobs[0][:documents].astype(np.float64), blobs[1][:documents]
    return Training(model, features, labels, primary, seed=seed, **options)


def classifiers(blobs, seeds, **options):
    """Ask for the trainings of a small classifier with some seeds."""
    arguments = FeedForwardNet, (6, 3, (8, 6)), cross_entropy
    settings = {"epochs": 1, "batch_size": BATCH} | options
    return [in_float64(blobs, *arguments, seed, **settings) for seed in seeds]


@pytest.mark.parametrize(
    ("model_class", "arguments", "primary", "options"),
    [
        (FeedForwardNet, (6, 3, (8, 6)), cross_entropy, {}),
        (FeedForwardNet, (6, 3, (8, 6)), cross_entropy, {"layers": "min", "steps_per_epoch": 2}),
        (FeedForwardNet, (6, 3, (8, 6)), cross_entropy, {"select": first_two}),
        (partial(ConvNet, positions=3), (6, 3, (8,)), cross_entropy, {}),
        (Autoencoder, (6, (8,), 4), squared_error, {"layers": ["code"]}),
    ],
)
def test_a_stack_takes_the_steps_of_its_runs_alone(blobs, model_class, arguments, primary, options):
    # Other seeds, weights of the loss, temperatures and numbers of documents: the last
    # batches are of 26, 26, 24 and 26 rows.
    shared = {"epochs": 1, "batch_size": BATCH, "learning_rate": 0.01} | options
    own = [
        (7, N, 0.0, "annealed"),
        (7, N, 5.0, "annealed"),
        (8, N - 2, -2.0, "annealed"),
        (9, N, 3.0, 0.3),
    ]

    def asked():
        return [
            in_float64(
                blobs,
                model_class,
                arguments,
                primary,
                seed,
                n,
                alpha=alpha,
                temperature=t,
                **shared,
            )
            for seed, n, alpha, t in own
        ]

    alone, stacked = asked(), asked()
    curves = [train_stack([training])[0] for training in alone]
    others = train_stack(stacked)
    assert len({training.kind() for training in stacked}) == 1
    assert [history.stack for history in curves] == [1] * 4
    assert [history.stack for history in others] == [4] * 4
    for expected, curve, found, other in zip(alone, curves, stacked, others, strict=True):
        pair = weights(found.model), weights(expected.model)
        torch.testing.assert_close(*pair, rtol=0, atol=1e-11)
        pd.testing.assert_frame_equal(other.curve, curve.curve, rtol=1e-11)
    assert not torch.equal(weights(alone[0].model), weights(alone[1].model))


def test_trainings_are_of_one_kind_whatever_their_seeds_documents_weights_and_temperatures(blobs):
    (first,) = classifiers(blobs, [1])
    for options in (
        {"seeds": [2]},
        {"alpha": 5.0},
        {"temperature": 0.1},
        {"documents": N - 2},
        {"after_epoch": lambda model: {}},
    ):
        (other,) = classifiers(blobs, **({"seeds": [1]} | options))
        assert other.kind() == first.kind(), options


def test_trainings_of_other_networks_steps_rates_or_losses_are_of_another_kind(blobs):
    def before_relu():
        model = build(FeedForwardNet, 6, 3, (8, 6), before_relu=True, seed=1).double()
        settings = {"epochs": 1, "seed": 1, "batch_size": BATCH}
        return Training(model, blobs[0].astype(np.float64), blobs[1], cross_entropy, **settings)

    (first,) = classifiers(blobs, [1])
    narrow = FeedForwardNet, (6, 3, (8, 5)), cross_entropy
    settings = {"epochs": 1, "batch_size": BATCH}
    with_buffer = classifiers(blobs, [1])[0]
    with_buffer.model.register_buffer("mean", torch.zeros(2))
    others = [
        in_float64(blobs, *narrow, 1, **settings),
        before_relu(),
        train_in_single := Training(
            build(FeedForwardNet, 6, 3, (8, 6), seed=1), *blobs, cross_entropy, 1, 1
        ),
        in_float64(blobs, FeedForwardNet, (6, 3, (8, 6)), Recorder(), 1, **settings),
        with_buffer,
    ]
    for options in (
        {"epochs": 2},
        {"steps_per_epoch": 2},
        {"batch_size": 45},
        {"learning_rate": 0.1},
        {"layers": "min"},
        {"select": first_two},
        {"regularizer": lambda *_: 0.0, "alpha": 1.0},
    ):
        others += classifiers(blobs, [1], **options)
    assert train_in_single.steps_per_epoch == 1
    kinds = [training.kind() for training in (first, *others)]
    assert len(set(kinds)) == len(kinds) == 13


def test_trainings_with_a_regularizer_or_buffers_never_meet(blobs):
    def regularizer(values, labels, temperature):
        return values.square().mean()

    first, second = classifiers(blobs, [1, 2], regularizer=regularizer, alpha=1.0)
    assert first.kind() == first.kind() != second.kind()


def test_a_run_that_diverges_in_a_stack_says_so_and_leaves_the_others_alone(blobs):
    def asked(alpha):
        return classifiers(blobs, [7], epochs=3, temperature=0.5, alpha=alpha)[0]

    stacked, alone = [asked(alpha) for alpha in (1.0, 1.7e308, 0.0)], [asked(1.0), asked(0.0)]
    for training in alone:
        train_stack([training])
    history, broken, plain = train_stack(stacked)
    assert "in epoch 0" in broken.diverged and len(broken.curve) == 1
    assert not history.diverged and not plain.diverged and len(history.curve) == 3
    torch.testing.assert_close(
        torch.stack([weights(stacked[0].model), weights(stacked[2].model)]),
        torch.stack([weights(training.model) for training in alone]),
        rtol=0,
        atol=1e-10,
    )


def test_after_an_epoch_each_model_of_a_stack_has_its_own_weights_of_then(blobs):
    seen = {}

    def asked(seed):
        def noting(model):
            seen.setdefault(seed, []).append(weights(model).clone())
            return {"seed": seed}

        return classifiers(blobs, [seed], epochs=2, after_epoch=noting)[0]

    trainings = [asked(1), asked(2)]
    found = train_stack(trainings)
    for seed, history, training in zip((1, 2), found, trainings, strict=True):
        last = weights(training.model)
        assert history.curve["seed"].tolist() == [seed, seed]
        assert torch.equal(seen[seed][1], last) and not torch.equal(seen[seed][0], last)
    assert not torch.equal(seen[1][1], seen[2][1])


def test_what_diverged_is_raised_with_its_curve_and_all_else_is_handed_on(blobs):
    _, history = run(blobs, epochs=1)
    assert raise_if_diverged(history) is history
    _, broken = run(blobs, epochs=2, alpha=1e39)
    with pytest.raises(Diverged, match="in epoch 0") as caught:
        raise_if_diverged(broken)
    assert caught.value.curve is broken.curve and len(broken.curve) == 1


# ---------------------------------------------------------------- the weight of the loss


@pytest.mark.parametrize(("weight", "power"), [("over T", -1), ("times T", 1)])
@pytest.mark.parametrize("temperature", ["annealed", 1.0])
def test_a_weight_multiplies_alpha_by_a_power_of_the_falling_temperature(
    blobs, weight, power, temperature
):
    options = {"alpha": 3.0, "temperature": temperature}
    _, history = run(blobs, **options, weight=weight, learning_rate=1e-12)  # which moves nothing
    _, plain = run(blobs, **options, learning_rate=1e-12)
    found, expected = (
        (each.curve["loss"] - each.curve["primary"]).to_numpy() for each in (history, plain)
    )
    falling = np.array([annealed_temperature(epoch) for epoch in range(3)])
    np.testing.assert_allclose(found, expected * falling**power, rtol=1e-4)


def test_each_training_of_a_stack_has_its_own_weight(blobs):
    kinds = (None, "over T", "times T")
    options = {"epochs": 3, "seed": 7, "alpha": 3.0, "batch_size": BATCH}

    def training(weight):
        model = build(FeedForwardNet, 6, 3, (8, 6), seed=7)
        return Training(model, *blobs, cross_entropy, weight=weight, **options)

    together = train_stack([training(weight) for weight in kinds])
    for weight, found in zip(kinds, together, strict=True):
        (alone,) = train_stack([training(weight)])
        np.testing.assert_allclose(found.curve["loss"], alone.curve["loss"], rtol=1e-4)
    losses = [each.curve["loss"].iloc[-1] for each in together]
    assert len({round(loss, 3) for loss in losses}) == 3


def test_a_weight_is_among_the_facts_of_a_training_only_when_it_is_set(blobs):
    model = build(FeedForwardNet, 6, 3, (8, 6), seed=7)
    plain, weighted = (
        Training(model, *blobs, cross_entropy, epochs=1, seed=7, weight=weight).facts()
        for weight in (None, "over T")
    )
    assert weighted["weight"] == "over T" and "weight" not in plain
    assert set(weighted) == {*plain, "weight"}


def test_an_unknown_weight_is_an_error_that_names_it(blobs):
    with pytest.raises(ValueError, match=r"weight must be one of .* got 'by T'"):
        run(blobs, weight="by T")
