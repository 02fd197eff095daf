"""The queue of MoCo: the keys of the last batches, on its own and as the memory of a term."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.core.bounds import Count
from manyview.core.errors import UserError
from manyview.core.negatives import Negatives
from manyview.memories.memory import Memory

Enqueue = Literal["mean", "last", "each"]

NO_ID = torch.iinfo(torch.int64).min  # of a key that shows no image, or none that was named


class Queue(nn.Module):
    """The `size` newest keys, first in, first out, for batches of any size. All of it is in the state dict.

    start="noise" begins with random unit vectors, as published; start="empty" with nothing: wait until the queue is
    `ready` before asking it for negatives.

    >>> loss = info_nce(q, k[:, None], queue.negatives(ids))
    >>> loss.backward(); optimizer.step(); queue.enqueue(k, ids)     # in this order: no key is its own negative
    """

    keys: Tensor
    ids: Tensor
    pointer: Tensor
    filled: Tensor

    def __init__(
        self,
        size: int,
        dim: int,
        *,
        start: Literal["noise", "empty"] = "noise",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if size < 1 or dim < 1:
            raise UserError("size and dim", f"expected at least 1 each, got size {size} and dim {dim}")
        if start not in ("noise", "empty"):
            raise UserError("start", f"expected 'noise' or 'empty', got {start!r}")
        noise = start == "noise"
        keys = F.normalize(torch.randn(size, dim, generator=generator), dim=1) if noise else torch.zeros(size, dim)
        self.register_buffer("keys", keys)
        self.register_buffer("ids", torch.full((size,), NO_ID))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))
        self.register_buffer("filled", torch.tensor(size if noise else 0))
        self._held = size if noise else 0  # the same, for which nobody waits for a GPU
        self.register_load_state_dict_post_hook(_count_again)  # type: ignore[no-untyped-call]

    def extra_repr(self) -> str:
        size, dim = self.keys.shape
        return f"size={size}, dim={dim}, filled={int(self.filled)}"

    @property
    def ready(self) -> bool:
        return self._held == len(self.keys)

    def negatives(self, query_ids: Tensor | None = None, *, weight: float = 1.0) -> Negatives:
        """All keys, not copied; with ids (N,), keys enqueued under a query's own id do not count for it."""
        if not self.ready:
            held = f"{self._held} of {len(self.keys)}"
            raise UserError("queue", f"holds {held} keys; enqueue until it is ready, then ask for negatives")
        return Negatives(self.keys, None if query_ids is None else self.ids, query_ids, weight=weight)

    @torch.no_grad()
    def enqueue(self, keys: Tensor, ids: Tensor | None = None) -> None:
        """Puts keys (B, dim) in the place of the oldest, as they are: a mean of keys is not made unit length again.

        With several processes give the gathered keys, so that all queues stay the same, and start them with the same
        generator.
        """
        size, dim = self.keys.shape
        if keys.dim() != 2 or keys.shape[1] != dim:
            raise UserError("keys", f"expected (B, {dim}), got {tuple(keys.shape)}")
        if ids is not None and ids.shape != (len(keys),):
            raise UserError("ids", f"expected ({len(keys)},) for keys {tuple(keys.shape)}, got {tuple(ids.shape)}")
        new = keys[-size:]  # of a batch larger than the queue, the newest
        where = (self.pointer + len(keys) - len(new) + torch.arange(len(new), device=keys.device)) % size
        self.keys[where] = new.to(self.keys.dtype)
        self.ids[where] = NO_ID if ids is None else ids[-size:]
        self.pointer.add_(len(keys)).remainder_(size)
        self.filled.add_(len(keys)).clamp_(max=size)
        self._held = min(size, self._held + len(keys))


def _count_again(queue: nn.Module, _: object) -> None:
    queue._held = int(queue.filled)  # type: ignore[assignment, arg-type]


class QueueMemory(Memory):
    """A queue, and the batch's other images as well if `within_batch` is not 0.

    enqueue  what goes into it of an image with several keys: their "mean" as it is, not made unit length again (JCL
             Algorithm 1), the "last" one (CACR Algorithm 3), or "each" (MoCo with a symmetric loss)
    """

    def __init__(self, queue: Queue, enqueue: Enqueue = "each", within_batch: float = 0.0) -> None:
        super().__init__(within_batch)
        if enqueue not in _CHOSEN:
            raise UserError("enqueue", f"expected one of {', '.join(_CHOSEN)}, got {enqueue!r}")
        self.queue, self._chosen = queue, _CHOSEN[enqueue]

    @property
    def size(self) -> int:
        return len(self.queue.keys)

    def negatives(self, ids: Tensor, index: Tensor, *, step: int) -> Negatives:
        return self.queue.negatives(ids)

    def update(self, keys: Sequence[Tensor], ids: Tensor, index: Tensor) -> None:
        chosen = self._chosen(torch.stack(list(keys)))  # (1 or K, N, d)
        self.queue.enqueue(chosen.flatten(0, 1), ids.repeat(len(chosen)))


_CHOSEN: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda keys: keys.mean(0, keepdim=True),
    "last": lambda keys: keys[-1:],
    "each": lambda keys: keys,
}


def queue(
    dim: int,
    *,
    size: Count = 65536,
    enqueue: Enqueue = "mean",
    within_batch: float = 0.0,
    generator: torch.Generator | None = None,
) -> Memory:
    """The `size` newest keys, as in MoCo; beside them the batch's other images, each counted `within_batch` times."""
    return QueueMemory(Queue(size, dim, generator=generator), enqueue, within_batch)
