"""The command `manyview report`."""

import os
from pathlib import Path
from typing import Annotated

from manyview.comparison.outcome import OUTCOME, read
from manyview.core.bounds import Positive
from manyview.report.page import IMAGES, write
from manyview.training.run import REPORT, Run

PATIENCE = 60.0  # seconds a run, for somebody who waits for nothing else


def report(
    runs: Annotated[tuple[str, ...], "folders of runs, or the folder of one comparison"],
    *,
    out: Annotated[str | None, f"the file; by default {REPORT} in the first run's folder"] = None,
    seconds: Annotated[Positive, "about how long embedding the images of a run may take"] = PATIENCE,
    images: Annotated[int, "the largest number of images on the map"] = IMAGES,
    spread_images: Annotated[
        int | None, "images compared over 32 augmented copies each; JCL's Fig. 3 has 32768"
    ] = None,
) -> int:
    """Writes one HTML page about a run, or about several side by side."""
    folders = list(dict.fromkeys(Path(run) for run in runs))
    path = Path(out) if out else folders[0] / REPORT
    if os.path.isdir(path):  # which asks no more than that of a name that is too long
        path = path / REPORT
    compared = read(folders[0]) if len(folders) == 1 and (folders[0] / OUTCOME).is_file() else None
    shown = [Run(folder) for folder in folders] if compared is None else compared.runs()
    written = write(shown, path, images=images, seconds=seconds, compared=compared, spread_images=spread_images)
    print(f"wrote {written} ({written.stat().st_size / 1e6:.1f} MB); open it in a browser")
    return 0
