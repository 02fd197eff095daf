from __future__ import annotations

import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset as MapDataset
from torch.utils.data import Subset, TensorDataset

from manyview.data.dataset import Dataset, Unreadable
from manyview.data.torch_dataset import TorchDataset


class Pictures(MapDataset[tuple[Image.Image, int]]):
    classes = ("cat", "dog")

    def __init__(self) -> None:
        self.targets = [0, 1, 1]

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.new("L", (7, 5), 10 * index), self.targets[index]


class SeveralModalities(MapDataset[dict[str, object]]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> dict[str, object]:
        always: dict[str, object] = {"rgb": torch.full((3, 4, 4), 0.5), "label": 1}
        return always if index else {**always, "depth": torch.full((1, 2, 2), 1234.0)}


def test_pictures_with_labels_become_samples() -> None:
    own = TorchDataset(Pictures())
    assert isinstance(own, Dataset)
    assert own.modalities == ("image",)
    assert own.classes == ("cat", "dog")
    sample = own[2]
    assert (sample.id, sample.index, sample.targets["label"]) == (2, 2, 1)
    assert sample.modalities["image"].shape == (3, 5, 7)
    assert (sample.modalities["image"] == 20).all()


def test_a_dict_gives_named_modalities_and_may_lack_some() -> None:
    own = TorchDataset(SeveralModalities())
    assert own[0].modalities["rgb"].dtype == torch.uint8
    assert own[0].modalities["depth"].dtype == torch.float32
    assert set(own[1].modalities) == {"rgb"}
    assert own.labels is None


def test_tensors_and_own_ids_are_taken() -> None:
    images = torch.randint(256, (4, 3, 6, 6), dtype=torch.uint8)
    own = TorchDataset(TensorDataset(images), ids=torch.tensor([9, 8, 7, 6]))
    assert own[1].id == 8
    assert torch.equal(own[1].modalities["image"], images[1])


def test_what_the_data_set_cannot_give_is_unreadable() -> None:
    class Truncated(Pictures):
        def __getitem__(self, index: int) -> tuple[Image.Image, int]:
            if index == 0:
                raise OSError("image file is truncated")
            return super().__getitem__(index)

    own = TorchDataset(Truncated())
    assert own.modalities == ("image",)
    with pytest.raises(Unreadable, match="truncated"):
        own[0]


def test_a_deep_picture_of_another_modality_keeps_its_unit() -> None:
    class Deep(SeveralModalities):
        def __getitem__(self, index: int) -> dict[str, object]:
            return {"rgb": Image.new("RGB", (4, 4)), "depth": Image.new("I;16", (4, 4), 5000)}

    assert (TorchDataset(Deep())[0].modalities["depth"] == 5000).all()


def test_labels_of_a_subset_and_of_tensors_are_found() -> None:
    labels = TorchDataset(Subset(Pictures(), [2, 0])).labels
    assert labels is not None
    assert labels.tolist() == [1, 0]
    labels = TorchDataset(TensorDataset(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([4, 5]))).labels
    assert labels is not None
    assert labels.tolist() == [4, 5]


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="no length"):
        TorchDataset(iter([1]))
    with pytest.raises(ValueError, match="not normalised"):
        TorchDataset(TensorDataset(torch.randn(2, 3, 4, 4)))
    with pytest.raises(ValueError, match="permute"):
        TorchDataset(TensorDataset(torch.zeros(2, 8, 9, 3, dtype=torch.uint8)))
    with pytest.raises(ValueError, match="channels, height, width"):
        TorchDataset(TensorDataset(torch.rand(2, 4, 4)))
    with pytest.raises(ValueError, match="different whole number"):
        TorchDataset(Pictures(), ids=torch.tensor([1, 1, 2]))
    with pytest.raises(ValueError, match="2 of them for 3"):
        TorchDataset(Pictures(), labels=torch.tensor([1, 1]))
