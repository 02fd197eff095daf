"""The training loop, read top to bottom."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from manyview.config.config import Config, component
from manyview.core import distributed
from manyview.core.atomic import naming_full_disk
from manyview.core.distributed import Agreed, Agreement, fail_together
from manyview.core.rng import key
from manyview.core.sample import Batch, Views
from manyview.data import Dataset, Loader
from manyview.data.selection import having
from manyview.diagnose.measures import measure_step
from manyview.encoders import Towers
from manyview.features.embedding_pass import channels_last
from manyview.methods import BatchOutputs
from manyview.training import build, messages, pipelines, rehearsal, run_data, settle, signals
from manyview.training.batches import check_groups, check_images, check_labels, epoch_of
from manyview.training.engine import Trainer, groups_are_processes, start_fabric
from manyview.training.failures import Interrupted, diverged, naming_misfit
from manyview.training.load import save
from manyview.training.monitor import Monitor
from manyview.training.optimizers import Schedule
from manyview.training.run import ANEW, CONFIG, REPORT, Run, RunFolder, as_begun, encoder_file, resume_command
from manyview.training.run_data import RunData
from manyview.training.run_log import RunLog
from manyview.training.state import RunState
from manyview.training.step import NotFinite, logged_losses
from manyview.training.time_budget import embedding_seconds


def train(config: Config, own: Dataset | None = None, began: float | None = None) -> Run:
    """Trains as the settings say, or goes on with what was begun. The run's folder holds everything.

    own    a data set of your own, instead of the one that the settings name
    began  when the command was given, by `time.monotonic`, from which on its minutes count; now unless given
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
            say: messages.Say = (lambda text: None) if config.quiet else print
            say(f"{folder.path} is complete; nothing is left to do. Its {messages.encoders(folder.path)}")
            if not (folder.path / REPORT).is_file():  # killed while it was being written
                _page(config, folder.path, own, say=say, warn=say, seconds=None)
        return Run(folder.path)
    with ExitStack() as stack:
        with fail_together():  # the folder belongs to one run, and to one process at a time
            if distributed.rank() == 0:
                stack.enter_context(folder.claimed())
        decoded = None
        if "epochs" in config.auto:
            rehearse = partial(_unwatched, fabric, data, folder)
            folder.config, decoded = rehearsal.chosen(config, data, folder.path, began, rehearse)
        session = _session(fabric, data, folder, stack, decoded)
        first = distributed.rank() == 0
        session.signals = stack.enter_context(signals.collected(quiet=config.quiet or not first, speaks=first))
        session.loop()
        with fail_together():
            if session.monitor is not None:
                timed = "epochs" in folder.config.auto  # in this sitting, from its beginning
                seconds = embedding_seconds(folder.config, time.monotonic() - began) if timed else None
                session.finish(own, seconds)
    return Run(folder.path)


@dataclass
class Session:
    """A run that is being trained: its networks, its data, where it is, and who watches it."""

    config: Config
    trainer: Trainer
    schedule: Schedule
    loader: Loader
    state: RunState
    folder: RunFolder
    monitor: Monitor | None  # of the first process alone
    signals: signals.Signals

    def steps(self, count: int) -> None:
        """Trains so many steps more, whatever the settings say."""
        self.state.total = self.state.step + count
        self.loop()

    def loop(self) -> None:
        """Trains all steps that are left. What ends one process ends all of them, at the beginning of a step."""
        state, agreement = self.state, Agreement()
        while not state.done:
            epoch, start = divmod(state.step, len(self.loader))
            for batch, agreed in self._batches(self.loader.epoch(epoch, start=start), agreement):
                self.signals.answered = agreed.stop
                if agreed.stop or agreed.save:
                    state.settle_losses()
                    with agreement.attempt():
                        self._save(batch)
                if agreed.stop:
                    self._interrupt(agreement)
                self._step(batch, agreed, agreement)
                self.signals.moved()
                if state.done:
                    break
        agreement.settle()

    def _step(self, batch: Batch, agreed: Agreed, agreement: Agreement) -> None:
        """One step: gradient, optimiser, memories and momentum towers; then what is due beside it."""
        state, monitor, method = self.state, self.monitor, self.trainer.method
        torch.manual_seed(int(key(self.config.seed, state.step, distributed.rank())))  # for encoders that draw: dropout
        report, lr = state.report_due, state.lr(self.schedule)
        try:
            output = self.trainer.gradient(partial(_views, batch), self._unembedded(batch, agreed))
        except NotFinite as error:
            raise self._diverged(str(error), batch) from None
        norm = self.trainer.step(lr, state.step, measure=report)
        measured = measure_step(method, output.objective) if monitor is not None and report else None
        method.update(output.batch, state.step, state.planned)  # from here on keys are no more the step's
        state.stepped(logged_losses(method, output.objective))
        if monitor is not None:
            state.seconds += monitor.lap()
        if report or state.save_due:
            state.settle_losses()
        with agreement.attempt():
            self._check(batch)
            losses = state.mean_losses() if report else []
            if monitor is not None:
                if monitor.evaluators and state.score_due:
                    self._check(batch, weights=True)
                    monitor.score()
                    monitor.lap()  # scoring and saving are no part of the training's time
                if measured is not None:
                    monitor.report(losses, measured, batch, norm, lr)
                monitor.foresee()
                monitor.tell_held()
                monitor.show()
            if state.save_due:
                self._save(batch)

    def finish(self, own: Dataset | None, seconds: float | None = None) -> None:
        """Writes the encoders, and a page about the run, for which images may be embedded for so many seconds."""
        assert self.monitor is not None
        config, path, log = self.config, self.folder.path, self.monitor.log
        go_on = f"the run is saved; free some space and: {resume_command(config, distributed.world_size())}"
        inputs, method = self.monitor.inputs, self.trainer.method
        for view in method.towers.encoders:
            with naming_full_disk(file := path / encoder_file(view), lambda: go_on):
                save(method, view, file, inputs.get(view) or next(iter(inputs.values())))
        for line in messages.unreadable(self.loader):
            log.warn(line)
        for line in messages.conclusion(self.state, path):
            log.say(line)
        _page(config, path, own, say=log.say, warn=log.warn, seconds=seconds)

    def _batches(self, batches: Iterator[Batch], agreement: Agreement) -> Iterator[tuple[Batch, Agreed]]:
        """The batches of an epoch, each with the one status word of its step."""
        while True:
            batch = None
            with agreement.attempt():
                batch = next(batches, None)
            self.signals.moved()
            if batch is None and not agreement.failed:
                return
            save = self.monitor is not None and self.monitor.save_due
            agreed = agreement.settle(stop=bool(self.signals.came), save=save, rows=0 if batch is None else len(batch))
            assert batch is not None
            yield batch, agreed

    def _unembedded(self, batch: Batch, agreed: Agreed) -> BatchOutputs:
        """All that terms and memories are told of a batch but the outputs."""
        counts = agreed.counts if distributed.world_size() > 1 else ()
        state = self.state
        return BatchOutputs({}, batch.ids, batch.index, batch.present, counts, state.step, state.progress, batch.labels)

    def _check(self, batch: Batch, *, weights: bool = False) -> None:
        """Ends the run where a loss is no number, or one of the weights that are about to be scored or saved."""
        if (loss := self.state.diverged) is not None:
            raise self._diverged(f"the loss is {loss}", batch)
        if weights and not all(bool(torch.isfinite(each).all()) for each in self.trainer.method.towers.trained()):
            raise self._diverged("a weight is NaN or infinite", batch)

    def _diverged(self, why: str, batch: Batch) -> Exception:
        return diverged(why, self.config, self.state.step, batch, self.trainer.method, self.folder.path)

    def _save(self, batch: Batch) -> None:
        """Saves what was done so far, once the losses of all processes are known."""
        self._check(batch)
        if self.monitor is not None:
            self.state.seconds += self.monitor.lap()
            self._check(batch, weights=True)
            self.monitor.save(self.trainer.state_dict())
            self.monitor.lap()

    def _interrupt(self, agreement: Agreement) -> None:
        agreement.settle()
        if self.monitor is not None:
            go_on = resume_command(self.config, distributed.world_size())
            done = f"stopped after step {self.state.step} of {self.state.total} and saved"
            self.monitor.log.warn(f"{done}. To go on: {go_on}")
        raise Interrupted(*self.signals.came[:1])


def _unwatched(
    fabric: Any,
    data: RunData,
    folder: RunFolder,
    config: Config,
    decoded: Loader | None,
    *,
    begun: bool = False,
) -> Session:
    """Networks, optimiser and images at the beginning of a run, and nobody who watches."""
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
            drop_last=epoch_of(config, len(data.train)).drop_last, like=decoded,
        )  # fmt: skip
    trainer = Trainer(fabric, config, method)  # in which processes wait for one another
    state = RunState.begun(config, method, len(loader))
    return Session(config, trainer, component(config, "schedule"), loader, state, folder, None, signals.Signals())


def _session(fabric: Any, data: RunData, folder: RunFolder, stack: ExitStack, decoded: Loader | None) -> Session:
    """Networks, optimiser, images and log, as they were when the run was left."""
    rank, world, config = distributed.rank(), distributed.world_size(), folder.config
    saved = folder.saved()
    session = _unwatched(fabric, data, folder, config, decoded, begun=saved is not None)
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
    """Seconds that a step takes with these settings on this machine; of the steps nothing is kept."""
    fabric, data = start_fabric(config), _data(config, None)
    config = settle.settled(config, data)
    session = _unwatched(fabric, data, RunFolder(config, data), config, None)
    return rehearsal.seconds_a_step(session.steps, rehearsal.COMPARED)


def _agreed(config: Config) -> Config:
    """The settings with a precision that all processes' machines are fast in, where nobody gave one."""
    if "precision" not in config.auto or all(fast for (fast,) in distributed.exchange([config.precision == "bf16"])):
        return config
    return settle.with_chosen(config, {"precision": "fp32"})


def _data(config: Config, own: Dataset | None) -> run_data.RunData:
    """The data. What is downloaded, one process of a machine fetches before the others look."""
    first = not config.data.get("download") or int(os.environ.get("LOCAL_RANK", "0")) == 0
    with fail_together():
        found = run_data.open_data(config, own) if first else None
    with fail_together():
        found = found or run_data.open_data(config, own)
        check_images(len(found.train))
    return found


def _changed(saved: dict[str, Any], config: Config, data: RunData, loader: Loader, towers: Towers) -> list[str]:
    """Gives what is no longer as it was when the run was left."""
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


def _views(batch: Batch, rows: slice) -> Views:
    return {name: [channels_last(each) for each in copies] for name, copies in batch.views(rows).items()}


def _page(
    config: Config, folder: Path, own: Dataset | None, *, say: messages.Say, warn: messages.Say, seconds: float | None
) -> None:
    if config.report:
        from manyview.report.page import after_training  # takes a second to import

        after_training(Run(folder), own=own, say=say, warn=warn, seconds=seconds)
