"""The supervised contrastive loss, against its definition and a second implementation."""

import numpy as np
import pytest
import torch
from pytorch_metric_learning.losses import SupConLoss

from snnl_lib.losses import soft_nearest_neighbor_loss, supervised_contrastive_loss


def batch(seed=0, size=40, classes=4, width=7):
    random = np.random.default_rng(seed)
    features = torch.tensor(
        random.normal(size=(size, width)), dtype=torch.float64, requires_grad=True
    )
    return features, torch.tensor(random.integers(0, classes, size))


def supcon_by_hand(features, labels, temperature):
    """Khosla et al. (2020), their "out" form, one pair at a time."""
    unit = [row / np.sqrt((row**2).sum()) for row in features]
    losses = []
    for i, anchor in enumerate(unit):
        others = [k for k in range(len(unit)) if k != i]
        mates = [k for k in others if labels[k] == labels[i]]
        if mates:
            total = sum(np.exp(anchor @ unit[k] / temperature) for k in others)
            losses.append(
                -np.mean([np.log(np.exp(anchor @ unit[k] / temperature) / total) for k in mates])
            )
    return np.mean(losses) if losses else 0.0


@pytest.mark.parametrize("classes", [1, 4, 35])  # 35 classes of 40 points: many without a mate
def test_the_rival_loss_is_that_of_khosla_and_others_one_pair_at_a_time(classes):
    for seed, temperature in ((0, 0.05), (1, 0.5), (2, 1.0)):
        features, labels = batch(seed, classes=classes)
        ours = supervised_contrastive_loss(features, labels, temperature)
        by_hand = supcon_by_hand(features.detach().numpy(), labels.numpy(), temperature)
        assert ours.item() == pytest.approx(by_hand, rel=1e-12)
        if classes > 1:  # the second implementation gives 0 for a batch of one class
            theirs = SupConLoss(temperature)(features, labels)
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
            gradients = [torch.autograd.grad(loss, features)[0] for loss in (ours, theirs)]
            assert gradients[0].abs().max() > 1e-3
            torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-10)


def test_half_precision_is_computed_in_float32():
    features, labels = batch()
    for dtype in (torch.float16, torch.bfloat16):
        half = features.detach().to(dtype)
        loss = supervised_contrastive_loss(half, labels, 1e-4)
        assert loss.dtype == torch.float32 and torch.isfinite(loss)
        assert loss == supervised_contrastive_loss(half.float(), labels, 1e-4)


def test_without_class_mates_the_rival_loss_is_0_and_for_equal_points_it_is_finite():
    for labels in ([0], [0, 1, 2]):
        features = torch.randn(len(labels), 5, requires_grad=True)
        loss = supervised_contrastive_loss(features, torch.tensor(labels), 0.1)
        loss.backward()
        assert loss.item() == 0 and not features.grad.any()
    for temperature in (1.0, 0.01):
        features = torch.cat([torch.ones(6, 5), -torch.ones(6, 5)]).requires_grad_()
        loss = supervised_contrastive_loss(features, torch.arange(12) % 2, temperature)
        loss.backward()
        assert loss.isfinite() and features.grad.isfinite().all()


def test_one_near_class_mate_satisfies_equation_4_and_not_its_rival():
    # What tells the two apart: the mean over the classmates inside the logarithm, or outside.
    angles = torch.tensor(
        [0.0, 0.05, 3.0, 1.5, 1.55, 4.5], dtype=torch.float64
    )  # each class: two points together, one far away
    points, labels = (
        torch.stack([angles.cos(), angles.sin()], dim=1),
        torch.tensor([0, 0, 0, 1, 1, 1]),
    )
    near = torch.tensor([0, 1, 3, 4])
    ours = soft_nearest_neighbor_loss(points, labels, 0.1, reduction="none")[near]
    assert ours.max() < 0.1 and supervised_contrastive_loss(points, labels, 0.1) > 5


def test_what_does_not_fit_is_refused():
    x, y = torch.ones(4, 2), torch.tensor([0, 0, 1, 1])
    for features, labels, temperature, error, named in (
        (x, y[:, None], 1.0, ValueError, r"labels must be \[B\], .* got \(4, 1\)"),
        (x, y[:3], 1.0, ValueError, r"\(4, 2\) and \(3,\)"),
        (x[None], y[None], 1.0, ValueError, r"labels must be \[B\], .* got \(1, 4\)"),
        (x, y.float(), 1.0, TypeError, "labels .*float32"),
        (x.long(), y, 1.0, TypeError, "features .*int64"),
        (x, y, -1.0, ValueError, "temperature .*-1.0"),
    ):
        with pytest.raises(error, match=named):
            supervised_contrastive_loss(features, labels, temperature)
