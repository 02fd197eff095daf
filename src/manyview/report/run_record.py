"""What a run's folder records, without any image: settings, metrics, scores, and how healthy the run was."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manyview.comparison.outcome import steps_per_epoch
from manyview.config.config import Config, components, differences
from manyview.diagnose.health import Health, Verdict
from manyview.losses import is_coupled
from manyview.report.charts import Point
from manyview.report.frame import colour_class
from manyview.training.load import has_ended
from manyview.training.run import CONFIG, METRICS, Run, read_metrics

TERM = "loss/"  # before the name of a term, where a method has several
NO_MEASURES = ("gradient_norm", "lr", "loss", "health", "knn", "not_finite", "step", "epoch", "seconds")
NO_MEASURE_PREFIXES = ("validation_", TERM)
NAMED_SETTINGS = 2  # that differ, in a run's name
LEVELS = {"diverging": "bad", "collapsing": "bad", "healthy": "healthy", "starting": "healthy"}  # else a warning
Metrics = dict[str, Any]


@dataclass(frozen=True, eq=False)
class RunRecord:
    """A run as its folder records it.

    metrics  the lines of metrics.jsonl
    odd      how many of its lines hold something that training does not write, which is left out
    name     what it is called beside other runs of the page
    colour   the number of its colour: runs that differ by their seed alone share one
    first    whether it is the first of its colour, which stands for the others where there is room for one only
    """

    run: Run
    config: Config
    metrics: list[Metrics]
    odd: int = 0
    name: str = ""
    colour: int = 0
    first: bool = True

    @property
    def colour_class(self) -> str:
        return colour_class(self.colour)

    @property
    def folder(self) -> Path:
        return self.run.folder

    @property
    def finished(self) -> bool:
        return has_ended(self.folder)

    @property
    def method(self) -> str:
        return str(self.config.method["name"])

    @property
    def data(self) -> str:
        name = str(self.config.data["name"])
        return "your own data" if self.config.own_data else Path(name).name or name

    @property
    def steps(self) -> int:
        return max((int(line["step"]) for line in self.metrics), default=0)

    @property
    def seconds(self) -> float:
        return max((float(line.get("seconds") or 0) for line in self.metrics), default=0.0)

    @property
    def steps_per_epoch(self) -> float:
        return steps_per_epoch(self.metrics, self.config.epochs)

    @property
    def epochs(self) -> float:
        return self.steps / self.steps_per_epoch

    @property
    def date(self) -> str:
        return time.strftime("%d %B %Y", time.localtime((self.folder / CONFIG).stat().st_mtime))

    def curve(self, name: str, *, over: str = "epoch") -> list[Point]:
        """Gives (epochs, value), or (minutes, value) over "minutes", where it was measured and is a number."""
        return [
            (self._when(line, over), float(line[name]))
            for line in self.metrics
            if isinstance(line.get(name), int | float) and math.isfinite(line[name])
        ]

    @property
    def terms(self) -> list[str]:
        """The names of the terms whose losses were logged one by one."""
        names = dict.fromkeys(name for line in self.metrics for name in line if name.startswith(TERM))
        return [name.removeprefix(TERM) for name in names]

    @property
    def knn(self) -> list[Point]:
        return self.curve("knn")

    @property
    def untrained(self) -> float | None:
        """The kNN accuracy before training."""
        return next((value for when, value in self.knn if when == 0), None)

    def verdict(self) -> Verdict | None:
        """Judges again, from the metrics, how the run was doing at its last measurement."""
        loss = components(self.config).get("loss")
        health, knn = Health(coupled=loss is not None and is_coupled(loss)), None
        for line in self.metrics:
            knn = line["knn"] if line.get("knn") is not None else knn
            if "loss" in line:
                numbers = {"loss": _number(line["loss"]), "gradient": _number(line.get("gradient_norm"))}
                measures = {name: _number(value) for name, value in line.items() if _is_measure(name)}
                health.update(line["step"], measures, **numbers, knn=knn, untrained_knn=self.untrained)
                knn = None
        word = next((line["health"] for line in reversed(self.metrics) if "health" in line), None)
        if word is None:
            return None
        found = health.verdict()
        level: Any = LEVELS.get(word, "warning")
        return found if found.word == word else Verdict(level, word, str(word))

    def _when(self, line: Metrics, over: str) -> float:
        return float(line.get("seconds") or 0) / 60 if over == "minutes" else line["step"] / self.steps_per_epoch


def read_records(runs: Sequence[Run]) -> list[RunRecord]:
    """Reads the records of runs, with names and colours to keep them apart."""
    kinds: list[list[RunRecord]] = []
    for each in [RunRecord(run, run.config, *read_metrics(run.folder / METRICS)) for run in runs]:
        alike = next((kind for kind in kinds if not _differences(kind[0], each)), None)
        kinds.append([each]) if alike is None else alike.append(each)
    named = [
        replace(each, name=_name(each, kind, kinds), colour=number, first=each is kind[0])
        for number, kind in enumerate(kinds)
        for each in kind
    ]
    names = [each.name for each in named]
    return [
        each if names.count(each.name) == 1 else replace(each, name=f"{each.name} {each.folder.name} ({number})")
        for number, each in enumerate(named, 1)
    ]


def _differences(one: RunRecord, other: RunRecord) -> list[str]:
    """Gives the keys in which two runs differ, but the seed; the name of the data says what it is."""
    data = ["data.name"] if one.config.data["name"] != other.config.data["name"] else []
    changed = [line.partition(":")[0] for line in differences(one.config, other.config)]
    return [*data, *(key for key in changed if key != "seed")]


def _name(record: RunRecord, kind: list[RunRecord], kinds: Sequence[list[RunRecord]]) -> str:
    """Names a run by its method, what else sets it apart from the others, and of several seeds by the seed."""
    rivals = [other[0] for other in kinds if other is not kind and other[0].method == record.method]
    keys = dict.fromkeys(key for rival in rivals for key in _differences(kind[0], rival))
    values = record.config.flat()
    named = [(key.rpartition(".")[2].replace("_", " "), values.get(key)) for key in list(keys)[:NAMED_SETTINGS]]
    settings = [f"{key} {Path(value).name if isinstance(value, str) else value}" for key, value in named]
    seed = [f"seed {record.config.seed}"] if len(kind) > 1 else []
    return " ".join([record.method, *settings, *seed])


def _is_measure(name: str) -> bool:
    return name not in NO_MEASURES and not name.startswith(NO_MEASURE_PREFIXES)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
