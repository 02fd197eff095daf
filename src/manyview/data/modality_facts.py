"""What `manyview check` finds of each modality: files, channels, type, range, mean, std, no data, and who lacks it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from manyview.core.text import printable
from manyview.data.statistics import Moments, suspect_zeros

NAMED = 5  # samples that lack a modality and are named, at most


@dataclass
class ModalityFacts:
    """Facts of one modality, over all splits.

    files       that there are; of data without files, samples
    unreadable  of these
    channels    most of them have
    types       of their numbers, with how many files have each
    low, high, mean, std  of the raw values of all pixels that hold data, the latter two by channel; None, and empty,
                where only headers were read
    no_data     the share of pixels that hold none
    zeros       the share of pixels that are 0 and count as data, where they are of more than 8 bits
    missing     samples that lack the modality, and the first names of these
    """

    files: int = 0
    unreadable: int = 0
    channels: int | None = None
    types: dict[str, int] = field(default_factory=dict)
    low: float | None = None
    high: float | None = None
    mean: list[float] = field(default_factory=list)
    std: list[float] = field(default_factory=list)
    no_data: float | None = None
    zeros: float = 0.0
    missing: int = 0
    missing_names: list[str] = field(default_factory=list)


class FactsTally:
    """Sums up what was found of one modality, file by file."""

    def __init__(self) -> None:
        self.facts, self.channels, self.types = ModalityFacts(), Counter[int](), Counter[str]()
        self.moments: dict[int, Moments] = {}  # by the number of channels
        self.zeros = 0

    def add(self, kind: str, channels: int, moments: Moments | None, zeros: int) -> None:
        self.types[kind] += 1
        if moments is not None:
            self.channels[channels] += 1
            self.moments[channels] = self.moments[channels] + moments if channels in self.moments else moments
            self.zeros += zeros

    def finish(self) -> ModalityFacts:
        facts, usual = self.facts, self.channels.most_common(1)
        facts.types = dict(self.types.most_common())
        if usual:
            facts.channels = usual[0][0]
            total = self.moments[facts.channels]
            seen = int(total.count.sum())
            facts.no_data, facts.zeros = total.no_data, self.zeros / max(1, seen)
            if seen:
                facts.low, facts.high = float(total.low.min()), float(total.high.max())
                facts.mean, facts.std = total.mean.tolist(), total.std.tolist()
        return facts


def facts_table(facts: dict[str, ModalityFacts], samples: int) -> list[str]:
    """A table for a person, and who lacks what."""
    if not facts:
        return []
    rows: list[tuple[str, ...]] = [("modality", "files", "channels", "type", "range", "mean", "std", "no data")]
    rows += [_row(name, each) for name, each in facts.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    lines = ["modalities:", *("  " + "  ".join(row).rstrip() for row in padded)]
    for name, each in facts.items():
        if each.missing:
            more = ", ..." if each.missing > len(each.missing_names) else ""
            who = ", ".join(each.missing_names) + more
            lines.append(f"  {printable(name)} is missing in {each.missing} of {samples} samples: {who}")
        said = suspect_zeros(name, each.zeros, each.low, "--nodata 0 (pretrain: --data.nodata 0)")
        lines += [f"  {line}" for line in said]
    return lines


def _row(name: str, facts: ModalityFacts) -> tuple[str, ...]:
    broken = f" ({facts.unreadable} unreadable)" if facts.unreadable else ""
    spread = "" if facts.low is None or facts.high is None else f"{facts.low:.5g} to {facts.high:.5g}"
    return (
        printable(name),
        f"{facts.files}{broken}",
        "" if facts.channels is None else str(facts.channels),
        " and ".join(f"{kind} {count}" if len(facts.types) > 1 else kind for kind, count in facts.types.items()),
        spread,
        _few(facts.mean),
        _few(facts.std),
        "" if facts.no_data is None else f"{facts.no_data:.1%}",
    )


def _few(numbers: list[float]) -> str:
    """The first four numbers, one a channel."""
    return ", ".join([*(f"{each:.5g}" for each in numbers[:4]), *(["..."] if len(numbers) > 4 else [])])
