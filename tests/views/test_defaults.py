from __future__ import annotations

from manyview.views import AUGMENTATIONS
from manyview.views.defaults import usual_augmentation, usual_size


def test_views_are_as_large_as_pictures_within_bounds_and_a_multiple_of_32() -> None:
    assert [usual_size(side) for side in (8, 32, 50, 96, 500)] == [32, 32, 64, 96, 128]
    assert usual_size(500, largest=224) == 224


def test_small_views_are_not_blurred() -> None:
    for size in (32, 64, 96):
        blurred = any(each.blur for each in AUGMENTATIONS[usual_augmentation(size)](size).augmentations)
        assert blurred == (size > 64)
