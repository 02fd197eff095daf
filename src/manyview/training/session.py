"""The training loop, read top to bottom."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from manyview.config.config import Config
from manyview.core import distributed
from manyview.core.atomic import naming_full_disk
from manyview.core.distributed import Agreed, Agreement
from manyview.core.rng import key
from manyview.core.sample import Batch, Views
from manyview.data import Loader
from manyview.diagnose.measures import measure_step
from manyview.features.embedding_pass import channels_last
from manyview.methods import BatchOutputs
from manyview.training import messages, signals
from manyview.training.engine import Trainer
from manyview.training.failures import Interrupted, diverged
from manyview.training.load import save
from manyview.training.monitor import Monitor
from manyview.training.optimizers import Schedule
from manyview.training.run import RunFolder, encoder_file, resume_command
from manyview.training.state import RunState
from manyview.training.step import NotFinite, logged_losses


@dataclass
class Session:
    """A run in training: its networks, its data, its progress, and its monitor."""

    config: Config
    trainer: Trainer
    schedule: Schedule
    loader: Loader
    state: RunState
    folder: RunFolder
    monitor: Monitor | None  # of the first process alone
    signals: signals.Signals

    def steps(self, count: int) -> None:
        """Trains for so many more steps, whatever the settings say."""
        self.state.total = self.state.step + count
        self.loop()

    def loop(self) -> None:
        """Trains all steps that are left. A failure or signal in one process ends all of them before the next step."""
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
        """Takes one step: gradient, optimiser, memories, momentum towers; then logging, scoring and saving if due."""
        state, monitor, method = self.state, self.monitor, self.trainer.method
        torch.manual_seed(int(key(self.config.seed, state.step, distributed.rank())))  # for encoders that draw: dropout
        report, lr = state.report_due, state.lr(self.schedule)
        try:
            output = self.trainer.gradient(partial(_views, batch), self._unembedded(batch, agreed))
        except NotFinite as error:
            raise self._diverged(str(error), batch) from None
        norm = self.trainer.step(lr, state.step, measure=report, done=state.step / state.planned)
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

    def finish(self) -> None:
        """Writes the encoders, and reports the outcome of the run."""
        assert self.monitor is not None
        path, log = self.folder.path, self.monitor.log
        go_on = f"the run is saved; free some space and: {resume_command(self.config, distributed.world_size())}"
        inputs, method = self.monitor.inputs, self.trainer.method
        for view in method.towers.encoders:
            with naming_full_disk(file := path / encoder_file(view), lambda: go_on):
                save(method, view, file, inputs.get(view) or next(iter(inputs.values())))
        for line in messages.unreadable(self.loader):
            log.warn(line)
        for line in messages.conclusion(self.state, path):
            log.say(line)

    def _batches(self, batches: Iterator[Batch], agreement: Agreement) -> Iterator[tuple[Batch, Agreed]]:
        """Yields the batches of an epoch, each with the one status word of its step."""
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
        """Returns all that terms and memories know of a batch, before its outputs."""
        counts = agreed.counts if distributed.world_size() > 1 else ()
        state = self.state
        return BatchOutputs({}, batch.ids, batch.index, batch.present, counts, state.step, state.progress, batch.labels)

    def _check(self, batch: Batch, *, weights: bool = False) -> None:
        """Ends the run if a loss is not finite, or one of the weights that are about to be scored or saved."""
        if (loss := self.state.diverged) is not None:
            raise self._diverged(f"the loss is {loss}", batch)
        if weights and not all(bool(torch.isfinite(each).all()) for each in self.trainer.method.towers.trained()):
            raise self._diverged("a weight is NaN or infinite", batch)

    def _diverged(self, why: str, batch: Batch) -> Exception:
        return diverged(why, self.config, self.state.step, batch, self.trainer.method, self.folder.path)

    def _save(self, batch: Batch) -> None:
        """Saves the run, once the losses of all processes are known."""
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


def _views(batch: Batch, rows: slice) -> Views:
    return {name: [channels_last(each) for each in copies] for name, copies in batch.views(rows).items()}
