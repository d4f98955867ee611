"""SCCL: its losses by hand, and that contrast and clustering are both learnt."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_backbones import roberta, small_roberta  # noqa: F401 - fixtures
from test_clusterbert import TITLES

from snnl_lib import sccl
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


def test_both_losses_fall_and_each_text_gets_the_nearest_centroid(roberta):  # noqa: F811
    found = fit(roberta, steps=300)
    assert found.curve["step"].tolist() == [100, 200, 300]
    assert found.curve["contrastive"].is_monotonic_decreasing
    assert found.curve["clustering"].iloc[-1] < found.curve["clustering"].iloc[0]
    assert found.embeddings.shape == (8, 32)
    assert found.clusters.shape == (8,)
    assert set(found.clusters) <= {0, 1}


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(roberta):  # noqa: F811
    first, again, other = fit(roberta), fit(roberta), fit(roberta, seed=8)
    np.testing.assert_array_equal(first.embeddings, again.embeddings)
    assert not np.array_equal(first.embeddings, other.embeddings)


def test_a_loss_that_is_not_finite_ends_the_run_and_says_where(roberta, monkeypatch):  # noqa: F811
    monkeypatch.setattr(sccl, "contrastive_loss", lambda first, second: first.sum() * math.nan)
    found = fit(roberta, steps=250)
    assert "the loss was nan within the 100 steps before step 100" in found.diverged
    assert len(found.curve) == 1


@pytest.mark.parametrize("k", [0, 9, 2.0])
def test_a_number_of_clusters_that_cannot_be_is_refused(roberta, k):  # noqa: F811
    with pytest.raises(ValueError, match="number of clusters must be a whole number from 1 to the number of texts, 8"):
        fit(roberta, k=k)


def test_the_weight_decides_between_contrast_and_clustering(roberta):  # noqa: F811
    light, heavy = (fit(roberta, steps=100, weight=weight).curve["clustering"].iloc[-1] for weight in (0.0, 100.0))
    assert heavy < light
