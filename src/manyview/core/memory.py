"""Memory for results; on a CPU large pieces of it are used again once nobody holds any of them.

The system fills new pages with zeros at their first use, which takes longer than to compute a normalised view of them.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

LARGE = 1 << 22  # bytes from which memory is kept, and from which numpy asks Linux for large pages, ten times as fast
KEPT = 4  # pieces that are kept for later, the last ones that were free

ALIGNED = 64  # bytes, as torch has it
CPU = torch.device("cpu")

Block = np.ndarray[Any, np.dtype[np.uint8]]
_free: list[Block] = []


def new_memory(shape: Sequence[int], dtype: torch.dtype = torch.float32, device: torch.device = CPU) -> Tensor:
    """Gives memory of any content. It is free again with the last tensor that shares it."""
    size = prod(shape) * dtype.itemsize
    if size < LARGE or device.type != "cpu":
        return torch.empty(tuple(shape), dtype=dtype, device=device)
    block = _taken(size)
    lent = block[:]  # torch holds on to this very object for as long as it needs the memory
    weakref.finalize(lent, _keep, block).atexit = False
    return torch.from_numpy(lent).view(dtype).view(*shape)


def _taken(size: int) -> Block:
    """A free piece of this size, or a new one; what is taken out of a list, no other thread can have."""
    for _ in range(len(_free)):
        try:
            block = _free.pop(0)
        except IndexError:
            break
        if block.nbytes == size:
            return block
        _free.append(block)
    room = np.empty(size + ALIGNED, np.uint8)
    start = -room.ctypes.data % ALIGNED
    return room[start : start + size]


def _keep(block: Block) -> None:
    _free.append(block)
    del _free[:-KEPT]
