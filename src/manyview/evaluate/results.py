"""results.json: every score with all that it depends on, so that it can be trusted, compared and not computed twice."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manyview import __version__
from manyview.core.atomic import atomic_write, naming_setting
from manyview.core.errors import UserError
from manyview.core.json_file import read_json
from manyview.core.lock import locked
from manyview.core.text import digest, printable

if TYPE_CHECKING:
    from manyview.embeddings.model_source import ModelSource

FILE = "results.json"
LOCK = "results.lock"  # not the run's own, which may be in training
PATIENCE = 60.0  # seconds that somebody else may take to write a score
MATTERS = ("protocol", "settings", "data", "seed", "model", "version")


@dataclass(frozen=True)
class Result:
    """What one protocol found.

    settings    all arguments of the protocol
    scores      by name, in the protocol's order; shares from 0 to 1, but what was "chosen" and epochs
    untrained   the same of the same network before training; None if that is what was scored, or was not asked for
    supervised  scores of the same network trained with all labels, where they were asked for
    errors      by score, the standard error of its gain over the untrained network's (`gain_errors`)
    data        name, train, test, classes, whether the test images were held out, and fingerprints; the imbalance of
                pre-training, which left out training images that are counted here
    model       name, encoder, size, whether it is trained, and a check sum of weights and normalisation
    seconds     that the scores took
    """

    protocol: str
    settings: dict[str, Any]
    scores: dict[str, float]
    data: dict[str, Any]
    seed: int
    model: dict[str, Any]
    version: str
    when: str
    seconds: float = 0.0
    untrained: dict[str, float] | None = None
    supervised: dict[str, float] | None = None
    errors: dict[str, float] | None = None

    @property
    def key(self) -> str:
        """The same for what would give the same scores; names of people's folders do not matter."""
        return digest([_essence(getattr(self, name)) for name in MATTERS])

    @property
    def score(self) -> float:
        """The first, which is the one to quote."""
        return next(iter(self.scores.values()))


def result_without_scores(
    protocol: str, settings: Mapping[str, Any], model: ModelSource, data: dict[str, Any], seed: int
) -> Result:
    """A result that says what its scores would depend on."""
    about = {
        "name": model.name, "encoder": ", ".join(each.name for each in model.encoders.values()),
        "size": model.size, "trained": model.trained, "checksum": model.checksum,
        **({"views": list(model.encoders)} if len(model.encoders) > 1 else {}),
    }  # fmt: skip
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
    return Result(protocol, plain, {}, data, seed, about, __version__, when)


def read(folder: str | Path) -> list[Result]:
    """All results of a folder; none where there is no file."""
    path = Path(folder) / FILE
    if not os.path.lexists(path):
        return []
    remedy = "remove it, or give another --out"
    found: list[Result] = read_json(path, list[Result], remedy=remedy)
    if not all(each.scores for each in found):
        raise UserError("out", f"{printable(str(path))} is damaged (scores: there are none); {remedy}")
    return found


def find(folder: str | Path, like: Result) -> Result | None:
    """The result of the same key."""
    return next((each for each in read(folder) if each.key == like.key), None)


def put(folder: str | Path, result: Result) -> None:
    """Adds a result, in place of an older one of the same key. The file is whole at any time, whoever else writes."""
    path = Path(folder) / FILE
    with naming_setting("out", folder):
        path.parent.mkdir(parents=True, exist_ok=True)
    with naming_setting("out", path), locked(path.parent, busy="written", result=path, name=LOCK, wait=PATIENCE):
        kept = [each for each in read(folder) if each.key != result.key]
        text = json.dumps([asdict(each) for each in [*kept, result]], indent=1, ensure_ascii=False, allow_nan=False)
        with atomic_write(path) as draft:
            draft.write_bytes(f"{text}\n".encode("utf-8", "backslashreplace"))  # of no UTF-8, JSON's own escape


def _essence(value: Any) -> Any:
    return {key: each for key, each in value.items() if key != "name"} if isinstance(value, Mapping) else value
