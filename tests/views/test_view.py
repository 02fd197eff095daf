from __future__ import annotations

import pytest
import torch

from manyview.views import PICTURE, VIEWS, Modality, View
from manyview.views.view import view_named


def test_derived_views_are_of_the_reference_modality_and_other_names_are_modalities() -> None:
    assert view_named("L", "rgb") == View("rgb", channels=(0,), space="lab")
    assert view_named("DbDr", "image") == VIEWS["DbDr"]
    assert view_named("depth", "rgb") == View("depth")


def test_statistics_are_the_views_own_or_those_of_its_space_or_modality_for_the_kept_channels() -> None:
    assert VIEWS["ab"].statistics(PICTURE) == ((6.025, -6.6895), (92.208, 101.1675))
    assert VIEWS["Y"].statistics(PICTURE) == ((0.457,), (0.5,))
    assert View("image", channels=(2, 0)).statistics(PICTURE) == ((0.406, 0.485), (0.225, 0.229))
    assert View("flow", channels=(1,)).statistics(Modality((3.0,), (2.0,))) == ((3.0,), (2.0,))
    assert View("flow", mean=(1.0,), std=(4.0,)).statistics(Modality()) == ((1.0,), (4.0,))


def test_the_kept_channels_are_a_copy() -> None:
    planes = torch.arange(12.0).view(3, 1, 2, 2)
    for view, wanted in ((View(channels=(2, 0)), planes[[2, 0]]), (View(), planes)):
        taken = view.taken(planes)
        assert torch.equal(taken, wanted)
        taken.zero_()
    assert planes.sum() == 66


def test_a_mistake_is_named() -> None:
    with pytest.raises(ValueError, match="space: there is no colour space 'hsv'; give lab, ydbdr"):
        View(space="hsv")
    with pytest.raises(ValueError, match="channels: a view has at least one"):
        View(channels=())
    with pytest.raises(ValueError, match=r"mean: .* as many numbers each"):
        View(mean=(0.5,))
    with pytest.raises(ValueError, match="space: lab is made of three channels, 'depth' has 1"):
        View("depth", space="lab").width(1)
    with pytest.raises(ValueError, match=r"channels: \(3,\): 'image' has channels 0 to 2"):
        View(channels=(3,)).width(3)
    with pytest.raises(ValueError, match="mean: 2 numbers for the 1 channels of a view of 'image'"):
        View(channels=(0,), mean=(0.0, 1.0), std=(1.0, 1.0)).width(3)
