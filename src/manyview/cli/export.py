"""The command `manyview export`."""

from pathlib import Path
from typing import Annotated, Literal

from manyview.cli.embed import tell_unended
from manyview.core.errors import UserError
from manyview.encoders import Encoder
from manyview.encoders.export import export as write
from manyview.encoders.hub import export_hub
from manyview.features.preprocess import Preprocess
from manyview.training.load import load, run_views

Target = Literal["timm", "torchvision", "safetensors", "onnx", "hub"]
ABOUT = "timm, torchvision: weights for its own networks; hub: a folder for timm, with a model card; safetensors, onnx"


def export(
    run: Annotated[str, "the run's folder"],
    *,
    to: Annotated[Target, ABOUT],
    view: Annotated[str | None, "the view whose encoder is exported, in a run with one encoder per view"] = None,
    out: Annotated[str | None, "the file, for hub the folder; by default in the run's folder"] = None,
) -> int:
    """Writes a run's encoder for use elsewhere, and prints the lines of Python that load it there."""
    views = run_views(run)
    if views and view is None:
        raise UserError("view", f"{run} has an encoder for {', '.join(views)}; give one of them, --view {views[0]}")
    encoder, kind = load(run, view), f"-{view}" if views else ""
    if to == "hub":
        path = Path(out or Path(run) / f"exported{kind}-hub")
        text = _hub(run, view if views else None, encoder, path)
    else:
        name = f"exported{kind}.onnx" if to == "onnx" else f"exported{kind}-{to}.safetensors"
        path = Path(out or Path(run) / name)
        text = write(encoder, to, path)
    tell_unended(run)
    print(f"wrote {path}\n{text}\n# preprocessing: {encoder.preprocess}")
    return 0


def _hub(run: str, view: str | None, encoder: Encoder, folder: Path) -> str:
    """Writes the folder with its model card, which names neither this folder nor that of the images."""
    from manyview.report.model_card import model_card

    assert isinstance(encoder.preprocess, Preprocess)
    return export_hub(encoder, folder, model_card(run, view), encoder.preprocess.timm_config())
