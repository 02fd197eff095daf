"""The outcome of a comparison: scores over seeds, differences seed by seed, curves and costs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from manyview.comparison.batch_rules import BATCH_RULES, SAME, describe_rule
from manyview.comparison.plan import PlannedRun, SettingsByMethod, describe, folder_name
from manyview.config.config import Config
from manyview.core.errors import UserError
from manyview.core.json_file import read_json
from manyview.methods.method import VIEW
from manyview.training.batches import epoch_of
from manyview.training.build import small_method
from manyview.training.run import Run

OUTCOME = "comparison.json"
COST = "cost.json"  # in a run's folder: a `Cost`
KNN, OWN = "kNN", "own image first"
MEASURES = {KNN: "knn", "recall@1 across views": "recall@1", OWN: "instance"}
"""Scores of training, by the name in tables, and their names in metrics; the first that runs have decides.

The last, how often an augmented view finds its own image, is for those that have none of the others.
"""
TOLERANCE = 0.02  # of the images, by which a method may see fewer than others without a warning


def about_equal(counts: Sequence[int]) -> bool:
    """Tells whether two numbers of images are so close that no score depends on the difference."""
    return max(counts) - min(counts) <= TOLERANCE * max(counts)


@dataclass(frozen=True)
class Point:
    """A score during training, after so many epochs and seconds of training; the time of scoring is not counted."""

    epoch: float
    seconds: float
    score: float


@dataclass(frozen=True)
class Cost:
    """What a run took in all its sessions, as its worker recorded it; None where it did not."""

    memory: int | None = None  # the largest peak, in bytes
    processor_seconds: float | None = None  # of all cores, from start to end: other programs hardly change it


@dataclass(frozen=True)
class MethodOutcome:
    """The runs of one method, one per seed, in the order of the seeds.

    batch_size   images a step
    copies       of an image that a step takes
    steps        of the optimiser
    images_seen  in all steps, each image as often as it was in one
    curves       the deciding score during training, beginning with the untrained encoder
    scores       by name: the final ones of training, the deciding one first, and those of other protocols
    seconds      of training by the clock, which other work on the machine lengthens
    memory       the largest peak, in bytes; None where it is not known
    processor_seconds  the mean over the runs; None where it is not known
    """

    method: str
    seeds: tuple[int, ...]
    batch_size: int
    copies: int
    steps: int
    images_seen: int
    curves: list[list[Point]]
    scores: dict[str, list[float]]
    seconds: list[float]
    memory: int | None
    processor_seconds: float | None = None


@dataclass(frozen=True)
class Outcome:
    """The outcome of all methods; the first is the baseline that others are compared with.

    queries     images that each score of training is measured on
    failed      runs that are left out
    differing   settings besides their own in which the methods differ, by method
    batch_rule  the rule for each method's batch size, a name of `BATCH_RULES`
    """

    folder: Path
    data: str
    methods: list[MethodOutcome]
    queries: int
    failed: tuple[str, ...] = ()
    differing: SettingsByMethod = field(default_factory=dict)
    batch_rule: str = SAME

    @property
    def measure(self) -> str:
        """The deciding score: kNN; without labels recall across views, or instance discrimination."""
        return self.scores[0]

    @property
    def standard_error(self) -> float:
        """The standard error of the deciding score over the query images, which more seeds do not reduce."""
        p = statistics.mean(self.methods[0].scores[self.measure])
        return math.sqrt(p * (1 - p) / self.queries)

    @property
    def scores(self) -> list[str]:
        """The names of the scores that all methods have."""
        return [name for name in self.methods[0].scores if all(name in each.scores for each in self.methods)]

    @property
    def equal_images(self) -> bool:
        """Whether all methods have trained on the same number of images, up to incomplete batches."""
        return about_equal([each.images_seen for each in self.methods])

    @property
    def caveat(self) -> str:
        """Names what else than the method may cause a difference: batch sizes and other settings."""
        batches = describe_rule(self.batch_rule, {each.method: each.batch_size for each in self.methods})
        return f"{batches} The methods differ also in: {describe(self.differing)}." if self.differing else batches

    def runs(self) -> list[Run]:
        """Returns one run of every method, that of its first seed."""
        return [Run(self.folder / folder_name(each.method, each.seeds[0])) for each in self.methods]

    def differences(self, other: MethodOutcome, score: str | None = None) -> list[float]:
        """Compares a method with the baseline seed by seed, so that what a seed shares cancels out."""
        first, score = self.methods[0], score or self.measure
        baseline = dict(zip(first.seeds, first.scores[score], strict=True))
        scores = zip(other.seeds, other.scores[score], strict=True)
        return [value - baseline[seed] for seed, value in scores if seed in baseline]

    def table(self) -> str:
        """Writes a Markdown table in points, followed by the rule of the batch sizes and other differences."""
        lines = [["method", *self.titles], ["---"] * (len(self.titles) + 1)]
        lines += [[each.method, *self.cells(each)] for each in self.methods]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"{table}\n\n{self.caveat}"

    @property
    def titles(self) -> list[str]:
        """The titles of the table's columns after the method's."""
        baseline = self.methods[0].method
        scores = [title for name in self.scores for title in (name, f"{name} against {baseline}")]
        return ["batch x copies", "steps", "images seen", *scores, "seconds", "processor seconds", "peak memory"]

    def cells(self, one: MethodOutcome) -> list[str]:
        """Returns a method's row of the table, under `titles`."""
        scores = []
        for name in self.scores:
            difference = "" if one is self.methods[0] else mean_and_std(self.differences(one, name), sign="+")
            scores += [mean_and_std(one.scores[name]), difference]
        memory = "" if one.memory is None else f"{one.memory / 2**20:,.0f} MB"
        processor = "" if one.processor_seconds is None else f"{one.processor_seconds:,.0f}"
        seen = [f"{one.batch_size} x {one.copies}", f"{one.steps:,}", f"{one.images_seen:,}"]
        return [*seen, *scores, f"{statistics.mean(one.seconds):,.0f}", processor, memory]

    def to_json(self) -> dict[str, Any]:
        """Returns all of it as plain values, with the differences, which `read` does not need."""
        methods = [
            {**asdict(each), "differences": {name: self.differences(each, name) for name in self.scores}}
            for each in self.methods
        ]
        return {
            "data": self.data, "baseline": self.methods[0].method, "queries": self.queries,
            "failed": list(self.failed), "batch_rule": self.batch_rule, "differing_settings": self.differing,
            "methods": methods,
        }  # fmt: skip


def read(folder: Path) -> Outcome:
    """Reads what `compare` wrote."""
    path, remedy = folder / OUTCOME, "the same `manyview compare` writes it again"
    found = read_json(path, _Written, remedy=remedy)
    for each in found.methods:
        lists = [each.curves, each.seconds, *each.scores.values()]
        decided = any(name in each.scores for name in MEASURES)
        whole = each.seeds and decided and all(len(one) == len(each.seeds) for one in lists)
        if not whole or len(set(each.seeds)) < len(each.seeds):
            raise UserError(None, f"{path} is damaged ({each.method[:40]!r} has not one score a seed); {remedy}")
    if not found.methods or found.queries < 1:
        raise UserError(None, f"{path} is damaged (it has no methods or no queries); {remedy}")
    if found.batch_rule not in BATCH_RULES:
        raise UserError(None, f"{path} is damaged (there is no batch rule {found.batch_rule[:40]!r}); {remedy}")
    known = (found.data, found.methods, found.queries, found.failed, found.differing_settings, found.batch_rule)
    return Outcome(folder, *known)


@dataclass(frozen=True)
class _Written:
    """The content of comparison.json."""

    data: str
    methods: list[MethodOutcome]
    queries: int
    failed: tuple[str, ...]
    differing_settings: SettingsByMethod
    batch_rule: str


def mean_and_std(values: Sequence[float], sign: str = "") -> str:
    """Writes shares as points: the mean, and the standard deviation over the seeds where there are several."""
    points = [100 * value for value in values]
    std = f" ± {statistics.stdev(points):.1f}" if len(points) > 1 else ""
    return f"{statistics.mean(points):{sign}.1f}{std}" if points else ""


def collect(
    folder: Path,
    data: str,
    runs: Sequence[PlannedRun],
    more: Mapping[Path, Mapping[str, float]],
    *,
    images: int,
    queries: int,
    failed: Sequence[str] = (),
) -> Outcome:
    """Reads the outcome from the runs' folders; `more` has further scores by a run's folder, and may lack some.

    images  the number of training images
    """
    by_method: dict[str, list[PlannedRun]] = {}
    for run in runs:
        by_method.setdefault(run.method, []).append(run)
    methods = [_collect(each, more, images) for each in by_method.values()]
    return Outcome(folder, data, methods, queries, tuple(failed))


def _collect(planned: list[PlannedRun], more: Mapping[Path, Mapping[str, float]], images: int) -> MethodOutcome:
    runs = [Run(each.folder) for each in planned]
    curves = [score_curve(run) for run in runs]
    trained = {name: [points[-1].score for points in found] for name, found in _curves(runs).items()}
    found = [more.get(run.folder, {}) for run in runs]
    shared = {name: [each[name] for each in found] for name in found[0] if all(name in each for each in found)}
    last = [run.metrics[-1] for run in runs]
    costs = [cost_of(run.folder) for run in runs]
    peaks = [each.memory for each in costs if each.memory is not None]
    times = [each.processor_seconds for each in costs if each.processor_seconds is not None]
    config, steps = runs[0].config, last[0]["step"]
    return MethodOutcome(
        planned[0].method, tuple(each.seed for each in planned), config.batch_size, copies_of_an_image(config), steps,
        epoch_of(config, images).seen_in(steps), curves, {**trained, **shared},
        [each.get("seconds", 0.0) for each in last], max(peaks, default=None),
        statistics.mean(times) if len(times) == len(runs) else None,
    )  # fmt: skip


def copies_of_an_image(config: Config) -> int:
    """Returns how many augmented copies of an image the method of a run takes a step, of all views together."""
    return small_method(config, config.views or (VIEW,)).copies


def _curves(runs: Sequence[Run]) -> dict[str, list[list[Point]]]:
    """Reads the scores of training that all of some runs have, by their names in tables."""
    found = {name: [_curve(run, metric) for run in runs] for name, metric in MEASURES.items()}
    scored = {name: curves for name, curves in found.items() if all(curves)}
    return {name: curves for name, curves in scored.items() if name != OWN} or scored


def score_curve(run: Run) -> list[Point]:
    """Reads the deciding score by epoch and by time from a run's metrics."""
    return deciding_score(run)[1]


def deciding_score(run: Run) -> tuple[str, list[Point]]:
    """Returns the first of `MEASURES` that a run's metrics have, by its name in tables."""
    found = ((name, _curve(run, metric)) for name, metric in MEASURES.items())
    return next(((name, points) for name, points in found if points), (KNN, []))


def _curve(run: Run, metric: str) -> list[Point]:
    lines = [line for line in run.metrics if line.get(metric) is not None]
    per_epoch = steps_per_epoch(run.metrics, run.config.epochs)
    return [Point(line["step"] / per_epoch, line.get("seconds", 0.0), line[metric]) for line in lines]


def cost_of(folder: Path) -> Cost:
    """Reads what a run's worker recorded of its cost."""
    cost = Cost()
    with suppress(UserError):
        cost = read_json(folder / COST, Cost, remedy="")
    return cost


def steps_per_epoch(metrics: Sequence[Mapping[str, Any]], epochs: float) -> float:
    """Computes the steps of an epoch from the metrics of a run of so many epochs.

    The last step of a complete run gives it, unless `max_steps` ended it earlier. An epoch, counted from 1, in a line
    is a lower bound.
    """
    at_least: list[float] = [line["step"] / line["epoch"] for line in metrics if line.get("epoch")]
    planned: int = round(metrics[-1]["step"] / epochs) if metrics else 1
    return max(1, planned, *at_least)
