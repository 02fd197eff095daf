from __future__ import annotations

import pytest
import torch

from manyview.encoders import Encoder, create
from manyview.training.layer_decay import decay_by_layer
from manyview.training.optimizers import adamw, sgd


def vit() -> Encoder:
    return create("timm/vit_tiny_patch16_224", size=16, patch_size=8, depth=3, embed_dim=12, num_heads=2)


def test_each_block_of_a_vit_learns_more_slowly_than_the_next() -> None:
    network = vit().network
    optimizer = adamw(network, lr=1.0, weight_decay=0.05)
    decay_by_layer(optimizer, network, 0.5)
    names = {parameter: name for name, parameter in network.named_parameters()}
    found = {names[p]: (g["lr_scale"], g["weight_decay"]) for g in optimizer.param_groups for p in g["params"]}
    assert found.keys() == dict(network.named_parameters()).keys()
    for block, scale in enumerate((0.125, 0.25, 0.5)):
        assert found[f"blocks.{block}.attn.qkv.weight"] == (scale, 0.05)
        assert found[f"blocks.{block}.attn.qkv.bias"] == (scale, 0.0)
    assert found["patch_embed.proj.weight"] == (0.0625, 0.05)
    assert found["pos_embed"] == found["cls_token"] == (0.0625, 0.0)  # which have three axes, and no decay for all that
    assert found["norm.weight"][0] == 0.5  # the classifier, which is not here, is next


@pytest.mark.parametrize("name", ["patchnet", "torchvision/resnet18", "timm/resnet18"])
def test_every_weight_of_any_network_is_in_one_group(name: str) -> None:
    network = create(name, size=32).network
    optimizer = sgd(network, lr=0.1)
    decay_by_layer(optimizer, network, 0.75)
    grouped = [each for group in optimizer.param_groups for each in group["params"]]
    assert len(grouped) == len(set(grouped)) == len(list(network.parameters()))
    scales = sorted({group["lr_scale"] for group in optimizer.param_groups})
    assert len(scales) > 1
    assert scales[-1] == 0.75
    first = next(network.parameters())
    assert next(g["lr_scale"] for g in optimizer.param_groups if any(p is first for p in g["params"])) == scales[0]


def test_an_optimiser_of_several_networks_is_split_network_by_network() -> None:
    both = torch.nn.ModuleList([vit().network, vit().network])
    optimizer = adamw(both, lr=1.0)
    for network in both:
        decay_by_layer(optimizer, network, 0.5)
    one = torch.optim.AdamW(both.parameters())
    assert sum(len(g["params"]) for g in optimizer.param_groups) == len(one.param_groups[0]["params"])
    assert {g["lr_scale"] for g in optimizer.param_groups} == {0.0625, 0.125, 0.25, 0.5}
