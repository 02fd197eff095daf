from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from manyview.report.run_embeddings import EmbeddedRuns
from manyview.report.sections.map import EDGE, SIDE, class_colours, maps, script_data, to_pixels
from tests.report.conftest import EVIL


@pytest.mark.parametrize("stretch", [(1.0, 0.2), (0.2, 1.0), (1.0, 1.0), (0.0, 0.0)])
def test_points_fill_the_map_and_never_leave_it(stretch: tuple[float, float]) -> None:
    places = to_pixels((2 * torch.rand(50, 2) - 1) * torch.tensor(stretch))
    assert places.min() >= EDGE - 0.1
    assert places.max() <= SIDE - EDGE + 0.1


def test_each_image_is_a_point_in_the_colour_and_shape_of_its_class(embedded: EmbeddedRuns) -> None:
    text = maps(embedded)
    assert text.count("<use") == 30 + 2  # and the legend's
    assert text.count('data-k="0"') + text.count('data-k="1"') == 30


def test_the_script_is_given_names_and_neighbours(embedded: EmbeddedRuns) -> None:
    values = script_data(embedded)
    (sheet,), (near,) = values["sheets"], values["maps"]
    assert len(sheet["names"]) == len(sheet["labels"]) == len(near["near"]) == 30
    assert EVIL in sheet["classes"].values()
    assert all(row not in others for row, others in enumerate(near["near"]))
    assert all(one >= other for values in near["similar"] for one, other in pairwise(values))


def test_only_the_commonest_of_many_classes_have_colours(embedded: EmbeddedRuns) -> None:
    images = embedded.shown[0].images
    labels = torch.tensor([3, *range(15), *range(5, 17), 7, -1])  # those from 5 to 14 are there twice
    colours = class_colours(replace(images, labels=labels))
    assert set(colours) == {3, *range(5, 15)} - {14}
    assert sorted(colours.values()) == list(range(10))


def test_where_there_are_no_images_the_reason_is_told() -> None:
    missing = EmbeddedRuns([], {"run": "the <data> is gone"})
    assert "is left out: the &lt;data&gt; is gone" in maps(missing)
    assert script_data(missing) == {"sheets": [], "maps": []}
