"""SCCL: its losses by hand, and that contrast and clustering are both learnt."""

import copy
import math

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from test_clusterbert import TITLES

from snnl_book.embeddings.backbones import tokenize
from snnl_book.embeddings.transformers import encode, load_encoder
from snnl_book.methods import _texts, sccl
from snnl_book.methods._fitting import KMEANS_STARTS
from snnl_book.methods.sccl import SCCL, contrastive_loss
from snnl_lib.training import named_seed


def test_the_contrastive_loss_is_equations_1_and_2_by_hand():
    first, second = np.random.default_rng(0).normal(size=(2, 3, 4))
    views = [v / np.linalg.norm(v) for v in (*first, *second)]
    total = 0
    for i in range(6):
        near = [math.exp(views[i] @ view / 0.5) for view in views]
        total -= math.log(near[(i + 3) % 6] / (sum(near) - near[i]))
    found = contrastive_loss(torch.tensor(first), torch.tensor(second))
    assert found.item() == pytest.approx(total / 6)


def fit(name, k=2, **settings):
    brief = {"steps": 6, "batch_size": 4, "seed": 7, "learning_rate": 1e-3}
    return SCCL(k, name, **brief | settings).fit(TITLES)


@pytest.fixture
def losses(monkeypatch):
    """The contrastive loss of each step."""
    found, plain = [], sccl.contrastive_loss

    def noting(first, second):
        loss = plain(first, second)
        found.append(loss.item())
        return loss

    monkeypatch.setattr(sccl, "contrastive_loss", noting)
    return found


def test_contrast_is_learnt_and_each_text_gets_the_nearest_centroid(packages, losses):
    found = SCCL(2, "minilm", steps=30, batch_size=8, seed=7, learning_rate=1e-4).fit(TITLES)
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.1
    files, lists = set(found.labels_[:4]), set(found.labels_[4:])  # titles about each
    assert len(files) == len(lists) == 1 and files != lists
    assert found.embeddings.shape == (8, 384)


def test_the_curve_has_a_row_every_100_steps_and_one_at_the_end_each_the_mean_since_the_one_before(
    roberta, losses
):
    curve = fit(roberta, steps=105).curve
    assert curve["step"].tolist() == [100, 105]
    means = [np.mean(losses[:100]), np.mean(losses[100:])]
    assert curve["contrastive"].tolist() == pytest.approx(means, rel=1e-5)


# ---------------------------------------------------------------- what a step reads, aims at and
# moves


@pytest.fixture
def seen(roberta, monkeypatch):
    """What a fit computes, by name, a list each: the projected ``views``, the embeddings ``clean``
    and assignments ``q`` of what is clustered, ``targets``.
    """
    found = {"views": [], "clean": [], "q": [], "targets": []}
    contrast, assign = sccl.contrastive_loss, sccl.soft_assignment
    sharpen = sccl.target_distribution

    def noting_views(first, second):
        found["views"].append((first.detach(), second.detach()))
        return contrast(first, second)

    def noting_clean(codes, centroids):
        found["clean"].append(codes.detach())
        found["q"].append(q := assign(codes, centroids))
        return q

    def noting_targets(q):
        found["targets"].append(p := sharpen(q.detach()).requires_grad_())
        return p

    for name, noting in (
        ("contrastive_loss", noting_views),
        ("soft_assignment", noting_clean),
        ("target_distribution", noting_targets),
    ):
        monkeypatch.setattr(sccl, name, noting)
    return found


@pytest.fixture
def no_dropout(monkeypatch):
    load = sccl.load_encoder

    def steady(*args):
        encoder = load(*args)
        for module in encoder.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        return encoder

    monkeypatch.setattr(sccl, "load_encoder", steady)


def start_of(name):
    return encode(load_encoder(name), tokenize(TITLES, name))


def test_two_noisy_views_are_contrasted_where_they_are_projected_and_the_whole_texts_are_clustered(
    roberta, seen, no_dropout
):
    fit(roberta, steps=1, batch_size=8, deletion=0.5)
    first, second = seen["views"][0]
    assert first.shape == second.shape == (8, sccl.PROJECTION)
    assert not torch.allclose(first, second, atol=1e-4), "each view has its own words deleted"
    clean, start = (np.sort(rows, axis=0) for rows in (seen["clean"][0], start_of(roberta)))
    np.testing.assert_allclose(clean, start, atol=1e-5)


def test_views_differ_by_dropout_where_nothing_is_deleted(roberta, seen):
    fit(roberta, steps=1, batch_size=8, deletion=0.0)
    first, second = seen["views"][0]
    assert not torch.allclose(first, second, atol=1e-4)


def test_assignments_are_drawn_to_their_sharpened_selves_which_stay_where_they_are(roberta, seen):
    found = fit(roberta, steps=1, batch_size=8)
    p, q = seen["targets"][0], seen["q"][0].detach()
    by_hand = (p.detach() * (p.detach() / q).log()).sum().item() / 8  # Eqs. 5-6
    assert found.curve["clustering"].item() == pytest.approx(by_hand, rel=0.05)
    assert p.grad is None


def test_the_backbone_learns_at_its_rate_and_projection_and_centroids_at_theirs(
    roberta, monkeypatch
):
    groups, plain = [], torch.optim.Adam

    def noting(own, **settings):
        groups.extend(own)
        return plain(own, **settings)

    monkeypatch.setattr(torch.optim, "Adam", noting)
    fit(roberta, k=3, learning_rate=1e-5, new_rate=1e-3)
    old, new = groups
    assert (old["lr"], new["lr"]) == (1e-5, 1e-3)
    assert len(old["params"]) == len([*load_encoder(roberta).parameters()])
    shapes = [(32, 32), (32,), (sccl.PROJECTION, 32), (sccl.PROJECTION,), (3, 32)]
    assert sorted(tuple(own.shape) for own in new["params"]) == sorted(shapes)


def test_centroids_start_from_k_means_and_a_text_belongs_to_the_nearest(roberta):
    still = fit(roberta, k=3, steps=1, learning_rate=0.0, new_rate=0.0)
    kmeans = KMeans(3, n_init=KMEANS_STARTS, random_state=named_seed(7, "centroids"))
    np.testing.assert_array_equal(still.labels_, kmeans.fit_predict(start_of(roberta)))


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(roberta):
    first, again, other = fit(roberta), fit(roberta), fit(roberta, seed=8)
    np.testing.assert_array_equal(first.embeddings, again.embeddings)
    assert not np.array_equal(first.embeddings, other.embeddings)


def test_a_loss_that_is_not_finite_ends_the_run_and_says_where(roberta, monkeypatch):
    monkeypatch.setattr(sccl, "contrastive_loss", lambda first, second: first.sum() * math.nan)
    with pytest.warns(UserWarning, match=r"the training broke down \(the loss was nan"):
        found = fit(roberta, steps=250)
    assert "the loss was nan within the 100 steps before step 100" in found.diverged
    assert len(found.curve) == 1


def test_a_number_of_clusters_that_cannot_be_is_refused(roberta):
    for k in (0, 9, 2.0):
        with pytest.raises(ValueError, match=rf"number of texts \(8\), got {k!r}"):
            fit(roberta, k=k)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("steps", value) for value in (-1, 1.5, None)),
        *(("batch_size", value) for value in (0, 1, -1, 2.5)),
        *(("deletion", value) for value in (-0.1, 2, math.nan)),
        *(("weight", value) for value in (-1, None, math.inf)),
        *((rate, value) for rate in ("learning_rate", "new_rate") for value in (-1, math.nan)),
    ],
)
def test_a_setting_out_of_its_range_is_refused(setting, value):
    with pytest.raises(ValueError, match=f"{setting} must be a .* number .*, got {value}"):
        SCCL(2, **{"steps": 1, setting: value}).fit(TITLES)


def test_a_refused_fit_leaves_what_was_fitted(roberta, monkeypatch):
    found = fit(roberta)
    tokenizer, vectors = found._tokenizer, found.transform(TITLES)
    monkeypatch.setattr(_texts, "load_tokenizer", lambda name: copy.copy(tokenizer))
    with pytest.raises(ValueError, match="number of clusters"):
        found.set_params(k=99).fit(TITLES)
    assert found._tokenizer is tokenizer  # of another backbone it would read texts otherwise
    np.testing.assert_array_equal(found.transform(TITLES), vectors)


def test_the_clustering_loss_is_weighed(roberta, monkeypatch):
    monkeypatch.setattr(sccl, "contrastive_loss", lambda first, second: first.sum() * 0)
    start = start_of(roberta)
    without, with_it = fit(roberta, weight=0.0), fit(roberta, weight=10.0)
    np.testing.assert_allclose(without.embeddings, start, atol=1e-6)
    assert np.abs(with_it.embeddings - start).max() > 1e-3
