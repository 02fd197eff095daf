from __future__ import annotations

import pytest
import torch

from manyview.core.errors import UserError
from manyview.evaluate.finetune import RECIPES, finetune
from manyview.evaluate.rand_augment import training_pipeline
from manyview.views.transform import TransformPipeline
from tests.evaluate.pictures import pair, task


def test_pictures_are_augmented_anew_each_epoch_and_by_the_seed_and_id_alone() -> None:
    pipeline = training_pipeline(task(), RECIPES["moco-v3-vit"])
    assert isinstance(pipeline, TransformPipeline)
    picture = {"image": (torch.arange(3 * 16 * 16) % 256).to(torch.uint8).view(3, 16, 16)}
    first, same, later, other = (
        pipeline.prepare(picture, id, epoch=epoch)["image"][0] for id, epoch in ((1, 0), (1, 0), (1, 1), (2, 0))
    )
    assert first.shape == (3, 16, 16)
    assert torch.equal(first, same)
    assert not torch.equal(first, later)
    assert not torch.equal(first, other)


def test_without_it_crop_and_flip_are_all() -> None:
    assert training_pipeline(task(), RECIPES["swav-10"]) is None


def test_what_is_no_rgb_picture_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(UserError, match=r"recipe: augments RGB pictures, and .* sees something else"):
        finetune(pair(), recipe="moco-v3-vit")
