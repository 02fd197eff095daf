"""What a run tells of itself, in plain words: at its beginning, every few steps, at its end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor, nn

from manyview.config.config import Config
from manyview.data import Loader
from manyview.diagnose.measures import flat_share
from manyview.methods import Method
from manyview.training.build import OWN, Images
from manyview.training.run import ENCODER
from manyview.training.run_log import RunLog
from manyview.training.state import Progress

Measured = dict[str, float]
Say = Callable[[str], object]
FEW_IMAGES = 8  # in a batch; reasoned
FEW = slice(0, 64)  # pictures of a batch that are looked at for flat ones


def unless_quiet(config: Config) -> Say:
    """Says things where no log is open."""
    return (lambda text: None) if config.quiet else print


def complete(folder: Path, config: Config) -> None:
    """That there is nothing left to do."""
    unless_quiet(config)(f"{folder} is complete; nothing is left to do. Its encoder: {folder / ENCODER}")


def introduce(
    log: RunLog, config: Config, images: Images, method: Method, run: Progress, warnings: Sequence[str]
) -> None:
    """What is about to happen, in a few lines."""
    data = "your own data" if config.data["name"] == OWN else config.data["name"]
    log.say(f"{config.method['name']} on {len(images.train):,} images of {data}, {_scored_on(images, config)}")
    log.say(
        f"encoder {config.encoder['name']} ({_parameters(method)} parameters), augmentation "
        f"{config.augmentation['name']} of {config.augmentation['size']} px, batch {config.batch_size}, "
        f"{run.total:,} steps"
    )
    if images.why is not None and config.evaluators and config.evaluate_every:
        log.warn(f"the test split is not scored on: {images.why}")
    for line in warnings:
        log.warn(line)
    log.say(f"run folder {log.folder}")
    if run.step:
        log.say(f"going on after step {run.step:,} of {run.total:,}")


def cautions(config: Config, images: Images, loader: Loader, method: Method, world: int) -> list[str]:
    """What somebody may not have meant."""
    found, size = [], (config.part("memory") or {}).get("size")
    if len(images.raw) > 1:
        found.append(f"of the views {', '.join(images.raw)} only {images.view} is learnt from")
    if size is not None and size > len(images.train):
        found.append(f"the queue of {size:,} keys is larger than the data; --memory.size 512 would learn sooner")
    elif size is None and config.batch_size < FEW_IMAGES:
        others = f"{config.batch_size - 1} other{'s' if config.batch_size > 2 else ''}"
        found.append(f"a batch of {config.batch_size} is small: each image has {others} to differ from")
    late = [str(epoch) for epoch in config.snapshots if epoch > config.epochs]
    if late:
        found.append(f"snapshots: the run ends after epoch {config.epochs:g}, before {', '.join(late)}")
    if _leaks(config, method, loader.device.type, world):
        found.append(
            "batch norm sees a key among the same images as its query, by which they can be told without looking "
            "(MoCo, section 3.3); --method.bn-splits 4 shuffles them"
        )
    return [*found, *_unreadable(loader)]


def _leaks(config: Config, method: Method, device: str, world: int) -> bool:
    """Whether keys share statistics with their queries that other images do not."""
    parts = (world > 1 and device == "cpu") or (config.micro_batch or config.batch_size) < config.batch_size
    apart = parts or (config.part("memory") or {}).get("name") == "queue"
    normed = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in method.modules())
    return apart and normed and config.part("momentum") is not None and config.method.get("bn_splits") == 1


def report(
    log: RunLog, run: Progress, measured: Measured, loader: Loader, pictures: Tensor, norm: float | None, lr: float
) -> None:
    """Asks whether the run is well, and writes a line of metrics."""
    loss = sum(run.losses) / len(run.losses)
    run.losses.clear()
    before = run.health.verdict().word
    run.health.update(
        run.step, measured, loss=loss, gradient=norm or 0.0, unreadable=len(loader.broken) / len(loader.dataset),
        flat=flat_share(pictures), knn=run.fresh_knn, untrained_knn=run.untrained_knn,
    )  # fmt: skip
    run.fresh_knn = None
    verdict = run.health.verdict()
    values = {"loss": loss, "lr": lr, "gradient_norm": norm or 0.0, **measured, "health": verdict.word}
    log.write(run.step, values, epoch=_epoch(run), seconds=round(run.seconds, 3))
    if verdict.word != before:
        speak = log.say if verdict.level == "healthy" else log.warn
        speak(f"step {run.step}: {verdict.text}")


def knn(log: RunLog, run: Progress, validated: Measured) -> None:
    """The kNN score that was just measured, and what the loss would say of images kept aside."""
    assert run.knn is not None
    log.write(run.step, {"knn": run.knn, **validated}, epoch=_epoch(run), seconds=round(run.seconds, 3))
    if run.step == 0:
        log.say(f"kNN of the untrained encoder {run.knn:.1%}")


def step(log: RunLog, run: Progress, batch_size: int) -> None:
    """Where the run is, for who watches it."""
    speed = batch_size * run.step / run.seconds if run.seconds else None
    health = run.health.verdict().word if run.health.measured else None
    over = run.epoch_over or run.done
    log.show(run.step, epoch=_epoch(run), loss=run.loss, speed=speed, knn=run.knn, health=health, epoch_over=over)


def conclude(log: RunLog, run: Progress, folder: Path, config: Config, images: Images, loader: Loader) -> None:
    """What has come of it."""
    for line in _unreadable(loader):
        log.warn(line)
    if run.knn is not None and run.untrained_knn is not None and images.test is not None:
        gained, count = run.knn - run.untrained_knn, min(len(images.test), config.knn_queries)
        doubt = math.sqrt(sum(p * (1 - p) for p in (run.knn, run.untrained_knn)) / count)  # one standard deviation
        log.say(
            f"kNN {run.knn:.1%}, untrained {run.untrained_knn:.1%} "
            f"({100 * gained:+.1f} points, give or take {100 * doubt:.1f} on {count:,} images)"
        )
        if gained <= 0:
            log.say("its neighbours are no better than before training: train longer, or with milder views")
    verdict = run.health.verdict()
    log.say("too few steps to tell whether it is healthy" if verdict.word == "starting" else verdict.text)
    log.say(f"encoder {folder / ENCODER}")


def _scored_on(images: Images, config: Config) -> str:
    if images.test is None:
        return "no labels to score with: no kNN"
    if not (config.evaluators and config.evaluate_every):
        return "no kNN" + (f", {len(images.test):,} kept aside" if images.aside else "")
    scored = f"scored on {min(len(images.test), config.knn_queries):,} images"
    if not images.aside:
        return f"{scored} of its test split"
    by_folder = "labels" in config.data and config.data["name"] != OWN
    folders = "; its folders are the classes, --data.labels false learns from all" if by_folder else ""
    return f"{scored} kept aside{folders}"


def _unreadable(loader: Loader) -> list[str]:
    broken = list(loader.broken)
    if not broken:
        return []
    some = ", ".join(loader.dataset.name(row) for row in broken[:3]) + (", ..." if len(broken) > 3 else "")
    return [f"{len(broken)} of {len(loader.dataset)} images cannot be read, others stand in for them: {some}"]


def _parameters(method: Method) -> str:
    count = sum(each.numel() for each in method.towers.encoder().parameters())
    return f"{count / 1e6:.1f} M" if count >= 1e5 else f"{count:,}"


def _epoch(run: Progress) -> int:
    """Counted from 1; 0 before the first."""
    return -(-run.step // run.per_epoch)
