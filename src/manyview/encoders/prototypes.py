"""Prototypes: vectors that embeddings are scored by, as the last layer of a tower. SwAV's, and DINO's."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.core.bounds import Count


class Prototypes(nn.Module):
    """Scores of embeddings (B, dim), made unit length, by `count` prototypes: inner products (B, count).

    scale  "unit": prototypes have length 1, and are made so again after each step of the optimiser (SwAV)
           "fixed": they are divided by their length where they are used: weight norm, all scales 1 (DINO)
           "learnt": the same, and each has a scale that is learnt (DINO with ViT-S: norm_last_layer false)
    """

    def __init__(self, dim: int, count: int, scale: str = "unit") -> None:
        super().__init__()
        self.weight = nn.Parameter(F.normalize(torch.randn(count, dim), dim=1))
        self.unit = scale == "unit"
        self.scale = nn.Parameter(torch.ones(count)) if scale == "learnt" else None

    def forward(self, embeddings: Tensor) -> Tensor:
        unit = F.normalize(embeddings.to(torch.promote_types(embeddings.dtype, torch.float32)), dim=1)
        weight = self.weight if self.unit else F.normalize(self.weight, dim=1)
        return F.linear(unit, weight if self.scale is None else weight * self.scale[:, None])

    @torch.no_grad()
    def after_step(self) -> None:
        """Makes prototypes of unit length so again."""
        if self.unit:
            self.weight.copy_(F.normalize(self.weight, dim=1))


def unit(dim: int, count: Count = 3000) -> Prototypes:
    """SwAV (Caron et al., NeurIPS 2020): prototypes of length 1, made so again after each step of the optimiser."""
    return Prototypes(dim, count)


def weight_norm(dim: int, count: Count = 65536, *, learnt_scale: bool = False) -> Prototypes:
    """DINO (Caron et al., ICCV 2021): a last layer with weight norm. learnt_scale: of each prototype, for ViT-S."""
    return Prototypes(dim, count, "learnt" if learnt_scale else "fixed")


PROTOTYPES = {"unit": unit, "weight_norm": weight_norm}
