"""The training of a task: a loop that can be killed at any step, and goes on to the same weights."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from manyview.core.errors import UserError
from manyview.core.lock import locked
from manyview.core.rng import key
from manyview.training import signals
from manyview.training.checkpoint import Checkpoints, State
from manyview.training.failures import Interrupted
from manyview.training.run_log import RunLog

SECONDS = 30.0  # between two checkpoints
EVERY = 10  # steps, the first and the last of which are logged
STATE = ("step", "model", "optimizer")


@dataclass(frozen=True, eq=False)
class Training:
    """A model, what it learns from, and how it is scored.

    model      all of it, with what is frozen
    optimizer  of what is trained in it; the learning rate of a group is multiplied with `factor`
    steps      how many there are
    per_epoch  how many of them are an epoch
    batches    (epoch, start) -> the batches of an epoch from the one numbered `start`, the same ones whenever asked
    losses     of a batch, by name; their sum is minimised
    score      of the trained model, by name in the order they are to be shown
    factor     epochs done -> what the learning rates are multiplied with
    clip       the longest gradient; None for any
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


def fit(training: Training, folder: Path, *, seed: int = 0, text: str = "", quiet: bool = True) -> None:
    """Trains a model in place, from where it was left in this folder.

    text  what is trained, beside the progress

    The folder gets metrics.jsonl and the newest two checkpoints. Random numbers that a model draws depend on the seed
    and the step alone, so that a training which was killed ends with the same weights to the bit.
    """
    checkpoints = Checkpoints(folder, flaw=_flaw)
    rates = [float(group["lr"]) for group in training.optimizer.param_groups]
    begun = _restore(training, checkpoints)
    devices = sorted({each.device.index for each in training.model.parameters() if each.device.type == "cuda"})
    with (
        locked(folder),
        torch.random.fork_rng(devices),
        signals.collected(quiet=quiet) as asked,
        RunLog(folder, steps=training.steps, start=begun, quiet=quiet) as log,
    ):
        saved = time.monotonic()
        training.model.train()
        for step, batch in _batches(training, begun):
            torch.manual_seed(int(key(seed, step)))
            losses = _step(training, batch, step, rates)
            done = step + 1
            if done % EVERY in (0, 1) or done == training.steps:
                log.write(done, losses, epoch=step // training.per_epoch + 1)
            log.show(done, f"{text}  loss {losses['loss']:.3f}")
            if asked.came or time.monotonic() - saved >= SECONDS or done == training.steps:
                log.sync()
                checkpoints.save(_state(training, done), done)
                saved = time.monotonic()
            if asked.came and done < training.steps:
                log.warn(f"stopped after step {done} of {training.steps} and saved; the same command goes on")
                raise Interrupted(*asked.came[:1])


def _step(training: Training, batch: Any, step: int, rates: list[float]) -> dict[str, float]:
    """Takes one step, and gives the losses by name; `loss` is their sum."""
    optimizer, factor = training.optimizer, training.factor(step / training.per_epoch)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate * factor
    parts = training.losses(batch)
    loss = torch.stack(list(parts.values())).sum()
    found = {name: float(each.detach()) for name, each in parts.items()}
    if not math.isfinite(total := float(loss.detach())):
        named = " and ".join(f"{rate:g}" for rate in dict.fromkeys(rates))
        raise UserError("lr", f"with {named} the loss is {total} after {step} steps; give a lower one")
    optimizer.zero_grad()
    loss.backward()
    if training.clip is not None:
        nn.utils.clip_grad_norm_([each for group in optimizer.param_groups for each in group["params"]], training.clip)
    optimizer.step()
    return {"loss": total, **(found if len(found) > 1 else {})}


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
