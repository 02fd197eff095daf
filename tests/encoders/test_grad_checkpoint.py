"""Blocks that compute their activations again: the same gradient, statistics and random numbers, and less kept."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision.models as zoo
from torch import Tensor, nn

from manyview.encoders import HEADS, Encoder, Slot, Towers, checkpoint_blocks, create, save, split_batch_norm
from manyview.encoders.backbone import Backbone, module_outputs
from manyview.encoders.grad_checkpoint import blocks

NETWORKS: dict[str, dict[str, Any]] = {
    "patchnet": {"widths": (4, 8), "blocks": (2, 1)},
    "torchvision/resnet18": {},
    "torchvision/mobilenet_v3_small": {},  # squeeze and excitation
    "timm/test_resnet": {},
    "timm/test_vit": {"proj_drop_rate": 0.3, "drop_path_rate": 0.5},
    "timm/test_efficientnet": {"drop_path_rate": 0.5},  # its batch norms have an activation inside
    "timm/test_convnext": {},
}
OWN: dict[str, Callable[[], nn.Module]] = {
    "torchvision's transformer": lambda: zoo.VisionTransformer(32, 8, 2, 2, 16, 16, dropout=0.2),
    "torchvision's DenseNet": lambda: zoo.DenseNet(4, (2, 2), 8, drop_rate=0.2),  # whose blocks take lists
}


def made(name: str = "patchnet") -> Encoder:
    torch.manual_seed(0)
    if name in OWN:
        return Encoder(name, {"channels": 3, "size": 32}, Backbone(OWN[name](), module_outputs([]))).double()
    return create(name, size=32, **NETWORKS[name]).double()


def images(count: int = 6) -> Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def gradients(network: nn.Module, output: Tensor) -> list[Tensor]:
    (output * torch.linspace(-1, 2, output.shape[1], dtype=output.dtype)).sum().backward()
    return [torch.zeros_like(each) if each.grad is None else each.grad for each in network.parameters()]


def assert_alike(one: nn.Module, other: nn.Module) -> None:
    for name, value in one.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name


@pytest.mark.parametrize("name", [*NETWORKS, *OWN])
def test_gradient_statistics_and_random_numbers_stay_what_they_were(name: str) -> None:
    plain, again = made(name), made(name)
    assert checkpoint_blocks(again)
    for _ in range(2):  # the second time with other statistics
        torch.manual_seed(3)
        expected = gradients(plain, plain(images()))
        after = torch.rand(1)
        torch.manual_seed(3)
        found = gradients(again, again(images()))
        assert torch.equal(torch.rand(1), after)
        assert max(float(each.abs().max()) for each in expected) > 1e-3
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True))
        assert_alike(plain, again)


@pytest.mark.parametrize(
    ("name", "kind", "count"),
    [
        ("torchvision/resnet50", "Bottleneck", 16),
        ("torchvision/convnext_tiny", "CNBlock", 18),
        ("torchvision/vit_b_16", "EncoderBlock", 12),
        ("timm/resnet50", "Bottleneck", 16),
        ("timm/resnetv2_50", "PreActBottleneck", 16),
        ("timm/convnext_tiny", "ConvNeXtBlock", 18),
        ("timm/vit_small_patch16_224", "Block", 12),
        ("resnet", "Bottleneck", 16),
        ("patchnet", "Block", 4),
    ],
)
def test_the_blocks_of_a_network_are_found_whoever_made_it(name: str, kind: str, count: int) -> None:
    with torch.device("meta"):
        found = blocks(create(name, size=64).network)
    assert [type(block).__name__ for block in found] == [kind] * count


@pytest.mark.parametrize("name", ["small_alexnet", "torchvision/vgg11"])
def test_a_network_without_blocks_is_refused(name: str) -> None:
    with torch.device("meta"):
        encoder = create(name, size=32)
    with pytest.raises(ValueError, match=f"grad_checkpoint: {name} has no blocks that repeat; leave it out"):
        checkpoint_blocks(encoder)


def test_a_block_runs_twice_for_a_gradient_and_once_without() -> None:
    encoder, calls = made(), []
    (first, *_), stem = checkpoint_blocks(encoder), encoder.network.get_submodule("stem.0")
    first.get_submodule("conv1").register_forward_hook(lambda *_: calls.append("block"))
    stem.register_forward_hook(lambda *_: calls.append("stem"))
    with torch.no_grad():
        encoder(images())
    assert calls == ["stem", "block"]
    gradients(encoder, encoder(images()))
    assert calls[2:] == ["stem", "block", "block"]


def test_a_second_backward_through_the_same_graph_finds_the_same() -> None:
    encoder = made()
    checkpoint_blocks(encoder)
    value = encoder(images()).square().sum()
    weights = list(encoder.parameters())
    first = torch.autograd.grad(value, weights, retain_graph=True)
    assert all(torch.equal(*both) for both in zip(first, torch.autograd.grad(value, weights), strict=True))


def test_split_batch_norm_and_feature_maps_are_as_before() -> None:
    plain, again = (split_batch_norm(made(), 2) for _ in range(2))
    assert isinstance(plain, Encoder)
    assert isinstance(again, Encoder)
    checkpoint_blocks(again)
    found = []
    for each in (plain, again):
        embedded, maps = each.embed_with_maps(images(), ["stage1"])
        found.append([embedded, maps["stage1"], *gradients(each, embedded + maps["stage1"].mean())])
    pairs = zip(*found, strict=True)
    assert all(torch.equal(*both) for both in pairs)
    assert_alike(plain, again)


@pytest.mark.parametrize("count", [0, 1])
def test_an_image_alone_is_normalised_by_running_statistics_the_second_time_too(count: int) -> None:
    """After its forward pass batch norms are in training again, and another copy has moved their statistics."""
    slots = [Slot("query", "rgb", copy) for copy in range(2)]
    present, found = {"rgb": torch.arange(6) < count, "depth": torch.ones(6).bool()}, []
    for checkpointed in (False, True):
        towers = Towers(made().float(), partial(HEADS["mlp"], dim_out=4), joint=False).double()
        if checkpointed:
            checkpoint_blocks(towers.encoder())
        views = {"rgb": [images()] * 2, "depth": [images() + 1]}
        outputs = towers(views, [*slots, Slot("query", "depth", 0)], present=present)
        found.append((gradients(towers, torch.cat(list(outputs.values()))), towers))
    (expected, plain), (mine, again) = found
    assert all(torch.equal(*both) for both in zip(mine, expected, strict=True))
    assert_alike(plain, again)


def test_a_copy_and_a_file_of_it_are_like_any_other(tmp_path: Path) -> None:
    plain, again = made(), made()
    checkpoint_blocks(again)
    checkpoint_blocks(again)  # changes nothing
    second = copy.deepcopy(again)
    gradients(second, second(images()))
    assert all(each.grad is None for each in again.parameters())
    for number, each in enumerate((plain, again)):
        save(each, tmp_path / str(number))
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()
    assert torch.equal(again.eval()(images()), plain.eval()(images()))
