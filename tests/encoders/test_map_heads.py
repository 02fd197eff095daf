from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from manyview.encoders import HEADS, Slot, Towers, create
from manyview.encoders.map_heads import LastHead, MapHead, OnMap, Positions, local_layer

LINEAR = partial(HEADS["linear"], dim_out=6)


def test_every_position_goes_through_the_head_and_comes_out_at_unit_length() -> None:
    head = Positions(LINEAR(5))
    maps = torch.randn(2, 5, 3, 4)
    found = head(maps)
    assert found.shape == (2, 12, 6)
    for i in range(2):
        for y in range(3):
            for x in range(4):
                expected = F.normalize(head.head(maps[i, :, y, x]), dim=0)
                torch.testing.assert_close(found[i, 4 * y + x], expected)


@pytest.mark.parametrize(
    ("name", "size", "layer"),
    [
        ("patchnet", 32, "stage2"),  # 8 x 8
        ("patchnet", 8, "stem"),  # 4 x 4 is the most there is
        ("small_alexnet", 64, "conv5"),  # 7 x 7 after its pool
        ("timm/resnet18", 224, "layer4"),  # 7 x 7
    ],
)
def test_unless_named_it_is_the_last_layer_with_seven_by_seven_positions(name: str, size: int, layer: str) -> None:
    with torch.device("meta"):
        assert local_layer(create(name, size=size)) == layer


def test_a_tower_gives_features_and_positions_of_one_pass() -> None:
    encoder = create("patchnet", size=16, widths=(8, 12), blocks=(1, 1))
    towers = Towers(encoder, LINEAR, heads={"positions": MapHead("stage1", LINEAR)}).eval()
    passes: list[int] = []
    encoder.network.register_forward_hook(lambda *_: passes.append(1))
    x, slots = torch.randn(3, 3, 16, 16), [Slot("query", "image", 0), Slot("query", "image", 0, "positions")]
    outputs = towers({"image": [x]}, slots)
    assert passes == [1]
    assert outputs[slots[1]].shape == (3, 64, 6)
    head = towers.query["shared"].heads["positions"]  # type: ignore[index]
    torch.testing.assert_close(outputs[slots[1]], head(encoder.layers(x)["stage1"]))  # type: ignore[operator]
    assert not towers.leaves_out(slots)
    assert towers.leaves_out(slots[1:])  # the layers after the map, and the head
    assert towers.leaves_out(slots[:1])


@pytest.mark.parametrize("layer", ["stage9", "fc7"])
def test_a_layer_that_has_no_map_is_refused(layer: str) -> None:
    with (
        torch.device("meta"),
        pytest.raises(ValueError, match=f"layer: small_alexnet has no feature map '{layer}'"),
    ):
        MapHead(layer, LINEAR).build(create("small_alexnet", size=32))


@pytest.mark.parametrize(
    ("name", "size", "layer", "shape"),
    [
        ("patchnet", 32, "stage4", (256, 2, 2)),
        ("timm/resnet18", 64, "layer4", (512, 2, 2)),
        ("small_alexnet", 32, None, (4096,)),  # fc7
    ],
)
def test_the_last_layer_is_the_map_before_pooling_or_the_features(
    name: str, size: int, layer: str | None, shape: tuple[int, ...]
) -> None:
    given: list[tuple[int, ...]] = []
    with torch.device("meta"):
        made = LastHead(lambda seen: given.append(seen) or LINEAR(4)).build(create(name, size=size))  # type: ignore[func-returns-value]
    assert given == [shape]
    assert getattr(made, "layer", None) == layer
    assert isinstance(made, OnMap) == (layer is not None)
