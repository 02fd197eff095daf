"""What a data set is: samples with ids, in a fixed order."""

from __future__ import annotations

import hashlib
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from manyview.core.sample import Sample


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


class Unreadable(Exception):
    """A sample that cannot be read; the message is the reason in one line. The loader goes on with another."""


def read(dataset: Any, index: int) -> Sample | str:
    """A sample of a data set, or of what holds one in memory, or the reason why it cannot be read."""
    try:
        sample: Sample = dataset[index]
        return sample
    except Unreadable as error:
        return str(error)


def label_target(labels: Tensor | None, index: int) -> dict[str, Any]:
    """The targets of a sample of which at most the class is known."""
    return {} if labels is None or labels[index] < 0 else {"label": int(labels[index])}


def id_of(text: str) -> int:
    """A number in [0, 2^63) that stands for a text, the same on every machine and for ever."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
