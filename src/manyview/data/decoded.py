"""Pictures of one size that fit are decoded beforehand, into one tensor for each modality; batches are rows of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from manyview.core.parallel import available
from manyview.core.sample import Sample
from manyview.data.dataset import Batched, Dataset, read

CHUNK = 1024
FEW = 16  # samples that a thread reads at a time
PROBES = 16


@dataclass(eq=False)
class Decoded:
    """A whole data set, whose samples are taken from memory.

    pixels      (n, C, H, W) by modality; rows that could not be read, or lack the modality, are zero
    present     (n,) bool by modality
    unreadable  the reasons of rows that could not be read
    """

    pixels: dict[str, Tensor]
    present: dict[str, Tensor]
    unreadable: dict[int, str] = field(default_factory=dict)


def default_limit() -> int:
    """A quarter of the memory that this process may use, shared with others of its machine; 2 GiB if unknown."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError):
        machine = 8 << 30
    return min(machine, _container_limit()) // 4 // local_processes()


def local_processes() -> int:
    """How many processes of this training the machine runs, as torchrun says."""
    count = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return int(count) if count.isdecimal() and int(count) else 1


def _container_limit() -> int:
    """Bytes that a container may use at most."""
    try:
        return int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):  # not there, or "max"
        return 1 << 62


def decode(
    dataset: Dataset,
    limit: int | None = None,
    examples: Mapping[str, Tensor] | None = None,
    *,
    wanted: Callable[[Mapping[str, Tensor]], bool] = lambda _: True,
) -> Decoded | None:
    """Decodes the whole data set; None if its pictures differ in size or take more than `limit` bytes.

    examples  a picture (C, H, W) of each modality, for those that no sample has: they are zeros of that form
    wanted    is asked whether it shall be, with no pictures (0, C, H, W) of each modality

    A few samples over the whole set are looked at first, so that "no" is a quick answer.
    """
    shapes = _probe(dataset)
    if shapes is None:
        return None
    known = {name: (tuple(image.shape), image.dtype) for name, image in (examples or {}).items()} | shapes
    shapes = {name: known[name] for name in dataset.modalities if name in known}
    size = len(dataset) * sum(prod(shape) * dtype.itemsize for shape, dtype in shapes.values())
    none = {name: torch.empty(0, *shape, dtype=dtype) for name, (shape, dtype) in shapes.items()}
    if size > (default_limit() if limit is None else limit) or not wanted(none):
        return None
    decoded = Decoded(
        {name: torch.zeros(len(dataset), *shape, dtype=dtype) for name, (shape, dtype) in shapes.items()},
        {name: torch.ones(len(dataset), dtype=torch.bool) for name in shapes},
    )
    if not isinstance(dataset, Batched):
        return decoded if _fill(dataset, decoded) else None
    for rows in torch.arange(len(dataset)).split(CHUNK):
        for name, images in dataset.batch(rows).items():
            decoded.pixels[name][rows] = images
    return decoded


Shapes = dict[str, tuple[tuple[int, ...], torch.dtype]]


def _probe(dataset: Dataset) -> Shapes | None:
    """Shape and dtype of every modality, the reference first; None if they differ or nothing can be read."""
    found: Shapes = {}
    for sample in some_samples(dataset):
        for name, image in sample.modalities.items():
            if found.setdefault(name, (tuple(image.shape), image.dtype)) != (tuple(image.shape), image.dtype):
                return None
    return {name: found[name] for name in dataset.modalities if name in found} or None


def some_samples(dataset: Dataset) -> Iterator[Sample]:
    """Reads a few samples over the whole data set; then more, until each modality was met or all are read."""
    spread = dict.fromkeys(round(i * (len(dataset) - 1) / PROBES) for i in range(PROBES + 1))
    missing = set(dataset.modalities)
    for number, index in enumerate([*spread, *range(len(dataset))]):
        if number >= len(spread) and not missing:
            return
        sample = read(dataset, index)
        if isinstance(sample, Sample):
            missing -= sample.modalities.keys()
            yield sample


def _fill(dataset: Dataset, decoded: Decoded) -> bool:
    for index, sample in _samples(dataset):
        if isinstance(sample, str):
            decoded.unreadable[index] = sample
        there = sample.modalities if isinstance(sample, Sample) else {}
        for name in decoded.pixels.keys() - there.keys():
            decoded.present[name][index] = False
        for name, image in there.items():
            held = decoded.pixels.get(name)
            if held is None or image.shape != held.shape[1:] or image.dtype != held.dtype:
                return False
            held[index] = image
    return True


def _samples(dataset: Dataset) -> Iterator[tuple[int, Sample | str]]:
    """Reads all samples in order, in threads where the data set bears them: our decoders leave Python's lock."""
    with ThreadPoolExecutor(available() if getattr(dataset, "threads", False) else 1) as pool:
        for rows in torch.arange(len(dataset)).split(CHUNK):
            parts = [part.tolist() for part in rows.split(FEW)]
            for found in pool.map(lambda part: [(row, read(dataset, row)) for row in part], parts):
                yield from found
