"""One step's forward and backward: the whole batch at once, or in micro-batches with the same gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from manyview.core.distributed import Gather, no_gather
from manyview.core.errors import UserError
from manyview.core.negatives import Triple
from manyview.methods import Method, Seen, Term

ViewEmbeddings = Callable[[slice], list[Tensor]]
"""Rows of the batch -> its looks, (rows, C, H, W) each; asked again, the same again."""


@dataclass(frozen=True, eq=False)
class Engine:
    """How a step runs on this machine: what `train.py` has of Fabric, and the plain thing in a test.

    module    the method, perhaps wrapped for many processes
    backward  of a loss
    unsynced  a context in which backward leaves the processes' gradients apart
    """

    method: Method
    module: nn.Module
    backward: Callable[[Tensor], None] = torch.Tensor.backward
    gather: Gather = no_gather
    unsynced: Callable[[], AbstractContextManager[object]] = nullcontext


@dataclass(frozen=True, eq=False)
class StepOutput:
    """What a step has computed: the loss, and what it was computed of."""

    loss: Tensor
    triples: list[tuple[Term, Triple]]
    seen: Seen


class NotFinite(UserError):
    """The loss is NaN or infinite; no parameter and no gradient has been changed by it."""


def whole_batch(engine: Engine, looks: ViewEmbeddings, ids: Tensor, *, step: int, progress: float = 1.0) -> StepOutput:
    """Embeds the batch, contrasts it, and leaves the gradient in the parameters."""
    queries, keys = engine.module(looks(slice(None)), step)
    stepped = _contrast(engine, queries, keys, ids, progress)
    engine.backward(stepped.loss)
    return stepped


def micro_batches(
    engine: Engine, looks: ViewEmbeddings, ids: Tensor, *, step: int, size: int, progress: float = 1.0
) -> StepOutput:
    """The same gradient with the graph of only `size` images at a time in memory (Gao et al., 2021, GradCache).

    The batch is embedded in parts without a graph, the loss gives the gradient on the embeddings, and each part is
    embedded once more, from the same views and the same random numbers, to pass its rows of that gradient on. Batch
    norm sees the parts, in both passes the same; its running statistics move in the first alone.
    """
    parts = [slice(start, start + size) for start in range(0, len(ids), size)]
    embedded, randomness = [], []
    with torch.no_grad():
        for part in parts:
            randomness.append(_random_state())
            embedded.append(engine.module(looks(part), step))
    follows = engine.method.towers.key is None  # keys have a gradient as well
    queries = [torch.cat(rows).requires_grad_() for rows in zip(*(queries for queries, _ in embedded), strict=True)]
    keys = [torch.cat(rows).requires_grad_(follows) for rows in zip(*(keys for _, keys in embedded), strict=True)]
    leaves = queries + (keys if follows else [])
    stepped = _contrast(engine, queries, keys, ids, progress)
    gradients = torch.autograd.grad(stepped.loss, leaves, materialize_grads=True)  # repulsion knows no positives
    with _kept(engine.method.towers), torch.random.fork_rng(_devices()):
        for part, state in zip(parts, randomness, strict=True):
            _set_random_state(state)
            last = part is parts[-1]
            with nullcontext() if last else engine.unsynced():
                again, too = engine.module(looks(part), step, keys=follows)
                engine.backward(_passed_on(again + too, [gradient[part] for gradient in gradients]))
    return stepped


def _contrast(engine: Engine, queries: list[Tensor], keys: list[Tensor], ids: Tensor, progress: float) -> StepOutput:
    seen = Seen(queries, keys, ids, engine.gather)
    triples = engine.method.triples(seen)
    loss = engine.method.objective(triples, gather=engine.gather, progress=progress)
    if not torch.isfinite(loss):
        raise NotFinite(None, f"the loss is {float(loss.detach())}")
    return StepOutput(loss, triples, seen)


def _passed_on(outputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    """A number whose gradient by the outputs is what was given."""
    return torch.stack([(each * by).sum() for each, by in zip(outputs, gradients, strict=True)]).sum()


@contextmanager
def _kept(module: nn.Module) -> Iterator[None]:
    """Buffers, such as running statistics, are afterwards what they were before."""
    before = [buffer.clone() for buffer in module.buffers()]
    try:
        yield
    finally:
        for buffer, value in zip(module.buffers(), before, strict=True):
            buffer.copy_(value)


def _devices() -> list[int]:
    return list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []


def _random_state() -> list[Tensor]:
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in _devices())]


def _set_random_state(state: list[Tensor]) -> None:
    torch.set_rng_state(state[0])
    for device, each in zip(_devices(), state[1:], strict=True):
        torch.cuda.set_rng_state(each, device)
