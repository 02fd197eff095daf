from __future__ import annotations

import pytest
import torch

from manyview.encoders import HEADS, create


def parameters(module: torch.nn.Module) -> int:
    return sum(each.numel() for each in module.parameters())


@pytest.mark.parametrize(("size", "count"), [(32, 27_221_088), (64, 58_678_368)])
def test_the_whole_network_has_the_published_number_of_parameters(size: int, count: int) -> None:
    with torch.device("meta"):
        encoder = create("small_alexnet", size=size, out_dim=128)
        assert parameters(encoder) == count
        assert encoder.dim == 128


@pytest.mark.parametrize(("size", "count"), [(32, 27_221_088), (64, 58_678_368)])
def test_so_has_the_representation_with_a_linear_head(size: int, count: int) -> None:
    with torch.device("meta"):
        encoder = create("small_alexnet", size=size)
        assert parameters(encoder) + parameters(HEADS["linear"](encoder.dim, 128)) == count
        assert encoder.dim == 4096


def test_its_layers_are_five_convolutions_and_the_fully_connected() -> None:
    with torch.device("meta"):
        encoder = create("small_alexnet", size=32, out_dim=128).eval()
        maps = encoder.layers(torch.zeros(2, 3, 32, 32))
    assert {name: tuple(each.shape[1:]) for name, each in maps.items()} == {
        "conv1": (96, 15, 15),
        "conv2": (192, 7, 7),
        "conv3": (384, 7, 7),
        "conv4": (384, 7, 7),
        "conv5": (192, 3, 3),
        "fc6": (4096,),
        "fc7": (4096,),
        "fc8": (128,),
    }


def test_the_embedding_is_fc7_and_fc8_comes_after_it() -> None:
    torch.manual_seed(0)
    whole = create("small_alexnet", size=16, out_dim=8).eval()
    half = create("small_alexnet", size=16).eval()
    half.network.load_state_dict({k: v for k, v in whole.network.state_dict().items() if not k.startswith("fc8")})
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert torch.equal(whole.layers(x)["fc7"], half(x))
        assert torch.equal(whole.network.get_submodule("fc8")(half(x)), whole(x))


def test_weights_are_drawn_with_a_deviation_of_two_hundredths() -> None:
    encoder = create("small_alexnet", size=16, out_dim=128)
    weights = {name: each for name, each in encoder.named_parameters() if each.dim() > 1}
    assert len(weights) == 8
    for each in weights.values():
        torch.testing.assert_close(float(each.detach().std()), 0.02, rtol=0.05, atol=0)


def test_images_of_another_size_are_refused() -> None:
    with torch.device("meta"):
        encoder = create("small_alexnet", size=32)
        with pytest.raises(ValueError, match="made for 32 x 32 images, got 64 x 64"):
            encoder(torch.zeros(2, 3, 64, 64))


@pytest.mark.parametrize("channels", [1, 2])
def test_half_of_it_is_table_10_of_cmc(channels: int) -> None:
    """Layer by layer: kernels, then batch norm's scale and shift; fc8 has a bias."""
    convolutions = [48 * channels * 9, 96 * 48 * 9, 192 * 96 * 9, 192 * 192 * 9, 96 * 192 * 9]
    norms = 2 * (48 + 96 + 192 + 192 + 96 + 2048 + 2048)
    connected = [2048 * 96 * 7 * 7, 2048 * 2048, 64 * 2048 + 64]
    with torch.device("meta"):
        encoder = create("small_alexnet", channels=channels, size=64, width=0.5, out_dim=64).eval()
        maps = encoder.layers(torch.zeros(1, channels, 64, 64))
    assert parameters(encoder) == sum(convolutions) + sum(connected) + norms
    assert {name: tuple(each.shape[1:]) for name, each in maps.items()} == {
        "conv1": (48, 31, 31),
        "conv2": (96, 15, 15),
        "conv3": (192, 15, 15),
        "conv4": (192, 15, 15),
        "conv5": (96, 7, 7),
        "fc6": (2048,),
        "fc7": (2048,),
        "fc8": (64,),
    }


@pytest.mark.parametrize("width", [0.0, -1.0])
def test_a_width_of_nothing_is_refused(width: float) -> None:
    with pytest.raises(ValueError, match="width: expected a number above 0"):
        create("small_alexnet", size=32, width=width)
