"""A stack of looks turns raw pictures into views: a whole batch at once, or one sample in a worker.

What is drawn for a picture depends on (seed, epoch, id) and on the look's place in the stack, never on who asks.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.parallel import parallel_map
from manyview.core.rng import key, uniform
from manyview.core.sample import Views
from manyview.views.augmentation import GEOMETRY, PHOTOMETRY, Array, Augmentation, AugmentationParams, draw
from manyview.views.blur import blur_
from manyview.views.colour import grey_, jitter, solarise_, some_, taken
from manyview.views.resample import crop_batch, crop_one

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))  # of CIFAR-10's training set
MASKS = ("label", "mask", "semantic", "instance", "segmentation")  # what the names of such views begin with
PART = 1 << 18  # pixels worked on at a time, by one core: enough that starting the operations costs little
SMALL = 128  # on a CPU, sides up to this are resampled as matrix products, larger ones one by one


@dataclass(frozen=True)
class Modality:
    """What a raw view is, beyond its geometry, which all sensors of a sample share.

    mean, std  the network sees (x - mean) / std, per channel or one number for all; x is in [0, 1] for uint8 pictures
               and in the sensor's own unit otherwise
    colour     jitter, greyscale, blur and solarise apply: for pictures of three channels
    nearest    values are never mixed: for masks and labels, which also keep their numbers 0 to 255

    Values stay what they are: a vector in the picture, such as a normal or a flow, is not turned when the picture is
    flipped, nor lengthened when it is enlarged.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    colour: bool = False
    nearest: bool = False

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or min(self.std, default=0.0) <= 0:
            raise UserError(None, f"mean={self.mean}, std={self.std}: as many numbers each, and std above 0")


PICTURE = Modality(*IMAGENET, colour=True)


class ViewPipeline:
    """Looks, one a view, and what is known of the sensors.

    >>> stack = Stack([Augmentation(32, scale=(0.2, 1.0))] * 2)
    >>> first, second = stack({"image": images}, ids, epoch=3)["image"]    # images (n, 3, H, W) uint8

    A sensor that is not named is a `picture` if it has three channels of uint8, and a mask, whose values are never
    mixed, if it is called so (`MASKS`); anything else is only cropped and flipped, and uint8 scaled to [0, 1]. The
    first raw view is the reference: crops are drawn on its size and scaled to that of the others. Views do not depend,
    to the bit, on the batch that a picture is in.
    """

    def __init__(
        self,
        looks: Sequence[Augmentation],
        modalities: Mapping[str, Modality] | None = None,
        *,
        picture: Modality = PICTURE,
    ) -> None:
        self.looks = tuple(looks) if isinstance(looks, Sequence) else ()
        if not self.looks or not all(isinstance(look, Augmentation) for look in self.looks):
            raise UserError("looks", "give a list of Look, one for each view, and at least one")
        self.modalities = dict(modalities or {})
        self.picture = picture

    def __len__(self) -> int:
        return len(self.looks)

    def __call__(self, raw: Mapping[str, Tensor], ids: Tensor, *, seed: int = 0, epoch: int = 0) -> Views:
        """All views of a batch of raw pictures (n, C, H, W), on their device, float32."""
        size = next(iter(raw.values())).shape[2:]
        for name, images in raw.items():
            if len(images) != len(ids):
                raise UserError(None, f"view {name!r} has {len(images)} pictures for {len(ids)} ids: give as many")

        def cut(name: str, number: int, rows: slice, modality: Modality) -> tuple[Tensor, AugmentationParams]:
            images = raw[name][rows]
            drawn = self._drawn(name, ids[rows], number, seed, epoch, size)
            return _cut(images, self.looks[number], drawn, size, modality), drawn

        return self._develop({name: [images] * len(self) for name, images in raw.items()}, cut)

    def prepare(
        self, views: Mapping[str, Tensor], id: int, *, seed: int = 0, epoch: int = 0, colour: bool = True
    ) -> Views:
        """One sample's raw views (C, H, W) as a worker hands them on: cropped, coloured, in their own dtype.

        Without `colour` they are only cropped, and `finish` does the rest, on a GPU for instance.
        """
        size, ids = next(iter(views.values())).shape[1:], torch.tensor([id])
        made: Views = {}
        for name, image in views.items():
            modality, made[name] = self.modality(name, image), []
            drawn = self._drawn(name, ids, torch.arange(len(self)), seed, epoch, size)
            for number, look in enumerate(self.looks):
                one = AugmentationParams(*(column[number : number + 1] for column in drawn))
                box = _scaled(one.box, size, image.shape[1:])[0]
                crop = crop_one(image, look, box, bool(one.flip), nearest=modality.nearest)
                made[name].append(_rounded(crop, look, one) if colour and modality.colour else crop)
        return made

    def finish(self, prepared: Views, ids: Tensor, *, seed: int = 0, epoch: int = 0, colour: bool = False) -> Views:
        """What the network sees, from batches of what `prepare` gave; `colour` if that is still to be done."""

        def take(name: str, number: int, rows: slice, modality: Modality) -> tuple[Tensor, AugmentationParams | None]:
            crops = prepared[name][number][rows]
            planes = crops.transpose(0, 1).to(torch.float32, copy=True).mul_(_unit(modality, crops))
            late = colour and modality.colour
            return planes, self._drawn(name, ids[rows], number, seed, epoch, crops.shape[2:]) if late else None

        return self._develop(prepared, take)

    def at_once(self, images: Tensor) -> bool:
        """Whether a batch of such pictures is better made at once than one by one in workers."""
        return images.device.type != "cpu" or max(images.shape[2:]) <= SMALL

    def modality(self, name: str, image: Tensor) -> Modality:
        channels = image.shape[-3]
        usual = (
            self.picture if image.dtype == torch.uint8 and channels == 3 else Modality(nearest=name.startswith(MASKS))
        )
        modality = self.modalities.get(name, usual)
        if modality.colour and channels != 3:
            raise UserError(None, f"view {name!r} has {channels} channels: only pictures of 3 take colour=True")
        if len(modality.mean) not in (1, channels):
            raise UserError(
                None, f"view {name!r} has {channels} channels, its mean {len(modality.mean)}: give one or as many"
            )
        return modality

    def _drawn(
        self, name: str, ids: Tensor, numbers: int | Tensor, seed: int, epoch: int, size: Sequence[int]
    ) -> AugmentationParams:
        """What one look draws for many pictures, or each of the looks for one; sensors differ in colour only."""
        geometry = key(seed, epoch, ids, numbers)
        photometry = key(geometry, zlib.crc32(name.encode()))
        g, p = uniform(geometry, GEOMETRY).numpy(), uniform(photometry, PHOTOMETRY).numpy()
        if isinstance(numbers, int):
            return draw(self.looks[numbers], g, p, *size)
        if len(set(self.looks)) == 1:
            return draw(self.looks[0], g, p, *size)
        own = [draw(look, g[k : k + 1], p[k : k + 1], *size) for k, look in enumerate(self.looks)]
        return AugmentationParams(*(np.concatenate(column) for column in zip(*own, strict=True)))

    def _develop(self, sources: Mapping[str, Sequence[Tensor]], planes_of: Planes) -> Views:
        """(n, C, size, size) of every sensor and look as the network sees it: a few pictures at a time."""
        made: Views = {
            name: [_room(x, look) for x, look in zip(xs, self.looks, strict=True)] for name, xs in sources.items()
        }

        def develop(name: str, number: int, rows: slice) -> None:
            modality, look = self.modality(name, sources[name][number]), self.looks[number]
            planes, drawn = planes_of(name, number, rows, modality)
            if drawn is not None and modality.colour:
                planes = coloured(planes, look, drawn)
            scale, shift = _affine(modality, planes.device)
            torch.add(planes.mul_(scale), shift, out=made[name][number][rows].transpose(0, 1))

        jobs = [
            partial(develop, name, number, rows)
            for name, views in made.items()
            for number, view in enumerate(views)
            for rows in _parts(view, sources[name][number])
        ]
        little = sum(view.numel() for views in made.values() for view in views) <= 3 * PART
        parallel_map(_do, [jobs] if little else [[job] for job in jobs])
        return made


Planes = Callable[[str, int, slice, Modality], tuple[Tensor, AugmentationParams | None]]
"""Sensor, look, rows -> crops (C, len(rows), size, size), float32, pictures in [0, 1]; the numbers that colour them."""


def _room(like: Tensor, look: Augmentation) -> Tensor:
    return torch.empty(*like.shape[:2], look.size, look.size, device=like.device)


def _do(jobs: list[partial[None]]) -> None:
    for job in jobs:
        job()


def _parts(view: Tensor, source: Tensor) -> list[slice]:
    """Runs of rows that are worked on at a time; all at once on a GPU."""
    n, pixels = len(view), max(view.shape[2] * view.shape[3], source.shape[2] * source.shape[3])
    most = max(1, PART // pixels) if view.device.type == "cpu" else max(1, n)
    return [slice(start, min(start + most, n)) for start in range(0, n, most)]


def _scaled(box: Array, reference: Sequence[int], size: Sequence[int]) -> Array:
    """Boxes on a picture of the reference's size, moved to one of another size."""
    if tuple(reference) == tuple(size):
        return box
    factor = np.array(size) / np.array(reference)
    extent = np.maximum(np.rint(box[:, 2:] * factor), 1)
    corner = np.minimum(np.rint(box[:, :2] * factor), np.array(size) - extent)
    return np.concatenate([corner, extent], 1).astype(np.int64)


def _cut(
    images: Tensor, look: Augmentation, drawn: AugmentationParams, reference: Sequence[int], modality: Modality
) -> Tensor:
    """Crops as planes, in [0, 1] for pictures."""
    unit, boxes = _unit(modality, images), _scaled(drawn.box, reference, images.shape[2:])
    products = (
        images.dtype == torch.uint8 and not modality.nearest
    )  # in a product one NaN of a sensor would be everywhere
    if products and (images.device.type != "cpu" or max(images.shape[2:]) <= SMALL):
        return crop_batch(images, look, boxes, drawn.flip, unit=unit)
    crops = [
        crop_one(image, look, box, bool(flip), nearest=modality.nearest)
        for image, box, flip in zip(images, boxes, drawn.flip, strict=True)
    ]
    return torch.stack(crops, 1).float().mul_(unit)


def coloured(planes: Tensor, look: Augmentation, drawn: AugmentationParams) -> Tensor:
    """Everything photometric, on planes (3, n, h, w) in [0, 1], which may be overwritten."""
    if look.grey_first:
        some_(planes, drawn.grey, grey_)
    rows: Array = np.arange(len(drawn.order))
    moving = len(rows) > 1 and any(look.jitter)
    if any(look.jitter):
        planes, rows = jitter(planes, drawn.colour, drawn.order, look.jitter)
    if not look.grey_first:
        some_(planes, drawn.grey[rows], grey_)
    sigma = drawn.sigma[rows]
    some_(planes, sigma > 0, partial(blur_, kernel=look.blur_kernel), sigma)
    some_(planes, drawn.solarise[rows], solarise_)
    return taken(planes, rows.argsort(), "a") if moving else planes


def _rounded(crop: Tensor, look: Augmentation, drawn: AugmentationParams) -> Tensor:
    """One picture (3, h, w), coloured and back in its dtype."""
    picture = coloured(crop.to(torch.float32, copy=True).mul_(_unit(PICTURE, crop))[:, None], look, drawn)[:, 0]
    return picture.mul_(255).round_().to(torch.uint8) if crop.dtype == torch.uint8 else picture


def _affine(modality: Modality, device: torch.device) -> tuple[Tensor, Tensor]:
    """(x - mean) / std as x * scale + shift, (C or 1, 1, 1, 1)."""
    mean, std = (torch.tensor(numbers, device=device).view(-1, 1, 1, 1) for numbers in (modality.mean, modality.std))
    return 1 / std, -mean / std


def _unit(modality: Modality, like: Tensor) -> float:
    """What makes pictures of 0 to 255 ones of 0 to 1."""
    return 1 / 255 if like.dtype == torch.uint8 and not modality.nearest else 1.0
