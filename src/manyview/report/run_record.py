"""What a run's folder tells without a look at any image: settings, measurements, scores, and how it is doing."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manyview.config.config import Config, differences
from manyview.config.yaml_file import to_yaml
from manyview.diagnose.health import Health, Verdict
from manyview.losses import LOSSES, is_coupled
from manyview.report.chart import Point
from manyview.report.frame import tint
from manyview.training.build import OWN
from manyview.training.run import CONFIG, ENCODER, METRICS, Run

UNLIKE = ("gradient_norm", "lr", "loss", "health", "knn", "not_finite", "step", "epoch", "seconds")  # no measures
SETTINGS = 2  # that differ, in a run's name
Entry = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Told:
    """A run as its folder tells it.

    name    what it is called beside other runs of the page
    colour  the number of its colour: runs that differ by their seed alone share one
    lead    whether it is the first of its colour, which stands for the others where there is room for one only
    """

    run: Run
    config: Config
    lines: list[Entry]
    name: str = ""
    colour: int = 0
    lead: bool = True

    @property
    def tint(self) -> str:
        """The class of what has its colour."""
        return tint(self.colour)

    @property
    def folder(self) -> Path:
        return self.run.folder

    @property
    def finished(self) -> bool:
        return (self.folder / ENCODER).is_file()

    @property
    def data(self) -> str:
        name = str(self.config.data["name"])
        return "your own data" if name == OWN else Path(name).name or name

    @property
    def steps(self) -> int:
        return max((int(line["step"]) for line in self.lines), default=0)

    @property
    def seconds(self) -> float:
        return max((float(line.get("seconds") or 0) for line in self.lines), default=0.0)

    @property
    def per_epoch(self) -> float:
        """Steps an epoch, as far as lines tell: exact once one was written at an epoch's end."""
        return max((line["step"] / line["epoch"] for line in self.lines if line.get("epoch")), default=1.0)

    @property
    def epochs(self) -> float:
        return self.steps / self.per_epoch

    @property
    def date(self) -> str:
        return time.strftime("%d %B %Y", time.localtime((self.folder / CONFIG).stat().st_mtime))

    def curve(self, name: str, *, over: str = "epoch") -> list[Point]:
        """(epochs, value), or (minutes, value) over "minutes"; only where it was measured and is a number."""
        return [
            (self._when(line, over), float(line[name]))
            for line in self.lines
            if isinstance(line.get(name), int | float) and math.isfinite(line[name])
        ]

    def last(self, name: str) -> float | None:
        values = self.curve(name)
        return values[-1][1] if values else None

    @property
    def knn(self) -> list[Point]:
        return self.curve("knn")

    @property
    def untrained(self) -> float | None:
        """kNN before training."""
        return next((value for when, value in self.knn if when == 0), None)

    def verdict(self) -> Verdict | None:
        """How the run was doing at its last measurement, said again from what it wrote down."""
        loss = LOSSES.get((self.config.part("loss") or {}).get("name", ""))
        health, fresh = Health(coupled=loss is not None and is_coupled(loss)), None
        for line in self.lines:
            fresh = line["knn"] if line.get("knn") is not None else fresh
            if "loss" in line:
                _feed(health, line, fresh, self.untrained)
                fresh = None
        word = next((line["health"] for line in reversed(self.lines) if "health" in line), None)
        if word is None:
            return None
        found = health.verdict()
        return found if found.word == word else Verdict(_level(word), word, str(word))

    def _when(self, line: Entry, over: str) -> float:
        return float(line.get("seconds") or 0) / 60 if over == "minutes" else line["step"] / self.per_epoch


def told(runs: Sequence[Run]) -> list[Told]:
    """Runs as their folders tell them, with names and colours to keep them apart."""
    found = [Told(run, run.config, _lines(run.folder / METRICS)) for run in runs]
    kinds: list[list[Told]] = []
    for each in found:
        alike = next((kind for kind in kinds if not _differences(kind[0], each)), None)
        kinds.append([each]) if alike is None else alike.append(each)
    named = [
        Told(each.run, each.config, each.lines, _name(each, kind, kinds), number, each is kind[0])
        for number, kind in enumerate(kinds)
        for each in kind
    ]
    names = [each.name for each in named]
    return [
        each if names.count(each.name) == 1 else replace(each, name=_by_folder(each, number))
        for number, each in enumerate(named, 1)
    ]


def short(folder: Path) -> str:
    """A folder's last two names."""
    return "/".join(folder.parts[-2:])


def settings(told: Told) -> str:
    """All settings as YAML."""
    return to_yaml(told.config)


def _differences(one: Told, other: Told) -> list[str]:
    """The keys in which two runs differ, but the seed; where the data is says what it is."""
    data = ["data.name"] if one.config.data["name"] != other.config.data["name"] else []
    changed = [line.partition(":")[0] for line in differences(one.config, other.config)]
    return [*data, *(key for key in changed if key != "seed")]


def _name(run: Told, kind: list[Told], kinds: Sequence[list[Told]]) -> str:
    """The method, and what else sets it apart from the others; of several seeds, the seed."""
    method = str(run.config.method["name"])
    rivals = [other[0] for other in kinds if other is not kind and other[0].config.method["name"] == method]
    keys = dict.fromkeys(key for rival in rivals for key in _differences(kind[0], rival))
    values = run.config.flat()
    words = [f"{key.rpartition('.')[2].replace('_', ' ')} {_plain(values.get(key))}" for key in list(keys)[:SETTINGS]]
    seed = [f"seed {run.config.seed}"] if len(kind) > 1 else []
    return " ".join([method, *words, *seed])


def _by_folder(run: Told, number: int) -> str:
    """For runs whose settings are the same."""
    return f"{run.name} {run.folder.name} ({number})"


def _plain(value: object) -> str:
    return Path(value).name if isinstance(value, str) and "/" in value else f"{value}"


def _feed(health: Health, line: Entry, knn: float | None, untrained: float | None) -> None:
    numbers = {name: _number(value) for name, value in line.items() if name not in UNLIKE}
    measures = {name: value for name, value in numbers.items() if not name.startswith("validation_")}
    health.update(
        line["step"], measures, loss=_number(line["loss"]), gradient=_number(line.get("gradient_norm")), knn=knn,
        untrained_knn=untrained,
    )  # fmt: skip


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _level(word: str) -> Any:
    grave = {"diverging": "bad", "collapsing": "bad", "healthy": "healthy", "starting": "healthy"}
    return grave.get(word, "warning")


def _lines(path: Path) -> list[Entry]:
    """The measurements; what a run that was killed has half written is passed over."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and isinstance(entry.get("step"), int):
            found.append(entry)
    return found
