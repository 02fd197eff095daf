from __future__ import annotations

import pytest
import torch
from torch import nn

from manyview.encoders import backbone, create, timm_models
from manyview.encoders.backbone import adapt_input_channels, module_outputs
from tests.encoders.test_encoder import images


def test_maps_are_kept_as_they_were_before_an_operation_in_place() -> None:
    network = nn.Sequential(nn.Identity(), nn.ReLU(inplace=True))
    x = torch.tensor([[-1.0, 1.0]])
    embedded, maps = module_outputs(["0", "1"])(network, x.clone(), None)
    assert torch.equal(embedded, maps["1"])
    assert maps["0"].tolist() == [[-1.0, 1.0]]
    assert maps["1"].tolist() == [[0.0, 1.0]]


def test_only_the_named_stages_are_read_and_brought_into_a_layout() -> None:
    network = nn.Sequential(nn.Identity(), nn.Identity())
    read = module_outputs(["0", "1"], lambda output: output.permute(0, 3, 1, 2))
    _, maps = read(network, torch.zeros(1, 2, 3, 4), ["1"])
    assert {name: each.shape for name, each in maps.items()} == {"1": (1, 4, 2, 3)}


def test_hooks_are_taken_off_when_the_network_fails() -> None:
    network = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(RuntimeError):
        module_outputs(["0"])(network, torch.zeros(1, 3), None)
    assert not network[0]._forward_hooks


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


@pytest.mark.parametrize("name", ["patchnet", "small_alexnet"])
def test_networks_without_pretrained_weights_say_so(name: str) -> None:
    with pytest.raises(ValueError, match="pretrained: there are no published weights"):
        create(name, size=32, pretrained=True)


@pytest.mark.parametrize("name", ["timm/resnet18", "torchvision/resnet18"])
def test_weights_out_of_reach_are_one_line_that_says_where_to_put_them(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr(backbone, "responds", lambda site: False)
    monkeypatch.setattr(timm_models, "_in_cache", lambda repository: False)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(ValueError, match=f"pretrained: the weights of {name} are not on this machine.*put them into"):
        create(name, pretrained=True)


def test_a_site_that_does_not_respond_is_out_of_reach() -> None:
    assert not backbone.responds("http://127.0.0.1:9", seconds=1)
