"""Labels that files do not have from their folders: from a pattern in their names, or from a table (file, label)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.text import printable
from manyview.data.image import EXTENSIONS
from manyview.data.raster import RASTERS

TABLES = (".csv", ".tsv", ".parquet")
FILES = ("file", "filename", "file_name", "image", "path", "name")  # a column called so holds the files
LABEL = "label"
EXAMPLE = r"'([A-Za-z_]+)_\d+'"


def named_labels(
    files: Sequence[str], labels: str, *, prefix: str = "", others: Sequence[str] = ()
) -> tuple[Tensor, tuple[str, ...]]:
    """Labels (n,) of files, -1 where one has none, and the class names, the same for all splits.

    labels  a table's path (`.csv`, `.tsv`, `.parquet`) with a column `label` and one of files; else a regular
            expression, searched in a file's name, or with a / in it in its path, whose first group is the class
    prefix  what goes before each file to make it relative to the root: the split's folder
    others  files of other splits, relative to the root
    """
    every = [*(prefix + file for file in files), *others]
    names = _from_table(labels, every) if is_table_of_labels(labels) else _from_pattern(labels, every)
    classes = sorted({name for name in names if name is not None}, key=os.fsencode)
    if len(classes) < 2:
        found = f"finds one class alone, {printable(classes[0])!r}" if classes else "finds no class"
        example = f"such as {printable(every[0])!r}"
        raise UserError(
            "labels", f"{printable(labels)!r} {found} in the {len(every):,} files, {example}; mend it, or give false"
        )
    number = {name: place for place, name in enumerate(classes)}
    own = [-1 if name is None else number[name] for name in names[: len(files)]]
    return torch.tensor(own), tuple(map(printable, classes))


def is_table_of_labels(labels: object) -> bool:
    """Whether a setting is a table's path, and neither a pattern nor a word."""
    return isinstance(labels, str) and os.path.splitext(labels)[1].lower() in TABLES


def _from_pattern(pattern: str, files: Sequence[str]) -> list[str | None]:
    """The first group of the pattern in each file's name that matches; None where it is not found."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        why = f"{printable(pattern)!r} is neither a table nor a regular expression: {error}"
        raise UserError("labels", f"{why}; give true, false, auto, FILE.csv, or a pattern such as {EXAMPLE}") from None
    if not compiled.groups:
        raise UserError(
            "labels", f"{printable(pattern)!r} has no group; put what names the class in brackets: {EXAMPLE}"
        )
    texts = files if "/" in pattern else [file.rpartition("/")[2] for file in files]
    found = [compiled.search(text) for text in texts]
    return [None if match is None else next(filter(None, match.groups()), None) for match in found]


def _from_table(path: str, files: Sequence[str]) -> list[str | None]:
    """The label that a table has for each file, by its path from the root or by its name alone, if that is one file's.

    Refused where the table names a file that is not there. A file that the table does not name has no label.
    """
    from manyview.data.table import read_table  # which needs what needs this

    if not os.path.isfile(path):
        raise UserError(
            "labels", f"there is no file {printable(path)!r}; give a table with the columns file and {LABEL}"
        )
    try:
        columns = read_table(path)
    except UserError as error:
        raise UserError("labels", error.message) from None
    column = next((name for name in columns if name.lower() in FILES), None)
    column = column or next((name for name in columns if name != LABEL), None)
    if LABEL not in columns or column is None:
        raise UserError(
            "labels", f"{printable(path)} needs the columns file and {LABEL}; it has {printable(', '.join(columns))}"
        )
    places = _places(files)
    names: list[str | None] = [None] * len(files)
    missing = [cell for cell in columns[column] if not places.get(_stem(cell))]
    if missing:
        many = f"{len(missing):,} files that are not there, first" if len(missing) > 1 else "a file that is not there,"
        raise UserError(
            "labels", f"{printable(path)} names {many} {printable(missing[0])!r}; a file is named from the data's root"
        )
    for cell, label in zip(columns[column], columns[LABEL], strict=True):
        rows = places[_stem(cell)]
        if len(rows) > 1:
            both = " and ".join(printable(files[row]) for row in rows[:2])
            raise UserError(
                "labels", f"{printable(path)}: {printable(cell)!r} may be {both}; name it from the data's root"
            )
        names[rows[0]] = label or None
    return names


def _places(files: Sequence[str]) -> dict[str, list[int]]:
    """Where each file is, by its path without ending, and by its name alone."""
    places: dict[str, list[int]] = {}
    for row, file in enumerate(files):
        places.setdefault(stem := _stem(file), []).append(row)
        if "/" in stem:
            places.setdefault(stem.rpartition("/")[2], []).append(row)
    return places


def _stem(file: str) -> str:
    """A path as it is compared: with /, without ./ before it and without a picture's ending."""
    plain = os.path.normpath(file).replace(os.sep, "/") if file else file
    start, ending = os.path.splitext(plain)
    return start if ending.lower() in (*EXTENSIONS, *RASTERS) else plain
