"""Data sets of random pictures, whole or with something missing, for the loader and its parts."""

from __future__ import annotations

from pathlib import Path

import torch

from manyview.core.sample import Sample
from manyview.data.dataset import Unreadable


class Pictures:
    """Random pictures, some of them unreadable; counts how often each is decoded, over all processes, in files."""

    classes: tuple[str, ...] = ()
    modalities: tuple[str, ...] = ("image",)

    def __init__(self, n: int = 50, *, sizes: tuple[int, ...] = (20,), unreadable: tuple[int, ...] = ()) -> None:
        self.ids = torch.arange(n) * 3 + 1000
        self.labels = torch.arange(n) % 4
        self.sizes, self.bad = sizes, unreadable
        self.log: Path | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Sample:
        if self.log is not None:
            with self.log.open("a") as log:
                log.write(f"{index}\n")
        if index in self.bad:
            raise Unreadable("cut short")
        side = self.sizes[index % len(self.sizes)]
        image = torch.randint(256, (3, side, side), generator=torch.Generator().manual_seed(index), dtype=torch.uint8)
        return Sample(int(self.ids[index]), index, {"image": image}, {"label": int(self.labels[index])})

    def name(self, index: int) -> str:
        return f"picture {index}"


class Paired(Pictures):
    """Every third sample lacks its depth."""

    modalities: tuple[str, ...] = ("image", "depth")

    def __getitem__(self, index: int) -> Sample:
        sample = super().__getitem__(index)
        depth = {} if index % 3 == 0 else {"depth": torch.full((1, 20, 20), float(index))}
        return Sample(sample.id, index, {**sample.modalities, **depth}, sample.targets)
