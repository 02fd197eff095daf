"""Chooses the images that a page shows, and makes one JPEG of all their thumbnails."""

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
from manyview.data.selection import Subset, only_modalities, subset
from manyview.data.visible import to_rgb
from manyview.report.html import Html, tag
from manyview.training import run_data

DRAWN = 0x5E1EC7  # keeps this choice apart from others by the same ids
CHUNK = 128  # images at a time
SIDES, QUALITIES = (64, 48, 32, 24, 16), (85, 70, 50)  # tried until the sheet is small enough
LARGE_SIDES = (112, *SIDES)  # where few pictures are shown
MAX_BYTES = 3_000_000  # of all thumbnails of a page
CACHED_BYTES = 1 << 28  # of pictures that are kept in memory
NAME_LETTERS = 90
NO_TIME = "They are as many as there was time for; a larger --seconds of `manyview report` shows more."
DRAWN_ONES = "They are drawn at random: so many fit on a page."


@dataclass(frozen=True)
class ThumbnailSheet:
    """Square thumbnails in rows of one JPEG.

    uri   the picture itself, as a page holds it
    side  of a thumbnail, in pixels
    """

    uri: str
    columns: int
    count: int
    side: int

    def thumbnail(self, number: int, sheet: int, caption: str, kind: str = "") -> Html:
        """Shows one thumbnail by its number, with a caption for screen readers."""
        place = f"--x:{number % self.columns};--y:{number // self.columns}"
        classes = f"thumb sheet{sheet} {kind}".strip()
        return tag("span", class_=classes, style=place, role="img", aria_label=caption, title=caption)

    def style(self, sheet: int) -> str:
        """Gives the CSS rule that gives thumbnails their picture."""
        sharp = "image-rendering:pixelated;" if self.side < 48 else ""
        return f".sheet{sheet}{{--n:{self.columns};{sharp}background-image:url({self.uri})}}"


@dataclass(frozen=True, eq=False)
class PageImages:
    """The images of a data set that a page shows.

    dataset      these alone, in the order of the thumbnails
    labels       (n,), -1 where there is none; None where no image has any
    description  of the selection: "400 of the 10,000 test images, 1,000 of which are scored"
    why          a sentence on why these are not all images; empty where they are
    """

    dataset: Dataset
    names: list[str]
    labels: Tensor | None
    classes: tuple[str, ...]
    sheet: ThumbnailSheet
    description: str
    why: str = ""

    @property
    def label_list(self) -> list[int]:
        return [-1] * len(self.names) if self.labels is None else self.labels.tolist()

    def class_name(self, label: int) -> str:
        """Names a class, also where the data set has no names for its classes."""
        if label < 0:
            return "no label"
        return self.classes[label] if label < len(self.classes) else str(label)

    def caption(self, row: int) -> str:
        """Gives an image's name and class."""
        label = self.label_list[row]
        return self.names[row] + (f", {self.class_name(label)}" if label >= 0 else "")


def commonest(labels: Tensor, most: int) -> list[int]:
    """Gives at most so many of the commonest labels, in their own order."""
    counts = labels.bincount()
    return sorted(label for label in counts.argsort(descending=True, stable=True)[:most].tolist() if counts[label])


def open_images(config: Config, own: Dataset | None = None) -> run_data.RunData:
    """Opens the data of a run for a page, without ever downloading it."""
    data = {name: False if name == "download" else value for name, value in config.data.items()}
    return run_data.open_data(replace(config, data=data), own)


def choose_images(
    images: run_data.RunData,
    count: int,
    *,
    timely: int | None = None,
    scored: int | None = None,
    modality: str | None = None,
    seconds: float = 5.0,
    max_bytes: int = MAX_BYTES,
) -> PageImages:
    """Chooses at most `count` images, held-out ones where there are any, by their ids alone.

    timely     how many there is time to embed; None for all
    scored     how many of the held-out images the run's scores are of, at most, where it has any
    modality   the one shown; by default that of the first view
    seconds    that reading them may take; fewer images are then chosen
    max_bytes  of the thumbnails
    """
    source, kind = source_of(images)
    modality = modality or next(iter(images.views.values())).modality
    asked = order(key(DRAWN, source.ids))[: count if timely is None else min(count, timely)]
    rows, thumbnails, raw, in_time = _read(source, asked, modality, seconds)
    if len(rows) < 2:
        raise UserError("data", f"of {len(asked)} images {len(rows)} can be read; a page shows 2 or more")
    chosen = subset(source, rows)
    dataset = only_modalities(chosen, (modality,)) if raw is None else CachedImages(chosen, modality, raw)
    labels = None if chosen.labels is None or not bool((chosen.labels >= 0).any()) else chosen.labels
    names = [shorten(chosen.name(row)) for row in range(len(chosen))]
    description = f"{len(chosen):,} of the {len(source):,} {kind} images"
    if images.test is not None and scored is not None and scored < len(source):
        description += f", {scored:,} of which are scored"
    late = len(asked) < min(count, len(source)) or not in_time
    why = NO_TIME if late else DRAWN_ONES if len(asked) < len(source) else ""
    sheet = thumbnail_sheet(thumbnails, max_bytes=max_bytes)
    return PageImages(dataset, names, labels, chosen.classes, sheet, description, why)


def source_of(data: run_data.RunData) -> tuple[Dataset, str]:
    """Chooses the samples that a page shows, held-out ones where there are any, and describes them.

    For one view without labels a tenth is held out for a score alone, so the map shows the others.
    """
    only_scored = data.held_out and not data.labelled and len(data.views) == 1
    if data.test is None or only_scored:
        return data.train, "training"
    return data.test, "held-out" if data.held_out else "test"


class CachedImages(Subset):
    """A data set whose pictures, all of one size, are read once and kept in memory for several passes."""

    def __init__(self, dataset: Dataset, modality: str, raw: Tensor) -> None:
        super().__init__(dataset, torch.arange(len(dataset)), [modality])
        self.raw = raw

    def __getitem__(self, index: int) -> Sample:
        modalities = {self.modalities[0]: self.raw[index]}
        return Sample(int(self.ids[index]), index, modalities, label_target(self.labels, index))

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        return {self.modalities[0]: self.raw[index]}


def thumbnail_sheet(
    pictures: Sequence[Image.Image], *, max_bytes: int = MAX_BYTES, sides: Sequence[int] = SIDES
) -> ThumbnailSheet:
    """Makes thumbnails of pictures, as large and as good as `max_bytes` allow; `sides` in pixels are tried."""
    usual = sorted(min(picture.size) for picture in pictures)[len(pictures) // 2]
    columns = math.ceil(math.sqrt(len(pictures)))
    rows = math.ceil(len(pictures) / columns)
    for side in [side for side in sides if side <= usual] or [sides[-1]]:
        tiled = Image.new("RGB", (columns * side, rows * side))
        for number, picture in enumerate(pictures):
            tiled.paste(_resize(picture, side), (number % columns * side, number // columns * side))
        for quality in QUALITIES:
            jpeg = io.BytesIO()
            tiled.save(jpeg, "JPEG", quality=quality, subsampling=0)  # else colours run from one into the next
            uri = f"data:image/jpeg;base64,{base64.b64encode(jpeg.getvalue()).decode()}"
            sheet = ThumbnailSheet(uri, columns, len(pictures), side)
            if jpeg.tell() <= max_bytes:
                return sheet
    return sheet


def _read(
    source: Dataset, rows: Tensor, modality: str, seconds: float
) -> tuple[list[int], list[Image.Image], Tensor | None, bool]:
    """Reads as many rows as the time allows: their numbers, their thumbnails, and the pictures themselves.

    The pictures are None where they would take much memory or differ in size. Last comes whether there was time for all
    rows.
    """
    end, found, small, raw, size, asked = time.monotonic() + seconds, [], [], [], 0, 0
    for part in rows.split(CHUNK if isinstance(source, Batched) else 1):
        for row, picture in zip(part.tolist(), _raw(source, part, modality), strict=True):
            if picture is not None:
                found.append(row)
                small.append(centre(to_rgb(picture)))
                size += picture.nbytes
                if size <= CACHED_BYTES:
                    raw.append(picture)
        asked += len(part)
        if time.monotonic() > end:
            break
    alike = len(raw) == len(found) and len({(each.shape, each.dtype) for each in raw}) == 1
    return found, small, torch.stack(raw) if alike else None, asked == len(rows)


def _raw(source: Dataset, rows: Tensor, modality: str) -> list[Tensor | None]:
    if isinstance(source, Batched):
        return list(source.batch(rows)[modality])
    try:
        return [source[int(rows)].modalities.get(modality)]
    except Unreadable:
        return [None]


def centre(picture: Image.Image, most: int = SIDES[0]) -> Image.Image:
    """Crops the middle to little more than a thumbnail, so that a thousand of them fit in memory."""
    side = min(picture.size)
    left, top = ((length - side) // 2 for length in picture.size)
    middle = picture.crop((left, top, left + side, top + side))
    return middle if side <= most else _resize(middle, most)


def _resize(picture: Image.Image, side: int) -> Image.Image:
    enlarged = min(picture.size) < side
    return picture.resize((side, side), Image.Resampling.NEAREST if enlarged else Image.Resampling.LANCZOS)


def shorten(name: str) -> str:
    """Cuts off the beginning of a long path, whose end says more."""
    return name if len(name) <= NAME_LETTERS else f"\N{HORIZONTAL ELLIPSIS}{name[-NAME_LETTERS + 1 :]}"
