"""`manyview export`"""

from pathlib import Path
from typing import Annotated

from manyview.cli.embed import tell_unended
from manyview.core.errors import UserError
from manyview.encoders.export import FORMATS, Format
from manyview.encoders.export import export as write
from manyview.training.load import load, run_views


def export(
    run: Annotated[str, "the run's folder"],
    *,
    to: Annotated[Format, ", ".join(FORMATS)],
    view: Annotated[str | None, "whose encoder, of a run with one a view"] = None,
    out: Annotated[str | None, "the file; by default in the run's folder"] = None,
) -> int:
    """A run's encoder as others can load it."""
    views = run_views(run)
    if views and view is None:
        raise UserError("view", f"{run} has an encoder for {', '.join(views)}; give one of them, --view {views[0]}")
    encoder, kind = load(run, view), f"-{view}" if views else ""
    name = f"exported{kind}.onnx" if to == "onnx" else f"exported{kind}-{to}.safetensors"
    path = Path(out or Path(run) / name)
    text = write(encoder, to, path)
    tell_unended(run)
    print(f"wrote {path}\n{text}\n# preprocessing: {encoder.preprocess}")
    return 0
