"""The record of a run in its folder, without any image: settings, metrics, scores and health."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from manyview.comparison.outcome import steps_per_epoch
from manyview.config.component import components
from manyview.config.config import Config, differences
from manyview.diagnose.health import SCORES, Health
from manyview.diagnose.verdict import Verdict
from manyview.losses import is_coupled
from manyview.report.charts import Point
from manyview.report.frame import colour_class
from manyview.training.instance import INSTANCE
from manyview.training.load import has_ended
from manyview.training.monitor import GAIN_ERROR, RANDOM
from manyview.training.run import CONFIG, METRICS, Run, read_metrics

TERM, BOUND = "loss/", "bound/"  # before the name of a term, where a method has several
VIEW_KNN = "knn/"  # before the name of a view, where a method has an encoder a view
LINEAR = "linear"  # a linear probe during training; "linear/VIEW" of a view
RECALL, PAIRS = "recall@", "pairs/"  # recall@1/rgb to thermal: from the query's view to the one that is searched
VIEW_HEALTH = "health/"  # before the name of a view
KS = (1, 5, 10)
NO_MEASURES = (
    "gradient_norm", "lr", "loss", "health", "knn", LINEAR, INSTANCE, "instance_images", "rankme", "rankme_limit",
    "lidar", "lidar_limit", "lidar_images", "not_finite", "step", "epoch", "seconds",
)  # fmt: skip
NO_MEASURE_PREFIXES = (
    "validation_",
    TERM,
    BOUND,
    VIEW_KNN,
    f"{LINEAR}/",
    RECALL,
    PAIRS,
    VIEW_HEALTH,
    GAIN_ERROR,
    RANDOM,
)
NAMED_SETTINGS = 2  # that differ, in a run's name
LEVELS = {  # else a warning
    "diverging": "bad", "collapsing": "bad", "healthy": "healthy", "starting": "unknown",
    "not learning yet": "unknown",
}  # fmt: skip
Metrics = dict[str, Any]


class Recall(NamedTuple):
    """The recalls of a query view within another view, at k nearest samples.

    chance  of a random order; None where the number of samples was not recorded
    """

    k: int
    last: float
    untrained: float | None
    chance: float | None


@dataclass(frozen=True, eq=False)
class RunRecord:
    """The record of a run in its folder.

    metrics  the lines of metrics.jsonl
    odd      how many of its lines hold something that training does not write, which is left out
    name     that tells it from other runs of the page
    colour   the number of its colour, which runs share that differ by their seed alone
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
        """Returns (epochs, value), or (minutes, value) over "minutes", where it was measured and is a number."""
        return [
            (self._when(line, over), float(line[name]))
            for line in self.metrics
            if isinstance(line.get(name), int | float) and math.isfinite(line[name])
        ]

    def names(self, prefix: str) -> list[str]:
        """Lists what follows a prefix in the names of the metrics, such as the terms after "loss/"."""
        names = dict.fromkeys(name for line in self.metrics for name in line if name.startswith(prefix))
        return [name.removeprefix(prefix) for name in names]

    @property
    def knn(self) -> list[Point]:
        return self.curve("knn")

    @property
    def untrained(self) -> float | None:
        """The kNN accuracy before training."""
        return self.before("knn")

    def before(self, name: str) -> float | None:
        """Returns the measurement before training."""
        return next((value for when, value in self.curve(name) if when == 0), None)

    def random(self, name: str) -> float | None:
        """Returns the score of an untrained encoder, where the run began with weights."""
        return self.last(RANDOM + name)

    def gain_error(self, name: str, *, over_random: bool = False) -> float | None:
        """Returns the standard error of a score's last gain over the run's start, or over random weights."""
        return self.last((RANDOM if over_random else "") + GAIN_ERROR + name)

    def last(self, name: str) -> float | None:
        """Returns the last measurement."""
        points = self.curve(name)
        return points[-1][1] if points else None

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The ordered pairs of views that retrieval was measured on, the query's view first."""
        found = [tuple(name.split(" to ")) for name in self.names(f"{RECALL}1/")]
        return [(each[0], each[1]) for each in found if len(each) == 2]

    def recalls(self, query: str, searched: str) -> list[Recall]:
        """Returns the last recall@1, @5 and @10 of a pair of views, as far as they were measured."""
        name, found = f"{query} to {searched}", []
        counts = self.curve(PAIRS + name)
        for k in KS:
            metric = f"{RECALL}{k}/{name}"
            chance = min(1.0, k / counts[-1][1]) if counts and counts[-1][1] > 0 else None
            if points := self.curve(metric):
                found.append(Recall(k, points[-1][1], self.before(metric), chance))
        return found

    def verdict(self) -> Verdict | None:
        """The verdict on the run's health at its last measurement, judged again from the metrics."""
        loss = components(self.config).get("loss")
        health = Health(coupled=loss is not None and is_coupled(loss))
        scores: dict[str, float] = {}
        errors: dict[str, float] = {}
        untrained = {name: before for name in SCORES if (before := self.before(name)) is not None}
        for line in self.metrics:
            scores |= {name: line[name] for name in SCORES if line.get(name) is not None}
            errors |= {name: line[GAIN_ERROR + name] for name in SCORES if line.get(GAIN_ERROR + name) is not None}
            if "loss" in line:
                numbers = {"loss": _number(line["loss"]), "gradient": _number(line.get("gradient_norm"))}
                measures = {name: _number(value) for name, value in line.items() if _is_measure(name)}
                health.update(line["step"], measures, **numbers, scores=scores, untrained=untrained, errors=errors)
                scores = {}
        word = next((line["health"] for line in reversed(self.metrics) if "health" in line), None)
        if word is None:
            return None
        found = health.verdict()
        level: Any = LEVELS.get(word, "warning")
        return found if found.word == word else Verdict(level, word, str(word))

    def words(self, name: str = "health") -> list[tuple[int, str]]:
        """Returns (step, word) for the run's health, or that of one view under "health/VIEW"."""
        return [(int(line["step"]), str(line[name])) for line in self.metrics if name in line]

    @property
    def view_health(self) -> dict[str, str]:
        """The last word on each view, where there are several."""
        return {view: self.words(VIEW_HEALTH + view)[-1][1] for view in self.names(VIEW_HEALTH)}

    def _when(self, line: Metrics, over: str) -> float:
        return float(line.get("seconds") or 0) / 60 if over == "minutes" else line["step"] / self.steps_per_epoch


def read_records(runs: Sequence[Run]) -> list[RunRecord]:
    """Reads the records of runs, with names and colours that tell them apart."""
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
    """Lists the keys in which runs differ except the seed; the name of the data stands for it."""
    data = ["data.name"] if one.config.data["name"] != other.config.data["name"] else []
    changed = [line.partition(":")[0] for line in differences(one.config, other.config)]
    return [*data, *(key for key in changed if key != "seed")]


def _name(record: RunRecord, kind: list[RunRecord], kinds: Sequence[list[RunRecord]]) -> str:
    """Names a run by its method, its differences from the others, and among several seeds by the seed."""
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
