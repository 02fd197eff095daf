"""`manyview check`"""

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
    split: Annotated[str | None, "train, test, ...; all that are there by default"] = None,
    root: Annotated[str | None, "where named sets lie; by default $MANYVIEW_DATA or ~/.cache/manyview"] = None,
    download: Annotated[bool, "fetch a named set that is not there"] = False,
    labels: Annotated[Labels, LABELS_HELP] = "auto",
    modalities: Annotated[tuple[str, ...] | None, "folders or columns that are looked at; all but label maps"] = None,
    nodata: Annotated[NoData, "the value where a sensor saw nothing, or {MODALITY: VALUE}; NaN always is"] = None,
    max_pixels: Annotated[MaxPixels, "of a picture in a folder; one with more is unreadable"] = MAX_PIXELS,
    fast: Annotated[bool, "read only the headers: no damaged pixels, no duplicates"] = False,
    json: Annotated[bool, "print JSON"] = False,
    threads: Annotated[int, AtLeast(0), "0: one per core"] = 0,
    max_unreadable: Annotated[float, Between(0, 1, "a share"), "exit code 1 above this share"] = 0.05,
) -> int:
    """Looks at every image of DATA and says what is there: counts, sizes, labels, what is unreadable.

    Exit code: 0 all well, 1 too many unreadable files, 2 DATA cannot be opened.
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
