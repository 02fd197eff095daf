from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision import transforms

from manyview.views import TransformPipeline

OWN = transforms.Compose([transforms.RandomResizedCrop(16), transforms.ColorJitter(0.4, 0.4), transforms.ToTensor()])


def pictures(n: int = 5) -> Tensor:
    return torch.randint(256, (n, 3, 20, 24), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


def test_a_torchvision_transform_gives_as_many_views_as_asked() -> None:
    views = TransformPipeline(OWN, copies=3)({"image": pictures()}, torch.arange(5))["image"]
    assert [tuple(view.shape) for view in views] == [(5, 3, 16, 16)] * 3
    assert not torch.equal(views[0], views[1])


def test_what_it_draws_depends_on_seed_epoch_and_id_only() -> None:
    pipeline, images = TransformPipeline(OWN), pictures()
    whole = pipeline({"image": images}, torch.arange(5), seed=1, epoch=2)["image"]
    random.random(), torch.rand(1), np.random.rand()
    again = pipeline({"image": images[3:4]}, torch.tensor([3]), seed=1, epoch=2)["image"]
    assert torch.equal(whole[0][3:4], again[0])
    assert not torch.equal(whole[0], pipeline({"image": images}, torch.arange(5), seed=1, epoch=3)["image"][0])


def test_modalities_are_cropped_alike() -> None:
    views = TransformPipeline(OWN)({"rgb": pictures(), "again": pictures()}, torch.arange(5))
    assert torch.equal(views["rgb"][0], views["again"][0])


def test_the_generators_go_on_as_if_nothing_had_been_drawn() -> None:
    def numbers() -> tuple[float, float, float]:
        return random.random(), torch.rand(1).item(), float(np.random.rand())

    random.seed(0), torch.manual_seed(0), np.random.seed(0)
    expected = numbers()
    random.seed(0), torch.manual_seed(0), np.random.seed(0)
    TransformPipeline(OWN)({"image": pictures()}, torch.arange(5))
    assert numbers() == expected


def test_a_transform_that_gives_all_views_at_once_is_understood() -> None:
    def both(picture: object) -> list[Tensor]:
        return [OWN(picture), OWN(picture)]

    assert len(TransformPipeline(both, copies=2)({"image": pictures()}, torch.arange(5))["image"]) == 2
    with pytest.raises(ValueError, match="pass copies=4"):
        TransformPipeline(both, copies=3)({"image": pictures()}, torch.arange(5))


def test_a_transform_that_gives_no_tensor_is_told_so() -> None:
    with pytest.raises(ValueError, match="ToTensor"):
        TransformPipeline(transforms.RandomHorizontalFlip())({"image": pictures()}, torch.arange(5))


def test_a_transform_of_tensors_gets_tensors() -> None:
    pipeline = TransformPipeline(lambda image: image.float() / 255, copies=1, pillow=False)
    assert torch.equal(pipeline({"image": pictures()}, torch.arange(5))["image"][0], pictures().float() / 255)
