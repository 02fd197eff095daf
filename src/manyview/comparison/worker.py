"""The process of one run of a comparison: `python -m manyview.comparison.worker SETTINGS`."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import torch

from manyview.comparison.outcome import COST, peak_memory
from manyview.core.atomic import atomic_write
from manyview.core.errors import UserError
from manyview.core.text import reason
from manyview.training.failures import Interrupted
from manyview.training.launch import configured, start


def main(settings: str) -> int:
    """Trains as a file of settings says, notes the memory that it took, and gives the exit code of the run."""
    config = configured(settings, {})
    try:
        start(config)
    except Interrupted as came:
        return came.exit_code
    except (UserError, OSError) as error:
        print(f"{config.out}: {reason(error)}", file=sys.stderr)
        return getattr(error, "exit_code", 2)
    _note_memory(Path(str(config.out)))
    return 0


def _note_memory(folder: Path) -> None:
    """Notes the largest peak of all sittings, in bytes: of the GPU, or else of the process."""
    gpu = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    memory = gpu or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with atomic_write(folder / COST) as draft:
        draft.write_text(json.dumps({"memory": max(memory, peak_memory(folder) or 0)}), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
