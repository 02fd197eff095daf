"""`manyview embed`"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from manyview.cli.commands import Parser
from manyview.core.text import printable
from manyview.data import NAMED
from manyview.data.factory import SCENES
from manyview.data.splits import Labels
from manyview.embeddings.embed import embed, target
from manyview.embeddings.file_format import DTYPES

LABELS: dict[str, Labels] = {"auto": "auto", "yes": True, "no": False}
SHOWN = 20  # broken images that are named


def command(arguments: list[str]) -> int:
    """Bad input raises ValueError, OSError or ImportError with one line."""
    given = _parser().parse_args(arguments)
    target(given.to)  # before an encoder is loaded
    made = embed(
        given.encoder, given.data, given.to, split=given.split, root=given.root, labels=LABELS[given.labels],
        download=given.download, dtype=given.dtype, batch_size=given.batch_size, device=given.device,
        workers=given.workers, progress=not given.quiet, **encoder_options(given),
    )  # fmt: skip
    broken = made.about.broken
    for name, why in list(broken.items())[:SHOWN]:
        print(f"warning: {printable(name)} is left out: {printable(why)}", file=sys.stderr)
    if len(broken) > SHOWN:
        print(f"warning: and {len(broken) - SHOWN} more, which the file names", file=sys.stderr)
    count, dim = made.vectors.shape
    print(f"{printable(given.to)}: {count:,} images, vectors of {dim} numbers, {made.about.dtype}")
    return 0


def encoder_arguments(parser: Parser) -> None:
    """Which encoder it is."""
    add = parser.add_argument
    add("encoder", metavar="RUN|ENCODER", help="a run's folder, a file of an encoder, or a name: timm/resnet18")
    add("--pretrained", action="store_true", help="the published weights of an encoder by name")
    add("--weights", metavar="FILE", help="a safetensors file of weights for an encoder by name")
    add("--size", type=int, metavar="N", help="of the pictures that an encoder by name sees, in pixels")
    add("--stem", choices=("cifar",), help="of a ResNet by name that was trained so")


def encoder_options(given: argparse.Namespace) -> dict[str, Any]:
    """What was said of it, beside its name."""
    return {name: getattr(given, name) for name in ("size", "weights", "pretrained", "stem")}


def _parser() -> Parser:
    parser = Parser(
        "manyview embed",
        description="Writes the embedding of every image of DATA to a file. The same command goes on with what was "
        "stopped.",
    )
    encoder_arguments(parser)
    add = parser.add_argument
    add("data", metavar="DATA", help=f"a folder, {SCENES}, or a name: {', '.join(NAMED)}")
    add("--to", required=True, metavar="FILE", help="embeddings.npz or embeddings.parquet")
    add("--split", help="train, test, ...; by default all of a folder, the training split of a named set")
    add("--root", help="where named sets lie; by default $MANYVIEW_DATA or ~/.cache/manyview")
    add("--download", action="store_true", help="fetch a named set that is not there")
    add("--labels", choices=LABELS, default="auto", help="whether folders are classes (%(default)s)")
    add("--dtype", choices=DTYPES, default="float32", help="of the vectors (%(default)s)")
    add("--batch-size", type=int, default=64, metavar="N", help="images at a time (%(default)s)")
    add("--device", default="auto", help="cpu, cuda, cuda:1, ... (%(default)s)")
    add(
        "--workers",
        type=int,
        metavar="N",
        help="processes that read images (chosen by the cores)",
    )
    add("--quiet", action="store_true", help="no progress")
    return parser
