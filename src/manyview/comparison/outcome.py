"""What came of a comparison: scores over seeds, differences seed by seed, curves and costs."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from manyview.comparison.plan import Entry, Unlike, looks, name_of, spelt
from manyview.core.errors import UserError
from manyview.training.run import Run

OUTCOME = "comparison.json"
COST = "cost.json"  # in a run's folder: what it took, beside its time
Numbers = Sequence[float]
MUCH = 0.02  # of the images, by which a method may see fewer than others without a word


def as_many(counts: Sequence[int]) -> bool:
    return max(counts) - min(counts) <= MUCH * max(counts)


@dataclass(frozen=True)
class Point:
    """A score on the way: after so many epochs and so many seconds of training, without the scoring itself."""

    epoch: float
    seconds: float
    score: float


@dataclass(frozen=True)
class Row:
    """A method's runs, one a seed, in the order of the seeds.

    curves   kNN on the way, the untrained encoder first
    scores   by name: the last kNN, and what other protocols gave
    seconds  of training
    memory   the largest peak, in bytes; None where it is not known
    """

    method: str
    seeds: tuple[int, ...]
    batch_size: int
    views: int
    steps: int
    curves: list[list[Point]]
    scores: dict[str, list[float]]
    seconds: list[float]
    memory: int | None

    @property
    def images_seen(self) -> int:
        return self.steps * self.batch_size


@dataclass(frozen=True)
class Outcome:
    """Of all methods; the first is the one that others are compared with.

    asked   images that each kNN score is of
    failed  runs that are left out
    unlike  settings in which the methods differ and which are not their own, by method
    """

    folder: Path
    data: str
    rows: list[Row]
    asked: int
    failed: tuple[str, ...] = ()
    unlike: Unlike = field(default_factory=dict)

    @property
    def doubt(self) -> float:
        """One deviation of a score by which images happen to be asked about, which no number of seeds makes smaller."""
        p = statistics.mean(self.rows[0].scores["kNN"])
        return math.sqrt(p * (1 - p) / self.asked)

    @property
    def scores(self) -> list[str]:
        """The names that all methods have."""
        return [name for name in self.rows[0].scores if all(name in row.scores for row in self.rows)]

    @property
    def as_many_images(self) -> bool:
        """Whether all methods have seen the same number, but for a few that no batch was left for."""
        return as_many([row.images_seen for row in self.rows])

    @property
    def also(self) -> str:
        """What else than the method a difference may come from, in a sentence; empty where there is nothing."""
        return f"The methods differ also in: {spelt(self.unlike)}." if self.unlike else ""

    def runs(self) -> list[Run]:
        """One of every method, with its first seed."""
        return [Run(self.folder / name_of(row.method, row.seeds[0])) for row in self.rows]

    def differences(self, row: Row, score: str = "kNN") -> list[float]:
        """To the first method, seed by seed: what the seeds have in common falls out."""
        first = self.rows[0]
        theirs = dict(zip(first.seeds, first.scores[score], strict=True))
        ours = zip(row.seeds, row.scores[score], strict=True)
        return [mine - theirs[seed] for seed, mine in ours if seed in theirs]

    def table(self) -> str:
        """As markdown, in points; under it, what else the methods differ in."""
        lines = [["method", *self.titles], ["---"] * (len(self.titles) + 1)]
        lines += [[row.method, *self.cells(row)] for row in self.rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"{table}\n\n{self.also}" if self.also else table

    @property
    def titles(self) -> list[str]:
        """Of the table's columns, after the method's."""
        first = self.rows[0].method
        scores = [each for name in self.scores for each in (name, f"{name} against {first}")]
        seen = [] if self.as_many_images else ["images seen"]
        return ["batch x views", "steps", *seen, *scores, "seconds", "peak memory"]

    def cells(self, row: Row) -> list[str]:
        """What the table says of a method, under `titles`."""
        scores = []
        for name in self.scores:
            apart = "" if row is self.rows[0] else told(self.differences(row, name), sign="+")
            scores += [told(row.scores[name]), apart]
        memory = "" if row.memory is None else f"{row.memory / 2**20:,.0f} MB"
        seconds = f"{statistics.mean(row.seconds):,.0f}"
        seen = [] if self.as_many_images else [f"{row.images_seen:,}"]
        return [f"{row.batch_size} x {row.views}", f"{row.steps:,}", *seen, *scores, seconds, memory]

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        rows = [
            {
                "method": row.method, "seeds": list(row.seeds), "batch_size": row.batch_size, "views": row.views,
                "steps": row.steps, "images_seen": row.images_seen, "scores": row.scores, "seconds": row.seconds,
                "memory": row.memory,
                "differences": {name: self.differences(row, name) for name in self.scores},
                "curves": [[[point.epoch, point.seconds, point.score] for point in curve] for curve in row.curves],
            }
            for row in self.rows
        ]  # fmt: skip
        return {
            "data": self.data, "against": self.rows[0].method, "asked": self.asked, "failed": list(self.failed),
            "unlike": self.unlike, "rows": rows,
        }  # fmt: skip


def read(folder: Path) -> Outcome:
    """What `compare` has written."""
    path = folder / OUTCOME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        rows = [_of_plain(row) for row in found["rows"]]
        unlike = found.get("unlike", {})  # older files have none
        return Outcome(folder, found["data"], rows, found["asked"], tuple(found["failed"]), unlike)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            None, f"{path}: is not what `manyview compare` writes: {type(error).__name__} {error}"
        ) from None


def _of_plain(row: Mapping[str, Any]) -> Row:
    curves = [[Point(*point) for point in curve] for curve in row["curves"]]
    return Row(
        row["method"], tuple(row["seeds"]), row["batch_size"], row["views"], row["steps"], curves, row["scores"],
        row["seconds"], row["memory"],
    )  # fmt: skip


def told(values: Numbers, sign: str = "") -> str:
    """Shares as points: the mean, and the deviation over the seeds where there are several."""
    points = [100 * value for value in values]
    more = f" ± {statistics.stdev(points):.1f}" if len(points) > 1 else ""
    return f"{statistics.mean(points):{sign}.1f}{more}" if points else ""


def outcome(
    folder: Path,
    data: str,
    runs: Sequence[Entry],
    more: Mapping[Path, Mapping[str, float]],
    *,
    asked: int,
    failed: Sequence[str] = (),
    unlike: Unlike | None = None,
) -> Outcome:
    """Reads it from the runs' folders. more: further scores by a run's folder, of which some may be missing."""
    by_method: dict[str, list[Entry]] = {}
    for entry in runs:
        by_method.setdefault(entry.method, []).append(entry)
    rows = [_row(entries, more) for entries in by_method.values()]
    return Outcome(folder, data, rows, asked, tuple(failed), unlike or {})


def _row(runs: list[Entry], more: Mapping[Path, Mapping[str, float]]) -> Row:
    curves = [curve(Run(entry.folder)) for entry in runs]
    scores = {"kNN": [points[-1].score for points in curves]}
    found = [more.get(entry.folder, {}) for entry in runs]
    scores |= {name: [each[name] for each in found] for name in found[0] if all(name in each for each in found)}
    ends = [Run(entry.folder).metrics[-1] for entry in runs]
    peaks = [peak for entry in runs if (peak := _peak(entry.folder)) is not None]
    config = Run(runs[0].folder).config
    return Row(
        runs[0].method, tuple(entry.seed for entry in runs), config.batch_size, looks(config), ends[0]["step"], curves,
        scores, [end["seconds"] for end in ends], max(peaks, default=None),
    )  # fmt: skip


def curve(run: Run) -> list[Point]:
    """kNN by epoch and by time."""
    lines = [line for line in run.metrics if line.get("knn") is not None]
    per_epoch = _per_epoch(run)
    return [Point(line["step"] / per_epoch, line["seconds"], line["knn"]) for line in lines]


def _per_epoch(run: Run) -> float:
    """Steps an epoch of a run that has ended.

    Its last step tells, unless `max_steps` has ended it earlier. A line's epoch, counted from 1, says that there are at
    least so many.
    """
    lines = run.metrics
    told: list[float] = [line["step"] / line["epoch"] for line in lines if line.get("epoch")]
    planned: int = round(lines[-1]["step"] / run.config.epochs) if lines else 1
    return max(1, planned, *told)


def _peak(folder: Path) -> int | None:
    path = folder / COST
    return int(json.loads(path.read_text(encoding="utf-8"))["memory"]) if path.is_file() else None
