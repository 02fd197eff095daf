from __future__ import annotations

import pytest
import torch
import torchvision.models as zoo

from manyview.encoders import create
from manyview.encoders.torchvision_models import channels_first, grid_of_tokens
from tests.encoders.test_encoder import images


def test_the_stages_of_a_resnet_have_the_librarys_names() -> None:
    maps = create("torchvision/resnet18").eval().layers(images(3, 64))
    assert list(maps) == ["relu", "layer1", "layer2", "layer3", "layer4"]


def test_a_map_is_what_the_stage_gave_and_not_what_came_of_it_in_place() -> None:
    maps = create("torchvision/densenet121").eval().layers(images(3, 64))
    assert bool((maps["features.norm5"] < 0).any())


def test_the_dropout_in_front_of_the_classifier_is_gone_with_it() -> None:
    encoder = create("torchvision/efficientnet_b0", size=64)
    parts = encoder.network.get_submodule("classifier").modules()
    assert not any(isinstance(part, torch.nn.Dropout) for part in parts)


@pytest.mark.parametrize(("name", "dim"), [("googlenet", 1024), ("inception_v3", 2048)])
def test_pretrained_networks_lose_their_auxiliary_classifiers(
    name: str, dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = zoo.get_model_weights(name).DEFAULT
    state = zoo.get_model(name, aux_logits=True, init_weights=False).state_dict()
    monkeypatch.setattr("manyview.encoders.torchvision_models._weights", lambda model, named: weights)
    monkeypatch.setattr(type(weights), "get_state_dict", lambda self, **given: state)
    encoder = create(f"torchvision/{name}", size=96, pretrained=True)
    assert encoder(images(3, 96)).shape == (2, dim)
    assert not [key for key in encoder.state_dict() if "aux" in key.lower()]


def test_tokens_go_back_to_their_places() -> None:
    maps = torch.randn(2, 5, 3, 3)
    tokens = torch.cat([torch.zeros(2, 1, 5), maps.flatten(2).transpose(1, 2)], 1)
    assert torch.equal(grid_of_tokens(tokens), maps)


def test_channels_come_first() -> None:
    maps = torch.randn(2, 5, 3, 4)
    assert torch.equal(channels_first(maps.permute(0, 2, 3, 1)), maps)
