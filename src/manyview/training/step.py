"""The forward and backward pass of one step: the whole batch at once, or micro-batches with the same gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from manyview.core.distributed import world_size
from manyview.core.errors import UserError
from manyview.core.sample import Views
from manyview.diagnose.measures import log_negatives
from manyview.methods import BatchOutputs, Method
from manyview.methods.method import Objective

MakeViews = Callable[[slice], Views]
"""Rows of the batch -> their views, {name: [copy, ...]}; asked again, the same again."""


class StepOutput(NamedTuple):
    """The result of a step: the objective, and the outputs that it was computed from."""

    objective: Objective
    batch: BatchOutputs

    @property
    def loss(self) -> Tensor:
        return self.objective.loss


@dataclass(frozen=True, eq=False)
class Engine:
    """The operations by which a step runs on this machine: those of Fabric in training, plain ones in a test.

    module    the method, perhaps wrapped for many processes
    backward  back-propagates a loss's gradient
    unsynced  a context in which backward does not average gradients over processes
    """

    method: Method
    module: nn.Module
    backward: Callable[[Tensor], None] = torch.Tensor.backward
    unsynced: Callable[[], AbstractContextManager[object]] = nullcontext


class NotFinite(UserError):
    """The loss is NaN or infinite; no parameter and no gradient was changed by it."""


def whole_batch(engine: Engine, views: MakeViews, batch: BatchOutputs) -> StepOutput:
    """Embeds the batch, which has no outputs yet, computes the objective, and leaves its gradient in the parameters."""
    batch = replace(batch, outputs=engine.module(views(slice(None)), batch.step, None, batch.present))
    objective = _finite(engine.method.objective(batch))
    engine.backward(objective.loss)
    return StepOutput(objective, batch)


def micro_batches(engine: Engine, views: MakeViews, batch: BatchOutputs, *, size: int) -> StepOutput:
    """Computes the same gradient with the graph of only `size` images in memory (Gao et al., 2021, GradCache).

    The batch is embedded in parts without a graph, the loss gives the gradient on the outputs, and each part is
    embedded once more, from the same views and the same random numbers, to back-propagate its rows of that gradient.
    Batch norm is over the parts, the same in both passes; its running statistics move in the first alone.
    """
    method, parts = engine.method, _parts(batch, size)
    embedded, before = [], []
    with torch.no_grad():
        for part in parts:
            before.append((_random_state(), _statistics(method.towers)))
            embedded.append(engine.module(views(part), batch.step, None, _rows(batch, part)))
    with_gradient = [slot for slot in method.slots if method.towers.has_gradient(slot)]
    outputs = {slot: torch.cat([each[slot] for each in embedded]) for slot in method.slots}
    leaves = [outputs[slot].requires_grad_() for slot in with_gradient]
    batch = replace(batch, outputs=outputs)
    objective = _finite(method.objective(batch))
    gradients = torch.autograd.grad(objective.loss, leaves, materialize_grads=True)  # repulsion knows no positives
    with _kept(method.towers), torch.random.fork_rng(_devices()):
        for part, (state, statistics) in zip(parts, before, strict=True):
            _set_random_state(state)
            for buffer, value in zip(method.towers.buffers(), statistics, strict=True):
                buffer.copy_(value)  # what a part with few rows of a view is normalised by
            with nullcontext() if part is parts[-1] else engine.unsynced():
                again = engine.module(views(part), batch.step, with_gradient, _rows(batch, part))
                engine.backward(_passed_on(again.values(), [gradient[part] for gradient in gradients]))
    return StepOutput(objective, batch)


def _parts(batch: BatchOutputs, size: int) -> list[slice]:
    """Cuts a batch into parts of at most `size` rows, as many in every process, since keys are shuffled among them."""
    rows, count = len(batch.ids), -(-max([len(batch.ids), *batch.counts]) // size)
    fewer = rows <= size * (count - 1)  # than another process has
    ends = [rows * number // count if fewer else min(size * number, rows) for number in range(count + 1)]
    return [slice(start, end) for start, end in pairwise(ends)]


def _rows(batch: BatchOutputs, part: slice) -> dict[str, Tensor]:
    """Returns which images of a part have which view."""
    return {view: mask[part] for view, mask in batch.present.items()}


def _finite(objective: Objective) -> Objective:
    """Returns the objective if it is finite. A GPU or another process is not waited for: the loop asks later."""
    if world_size() == 1 and objective.loss.device.type == "cpu" and not torch.isfinite(objective.loss):
        raise NotFinite(None, f"the loss is {float(objective.loss.detach())}")
    return objective


def _passed_on(outputs: Iterable[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    """Returns a scalar whose gradient by the outputs is the given one."""
    return torch.stack([(each * by).sum() for each, by in zip(outputs, gradients, strict=True)]).sum()


@contextmanager
def _kept(module: nn.Module) -> Iterator[None]:
    """Restores buffers, such as running statistics, afterwards."""
    before = _statistics(module)
    try:
        yield
    finally:
        for buffer, value in zip(module.buffers(), before, strict=True):
            buffer.copy_(value)


def _statistics(module: nn.Module) -> list[Tensor]:
    return [buffer.clone() for buffer in module.buffers()]


def _devices() -> list[int]:
    return list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []


def _random_state() -> list[Tensor]:
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in _devices())]


def _set_random_state(state: list[Tensor]) -> None:
    torch.set_rng_state(state[0])
    for device, each in zip(_devices(), state[1:], strict=True):
        torch.cuda.set_rng_state(each, device)


def logged_losses(method: Method, objective: Objective) -> torch.Tensor | None:
    """Returns (1 + 2 terms,): the loss, and of several terms their losses and bounds log k - L, as far as defined.

    NaN stands for what a term lacks; None where no term had anything to compare.
    """
    if all(each.skipped for each in objective.terms.values()):
        return None
    if len(objective.terms) == 1:
        return objective.loss.detach()[None]
    nothing = torch.full_like(objective.loss, torch.nan, dtype=torch.float64)
    limits = log_negatives(method, objective, world_size())
    terms = {name: nothing if each.skipped else each.loss.double() for name, each in objective.terms.items()}
    bounds = [limits[name] - loss if name in limits else nothing for name, loss in terms.items()]
    return torch.stack([objective.loss.double(), *terms.values(), *bounds]).detach()
