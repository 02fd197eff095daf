"""One process or many: the only file that talks to other processes."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from manyview.core.errors import UserError

T = TypeVar("T")
WAIT = timedelta(minutes=30)  # for other processes, where nobody says how long
Gather = Callable[[Tensor], Tensor]
"""Joins the rows of all processes, with gradient; `no_gather` in one process."""


def no_gather(rows: Tensor) -> Tensor:
    """The gather of a single process: the rows themselves."""
    return rows


class RemoteError(UserError):
    """Another process has failed, and says why; nothing is left to say here."""

    exit_code, told = 1, True


def world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if world_size() > 1 else 0


def join_processes(device: torch.device) -> torch.device:
    """Joins the processes that torchrun has started, where it has, and gives the device of this one.

    For what runs without Fabric, which joins them by itself.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1 and not dist.is_initialized():
        if not dist.is_torchelastic_launched():
            line = f"is {world}, and torchrun has not started this process; use it, or unset this"
            raise UserError("WORLD_SIZE", line)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=WAIT)
        wait_at_most(WAIT)
    if world == 1 or device.type != "cuda":
        return device
    torch.cuda.set_device(own := torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))))
    return own


def gather(rows: Tensor) -> Tensor:
    """The rows of all processes in the order of their ranks, with gradient; processes may hold different numbers of
    rows.

    With contiguous shards of a batch this gives back the batch. In one process it is the tensor itself, so that a loss
    can see that its keys are its queries.

    A loss that averages gathered values is the whole batch's loss in every process. Backward adds up what all processes
    ask of a row, so each gradient is `world_size()` times the whole batch's: the average over processes that
    DistributedDataParallel takes makes it equal.
    """
    if world_size() == 1:
        return rows
    return gather_all([rows], [int(count) for (count,) in exchange([len(rows)])])[0]


def gather_all(tensors: Sequence[Tensor], counts: Sequence[int]) -> list[Tensor]:
    """`gather` of several tensors of equally many rows, of any dtypes, in one collective forward and one backward.

    counts  how many rows each process holds
    """
    if world_size() == 1 or not tensors:
        return list(tensors)
    return list(_GatherAll.apply(tuple(counts), *tensors))


def permute_rows(rows: Tensor, order: Tensor, before: Sequence[int], after: Sequence[int]) -> Tensor:
    """This process's share of `whole[order]`, where `whole` are the rows of all processes, with gradient.

    Each row travels once, to the process that has its new place. In one process it is `rows[order]`.

    order   (total,) on the CPU, the same in all processes
    before  how many rows each process holds
    after   how many places of the result each process has
    """
    if world_size() == 1:
        return rows[order.to(rows.device)]
    sources, places, mine = _owners(before)[order], _owners(after), rank()
    leaving = sources == mine  # by the place they go to, so by the process as well
    to = places[leaving].bincount(minlength=len(after)).tolist()
    arriving = sources[places == mine]
    received = arriving.bincount(minlength=len(before)).tolist()
    sent = rows[(order[leaving] - sum(before[:mine])).to(rows.device)]
    arrived: Tensor = _AllToAll.apply(sent, to, received)
    return arrived[arriving.argsort(stable=True).argsort().to(rows.device)]


def equal_shares(total: int) -> list[int]:
    """How many of so many rows each process takes: the same, or one more for the first ones, as `tensor_split`."""
    return [total // world_size() + (place < total % world_size()) for place in range(world_size())]


def sum_over_processes(tensor: Tensor) -> Tensor:
    """The sum of a tensor of one shape over the processes, with gradient."""
    return tensor if world_size() == 1 else gather_all([tensor[None]], [1] * world_size())[0].sum(0)


def join_lists(own: list[T]) -> list[T]:
    """What all processes have, of plain Python, in the order of their ranks."""
    if world_size() == 1:
        return own
    found: list[Any] = [None] * world_size()
    dist.all_gather_object(found, own)
    return [each for part in found for each in part]


@torch.no_grad()
def average_over_processes_(tensors: Sequence[Tensor]) -> None:
    """Each tensor becomes its mean over the processes, in place, all in one collective."""
    if world_size() == 1 or not tensors:
        return
    joined = torch.cat([each.flatten() for each in tensors])
    dist.all_reduce(joined)
    for each, mean in zip(tensors, (joined / world_size()).split([each.numel() for each in tensors]), strict=True):
        each.copy_(mean.view_as(each))


def exchange(word: Sequence[float]) -> list[list[float]]:
    """A few numbers of every process, in the order of their ranks. Waits for the processes, not for their GPUs."""
    if world_size() == 1:
        return [list(word)]
    words = [torch.zeros(len(word), dtype=torch.float64) for _ in range(world_size())]
    dist.all_gather(words, torch.tensor(word, dtype=torch.float64), group=_control_group())
    return [each.tolist() for each in words]


class Agreed(NamedTuple):
    """What all processes know of one another at the beginning of a step."""

    stop: bool  # whether any of them is to stop
    save: bool  # whether any of them wants a checkpoint
    counts: list[int]  # rows that each will embed


class Agreement:
    """One status word a step: whether something has failed or is to stop, and how many rows each process has.

    What fails inside `attempt` waits for `settle`, at which all processes end: the first that failed with its own
    error, the others with `RemoteError`. In one process errors pass as they come.
    """

    def __init__(self) -> None:
        self._error: Exception | None = None

    @contextmanager
    def attempt(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if world_size() == 1:
                raise
            self._error = self._error or error

    @property
    def failed(self) -> bool:
        return self._error is not None

    def settle(self, *, stop: bool = False, save: bool = False, rows: int = 0) -> Agreed:
        """Settles what all processes know; all of them call it at the same point."""
        error, self._error = self._error, None
        words = exchange([error is not None, stop, save, rows])
        try:
            failed = next((place for place, word in enumerate(words) if word[0]), None)
            if error is not None and failed == rank():
                raise error
            if failed is not None:
                raise RemoteError(None, f"process {failed} has failed and says why")
        finally:
            error = None  # which holds this frame: a loader's workers end only when nobody holds the loader any more
        stops, saves = (any(bool(word[place]) for word in words) for place in (1, 2))
        return Agreed(stops, saves, [int(word[3]) for word in words])


@contextmanager
def fail_together() -> Iterator[None]:
    """Something that all processes do, or some of them, and that succeeds in all or ends all.

    To be entered by all of them; within, no process may wait for another.
    """
    agreement = Agreement()
    with agreement.attempt():
        yield
    agreement.settle()


_control: list[Any] = []
_wait: list[timedelta] = []


def wait_at_most(time: timedelta) -> None:
    """Says how long a process waits for the status words of others; to be called before the first of them.

    On GPUs these have a group of their own, to which the time of the processes' own group means nothing.
    """
    _wait[:] = [time]


def _control_group() -> Any:
    """The group that status words go through: on CPUs, so that nobody waits for a GPU."""
    if dist.get_backend() != "nccl":
        return None
    if not _control:
        _control.append(dist.new_group(backend="gloo", timeout=_wait[0] if _wait else None))
    return _control[0]


class _GatherAll(torch.autograd.Function):
    """Rows travel as bytes, so that ids, masks and embeddings of any precision share one collective."""

    @staticmethod
    def forward(ctx: Any, counts: tuple[int, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        rows = [_bytes(each) for each in tensors]
        packed = torch.cat(rows, 1)
        padded = packed.new_zeros(max(counts), packed.shape[1])
        padded[: len(packed)] = packed
        blocks = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(blocks, padded)
        joined = torch.cat([block[:count] for block, count in zip(blocks, counts, strict=True)])
        pieces = joined.split([each.shape[1] for each in rows], 1)
        made = tuple(
            piece.clone(memory_format=torch.contiguous_format).view(each.dtype).reshape(len(joined), *each.shape[1:])
            for piece, each in zip(pieces, tensors, strict=True)
        )
        start = sum(counts[: dist.get_rank()])
        ctx.mine = slice(start, start + counts[dist.get_rank()])
        fixed = [each for each, needed in zip(made, ctx.needs_input_grad[1:], strict=True) if not needed]
        ctx.mark_non_differentiable(*fixed)  # a loss does less for keys without gradient
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        wanted = [place for place, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
        rows = [_flat(grads[place]) for place in wanted]
        total = torch.cat(rows, 1)
        dist.all_reduce(total)
        pieces = total[ctx.mine].split([each.shape[1] for each in rows], 1)
        found: list[Tensor | None] = [None] * len(grads)
        for place, piece in zip(wanted, pieces, strict=True):
            found[place] = piece.reshape(-1, *grads[place].shape[1:]).to(grads[place].dtype)
        return None, *found


class _AllToAll(torch.autograd.Function):
    """Rows for each process, in the order of ranks, against the rows that each has for this one."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, to: list[int], received: list[int]) -> Tensor:
        ctx.counts = received, to
        sent = _bytes(rows)
        arrived = sent.new_empty(sum(received), sent.shape[1])
        dist.all_to_all_single(arrived, sent, received, to)
        return arrived.view(rows.dtype).reshape(len(arrived), *rows.shape[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _AllToAll.apply(grads[0], *ctx.counts), None, None


def _owners(counts: Sequence[int]) -> Tensor:
    """(total,) the process that holds each row."""
    return torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))


def _flat(rows: Tensor) -> Tensor:
    """(n, numbers a row)."""
    return rows[:, None] if rows.dim() == 1 else rows.flatten(1)


def _bytes(rows: Tensor) -> Tensor:
    """(n, bytes a row)."""
    return _flat(rows).clone(memory_format=torch.contiguous_format).view(torch.uint8)
