from __future__ import annotations

import pytest
import torch

from manyview.encoders import create


def by_hand(channels: int, width: float, blocks: tuple[int, ...]) -> int:
    """The parameters of a ResNet of bottlenecks without its classifier; batch norm has two a channel."""
    total, before = 64 * channels * 49 + 2 * 64, 64
    for stage, count in enumerate(blocks):
        inner = int(64 * width) * 2**stage
        outer = 4 * inner
        total += before * outer + 2 * outer  # the shortcut of the first block
        for _ in range(count):
            total += before * inner + inner * inner * 9 + inner * outer + 2 * (2 * inner + outer)
            before = outer
    return total


@pytest.mark.parametrize(("width", "dim", "both"), [(0.5, 1024, 12), (1.0, 2048, 47), (2.0, 4096, 188)])
def test_both_views_have_the_parameters_that_the_paper_counts(width: float, dim: int, both: int) -> None:
    counts = []
    with torch.device("meta"):
        for channels in (1, 2):
            encoder = create("resnet", channels=channels, size=224, width=width)
            counts.append(sum(each.numel() for each in encoder.parameters()))
            assert counts[-1] == by_hand(channels, width, (3, 4, 6, 3))
            assert encoder.dim == dim
    assert round(sum(counts) / 1e6) == both


def test_it_is_timms_with_width_one_and_may_be_deeper() -> None:
    with torch.device("meta"):
        one, other = create("resnet", size=64), create("timm/resnet50", size=64)
        assert {k: v.shape for k, v in one.state_dict().items()} == {k: v.shape for k, v in other.state_dict().items()}
        deep = create("resnet", size=64, depth=101)
        assert sum(each.numel() for each in deep.parameters()) == by_hand(3, 1.0, (3, 4, 23, 3))
        assert list(deep.layer_shapes()) == ["act1", "layer1", "layer2", "layer3", "layer4"]


def test_other_depths_and_widths_are_refused() -> None:
    with pytest.raises(ValueError, match="depth: expected 50 or 101, got 18"):
        create("resnet", depth=18)
    with pytest.raises(ValueError, match="width: expected a number above 0"):
        create("resnet", width=0)
