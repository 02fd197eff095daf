"""Scores of the parts of a protocol, kept as they come, so that an interrupted protocol goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from manyview.evaluate.classifier import checkpoint_path
from manyview.evaluate.task import Task
from manyview.training.checkpoint import read, write


class KeptScores:
    """Numbers by name, in a file of the feature cache until the protocol's scores are written down.

    identity  the protocol, and what else tells these scores from others of the same task

    Without a cache nothing is kept; a file that cannot be read or written costs no more than the time it would save.
    """

    def __init__(self, task: Task, identity: Sequence[object]) -> None:
        self._path = checkpoint_path(task, identity)
        self._found: dict[str, list[float]] = {}
        if self._path is not None:
            task.checkpoints.append(self._path)
            with suppress(RuntimeError, ValueError, KeyError, TypeError, AttributeError, OSError):
                self._found = dict(read(self._path)["scores"])

    def of(self, name: str, compute: Callable[[], list[float]]) -> list[float]:
        """The numbers of that name, computed if they are not there."""
        if name not in self._found:
            self._found[name] = compute()
            if self._path is not None:
                with suppress(OSError):
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                    write({"scores": self._found}, self._path)
        return self._found[name]
