"""The training of a task: a loop that can be killed at any step, and goes on to the same weights."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from manyview.core.distributed import Agreement, average_over_processes_, exchange, rank, world_size
from manyview.core.errors import UserError
from manyview.core.lock import locked
from manyview.core.rng import key
from manyview.encoders import sync_batch_norm
from manyview.encoders.synchronised import synchronise
from manyview.training import signals
from manyview.training.checkpoint import Checkpoints, State
from manyview.training.failures import Interrupted
from manyview.training.run_log import RunLog

SECONDS = 30.0  # between two checkpoints
EVERY = 10  # steps, the first and the last of which are logged
MODEL = "model.safetensors"  # the trained model's file
STATE = ("step", "model", "optimizer")


@dataclass(frozen=True, eq=False)
class Training:
    """A model, what it learns from, and how it is scored.

    model      all of it, with what is frozen
    optimizer  of what is trained in it; the learning rate of a group is multiplied with `factor`
    steps      how many there are
    per_epoch  how many of them are an epoch
    batches    (epoch, start) -> the batches of an epoch from the one numbered `start`, the same ones whenever asked; of
               several processes each has its share of them
    losses     of a batch, by name; their sum is minimised
    score      of the trained model, by name in the order they are to be shown
    factor     epochs done -> what the learning rates are multiplied with
    clip       the longest gradient; None for any
    write      writes into a folder, once it is scored, what else is to be kept beside the model
    weight     of a batch: how many things its losses are the mean of, by which those of processes are weighed; without,
               they count alike
    onnx       writes the model as ONNX into a file
    remarks    what is to be told of the data once it was trained on and scored, a line each
    """

    model: nn.Module
    optimizer: Optimizer
    steps: int
    per_epoch: int
    batches: Callable[[int, int], Iterable[Any]]
    losses: Callable[[Any], Mapping[str, Tensor]]
    score: Callable[[], Mapping[str, float]]
    factor: Callable[[float], float] = lambda epochs: 1.0
    clip: float | None = None
    write: Callable[[Path], object] = lambda folder: None
    weight: Callable[[Any], float] = lambda batch: 1.0
    onnx: Callable[[Path], object] = lambda path: None
    remarks: Callable[[], Sequence[str]] = tuple


def fit(training: Training, folder: Path, *, seed: int = 0, text: str = "", quiet: bool = True) -> None:
    """Trains a model in place, from where it was left in this folder.

    text  what is trained, beside the progress

    The folder gets metrics.jsonl and the newest two checkpoints. Random numbers that a model draws depend on the seed,
    the step and the process alone, so that a training which was killed ends with the same weights to the bit.

    Of several processes each learns from its share of a batch, batch norm sees all of it, and the first one writes.
    """
    first = rank() == 0
    checkpoints = Checkpoints(folder, flaw=_flaw)
    if world_size() > 1:
        on_gpu = next(training.model.parameters()).device.type == "cuda"
        (sync_batch_norm if on_gpu else synchronise)(training.model)
    rates = [float(group["lr"]) for group in training.optimizer.param_groups]
    begun = _restore(training, checkpoints)
    devices = sorted({each.device.index for each in training.model.parameters() if each.device.type == "cuda"})
    agreement = Agreement()
    with (
        locked(folder) if first else nullcontext(),
        torch.random.fork_rng(devices),
        signals.collected(quiet=quiet or not first, speaks=first) as asked,
        RunLog(folder, steps=training.steps, start=begun, quiet=quiet) if first else nullcontext() as log,
    ):
        saved = time.monotonic()
        training.model.train()
        for step, batch in _batches(training, begun):
            torch.manual_seed(int(key(seed, step) if world_size() == 1 else key(seed, step, rank())))
            losses = _step(training, batch, step, rates)
            done, stop = step + 1, agreement.settle(stop=bool(asked.came)).stop
            if log is not None:
                if done % EVERY in (0, 1) or done == training.steps:
                    log.write(done, losses, epoch=step // training.per_epoch + 1)
                log.show(done, f"{text}  loss {losses['loss']:.3f}")
                if stop or time.monotonic() - saved >= SECONDS or done == training.steps:
                    log.sync()
                    checkpoints.save(_state(training, done), done)
                    saved = time.monotonic()
            if stop and done < training.steps:
                if log is not None:
                    log.warn(f"stopped after step {done} of {training.steps} and saved; the same command goes on")
                raise Interrupted(*(asked.came[:1] or [signal.SIGTERM]))


def _step(training: Training, batch: Any, step: int, rates: list[float]) -> dict[str, float]:
    """Takes one step, and gives the losses by name; `loss` is their sum."""
    optimizer, factor = training.optimizer, training.factor(step / training.per_epoch)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate * factor
    parts = training.losses(batch)
    loss, share = torch.stack(list(parts.values())).sum(), _share(training, batch)
    found = _means({name: float(each.detach()) * share for name, each in {"loss": loss, **parts}.items()})
    total = found.pop("loss")
    if not math.isfinite(total):
        named = " and ".join(f"{rate:g}" for rate in dict.fromkeys(rates))
        raise UserError("lr", f"with {named} the loss is {total} after {step} steps; give a lower one")
    optimizer.zero_grad()
    (loss * share).backward()
    learnt = [each for group in optimizer.param_groups for each in group["params"] if each.requires_grad]
    _average_gradients(learnt)
    if training.clip is not None:
        nn.utils.clip_grad_norm_(learnt, training.clip)
    optimizer.step()
    return {"loss": total, **(found if len(found) > 1 else {})}


def _share(training: Training, batch: Any) -> float:
    """What this process's loss is multiplied with, so that the mean over processes is the whole batch's loss."""
    if world_size() == 1:
        return 1.0
    own = training.weight(batch)
    total = sum(each for (each,) in exchange([own]))
    return own * world_size() / total if total else 1.0


def _means(found: dict[str, float]) -> dict[str, float]:
    """The means over the processes, by name."""
    rows = exchange(list(found.values()))
    return {name: sum(each) / len(rows) for name, each in zip(found, zip(*rows, strict=True), strict=True)}


def _average_gradients(parameters: list[nn.Parameter]) -> None:
    """Gives all processes the mean of their gradients; what none of them has used keeps none."""
    if world_size() == 1:
        return
    used = exchange([float(each.grad is not None) for each in parameters])
    needed = [each for each, some in zip(parameters, zip(*used, strict=True), strict=True) if any(some)]
    for each in needed:
        each.grad = torch.zeros_like(each) if each.grad is None else each.grad
    average_over_processes_([each.grad for each in needed if each.grad is not None])


def _batches(training: Training, begun: int) -> Iterator[tuple[int, Any]]:
    """Batches with the number of their step, from a step on."""
    step = begun
    while step < training.steps:
        epoch, start = divmod(step, training.per_epoch)
        for batch in training.batches(epoch, start):
            yield step, batch
            step += 1
            if step == training.steps:
                return


def _state(training: Training, step: int) -> State:
    return {"step": step, "model": training.model.state_dict(), "optimizer": training.optimizer.state_dict()}


def _restore(training: Training, checkpoints: Checkpoints) -> int:
    """Brings model and optimiser to where they were left, and tells after which step that was."""
    found = checkpoints.latest()
    if found is None:
        return 0
    state = found[0]
    training.model.load_state_dict(state["model"])
    training.optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def _flaw(state: State, file: Path) -> str | None:
    lacking = [name for name in STATE if name not in state]
    return f"has no {', '.join(lacking)}" if lacking else None
