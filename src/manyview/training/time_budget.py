"""Computes from measured seconds which settings fill the time that the user gave. Nothing is timed here."""

from __future__ import annotations

import math
from dataclasses import dataclass

from manyview.config.config import Config
from manyview.config.keys import Flat

AIM = 0.97  # of the time; the rest is for what nobody measures: a line of metrics, a slower minute
SCORING = 0.1  # of the time is for scores during training, at most
SIZES = (64, 96, 128)  # pixels of views, of pictures that are as large
PAGE = (4.0, 0.1, 12.0)  # seconds for the page about a run: at least, as a share of the time, and at most
DRAWING = 3.0  # of them, for what is no embedding of images
PASSES = 10  # epochs that a larger size must leave time for


@dataclass(frozen=True)
class Costs:
    """The seconds that parts of a run take on this machine, and those that are spent or needed besides."""

    step: float
    score: float = 0.0
    save: float = 0.0
    besides: float = 0.0  # what came before the first step, and the page at the end


def seconds_left(minutes: float, costs: Costs) -> float:
    """Computes the time for steps, and for scores and checkpoints between them, without the first and last score."""
    return AIM * 60 * minutes - costs.besides - 2 * costs.score - costs.save


def page_seconds(config: Config) -> float:
    """Computes the time that is reserved for the page about the run."""
    assert config.minutes is not None
    least, share, most = PAGE
    return min(max(least, share * 60 * config.minutes), most) if config.report else 0.0


def embedding_seconds(config: Config, gone: float) -> float:
    """Computes how long a page may embed images, when so many seconds of the run's are spent."""
    assert config.minutes is not None
    return min(max(PAGE[0] - DRAWING, 60 * config.minutes - gone - DRAWING), PAGE[2])


def steps_in(seconds: float, costs: Costs) -> int:
    """Computes how many steps fill so many seconds, at least one."""
    return max(1, int(seconds / costs.step))


def fitted(config: Config, costs: Costs, steps_an_epoch: int) -> Flat:
    """Computes the epochs that fill `minutes`, how often they are scored, and the schedule's settings in epochs."""
    assert config.minutes is not None
    left, epoch = seconds_left(config.minutes, costs), costs.step * steps_an_epoch + costs.save
    every = _scored_every(config, left / epoch, left, costs.score)
    between = max(0, math.ceil(left / epoch / every) - 1) if every else 0
    share = costs.step * steps_an_epoch / epoch  # of an epoch that is steps
    steps = steps_in((left - between * costs.score) * share, costs)
    epochs = round(steps / steps_an_epoch, 6)
    scale = epochs / config.epochs
    warmup, milestones = config.schedule["warmup"], config.schedule.get("milestones", ())
    found = {
        "epochs": epochs,
        "evaluate_every": every,
        "schedule.warmup": round(warmup * scale, 6),
        "schedule.milestones": tuple(round(each * scale, 6) for each in milestones),
    }
    return {key: value for key, value in found.items() if key in config.auto}


def _scored_every(config: Config, epochs: float, seconds: float, score: float) -> int:
    """Computes the epochs between two scores, so that these take a small share of the time, unless they were given."""
    if "evaluate_every" not in config.auto or not config.evaluate_every or config.probe_every:
        return config.evaluate_every
    scores = max(0, int(SCORING * seconds / score)) if score else math.inf  # less than no time may be left
    return max(1, math.ceil(epochs / (scores + 1)))


def size_for(side: int, minutes: float, costs: Costs, size: int, steps_an_epoch: int) -> int:
    """Computes the largest size of views that leaves time for a few epochs, for pictures of this side.

    costs  of a step with views of `size` pixels: the others' follow from their number of pixels
    """
    there = [each for each in SIZES if each <= max(side, SIZES[0])]
    passes = {each: seconds_left(minutes, costs) / (costs.step * steps_an_epoch * (each / size) ** 2) for each in there}
    return max((each for each in there if passes[each] >= PASSES), default=there[0])
