"""The training loop, read top to bottom. The only file that imports the engine, Lightning Fabric."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn

from manyview import build, distributed, encoders, optim, tell
from manyview.checkpoint import Checkpoints, locked
from manyview.config import Config, differences, from_yaml, part, to_yaml
from manyview.data import Batch, Dataset, Loader
from manyview.diagnose.health import Health
from manyview.evaluate.scorer import Scorer
from manyview.losses import COUPLED
from manyview.methods import Method
from manyview.progress import Progress
from manyview.run import CHECKPOINTS, CONFIG, ENCODER, Run
from manyview.runlog import RunLog
from manyview.step import Engine, NotFinite, Stepped, micro_batches, whole_batch
from manyview.whole import whole

PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed", "fp64": "64-true"}
FORMAT = 1  # of the state in a checkpoint


class Interrupted(Exception):
    """A signal came, whose number this holds: the run is saved and can go on."""


class Diverged(ValueError):
    """The loss or a weight is NaN or infinite."""


def train(config: Config, own: Dataset | None = None) -> Run:
    """Trains as the settings say, or goes on with what was begun. The run's folder holds everything.

    own: a data set of your own, instead of the one that the settings name.
    """
    # The machine: this process, and the others if there are any
    fabric = _fabric(config)
    rank, world, device = fabric.global_rank, fabric.world_size, fabric.device

    # The data, and the settings that depend on it
    images = build.images(config, own)
    config = build.settled(config, images)
    folder = Path(config.out or "")

    with ExitStack() as stack:
        # The folder belongs to one run, and to one process at a time
        if rank == 0:
            stack.enter_context(locked(folder))
            _claim(folder, config)
        fabric.barrier()

        # Images, networks, optimiser
        method = _method(config, images.channels, fabric)
        views = build.stack(config, method.looks)
        loader = Loader(
            images.train, views, config.batch_size, seed=config.seed, device=device, rank=rank, world=world,
            workers=config.workers, max_broken=config.max_broken,
        )  # fmt: skip
        optimizer = part(config, "optimizer")(method.towers)
        module, stepper = fabric.setup(method, optimizer)
        engine = Engine(method, module, fabric.backward, distributed.gather, partial(fabric.no_backward_sync, module))

        # What was done before
        total = min(config.epochs * len(loader), config.max_steps or config.epochs * len(loader))
        run = Progress(total, len(loader), Health(coupled=config.loss["name"] in COUPLED))
        checkpoints = Checkpoints(folder / CHECKPOINTS)
        _resume(fabric, checkpoints, run, method, optimizer)
        save = partial(_save, checkpoints, run, method, optimizer, fabric, images.channels)

        # What is told, and how good the encoder is: by the first process alone
        log = score = None
        if rank == 0:
            log = stack.enter_context(_log(config, folder, run))
            score = _scorer(images, config, device)
            tell.introduce(log, config, images, method, run, checkpoints)
            if score is not None and run.step == 0:
                run.knn = run.untrained_knn = score(method.towers.encoder())
                tell.knn(log, run)

        # The loop
        stop, clock = stack.enter_context(_signals()), Clock()
        while not run.done:
            epoch, start = divmod(run.step, len(loader))
            for batch in loader.epoch(epoch, start=start):
                lr = _rate(config, run)
                optim.set_lr(optimizer, lr)
                stepped = _forward_backward(engine, config, batch, images.view, run, folder)
                norm = _gradient(fabric, module, stepper, config, run)
                stepper.step()
                stepper.zero_grad()
                method.update(stepped.seen, run.step, run.total)
                run.step += 1
                run.losses.append(float(stepped.loss.detach()))
                run.seconds += clock.lap()

                if log is not None:
                    log.show(run.step, epoch=epoch + 1, loss=run.losses[-1])
                    if _report_due(config, run):
                        tell.report(log, run, stepped, loader, batch.views(tell.FEW)[images.view][0], norm, lr)
                        run.seconds += clock.lap()
                    if score is not None and _score_due(config, run):
                        run.knn = score(method.towers.encoder())
                        tell.knn(log, run)
                    if run.epoch_over or run.done or _save_due(config, run, clock.since_mark()):
                        save(snapshot=_snapshot(config, run))
                        clock.mark()
                    clock.lap()  # scoring and saving are no part of the training's time
                if distributed.any_of(bool(stop), device):
                    if log is not None:
                        save()
                        log.warn(f"stopped after step {run.step} of {run.total} and saved. To go on: {resume(folder)}")
                    raise Interrupted(*stop[:1])
                if run.done:
                    break

        # The end
        if log is not None:
            encoders.save(method.towers.encoder(), folder / ENCODER)
            tell.conclude(log, run, folder)
        fabric.barrier()
    return Run(folder)


def resume(folder: Path) -> str:
    """The command that goes on with a run."""
    return f"manyview pretrain --resume {shlex.quote(str(folder))}"


def _fabric(config: Config) -> Fabric:
    """One process, or those that torchrun has started."""
    world, here = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    device = config.device if config.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: cuda was asked for and there is none here; leave it out, or give cpu")
    if config.precision == "fp16" and device == "cpu":
        raise ValueError("precision: fp16 needs a GPU; on a CPU give fp32 or bf16")
    # one process's running statistics are saved, and batch norm does not use them in training: nothing to broadcast
    strategy = DDPStrategy(broadcast_buffers=False) if world > 1 else "auto"
    fabric = Fabric(
        accelerator=device, devices=here, num_nodes=max(1, world // here), strategy=strategy,
        precision=PRECISIONS[config.precision],  # type: ignore[arg-type]
    )  # fmt: skip
    fabric.launch()
    return fabric


def _claim(folder: Path, config: Config) -> None:
    """Writes the settings, or finds that the folder's run has the same."""
    path = folder / CONFIG
    if path.exists():
        changed = differences(from_yaml(path), config)
        if changed:
            raise ValueError(
                f"out: {folder} holds a run with other settings ({'; '.join(changed[:3])}); "
                f"give another --out, or go on with that one: {resume(folder)}"
            )
    with whole(path) as draft:
        draft.write_text(to_yaml(config), encoding="utf-8")


def _method(config: Config, channels: int, fabric: Fabric) -> Method:
    """The networks, their batch norm over all GPUs, in the memory format that convolutions like."""
    method = build.method(config, channels)
    per_process = config.batch_size // fabric.world_size
    splits = config.method.get("splits", 1)
    for size in (per_process, config.micro_batch or per_process):
        if size % splits:
            raise ValueError(f"method.splits: a batch of {size} a process does not fall into {splits} equal groups")
    if fabric.device.type == "cuda" and fabric.world_size > 1 and splits == 1:
        encoders.sync_batch_norm(method.towers)
    method.to(memory_format=torch.channels_last)
    return method


def _resume(
    fabric: Fabric, checkpoints: Checkpoints, run: Progress, method: Method, optimizer: torch.optim.Optimizer
) -> None:
    """Takes up the newest whole checkpoint, the same in all processes; nothing where there is none."""
    if fabric.global_rank == 0:
        checkpoints.tidy()
    found = checkpoints.latest()
    if found is None:
        return
    state, path = found
    if state.get("format") != FORMAT:
        raise ValueError(f"{path}: is of format {state.get('format')!r}, this version reads {FORMAT}")
    run.restore(state["progress"])
    method.load_state_dict(state["method"])
    optimizer.load_state_dict(state["optimizer"])
    fabric.strategy.precision.load_state_dict(state["precision"])
    torch.set_rng_state(state["random"])
    if state["random_cuda"] and fabric.device.type == "cuda":
        torch.cuda.set_rng_state(state["random_cuda"][0], fabric.device)


def _save(
    checkpoints: Checkpoints,
    run: Progress,
    method: Method,
    optimizer: torch.optim.Optimizer,
    fabric: Fabric,
    channels: int,
    *,
    snapshot: int | None = None,
) -> None:
    if not all(torch.isfinite(each).all() for each in method.towers.trained()):
        raise Diverged(f"step {run.step}: a weight is NaN or infinite; lower the learning rate, or give --clip 1")
    cuda = fabric.device.type == "cuda"
    state = {
        "format": FORMAT,
        "progress": run.state(),
        "channels": channels,
        "method": method.state_dict(),
        "optimizer": optimizer.state_dict(),
        "precision": fabric.strategy.precision.state_dict(),
        "random": torch.get_rng_state(),
        "random_cuda": [torch.cuda.get_rng_state(fabric.device)] if cuda else [],
    }
    checkpoints.save(state, run.step, epoch_snapshot=snapshot)


def _forward_backward(engine: Engine, config: Config, batch: Batch, view: str, run: Progress, folder: Path) -> Stepped:
    """The step's gradient, in the parameters. A loss that is no number stops the run, and the evidence is kept."""
    progress = min(1.0, (run.step // run.per_epoch + 1) / config.epochs)

    def looks(rows: slice) -> list[Tensor]:
        return [look.contiguous(memory_format=torch.channels_last) for look in batch.views(rows)[view]]

    try:
        if config.micro_batch:
            size = config.micro_batch
            return micro_batches(engine, looks, batch.ids, step=run.step, size=size, progress=progress)
        return whole_batch(engine, looks, batch.ids, step=run.step, progress=progress)
    except NotFinite as error:
        path = folder / f"failed-step-{run.step + 1:09d}-{distributed.rank()}.pt"
        evidence = {"step": run.step + 1, "ids": batch.ids.cpu(), "index": batch.index.cpu()}
        torch.save({**evidence, "method": engine.method.state_dict()}, path)
        raise Diverged(f"step {run.step + 1}: {error}; {_likely(config, run)}. Ids of its images: {path}") from None


def _likely(config: Config, run: Progress) -> str:
    """What most often makes a loss no number, the likeliest first."""
    temperature = config.loss.get("temperature")
    if config.precision == "fp16":
        return "likely the precision: try --precision bf16 or fp32"
    if temperature is not None and temperature < 0.02:
        return f"likely the temperature {temperature}, which is very low: try 0.1"
    if not all(torch.isfinite(torch.tensor(each)) for each in run.losses[-1:]):
        return "likely the data: look at these images"
    return f"likely the learning rate {config.optimizer['lr']:g}: try a third of it, or --clip 1"


def _gradient(fabric: Fabric, module: nn.Module, stepper: Any, config: Config, run: Progress) -> float | None:
    """Clips the gradient; its length, where somebody wants to know."""
    if config.clip is None and not _report_due(config, run, ahead=1):
        return None
    most = config.clip or float("inf")
    length = fabric.clip_gradients(module, stepper, max_norm=most, error_if_nonfinite=False)
    return None if length is None else float(length)


def _rate(config: Config, run: Progress) -> float:
    epochs = run.epochs if config.schedule["per"] == "step" else run.step // run.per_epoch
    share: float = part(config, "schedule")(epochs, config.epochs)
    rate: float = config.optimizer["lr"] * share
    return rate


def _report_due(config: Config, run: Progress, ahead: int = 0) -> bool:
    return (run.step + ahead) % config.health_every == 0 or run.step + ahead == run.total


def _score_due(config: Config, run: Progress) -> bool:
    return run.done or (run.epoch_over and round(run.epochs) % config.knn_every == 0)


def _save_due(config: Config, run: Progress, seconds: float) -> bool:
    steps = config.checkpoint_steps
    return seconds > 60 * config.checkpoint_minutes or (steps is not None and run.step % steps == 0)


def _snapshot(config: Config, run: Progress) -> int | None:
    return round(run.epochs) if run.epoch_over and round(run.epochs) in config.snapshots else None


def _scorer(images: build.Images, config: Config, device: torch.device) -> Scorer | None:
    """Nothing where there are no labels, or nobody wants to know."""
    if images.test is None or not config.knn_every:
        return None
    plain = build.plain_stack(config, images.view)
    return Scorer(
        images.train, images.test, plain, bank=config.knn_bank, queries=config.knn_queries, device=device,
        workers=config.workers,
    )  # fmt: skip


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


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collects SIGTERM and Ctrl-C instead of dying of them; a second Ctrl-C does what it always does."""
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def note(number: int, frame: object) -> None:
        came.append(number)
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, note)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
