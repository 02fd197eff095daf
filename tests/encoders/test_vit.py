from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from manyview.encoders import Encoder, create

TINY: dict[str, Any] = {"patch": 4, "width": 16, "depth": 2, "heads": 2}


def tiny(size: int = 16, **options: Any) -> Encoder:
    return create("vit", size=size, **{**TINY, **options})


@pytest.mark.parametrize(("width", "count"), [(384, 21_665_664), (768, 85_798_656)])
def test_small_and_base_have_the_parameters_of_vits(width: int, count: int) -> None:
    """ViT-S/16 and ViT-B/16 at 224 px without classifier, as `timm/vit_small_patch16_224` and its like have them."""
    with torch.device("meta"):
        encoder = create("vit", size=224, width=width)
        published = create("timm/vit_small_patch16_224" if width == 384 else "timm/vit_base_patch16_224", size=224)
    assert sum(each.numel() for each in encoder.parameters()) == count
    assert {name: each.shape for name, each in encoder.network.state_dict().items()} == {
        name: each.shape for name, each in published.network.state_dict().items()
    }
    assert encoder.network.blocks[0].attn.num_heads == 12  # type: ignore[union-attr, index]


def test_positions_are_sines_and_cosines_of_row_and_column_and_none_for_the_class_token() -> None:
    positions = tiny(16).network.pos_embed[0].detach()  # type: ignore[index]
    assert torch.equal(positions[0], torch.zeros(16))
    for row in range(4):
        for column in range(4):
            expected = [
                wave(place / 10000 ** (k / 4))
                for place in (row, column)
                for wave in (math.sin, math.cos)
                for k in range(4)
            ]
            found = positions[1 + 4 * row + column].tolist()
            assert sorted(found) == pytest.approx(sorted(expected), abs=1e-6)
    assert len({tuple(each.tolist()) for each in positions}) == 17


def test_positions_and_patch_embedding_are_not_trained_and_all_else_is() -> None:
    def frozen(encoder: Encoder) -> set[str]:
        return {name for name, each in encoder.network.named_parameters() if not each.requires_grad}

    assert frozen(tiny()) == {"pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias"}
    assert frozen(tiny(frozen_patches=False)) == {"pos_embed"}


def test_the_patch_embedding_is_drawn_from_xaviers_distribution() -> None:
    weight = tiny(width=64).network.patch_embed.proj.weight  # type: ignore[union-attr]
    bound = math.sqrt(6 / (3 * 16 + 64))
    assert 0.95 * bound < float(weight.abs().max()) <= bound  # type: ignore[operator]


def test_it_takes_small_crops_with_interpolated_positions() -> None:
    encoder = tiny(32)
    assert [tuple(encoder(torch.randn(2, 3, side, side)).shape) for side in (32, 16)] == [(2, 16), (2, 16)]
    shapes = {name: tuple(each.shape[1:]) for name, each in encoder.layers(torch.randn(2, 3, 16, 16)).items()}
    assert shapes == {"blocks.0": (16, 4, 4), "blocks.1": (16, 4, 4)}


def test_the_representation_is_the_class_token_after_the_last_norm() -> None:
    encoder, x = tiny().eval(), torch.randn(2, 3, 16, 16)
    tokens = encoder.network.forward_features(x)  # type: ignore[operator]
    torch.testing.assert_close(encoder(x), tokens[:, 0])
    torch.testing.assert_close(encoder.embed_with_maps(x)[0], tokens[:, 0])


@pytest.mark.parametrize(
    ("size", "options", "reason"),
    [
        (18, {}, "size: vit reads patches of 4 pixels; give a multiple of it, not 18"),
        (16, {"heads": 3}, "options: expected numbers of at least 1, the width a multiple of 4 and of heads, got"),
        (16, {"width": 6}, "options: expected numbers of at least 1"),
        (16, {"depth": 0}, "options: expected numbers of at least 1"),
    ],
)
def test_what_cannot_be_is_one_line(size: int, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}"):
        tiny(size, **options)
