"""`manyview check DATA`: what a data set holds, before anybody waits for a training."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from dataclasses import asdict
from typing import NoReturn

from PIL import Image

from manyview.core.errors import UserError
from manyview.core.progress import progress_bar
from manyview.core.text import printable
from manyview.data.dataset import Dataset
from manyview.data.factory import SCENES, open_data
from manyview.data.memory import default_limit
from manyview.data.named import NAMED
from manyview.data.splits import Labels, check_folder, find_splits
from manyview.data.survey import SMALL, Survey, survey

_LABELS: dict[str, Labels] = {"auto": "auto", "yes": True, "no": False}
_SHOWN = 20  # lines of a long list
_SCENES = 1000  # scenes are made as they are looked at; so many show what they are


def command(arguments: list[str]) -> int:
    """Surveys a data set and prints what it holds; returns 0, or 1 if too much is unreadable."""
    given = _parser().parse_args(arguments)
    if not 0 <= given.max_unreadable <= 1:
        raise UserError(None, f"--max-unreadable: expected a share from 0 to 1, got {given.max_unreadable}")
    if given.threads < 0:
        raise UserError(None, f"--threads: expected 1 or more, or 0 for one per core, got {given.threads}")
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the sizes are in the report
    options = {"root": given.root, "labels": _LABELS[given.labels], "download": given.download}
    splits, missing = open_splits(given.data, given.split, **options)
    with progress_bar(sum(map(len, splits.values())), "checked") as advance:
        result = survey(splits, fast=given.fast, threads=given.threads, progress=advance)
    if given.json:
        print(json.dumps(as_json(given.data, result, missing), indent=2))
    else:
        print(as_text(given.data, result, missing))
    if result.unreadable_share <= given.max_unreadable:
        return 0
    share = f"{result.unreadable_share:.1%} of the samples cannot be read"
    print(f"manyview check: {share}, more than --max-unreadable {given.max_unreadable:.1%}", file=sys.stderr)
    return 1


def open_splits(
    data: str, split: str | None = None, *, root: str | None = None, labels: Labels = "auto", download: bool = False
) -> tuple[dict[str, Dataset], dict[str, str]]:
    """The split that was asked for, or all that are there, and why those that are not there are missing."""
    opened: dict[str, Dataset] = {}
    missing: dict[str, str] = {}
    names = [split] if split else _split_names(data)
    for name in names:
        try:
            opened[name] = open_data(data, root=root, split=name, labels=labels, download=download, count=_SCENES)
        except (ValueError, OSError) as error:
            if len(names) == 1:
                raise
            missing[name] = str(error)
    if not opened:
        raise FileNotFoundError(next(iter(missing.values())))
    return opened, missing


def as_json(data: str, result: Survey, missing: dict[str, str]) -> dict[str, object]:
    """Everything, for programs. Names are escaped as in the text."""
    limit = default_limit()
    extra = {"unreadable_share": result.unreadable_share, "memory": limit, "fits_in_memory": result.decoded <= limit}
    return {"data": printable(data), **asdict(result), **extra, "missing_splits": missing}


def as_text(data: str, result: Survey, missing: dict[str, str]) -> str:
    """The same for a person."""
    how = "every image decoded" if result.exact else "only headers read"
    lines = [f"{printable(data)} ({how})"]
    for title, text in _facts(result):
        lines.append(f"  {title:<11} {text}")
    lines += [f"  no split    {split}: {why}" for split, why in missing.items()]
    for split, classes in result.labels.items():
        lines += _class_lines(split, classes)
    lines += _listed("cannot be read", [f"{name}: {why}" for name, why in result.unreadable])
    lines += _listed("duplicates, the same bytes", [", ".join(_few(group)) for group in result.duplicates])
    lines += _listed("folders that may not be read", [printable(folder) for folder in result.closed])
    return "\n".join(lines)


class _Parser(argparse.ArgumentParser):
    """Whose complaint is one line, like any other."""

    def error(self, message: str) -> NoReturn:
        raise UserError(None, message)


def _parser() -> _Parser:
    parser = _Parser(
        prog="manyview check",
        description="Looks at every image of DATA and says what is there: counts, sizes, labels, what is unreadable.",
        epilog="Exit code: 0 all well, 1 too many unreadable files, 2 DATA cannot be opened.",
    )
    add = parser.add_argument
    add("data", metavar="DATA", help=f"a folder, {SCENES}, or a name: {', '.join(NAMED)}")
    add("--split", help="train, test, ...; all that are there by default")
    add("--root", help="where named sets lie; by default $MANYVIEW_DATA or ~/.cache/manyview")
    add("--download", action="store_true", help="fetch a named set that is not there")
    add("--labels", choices=_LABELS, default="auto", help="whether folders are classes (%(default)s)")
    add("--fast", action="store_true", help="read only the headers: no damaged pixels, no duplicates")
    add("--json", action="store_true", help="print JSON")
    add("--threads", type=int, default=0, metavar="N", help="one per core by default")
    add("--max-unreadable", type=float, default=0.05, metavar="SHARE", help="exit 1 above this share (%(default)s)")
    return parser


def _split_names(data: str) -> list[str]:
    if data == SCENES:
        return ["train"]
    if data in NAMED:
        distinct = {str(arguments): name for name, arguments in reversed(NAMED[data].splits.items())}
        return [name for name in NAMED[data].splits if name in distinct.values() and "+" not in name]
    if os.path.exists(data):
        check_folder(data)
        return list(find_splits(data)) or ["train"]
    return ["train"]


def _facts(result: Survey) -> list[tuple[str, str]]:
    several = len(result.modalities) > 1
    facts = [("samples" if several else "images", _counts(result.splits) if len(result.splits) > 1 else _split(result))]
    if several:
        each = [f"{name} {n}{_lacking(result.samples - n)}" for name, n in result.modalities.items()]
        facts.append(("modalities", ", ".join(each)))
    facts += [("labels", _labels(result)), ("sizes", _sizes(result)), ("modes", _plain(result.modes))]
    facts += [("formats", _plain(result.formats))] if result.formats else []
    facts.append(("memory", _in_memory(result)))
    facts.append(("unreadable", f"{len(result.unreadable)}" if result.unreadable else "none"))
    facts.append(("duplicates", _duplicates(result)))
    facts += [("ignored", _ignored(result))] if result.ignored or result.hidden or result.twice else []
    return facts


def _split(result: Survey) -> str:
    (name, count), *_ = result.splits.items()
    return f"{count}" if name == "train" else f"{count} in {name}"


def _counts(counts: dict[str, int]) -> str:
    return f"{sum(counts.values())}: {_plain(counts)}"


def _plain(counts: dict[str, int]) -> str:
    return ", ".join(f"{printable(name)} {count}" for name, count in counts.items()) or "none"


def _lacking(count: int) -> str:
    return f" ({count} without)" if count else ""


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
    small = f"; {result.small} are less than {SMALL} px wide or high" if result.small else ""
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


def _ignored(result: Survey) -> str:
    parts = [_plain(result.ignored)] if result.ignored else []
    parts += [f"{result.hidden} hidden"] if result.hidden else []
    parts += [f"{result.twice} links to files counted already"] if result.twice else []
    return ", ".join(parts)


def _class_lines(split: str, classes: dict[str, int]) -> list[str]:
    shown = [f"{name} {count}" for name, count in list(classes.items())[:_SHOWN]]
    more = f", and {len(classes) - _SHOWN} more" if len(classes) > _SHOWN else ""
    spread = f"{min(classes.values())} to {max(classes.values())} per class" if classes else "no classes"
    return [f"classes in {split}, {spread}:", f"  {', '.join(shown)}{more}"]


def _listed(title: str, items: list[str]) -> list[str]:
    if not items:
        return []
    more = [f"  and {len(items) - _SHOWN} more; --json lists all"] if len(items) > _SHOWN else []
    return [f"{title}:", *(f"  {item}" for item in items[:_SHOWN]), *more]


def _few(names: list[str]) -> list[str]:
    return [*names[:5], f"and {len(names) - 5} more"] if len(names) > 5 else names


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
