"""What is known of published weights decides normalisation and size."""

from __future__ import annotations

import pytest

from manyview.embeddings.published import Published, published, usual_picture, usual_side
from manyview.encoders import Encoder
from manyview.views import PICTURE


def test_libraries_say_how_their_weights_were_trained(encoder: Encoder) -> None:
    assert published("timm/vit_tiny_patch16_224").picture.mean == (0.5, 0.5, 0.5)
    assert published("timm/vit_tiny_patch16_224").fixed_size
    assert published("torchvision/resnet18").picture.mean == PICTURE.mean
    assert published("patchnet") == Published()
    assert usual_picture(encoder) == PICTURE


@pytest.mark.parametrize(
    ("side", "pretrained", "from_file", "fixed", "size"),
    [
        (None, False, False, False, 224), (32, True, False, False, 224), (32, False, False, False, 32),
        (32, False, True, True, 224), (32, False, True, False, 32),
    ],
)  # fmt: skip
def test_weights_want_the_size_that_they_were_trained_at(
    side: int | None, pretrained: bool, from_file: bool, fixed: bool, size: int
) -> None:
    known = Published(fixed_size=fixed)
    assert usual_side(known, side, pretrained=pretrained, from_file=from_file) == size
