"""What loaders hold of a data set in memory: loaders of the same data set share it as long as one of them lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from weakref import WeakValueDictionary

from torch import Tensor

from manyview.data.cache import Cache, make_cache
from manyview.data.dataset import Dataset
from manyview.data.decoded import Decoded, decode

Asked = Callable[[Mapping[str, Tensor]], bool]


@dataclass(frozen=True, eq=False)
class Held:
    """The whole data set, decoded, or else a cache that holds samples once they are read; neither with memory=0."""

    dataset: Dataset
    decoded: Decoded | None
    cache: Cache | None


_LIVING: WeakValueDictionary[tuple[int, frozenset[str], int | None], Held] = WeakValueDictionary()
"""What living loaders hold, by the data set (each keeps its own alive), the modalities in use, and the limit."""


def hold(
    dataset: Dataset, used: Set[str], memory: int | None, examples: Mapping[str, Tensor] | None, at_once: Asked
) -> Held:
    """Gives what another loader of the same data set holds, or else decodes the data set or makes a cache for it.

    used      the modalities that views are made of
    memory    bytes that it may take; None: a quarter of the machine's, 0: nothing is held
    examples  as `decode` takes them
    at_once   tells whether the loader's views are made a whole batch at once, of pictures like these, which are none
    """
    place = (id(dataset), frozenset(used), memory)
    there = _LIVING.get(place)
    if there is not None and there.decoded is not None and at_once(_none_of(there.decoded)):
        return there
    decoded = None if memory == 0 else decode(dataset, memory, examples, wanted=at_once)
    if decoded is None and there is not None and there.decoded is None:
        return there
    held = Held(dataset, decoded, make_cache(len(dataset), memory) if decoded is None else None)
    return _LIVING.setdefault(place, held) if there is None else held


def _none_of(decoded: Decoded) -> dict[str, Tensor]:
    return {name: images[:0] for name, images in decoded.pixels.items()}
