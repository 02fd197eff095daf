"""The training loop, read top to bottom."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from manyview import encoders
from manyview.config.config import Config
from manyview.core import distributed
from manyview.core.atomic import naming_full_disk
from manyview.core.distributed import Agreed, Agreement, fail_together
from manyview.core.rng import key
from manyview.core.sample import Batch, Views
from manyview.data import Dataset, Loader
from manyview.methods import BatchOutputs
from manyview.methods.method import Objective
from manyview.training import build, messages, signals
from manyview.training.engine import Trainer, check_groups, start_fabric
from manyview.training.failures import Interrupted, diverged, naming_full_memory
from manyview.training.folder import ANEW, RunFolder, resume_command
from manyview.training.monitor import Monitor, new_state, progress
from manyview.training.run import CONFIG, REPORT, Run, encoder_file
from manyview.training.run_log import RunLog
from manyview.training.schedules import Schedule
from manyview.training.state import RunState
from manyview.training.step import NotFinite


def train(config: Config, own: Dataset | None = None) -> Run:
    """Trains as the settings say, or goes on with what was begun. The run's folder holds everything.

    own: a data set of your own, instead of the one that the settings name.
    """
    fabric = start_fabric(config)
    data = _data(config, own)
    with fail_together():
        config = build.settled(config, data)
        folder = RunFolder(config, data)
        complete = folder.complete()
    if complete:
        if distributed.rank() == 0:
            _say_complete(config, folder.path, own)
        return Run(folder.path)
    with ExitStack() as stack:
        with fail_together():  # the folder belongs to one run, and to one process at a time
            if distributed.rank() == 0:
                stack.enter_context(folder.claimed())
        stack.enter_context(naming_full_memory(config))
        session = _session(fabric, config, data, folder, stack)
        session.stop = stack.enter_context(signals.collected(quiet=config.quiet or distributed.rank() > 0))
        session.loop()
        with fail_together():
            if session.monitor is not None:
                session.finish(own)
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
    stop: list[int]

    def loop(self) -> None:
        """All steps that are left. What ends one process ends all of them, at the beginning of a step."""
        state, agreement = self.state, Agreement()
        while not state.done:
            epoch, start = divmod(state.step, len(self.loader))
            for batch, agreed in self._batches(self.loader.epoch(epoch, start=start), agreement):
                if agreed.stop or agreed.save:
                    self._save(batch, agreement)
                if agreed.stop:
                    self._interrupt(agreement)
                self._step(batch, agreed, agreement)
                if state.done:
                    break
        agreement.settle()

    def _step(self, batch: Batch, agreed: Agreed, agreement: Agreement) -> None:
        """One step: gradient, optimiser, memories and momentum towers; then what is due beside it."""
        config, state, monitor = self.config, self.state, self.monitor
        torch.manual_seed(int(key(config.seed, state.step, distributed.rank())))  # for encoders that draw: dropout
        report, lr = _report_due(config, state), _rate(config, state, self.schedule)
        try:
            output = self.trainer.gradient(partial(_views, batch), self._unembedded(batch, agreed))
        except NotFinite as error:
            raise diverged(str(error), config, state.step, batch, self.trainer.method, self.folder.path) from None
        norm = self.trainer.step(lr, measure=report)
        measured = monitor.measures(output.objective) if monitor is not None and report else {}
        self.trainer.method.update(output.batch, state.step, state.planned)  # from here on keys are no more the step's
        state.stepped(_losses(output.objective))
        if monitor is not None:
            state.seconds += monitor.clock.lap()
        save = state.epoch_over or state.done or _save_due(config, state)
        if report or save:
            state.settle_losses()
        with agreement.attempt():
            self._check_losses(batch)
            losses = state.mean_losses() if report else []
            if monitor is not None:
                score = bool(monitor.evaluators) and _score_due(config, state)
                if score or save:
                    monitor.check(batch)
                if score:
                    monitor.score()
                    monitor.clock.lap()  # scoring and saving are no part of the training's time
                if report:
                    monitor.report(losses, measured, batch, norm, lr)
                    state.seconds += monitor.clock.lap()
                monitor.show()
                if save:
                    monitor.save(self._networks())
                monitor.clock.lap()

    def finish(self, own: Dataset | None) -> None:
        """Writes the encoders, and a page about the run."""
        assert self.monitor is not None
        config, path, log = self.config, self.folder.path, self.monitor.log
        go_on = f"the run is saved; free some space and: {resume_command(config, distributed.world_size())}"
        for view, encoder in self.trainer.method.towers.encoders.items():
            file = path / encoder_file(view)
            with naming_full_disk(file, lambda: go_on):
                encoders.save(encoder, file, picture=_statistics(config, self.monitor.data, view))
        for line in messages.unreadable(self.loader):
            log.warn(line)
        for line in messages.conclusion(config, self.monitor.data, self.state, path):
            log.say(line)
        _page(config, path, own, say=log.say, warn=log.warn)

    def _batches(self, batches: Iterator[Batch], agreement: Agreement) -> Iterator[tuple[Batch, Agreed]]:
        """The batches of an epoch, each with the one status word of its step."""
        while True:
            batch = None
            with agreement.attempt():
                batch = next(batches, None)
            if batch is None and not agreement.failed:
                return
            save = self.monitor is not None and self.monitor.save_due
            agreed = agreement.settle(stop=bool(self.stop), save=save, rows=0 if batch is None else len(batch))
            assert batch is not None
            yield batch, agreed

    def _unembedded(self, batch: Batch, agreed: Agreed) -> BatchOutputs:
        """All that terms and memories are told of a batch but the outputs."""
        counts = agreed.counts if distributed.world_size() > 1 else ()
        done = progress(self.config, self.state)
        return BatchOutputs({}, batch.ids, batch.index, batch.present, counts, self.state.step, done)

    def _check_losses(self, batch: Batch) -> None:
        """Ends the run where a loss was no number."""
        if (loss := self.state.diverged) is not None:
            method, path = self.trainer.method, self.folder.path
            raise diverged(f"the loss is {loss}", self.config, self.state.step, batch, method, path)

    def _save(self, batch: Batch, agreement: Agreement) -> None:
        """Saves what was done before this step."""
        self.state.settle_losses()
        with agreement.attempt():
            self._check_losses(batch)
            if self.monitor is not None:
                self.state.seconds += self.monitor.clock.lap()
                self.monitor.check(batch)
                self.monitor.save(self._networks())
                self.monitor.clock.lap()

    def _interrupt(self, agreement: Agreement) -> None:
        agreement.settle()
        if self.monitor is not None:
            go_on = resume_command(self.config, distributed.world_size())
            done = f"stopped after step {self.state.step} of {self.state.total} and saved"
            self.monitor.log.warn(f"{done}. To go on: {go_on}")
        raise Interrupted(*self.stop[:1])

    def _networks(self) -> dict[str, Any]:
        return {**self.trainer.state_dict(), "world": distributed.world_size()}


def _session(fabric: Any, config: Config, data: build.RunData, folder: RunFolder, stack: ExitStack) -> Session:
    """Networks, optimiser, images and log, as they were when the run was left."""
    rank, world = distributed.rank(), distributed.world_size()
    saved = folder.saved()
    with fail_together():
        method = build.method(config, data.channels, len(data.train), begun=saved is not None)
        check_groups(method, config, world)
        loader = Loader(
            data.train, build.pipeline(config, data.views, method), config.batch_size, seed=config.seed,
            device=fabric.device, rank=rank, world=world, workers=config.workers, max_unreadable=config.max_unreadable,
        )  # fmt: skip
    trainer = Trainer(fabric, config, method)  # in which processes wait for one another
    state = new_state(config, method, len(loader))
    changed = [ANEW] if (folder.path / CONFIG).is_file() else []
    if saved is not None:
        state.load_state_dict(saved["state"])
        trainer.load_state_dict(saved)
        changed = _changed(saved, config, loader)
        if rank == 0:
            loader.unreadable |= saved["unreadable"]
    monitor = None
    with fail_together():
        if rank == 0:
            folder.write_settings()
            log = stack.enter_context(
                RunLog(folder.path, steps=state.total, start=state.step, loggers=config.loggers, quiet=config.quiet)
            )
            monitor = Monitor(folder, data, method, loader, state, log)
            damaged = [f"passed over a checkpoint: {line}" for line in folder.checkpoints.damaged]
            monitor.begin([*damaged, *changed, *messages.cautions(config, data, loader, method, world)])
    return Session(config, trainer, build.schedule(config), loader, state, folder, monitor, [])


def _data(config: Config, own: Dataset | None) -> build.RunData:
    """The data. What is downloaded, one process of a machine fetches before the others look."""
    first = not config.data.get("download") or int(os.environ.get("LOCAL_RANK", "0")) == 0
    with fail_together():
        found = build.data(config, own) if first else None
    with fail_together():
        return found or build.data(config, own)


def _changed(saved: dict[str, Any], config: Config, loader: Loader) -> list[str]:
    """What is no longer as it was when the run was left."""
    changed, world = [], distributed.world_size()
    if (then := saved["world"]) != world:
        before = f"as before: {resume_command(config, then)}"
        changed.append(f"processes: {then} so far, {world} now, which batch norm can tell; {before}")
    if saved["at_once"] != loader.at_once:
        where = "in memory" if loader.at_once else "too large for the memory"
        changed.append(f"the images are {where}, unlike before: their views are rounded otherwise from here on")
    return changed


def _losses(objective: Objective) -> torch.Tensor:
    """(1 + terms,): the loss, and where there are several terms theirs."""
    terms = [each.loss for each in objective.terms.values()] if len(objective.terms) > 1 else []
    return torch.stack([objective.loss, *terms]).detach()


def _views(batch: Batch, rows: slice) -> Views:
    layout = torch.channels_last
    return {
        name: [each.contiguous(memory_format=layout) for each in copies] for name, copies in batch.views(rows).items()
    }


def _rate(config: Config, state: RunState, schedule: Schedule) -> float:
    """The learning rate of the step that is being done."""
    warmup, epochs = config.schedule["warmup"], state.epochs
    if config.schedule["per"] == "epoch" and epochs >= warmup:  # a warm-up rises with every step
        epochs = max(state.step // state.per_epoch, warmup)
    rate: float = config.optimizer["lr"] * schedule(epochs, config.epochs)
    return rate


def _report_due(config: Config, state: RunState) -> bool:
    """Whether the step that is being done is reported; the first tells what later ones are compared with."""
    return state.step == 0 or (state.step + 1) % config.health_every == 0 or state.step + 1 == state.total


def _score_due(config: Config, state: RunState) -> bool:
    return state.done or (state.epoch_over and round(state.epochs) % config.evaluate_every == 0)


def _save_due(config: Config, state: RunState) -> bool:
    return config.checkpoint_steps is not None and state.step % config.checkpoint_steps == 0


def _statistics(config: Config, data: build.RunData, view: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std that a view is normalised with."""
    found = data.views.get(view) or next(iter(data.views.values()))
    return found.statistics(build.picture(config))


def _say_complete(config: Config, folder: Path, own: Dataset | None) -> None:
    say = messages.unless_quiet(config)
    say(messages.complete(folder))
    if not (folder / REPORT).is_file():  # killed while it was being written
        _page(config, folder, own, say=say, warn=say)


def _page(config: Config, folder: Path, own: Dataset | None, *, say: messages.Say, warn: messages.Say) -> None:
    if config.report:
        from manyview.report.page import after_training  # takes a second to import

        after_training(Run(folder), own=own, say=say, warn=warn)
