"""The failures that end a run, each reported in one line that says what to do."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from manyview.config.config import Config
from manyview.core import distributed
from manyview.core.atomic import atomic_write, naming_full_disk
from manyview.core.errors import UserError, is_memory
from manyview.core.sample import Batch
from manyview.core.text import reason
from manyview.data.workers import lost_worker, usual_workers
from manyview.diagnose.health import AGAIN
from manyview.methods import Method

NO_PEER = re.compile("gloo|nccl|by peer|socketPoll|TCPStore|waiting for clients", re.IGNORECASE)
LOW = 0.02  # a temperature that makes logits of 50 and more


class Interrupted(KeyboardInterrupt):
    """A signal came, whose number this holds; the run is saved and can be resumed."""

    @property
    def exit_code(self) -> int:
        return 128 + int(self.args[0] if self.args else signal.SIGTERM)  # as shells count


class Diverged(UserError):
    """The loss or a weight is NaN or infinite."""

    exit_code = 1  # nothing was wrong with what was given


class OutOfMemory(UserError):
    """The machine's memory is full, or a worker was killed for it."""

    exit_code = 1


class LostProcess(UserError):
    """Another process of the run has ended."""

    exit_code = 1


def diverged(why: str, config: Config, step: int, batch: Batch, method: Method, folder: Path) -> Diverged:
    """Makes the error of a run whose loss or weights are not finite, and writes batch and state to a file."""
    path = folder / f"failed-after-step-{step:09d}-{distributed.rank()}.pt"
    evidence = {"step": step, "ids": batch.ids.cpu(), "index": batch.index.cpu(), "method": method.state_dict()}
    likely = _likely(config, step, method)
    with naming_full_disk(path, lambda: f"{why}; {likely}"), atomic_write(path) as draft, draft.open("wb") as file:
        torch.save(evidence, file)
    return Diverged(None, f"after step {step}: {why}; {likely}. The batch's ids and the state: {path}")


def _likely(config: Config, step: int, method: Method) -> str:
    """Lists the usual causes of a loss that is not finite, the likeliest first."""
    asked = [term.option("temperature") for term in method.terms]
    temperature = min((float(each) for each in asked if each is not None), default=None)
    if config.precision == "fp16":
        return f"likely the precision: {AGAIN} with --precision bf16 or fp32"
    if temperature is not None and temperature < LOW:
        return f"likely the temperature {temperature:g}, which is very low: {AGAIN} with --loss.temperature 0.1"
    if step == 0:
        return "likely the data or the weights it began with, since nothing has been learnt yet"
    rate = config.optimizer["lr"]
    return f"likely the learning rate {rate:g}: {AGAIN} with --lr {rate / 3:.2g}, or with --grad-clip 1"


@contextmanager
def naming_misfit(folder: Path) -> Iterator[None]:
    """Reports in one line that a checkpoint is intact but does not fit this run."""
    try:
        yield
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
        if is_memory(error):
            raise
        misfit = f"the last checkpoint in {folder} does not fit this run: {reason(error)[:200]}"
        raise UserError(None, f"{misfit}; delete it, and the same command goes on from the one before") from None


@contextmanager
def naming_failures(config: Config) -> Iterator[None]:
    """Reports in one line that the memory is full or that a worker or process has ended; other errors pass."""
    try:
        yield
    except (RuntimeError, MemoryError, OSError, EOFError) as error:
        if lost_worker(error):
            fewer = (usual_workers() if config.workers is None else config.workers) // 2
            why = "a worker that reads images was killed, likely for lack of memory"
            raise OutOfMemory(None, f"{why}; the same command with --workers {fewer} goes on") from None
        if isinstance(error, torch.cuda.OutOfMemoryError):
            less = "which takes less and gives the same gradient, or a smaller --batch-size"
            raise OutOfMemory(None, f"the GPU's memory is full; {AGAIN} with --micro-batch 64, {less}") from None
        if is_memory(error):
            other = f"{AGAIN} with --micro-batch 64 if it never is enough"
            raise OutOfMemory(None, f"the memory is full; free some, and the same command goes on; {other}") from None
        if int(os.environ.get("WORLD_SIZE", "1")) > 1 and NO_PEER.search(str(error)):
            lost = f"another process of this run has ended, or has not answered in {config.wait_minutes:g} minutes"
            again = "the same command goes on from the last checkpoint; --wait-minutes has more patience"
            raise LostProcess(None, f"{lost}; {again}") from None
        raise
