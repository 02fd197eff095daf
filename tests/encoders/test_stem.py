from __future__ import annotations

import pytest
import torch

from manyview.encoders import create
from manyview.encoders.stem import adapt_input_channels
from tests.encoders.test_encoder import images


@pytest.mark.parametrize("name", ["timm/resnet18", "torchvision/resnet18", "timm/resnet26d", "timm/seresnet18"])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_cifar_stem_keeps_the_resolution(name: str, channels: int) -> None:
    encoder = create(name, channels=channels, size=32, stem="cifar").eval()
    with torch.no_grad():
        maps = list(encoder.layers(images(channels, 32)).values())
    assert [each.shape[-1] for each in maps] == [32, 32, 16, 8, 4]
    stem: torch.nn.Conv2d = encoder.network.get_submodule("conv1")  # type: ignore[assignment]
    assert (stem.kernel_size, stem.stride, stem.in_channels) == ((3, 3), (1, 1), channels)


@pytest.mark.parametrize("name", ["timm/convnext_atto", "torchvision/mobilenet_v3_small", "patchnet", "small_alexnet"])
def test_the_cifar_stem_is_refused_where_there_is_none(name: str) -> None:
    with pytest.raises(ValueError, match="stem: 'cifar' is for ResNets"):
        create(name, stem="cifar")


def test_the_first_convolution_carries_published_weights_over_to_other_channels() -> None:
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3))
    before = network.state_dict()
    adapt_input_channels(network, 1, keep=True)
    after = network.state_dict()
    torch.testing.assert_close(after["0.weight"], before["0.weight"].sum(1, keepdim=True))
    assert torch.equal(after["0.bias"], before["0.bias"])
