"""The command `manyview embed`."""

import sys
from typing import Annotated, Literal

from manyview.core.bounds import Count
from manyview.core.text import printable
from manyview.data import NAMED
from manyview.data.factory import SCENES
from manyview.data.image import MAX_PIXELS, MaxPixels
from manyview.data.splits import LABELS_HELP, Labels
from manyview.embeddings.embed import embed as embedded
from manyview.embeddings.embed import target
from manyview.embeddings.open_model import run_of
from manyview.training.load import has_ended

SHOWN = 20  # unreadable images that are named

Model = Annotated[str, "a run's folder, a file of an encoder, or a name such as timm/resnet18"]
Pretrained = Annotated[bool, "take the published weights of an encoder given by name"]
Weights = Annotated[str | None, "a file of weights for an encoder given by name: .safetensors, .pt or .pth"]
Size = Annotated[int | None, "the input size in pixels of an encoder given by name"]
Stem = Annotated[Literal["cifar"] | None, "the stem of a ResNet given by name"]


def embed(
    encoder: Model,
    data: Annotated[str | None, f"a folder, {SCENES}, or a name: {', '.join(NAMED)}; by default the run's own"] = None,
    *,
    to: Annotated[str, "embeddings.npz or embeddings.parquet"],
    view: Annotated[str | None, "the view whose encoder is used, in a run with one encoder per view"] = None,
    pretrained: Pretrained = False,
    weights: Weights = None,
    size: Size = None,
    stem: Stem = None,
    split: Annotated[
        str | None,
        "train, test, ...; by default all splits of a folder, train of a named set",
    ] = None,
    root: Annotated[str | None, "the folder of named sets; by default $MANYVIEW_DATA or ~/.cache/manyview"] = None,
    download: Annotated[bool, "download a named set that is missing"] = False,
    labels: Annotated[Labels, LABELS_HELP] = "auto",
    max_pixels: Annotated[
        MaxPixels, "largest number of pixels of a picture in a folder; larger ones are left out"
    ] = MAX_PIXELS,
    dtype: Annotated[Literal["float32", "float16"], "the type of the vectors' numbers"] = "float32",
    patches: Annotated[bool, "a vector for every position of the last feature map, instead of one per image"] = False,
    batch_size: Annotated[Count, "images per forward pass"] = 64,
    device: Annotated[str, "cpu, cuda, cuda:1, ..."] = "auto",
    workers: Annotated[int | None, "processes that read images; by default chosen by the number of cores"] = None,
    quiet: Annotated[bool, "show no progress"] = False,
) -> int:
    """Writes the embedding of every image of DATA to a file. The same command resumes what was stopped."""
    target(to)  # before an encoder is loaded
    made = embedded(
        encoder, data, to, view=view, split=split, root=root, labels=labels, download=download, max_pixels=max_pixels,
        dtype=dtype, patches=patches, batch_size=batch_size, device=device, workers=workers, progress=not quiet,
        size=size, weights=weights, pretrained=pretrained, stem=stem,
    )  # fmt: skip
    tell_unended(encoder)
    unreadable = made.about.broken
    for name, why in list(unreadable.items())[:SHOWN]:
        print(f"warning: {printable(name)} is left out: {printable(why)}", file=sys.stderr)
    if len(unreadable) > SHOWN:
        print(f"warning: and {len(unreadable) - SHOWN} more, which the file names", file=sys.stderr)
    count, dim = len(made), (made.about.grid or made.vectors.shape)[-1]
    across = "" if made.projections is None else f", and {made.projections.shape[1]} to compare with other views"
    rows, columns = made.about.grid[:2] or (1, 1)
    places = f" at {rows} x {columns} places" if patches else ""
    print(f"{printable(to)}: {count:,} images, vectors of {dim} numbers{places}{across}, {made.about.dtype}")
    if made.about.taken:
        one = "; --split takes one of them" if "splits" in made.about.options else ""
        print(f"the images are those of {printable(made.about.taken + made.about.data)}{one}")
    return 0


def tell_unended(model: str) -> None:
    """Warns that a run has not ended, so that its encoder is that of its last checkpoint."""
    run = run_of(model)
    if run is not None and not has_ended(run.folder):
        what = f"{printable(str(run.folder))} has not ended; this is the encoder of its last checkpoint"
        print(f"warning: {what}", file=sys.stderr)
