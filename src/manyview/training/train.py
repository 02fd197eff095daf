"""Trains a run from its beginning, or from where it was left, to its end."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from manyview.config.component import component
from manyview.config.config import Config
from manyview.core import distributed
from manyview.core.distributed import fail_together
from manyview.data import Dataset, Loader
from manyview.data.selection import having
from manyview.encoders import Towers
from manyview.training import build, messages, pipelines, rehearsal, run_data, settle, signals
from manyview.training.batches import check_groups, check_images, check_labels, epoch_of
from manyview.training.engine import Trainer, groups_are_processes, start_fabric
from manyview.training.failures import naming_misfit
from manyview.training.monitor import Monitor
from manyview.training.run import ANEW, CONFIG, REPORT, Run, RunFolder, as_begun, resume_command
from manyview.training.run_data import RunData
from manyview.training.run_log import RunLog
from manyview.training.session import Session
from manyview.training.state import RunState
from manyview.training.time_budget import embedding_seconds


def train(config: Config, own: Dataset | None = None, began: float | None = None) -> Run:
    """Trains a run with these settings, or resumes it. The run's folder holds everything.

    own    a data set of your own, instead of the one that the settings name
    began  when the command was given, by `time.monotonic`, from which its minutes count; by default now
    """
    began = time.monotonic() if began is None else began
    start_fabric(config)
    data = _data(config, own)
    with fail_together():
        config = as_begun(settle.settled(config, data), len(data.views))
    config = _agreed(config)
    fabric = start_fabric(config)  # of the precision that was chosen
    with fail_together():
        folder = RunFolder(config, data)
        complete = folder.complete()
    if complete:
        if distributed.rank() == 0:
            _tell_complete(config, folder.path, own)
        return Run(folder.path)
    with ExitStack() as stack:
        with fail_together():  # the folder belongs to one run, and to one process at a time
            if distributed.rank() == 0:
                stack.enter_context(folder.claimed())
        if "epochs" in config.auto:
            rehearse = partial(_unwatched, fabric, data, folder)
            folder.config, _rehearsed = rehearsal.chosen(config, data, folder.path, began, rehearse)
        session = _session(fabric, data, folder, stack)  # takes over what `_rehearsed` has decoded
        first = distributed.rank() == 0
        session.signals = stack.enter_context(signals.collected(quiet=config.quiet or not first, speaks=first))
        session.loop()
        with fail_together():
            if session.monitor is not None:
                session.finish()
                log, timed = session.monitor.log, "epochs" in folder.config.auto  # in this sitting, from its beginning
                seconds = embedding_seconds(folder.config, time.monotonic() - began) if timed else None
                _page(folder.config, folder.path, own, say=log.say, warn=log.warn, seconds=seconds)
    return Run(folder.path)


def _tell_complete(config: Config, folder: Path, own: Dataset | None) -> None:
    """Reports that nothing is left to do, and writes the page if the run was killed before it was written."""
    say: messages.Say = (lambda text: None) if config.quiet else print
    say(f"{folder} is complete; nothing is left to do. Its {messages.encoders(folder)}")
    if not (folder / REPORT).is_file():
        _page(config, folder, own, say=say, warn=say, seconds=None)


def _unwatched(
    fabric: Any,
    data: RunData,
    folder: RunFolder,
    config: Config,
    *,
    begun: bool = False,
) -> Session:
    """Sets up networks, optimiser and data at the beginning of a run, without a monitor."""
    rank, world = distributed.rank(), distributed.world_size()
    with fail_together():
        there = having(data.train)
        present = {name: there[view.modality] for name, view in data.views.items()}
        method = build.method(config, data.channels, len(data.train), begun=begun, present=present)
        check_groups(method, config, world, len(data.train))
        check_labels(method, data.train)
        if config.grad_checkpoint:
            build.checkpoint_blocks(method)
        loader = Loader(
            data.train, pipelines.training(config, data.views, method), config.batch_size, seed=config.seed,
            device=fabric.device, rank=rank, world=world, workers=config.workers, max_unreadable=config.max_unreadable,
            drop_last=epoch_of(config, len(data.train)).drop_last,
        )  # fmt: skip
    trainer = Trainer(fabric, config, method)  # in which processes wait for one another
    state = RunState.begun(config, method, len(loader))
    return Session(config, trainer, component(config, "schedule"), loader, state, folder, None, signals.Signals())


def _session(fabric: Any, data: RunData, folder: RunFolder, stack: ExitStack) -> Session:
    """Sets up networks, optimiser, data and log as they were when the run was left."""
    rank, world, config = distributed.rank(), distributed.world_size(), folder.config
    saved = folder.saved()
    session = _unwatched(fabric, data, folder, config, begun=saved is not None)
    state, trainer, loader, method = session.state, session.trainer, session.loader, session.trainer.method
    changed = [ANEW] if (folder.path / CONFIG).is_file() else []
    if saved is not None:
        with fail_together(), naming_misfit(folder.checkpoints.folder):
            state.load_state_dict(saved["state"])
            trainer.load_state_dict(saved)
            loader.unreadable |= saved["unreadable"] if rank == 0 else {}
        again = [f"{name} was damaged, and is written again" for name in folder.damaged_encoders]
        changed = [*again, *_changed(saved, config, data, loader, method.towers)]
    with fail_together():
        if rank == 0:
            folder.write_settings()
            log = stack.enter_context(
                RunLog(folder.path, steps=state.total, start=state.step, loggers=config.loggers, quiet=config.quiet)
            )
            session.monitor = monitor = Monitor(folder, data, method, loader, state, log)
            damaged = [f"passed over a checkpoint: {line}" for line in folder.checkpoints.damaged]
            monitor.begin([*damaged, *changed, *messages.cautions(config, data, loader, method, world)])
    return session


def time_step(config: Config) -> float:
    """Times a step with these settings on this machine; nothing is kept of the steps."""
    fabric, data = start_fabric(config), _data(config, None)
    config = settle.settled(config, data)
    session = _unwatched(fabric, data, RunFolder(config, data), config)
    return rehearsal.seconds_a_step(session.steps, rehearsal.COMPARED)


def _agreed(config: Config) -> Config:
    """Chooses fp32 where the precision is left open and some process's machine is slow in bf16."""
    if "precision" not in config.auto or all(fast for (fast,) in distributed.exchange([config.precision == "bf16"])):
        return config
    return settle.with_chosen(config, {"precision": "fp32"})


def _data(config: Config, own: Dataset | None) -> RunData:
    """Opens the data. Downloads are made by one process of a machine before the others open it."""
    first = not config.data.get("download") or int(os.environ.get("LOCAL_RANK", "0")) == 0
    with fail_together():
        found = run_data.open_data(config, own) if first else None
    with fail_together():
        found = found or run_data.open_data(config, own)
        check_images(len(found.train))
    return found


def _changed(saved: dict[str, Any], config: Config, data: RunData, loader: Loader, towers: Towers) -> list[str]:
    """Describes what differs from when the run was left."""
    changed, world = [], distributed.world_size()
    if (then := saved["world"]) != world:
        told = f", which batch norm can tell; as before: {resume_command(config, then)}"
        changed.append(f"processes: {then} so far, {world} now{told * groups_are_processes(towers, loader.device)}")
    if saved["at_once"] != loader.at_once:
        where = "in memory" if loader.at_once else "too large for the memory"
        changed.append(f"the images are {where}, unlike before: their views are rounded otherwise from here on")
    if tuple(saved["data"][3:]) not in ((), data.fingerprint[3:]):
        changed.append("the image files are of another time than before: copies, or others of the same size?")
    return changed


def _page(
    config: Config, folder: Path, own: Dataset | None, *, say: messages.Say, warn: messages.Say, seconds: float | None
) -> None:
    if config.report:
        from manyview.report.page import after_training  # takes a second to import

        after_training(Run(folder), own=own, say=say, warn=warn, seconds=seconds)
