from __future__ import annotations

import pytest

from manyview.encoders import create
from manyview.encoders.timm_models import has_model
from tests.encoders.test_encoder import images


def test_a_model_is_known_with_and_without_the_tag_of_its_weights() -> None:
    assert has_model("resnet18")
    assert has_model("resnet18.a1_in1k")
    assert not has_model("resnet81")
    assert not has_model("resnet18.a1_in2k")


def test_the_stages_of_a_resnet_have_the_librarys_names() -> None:
    maps = create("timm/resnet18").eval().layers(images(3, 64))
    assert list(maps) == ["act1", "layer1", "layer2", "layer3", "layer4"]


def test_a_last_convolution_that_timm_does_not_count_as_a_stage_is_one() -> None:
    maps = create("timm/efficientnet_b0", size=64).eval().layers(images(3, 64))
    assert list(maps)[-1] == "features"


def test_a_model_without_weights_says_so() -> None:
    with pytest.raises(ValueError, match="pretrained: timm has no weights of coatnet_0_224"):
        create("timm/coatnet_0_224", pretrained=True)
