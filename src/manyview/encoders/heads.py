"""Heads: from the representation to the vectors that are contrasted. Plain functions and a table of them."""

from collections.abc import Callable
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.core.bounds import MOST, AtLeast, AtMost, Count
from manyview.core.errors import UserError


def linear(dim_in: int, dim_out: Count = 128, *, std: float | None = None) -> nn.Module:
    """One fully connected layer: MoCo v1, CMC, and fc8 of SmallAlexNet.

    It is drawn as torch draws it; with `std` its weights come from N(0, std^2) and its bias is 0: std=0.02 for fc8, as
    for all of SmallAlexNet (Wang & Isola, ICML 2020).
    """
    if std is not None and not std > 0:
        raise UserError("std", f"expected a number above 0, got {std}; without it the layer is drawn as torch draws it")
    layer = nn.Linear(dim_in, dim_out)
    if std is not None:
        nn.init.normal_(layer.weight, 0, std)
        nn.init.zeros_(layer.bias)
    return layer


def mlp(
    dim_in: int, dim_out: Count = 128, *, hidden: Annotated[int | None, AtLeast(1), AtMost(MOST)] = None
) -> nn.Module:
    """MoCo v2 and JCL (facebookresearch/moco, `--mlp`): dim_in - hidden - dim_out, ReLU, biases, no batch norm.

    hidden is dim_in if it is not given: 2048-2048-128 for ResNet-50.
    """
    middle = hidden or dim_in
    return nn.Sequential(nn.Linear(dim_in, middle), nn.ReLU(inplace=True), nn.Linear(middle, dim_out))


def simclr(dim_in: int, dim_out: Count = 128, *, layers: int = 3) -> nn.Module:
    """SimCLR (google-research/simclr, tf2/model.py, `ProjectionHead`; 3 layers are its default, the paper has 2).

    Every layer is linear without bias, drawn from N(0, 0.01^2), then batch norm; hidden layers are dim_in wide and end
    in ReLU, and the last batch norm has a scale and no shift.
    """
    if layers not in (2, 3):
        raise UserError("layers", f"SimCLR's head has 2 or 3, got {layers}")
    parts: list[nn.Module] = []
    for _ in range(layers - 1):
        parts += [nn.Linear(dim_in, dim_in, bias=False), nn.BatchNorm1d(dim_in), nn.ReLU(inplace=True)]
    last = nn.BatchNorm1d(dim_out)
    last.bias.requires_grad_(False)  # stays 0: batch norm cannot be had with a scale alone
    head = nn.Sequential(*parts, nn.Linear(dim_in, dim_out, bias=False), last)
    for part in head:
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, 0, 0.01)
    return head


def projector(dim_in: int, dim_out: Count = 256, *, hidden: Count = 4096, layers: Count = 2) -> nn.Module:
    """MoCo v3 (facebookresearch/moco-v3, moco/builder.py): layers=2 for ResNet, 3 for ViT.

    No biases; batch norm and ReLU after hidden layers, batch norm without scale and shift after the last.
    """
    return _mocov3(dim_in, dim_out, hidden, layers, last_norm=True)


def predictor(
    dim_in: int, dim_out: Count = 256, *, hidden: Count = 4096, last_norm: bool = False, last_bias: bool = False
) -> nn.Module:
    """MoCo v3's second head, on the query side alone: two layers. last_norm=False for ResNet, True for ViT.

    With hidden=512, dim_out=128 and last_bias, a bias of the last layer, it is HN-CL's only head (Robinson et al., ICLR
    2021).
    """
    return _mocov3(dim_in, dim_out, hidden, 2, last_norm=last_norm, last_bias=last_bias)


def bn_mlp(
    dim_in: int, dim_out: Count = 256, *, hidden: Count = 4096, layers: Count = 2, bias: bool = False
) -> nn.Module:
    """Batch norm and ReLU after hidden layers and nothing after the last: heads and predictors without negatives.

    BYOL's two heads are 4096-256; SimSiam's predictor is 512-2048 with a bias in the last layer; Barlow Twins' and
    VICReg's have three layers of 8192; SwAV's is 2048-128 with a bias. Hidden layers have none, which batch norm would
    take off again (BYOL's, SwAV's and VICReg's code have it).

    bias  of the last layer
    """
    return _mocov3(dim_in, dim_out, hidden, layers, last_norm=False, last_bias=bias)


def dino(dim_in: int, dim_out: Count = 256, *, hidden: Count = 2048, layers: Count = 3) -> nn.Module:
    """DINO's head up to its prototypes (Caron et al., ICCV 2021, appendix C): GELU after hidden layers, no batch norm.

    Weights come from N(0, 0.02^2), cut at 2, and biases begin at 0.
    """
    parts: list[nn.Module] = []
    for _ in range(layers - 1):
        parts += [nn.Linear(dim_in, hidden), nn.GELU()]
        dim_in = hidden
    head = nn.Sequential(*parts, nn.Linear(dim_in, dim_out))
    for part in head:
        if isinstance(part, nn.Linear):
            nn.init.trunc_normal_(part.weight, std=0.02)
            nn.init.zeros_(part.bias)
    return head


class Jigsaw(nn.Module):
    """PIRL's second head (Misra & van der Maaten, CVPR 2020): features (B, 9, dim_in) to unit vectors (B, dim_out).

    `head` makes the head that brings each of the nine patches to dim_out; a linear layer takes them, side by side, to
    dim_out. The paper's is `linear`; in HobbitLong/PyContrast it is of the kind of the plain head, as it is here.
    """

    def __init__(self, dim_in: int, head: Callable[[int], nn.Module], *, patches: int = 9) -> None:
        super().__init__()
        self.patch = head(dim_in).eval()
        with torch.no_grad():
            dim_out = self.patch(torch.zeros(1, dim_in, device=next(self.patch.parameters()).device)).shape[1]
        self.joined = nn.Linear(patches * dim_out, dim_out)
        self.train()

    def forward(self, features: Tensor) -> Tensor:
        joined: Tensor = self.joined(self.patch(features.flatten(0, 1)).view(len(features), -1))
        return F.normalize(joined.to(torch.promote_types(joined.dtype, torch.float32)), dim=1)


def _mocov3(
    dim_in: int, dim_out: int, hidden: int, layers: int, *, last_norm: bool, last_bias: bool = False
) -> nn.Module:
    if layers < 1:
        raise UserError("layers", f"expected at least 1, got {layers}")
    parts: list[nn.Module] = []
    for _ in range(layers - 1):
        parts += [nn.Linear(dim_in, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True)]
        dim_in = hidden
    parts.append(nn.Linear(dim_in, dim_out, bias=last_bias))
    return nn.Sequential(*parts, *([nn.BatchNorm1d(dim_out, affine=False)] if last_norm else []))


HEADS: dict[str, Callable[..., nn.Module]] = {
    "linear": linear,
    "mlp": mlp,
    "simclr": simclr,
    "projector": projector,
    "predictor": predictor,
    "bn_mlp": bn_mlp,
    "dino": dino,
}
