"""What ``soft_nearest_neighbor_loss`` is compared with. Each takes (features [B, D], labels [B],
temperature).
"""

import torch
import torch.nn.functional as F

from snnl_lib.losses import soft_nearest_neighbor_loss


def usual(features, labels, temperature):
    """Eq. 4 as snippets have it: normalise, exponentiate, subtract the identity, divide, take the
    logarithm of the class's share.
    """
    features = F.normalize(features)
    table = torch.exp((features @ features.T - 1) / temperature) - torch.eye(
        len(features), device=features.device
    )
    shares = table / (1e-9 + table.sum(dim=1, keepdim=True))
    same = (labels[:, None] == labels).to(table.dtype)
    return -torch.log(1e-9 + (shares * same).sum(dim=1)).mean()


LOSSES = {"ours": soft_nearest_neighbor_loss, "usual formula": usual}
try:
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.losses import NCALoss, SupConLoss
except (
    ImportError
):  # it comes with requirements.txt; a bare machine compares with the usual formula alone
    pass
else:
    LOSSES["NCALoss"] = lambda features, labels, temperature: NCALoss(
        softmax_scale=1 / temperature, distance=CosineSimilarity()
    )(features, labels)
    LOSSES["SupConLoss"] = lambda features, labels, temperature: SupConLoss(
        temperature=temperature
    )(features, labels)


def denoising_loss(folder, device):
    """TSDAE as sentence-transformers has it, of the transformer in a folder, ready to be trained.

    Raises ImportError where that is not installed: it comes with the extra ``transformers``.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import DenoisingAutoEncoderLoss
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    transformer = Transformer(folder)
    pooling = Pooling(transformer.get_embedding_dimension(), "cls")
    model = SentenceTransformer(modules=[transformer, pooling], device=device)
    return DenoisingAutoEncoderLoss(model).to(device).train()
