"""What a task gives to whoever runs it: its data, and a training of any encoders on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from manyview.data import Dataset
from manyview.embeddings.model_source import ModelSource
from manyview.transfer.fit import Training


class DataSource(NamedTuple):
    """The data that a person names.

    name       a folder, a file, or a name such as scenes
    options    of `open_data`, those that were given, or that the run has
    views      that the encoders see, which the data may have on request alone
    inherited  names of the options that the run has and nobody gave: a task may pass over them
    """

    name: str
    options: dict[str, Any]
    views: tuple[str, ...] = ()
    inherited: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Start:
    """What a training starts from.

    model     encoders by view: one, or several that are to be used side by side
    baseline  whether it is one of the baselines, which some papers train for longer
    """

    model: ModelSource
    seed: int
    device: torch.device
    workers: int | None = None
    baseline: bool = False


@dataclass(frozen=True, eq=False)
class Prepared:
    """A task with its settings and its data, which can be trained from any encoders.

    name, train, test  the data, the images to train on and those to score on
    classes            what is predicted
    training           makes a training from encoders
    supervised         the same with the encoders trained along, from scratch: the upper bound; None where `training`
                       is that already. Where encoders are always trained, from weights that labels made
    joins              whether encoders of several views can be used side by side
    held_out           whether the test images were held out of the training images, and are no test split
    notes              what is to be told of the data, a line each
    """

    name: str
    train: Dataset
    test: Dataset
    classes: tuple[str, ...]
    training: Callable[[Start], Training]
    supervised: Callable[[Start], Training] | None = None
    joins: bool = False
    held_out: bool = False
    notes: tuple[str, ...] = ()
