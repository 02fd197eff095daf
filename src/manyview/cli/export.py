"""`manyview export`"""

import sys
from pathlib import Path
from typing import Annotated

from manyview.encoders.export import FORMATS, Format
from manyview.encoders.export import export as write
from manyview.training.run import ENCODER, load


def export(
    run: Annotated[str, "the run's folder"],
    *,
    to: Annotated[Format, ", ".join(FORMATS)],
    out: Annotated[str | None, "the file; by default in the run's folder"] = None,
) -> int:
    """A run's encoder as others can load it."""
    name = "encoder.onnx" if to == "onnx" else f"encoder-{to}.safetensors"
    path = Path(out or Path(run) / name)
    encoder = load(run)
    text = write(encoder, to, path)
    if not (Path(run) / ENCODER).is_file():
        print(f"warning: {run} has not ended; this is the encoder of its last checkpoint", file=sys.stderr)
    print(f"wrote {path}\n{text}\n# preprocessing: {encoder.preprocess}")
    return 0
