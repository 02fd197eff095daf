"""What was drawn for the samples of a batch, and how a worker makes their views of it, one sample at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import cv2
import numpy as np
import torch
from torch import Tensor

from manyview.core.sample import Views
from manyview.views.augmentation import (
    TRIES,
    Array,
    Augmentation,
    AugmentationParams,
    crop_shapes,
    draw_boxes,
    random_box,
)
from manyview.views.colour import coloured, rand_augment_
from manyview.views.colour_uint8 import coloured as coloured_uint8
from manyview.views.resample import crop_each, crop_picture, finest_step, scaled_boxes, with_holes
from manyview.views.view import PICTURE, Modality

SHARPNESS = 2.0  # a picture that is decoded smaller keeps so many pixels a side for each of a view, where it had them
FACTORS = (8, 4, 2)  # by how much JPEG files can be decoded smaller at little cost


@dataclass(frozen=True, eq=False)
class Drawn:
    """What was drawn for one copy of n samples; their boxes come of the `geometry` (n, 23), once a size is known."""

    augmentation: Augmentation
    geometry: Array
    params: AugmentationParams

    def box(self, row: int, height: int, width: int) -> Sequence[int]:
        """The box of one sample: top, left, height, width."""
        if self.augmentation.scale is None or self.augmentation.offset is not None:
            return draw_boxes(self.augmentation, self.geometry[row : row + 1], height, width)[0].tolist()
        shares, aspects, corners = self._tries
        tries = zip(shares[row], aspects[row], strict=True)
        return random_box(tries, corners[row], height, width, self.augmentation.ratio)

    @cached_property
    def _tries(self) -> tuple[list[list[float]], list[list[float]], list[list[float]]]:
        """The shares, the ratios and the places that crops of all samples are made of, as Python has numbers."""
        assert self.augmentation.scale is not None
        share, aspect = crop_shapes(self.geometry, self.augmentation.scale, self.augmentation.ratio)
        return share.tolist(), aspect.tolist(), self.geometry[:, 2 * TRIES : 2 * TRIES + 2].tolist()


@dataclass(frozen=True, eq=False)
class Plan:
    """The numbers of a batch of samples, drawn before their pictures are known: for many they cost what one costs.

    modality_of  what is known of a modality, by its name and a picture
    reference    the modality on whose size crops are drawn
    sources      the modality of each cut: of what is cropped and coloured once for the views that are taken of it
    drawn        by cut, for each of its copies
    colour       False: pictures are only cropped, and the rest is done later, on a GPU for instance
    holes        values without data are NaN

    >>> plan = pipeline.plan(["image"], ids, epoch=3); plan.prepare(0, {"image": first})["image"]
    """

    modality_of: Callable[[str, Tensor], Modality]
    reference: str
    sources: Mapping[str, str]
    drawn: Mapping[str, Sequence[Drawn]]
    colour: bool = True
    holes: bool = False

    def boxes(self, cut: str, row: int, size: Sequence[int]) -> Array:
        """The boxes (copies, 4) of a sample of this size."""
        height, width = size
        return np.array([copy.box(row, height, width) for copy in self.drawn[cut]])

    def shrink(self, row: int, height: int, width: int) -> int:
        """How many times smaller, 1, 2, 4 or 8, a reference of three channels of 8 bits may be decoded."""
        cuts = {cut: copies for cut, copies in self.drawn.items() if self.sources[cut] == self.reference}
        side = min(height, width)  # no box has a longer one
        if side < SHARPNESS * FACTORS[-1] * max(copy.augmentation.size for copies in cuts.values() for copy in copies):
            return 1  # without drawing a box, which cannot be larger than the picture
        if not self.modality_of(self.reference, torch.empty(3, 1, 1, dtype=torch.uint8)).colour:
            return 1
        finest = min(
            finest_step(copy.augmentation, copy.box(row, height, width)) for copies in cuts.values() for copy in copies
        )
        return next((factor for factor in FACTORS if finest >= SHARPNESS * factor), 1)

    def prepare(
        self,
        row: int,
        raw: Mapping[str, Tensor],
        size: Sequence[int] | None = None,
        out: Mapping[str, Sequence[Tensor]] | None = None,
    ) -> Views:
        """Makes of a sample's modalities (C, H, W) what a worker hands on: cropped, coloured, in their own dtype.

        size  height and width of the reference before it was decoded smaller, on which crops are drawn
        out   where to put the copies of each cut, (C, size, size) each; None: into memory of their own

        The reference is the first modality that a view is made of. A modality comes once for all views that share its
        geometry; `ViewPipeline.finish` takes the views.
        """
        made: Views = {}
        reference = next((image for name, image in raw.items() if name in self.sources.values()), None)
        if reference is None:
            return made
        size = tuple(reference.shape[1:] if size is None else size)
        for cut, copies in self.drawn.items():
            image = raw.get(self.sources[cut])
            if image is not None:
                modality = self.modality_of(self.sources[cut], image)
                boxes = scaled_boxes(self._checked(cut, row, size), size, image.shape[1:])
                places = [None] * len(copies) if out is None else out[cut]
                whole = modality.colour and modality.nodata is None and image.dtype == torch.uint8
                view = self._picture if whole else self._values
                made[cut] = [
                    view(image, modality, copy, row, boxes[k : k + 1], places[k]) for k, copy in enumerate(copies)
                ]
        return made

    def _checked(self, cut: str, row: int, size: Sequence[int]) -> Array:
        for copy in self.drawn[cut]:
            copy.augmentation.check_picture(size[0], size[1])
        return self.boxes(cut, row, size)

    def _picture(
        self, image: Tensor, modality: Modality, copy: Drawn, row: int, box: Array, out: Tensor | None
    ) -> Tensor:
        """One copy of a picture of 8 bits."""
        augmentation, params = copy.augmentation, copy.params
        picture = crop_picture(image, augmentation, box[0], bool(params.flip[row]))
        if self.colour:
            picture = coloured_uint8(picture, augmentation, params, row)
        place = torch.empty((3, *picture.shape[:2]), dtype=torch.uint8) if out is None else out
        cv2.split(picture, list(place.numpy()))
        if self.colour and augmentation.operations:
            planes = _unit(place)
            rand_augment_(planes, augmentation, params, np.array([row]))
            place.copy_(planes[:, 0].mul_(255).round_())
        return place

    def _values(
        self, image: Tensor, modality: Modality, copy: Drawn, row: int, box: Array, out: Tensor | None
    ) -> Tensor:
        """One copy of anything else."""
        params = AugmentationParams(*(column[row : row + 1] for column in copy.params))
        crop = crop_each(modality.filled(image)[None], copy.augmentation, box, params.flip, modality)
        if self.holes:
            crop = with_holes(crop, image[None], copy.augmentation, box, params.flip, modality)
        view = crop[:, 0]
        if self.colour and modality.colour:
            planes = coloured(_unit(view), copy.augmentation, params)[:, 0]
            view = planes.mul_(255).round_().to(torch.uint8) if view.dtype == torch.uint8 else planes
        return view if out is None else out.copy_(view)


def _unit(picture: Tensor) -> Tensor:
    """A picture (3, h, w) as planes (3, 1, h, w) of floats in [0, 1]."""
    return picture.to(torch.float32, copy=True).mul_(PICTURE.unit(picture))[:, None]
