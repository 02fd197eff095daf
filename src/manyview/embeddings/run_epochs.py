"""The epochs of a run that can be loaded: its beginning, its snapshots and its end, and the method at each."""

from __future__ import annotations

from pathlib import Path

import torch

from manyview.config.config import Config
from manyview.core.errors import UserError
from manyview.methods import Method
from manyview.training import build
from manyview.training.checkpoint import EPOCH, State, read
from manyview.training.run import CHECKPOINTS, Run, checkpoints


def epochs(run: Run) -> list[int]:
    """Lists the epochs that can be loaded: 0 before training, the snapshots, and that of the last checkpoint."""
    return sorted({0, *_snapshot_files(run), _epoch(_last(run), run.config)})


def method_of(run: Run, epoch: int | None = None) -> Method:
    """Loads the method after an epoch (see `epochs`), or of the last checkpoint, in eval mode on the CPU."""
    config, state = run.config, _state(run, epoch)
    with torch.random.fork_rng():  # a method is drawn from its seed, which is no business of who loads one
        method = build.method(config, state["channels"], state["data"][0], begun=epoch != 0)
    if epoch != 0:
        method.load_state_dict(state["method"])
    return method.eval().requires_grad_(False)


def _state(run: Run, epoch: int | None) -> State:
    files = _snapshot_files(run)
    if epoch is not None and epoch in files:
        return read(files[epoch])
    last = _last(run)
    if epoch not in (None, 0, _epoch(last, run.config)):
        there = ", ".join(map(str, epochs(run)))
        raise UserError("epoch", f"{run.folder} has {there}, not {epoch}; a run keeps those of --snapshots")
    return last


def _last(run: Run) -> State:
    found = checkpoints(run.folder).latest()
    if found is None:
        raise UserError("run", f"{run.folder} has no checkpoint; its encoder alone can still embed (embed_model)")
    return found[0]


def _snapshot_files(run: Run) -> dict[int, Path]:
    files = (run.folder / CHECKPOINTS).glob("*")
    return {int(match[1]): file for file in files if (match := EPOCH.fullmatch(file.name))}


def _epoch(state: State, config: Config) -> int:
    """Computes the epoch of a checkpoint, counting one that is not complete."""
    images, step = int(state["data"][0]), int(state["state"]["step"])
    return -(-step // max(1, images // config.batch_size))
