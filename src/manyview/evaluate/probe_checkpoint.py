"""A checkpoint of a classifier's training, in a file of the feature cache, so that it goes on after an interruption."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from manyview import __version__
from manyview.core.atomic import atomic_write
from manyview.core.text import digest
from manyview.evaluate.task import Task
from manyview.features.feature_cache import PROBE_CHECKPOINT

SECONDS = 10.0  # between two savings, so that a training of seconds writes nothing

Curve = list[list[float]]
"""Scores by epoch."""


@dataclass
class ProbeCheckpoint:
    """The weights, the optimisers and the scores so far, as they were after an epoch. Without a path nothing is kept.

    Made by `of`; a file that cannot be read or written costs no more than the time it would have saved.
    """

    path: Path | None
    saved: float
    begun: float = 0.0

    @classmethod
    def of(cls, task: Task, identity: Sequence[object]) -> ProbeCheckpoint:
        """The checkpoint of a training that differs from others in its task or in its `identity`."""
        if task.cache is None:
            return cls(None, 0.0)
        name = digest([__version__, *map(repr, identity), task.model.checksum, task.fingerprints, task.seed])
        now = time.monotonic()
        return cls(task.cache.folder / f"{name}{PROBE_CHECKPOINT}", now, now)

    def restore(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> Curve:
        """The scores of the epochs that were done, after which model and optimisers are as they were."""
        if self.path is None:
            return []
        try:
            state = torch.load(self.path, map_location="cpu", weights_only=True)
        except (OSError, EOFError, RuntimeError, pickle.UnpicklingError):
            return []
        fresh = deepcopy(_state(model, optimizers, []))
        try:
            return _put(state, model, optimizers)
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError):  # another one's, or of another torch
            return _put(fresh, model, optimizers)

    def save(self, model: nn.Module, optimizers: Sequence[Optimizer], curve: Curve) -> None:
        if self.path is not None and time.monotonic() - self.saved >= SECONDS:
            _write(self.path, _state(model, optimizers, curve))
            self.saved = time.monotonic()

    def finish(self, model: nn.Module, optimizers: Sequence[Optimizer], curve: Curve, task: Task) -> None:
        """Keeps the end too, until the protocol's scores are written down: it may have other trainings to come."""
        if self.path is not None:
            if time.monotonic() - self.begun >= SECONDS:
                _write(self.path, _state(model, optimizers, curve))
            task.delete_when_scored(self.path)


def _write(path: Path, state: dict[str, Any]) -> None:
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as draft:
            torch.save(state, draft)


def _state(model: nn.Module, optimizers: Sequence[Optimizer], curve: Curve) -> dict[str, Any]:
    return {"model": model.state_dict(), "optimizers": [each.state_dict() for each in optimizers], "curve": curve}


def _put(state: dict[str, Any], model: nn.Module, optimizers: Sequence[Optimizer]) -> Curve:
    curve: Curve = state["curve"]
    model.load_state_dict(state["model"])
    for optimizer, each in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(each)
    return curve
