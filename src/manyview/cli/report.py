"""`manyview report`"""

from __future__ import annotations

from pathlib import Path

from manyview.cli.commands import Parser

PATIENCE = 60.0  # seconds a run, for somebody who waits for nothing else


def command(arguments: list[str]) -> int:
    """Writes the page about one run or several, and says where it is."""
    from manyview.comparison.outcome import OUTCOME, read
    from manyview.report.page import IMAGES, write
    from manyview.training.run import REPORT, Run

    parser = Parser("manyview report", description="One HTML page about a run, or about several side by side.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder, or the folder of a comparison")
    parser.add_argument("--out", help=f"the file; by default {REPORT} in the first run's folder")
    parser.add_argument("--images", type=int, default=IMAGES, help=f"that the map shows, at most; {IMAGES}")
    given = parser.parse_args(arguments)
    folders = list(dict.fromkeys(Path(run) for run in given.runs))
    path = Path(given.out) if given.out else folders[0] / REPORT
    if path.is_dir():
        path = path / REPORT
    compared = read(folders[0]) if len(folders) == 1 and (folders[0] / OUTCOME).is_file() else None
    runs = [Run(folder) for folder in folders] if compared is None else compared.runs()
    written = write(runs, path, images=given.images, seconds=PATIENCE, compared=compared)
    print(f"wrote {written} ({written.stat().st_size / 1e6:.1f} MB); open it in a browser")
    return 0
