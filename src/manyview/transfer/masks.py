"""Pictures with masks of classes, whatever the masks are on disk: numbers, palettes or colours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.parallel import parallel_map
from manyview.core.sample import Sample
from manyview.core.text import printable
from manyview.data.dataset import Batched, Dataset, Unreadable, partial_sample, present, read
from manyview.data.image import MAX_PIXELS, open_image, unreadable
from manyview.data.raster import decode_raster
from manyview.data.selection import subset
from manyview.transfer.iou import IGNORED
from manyview.transfer.legend import Legend, codes, value_in_words

MASK = "mask"  # the modality of classes
FEW = 64  # masks that are looked at for a legend that is given
MISFIT = 0.5  # a legend that lacks the values of more pixels is of something else
SHOWN = 5  # values that are named
SOME = 0.01  # of the pixels: so many of no class are told
PALETTE = ("P", "PA")


class Masked:
    """A data set whose modality `mask` holds classes, uint8 (1, H, W), with `IGNORED` where there is none.

    dataset  with pictures, and the masks as `source` among its modalities
    """

    def __init__(self, dataset: Dataset, source: str, legend: Legend) -> None:
        self.dataset, self.source, self.legend = dataset, source, legend
        self.modalities = (*(name for name in dataset.modalities if name != source), MASK)
        self.ids, self.labels, self.classes = dataset.ids, None, ()
        self.threads = getattr(dataset, "threads", False)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Sample:
        return self.sample(index, self.modalities)

    def sample(self, index: int, modalities: Collection[str]) -> Sample:
        """A sample with some of its modalities."""
        wanted = [name for name in self.modalities if name in modalities and name != MASK]
        found = partial_sample(self.dataset, index, wanted) if wanted else _empty(self.dataset, index)
        if MASK not in modalities:
            return found
        mask = self.legend.applied(codes(raw_mask(self.dataset, self.source, index)))[None]
        for name, picture in found.modalities.items():
            if picture.shape[1:] != mask.shape[1:]:
                (h, w), (high, wide) = mask.shape[1:], picture.shape[1:]
                raise Unreadable(f"its mask has {w} x {h} pixels, its {name} {wide} x {high}")
        return replace(found, modalities={**found.modalities, MASK: mask}, size=None)

    def present(self, index: int) -> set[str]:
        there = present(self.dataset, index)
        return (there - {self.source}) | ({MASK} if self.source in there else set())

    def name(self, index: int) -> str:
        return self.dataset.name(index)

    def paths(self, index: int) -> dict[str, str]:
        """Where the files of a sample are; none where samples are no files."""
        files: Callable[[int], dict[str, str]] = getattr(self.dataset, "paths", lambda row: {})
        return {MASK if name == self.source else name: path for name, path in files(index).items()}


class BatchedMasked(Masked):
    """`Masked` of a data set that makes many samples at once."""

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        made = cast(Batched, self.dataset).batch(index)
        classes = self.legend.applied(made.pop(self.source).long())
        return {**made, MASK: classes}


def masked(dataset: Dataset, source: str, legend: Legend) -> Masked:
    """The data set with its masks as classes."""
    return (BatchedMasked if isinstance(dataset, Batched) else Masked)(dataset, source, legend)


def having_masks(dataset: Dataset, source: str, modalities: Sequence[str]) -> tuple[Dataset, int]:
    """The samples that have a mask and one of the modalities or more, and how many have none."""
    there = [present(dataset, row) for row in range(len(dataset))]
    kept = torch.tensor([source in each and bool(each & set(modalities)) for each in there], dtype=torch.bool)
    if not kept.any():
        raise UserError(
            "data", f"no picture has a mask in {source!r}; their paths must be the same but for the extension"
        )
    return (dataset if kept.all() else subset(dataset, kept)), int((~kept).sum())


def raw_mask(dataset: Dataset, source: str, index: int) -> Tensor:
    """A mask as it is: (1, H, W) of numbers, of a palette those of its colours, or (3, H, W) uint8 of colours."""
    files: Callable[[int], dict[str, str]] = getattr(dataset, "paths", lambda row: {})
    path = files(index).get(source)
    if path is None or path.lower().endswith((".npy", ".tif", ".tiff")):
        return decode_raster(path) if path is not None else partial_sample(dataset, index, [source]).modalities[source]
    with unreadable(), open_image(path, MAX_PIXELS) as image:
        if image.mode in PALETTE:
            return torch.from_numpy(np.array(image.convert("P") if image.mode == "PA" else image))[None]
    return decode_raster(path)


def count_values(dataset: Dataset, source: str, rows: Sequence[int]) -> tuple[Counter[int], bool]:
    """How many pixels of some masks have each number or colour, and whether these are colours."""

    def count(row: int) -> tuple[Counter[int], int]:
        try:
            mask = raw_mask(dataset, source, row)
        except Unreadable:  # the loader tells of it
            return Counter(), 0
        values, counts = codes(mask).unique(return_counts=True)
        return Counter(dict(zip(values.tolist(), counts.tolist(), strict=True))), len(mask)

    found = parallel_map(count, list(rows))
    total: Counter[int] = Counter()
    for each, _ in found:
        total.update(each)
    kinds = {channels for _, channels in found if channels}
    if not kinds <= {1} and not kinds <= {3}:
        raise UserError("data", f"some masks of {source!r} hold numbers and some colours; give masks of one kind")
    return total, kinds == {3}


def legend_of_masks(datasets: Sequence[Dataset], source: str, ignored: Collection[int]) -> Legend:
    """Classes named by the numbers that the masks hold, those of the test too: a class that only it has counts."""
    counted = [count_values(each, source, range(len(each))) for each in datasets]
    values = {value for each, _ in counted for value in each}
    if any(colours for _, colours in counted):
        raise UserError("legend", f"the masks of {source!r} are colours; give --legend, a file of lines `R G B NAME`")
    found = sorted(values - set(ignored))
    if len(found) < 2 or len(found) >= IGNORED:
        what = f"the masks of {source!r} hold {len(found)} values that are not ignored"
        raise UserError("legend", f"{what}; give --legend, a file of lines `VALUE NAME`")
    return Legend(tuple(map(str, found)), {value: place for place, value in enumerate(found)})


def check_legend(
    dataset: Dataset, source: str, legend: Legend, ignored: Collection[int], split: str = "training"
) -> list[str]:
    """What is to be told of values that a legend lacks, looked at in a few masks; refuses one that does not fit."""
    rows = range(0, len(dataset), max(1, len(dataset) // FEW))
    values, colours = count_values(dataset, source, rows)
    if values and colours != legend.colours:
        kinds = {True: "colours, `R G B NAME`", False: "numbers, `VALUE NAME`"}
        raise UserError(
            "legend", f"{legend.source} is of {kinds[legend.colours]}; the masks of {source!r} are of {kinds[colours]}"
        )
    masks = f"{len(rows)} {split} {'mask' if len(rows) == 1 else 'masks'}"
    void = sum(n for value, n in values.items() if legend.values.get(value) == IGNORED)
    notes = [] if void < SOME * values.total() else [
        f"{100 * void / values.total():.3g}% of the pixels of {masks} are of no class in {printable(legend.source)}"
    ]  # fmt: skip
    strange = Counter({value: n for value, n in values.items() if value not in legend.values and value not in ignored})
    if not strange:
        return notes
    share = strange.total() / values.total()
    named = ", ".join(value_in_words(value, colours=colours) for value, _ in strange.most_common(SHOWN))
    lacked = f"values that {printable(legend.source)} lacks, such as {named}"
    what = f"{100 * share:.3g}% of the pixels of {masks} have {lacked}"
    if share > MISFIT:
        raise UserError("legend", f"it does not fit: {what}")
    return [*notes, f"{what}; they are ignored"]


def check_readable(dataset: Dataset) -> None:
    """Refuses pictures with masks of which none that is looked at can be read, and says why the first cannot."""
    rows = range(0, len(dataset), max(1, len(dataset) // SHOWN))
    found = [read(dataset, row) for row in rows]
    if not any(isinstance(each, Sample) for each in found):
        why = f"{printable(dataset.name(rows[0]))}: {found[0]}"
        raise UserError("data", f"none of {len(rows)} pictures with masks that were looked at can be read; {why}")


def _empty(dataset: Dataset, index: int) -> Sample:
    index = range(len(dataset))[index]
    return Sample(int(dataset.ids[index]), index, {})
