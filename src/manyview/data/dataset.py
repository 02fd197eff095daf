"""What a data set is, samples with ids in a fixed order, and what identifies it: its fingerprint."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.sample import Sample

FEW = 16  # samples that stand for all, about
CHUNK = 1024  # samples whose files are looked at together


@runtime_checkable
class Dataset(Protocol):
    """A data set is anything with these attributes; it need not inherit.

    ids      (n,) int64: what each sample is, for ever
    labels   (n,) int64, -1 where there is none; None if no sample has any
    classes  the labels' names, empty without labels
    modalities  the names of the raw inputs that a sample may have, the reference first
    """

    @property
    def ids(self) -> Tensor: ...
    @property
    def labels(self) -> Tensor | None: ...
    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def modalities(self) -> tuple[str, ...]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Sample: ...
    def name(self, index: int) -> str:
        """What a person would call the sample, such as a relative path or a number."""
        ...


@runtime_checkable
class Batched(Protocol):
    """A data set that makes many samples at once faster than one by one."""

    def batch(self, index: Tensor) -> dict[str, Tensor]:
        """The modalities of many samples, (len(index), C, H, W) by name."""
        ...


@runtime_checkable
class Partial(Protocol):
    """A data set that reads some modalities of a sample without opening the files of others, and knows which it has."""

    def sample(self, index: int, modalities: Collection[str]) -> Sample:
        """A sample with some of its modalities."""
        ...

    def present(self, index: int) -> set[str]:
        """The modalities that a sample has, as far as that is known without reading it."""
        ...


Shrink = Callable[[int, int], int]
"""Height and width of a picture -> how many times smaller, 1, 2, 4 or 8, it may be decoded."""


@runtime_checkable
class Shrinkable(Protocol):
    """A data set whose reference, its first modality, takes less time where it may be decoded smaller than it is."""

    def smaller(self, index: int, shrink: Shrink) -> Sample:
        """A sample whose reference is at most as many times smaller as `shrink` says; its `size` is the whole one."""
        ...


class Unreadable(Exception):
    """A sample that cannot be read; the message is the reason in one line. The loader goes on with another."""


def read(dataset: Any, index: int, shrink: Shrink | None = None) -> Sample | str:
    """A sample of a data set, or of what holds one in memory, or the reason why it cannot be read.

    shrink  how much smaller it may be, where the data set can do that
    """
    try:
        smaller = shrink is not None and hasattr(dataset, "smaller")  # quicker than to ask whether it is Shrinkable
        sample: Sample = dataset.smaller(index, shrink) if smaller else dataset[index]
        return sample
    except Unreadable as error:
        return str(error)


def partial_sample(dataset: Dataset, index: int, modalities: Collection[str]) -> Sample:
    """A sample with some of its modalities; of the others no file is opened where the data set can do without."""
    if isinstance(dataset, Partial):
        return dataset.sample(index, modalities)
    sample = dataset[index]
    return replace(sample, modalities={name: x for name, x in sample.modalities.items() if name in modalities})


def present(dataset: Dataset, index: int) -> set[str]:
    """The modalities that a sample has, as far as that is known without reading it."""
    return dataset.present(index) if isinstance(dataset, Partial) else set(dataset.modalities)


def label_target(labels: Tensor | None, index: int) -> dict[str, Any]:
    """The targets of a sample of which at most the class is known."""
    return {} if labels is None or labels[index] < 0 else {"label": int(labels[index])}


def label_sets(dataset: Dataset) -> Tensor | None:
    """(n, classes) int8 where samples have several labels: 1 is there, 0 is not, -1 is not to be counted.

    A data set of such samples has an attribute of this name, and no `labels`; others give None.
    """
    found: Tensor | None = getattr(dataset, "label_sets", None)
    return found


def known_targets(data: Dataset) -> Tensor | None:
    """Labels (n,), or label sets (n, classes) where samples have several; None where they have none."""
    sets = label_sets(data)
    return data.labels if sets is None else sets


def targets_of(data: Dataset) -> Tensor:
    """`known_targets` of data that has been checked to have some."""
    found = known_targets(data)
    assert found is not None
    return found


def label_set_target(sets: Tensor | None, index: int) -> dict[str, Any]:
    """The targets of a sample that has several labels: the numbers of its classes as "labels"."""
    return {} if sets is None else {"labels": tuple((sets[index] == 1).nonzero()[:, 0].tolist())}


def id_of(text: str) -> int:
    """A number in [0, 2^63) that stands for a text, the same on every machine and for ever."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def fingerprint(
    dataset: Dataset, few: Sequence[Sample] = (), *, labels: Tensor | None = None, classes: Sequence[str] = ()
) -> tuple[int, int, int, int]:
    """How many samples there are, and check sums: of their ids, of the sizes of their files, and of their times.

    few              samples whose pixels are summed to the ids, which may be mere numbers
    labels, classes  summed to them as well, where they matter

    An image that was replaced in place has another size, or at least another time; a mere copy of it may have, too.
    """
    total = zlib.crc32(dataset.ids.numpy().tobytes())
    pixels = [sample.modalities[name] for sample in few for name in sorted(sample.modalities)]
    for tensor in pixels if labels is None else [labels, *pixels]:
        total = zlib.crc32(tensor.contiguous().numpy().tobytes(), total)
    total = zlib.crc32("\0".join(classes).encode("utf-8", "surrogateescape"), total)
    return len(dataset), total, *_file_sums(dataset)


def _file_sums(dataset: Any) -> tuple[int, int]:
    """Check sums of the sizes of a data set's files and of their times in whole seconds; 0 where it has no files."""
    if not hasattr(dataset, "paths"):
        return 0, 0
    chunks = [range(start, min(start + CHUNK, len(dataset))) for start in range(0, len(dataset), CHUNK)]
    with ThreadPoolExecutor(16) as pool:  # a disk in the network answers many questions in the time of one
        found = pool.map(lambda rows: [_stamp(path) for row in rows for path in dataset.paths(row).values()], chunks)
        stamps = np.array([stamp for chunk in found for stamp in chunk], dtype=np.int64).reshape(-1, 2)
    sizes, times = (zlib.crc32(column.tobytes()) for column in stamps.T)
    return sizes, times


def _stamp(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
        return status.st_size, int(status.st_mtime)
    except OSError:
        return -1, -1


def few_samples(dataset: Dataset) -> list[Sample]:
    """Some samples spread over the data, those that can be read."""
    rows = range(0, len(dataset), max(1, len(dataset) // FEW))
    return [sample for row in rows if isinstance(sample := read(dataset, row), Sample)]


def usual_shape(few: Sequence[Sample], modality: str, other: Tensor | None = None) -> tuple[int, int]:
    """Channels, and the usual length of the shorter side, of some samples' pictures, or for want of them of `other`."""
    shapes = [sample.modalities[modality].shape for sample in few if modality in sample.modalities]
    shapes = shapes if shapes or other is None else [other.shape]
    if not shapes:
        raise UserError("data", f"of its {modality} images none that was looked at can be read; try `manyview check`")
    sides = sorted(min(shape[1:]) for shape in shapes)
    return max(shape[0] for shape in shapes), sides[len(sides) // 2]
