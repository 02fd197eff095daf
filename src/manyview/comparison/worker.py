"""One run of a comparison, in a process of its own, and what memory it took."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import torch

from manyview.cli.commands import trained
from manyview.comparison.outcome import COST
from manyview.core.atomic import atomic_write
from manyview.core.text import reason
from manyview.training.launch import configured, start


def main(settings: str) -> int:
    """`python -m manyview.comparison.worker SETTINGS`: the exit code of the run."""
    config = configured(settings, {})
    try:
        code = trained(lambda: start(config))
    except (ValueError, OSError) as error:
        print(f"{config.out}: {reason(error)}", file=sys.stderr)
        return getattr(error, "exit_code", 2)
    _note(Path(str(config.out)) / COST)
    return code


def _note(path: Path) -> None:
    """The largest peak of all sittings, in bytes: of the GPU, or else of the process."""
    gpu = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    memory = gpu or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    before = json.loads(path.read_text(encoding="utf-8"))["memory"] if path.is_file() else 0
    with atomic_write(path) as draft:
        draft.write_text(json.dumps({"memory": max(memory, before)}), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
