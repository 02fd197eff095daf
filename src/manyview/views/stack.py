"""A stack of looks turns raw pictures into views: a whole batch at once, or one sample in a worker.

What is drawn for a picture depends on (seed, epoch, id) and on the look's place in the stack, never on who asks.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from manyview.draws import key, uniform
from manyview.views.blur import blur_
from manyview.views.colour import grey_, jitter_, solarise_, some_
from manyview.views.look import GEOMETRY, PHOTOMETRY, Drawn, Look, draw
from manyview.views.resample import crop_batch, crop_one
from manyview.views.threads import cores, each

Views = dict[str, list[Tensor]]
"""Per raw view its looks, each (n, C, size, size): {"image": [look 1, look 2]}."""

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))  # of CIFAR-10's training set
CACHE = 1 << 17  # pixels worked on at a time: what they need stays in a core's own cache
SMALL = 128  # on a CPU, sides up to this are resampled as matrix products, larger ones one by one


@dataclass(frozen=True)
class Sensor:
    """What a raw view is, beyond its geometry, which all sensors of a sample share.

    mean, std  the network sees (x - mean) / std, per channel or one number for all; x is in [0, 1] for uint8 pictures
               and in the sensor's own unit otherwise
    colour     jitter, greyscale, blur and solarise apply: for pictures of three channels
    nearest    values are never mixed: for masks and labels, which also keep their numbers 0 to 255
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    colour: bool = False
    nearest: bool = False

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or min(self.std, default=0.0) <= 0:
            raise ValueError(f"mean={self.mean}, std={self.std}: as many numbers each, and std above 0")


PICTURE = Sensor(*IMAGENET, colour=True)


class Stack:
    """Looks, one a view, and what is known of the sensors.

    >>> stack = Stack([Look(32, scale=(0.2, 1.0))] * 2)
    >>> first, second = stack({"image": images}, ids, epoch=3)["image"]    # images (n, 3, H, W) uint8

    A sensor that is not named is a `PICTURE` if it has three channels of uint8, else it is only cropped and flipped.
    The first raw view is the reference: crops are drawn on its size and scaled to that of the others.
    """

    def __init__(self, looks: Sequence[Look], sensors: Mapping[str, Sensor] | None = None) -> None:
        if not looks:
            raise ValueError("looks is empty: a stack makes at least one view")
        self.looks = tuple(looks)
        self.sensors = dict(sensors or {})

    def __len__(self) -> int:
        return len(self.looks)

    def __call__(self, raw: Mapping[str, Tensor], ids: Tensor, *, seed: int = 0, epoch: int = 0) -> Views:
        """All views of a batch of raw pictures (n, C, H, W), on their device, float32 in channels_last."""
        size = next(iter(raw.values())).shape[2:]
        made: Views = {}
        for name, images in raw.items():
            sensor, made[name] = self.sensor(name, images), []
            for look, drawn in self._drawn(name, ids, seed, epoch, size):
                boxes = _scaled(drawn.box, size, images.shape[2:])
                cut = _cutter(images, look, boxes, drawn.flip, sensor.nearest)
                made[name].append(_develop(cut, look, drawn, sensor, images))
        return made

    def prepare(
        self, views: Mapping[str, Tensor], id: int, *, seed: int = 0, epoch: int = 0, colour: bool = True
    ) -> Views:
        """One sample's raw views (C, H, W) as a worker hands them on: cropped, coloured, in their own dtype.

        Without `colour` they are only cropped, and `finish` does the rest, on a GPU for instance.
        """
        size, ids = next(iter(views.values())).shape[1:], torch.tensor([id])
        made: Views = {}
        for name, image in views.items():
            sensor, made[name] = self.sensor(name, image), []
            for look, drawn in self._drawn(name, ids, seed, epoch, size):
                box = _scaled(drawn.box, size, image.shape[1:])[0]
                crop = crop_one(image, look, box, bool(drawn.flip), nearest=sensor.nearest)
                made[name].append(_coloured(crop, look, drawn) if colour and sensor.colour else crop)
        return made

    def finish(self, prepared: Views, ids: Tensor, *, seed: int = 0, epoch: int = 0, colour: bool = False) -> Views:
        """What the network sees, from batches of what `prepare` gave; `colour` if that is still to be done."""
        made: Views = {}
        for name, looks in prepared.items():
            sensor = self.sensor(name, looks[0])
            if not (colour and sensor.colour):
                made[name] = [_seen(crops, sensor) for crops in looks]
                continue
            drawn = self._drawn(name, ids, seed, epoch, (1, 1))  # the crops are made: their boxes are not asked for
            made[name] = [
                _develop(_planes_of(crops), look, what, sensor, crops)
                for crops, (look, what) in zip(looks, drawn, strict=True)
            ]
        return made

    def at_once(self, images: Tensor) -> bool:
        """Whether a batch of such pictures is better made at once than one by one in workers."""
        return images.device.type != "cpu" or max(images.shape[2:]) <= SMALL

    def sensor(self, name: str, image: Tensor) -> Sensor:
        picture = image.dtype == torch.uint8 and image.shape[-3] == 3
        return self.sensors.get(name, PICTURE if picture else Sensor())

    def _drawn(self, name: str, ids: Tensor, seed: int, epoch: int, size: Sequence[int]) -> list[tuple[Look, Drawn]]:
        """Each look with what it draws for the pictures; sensors differ in the photometric part only."""
        height, width = (torch.full((len(ids),), side) for side in size)

        def drawn(number: int) -> tuple[Look, Drawn]:
            geometry = key(seed, epoch, ids.cpu(), number)
            photometry = key(geometry, zlib.crc32(name.encode()))
            g, p = uniform(geometry, GEOMETRY), uniform(photometry, PHOTOMETRY)
            return self.looks[number], draw(self.looks[number], g, p, height, width)

        return each(drawn, range(len(self)))


def _scaled(box: Tensor, reference: Sequence[int], size: Sequence[int]) -> Tensor:
    """Boxes on a picture of the reference's size, moved to one of another size."""
    if tuple(reference) == tuple(size):
        return box
    (height, width), (wanted_height, wanted_width) = reference, size
    factor = torch.tensor([wanted_height / height, wanted_width / width] * 2)
    moved = (box * factor).round().long()
    moved[:, 2:].clamp_(min=1)
    moved[:, :2] = torch.minimum(moved[:, :2], torch.tensor([wanted_height, wanted_width]) - moved[:, 2:])
    return moved


Cut = Callable[[Tensor], Tensor]
"""Rows of a batch -> their crops as planes (C, len(rows), size, size), float32, not scaled."""


def _cutter(images: Tensor, look: Look, boxes: Tensor, flips: Tensor, nearest: bool) -> Cut:
    def products(rows: Tensor) -> Tensor:
        return crop_batch(images[rows.to(images.device)], look, boxes[rows], flips[rows])

    def one_by_one(rows: Tensor) -> Tensor:
        cuts = [crop_one(images[i], look, boxes[i], bool(flips[i]), nearest=nearest) for i in rows.tolist()]
        return torch.stack(cuts, 1).float()

    small = images.device.type != "cpu" or max(images.shape[2:]) <= SMALL
    return products if small and not nearest else one_by_one


def _planes_of(crops: Tensor) -> Cut:
    return lambda rows: crops[rows.to(crops.device)].transpose(0, 1).float()


def _develop(cut: Cut, look: Look, drawn: Drawn, sensor: Sensor, like: Tensor) -> Tensor:
    """(n, C, size, size) as the network sees it: cut, coloured, scaled, a few pictures at a time."""
    n, channels = like.shape[:2]
    out = torch.empty(n, channels, look.size, look.size, device=like.device, memory_format=torch.channels_last)
    scale, shift = _affine(sensor, like)

    def develop(rows: Tensor) -> None:
        planes = cut(rows)
        if sensor.colour:
            colour_(planes.mul_(1 / 255), look, Drawn(*(column[rows] for column in drawn)))
            planes.mul_(255)
        out[int(rows[0]) : int(rows[-1]) + 1] = planes.mul_(scale).add_(shift).transpose(0, 1)

    parts = max(cores(), math.ceil(n * look.size**2 / CACHE)) if like.device.type == "cpu" else 1
    each(develop, torch.arange(n).tensor_split(min(parts, n)))
    return out


def colour_(planes: Tensor, look: Look, drawn: Drawn) -> None:
    """Everything photometric, in place, on planes (3, n, h, w) in [0, 1]."""
    if look.grey_first:
        some_(planes, drawn.grey, grey_)
    jitter_(planes, drawn.colour, drawn.order, look.jitter)
    if not look.grey_first:
        some_(planes, drawn.grey, grey_)
    some_(planes, drawn.sigma > 0, partial(blur_, kernel=look.blur_kernel), drawn.sigma)
    some_(planes, drawn.solarise, solarise_)


def _coloured(crop: Tensor, look: Look, drawn: Drawn) -> Tensor:
    """One uint8 picture (3, h, w), coloured and rounded back."""
    planes = crop.float().mul_(1 / 255)[:, None]
    colour_(planes, look, drawn)
    return planes[:, 0].mul_(255).round_().to(torch.uint8)


def _affine(sensor: Sensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """(x / 255 - mean) / std as x * scale + shift, (C or 1, 1, 1, 1)."""
    mean, std = (torch.tensor(number, device=like.device).view(-1, 1, 1, 1) for number in (sensor.mean, sensor.std))
    unit = 1 / 255 if like.dtype == torch.uint8 and not sensor.nearest else 1.0
    return unit / std, -mean / std


def _seen(crops: Tensor, sensor: Sensor) -> Tensor:
    scale, shift = (factor[:, 0] for factor in _affine(sensor, crops))
    return crops.to(torch.float32, memory_format=torch.channels_last).mul_(scale).add_(shift)
