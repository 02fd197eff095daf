"""Wraps a person's own `torch.utils.data.Dataset` as a data set of samples."""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from manyview.core.errors import UserError
from manyview.core.sample import Sample
from manyview.data.dataset import Dataset, label_target, read
from manyview.data.image import own_of, to_rgb, unreadable


class TorchDataset:
    """Wraps what has `__len__` and gives, for a number, a picture, (picture, label, ...), or a dict of modalities.

    A picture is a Pillow image, or a tensor or array (C, H, W) of uint8 or of floats in [0, 1]; other modalities are
    tensors (C, H, W) in their own unit, or Pillow images with a depth of their own. Pictures must not be augmented or
    normalised: views do that. What the data set cannot give is `Unreadable`.

    Ids are the numbers themselves unless given. Labels are taken from `targets` or `labels` if it has them, or from the
    second tensor of a TensorDataset; labels that only come with each item are passed over: give labels=.

    >>> dataset = TorchDataset(torchvision.datasets.CIFAR10("data"))
    """

    def __init__(self, dataset: Any, *, ids: Tensor | None = None, labels: Tensor | None = None) -> None:
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise UserError(
                None, f"{type(dataset).__name__} has no length or no items: give a torch.utils.data.Dataset"
            )
        self._dataset = dataset
        self.known = ids is not None  # which image is which, beyond this data set
        self.ids = torch.arange(len(dataset)) if ids is None else ids
        self.labels = _labels(dataset) if labels is None else labels
        if len(self.ids) != len(dataset) or len(self.ids.unique()) != len(dataset):
            raise UserError("ids", f"give a different whole number for each of the {len(dataset)} samples")
        if self.labels is not None and len(self.labels) != len(dataset):
            raise UserError("labels", f"{len(self.labels)} of them for {len(dataset)} samples; give one each")
        self.classes = tuple(str(name) for name in getattr(dataset, "classes", ())) or _numbered(self.labels)
        self.modalities = tuple(self._first().modalities)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Sample:
        with unreadable():
            got = self._dataset[index]
        named = got if isinstance(got, dict) else {"image": got[0] if isinstance(got, list | tuple) else got}
        modalities = {name: _raw(name, image) for name, image in named.items() if name != "label"}
        return Sample(int(self.ids[index]), index, modalities, label_target(self.labels, index))

    def name(self, index: int) -> str:
        return str(index)

    def numbered(self, first: int) -> TorchDataset:
        """Wraps the same data with ids from `first` on."""
        return TorchDataset(self._dataset, ids=torch.arange(first, first + len(self)), labels=self.labels)

    def _first(self) -> Sample:
        """The first sample that can be read."""
        problem = "it is empty"
        for index in range(len(self)):
            sample = read(self, index)
            if isinstance(sample, Sample):
                return sample
            problem = sample
        raise UserError(None, f"no sample of {type(self._dataset).__name__} can be read: {problem}")


def as_dataset(data: Any) -> Dataset:
    """Returns a data set as it is, and anything else wrapped as `TorchDataset`."""
    return data if isinstance(data, Dataset) else TorchDataset(data)


def _raw(name: str, image: Any) -> Tensor:
    if isinstance(image, Image.Image):
        return to_rgb(image) if name == "image" else own_of(image)
    tensor = torch.as_tensor(image)
    if tensor.ndim != 3:
        raise UserError(None, f"modality {name!r} has shape {tuple(tensor.shape)}: give (channels, height, width)")
    if tensor.shape[2] in (1, 3, 4) and tensor.shape[0] > 4:
        what = f"modality {name!r} has shape {tuple(tensor.shape)}, channels last"
        raise UserError(None, f"{what}: give (channels, height, width), as permute(2, 0, 1) makes it")
    if tensor.dtype == torch.uint8 or not tensor.is_floating_point():
        return tensor if tensor.dtype == torch.uint8 else tensor.float()
    if tensor.shape[0] != 3:
        return tensor.float()
    low, high = tensor.aminmax()
    if low < 0 or high > 1:
        give = "give uint8, or floats in [0, 1], not normalised; the views are normalised later"
        raise UserError(None, f"picture {name!r} has values from {low:g} to {high:g}: {give}")
    return tensor.mul(255).round().to(torch.uint8)


def _labels(dataset: Any) -> Tensor | None:
    if isinstance(dataset, Subset):
        whole = _labels(dataset.dataset)
        return None if whole is None else whole[torch.as_tensor(dataset.indices)]
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) > 1 and dataset.tensors[1].ndim == 1:
        return dataset.tensors[1].long()
    for name in ("targets", "labels"):
        found = getattr(dataset, name, None)
        if found is not None and len(found) == len(dataset):
            return torch.as_tensor(found).long()
    return None


def _numbered(labels: Tensor | None) -> tuple[str, ...]:
    return () if labels is None else tuple(str(number) for number in range(int(labels.max()) + 1))
