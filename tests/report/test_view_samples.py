from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

from manyview.data.scenes.dataset import Scenes
from manyview.report.run_embeddings import EmbeddedRuns
from manyview.report.view_samples import ViewSamples, choose_samples
from manyview.training.run import Run
from manyview.training.run_data import RunData
from manyview.views import AUGMENTATIONS
from manyview.views.view import view_named


def scenes(*names: str) -> ViewSamples:
    """Six scenes in some views."""
    modalities = ("rgb", "depth", "normals", "semantic", "flow")
    views = {name: view_named(name, "rgb") for name in names}
    pipeline = AUGMENTATIONS["probe-test"](32).of(dict.fromkeys(names, 1), views=views)
    return ViewSamples(Scenes(6, size=32, modalities=modalities), views, pipeline, "6 samples")


def test_every_view_of_a_scene_becomes_a_picture() -> None:
    found = scenes("rgb", "L", "ab", "depth", "normals", "semantic", "flow")
    wanted = [(row, view) for row in (0, 3) for view in found.views]
    made = found.tiles(wanted)
    assert set(made) == set(wanted)
    assert {picture.size for picture in made.values()} == {(32, 32)}
    assert all(len(set(picture.tobytes())) > 1 for picture in made.values())
    photo = found.dataset[3].modalities["rgb"].permute(1, 2, 0)
    assert made[3, "rgb"].tobytes() == bytes(photo.flatten().tolist())
    grey, colours = (np.asarray(made[3, view]) for view in ("L", "ab"))
    assert bool((grey == grey[..., :1]).all())
    assert not bool((colours == colours[..., :1]).all())


def test_normals_are_directions_and_masks_numbers() -> None:
    found = scenes("normals", "semantic")
    normals, mask = (found.tiles([(0, view)])[0, view] for view in found.views)
    again = scenes("normals").tiles([(0, "normals"), (1, "normals")])[0, "normals"]
    assert normals.tobytes() == again.tobytes()  # not stretched: the other sample changes nothing
    assert len(set(zip(*[iter(mask.tobytes())] * 3, strict=True))) <= len(
        found.dataset[0].modalities["semantic"].unique()
    )


def test_what_is_missing_or_broken_has_no_picture(many_embedded: EmbeddedRuns) -> None:
    found = many_embedded.shown[0].samples
    rows = {found.dataset.name(row).rpartition("<i>")[2]: row for row in range(len(found.dataset))}
    made = found.tiles((row, view) for row in rows.values() for view in found.views)
    assert [(rows["4"], view) in made for view in ("rgb", "ab", "depth")] == [True, True, False]
    assert [(rows["0"], view) in made for view in ("rgb", "ab", "depth")] == [False, False, False]
    assert [(rows["1"], view) in made for view in ("rgb", "ab", "depth")] == [True, True, True]


def test_samples_are_held_out_ones_chosen_by_their_ids(many: Run, many_embedded: EmbeddedRuns) -> None:
    data: RunData = many_embedded.shown[0].data
    few, more = (choose_samples(many.config, data, count) for count in (4, 8))
    assert (few.description, more.description) == ("4 of the 20 test samples", "8 of the 20 test samples")
    assert set(few.dataset.ids.tolist()) <= set(more.dataset.ids.tolist())


def test_shown_samples_are_of_as_many_classes_as_possible() -> None:
    found = scenes("rgb")
    labelled = SimpleNamespace(labels=torch.tensor([1, 1, 0, -1, 0, 2]))
    some = replace(found, dataset=labelled)
    assert some.spread(range(6), 3) == [2, 0, 5]
    assert some.spread(range(6), 5) == [2, 0, 5, 1, 3]
    assert some.spread([3, 4], 5) == [4, 3]
    none = replace(found, dataset=SimpleNamespace(labels=None))
    assert none.spread(range(6), 2) == [0, 1]
