"""Examines every sample of a data set and counts what it meets."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median_low

import torch
from torch import Tensor

from manyview.core.parallel import available
from manyview.data.dataset import Dataset, Unreadable, label_sets, read
from manyview.data.folder import Folder
from manyview.data.image import check_regular, read_header, reason
from manyview.data.modality_facts import NAMED, FactsTally, ModalityFacts
from manyview.data.paired import Paired
from manyview.data.raster import raster_header
from manyview.data.selection import left_out
from manyview.data.statistics import Moments, NoData, moments, no_data_of, zeros_of

MIN_SIDE = 32  # pixels of the shorter side; below, crops show almost nothing
_CHUNK = 64  # samples that a thread takes at once
_PIECE = 1 << 20  # bytes of a file at a time


@dataclass
class Finding:
    """What one modality of one sample turned out to be; `problem` says why it cannot be read."""

    modality: str
    format: str = ""
    mode: str = ""
    width: int = 0
    height: int = 0
    stored: int = 0  # bytes on disk
    decoded: int = 0  # bytes in memory
    digest: bytes = b""
    problem: str = ""
    channels: int = 0
    moments: Moments | None = None  # of its values, where there are several modalities
    zeros: int = 0


@dataclass
class Survey:
    """All that a data set was found to hold; with `exact` False only headers were read, which tell no duplicates."""

    exact: bool
    splits: dict[str, int] = field(default_factory=dict)
    samples: int = 0
    modalities: dict[str, int] = field(default_factory=dict)  # samples that have each
    widths: list[int] = field(default_factory=list)  # lowest, median, highest
    heights: list[int] = field(default_factory=list)
    small: int = 0
    formats: dict[str, int] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    labels: dict[str, dict[str, int]] = field(default_factory=dict)  # split -> class -> samples
    unlabelled: int = 0
    unreadable: list[tuple[str, str]] = field(default_factory=list)  # name, reason
    duplicates: list[list[str]] = field(default_factory=list)  # names of files with the same content
    across_splits: int = 0  # groups of duplicates that are in more than one split
    ignored: dict[str, int] = field(default_factory=dict)
    hidden: int = 0
    twice: int = 0
    closed: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # folders and columns of label maps
    by_modality: dict[str, ModalityFacts] = field(default_factory=dict)  # where there are several
    stored: int = 0
    decoded: int = 0

    @property
    def unreadable_share(self) -> float:
        return len({name for name, _ in self.unreadable}) / max(self.samples, 1)


def survey(
    splits: dict[str, Dataset],
    *,
    fast: bool = False,
    threads: int = 0,
    nodata: NoData = None,
    advance: Callable[[], None] = lambda: None,
) -> Survey:
    """Decodes every sample of every split, or with `fast` reads only the headers of files.

    threads  0: one per core
    nodata   the value of pixels where a sensor saw nothing
    advance  called after each sample
    """
    result = Survey(exact=not fast)
    tally = _Tally(result)
    for split, dataset in splits.items():
        _describe(result, split, dataset)
        several = len(dataset.modalities) + len(left_out(dataset)) > 1
        measure = partial(_measured, nodata=nodata) if several and not fast else _unmeasured
        for index, findings in _examine_all(dataset, fast, threads or available(), measure):
            tally.add(split, dataset, index, findings)
            if several:
                tally.add_facts(dataset, index, findings)
            advance()
    tally.finish(splits)
    return result


def _describe(result: Survey, split: str, dataset: Dataset) -> None:
    """Notes all that is known without opening a file."""
    result.splits[split] = len(dataset)
    result.samples += len(dataset)
    sets = label_sets(dataset)
    if sets is not None:  # an image counts for each of its classes
        result.unlabelled += int((sets != 1).all(1).sum())
        result.labels[split] = dict(zip(dataset.classes, (sets == 1).sum(0).tolist(), strict=True))
    elif dataset.labels is None:
        result.unlabelled += len(dataset)
    else:
        counts = Counter(dataset.labels.tolist())
        result.unlabelled += counts[-1]
        result.labels[split] = {name: counts[number] for number, name in enumerate(dataset.classes)}
    found = [dataset.found] if isinstance(dataset, Folder) else []
    found = list(dataset.found.values()) if isinstance(dataset, Paired) else found
    result.left_out = list(dict.fromkeys([*result.left_out, *left_out(dataset)]))
    for one in found:
        result.ignored = dict(Counter(result.ignored) + Counter(one.ignored))
        result.hidden += one.hidden
        result.twice += one.twice
        result.closed += one.closed


def _examine_all(dataset: Dataset, fast: bool, threads: int, measure: Measure) -> Iterator[tuple[int, list[Finding]]]:
    """Gives (index, findings) in order."""
    chunks = [range(start, min(start + _CHUNK, len(dataset))) for start in range(0, len(dataset), _CHUNK)]
    pool = ThreadPoolExecutor(threads)
    try:
        found = pool.map(lambda chunk: [_examine(dataset, index, fast, measure) for index in chunk], chunks)
        for chunk, findings in zip(chunks, found, strict=True):
            yield from zip(chunk, findings, strict=True)
    finally:  # also when somebody interrupts: what has not begun is dropped
        pool.shutdown(cancel_futures=True)


Measure = Callable[[Finding, Tensor], Finding]
"""Adds to a finding what the values of its tensor (C, H, W) tell."""


def _unmeasured(finding: Finding, tensor: Tensor) -> Finding:
    return finding


def _measured(finding: Finding, tensor: Tensor, nodata: NoData) -> Finding:
    """Adds channels and statistics to a finding; in RGB pictures no value stands for no data."""
    picture = tensor.dtype == torch.uint8 and len(tensor) == 3
    value = None if picture else no_data_of(nodata, finding.modality)
    return replace(finding, channels=len(tensor), moments=moments(tensor, value), zeros=zeros_of(tensor, value))


def _examine(dataset: Dataset, index: int, fast: bool, measure: Measure) -> list[Finding]:
    if isinstance(dataset, Folder | Paired):
        return [_examine_file(dataset, name, path, fast, measure) for name, path in dataset.paths(index).items()]
    sample = read(dataset, index)
    if isinstance(sample, str):
        return [Finding(dataset.modalities[0], problem=sample)]
    return [measure(_examine_tensor(modality, tensor), tensor) for modality, tensor in sample.modalities.items()]


def _examine_file(dataset: Folder | Paired, modality: str, path: str, fast: bool, measure: Measure) -> Finding:
    """Looks at the header first; then nothing of a file is held as a whole but its picture."""
    try:
        stored = check_regular(path)
        header = read_header if isinstance(dataset, Folder) else raster_header
        kind, mode, width, height = header(path, dataset.max_pixels)
        if fast:
            return Finding(modality, kind, mode, width, height, stored, width * height * 3)
        tensor = dataset.decode(modality, path)
        height, width = tensor.shape[1:]
        with open(path, "rb") as file:
            pieces = iter(partial(file.read, _PIECE), b"")
            found = Finding(modality, kind, mode, width, height, stored, tensor.nbytes, _digest(pieces))
        return measure(found, tensor)
    except (Unreadable, OSError) as error:
        return Finding(modality, problem=reason(error))


def _examine_tensor(modality: str, tensor: Tensor) -> Finding:
    channels, height, width = tensor.shape
    kind = str(tensor.dtype).removeprefix("torch.")
    mode = "RGB" if (kind, channels) == ("uint8", 3) else f"{channels} x {kind}"
    return Finding(
        modality, "", mode, width, height, 0, tensor.nbytes, _digest([tensor.contiguous().numpy().tobytes()])
    )


def _digest(pieces: Iterable[bytes]) -> bytes:
    total = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        total.update(piece)
    return total.digest()


class _Tally:
    """Sums up findings. Of each image it keeps its size, its digest and its place, and no name."""

    def __init__(self, result: Survey) -> None:
        self.result = result
        self.widths, self.heights = array("i"), array("i")
        self.formats, self.modes, self.modalities = Counter[str](), Counter[str](), Counter[str]()
        self.places: dict[bytes, tuple[str, int]] = {}  # digest -> split and index of the first with it
        self.groups: dict[bytes, list[tuple[str, int]]] = {}
        self.facts: dict[str, FactsTally] = {}

    def add(self, split: str, dataset: Dataset, index: int, findings: list[Finding]) -> None:
        for finding in findings:
            self.modalities[finding.modality] += 1
            which = f"{finding.modality}: " if len(dataset.modalities) > 1 else ""
            if finding.problem:
                self.result.unreadable.append((dataset.name(index), which + finding.problem))
                continue
            self.widths.append(finding.width)
            self.heights.append(finding.height)
            self.modes[which + finding.mode] += 1
            self.formats.update([finding.format] if finding.format else [])
            self.result.small += min(finding.width, finding.height) < MIN_SIDE
            self.result.stored += finding.stored
            self.result.decoded += finding.decoded
            if finding.digest and finding.modality == dataset.modalities[0]:
                first = self.places.setdefault(finding.digest, (split, index))
                if first != (split, index):
                    self.groups.setdefault(finding.digest, [first]).append((split, index))

    def add_facts(self, dataset: Dataset, index: int, findings: list[Finding]) -> None:
        """Adds what is known of each modality, of one sample."""
        found = {finding.modality: finding for finding in findings}
        unread = bool(findings) and findings[0].problem and not isinstance(dataset, Paired)  # as a whole
        for name in dataset.modalities:
            tally, finding = self.facts.setdefault(name, FactsTally()), found.get(name)
            if finding is None and not unread:
                tally.facts.missing += 1
                tally.facts.missing_names += [dataset.name(index)] if len(tally.facts.missing_names) < NAMED else []
            elif finding is not None:
                tally.facts.files += 1
                tally.facts.unreadable += bool(finding.problem)
                if not finding.problem:
                    tally.add(finding.mode, finding.channels, finding.moments, finding.zeros)

    def finish(self, splits: dict[str, Dataset]) -> None:
        result = self.result
        result.widths, result.heights = _spread(self.widths), _spread(self.heights)
        result.formats, result.modes = dict(self.formats.most_common()), dict(self.modes.most_common())
        result.modalities = dict(self.modalities)
        result.by_modality = {name: tally.finish() for name, tally in self.facts.items()}
        result.duplicates = [[splits[split].name(i) for split, i in group] for group in self.groups.values()]
        result.across_splits = sum(len({split for split, _ in group}) > 1 for group in self.groups.values())


def _spread(values: array[int]) -> list[int]:
    return [min(values), median_low(values), max(values)] if values else []
