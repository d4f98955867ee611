"""SCCL: its losses by hand, and that contrast and clustering are both learnt."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_clusterbert import TITLES

from snnl_lib import backbones, sccl
from snnl_lib.sccl import SCCL, contrastive_loss


def test_the_contrastive_loss_is_equations_1_and_2_by_hand():
    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, 3, 4))
    views = [v / np.linalg.norm(v) for v in (*first, *second)]
    total = 0
    for i in range(6):
        partner = (i + 3) % 6
        own = math.exp(views[i] @ views[partner] / 0.5)
        total -= math.log(own / sum(math.exp(views[i] @ views[j] / 0.5) for j in range(6) if j != i))
    assert contrastive_loss(torch.tensor(first), torch.tensor(second)).item() == pytest.approx(total / 6)


def test_views_that_agree_have_a_smaller_loss_than_views_that_do_not():
    views = F.one_hot(torch.arange(4)).float()
    assert contrastive_loss(views, views) < contrastive_loss(views, views.roll(1, dims=0))


def fit(name, k=2, **settings):
    return SCCL(k, name, **({"steps": 6, "batch_size": 4, "seed": 7, "learning_rate": 1e-3} | settings)).fit(TITLES)


def test_contrast_is_learnt_and_each_text_gets_the_nearest_centroid(packages, monkeypatch):
    seen, plain = [], sccl.contrastive_loss
    monkeypatch.setattr(sccl, "contrastive_loss", lambda first, second: (loss := plain(first, second), seen.append(loss.item()))[0])
    found = SCCL(2, "minilm", steps=30, batch_size=8, seed=7, learning_rate=1e-4).fit(TITLES)
    assert np.mean(seen[-5:]) < np.mean(seen[:5]) - 0.1
    assert len(set(found.clusters[:4])) == len(set(found.clusters[4:])) == 1  # titles about files and about lists
    assert found.clusters[0] != found.clusters[4]
    assert found.embeddings.shape == (8, 384)


def test_the_curve_has_a_row_every_100_steps_and_one_at_the_end(roberta):
    assert fit(roberta, steps=250).curve["step"].tolist() == [100, 200, 250]


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(roberta):
    first, again, other = fit(roberta), fit(roberta), fit(roberta, seed=8)
    np.testing.assert_array_equal(first.embeddings, again.embeddings)
    assert not np.array_equal(first.embeddings, other.embeddings)


def test_a_loss_that_is_not_finite_ends_the_run_and_says_where(roberta, monkeypatch):
    monkeypatch.setattr(sccl, "contrastive_loss", lambda first, second: first.sum() * math.nan)
    found = fit(roberta, steps=250)
    assert "the loss was nan within the 100 steps before step 100" in found.diverged
    assert len(found.curve) == 1


@pytest.mark.parametrize("k", [0, 9, 2.0])
def test_a_number_of_clusters_that_cannot_be_is_refused(roberta, k):
    with pytest.raises(ValueError, match="number of clusters must be a whole number from 1 to the number of texts, 8"):
        fit(roberta, k=k)


def test_the_clustering_loss_is_weighed(roberta, monkeypatch):
    monkeypatch.setattr(sccl, "contrastive_loss", lambda first, second: first.sum() * 0)
    start = backbones.encode(backbones.load_encoder(roberta), backbones.tokenize(TITLES, roberta))
    without, with_it = fit(roberta, weight=0.0), fit(roberta, weight=10.0)
    np.testing.assert_allclose(without.embeddings, start, atol=1e-6)
    assert np.abs(with_it.embeddings - start).max() > 1e-3
