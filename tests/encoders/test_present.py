"""Images without a view take no part in its batch norm."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from manyview.core.distributed import gather
from manyview.encoders import HEADS, Slot, Towers, create
from manyview.encoders.layers import batch_norms
from tests.two_processes import Found, in_two_processes

SLOTS = [Slot("query", "depth", 0), Slot("query", "depth", 1), Slot("key", "depth", 0)]
MASK = torch.tensor([True, False, True, True, False, False, True, True, False])


def made(**options: Any) -> Towers:
    torch.manual_seed(0)
    depth = create("patchnet", channels=1, size=16, widths=(4, 6), blocks=(1, 1))
    return Towers({"depth": depth}, partial(HEADS["simclr"], dim_out=5), **options).double()


def drawn_copies(mask: Tensor) -> list[Tensor]:
    drawn = torch.randn(2, len(mask), 1, 16, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return [each * mask[:, None, None, None] for each in drawn]


def embed(towers: Towers, mask: Tensor, *, rows: Tensor | None = None, slots: list[Slot] = SLOTS) -> dict[Slot, Tensor]:
    given = [each if rows is None else each[rows] for each in drawn_copies(mask)]
    found: dict[Slot, Tensor] = towers({"depth": given}, slots, present={"depth": mask} if rows is None else None)
    return found


def trained(towers: Towers, outputs: dict[Slot, Tensor]) -> list[Tensor]:
    """The gradient of some function of the outputs."""
    sum((each * torch.linspace(-1, 2, each.shape[1], dtype=each.dtype)).sum() for each in outputs.values()).backward()  # type: ignore[union-attr]
    found = [each.grad for each in towers.trained()]
    assert all(each is not None for each in found)
    return [each for each in found if each is not None]


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("momentum", [None, 0.9])
def test_images_with_the_view_are_embedded_as_if_they_were_alone(joint: bool, momentum: float | None) -> None:
    one, other = (made(joint=joint, momentum=momentum) for _ in range(2))
    among, alone = embed(one, MASK), embed(other, MASK, rows=MASK)
    for slot in SLOTS:
        torch.testing.assert_close(among[slot][MASK], alone[slot], rtol=1e-12, atol=1e-12)
        assert torch.equal(among[slot][~MASK], torch.zeros(4, 5, dtype=torch.float64))
    for found, expected in zip(trained(one, among), trained(other, alone), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    for name, value in other.state_dict().items():  # running statistics too
        torch.testing.assert_close(one.state_dict()[name], value, rtol=1e-12, atol=1e-12)


def test_where_nothing_is_missing_nothing_changes() -> None:
    all_there = torch.ones(9, dtype=torch.bool)
    found, expected = embed(made(), all_there), embed(made(), all_there, rows=all_there)
    assert all(torch.equal(found[slot], expected[slot]) for slot in SLOTS)


@pytest.mark.parametrize("count", [0, 1])
def test_where_too_few_have_the_view_its_statistics_stay_and_every_parameter_has_a_gradient(count: int) -> None:
    towers, mask = made(joint=False), torch.arange(9) < count
    embed(towers, MASK)
    before = {name: value.clone() for name, value in towers.named_buffers()}
    found = embed(towers, mask)
    assert all(torch.equal(value, before[name]) for name, value in towers.named_buffers())
    assert all(part.training for part in towers.modules())
    gradients = trained(towers, found)
    assert any(float(each.abs().max()) > 0 for each in gradients) == bool(count)
    for each in found.values():
        torch.testing.assert_close(each.norm(dim=1), mask.double())
    if count:
        expected = embed(towers.eval(), mask, rows=mask)
        torch.testing.assert_close(found[SLOTS[0]][:1], expected[SLOTS[0]], rtol=1e-12, atol=1e-12)


def test_an_image_alone_has_the_gradient_of_the_statistics_that_it_was_normalised_by() -> None:
    """Which a later pass of the same step moves, before the backward pass."""
    first, mask = made(joint=False), torch.arange(9) < 1
    embed(first, MASK)
    second = copy.deepcopy(first).eval()
    first.zero_grad()
    found = embed(first, mask, slots=SLOTS[:1])
    embed(first, MASK, rows=~MASK)
    expected = trained(second, embed(second, mask, rows=mask, slots=SLOTS[:1]))
    for one, other in zip(trained(first, found), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("count", [0, 1, 3, 5, 6, 8])
def test_split_batch_norm_and_shuffled_keys_take_any_number_of_images(count: int) -> None:
    towers, mask = made(bn_splits=2, shuffle=3, momentum=0.9), torch.arange(8) < count
    found = embed(towers, mask)
    for each in found.values():
        torch.testing.assert_close(each.norm(dim=1), mask.double())
    assert all(bool(torch.isfinite(each).all()) for each in trained(towers, found))


def test_patches_and_maps_have_a_row_for_each_image() -> None:
    towers = made()
    jigsaw = drawn_copies(MASK)[0].unfold(2, 8, 8).unfold(3, 8, 8).flatten(2, 3).transpose(1, 2)  # (N, 4, C, 8, 8)
    slots = [Slot("query", "depth", -1, "features"), Slot("query", "depth", 0, "maps.stage1")]
    found = towers({"depth": [drawn_copies(MASK)[0], jigsaw]}, slots, present={"depth": MASK})
    for slot in slots:
        assert len(found[slot]) == len(MASK)
        assert torch.equal(found[slot].flatten(1).ne(0).any(1), MASK)


def test_networks_without_batch_norm_are_left_alone() -> None:
    net = create("timm/test_vit", channels=1, size=32)
    assert not any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in net.modules())
    towers, mask = Towers({"depth": net}, None), torch.tensor([False, False, True])
    found = towers({"depth": [torch.zeros(3, 1, 32, 32)]}, SLOTS[:1], present={"depth": mask})
    assert found[SLOTS[0]].ne(0).any(1).tolist() == [False, False, True]


class OverAllProcesses(nn.SyncBatchNorm):
    """torch's, which wants a GPU, by the rows of all processes gathered."""

    def forward(self, input: Tensor) -> Tensor:
        everyone, axes = gather(input), [axis for axis in range(input.dim()) if axis != 1]
        mean, var = everyone.mean(axes, keepdim=True), everyone.var(axes, keepdim=True, unbiased=False)
        shape = mean.shape
        return (input - mean) / (var + self.eps).sqrt() * self.weight.view(shape) + self.bias.view(shape)


def over_all_processes(rank: int) -> Found:
    """The gradient, averaged, of all images in process 0 and none in process 1."""
    towers = made(joint=False)
    for norm in batch_norms(towers):
        norm.__class__ = OverAllProcesses
    mask = MASK & (rank == 0)
    found = embed(towers, mask, slots=SLOTS[:1])
    assert all("forward" not in vars(norm) for norm in batch_norms(towers))
    return {"embedding": found[SLOTS[0]].detach(), "gradient": [each / 2 for each in trained(towers, found)]}


def test_a_process_without_images_adds_none_to_a_batch_norm_over_all(tmp_path: Path) -> None:
    alone = made(joint=False)
    expected = embed(alone, MASK, slots=SLOTS[:1])[SLOTS[0]]
    first, second = in_two_processes(over_all_processes, tmp_path)
    torch.testing.assert_close(first["embedding"], expected.detach(), rtol=1e-10, atol=1e-10)
    assert not second["embedding"].any()
    gradients = [one + other for one, other in zip(first["gradient"], second["gradient"], strict=True)]
    for found, one in zip(gradients, trained(alone, {SLOTS[0]: expected}), strict=True):
        torch.testing.assert_close(2 * found, one, rtol=1e-9, atol=1e-9)
