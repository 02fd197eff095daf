"""Sets as they are published, where torchvision reads them not or not as well: MNIST's idx files, ImageNet's folders.

An opener takes the root, the set's name, torchvision's class and the split's arguments; None if nothing is there.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from manyview.core.errors import UserError

_LIST = """
n01558993 n01692333 n01729322 n01735189 n01749939 n01773797 n01820546 n01855672 n01978455 n01980166
n01983481 n02009229 n02018207 n02085620 n02086240 n02086910 n02087046 n02089867 n02089973 n02090622
n02091831 n02093428 n02099849 n02100583 n02104029 n02105505 n02106550 n02107142 n02108089 n02109047
n02113799 n02113978 n02114855 n02116738 n02119022 n02123045 n02138441 n02172182 n02231487 n02259212
n02326432 n02396427 n02483362 n02488291 n02701002 n02788148 n02804414 n02859443 n02869837 n02877765
n02974003 n03017168 n03032252 n03062245 n03085013 n03259280 n03379051 n03424325 n03492542 n03494278
n03530642 n03584829 n03594734 n03637318 n03642806 n03764736 n03775546 n03777754 n03785016 n03787032
n03794056 n03837869 n03891251 n03903868 n03930630 n03947888 n04026417 n04067472 n04099969 n04111531
n04127249 n04136333 n04229816 n04238763 n04336792 n04418357 n04429376 n04435653 n04485082 n04493381
n04517823 n04589890 n04592741 n07714571 n07715103 n07753275 n07831146 n07836838 n13037406 n13040303
"""

WNIDS = tuple(_LIST.split())
"""The classes of ImageNet-100, as CMC (Tian et al.) chose them and JCL (Cai et al., appendix D) prints them.

Sorted, so a class's number is the one that its folder has among the hundred.

JCL misprints two: n0377754 has a digit too few and is n03777754 here, and n03903630, which is no class of
ImageNet-1k, is n03930630.
"""


def idx_files(root: Path, name: str, kind: Any, arguments: dict[str, Any]) -> Any:
    """What torchvision's MNIST would hold, from the files of images and labels, gzipped or not."""
    stem = "train" if arguments["train"] else "t10k"
    for folder in (root, root / name, root / kind.__name__ / "raw"):
        for ending in ("", ".gz"):
            images, labels = (folder / f"{stem}-{what}-ubyte{ending}" for what in ("images-idx3", "labels-idx1"))
            if images.is_file() and labels.is_file():
                return SimpleNamespace(data=read_idx(images), targets=read_idx(labels), classes=kind.classes)
    return None


def read_idx(path: Path) -> Tensor:
    """Reads uint8 of the shape that the file declares: two zeros, the type (8), the number of axes, their sizes."""
    try:
        stored = path.read_bytes()
        data = bytearray(gzip.decompress(stored) if path.suffix == ".gz" else stored)
    except (OSError, EOFError, zlib.error) as error:  # a damaged gzip raises any of them
        raise UserError(str(path), f"cannot be read ({error}); delete it and fetch it again") from error
    axes = data[3] if len(data) > 3 else 0
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes)]
    if data[:3] != b"\0\0\x08" or not axes or len(data) != 4 + 4 * axes + math.prod(shape):
        why = f"not an idx file of bytes, or cut short at {len(data)} bytes; delete it and fetch it again"
        raise UserError(str(path), why)
    return torch.frombuffer(data, dtype=torch.uint8, offset=4 + 4 * axes).view(shape)


def class_folders(root: Path, name: str, kind: Any, arguments: dict[str, Any]) -> Any:
    """Opens ImageNet without its devkit; the names of the classes are the wnids."""
    from torchvision.datasets import ImageFolder

    home = root / arguments["split"]
    return ImageFolder(str(home)) if home.is_dir() and not (root / "meta.bin").exists() else None


def only(
    data: Any, wnids: tuple[str, ...], labels: list[int | None], classes: list[str]
) -> tuple[Tensor, list[int | None], list[str]]:
    """Rows, labels and class names of the given classes of ImageNet, which are numbered anew in their order."""
    there = list(getattr(data, "wnids", data.classes))
    absent = [wnid for wnid in wnids if wnid not in there]
    if absent:
        missing = f"{len(absent)} of {len(wnids)} class folders are missing, such as {absent[0]}"
        raise UserError("imagenet100", missing)
    number = {there.index(wnid): new for new, wnid in enumerate(wnids)}
    rows = [row for row, label in enumerate(labels) if label in number]
    return torch.tensor(rows), [number[int(labels[row] or 0)] for row in rows], [classes[old] for old in number]
