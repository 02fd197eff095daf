"""Encoders with a decoder: which maps it takes, and what stays as it is."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from manyview.core.errors import UserError
from manyview.encoders import Encoder, create
from manyview.transfer.decoders import UNet
from manyview.transfer.segmenter import Segmenter, joined_maps

SMALL = {"widths": (8, 16), "blocks": (1, 1)}


def encoder(channels: int = 3, size: int = 32) -> Encoder:
    return create("patchnet", channels=channels, size=size, **SMALL)  # type: ignore[arg-type]


def segmenter(*, frozen: bool, **encoders: Encoder) -> Segmenter:
    return Segmenter(encoders, partial(UNet, size=32, classes=3, width=8), frozen=frozen)


def test_a_frozen_encoder_stays_to_the_bit_and_a_free_one_learns() -> None:
    for frozen in (True, False):
        own = encoder()
        model = segmenter(frozen=frozen, image=own).train()
        before = {name: each.clone() for name, each in own.state_dict().items()}
        step = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=1.0)
        model({"image": [torch.randn(4, 3, 32, 32)]}).square().mean().backward()
        step.step()
        inside = model.encoders[0].state_dict()
        assert all(torch.equal(each, before[name]) for name, each in inside.items()) == frozen
        assert all(torch.equal(each, before[name]) for name, each in own.state_dict().items())  # it was copied


def test_encoders_of_several_views_are_used_side_by_side() -> None:
    model = segmenter(frozen=True, rgb=encoder(), thermal=encoder(1)).eval()
    views = {"rgb": [torch.randn(2, 3, 32, 32)], "thermal": [torch.randn(2, 1, 32, 32)]}
    first = model(views)
    assert first.shape == (2, 3, 32, 32)
    views["thermal"] = [torch.randn(2, 1, 32, 32)]
    assert not torch.allclose(first, model(views))


def test_maps_of_one_resolution_are_joined_the_coarsest_first() -> None:
    maps = [[torch.zeros(1, 2, 8, 8), torch.zeros(1, 4, 4, 4)], [torch.ones(1, 3, 8, 8)]]
    assert [tuple(each.shape) for each in joined_maps(maps)] == [(1, 4, 4, 4), (1, 5, 8, 8)]


@pytest.mark.parametrize("name", ["vit", "nyu", "timm/resnet18", "torchvision/resnet18"])
def test_transformers_and_networks_of_libraries_have_maps(name: str) -> None:
    options = {"width": 32, "depth": 2, "heads": 2, "patch": 8} if name == "vit" else {}
    own = create(name, size=32 if name == "vit" else 64, **options)  # type: ignore[arg-type]
    size = own.options["size"]
    model = Segmenter({"image": own}, partial(UNet, size=size, classes=3, width=8), frozen=True).eval()
    assert model({"image": [torch.randn(1, 3, size, size)]}).shape == (1, 3, size, size)


def test_a_network_without_maps_is_refused() -> None:
    own = encoder()
    own.layer_shapes = lambda: {"last": (16,)}  # type: ignore[method-assign]
    with pytest.raises(UserError, match="patchnet has no feature maps"):
        Segmenter({"image": own}, lambda shapes: nn.Identity(), frozen=True)
