"""Whom a term of a method contrasts with: the batch's other images, a queue, or both. `NEGATIVES` names them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from manyview.core.errors import UserError
from manyview.core.negatives import Negatives
from manyview.memories.queue import Queue

Enqueue = Literal["mean", "last", "each"]


class Memory(nn.Module):
    """The batch's other images alone.

    within_batch  how often each of them counts; 0 leaves them out
    """

    def __init__(self, within_batch: float = 1.0) -> None:
        super().__init__()
        if not 0 <= within_batch < math.inf:
            raise UserError("within_batch", f"expected a weight of at least 0, got {within_batch}")
        self.within_batch = within_batch

    def outside(self, ids: Tensor) -> Negatives | None:
        """What queries of these images (N,) meet besides the batch."""
        return None

    def update(self, keys: Sequence[Tensor], ids: Tensor) -> None:
        """Takes in the step's keys, V views of (N, d) of all processes, once nobody reads any more."""


class QueueMemory(Memory):
    """A queue, and the batch's other images as well if `within_batch` is not 0.

    enqueue  what goes into it of an image with several keys: their "mean" as it is, not made unit length again (JCL
             Algorithm 1), the "last" one (CACR Algorithm 3), or "each" (MoCo with a symmetric loss)
    """

    def __init__(self, queue: Queue, enqueue: Enqueue, within_batch: float) -> None:
        super().__init__(within_batch)
        self.queue = queue
        self._chosen = _CHOSEN[enqueue]

    def outside(self, ids: Tensor) -> Negatives:
        return self.queue.negatives(ids)

    def update(self, keys: Sequence[Tensor], ids: Tensor) -> None:
        chosen = self._chosen(torch.stack(list(keys)))  # (1 or V, N, d)
        self.queue.enqueue(chosen.flatten(0, 1), ids.repeat(len(chosen)))


def batch(dim: int, *, generator: torch.Generator | None = None) -> Memory:
    """The other images of the batch, of all processes."""
    return Memory()


def queue(
    dim: int,
    *,
    size: int = 65536,
    enqueue: Enqueue = "mean",
    within_batch: float = 0.0,
    generator: torch.Generator | None = None,
) -> Memory:
    """The `size` newest keys, as in MoCo; beside them the batch's other images, each counted `within_batch` times."""
    if enqueue not in _CHOSEN:
        raise UserError("enqueue", f"expected one of {', '.join(_CHOSEN)}, got {enqueue!r}")
    return QueueMemory(Queue(size, dim, generator=generator), enqueue, within_batch)


_CHOSEN: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda keys: keys.mean(0, keepdim=True),
    "last": lambda keys: keys[-1:],
    "each": lambda keys: keys,
}

MEMORIES: dict[str, Callable[..., Memory]] = {"batch": batch, "queue": queue}
