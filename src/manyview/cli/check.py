"""The command `manyview check`."""

import json as encoding
import sys
from typing import Annotated

from manyview.core.bounds import AtLeast, Between
from manyview.core.progress import progress_bar
from manyview.data import NAMED
from manyview.data.check import as_json, as_text, open_splits
from manyview.data.factory import SCENES
from manyview.data.image import MAX_PIXELS, MaxPixels
from manyview.data.selection import modality_classes
from manyview.data.splits import LABELS_HELP, Labels
from manyview.data.statistics import NoData
from manyview.data.survey import survey


def check(
    data: Annotated[str, f"a folder, {SCENES}, or a name: {', '.join(NAMED)}"],
    *,
    split: Annotated[str | None, "train, test, ...; by default all splits"] = None,
    root: Annotated[str | None, "the folder of named sets; by default $MANYVIEW_DATA or ~/.cache/manyview"] = None,
    download: Annotated[bool, "download a named set that is missing"] = False,
    labels: Annotated[Labels, LABELS_HELP] = "auto",
    modalities: Annotated[
        tuple[str, ...] | None, "folders or columns to examine; by default all but label maps"
    ] = None,
    nodata: Annotated[NoData, "the value of missing measurements, or {MODALITY: VALUE}; NaN always is one"] = None,
    max_pixels: Annotated[
        MaxPixels, "largest number of pixels of a picture in a folder; larger ones count as unreadable"
    ] = MAX_PIXELS,
    fast: Annotated[bool, "read only file headers, which finds no damaged pixels and no duplicates"] = False,
    json: Annotated[bool, "print JSON"] = False,
    threads: Annotated[int, AtLeast(0), "threads that read images; 0: one per core"] = 0,
    max_unreadable: Annotated[
        float, Between(0, 1, "a share"), "the share of unreadable files above which the exit code is 1"
    ] = 0.05,
) -> int:
    """Examines every image of DATA and reports counts, sizes, labels and unreadable files.

    Exit code: 0 if all is well, 1 for too many unreadable files, 2 if DATA cannot be opened.
    """
    splits, missing = open_splits(
        data, split, root=root, labels=labels, download=download, modalities=modalities, max_pixels=max_pixels
    )
    for line in modality_classes(next(iter(splits.values())), "--modalities"):
        print(f"warning: {line}", file=sys.stderr)
    with progress_bar(sum(map(len, splits.values())), "examining") as advance:
        result = survey(splits, fast=fast, threads=threads, nodata=nodata, advance=advance)
    print(encoding.dumps(as_json(data, result, missing), indent=2) if json else as_text(data, result, missing))
    if result.unreadable_share <= max_unreadable:
        return 0
    share = f"{result.unreadable_share:.1%} of the samples cannot be read"
    print(f"manyview check: {share}, more than --max-unreadable {max_unreadable:.1%}", file=sys.stderr)
    return 1
