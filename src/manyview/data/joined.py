"""Several data sets as one: all splits of a folder that holds one folder per modality."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

import torch

from manyview.core.sample import Sample
from manyview.data.dataset import Dataset, partial_sample, present
from manyview.data.image import MAX_PIXELS, MaxPixels
from manyview.data.paired import Paired, open_if_paired
from manyview.data.splits import Labels, find_splits


class Joined:
    """The samples of several data sets, one after another.

    parts  by name, such as that of their split. Labels stay where all that have some have the same classes
    """

    def __init__(self, parts: Mapping[str, Dataset]) -> None:
        self.parts = dict(parts)
        self.threads = all(getattr(part, "threads", False) for part in parts.values())
        self.modalities = tuple(dict.fromkeys(name for part in parts.values() for name in part.modalities))
        self.ids = torch.cat([part.ids for part in parts.values()])
        classes = {part.classes for part in parts.values() if part.labels is not None}
        self.classes: tuple[str, ...] = next(iter(classes)) if len(classes) == 1 else ()
        none = [torch.full((len(part),), -1) for part in parts.values()]
        known = [less if part.labels is None else part.labels for part, less in zip(parts.values(), none, strict=True)]
        self.labels = torch.cat(known) if self.classes else None
        self._ends = list(accumulate(map(len, parts.values())))

    @property
    def left_out(self) -> tuple[str, ...]:
        named = (name for part in self.parts.values() for name in getattr(part, "left_out", ()))
        return tuple(dict.fromkeys(named))

    def __len__(self) -> int:
        return self._ends[-1]

    def part(self, index: int) -> tuple[Dataset, int]:
        """The data set that a sample is of, and its row there."""
        index, start = range(len(self))[index], 0
        for part, end in zip(self.parts.values(), self._ends, strict=True):
            if index < end:
                return part, index - start
            start = end
        raise AssertionError("unreachable: the last part ends where the data set does")

    def __getitem__(self, index: int) -> Sample:
        return self.sample(index, self.modalities)

    def sample(self, index: int, modalities: Collection[str]) -> Sample:
        """A sample with some of its modalities; the files of others are not opened."""
        part, row = self.part(index)
        return replace(partial_sample(part, row, modalities), index=range(len(self))[index])

    def present(self, index: int) -> set[str]:
        return present(*self.part(index))

    def name(self, index: int) -> str:
        part, row = self.part(index)
        return part.name(row)

    def paths(self, index: int) -> dict[str, str]:
        """Where the files of a sample are, for the modalities that it has; none where samples are no files."""
        part, row = self.part(index)
        found: dict[str, str] = getattr(part, "paths", lambda row: {})(row)
        return found


def open_paired_splits(
    root: str, modalities: Sequence[str] | None = None, labels: Labels = "auto", max_pixels: MaxPixels = MAX_PIXELS
) -> Joined | None:
    """All splits of a root as one, if one of them is `Paired`; None for any other folder.

    modalities  which there may be, the reference first; by default all that a paired split has. A split that has only
                one of them is taken with that, and one that has none is left out
    """
    splits = find_splits(root)
    if modalities is not None:
        return _joined(root, splits, modalities, {}, labels, max_pixels)
    opened = {split: open_if_paired(root, split, labels, max_pixels) for split in splits}
    paired = {split: found for split, found in opened.items() if found is not None}
    names = list(dict.fromkeys(name for found in paired.values() for name in found.modalities))
    return _joined(root, splits, names, paired, labels, max_pixels)


def _joined(
    root: str,
    splits: Mapping[str, str],
    modalities: Sequence[str],
    paired: Mapping[str, Paired],
    labels: Labels,
    max_pixels: int,
) -> Joined | None:
    """The splits that have one of the modalities or more, those in `paired` as they are."""
    parts: dict[str, Dataset] = {}
    for split, folder in splits.items():
        there = [name for name in modalities if os.path.isdir(os.path.join(root, folder, name))]
        if split in paired:
            parts[split] = paired[split]
        elif there:
            parts[split] = Paired(root, modalities=there, split=split, labels=labels, max_pixels=max_pixels)
    return Joined(parts) if parts else None
