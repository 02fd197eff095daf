"""The vision transformers of MoCo v3: timm's, with fixed positions and a random patch embedding that stays as it is."""

from functools import partial

import torch
from timm.layers.pos_embed_sincos import build_sincos2d_pos_embed
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from manyview.core.errors import UserError
from manyview.encoders.backbone import Backbone
from manyview.encoders.timm_models import intermediates


def build(
    channels: int,
    size: int,
    patch: int = 16,
    width: int = 384,
    depth: int = 12,
    heads: int = 12,
    frozen_patches: bool = True,
) -> Backbone:
    """A ViT as MoCo v3 trains it (Chen et al., ICCV 2021, sections 4.2 and 5): it gives the class token.

    As it is, ViT-S/16, with 12 heads where others have 6; ViT-B/16 is width 768. Positions are fixed, sines and cosines
    of row and column, 0 for the class token; for images of another size they are interpolated. Weights are drawn from
    Xavier's uniform distribution, those of query, key and value each on its own.

    patch           side of the patches in pixels
    frozen_patches  the first layer, which embeds them, stays random; it is trained in fine-tuning
    """
    if min(patch, width, depth, heads) < 1 or width % heads or width % 4:
        said = f"patch {patch}, width {width}, depth {depth}, heads {heads}"
        raise UserError(
            "options", f"expected numbers of at least 1, the width a multiple of 4 and of heads, got {said}"
        )
    if size % patch:
        raise UserError("size", f"vit reads patches of {patch} pixels; give a multiple of it, not {size}")
    network = VisionTransformer(
        size, patch, channels, num_classes=0, embed_dim=width, depth=depth, num_heads=heads, weight_init="moco",
        norm_layer=partial(nn.LayerNorm, eps=1e-6), dynamic_img_size=True,
    )  # fmt: skip
    _fix(network, channels * patch**2, frozen_patches)
    return Backbone(network, intermediates)


@torch.no_grad()
def _fix(network: VisionTransformer, inputs: int, frozen: bool) -> None:
    """Puts the positions in and draws the patch embedding, and takes what stays as it is out of the training."""
    grid = build_sincos2d_pos_embed(list(network.patch_embed.grid_size), network.embed_dim)
    positions = torch.cat([grid.new_zeros(1, network.embed_dim), grid])[None]
    network.pos_embed = nn.Parameter(positions, requires_grad=False)
    bound = (6 / (inputs + network.embed_dim)) ** 0.5
    nn.init.uniform_(network.patch_embed.proj.weight, -bound, bound)
    nn.init.zeros_(network.patch_embed.proj.bias)
    network.patch_embed.requires_grad_(not frozen)
