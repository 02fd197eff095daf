from __future__ import annotations

import torch

from manyview.core.rng import key
from manyview.data.scenes.shapes import SHAPES
from manyview.data.scenes.stage import OBJECTS, PALETTE, choice, main_shape, moved, stage
from manyview.data.scenes.vectors import dot

KEYS = key(1, 0, torch.arange(400))


def test_a_scene_depends_on_its_key_alone() -> None:
    many, one = stage(KEYS), stage(KEYS[17:18])
    for a, b in zip(many.objects.centre, one.objects.centre, strict=True):
        assert torch.equal(a[17:18], b)
    for a, b in zip(many.camera.eye, one.camera.eye, strict=True):
        assert torch.equal(a[17:18], b)


def test_numbers_are_float32() -> None:
    drawn = stage(KEYS[:3])
    assert drawn.objects.reach.dtype == drawn.camera.field.dtype == torch.float32
    assert drawn.objects.shape.dtype == torch.int64


def test_the_main_object_is_there_and_has_the_class() -> None:
    drawn = stage(KEYS)
    assert drawn.objects.present[:, 0].all()
    assert torch.equal(drawn.objects.shape[:, 0], main_shape(KEYS))
    others = drawn.objects.present.sum(1) - 1
    assert sorted(others.unique().tolist()) == list(range(1, OBJECTS))


def test_nuisances_say_nothing_about_the_class() -> None:
    """Means per class of what is drawn independently differ by no more than chance."""
    keys = key(2, 0, torch.arange(8000))
    drawn, label = stage(keys), main_shape(keys)
    for value in (drawn.objects.paint.name[:, 0], drawn.camera.field[:, 0], drawn.surroundings.light[0][:, 0]):
        value = value.double()
        means = torch.stack([value[label == row].mean() for row in range(len(SHAPES))])
        assert (means - value.mean()).abs().max() < 5 * value.std() / 800**0.5


def test_turns_are_rotations_before_and_after_motion() -> None:
    drawn = stage(KEYS)
    for objects in (drawn.objects, moved(drawn).objects):
        for i, a in enumerate(objects.turn):
            for j, b in enumerate(objects.turn):
                torch.testing.assert_close(dot(a, b), torch.full_like(a[0], float(i == j)), atol=1e-5, rtol=0)


def test_a_choice_follows_its_weights() -> None:
    counts = choice((torch.arange(1000, dtype=torch.float64) + 0.5) / 1000, (5, 4, 1)).bincount()
    assert counts.tolist() == [500, 400, 100]


def test_every_colour_comes_up() -> None:
    assert len(stage(KEYS).objects.paint.name.unique()) == len(PALETTE)
