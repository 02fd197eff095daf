from __future__ import annotations

import pytest
import torch
from torch import nn

from manyview.encoders.feature_maps import channels_first, grid_of_tokens, module_outputs


def test_tokens_go_back_to_their_places() -> None:
    maps = torch.randn(2, 5, 3, 3)
    tokens = torch.cat([torch.zeros(2, 1, 5), maps.flatten(2).transpose(1, 2)], 1)
    assert torch.equal(grid_of_tokens(tokens), maps)


def test_channels_come_first() -> None:
    maps = torch.randn(2, 5, 3, 4)
    assert torch.equal(channels_first(maps.permute(0, 2, 3, 1)), maps)


def test_maps_are_kept_as_they_were_before_an_operation_in_place() -> None:
    network = nn.Sequential(nn.Identity(), nn.ReLU(inplace=True))
    x = torch.tensor([[-1.0, 1.0]])
    embedded, maps = module_outputs(["0", "1"])(network, x.clone(), None)
    assert torch.equal(embedded, maps["1"])
    assert maps["0"].tolist() == [[-1.0, 1.0]]
    assert maps["1"].tolist() == [[0.0, 1.0]]


def test_only_the_named_stages_are_read_and_brought_into_a_layout() -> None:
    network = nn.Sequential(nn.Identity(), nn.Identity())
    read = module_outputs(["0", "1"], channels_first)
    _, maps = read(network, torch.zeros(1, 2, 3, 4), ["1"])
    assert {name: each.shape for name, each in maps.items()} == {"1": (1, 4, 2, 3)}


def test_hooks_are_taken_off_when_the_network_fails() -> None:
    network = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(RuntimeError):
        module_outputs(["0"])(network, torch.zeros(1, 3), None)
    assert not network[0]._forward_hooks
