"""A person's own transform as a view pipeline: torchvision's, lightly's, or any function of a picture."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.rng import key
from manyview.core.sample import Views


class TransformPipeline:
    """A pipeline whose copies are `transform(picture)`, a float tensor (C, h, w), or a list of them, all at once.

    The transform gets a Pillow image, as torchvision's data sets give it, or the tensor with `pillow=False`. It draws
    from the generators of torch, numpy and Python, which are seeded from (seed, epoch, id) around it and then restored.

    >>> pipeline = TransformPipeline(torchvision.transforms.Compose([...]), copies=2)
    """

    def __init__(self, transform: Callable[[Any], Any], copies: int = 2, *, pillow: bool = True) -> None:
        if copies < 1:
            raise UserError("copies", f"expected at least 1, got {copies}")
        self.transform, self.copies, self.pillow = transform, copies, pillow

    def sources(self, modalities: Iterable[str]) -> dict[str, str]:
        return {name: name for name in modalities}

    def at_once(self, images: Tensor) -> bool:
        return False

    def __len__(self) -> int:
        return self.copies

    def __call__(self, raw: Mapping[str, Tensor], ids: Tensor, *, seed: int = 0, epoch: int = 0) -> Views:
        made = [
            self.prepare({name: images[row] for name, images in raw.items()}, id, seed=seed, epoch=epoch)
            for row, id in enumerate(ids.tolist())
        ]
        return {name: [torch.stack(copy) for copy in zip(*(one[name] for one in made), strict=True)] for name in raw}

    def plan(
        self, modalities: Iterable[str], ids: Tensor, *, seed: int = 0, epoch: int = 0, colour: bool = True
    ) -> TransformPlan:
        """What a transform does cannot be split, so `colour` changes nothing."""
        return TransformPlan(self, ids.tolist(), seed, epoch)

    def prepare(self, raw: Mapping[str, Tensor], id: int, *, seed: int = 0, epoch: int = 0) -> Views:
        """Makes one sample's views."""
        seeded = int(key(seed, epoch, id))
        made: Views = {}
        for name, image in raw.items():
            with _seeded(seeded):  # anew for each, so that all modalities are cropped alike
                made[name] = self._copies(image)
        return made

    def finish(self, prepared: Views, ids: Tensor, *, seed: int = 0, epoch: int = 0, colour: bool = False) -> Views:
        return prepared

    def _copies(self, image: Tensor) -> list[Tensor]:
        picture = Image.fromarray(image.permute(1, 2, 0).squeeze(2).numpy()) if self.pillow else image
        copies: list[Tensor] = []
        while len(copies) < self.copies:
            made = self.transform(picture)
            copies += made if isinstance(made, list | tuple) else [made]
        for copy in copies:
            if not isinstance(copy, Tensor):
                raise UserError(None, f"the transform gave {type(copy).__name__}: end it with torchvision's ToTensor()")
        if len(copies) != self.copies:
            raise UserError(
                None, f"the transform gives {len(copies)} copies at once, not {self.copies}: pass copies={len(copies)}"
            )
        return copies


@dataclass(frozen=True)
class TransformPlan:
    """A batch of samples whose views a transform makes, of whole pictures."""

    pipeline: TransformPipeline
    ids: Sequence[int]
    seed: int
    epoch: int

    def shrink(self, number: int, height: int, width: int) -> int:
        return 1

    def prepare(
        self,
        number: int,
        raw: Mapping[str, Tensor],
        size: Sequence[int] | None = None,
        out: Mapping[str, Sequence[Tensor]] | None = None,
    ) -> Views:
        made = self.pipeline.prepare(raw, self.ids[number], seed=self.seed, epoch=self.epoch)
        if out is None:
            return made
        return {
            name: [place.copy_(copy) for place, copy in zip(out[name], copies, strict=True)]
            for name, copies in made.items()
        }


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seeds the generators of the CPU for a while; torch.manual_seed would also set those of every GPU, for good."""
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()
    torch.default_generator.manual_seed(seed % 2**63)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        random.setstate(before[1])
        np.random.set_state(before[2])
