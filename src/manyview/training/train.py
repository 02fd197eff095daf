"""The training loop, read top to bottom. The only file that imports the engine, Lightning Fabric."""

from __future__ import annotations

import logging
import os
import shlex
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.plugins.precision.double import DoublePrecision
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn

from manyview import encoders
from manyview.config.config import Config, differences
from manyview.config.yaml_file import from_yaml, to_yaml
from manyview.core import distributed
from manyview.core.atomic import atomic_write
from manyview.core.errors import UserError
from manyview.core.rng import key
from manyview.data import Batch, Dataset, Loader
from manyview.data.memory import local_processes
from manyview.data.workers import lost_worker, usual_workers
from manyview.diagnose.health import AGAIN, Health
from manyview.diagnose.validation import measured_of, validation
from manyview.losses import COUPLED
from manyview.methods import Method
from manyview.training import build, signals
from manyview.training import messages as tell
from manyview.training import optimizers as optim
from manyview.training.checkpoint import Checkpoints, State, locked, naming_full_disk
from manyview.training.evaluators import Scorer
from manyview.training.run import CHECKPOINTS, CONFIG, ENCODER, REPORT, Run
from manyview.training.run_log import RunLog
from manyview.training.state import Progress
from manyview.training.step import Engine, NotFinite, StepOutput, micro_batches, whole_batch

PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}  # and fp64 is `Double`
FORMAT = 2  # of the state in a checkpoint
SHOWN = 3  # settings that differ
ANEW = "of the run in this folder nothing had been saved yet: it begins anew"
NO_NUMBER = "a weight is NaN or infinite"
VALIDATED = 256  # images kept aside that the loss is asked about, at most
LOW = 0.02  # a temperature that makes logits of 50 and more


class Interrupted(KeyboardInterrupt):
    """A signal came, whose number this holds: the run is saved and can go on."""


class Diverged(UserError):
    """The loss or a weight is NaN or infinite."""


class Double(DoublePrecision):
    """Fabric's double precision, but what comes out of a network stays double, and so the loss is."""

    def convert_output(self, data: Any) -> Any:
        return data


class OutOfMemory(UserError):
    """The machine's memory is full, or has cost a worker its life."""

    exit_code = 1  # of the command line: nothing was wrong with what it was given


def train(config: Config, own: Dataset | None = None) -> Run:
    """Trains as the settings say, or goes on with what was begun. The run's folder holds everything.

    own: a data set of your own, instead of the one that the settings name.
    """
    # The machine: this process, and the others if there are any
    fabric = _fabric(config)
    rank, world, device = fabric.global_rank, fabric.world_size, fabric.device
    together = partial(distributed.fail_together, device)  # what one process refuses, none does

    # The data, and the settings that depend on it
    images = _images(config, own, together)
    with together():
        config = build.settled(config, images)
        folder = Path(config.out or "")
        complete = _complete(folder, config, images)
    if complete:
        if rank == 0:
            tell.complete(folder, config)
            if not (folder / REPORT).is_file():  # killed while it was being written
                _page(config, folder, own, say=tell.unless_quiet(config), warn=tell.unless_quiet(config))
        return Run(folder)

    with ExitStack() as stack:
        # The folder belongs to one run, and to one process at a time
        checkpoints = Checkpoints(folder / CHECKPOINTS)
        with together():
            if rank == 0:
                _lock(folder, stack)
                _check_begun(folder, config)
                checkpoints.tidy()
        with together():
            saved = checkpoints.latest()
        with together():
            _check_saved(saved, folder, images, device)
        stack.enter_context(_naming_full_memory(config))

        # Images, networks, optimiser
        with together():
            method = _method(config, images.channels, fabric, begun=saved is not None)
            views = build.stack(config, method.looks)
            loader = Loader(
                images.train, views, config.batch_size, seed=config.seed, device=device, rank=rank, world=world,
                workers=config.workers, max_broken=config.max_unreadable,
            )  # fmt: skip
            optimizer = build.optimizer(config, method)
        module, stepper = fabric.setup(method, optimizer)
        engine = Engine(method, module, fabric.backward, distributed.gather, partial(fabric.no_backward_sync, module))

        # What was done before
        planned = max(1, round(config.epochs * len(loader)))
        total = min(planned, config.max_steps or planned)
        run = Progress(total, len(loader), Health(coupled=(config.part("loss") or {}).get("name") in COUPLED))
        anew = [ANEW] if (folder / CONFIG).is_file() else []
        changed = anew if saved is None else _resume(saved[0], config, fabric, run, method, optimizer, loader)
        saved = None  # as large as the networks
        save = partial(_save, checkpoints, run, method, optimizer, fabric, loader, images)

        # What is told, and how good the encoder is: by the first process alone
        stop, log, score = stack.enter_context(signals.collected(quiet=config.quiet or rank > 0)), None, None
        with together():
            if rank == 0:
                _write_settings(folder, config)
                log = stack.enter_context(_log(config, folder, run))
                score, validate = _scorer(images, config, device), _validation(images, config, method, device)
                cautions = [*_passed_over(checkpoints), *changed, *tell.cautions(config, images, loader, method, world)]
                tell.introduce(log, config, images, method, run, cautions)
                if score is not None and run.step == 0:
                    run.untrained_knn = run.scored(score(method.towers.encoder()))
                    tell.knn(log, run, validate(progress=_progress(config, run)))
                log.begin()

        # The loop
        clock = Clock()
        while not run.done:
            epoch, start = divmod(run.step, len(loader))
            for batch in _agreed(loader.epoch(epoch, start=start), together):
                torch.manual_seed(int(key(config.seed, run.step, rank)))  # for encoders that draw, such as dropout
                lr = _rate(config, run)
                optim.set_lr(optimizer, lr)
                try:
                    stepped = _forward_backward(engine, config, batch, images.view, run)
                except NotFinite as error:
                    with together():  # the loss is the same in all processes
                        raise _diverged(str(error), config, run, batch, method, folder) from None
                norm = _gradient(fabric, module, stepper, config, run)
                stepper.step()
                stepper.zero_grad()
                report = log is not None and _report_due(config, run)
                measured = measured_of(*stepped.triples[0]) if report else {}  # against what the loss has met
                method.update(stepped.seen, run.step, run.total)
                run.stepped(float(stepped.loss.detach()))
                run.seconds += clock.lap()

                with together():
                    if log is not None:
                        to_score = score is not None and _score_due(config, run)
                        to_save = run.epoch_over or run.done or _save_due(config, run, clock.since_mark())
                        if (to_score or to_save) and not _finite(method):
                            raise _diverged(NO_NUMBER, config, run, batch, method, folder)
                        if score is not None and to_score:
                            run.scored(score(method.towers.encoder()))
                            tell.knn(log, run, validate(progress=_progress(config, run)))
                            clock.lap()  # scoring and saving are no part of the training's time
                        if report:
                            tell.report(log, run, measured, loader, batch.views(tell.FEW)[images.view][0], norm, lr)
                            run.seconds += clock.lap()
                        tell.step(log, run, config.batch_size)
                        if to_save:
                            log.sync()
                            save(snapshot=_snapshot(config, run))
                            clock.mark()
                        clock.lap()
                if run.done:
                    break
                if distributed.any_of(bool(stop), device):
                    with together():
                        if log is not None:
                            if not _finite(method):
                                raise _diverged(NO_NUMBER, config, run, batch, method, folder)
                            log.sync()
                            save()
                            go_on = resume(config, world)
                            log.warn(f"stopped after step {run.step} of {run.total} and saved. To go on: {go_on}")
                    raise Interrupted(*stop[:1])

        # The end
        with together():
            if log is not None:
                go_on = f"the run is saved; free some space and: {resume(config, world)}"
                with naming_full_disk(folder / ENCODER, lambda: go_on):
                    seen = build.picture(config)
                    encoders.save(method.towers.encoder(), folder / ENCODER, picture=(seen.mean, seen.std))
                tell.conclude(log, run, folder, config, images, loader)
                _page(config, folder, own, say=log.say, warn=log.warn)
    return Run(folder)


def resume(config: Config, world: int) -> str:
    """The command that goes on with a run, in as many processes."""
    if config.data["name"] == build.OWN:
        return f"manyview.pretrain(data=..., resume={config.out!r}), with the same data"
    here = local_processes() if world == distributed.world_size() else world
    nodes = "" if here == world else f"--nnodes {world // here} "
    command = "manyview" if world == 1 else f"torchrun {nodes}--nproc-per-node {here} -m manyview"
    return f"{command} pretrain --resume {shlex.quote(str(config.out))}"


def _images(config: Config, own: Dataset | None, together: Callable[[], AbstractContextManager[None]]) -> build.Images:
    """The data. What is downloaded, one process of a machine fetches before the others look."""
    first = not config.data.get("download") or int(os.environ.get("LOCAL_RANK", "0")) == 0
    with together():
        found = build.images(config, own) if first else None
    with together():
        return found or build.images(config, own)


def _agreed(batches: Iterator[Batch], together: Callable[[], AbstractContextManager[None]]) -> Iterator[Batch]:
    """The batches; what ends one process here, such as too many broken images, ends all of them."""
    while True:
        with together():
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _fabric(config: Config) -> Fabric:
    """One process, or those that torchrun has started."""
    world, here = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if world > 1 and not TorchElasticEnvironment.detect():
        raise UserError(
            "WORLD_SIZE", f"is {world}, and torchrun has not started this process; use torchrun, or unset it"
        )
    device = build.device(config)
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)  # it would tell of every start
    warnings.filterwarnings("ignore", ".*broadcast_buffers.*")  # the new name is not in older versions of torch
    # one process's running statistics are saved, and batch norm does not use them in training: nothing to broadcast
    strategy = DDPStrategy(broadcast_buffers=False) if world > 1 else "auto"
    # named, since Fabric would else take what a cluster has reserved for what was started
    started = TorchElasticEnvironment() if TorchElasticEnvironment.detect() else LightningEnvironment()
    plugins: list[Any] = [started, Double()] if config.precision == "fp64" else [started]
    fabric = Fabric(
        accelerator=device, devices=here, num_nodes=max(1, world // here), strategy=strategy, plugins=plugins,
        precision=PRECISIONS.get(config.precision),  # type: ignore[arg-type]
    )  # fmt: skip
    fabric.launch()
    return fabric


def _complete(folder: Path, config: Config, images: build.Images) -> bool:
    """Whether the folder holds this very run, with nothing left to do: its encoder is written last of all."""
    if folder.exists() and not folder.is_dir():
        raise UserError("out", f"{folder} is a file; give a folder, which is made if it is not there")
    if not (folder / CONFIG).is_file() or not (folder / ENCODER).is_file():
        return False
    _same(folder, config)
    saved = None
    with suppress(ValueError):  # what is complete needs no whole checkpoint
        saved = Checkpoints(folder / CHECKPOINTS).latest()
    if saved is not None:
        _check_data(saved[0], folder, images)
    return True


def _lock(folder: Path, stack: ExitStack) -> None:
    """Keeps others out of the folder, for as long as the stack stands."""
    try:
        stack.enter_context(locked(folder))
    except OSError as error:
        raise UserError("out", f"{folder} cannot be written to: {error.strerror}; give another --out") from None


def _check_begun(folder: Path, config: Config) -> None:
    """That what was begun in the folder is this run. As long as nothing is saved, settings may still change."""
    if any((folder / CHECKPOINTS).glob("*.pt")):
        if not (folder / CONFIG).is_file():
            raise UserError("out", f"{folder} holds a run without its {CONFIG}; bring that back, or give another --out")
        _same(folder, config)


def _write_settings(folder: Path, config: Config) -> None:
    path = folder / CONFIG
    with naming_full_disk(path, lambda: "free some space"), atomic_write(path) as draft:
        draft.write_text(to_yaml(config), encoding="utf-8")


def _same(folder: Path, config: Config) -> None:
    changed = differences(from_yaml(folder / CONFIG), config)
    if changed:
        more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
        raise UserError(
            "out",
            f"{folder} holds a run with other settings ({'; '.join(changed[:SHOWN])}{more}); "
            f"give another --out, or go on with that one: {resume(config, distributed.world_size())}",
        )


def _check_saved(saved: tuple[State, Path] | None, folder: Path, images: build.Images, device: torch.device) -> None:
    """That a checkpoint can be gone on with, and that all processes have found the same."""
    step = -1 if saved is None else saved[0]["progress"]["step"]
    steps = distributed.gather(torch.tensor([step], device=device)).tolist()
    if len(set(steps)) > 1:
        found = ", ".join("none" if each < 0 else f"step {each}" for each in steps)
        raise UserError(
            "out", f"processes see different checkpoints in {folder} ({found}); give a folder that all machines share"
        )
    if saved is None:
        return
    state, path = saved
    if state.get("format") != FORMAT:
        raise UserError(None, f"{path}: is of format {state.get('format')!r}, this version reads {FORMAT}")
    _check_data(state, folder, images)


def _check_data(state: State, folder: Path, images: build.Images) -> None:
    """That a run's data is still what it was begun with."""
    then, now = tuple(state["data"]), images.fingerprint
    if then != now:
        said = f"{then[0]:,} images then, {now[0]:,} {'others ' if then[0] == now[0] else ''}now"
        raise UserError("data", f"the data of {folder} has changed: {said}; give another --out, or bring the data back")


def _method(config: Config, channels: int, fabric: Fabric, *, begun: bool) -> Method:
    """The networks, their batch norm over all GPUs, as fast as convolutions are on this device."""
    method = build.method(config, channels, begun=begun)
    per_process = config.batch_size // fabric.world_size
    splits = config.method.get("bn_splits", 1)
    for size in (per_process, config.micro_batch or per_process):
        if size % splits:
            raise UserError("method.bn_splits", f"a batch of {size} a process does not fall into {splits} equal groups")
    if fabric.device.type == "cuda" and fabric.world_size > 1 and splits == 1:
        encoders.sync_batch_norm(method.towers)
    method.to(memory_format=torch.channels_last)
    encoders.dense_convolutions(method)
    return method


def _resume(
    state: State,
    config: Config,
    fabric: Fabric,
    run: Progress,
    method: Method,
    optimizer: torch.optim.Optimizer,
    loader: Loader,
) -> list[str]:
    """Takes up a checkpoint, and says what is no longer as it was."""
    run.restore(state["progress"])
    method.load_state_dict(state["method"])
    optimizer.load_state_dict(state["optimizer"])
    fabric.strategy.precision.load_state_dict(state["precision"])
    if fabric.global_rank == 0:
        loader.broken |= state["broken"]
    changed = []
    if (then := state["world"]) != fabric.world_size:
        before = f"as before: {resume(config, then)}"
        changed.append(f"processes: {then} so far, {fabric.world_size} now, which batch norm can tell; {before}")
    if state.get("at_once", loader.at_once) != loader.at_once:
        where = "in memory" if loader.at_once else "too large for the memory"
        changed.append(f"the images are {where}, unlike before: their views are rounded otherwise from here on")
    return changed


def _save(
    checkpoints: Checkpoints,
    run: Progress,
    method: Method,
    optimizer: torch.optim.Optimizer,
    fabric: Fabric,
    loader: Loader,
    images: build.Images,
    *,
    snapshot: int | None = None,
) -> None:
    state = {
        "format": FORMAT,
        "progress": run.state(),
        "channels": images.channels,
        "data": images.fingerprint,
        "world": fabric.world_size,
        "broken": dict(loader.broken),
        "method": method.state_dict(),
        "optimizer": optimizer.state_dict(),
        "precision": fabric.strategy.precision.state_dict(),
        "at_once": loader.at_once,
    }
    checkpoints.save(state, run.step, epoch_snapshot=snapshot)


def _forward_backward(engine: Engine, config: Config, batch: Batch, view: str, run: Progress) -> StepOutput:
    """The step's gradient, in the parameters."""
    progress = _progress(config, run)

    def looks(rows: slice) -> list[Tensor]:
        return [look.contiguous(memory_format=torch.channels_last) for look in batch.views(rows)[view]]

    if config.micro_batch and config.micro_batch < len(batch):
        return micro_batches(engine, looks, batch.ids, step=run.step, size=config.micro_batch, progress=progress)
    return whole_batch(engine, looks, batch.ids, step=run.step, progress=progress)


def _progress(config: Config, run: Progress) -> float:
    """The share of the run that is done after this epoch, which a loss may depend on."""
    return min(1.0, (run.step // run.per_epoch + 1) / config.epochs)


def _finite(method: Method) -> bool:
    return all(bool(torch.isfinite(each).all()) for each in method.towers.trained())


def _diverged(why: str, config: Config, run: Progress, batch: Batch, method: Method, folder: Path) -> Diverged:
    """The end of a run whose loss or weights are no numbers, with the evidence in a file: the batch, and the state."""
    path = folder / f"failed-after-step-{run.step:09d}-{distributed.rank()}.pt"
    evidence = {"step": run.step, "ids": batch.ids.cpu(), "index": batch.index.cpu(), "method": method.state_dict()}
    likely = _likely(config, run)
    with naming_full_disk(path, lambda: f"{why}; {likely}"), atomic_write(path) as draft, draft.open("wb") as file:
        torch.save(evidence, file)
    return Diverged(None, f"after step {run.step}: {why}; {likely}. The batch's ids and the state: {path}")


def _likely(config: Config, run: Progress) -> str:
    """What most often makes a loss no number, the likeliest first."""
    temperature = (config.part("loss") or {}).get("temperature")
    if config.precision == "fp16":
        return f"likely the precision: {AGAIN} with --precision bf16 or fp32"
    if temperature is not None and temperature < LOW:
        return f"likely the temperature {temperature:g}, which is very low: {AGAIN} with --loss.temperature 0.1"
    if run.step == 0:
        return "likely the data or the weights it began with, since nothing has been learnt yet"
    rate = config.optimizer["lr"]
    return f"likely the learning rate {rate:g}: {AGAIN} with --lr {rate / 3:.2g}, or with --grad-clip 1"


@contextmanager
def _naming_full_memory(config: Config) -> Iterator[None]:
    """Says in one line that the memory is full, or has likely cost a worker its life; other errors pass."""
    try:
        yield
    except (RuntimeError, MemoryError, ConnectionError, EOFError) as error:
        if lost_worker(error):
            fewer = (usual_workers() if config.workers is None else config.workers) // 2
            why = "a worker that reads images was killed, likely for lack of memory"
            raise OutOfMemory(None, f"{why}; the same command with --workers {fewer} goes on") from None
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            other = f"{AGAIN} with --micro-batch 64 if it never is enough"
            raise OutOfMemory(None, f"the memory is full; free some, and the same command goes on; {other}") from None
        raise


def _gradient(fabric: Fabric, module: nn.Module, stepper: Any, config: Config, run: Progress) -> float | None:
    """Clips the gradient; its length, where somebody wants to know."""
    if config.grad_clip is None and not _report_due(config, run):
        return None
    most = config.grad_clip or float("inf")
    length = fabric.clip_gradients(module, stepper, max_norm=most, error_if_nonfinite=False)
    return None if length is None else float(length)


def _rate(config: Config, run: Progress) -> float:
    warmup, epochs = config.schedule["warmup"], run.epochs
    if config.schedule["per"] == "epoch" and epochs >= warmup:  # a warm-up rises with every step
        epochs = max(run.step // run.per_epoch, warmup)
    share: float = build.schedule(config)(epochs, config.epochs)
    rate: float = config.optimizer["lr"] * share
    return rate


def _report_due(config: Config, run: Progress) -> bool:
    """Of the step that is being done; the first tells what later ones are compared with."""
    return run.step == 0 or (run.step + 1) % config.health_every == 0 or run.step + 1 == run.total


def _score_due(config: Config, run: Progress) -> bool:
    return run.done or (run.epoch_over and round(run.epochs) % config.evaluate_every == 0)


def _save_due(config: Config, run: Progress, seconds: float) -> bool:
    steps = config.checkpoint_steps
    return seconds > 60 * config.checkpoint_minutes or (steps is not None and run.step % steps == 0)


def _snapshot(config: Config, run: Progress) -> int | None:
    return round(run.epochs) if run.epoch_over and round(run.epochs) in config.snapshots else None


def _scorer(images: build.Images, config: Config, device: torch.device) -> Scorer | None:
    """Nothing where there are no labels, or nobody wants to know."""
    if images.test is None or not (config.evaluators and config.evaluate_every):
        return None
    plain = build.plain_stack(config)
    return Scorer(
        images.train, images.test, plain, bank=config.knn_bank, queries=config.knn_queries, device=device,
        workers=config.workers,
    )  # fmt: skip


def _validation(
    images: build.Images, config: Config, method: Method, device: torch.device
) -> Callable[..., dict[str, float]]:
    """What the loss would say of one batch of images kept aside; their views are made once."""
    if images.test is None or not (config.evaluators and config.evaluate_every):
        return lambda progress: {}
    size, views = min(config.batch_size, len(images.test), VALIDATED), build.stack(config, method.looks)
    loader = Loader(images.test, views, size, seed=config.seed, device=device, workers=config.workers, max_broken=1.0)
    batch = next(loader.epoch(0))
    return partial(validation, method, batch.views()[images.view], batch.ids)


def _page(config: Config, folder: Path, own: Dataset | None, *, say: tell.Say, warn: tell.Say) -> None:
    if config.report:
        from manyview.report.page import after_training  # takes a second to import

        after_training(Run(folder), own=own, say=say, warn=warn)


def _passed_over(checkpoints: Checkpoints) -> list[str]:
    return [f"passed over a checkpoint: {line}" for line in checkpoints.damaged]


def _log(config: Config, folder: Path, run: Progress) -> RunLog:
    return RunLog(folder, steps=run.total, start=run.step, loggers=config.loggers, quiet=config.quiet)


class Clock:
    """Seconds between two laps, and since the last mark."""

    def __init__(self) -> None:
        self._lap = self._mark = time.monotonic()

    def lap(self) -> float:
        before, self._lap = self._lap, time.monotonic()
        return self._lap - before

    def mark(self) -> None:
        self._mark = time.monotonic()

    def since_mark(self) -> float:
        return time.monotonic() - self._mark
