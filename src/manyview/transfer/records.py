"""What the trainings of a transfer leave in its folder, by names that the page about them knows too."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from manyview.core.atomic import atomic_write
from manyview.core.errors import UserError
from manyview.core.json_file import read_json

HOME = "transfer"  # the folder of a run where its transfers are
SCORES = "scores.json"
PICTURES = "predictions.png"
ABOUT = "about.json"


@dataclass(frozen=True)
class About:
    """Says which training a folder holds.

    result  the key of the result that its scores are a part of
    kind    trained, untrained or supervised
    part    the view whose encoder it is, "" of the only one
    loss    what its loss did, in words
    """

    result: str
    kind: str
    part: str
    loss: str = ""


@dataclass(frozen=True)
class EndedTraining:
    """A training that has ended."""

    folder: Path
    about: About

    @property
    def pictures(self) -> Path | None:
        """The file of what was predicted for some test images; None where there is none."""
        path = self.folder / PICTURES
        return path if path.is_file() else None


def write_about(folder: Path, about: About) -> None:
    with atomic_write(folder / ABOUT) as draft:
        draft.write_text(json.dumps(asdict(about), indent=1))


def trainings(folder: Path, result: str) -> list[EndedTraining]:
    """The trainings that a result's scores are of, in the order of their folders' names."""
    found = []
    for file in sorted(folder.glob(f"*/{ABOUT}")):
        with suppress(UserError):  # a damaged one is of nothing
            found.append(EndedTraining(file.parent, read_json(file, About, remedy="remove it")))
    return [each for each in found if each.about.result == result]
