"""The view pipelines of a run."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from manyview.methods import Alignment, Method
from manyview.methods.terms import queries
from manyview.training import build, pipelines, run_data, settle
from manyview.views import VIEWS
from tests.config.small import flags

SCENES = {"data.name": "scenes"}


def test_of_a_view_in_a_colour_space_the_channels_are_those_that_it_takes() -> None:
    config = flags("--method simclr --method.copies 3 --views ab --data.count 40", SCENES)
    found = run_data.open_data(config)
    assert found.channels == {"image": 2}
    config = settle.settled(config, found)
    method = build.method(config, found.channels, 40)
    pipeline, raw = pipelines.training(config, found.views, method), found.train[0].modalities["image"]
    copies = pipeline({"image": raw[None]}, torch.arange(1))["image"]
    assert [tuple(copy.shape) for copy in copies] == [(1, 2, 32, 32)] * 3


@pytest.mark.parametrize("geometry", ["shared", "own"])
def test_a_method_says_whether_its_views_share_their_crop(geometry: Literal["shared", "own"]) -> None:
    config = flags("--method simclr --views L --data.count 40", SCENES)
    found = run_data.open_data(config)
    config = settle.settled(config, found)
    one = build.method(config, {"image": 1}, 40)
    views = {"L": VIEWS["L"], "again": VIEWS["L"]}
    term = Alignment(queries("L", 0), queries("again", 0))
    method = Method(views={"L": 1, "again": 1}, towers=one.towers, terms=[term], geometry=geometry)
    raw = found.train[0].modalities["image"]
    made = pipelines.training(config, views, method)({"image": raw[None]}, torch.arange(1))
    assert torch.equal(made["L"][0], made["again"][0]) == (geometry == "shared")
