from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from manyview.report.map import EDGE, SIDE, _placed, colours, for_script, maps
from manyview.report.run_embeddings import Seen, seen
from manyview.report.run_record import told
from manyview.training.run import Run
from tests.report.conftest import EVIL


@pytest.fixture(scope="module")
def looked(run: Run) -> dict[str, Seen | str]:
    return seen(told([run]), 30, 60.0, None)


@pytest.mark.parametrize("stretch", [(1.0, 0.2), (0.2, 1.0), (1.0, 1.0), (0.0, 0.0)])
def test_points_fill_the_map_and_never_leave_it(stretch: tuple[float, float]) -> None:
    places = _placed((2 * torch.rand(50, 2) - 1) * torch.tensor(stretch))
    assert places.min() >= EDGE - 0.1
    assert places.max() <= SIDE - EDGE + 0.1


def test_each_image_is_a_point_in_the_colour_and_shape_of_its_class(looked: dict[str, Seen | str]) -> None:
    text = maps(looked)
    assert text.count("<use") == 30 + 2  # and the legend's
    assert text.count('data-k="0"') + text.count('data-k="1"') == 30


def test_the_script_is_told_names_and_neighbours(looked: dict[str, Seen | str]) -> None:
    told = for_script(looked)
    (sheet,), (near,) = told["sheets"], told["maps"]
    assert len(sheet["names"]) == len(sheet["labels"]) == len(near["near"]) == 30
    assert EVIL in sheet["classes"].values()
    assert all(row not in others for row, others in enumerate(near["near"]))
    assert all(one >= other for values in near["similar"] for one, other in pairwise(values))


def test_only_the_commonest_of_many_classes_have_colours(looked: dict[str, Seen | str]) -> None:
    (only,) = looked.values()
    assert isinstance(only, Seen)
    labels = torch.tensor([3, *range(15), *range(5, 17), 7, -1])  # those from 5 to 14 are there twice
    many = replace(only, pictures=replace(only.pictures, labels=labels))
    assert set(colours(many)) == {3, *range(5, 15)} - {14}
    assert sorted(colours(many).values()) == list(range(10))


def test_where_there_are_no_images_the_reason_is_told() -> None:
    assert "is left out: the <data> is gone".replace("<", "&lt;").replace(">", "&gt;") in maps(
        {"run": "the <data> is gone"}
    )
    assert for_script({"run": "gone"}) == {"sheets": [], "maps": []}
