"""The supervised contrastive loss (Khosla et al., 2020), a rival of Eq. 4."""

import torch
import torch.nn.functional as F


def supervised_contrastive_loss(features, labels, temperature):
    """Compute the supervised contrastive loss on cosines, in its "out" form.

    Like Eq. 4 it is a softmax over the rest of the batch, but the mean over the class mates stands
    outside the logarithm, so that every class mate has to be near, and not only one.

    Args:
        features: float tensor [B, D]; float16 and bfloat16 are computed in float32.
        labels: integer tensor [B]; anchors without a class mate are left out.
        temperature: a number above 0.

    Returns:
        Tensor of one value, the mean over the anchors; 0 where none has a class mate.

    >>> apart = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> round(supervised_contrastive_loss(apart, torch.tensor([0, 0, 1]), 1.0).item(), 4)
    0.3133
    """
    unit = F.normalize(features.to(torch.promote_types(features.dtype, torch.float32)), dim=1)
    itself = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    least = torch.finfo(unit.dtype).min / 4
    logits = (unit @ unit.T / temperature).masked_fill(itself, least)
    mates = (labels[:, None] == labels) & ~itself
    log_shares = logits - logits.logsumexp(dim=1, keepdim=True)
    losses = -(log_shares * mates).sum(dim=1) / mates.sum(dim=1).clamp_min(1)
    return losses.sum() / mates.any(dim=1).sum().clamp_min(1)
