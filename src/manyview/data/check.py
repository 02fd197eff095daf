"""What a data set holds, for a person and for programs; `manyview check` prints it."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from manyview.core.errors import UserError
from manyview.core.text import printable
from manyview.data.dataset import Dataset
from manyview.data.decoded import default_limit
from manyview.data.factory import SCENES, open_data
from manyview.data.modality_facts import facts_table
from manyview.data.named import NAMED
from manyview.data.nyu import is_nyu, nyu_splits
from manyview.data.splits import check_folder, find_splits
from manyview.data.survey import MIN_SIDE, Survey
from manyview.data.table import is_table, table_splits

FEW = 2000  # reasoned
FEW_PHOTOS = f"under {FEW:,} images: try weights that exist first (docs/own-photos.md)"
MAX_LISTED = 20  # lines of a long list
SCENES_CHECKED = 1000  # scenes are made as they are looked at; so many show what they are


def open_splits(data: str, split: str | None = None, **options: Any) -> tuple[dict[str, Dataset], dict[str, str]]:
    """Opens the split that was asked for, or all that are there, and says why the others are missing.

    `options` are those of `open_data`.
    """
    opened: dict[str, Dataset] = {}
    missing: dict[str, str] = {}
    names = [split] if split else _split_names(data)
    for name in names:
        try:
            opened[name] = open_data(data, split=name, count=SCENES_CHECKED, **options)
        except (ValueError, OSError) as error:
            if len(names) == 1:
                raise
            missing[name] = str(error)
    if not opened:
        raise UserError(None, next(iter(missing.values())))
    return opened, missing


def as_json(data: str, result: Survey, missing: dict[str, str]) -> dict[str, object]:
    """Gives all that a survey found as JSON for programs; names are escaped as in the text."""
    limit = default_limit()
    extra = {"unreadable_share": result.unreadable_share, "memory": limit, "fits_in_memory": result.decoded <= limit}
    return {"data": printable(data), **asdict(result), **extra, "missing_splits": missing}


def as_text(data: str, result: Survey, missing: dict[str, str]) -> str:
    """Writes what a survey found as text for a person."""
    how = "every image decoded" if result.exact else "only headers read"
    lines = [f"{printable(data)} ({how})"]
    for title, text in _facts(data, result):
        lines.append(f"  {title:<11} {text}")
    lines += [f"  no split    {split}: {why}" for split, why in missing.items()]
    lines += facts_table(result.by_modality, result.samples)
    for split, classes in result.labels.items():
        lines += _class_lines(split, classes)
    lines += _listed("cannot be read", [f"{name}: {why}" for name, why in result.unreadable])
    lines += _listed("duplicates, the same bytes", [_few(group, 5) for group in result.duplicates])
    lines += _listed("folders that may not be read", [printable(folder) for folder in result.closed])
    return "\n".join(lines)


def _split_names(data: str) -> list[str]:
    if data == SCENES:
        return ["train"]
    if data in NAMED:
        distinct = {str(arguments): name for name, arguments in reversed(NAMED[data].splits.items())}
        return [name for name in NAMED[data].splits if name in distinct.values() and "+" not in name]
    if is_nyu(data):
        return nyu_splits(data)
    if is_table(data):
        return table_splits(data) or ["train"]
    if os.path.exists(data):
        check_folder(data)
        return list(find_splits(data)) or ["train"]
    return ["train"]


def few_photos(data: str, images: int) -> bool:
    """Whether images of one's own are so few that weights that exist should be tried first."""
    return images < FEW and data not in (SCENES, *NAMED)


def _facts(data: str, result: Survey) -> list[tuple[str, str]]:
    several = len(result.modalities) > 1
    facts = [("samples" if several else "images", _splits(result.splits))]
    if several:
        lacking = {name: result.samples - n for name, n in result.modalities.items()}
        without = {name: f" ({n} without)" if n else "" for name, n in lacking.items()}
        facts.append(("modalities", ", ".join(f"{name} {n}{without[name]}" for name, n in result.modalities.items())))
    facts += [("labels", _labels(result)), ("sizes", _sizes(result)), ("modes", _plain(result.modes))]
    facts += [("formats", _plain(result.formats))] if result.formats else []
    facts.append(("memory", _in_memory(result)))
    facts.append(("unreadable", f"{len(result.unreadable)}" if result.unreadable else "none"))
    facts.append(("duplicates", _duplicates(result)))
    facts += [("few", FEW_PHOTOS)] if not several and few_photos(data, result.samples) else []
    if result.left_out:
        take = ",".join([*result.by_modality, *result.left_out])
        maps = ", ".join(map(printable, result.left_out))
        facts.append(("left out", f"{maps}: label maps by name; --modalities {printable(take)} takes them"))
    ignored = [_plain(result.ignored)] if result.ignored else []
    ignored += [f"{result.hidden} hidden"] if result.hidden else []
    ignored += [f"{result.twice} links to files counted already"] if result.twice else []
    return [*facts, ("ignored", ", ".join(ignored))] if ignored else facts


def _splits(counts: dict[str, int]) -> str:
    if len(counts) > 1:
        return f"{sum(counts.values())}: {_plain(counts)}"
    ((name, count),) = counts.items()
    return f"{count}" if name == "train" else f"{count} in {name}"


def _plain(counts: dict[str, int]) -> str:
    return ", ".join(f"{printable(name)} {count}" for name, count in counts.items()) or "none"


def _labels(result: Survey) -> str:
    if not result.labels:
        return "none; training needs none, evaluation by labels does"
    classes = len(next(iter(result.labels.values())))
    return f"{classes} classes" + (f", {result.unlabelled} samples without a label" if result.unlabelled else "")


def _sizes(result: Survey) -> str:
    if not result.widths:
        return "none"
    (narrow, width, wide), (low, height, high) = result.widths, result.heights
    spread = f"width {narrow} to {wide}, median {width}; height {low} to {high}, median {height}"
    same = (narrow, low) == (wide, high)
    small = f"; {result.small} are less than {MIN_SIDE} px wide or high" if result.small else ""
    return (f"all {wide} x {high}" if same else spread) + small


def _in_memory(result: Survey) -> str:
    stored = f"{_bytes(result.stored)} on disk, " if result.stored else ""
    limit = default_limit()
    fits = "fits into" if result.decoded <= limit else "does not fit into"
    return f"{stored}{_bytes(result.decoded)} decoded, which {fits} the {_bytes(limit)} that training keeps in memory"


def _duplicates(result: Survey) -> str:
    if not result.exact:
        return "not looked for with --fast"
    if not result.duplicates:
        return "none"
    spare = sum(len(group) - 1 for group in result.duplicates)
    across = f"; {result.across_splits} in more than one split" if result.across_splits else ""
    return f"{spare} more than needed, in {len(result.duplicates)} groups{across}"


def _class_lines(split: str, classes: dict[str, int]) -> list[str]:
    spread = f"{min(classes.values())} to {max(classes.values())} per class" if classes else "no classes"
    return [f"classes in {split}, {spread}:", "  " + _few([f"{name} {n}" for name, n in classes.items()], MAX_LISTED)]


def _listed(title: str, items: list[str]) -> list[str]:
    if not items:
        return []
    more = [f"  and {len(items) - MAX_LISTED} more; --json lists all"] if len(items) > MAX_LISTED else []
    return [f"{title}:", *(f"  {item}" for item in items[:MAX_LISTED]), *more]


def _few(names: list[str], most: int) -> str:
    return ", ".join([*names[:most], f"and {len(names) - most} more"] if len(names) > most else names)


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
