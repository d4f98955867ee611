"""AE(D) as an estimator: the experiments' codes, labels of any kind and rows without one."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from snnl_book.experiments import codes
from snnl_book.methods import DisentangledAutoencoder, VaDE
from snnl_lib.models import Autoencoder
from snnl_lib.training import binary_cross_entropy, build, forward, train

BRIEF = {"epochs": 3, "hidden_sizes": (32, 16), "code_size": 8, "seed": 42}


@pytest.fixture(scope="module")
def digits():
    """Handwritten digits: those to fit to with their classes, and others."""
    x, y = load_digits(return_X_y=True)
    return x[:400].astype(np.float32), y[:400], x[400:500].astype(np.float32)


def test_the_codes_are_those_of_the_experiments_bit_for_bit(digits):
    x, y, others = digits
    train_x, test_x = codes.scale_to_unit(x, others)
    network, settings = build(Autoencoder, 64, seed=42), {"epochs": 2, "seed": 42, "alpha": 100}
    history = train(network, train_x, y, binary_cross_entropy, **settings)
    found = DisentangledAutoencoder(epochs=2, seed=42).fit(x, y)
    np.testing.assert_array_equal(found.transform(others), forward(network, test_x, layer="code"))
    assert found.curve.equals(history.curve) and found.diverged == ""


def test_labels_draw_codes_together_as_far_as_alpha_says(digits):
    x, y, _ = digits
    entangled = [
        codes.entanglement(
            DisentangledAutoencoder(alpha, **BRIEF | {"epochs": 20}).fit(x, y).transform(x), y
        )
        for alpha in (0, 100)
    ]
    assert entangled[1] < entangled[0] - 0.2


def test_strings_are_labels_like_numbers(digits):
    x, y, others = digits
    names = np.array(list("abcdefghij"))[y]
    first, second = (DisentangledAutoencoder(**BRIEF).fit(x, own) for own in (y, names))
    np.testing.assert_array_equal(first.transform(others), second.transform(others))


def test_rows_without_a_label_are_reconstructed_and_not_disentangled(digits):
    x, y, others = digits
    some = np.arange(len(y)) % 3 > 0
    marked = np.where(some, y, -1)
    without = np.where(some, y, None)
    model = DisentangledAutoencoder(**BRIEF).fit(x, without)
    for missing in (pd.Series(without).astype("Int64"), np.where(some, y, np.nan)):
        by_pandas = DisentangledAutoencoder(**BRIEF).fit(x, missing)
        np.testing.assert_array_equal(by_pandas.transform(others), model.transform(others))
    taken = DisentangledAutoencoder(**BRIEF).fit(x, marked)  # -1 is a class like any other
    assert not np.array_equal(model.transform(others), taken.transform(others))
    network = build(Autoencoder, 64, (32, 16), 8, seed=42)
    scaled, _ = codes.scale_to_unit(x, others)
    settings = {"epochs": 3, "seed": 42, "alpha": 100, "ignore_index": -1}
    train(network, scaled, marked, binary_cross_entropy, **settings)
    np.testing.assert_array_equal(model.transform(x), forward(network, scaled, layer="code"))


def test_a_large_offset_does_not_erase_the_differences(digits):
    x, y, others = digits[0].astype(float), digits[1], digits[2].astype(float)
    near = DisentangledAutoencoder(**BRIEF).fit(x, y).transform(others)
    model = DisentangledAutoencoder(**BRIEF).fit(x + 2.0**31, y)  # as times in seconds have
    np.testing.assert_allclose(model.transform(others + 2.0**31), near, atol=1e-5)
    with pytest.raises(ValueError, match="overflow"):
        VaDE(2).fit(np.array([[1e300], [0.0], [1.0]]))


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("int8", -128, 127), ("uint8", 60, 200), ("bool", 0, 16), ("float16", -6e4, 6e4)],
)
def test_small_types_are_scaled_as_floats_are(digits, dtype, low, high):
    x, others = ((low + (high - low) * x / 16).astype(dtype) for x in (digits[0], digits[2]))
    others[:10] = 0  # for uint8 below the smallest fitted value
    small, usual = (
        DisentangledAutoencoder(**BRIEF).fit(x.astype(kind), digits[1]).transform(rows)
        for kind, rows in ((dtype, others), (float, others.astype(float)))
    )
    np.testing.assert_allclose(small, usual, atol=1e-4)


def test_a_training_that_breaks_down_is_warned_of(digits):
    with pytest.warns(UserWarning, match=r"the training broke down \(.*not finite|nan"):
        found = DisentangledAutoencoder(**BRIEF, learning_rate=1e30).fit(digits[0], digits[1])
    assert found.diverged


def test_labels_that_are_none_are_refused_in_a_sentence(digits):
    for y, said in (
        (None, "requires y to be passed"),
        ([None] * 400, "y must be labels .*, got no labels"),
        (np.linspace(0, 1, 400), "y must be labels .*, got continuous labels"),
        (np.zeros(399, dtype=int), "inconsistent numbers of samples"),
        (np.zeros((400, 2), dtype=int), "1d array"),
    ):
        with pytest.raises(ValueError, match=said) as caught:
            DisentangledAutoencoder(**BRIEF).fit(digits[0], y)
        assert "\n" not in str(caught.value)


def test_parameters_out_of_their_range_are_refused(digits):
    for own, said in (
        ({"layers": ["middle"]}, "layers must be"),
        ({"alpha": np.inf}, "alpha must be a finite number"),
        ({"temperature": -1.0}, "temperature"),
        ({"epochs": 0}, "epochs and batch_size must be above 0, got 0 and"),
        ({"batch_size": 0}, "epochs and batch_size must be above 0, got .* and 0"),
        ({"hidden_sizes": 5}, "hidden_sizes must be .*, got 5"),
        ({"learning_rate": -0.1}, "learning_rate must be .* at least 0, got -0.1"),
    ):
        with pytest.raises(ValueError, match=said):
            DisentangledAutoencoder(**BRIEF | own).fit(digits[0], digits[1])


def test_the_loss_can_see_some_layers_only(digits):
    x, y, others = digits
    seen = [
        DisentangledAutoencoder(**BRIEF, layers=layers).fit(x, y).transform(others)
        for layers in ("sum", "min", ["code"], ("code",))
    ]
    assert not np.array_equal(seen[0], seen[2]) and not np.array_equal(seen[1], seen[2])
    np.testing.assert_array_equal(seen[2], seen[3])
