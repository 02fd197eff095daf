"""Legends: what the numbers or colours of a mask mean."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from manyview.core.errors import UserError, hint
from manyview.core.text import printable, reason
from manyview.data.nyu import is_nyu
from manyview.transfer.iou import IGNORED
from manyview.transfer.nyu_classes import LABELS, class_of_13, class_of_40

FILES = ("legend.txt", "legend.csv", "label_colors.txt", "class_dict.csv")  # the latter two are CamVid's
VOID = re.compile(r"void|ignored?|unlabell?ed", re.I)
MOST_BYTES = 1 << 20
MOST = IGNORED  # classes that a mask of bytes can hold, beside what is ignored

VOC = (
    "background,aeroplane,bicycle,bird,boat,bottle,bus,car,cat,chair,cow,diningtable,dog,horse,motorbike,person,"
    "pottedplant,sheep,sofa,train,tvmonitor"
)
NYU13 = "bed,books,ceiling,chair,floor,furniture,objects,picture,sofa,table,tv,wall,window"
NYU40 = (
    "wall,floor,cabinet,bed,chair,sofa,table,door,window,bookshelf,picture,counter,blinds,desk,shelves,curtain,dresser,"
    "pillow,mirror,floor mat,clothes,ceiling,books,refrigerator,television,paper,towel,shower curtain,box,whiteboard,"
    "person,night stand,toilet,sink,lamp,bathtub,bag,otherstructure,otherfurniture,otherprop"
)
MSRS = "background,car,person,bike,curve,car stop,guardrail,colour cone,bump"
NAMED: dict[str, tuple[int, str]] = {"voc": (0, VOC), "nyu13": (1, NYU13), "nyu40": (1, NYU40), "msrs": (0, MSRS)}
"""name -> the number of the first class, and the classes in order. NYU's 0, and VOC's 255, are no class."""
OF_LABELS: dict[str, Callable[[int], int]] = {"nyu13": class_of_13, "nyu40": class_of_40}
"""name -> the class of each label of NYU-Depth v2's own file, which has more labels than classes."""


@dataclass(frozen=True)
class Legend:
    """Classes, and what in a mask means each.

    classes  their names
    values   a number, or a colour as 65536 R + 256 G + B -> the class's place; `IGNORED` for what has none
    colours  whether masks are of colours
    source   the file or name it comes from, for messages; "" where it was read off the masks
    """

    classes: tuple[str, ...]
    values: Mapping[int, int]
    colours: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        if not 2 <= len(self.classes) <= MOST:
            what = f"expected 2 to {MOST} classes, got {len(self.classes)}"
            raise UserError("legend", f"{self.source or 'of the masks'}: {what}; several values may have one name")

    def applied(self, codes: Tensor) -> Tensor:
        """Masks of classes, uint8, of masks of numbers or colours as `codes` gives them; `IGNORED` for unknown ones."""
        known = torch.tensor(sorted(self.values))
        places = torch.tensor([self.values[int(value)] for value in known], dtype=torch.uint8)
        found = torch.searchsorted(known, codes).clamp_max_(len(known) - 1)
        return torch.where(known[found] == codes, places[found], torch.tensor(IGNORED, dtype=torch.uint8))


def codes(mask: Tensor) -> Tensor:
    """(H, W) int64 of a mask (1, H, W) of numbers, or (3, H, W) of colours: 65536 R + 256 G + B."""
    whole = mask.long()
    return whole[0] if len(whole) == 1 else (whole[0] << 16) + (whole[1] << 8) + whole[2]


def value_in_words(value: int, *, colours: bool) -> str:
    """A number of a mask, or a colour as its three numbers."""
    return f"{value >> 16} {value >> 8 & 255} {value & 255}" if colours else str(value)


def find_legend(asked: str | None, root: str) -> Legend | None:
    """The legend of that file or name, or the one that lies beside the data; None where there is none."""
    if asked is None:
        beside = [os.path.join(root, name) for name in FILES]
        asked = next((path for path in beside if os.path.isfile(path)), None)
        return None if asked is None else read_legend(asked)
    if asked in NAMED:
        return _named(asked, of_labels=is_nyu(root))
    if not os.path.isfile(asked):
        raise UserError(
            "legend", f"there is no file {printable(asked)!r}, nor a legend of that name; {hint(asked, NAMED)}"
        )
    return read_legend(asked)


def _named(name: str, *, of_labels: bool) -> Legend:
    """The legend of a name: of masks of classes, or of the labels of NYU-Depth v2's own file."""
    first, names = NAMED[name]
    classes = tuple(names.split(","))
    values = dict.fromkeys(range(first), IGNORED)
    if of_labels and name in OF_LABELS:
        joined = {label: OF_LABELS[name](label) - first for label in range(1, LABELS + 1)}
        return Legend(classes, {**values, **joined}, source=name)
    return Legend(classes, {**values, **{first + place: place for place in range(len(classes))}}, source=name)


def read_legend(path: str | os.PathLike[str]) -> Legend:
    """Reads a file with a line a class: `VALUE NAME` or `R G B NAME`, numbers first or last, with spaces, tabs or
    commas between.

    Lines of the same name are one class. A name such as void, ignore or unlabelled is none: its pixels are ignored.
    Empty lines, a heading without numbers and what follows a # are passed over.
    """
    where = printable(os.fspath(path))
    try:
        if Path(path).stat().st_size > MOST_BYTES:
            raise UserError("legend", f"{where} is too large for a list of classes; give another")
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError("legend", f"{where} cannot be read: {reason(error)}; give a text file") from None
    rows = [(number, *_parsed(line)) for number, line in enumerate(text.splitlines(), 1)]
    rows = [row for row in rows if row[1] or (row[2] and row[0] > 1 and _refuse(where, row[0]))]
    lengths = {len(numbers) for _, numbers, _ in rows}
    if lengths not in ({1}, {3}):
        raise UserError("legend", f"{where}: expected lines `VALUE NAME`, or `R G B NAME` in all of them")
    return _made([(numbers, name) for _, numbers, name in rows], where)


def _made(rows: Sequence[tuple[list[int], str]], where: str) -> Legend:
    colours = len(rows[0][0]) == 3
    classes = tuple(dict.fromkeys(name for _, name in rows if not VOID.fullmatch(name)))
    values: dict[int, int] = {}
    for numbers, name in rows:
        code = sum(each << shift for each, shift in zip(reversed(numbers), (0, 8, 16), strict=False))
        place = classes.index(name) if name in classes else IGNORED
        if values.setdefault(code, place) != place:
            raise UserError("legend", f"{where}: {' '.join(map(str, numbers))} stands for two classes; leave one out")
    return Legend(classes, values, colours, where)


def _parsed(line: str) -> tuple[list[int], str]:
    """The numbers of a line, at its beginning or its end, and the words."""
    words = [word for word in re.split(r"[\s,;]+", line.partition("#")[0].strip()) if word]
    last = [place for place, word in enumerate(words) if not word.isdecimal() or len(word) > 5]
    if not last:
        return [], ""
    numbers = words[: last[0]] or words[last[-1] + 1 :]
    return [int(word) for word in numbers], " ".join(words[last[0] : last[-1] + 1])


def _refuse(where: str, line: int) -> bool:
    raise UserError("legend", f"{where}, line {line}: expected `VALUE NAME` or `R G B NAME`; mend it, or remove it")
