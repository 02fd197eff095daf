from __future__ import annotations

import pytest
import torch

from manyview.encoders import create


@pytest.mark.parametrize("size", [2, 32, 33, 64, 96, 224])
def test_one_network_looks_at_images_of_any_size(size: int) -> None:
    encoder = create("patchnet", size=32).eval()
    assert encoder(torch.randn(2, 3, size, size)).shape == (2, encoder.dim)


def test_it_is_small() -> None:
    encoder = create("patchnet", size=32)
    assert 256 <= encoder.dim <= 512
    assert sum(each.numel() for each in encoder.parameters()) < 3e6


def test_memory_format_does_not_change_the_embedding() -> None:
    encoder = create("patchnet", size=32).eval()
    x = torch.randn(4, 3, 32, 32)
    plain = encoder(x)
    encoder.to(memory_format=torch.channels_last)
    torch.testing.assert_close(encoder(x.contiguous(memory_format=torch.channels_last)), plain)


def test_bfloat16_is_near_float32() -> None:
    torch.manual_seed(0)
    encoder = create("patchnet", size=32)
    x = torch.randn(16, 3, 32, 32)
    exact = encoder(x)
    with torch.autocast("cpu", torch.bfloat16):
        coarse = encoder(x)
    assert torch.cosine_similarity(exact, coarse.float()).min() > 0.99


def test_every_parameter_learns_once_the_blocks_are_open() -> None:
    encoder = create("patchnet", size=32)
    for name, each in encoder.named_parameters():
        if name.endswith("norm2.weight"):
            torch.nn.init.ones_(each)
    encoder(torch.randn(8, 3, 32, 32)).square().sum().backward()
    assert all(each.grad is not None and bool(each.grad.any()) for each in encoder.parameters())


@pytest.mark.parametrize(("widths", "blocks"), [((8, 16), (1,)), ((8, 0), (1, 1)), ((), ())])
def test_a_stage_has_a_width_and_blocks(widths: tuple[int, ...], blocks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="widths and blocks"):
        create("patchnet", size=32, widths=widths, blocks=blocks)
