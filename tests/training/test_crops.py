"""Large and small crops of a run: their sizes, and the networks that take both."""

from __future__ import annotations

import pytest

from manyview.training import build
from manyview.training.crops import augmentations, settled
from tests.config.small import flags

SMALL = "--method simclr --method.small 3 --augmentation simclr"


def test_a_method_says_how_many_small_crops_there_are_and_the_augmentation_how_large() -> None:
    config = flags(f"{SMALL} --augmentation.size 64 --augmentation.small-size 40 --augmentation.small-scale 0.05,0.14")
    method = build.small_method(config, ["image"])
    made = augmentations(config, method, 64).augmentations
    assert [(each.size, each.scale) for each in made] == [(64, (0.08, 1.0))] * 2 + [(40, (0.05, 0.14))] * 3
    assert (method.views, method.small) == ({"image": 5}, 3)


def test_small_crops_have_a_size_of_their_own_only_where_there_are_some() -> None:
    assert settled(flags(SMALL), 224) == {"small_size": 96}
    assert settled(flags("--method simclr"), 224) == settled(flags("--method jcl"), 224) == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("--method jcl --augmentation.small-size 16", "augmentation.small_size: there is no such setting"),
        (f"{SMALL} --augmentation.small-scale 0.4,0.05", "augmentation.small_scale: expected shares of the picture"),
        ("--method simclr --method.small -1", "method.small: expected at least 0, got -1"),
        ("--method moco_v2 --method.small 2", "method.small: small crops are queries of both keys; give --method.symm"),
    ],
)
def test_what_cannot_be_is_one_line(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}"):
        build.check(flags(text))


@pytest.mark.parametrize("encoder", ["small_alexnet", "timm/vit_tiny_patch16_224"])
def test_a_network_of_one_size_cannot_see_small_crops(encoder: str) -> None:
    config = flags(f"{SMALL} --augmentation.size 32 --augmentation.small-size 16 --encoder {encoder}")
    with pytest.raises(ValueError, match=rf"^method.small: .*dynamic_img_size.*{encoder} cannot take 16 x 16 images"):
        build.method(config, {"image": 3}, 100)


def test_a_vit_with_interpolated_positions_can() -> None:
    config = flags(f"{SMALL} --augmentation.size 32 --augmentation.small-size 16 --encoder timm/vit_tiny_patch16_224")
    config.encoder["options"].update({"dynamic_img_size": True})
    assert build.method(config, {"image": 3}, 100).small == 3
