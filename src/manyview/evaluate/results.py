"""results.json: every score with all that it depends on, so that it can be trusted, compared and not computed twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from manyview.core.atomic import atomic_write, naming_setting
from manyview.core.errors import UserError
from manyview.core.text import digest, reason

FILE = "results.json"
MATTERS = ("protocol", "settings", "data", "seed", "model", "version")


@dataclass(frozen=True)
class Result:
    """What one protocol found.

    settings    all arguments of the protocol
    scores      by name, in the protocol's order; shares from 0 to 1, but what was "chosen" and epochs
    untrained   the same of the same network before training; None if that is what was scored, or was not asked for
    supervised  scores of the same network trained with all labels, where they were asked for
    data        name, train, test, classes, whether the test images were held out, and fingerprints
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

    @property
    def key(self) -> str:
        """The same for what would give the same scores; names of people's folders do not matter."""
        return digest([_essence(getattr(self, name)) for name in MATTERS])

    @property
    def score(self) -> float:
        """The first, which is the one to quote."""
        return next(iter(self.scores.values()))


def read(folder: str | Path) -> list[Result]:
    """All results of a folder; none where there is no file."""
    path = Path(folder) / FILE
    if not path.is_file():
        return []
    try:
        return [_parsed(each) for each in json.loads(path.read_text(encoding="utf-8"))]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError("out", f"{path} is damaged ({reason(error)}); remove it, or give another --out") from None


def find(folder: str | Path, like: Result) -> Result | None:
    """The result of the same key."""
    return next((each for each in read(folder) if each.key == like.key), None)


def put(folder: str | Path, result: Result) -> None:
    """Adds a result, in place of an older one of the same key. The file is whole at any time."""
    path = Path(folder) / FILE
    kept = [each for each in read(folder) if each.key != result.key]
    text = json.dumps([asdict(each) for each in [*kept, result]], indent=1, ensure_ascii=False, allow_nan=False)
    with naming_setting("out", folder):
        path.parent.mkdir(parents=True, exist_ok=True)
    with naming_setting("out", path), atomic_write(path) as draft:
        draft.write_text(text + "\n", encoding="utf-8")


def _essence(value: Any) -> Any:
    return {key: each for key, each in value.items() if key != "name"} if isinstance(value, Mapping) else value


def _parsed(entry: dict[str, Any]) -> Result:
    known = {each.name for each in fields(Result)}
    if "subject" in entry:  # the older name of the model
        entry["model"] = {"checksum": entry["subject"].get("mark"), **entry["subject"]}
    return Result(**{key: value for key, value in entry.items() if key in known})
