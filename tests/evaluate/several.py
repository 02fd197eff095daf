"""Samples with several labels: noise that is brighter in the corners of the classes that it shows."""

from __future__ import annotations

import torch
from torch import Tensor

from manyview.core.sample import Sample
from manyview.data.dataset import label_set_target
from manyview.embeddings.open_model import open_model
from manyview.evaluate.task import Task
from tests.evaluate.pictures import encoder

CLASSES = ("red", "green", "blue")


class Corners:
    """n samples, each of which shows some of three classes: one channel each."""

    modalities, labels, classes = ("image",), None, CLASSES

    def __init__(self, count: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.label_sets = (torch.rand(count, 3, generator=draw) < 0.4).to(torch.int8)
        self.ids = torch.arange(count) + 1000 * seed
        noise = torch.randint(0, 40, (count, 3, 16, 16), generator=draw)
        self._images: Tensor = (noise + 200 * self.label_sets[:, :, None, None]).to(torch.uint8)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Sample:
        targets = label_set_target(self.label_sets, index)
        return Sample(int(self.ids[index]), index, {"image": self._images[index]}, targets)

    def name(self, index: int) -> str:
        return str(index)


def several() -> Task:
    return Task(open_model(encoder()), Corners(60, 1), Corners(40, 2), "corners")
