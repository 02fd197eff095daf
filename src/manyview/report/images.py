"""Which images a page shows, and their thumbnails: one picture of all of them, however many and large they are."""

from __future__ import annotations

import base64
import io
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from PIL import Image
from torch import Tensor

from manyview.config.config import Config
from manyview.core.errors import UserError
from manyview.core.rng import key, order
from manyview.core.sample import Sample
from manyview.data import Dataset, Unreadable
from manyview.data.dataset import Batched, label_target
from manyview.data.selection import subset
from manyview.training import build

DRAWN = 0x5E1EC7  # keeps this choice apart from others by the same ids
CHUNK = 128  # images at a time
SIDES, QUALITIES = (64, 48, 32, 24, 16), (85, 70, 50)  # tried until the sheet is small enough
LARGEST = 3_000_000  # bytes of all sheets of a page
LITTLE = 1 << 28  # bytes of pictures that are kept in memory
NAME = 90  # letters that are shown


@dataclass(frozen=True)
class Sheet:
    """Square thumbnails in rows of one JPEG.

    uri   the picture itself, as a page holds it
    side  of a thumbnail, in pixels
    """

    uri: str
    columns: int
    count: int
    side: int

    def place(self, number: int) -> tuple[int, int]:
        """The column and the row of a thumbnail."""
        return number % self.columns, number // self.columns


@dataclass(frozen=True, eq=False)
class Pictures:
    """Some images of a data set.

    dataset  these alone, in the order of the thumbnails
    labels   (n,), -1 where there is none; None where no image has any
    said     which they are, in words
    """

    dataset: Dataset
    names: list[str]
    labels: Tensor | None
    classes: tuple[str, ...]
    sheet: Sheet
    said: str


def opened(config: Config, own: Dataset | None = None) -> build.Images:
    """The data of a run, never downloaded for the sake of a page."""
    here = {key: False if key == "download" else value for key, value in config.data.items()}
    return build.images(replace(config, data=here), own)


def pictures(images: build.Images, count: int, *, seconds: float = 5.0, room: int = LARGEST) -> Pictures:
    """At most `count` images, of those kept aside where there are any, drawn by their ids alone.

    seconds: that reading them may take; fewer are then shown. room: bytes that the sheet may have.
    """
    source = images.train if images.test is None else images.test
    kind = "images learnt from" if images.test is None else "images kept aside" if images.aside else "test images"
    rows, small, raw = _read(source, order(key(DRAWN, source.ids))[:count], images.view, seconds)
    if len(rows) < 2:
        raise UserError("data", f"of {min(count, len(source))} images {len(rows)} can be read; a page shows 2 or more")
    chosen = subset(source, rows)
    dataset = chosen if raw is None else Kept(chosen, images.view, raw)
    labels = None if chosen.labels is None or not bool((chosen.labels >= 0).any()) else chosen.labels
    names = [_shortened(chosen.name(row)) for row in range(len(chosen))]
    said = f"{len(chosen):,} of the {len(source):,} {kind}"
    return Pictures(dataset, names, labels, chosen.classes, sheet(small, room=room), said)


class Kept:
    """A data set whose pictures, all of one size, were read once and stay: they are looked at several times."""

    def __init__(self, dataset: Dataset, view: str, raw: Tensor) -> None:
        self.dataset, self.modalities, self.raw = dataset, (view,), raw
        self.ids, self.labels, self.classes = dataset.ids, dataset.labels, dataset.classes

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Sample:
        targets = label_target(self.labels, index)
        return Sample(int(self.ids[index]), index, {self.modalities[0]: self.raw[index]}, targets)

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        return {self.modalities[0]: self.raw[index]}

    def name(self, index: int) -> str:
        return self.dataset.name(index)


def sheet(views: Sequence[Tensor], *, room: int = LARGEST) -> Sheet:
    """Thumbnails of (C, H, W) each, as large and as good as there is room for."""
    usual = sorted(min(view.shape[1:]) for view in views)[len(views) // 2]
    sides = [side for side in SIDES if side <= usual] or [SIDES[-1]]
    for side in sides:
        tiled = _tiled([_thumbnail(view, side) for view in views], side)
        for quality in QUALITIES:
            data = _jpeg(tiled, quality)
            if len(data) <= room:
                return _sheet(data, tiled, side, len(views))
    return _sheet(data, tiled, side, len(views))


def visible(view: Tensor) -> Tensor:
    """A raw view (C, H, W) as three channels of bytes: what is no picture is stretched from its least to its most."""
    if view.dtype != torch.uint8:
        view = torch.nan_to_num(view.float(), 0.0, 0.0, 0.0)
        low, high = view.min(), view.max()
        view = ((view - low) / (high - low).clamp_min(1e-12) * 255).round().to(torch.uint8)
    if view.shape[0] == 3:
        return view
    return view[:1].expand(3, -1, -1) if view.shape[0] < 3 else view[:3]


def _read(source: Dataset, rows: Tensor, view: str, seconds: float) -> tuple[list[int], list[Tensor], Tensor | None]:
    """Which rows were read, their pictures made small, and as they are if that is little and they are of one size.

    As many as the time allows.
    """
    end, found, small, raw, size = time.monotonic() + seconds, [], [], [], 0
    for part in rows.split(CHUNK if isinstance(source, Batched) else 1):
        for row, picture in zip(part.tolist(), _raw(source, part, view), strict=True):
            if picture is not None:
                found.append(row)
                small.append(_smaller(visible(picture)))
                size += picture.nbytes
                if size <= LITTLE:
                    raw.append(picture)
        if time.monotonic() > end:
            break
    alike = len(raw) == len(found) and len({(each.shape, each.dtype) for each in raw}) == 1
    return found, small, torch.stack(raw) if alike else None


def _raw(source: Dataset, rows: Tensor, view: str) -> list[Tensor | None]:
    if isinstance(source, Batched):
        return list(source.batch(rows)[view])
    try:
        return [source[int(rows)].modalities.get(view)]
    except Unreadable:
        return [None]


def _smaller(view: Tensor) -> Tensor:
    """Its middle, not much larger than a thumbnail, so that a thousand of them fit in memory."""
    side = min(view.shape[1:])
    top, left = (view.shape[1] - side) // 2, (view.shape[2] - side) // 2
    middle = view[:, top : top + side, left : left + side]
    return middle if side <= SIDES[0] else _thumbnail(middle, SIDES[0])


def _thumbnail(view: Tensor, side: int) -> Tensor:
    if tuple(view.shape[1:]) == (side, side):
        return view
    picture = Image.fromarray(view.permute(1, 2, 0).contiguous().numpy())
    enlarged = min(picture.size) < side
    resized = picture.resize((side, side), Image.Resampling.NEAREST if enlarged else Image.Resampling.LANCZOS)
    return torch.frombuffer(bytearray(resized.tobytes()), dtype=torch.uint8).view(side, side, 3).permute(2, 0, 1)


def _tiled(thumbnails: list[Tensor], side: int) -> Tensor:
    """(3, rows * side, columns * side)"""
    columns = math.ceil(math.sqrt(len(thumbnails)))
    rows = math.ceil(len(thumbnails) / columns)
    grid = torch.zeros(rows * columns, 3, side, side, dtype=torch.uint8)
    grid[: len(thumbnails)] = torch.stack(thumbnails)
    return grid.view(rows, columns, 3, side, side).permute(2, 0, 3, 1, 4).reshape(3, rows * side, columns * side)


def _jpeg(tiled: Tensor, quality: int) -> bytes:
    """Colours at full resolution, so that they do not run from one thumbnail into the next."""
    file = io.BytesIO()
    Image.fromarray(tiled.permute(1, 2, 0).contiguous().numpy()).save(file, "JPEG", quality=quality, subsampling=0)
    return file.getvalue()


def _sheet(data: bytes, tiled: Tensor, side: int, count: int) -> Sheet:
    uri = f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"
    return Sheet(uri, tiled.shape[2] // side, count, side)


def _shortened(name: str) -> str:
    """The end of a path tells more than its beginning."""
    return name if len(name) <= NAME else f"\N{HORIZONTAL ELLIPSIS}{name[-NAME + 1 :]}"
