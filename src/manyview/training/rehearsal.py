"""Rehearses a run: times steps, a score and a checkpoint on this machine, and keeps nothing of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from manyview.config.config import Config
from manyview.core import distributed
from manyview.core.distributed import fail_together
from manyview.data import Loader
from manyview.training import run_data, settle
from manyview.training.checkpoint import Checkpoints
from manyview.training.evaluators import evaluators
from manyview.training.monitor import validation_of
from manyview.training.time_budget import SIZES, Costs, fitted, page_seconds, size_for

if TYPE_CHECKING:
    from manyview.training.session import Session

FIRST, FEW, MOST = 2, 3, 400  # steps: before any is timed; timed to know how many to time; timed at most
QUICK = 1.0  # seconds of steps to choose a size by
SHARE, LONGEST = 0.04, 20.0  # of the time, and seconds at most: steps to count epochs by
COMPARED = 3.0  # seconds of steps of each method that is compared

Train = Callable[[int], object]
"""Trains so many steps."""
Rehearse = Callable[[Config], "Session"]
"""Makes a session with these settings that nobody watches."""


def chosen(
    config: Config, data: run_data.RunData, folder: Path, began: float, rehearse: Rehearse
) -> tuple[Config, Loader]:
    """Chooses the settings that follow from `minutes`, counted from `began` on, the same in all processes.

    Returns them with a loader of the training images: as long as it lives, other loaders share what it has decoded.
    """
    minutes = config.minutes
    assert minutes is not None
    open_size = "augmentation.size" in config.auto and data.side > SIZES[0]
    session = rehearse(settle.with_size(config, len(data.views), SIZES[0]) if open_size else config)
    if open_size:
        quick = Costs(seconds_a_step(session.steps, QUICK), besides=slowest(time.monotonic() - began))
        size = size_for(data.side, minutes, quick, SIZES[0], len(session.loader))
        config = settle.with_size(config, len(data.views), size)
        session = session if size == SIZES[0] else rehearse(config)
    step = seconds_a_step(session.steps, min(LONGEST, SHARE * 60 * minutes))
    with fail_together():
        score, again = _seconds_a_score(session, data, config)
        save = seconds_a_save(session.trainer.state_dict(), folder) if distributed.rank() == 0 else 0.0
    score = slowest(score)
    untrained = score if config.encoder["pretrained"] else 0.0  # whose score a run from weights is told besides
    besides = slowest(time.monotonic() - began + again) + page_seconds(config) + untrained
    costs = Costs(step, score, slowest(save), besides)
    return settle.with_chosen(config, fitted(config, costs, len(session.loader))), session.loader


def _seconds_a_score(session: Session, data: run_data.RunData, config: Config) -> tuple[float, float]:
    """Times a score and the opening of its images, which comes once more, in the first process."""
    made: list[Callable[[], object]] = []

    def open_images() -> None:
        method, loader = session.trainer.method, session.loader
        scoring = evaluators(method, data, config, loader.device) if distributed.rank() == 0 else []
        made.extend(partial(each, method.towers) for each in scoring)
        if scoring:
            validate = validation_of(data, config, method, loader)
            made.append(lambda: validate(progress=1.0))

    again = timed(open_images)
    return timed(lambda: [each() for each in made]), again


def seconds_a_step(train: Train, seconds: float) -> float:
    """Times a step, the mean over about so many seconds of them, in the slowest process."""
    train(FIRST)  # which allocate memory and plan
    few = slowest(timed(lambda: train(FEW))) / FEW
    count = min(max(FEW, int(seconds / few)), MOST)
    return slowest(timed(lambda: train(count))) / count


def seconds_a_save(state: dict[str, Any], folder: Path) -> float:
    """Times a checkpoint in this folder."""
    with TemporaryDirectory(dir=folder, prefix=".") as place:
        return timed(lambda: Checkpoints(Path(place)).save(state, 1))


def timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def slowest(seconds: float) -> float:
    """Returns the largest value of all processes, so that all of them choose the same."""
    return max(found for (found,) in distributed.exchange([seconds]))
