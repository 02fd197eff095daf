"""Batches: how many an epoch has, and what cannot be trained on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from manyview.config.resolve import resolve
from manyview.core.errors import UserError
from manyview.training import build
from manyview.training.batches import LEAST_IMAGES, check_groups, check_images, check_labels, epoch_of
from tests.config.small import flags
from tests.methods.toys.run import Pairs


@pytest.mark.parametrize("micro_batch", [None, 4])
def test_a_batch_that_does_not_fall_into_the_groups_of_batch_norm_is_refused(micro_batch: int | None) -> None:
    """In one process the settings say so; only here it is known how many there are."""
    settings = {"batch_size": 24, "method.name": "moco_v2", "method.bn_splits": 4, "micro_batch": micro_batch}
    config = resolve({"data.name": "photos", "augmentation.size": 32, **settings}, {})
    method = build.method(config, {"image": 3}, 40)
    check_groups(method, config, 2)
    check_groups(method, config, 4)  # a group each
    with pytest.raises(UserError, match=r"^method\.bn_splits: 3 processes cannot share 4 groups; give a multiple of 3"):
        check_groups(method, config, 3)
    few = replace(config, micro_batch=3)
    with pytest.raises(UserError, match=r"^method\.bn_splits: micro_batch 3 of 2 processes does not fall into 2 equal"):
        check_groups(method, few, 2)


def test_a_method_that_goes_by_labels_refuses_data_without_classes() -> None:
    data, method = Pairs(whole=True), build.small_method(flags("--method supcon"), ["image"])
    check_labels(method, data)
    data.labels = None
    check_labels(build.small_method(flags("--method simclr"), ["image"]), data)
    with pytest.raises(
        UserError, match="data: the method learns from labels, and the data has none, or one class only"
    ):
        check_labels(method, data)


@pytest.mark.parametrize(("images", "drop_last", "expected"), [(20, True, 16), (20, False, 20), (17, False, 16)])
def test_a_last_batch_of_one_image_is_left_out_whatever_the_settings_say(
    images: int, drop_last: bool, expected: int
) -> None:
    config = resolve({"data.name": "photos", "batch_size": 8, "drop_last": drop_last}, {})
    assert epoch_of(config, images).seen == expected


def test_images_that_have_hardly_any_others_to_differ_from_are_refused() -> None:
    check_images(LEAST_IMAGES)
    with pytest.raises(
        UserError, match=f"^data: {LEAST_IMAGES - 1} training images are too few: .* give {LEAST_IMAGES} at"
    ):
        check_images(LEAST_IMAGES - 1)
