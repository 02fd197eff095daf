"""A user's own transform as a stack: torchvision's, lightly's, or any function of a picture."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.rng import key
from manyview.core.sample import Views


class TransformPipeline:
    """Each view is `transform(picture)`, a float tensor (C, h, w); one that gives a list gives all views at once.

    The transform gets a Pillow image, as torchvision's data sets give it, or the tensor with `pillow=False`. It draws
    from the generators of torch, numpy and Python, which are seeded from (seed, epoch, id) around it and then restored.

    >>> stack = TransformPipeline(torchvision.transforms.Compose([...]), views=2)
    """

    def __init__(self, transform: Callable[[Any], Any], views: int = 2, *, pillow: bool = True) -> None:
        if views < 1:
            raise UserError(None, f"views={views}: a stack makes at least one view")
        self.transform, self.views, self.pillow = transform, views, pillow

    def at_once(self, images: Tensor) -> bool:
        return False

    def __len__(self) -> int:
        return self.views

    def __call__(self, raw: Mapping[str, Tensor], ids: Tensor, *, seed: int = 0, epoch: int = 0) -> Views:
        made = [
            self.prepare({name: images[row] for name, images in raw.items()}, id, seed=seed, epoch=epoch)
            for row, id in enumerate(ids.tolist())
        ]
        return {name: [torch.stack(look) for look in zip(*(one[name] for one in made), strict=True)] for name in raw}

    def prepare(
        self, views: Mapping[str, Tensor], id: int, *, seed: int = 0, epoch: int = 0, colour: bool = True
    ) -> Views:
        """One sample's views. What a transform does cannot be split, so `colour` changes nothing."""
        seeded = int(key(seed, epoch, id))
        made: Views = {}
        for name, image in views.items():
            with _seeded(seeded):  # anew for each, so that all sensors are cropped alike
                made[name] = self._looks(image)
        return made

    def finish(self, prepared: Views, ids: Tensor, *, seed: int = 0, epoch: int = 0, colour: bool = False) -> Views:
        return prepared

    def _looks(self, image: Tensor) -> list[Tensor]:
        picture = Image.fromarray(image.permute(1, 2, 0).squeeze(2).numpy()) if self.pillow else image
        looks: list[Tensor] = []
        while len(looks) < self.views:
            made = self.transform(picture)
            looks += made if isinstance(made, list | tuple) else [made]
        for look in looks:
            if not isinstance(look, Tensor):
                raise UserError(None, f"the transform gave {type(look).__name__}: end it with torchvision's ToTensor()")
        if len(looks) != self.views:
            raise UserError(
                None, f"the transform gives {len(looks)} views at once, not {self.views}: pass views={len(looks)}"
            )
        return looks


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """The generators of the CPU; torch.manual_seed would also set those of every GPU, for good."""
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
