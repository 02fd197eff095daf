"""Finds the images whose embeddings are nearest to a picture's, and draws a contact sheet of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo
from torch import Tensor

from manyview.core.atomic import atomic_write, naming_setting
from manyview.core.bounds import MOST, AtLeast, AtMost, check_bounds
from manyview.core.errors import UserError
from manyview.core.text import printable
from manyview.data import Dataset, Unreadable
from manyview.data.factory import open_data
from manyview.data.raster import decode_raster
from manyview.data.visible import to_rgb
from manyview.embeddings import Embeddings, read
from manyview.embeddings.checksums import weights_checksum
from manyview.embeddings.model_source import ModelSource, modality_of
from manyview.embeddings.open_model import OneModel, open_model
from manyview.features.embedding_pass import embedding, forward, project
from manyview.features.knn import neighbours
from manyview.features.preprocess import Picture, Preprocess
from manyview.views.view import view_named

REOPEN = ("split", "root", "count", "size", "seed", "modalities")  # no more: a file may not make us download
MADE_BY = "manyview"  # what our pictures say under "Software"
ALIKE = 1 - 1e-5  # cosine of what is the same picture but for rounding
COLUMNS = 5
SIDE = 200  # of a picture, in pixels
GAP, LINE = 16, 20
TEXT = 15  # height of letters
INK, SOFT, PAPER, FRAME = "#1a1a1a", "#5f5f5f", "#ffffff", "#e4e4e4"


@dataclass(frozen=True)
class Neighbour:
    """One image that a search found.

    row         in the embeddings
    similarity  the cosine, 1 for the same picture
    label       the name of its class; empty where there is none
    file        its path, if it is a file
    """

    row: int
    name: str
    similarity: float
    label: str
    file: str | None

    @property
    def duplicate(self) -> bool:
        """Whether its embedding is nearly the same as the query's."""
        return self.similarity >= ALIKE

    @property
    def mark(self) -> str:
        """A remark that follows it in a list."""
        return "   duplicate?" if self.duplicate else ""


def search(
    model: OneModel,
    image: Picture,
    embeddings: Embeddings | str | Path,
    top: int = 10,
    *,
    view: str | None = None,
    **encoder: Any,
) -> list[Neighbour]:
    """Finds the images nearest to a picture by cosine, the nearest first; exact, in pieces.

    model    the encoder that made the embeddings, or the run with one encoder per view that did; others are refused
    image    a file, a Pillow image or a tensor (C, H, W). A file that was itself embedded as the same view is left out;
             across views the sample's own picture is what is searched for, and stays
    view     of the picture, where the run has one encoder per view; by default as `query_view` chooses it. If it is not
             the view that was embedded, projections are compared: the thermal picture's with those of RGB pictures
    encoder  size, weights, pretrained, stem: which one is meant, where `model` is a name

    >>> for found in search("runs/dcl-photos-1a2b3c", "cat.jpg", "embeddings.npz"):
    ...     print(found.similarity, found.name)
    """
    check_bounds("top", top, [AtLeast(1), AtMost(MOST)])
    found = embeddings if isinstance(embeddings, Embeddings) else read(embeddings)
    source = maker(model, found, **encoder)
    asked = source.only(query_view(source, image, found, view))
    across = len(source.encoders) > 1 and found.about.view not in asked.encoders
    bank = found.projections if across else found.vectors
    if across and not asked.heads:
        raise UserError("view", f"{source.name} has no heads, behind which views could be compared; give one view")
    if bank is None:
        raise UserError("embeddings", "hold nothing that can be compared across views; embed the images anew")
    if len(source.encoders) > 1 and isinstance(image, str | Path):
        for name, known in asked.inputs.items():
            known.check_file(image, f"{name} of {source.name}")
    vector = forward(asked.encoder, _preprocess(asked, found)(image), read=embedding).cpu()
    query = project(next(iter(asked.heads.values())), vector).detach() if across else vector
    similarity, rows = neighbours(bank, query, top + 1)  # one more, for the query itself
    if not torch.isfinite(similarity).all():
        raise UserError("embeddings", "some hold NaN or infinite numbers; embed the images anew")
    near = sorted((-float(value), int(row)) for value, row in zip(similarity[0], rows[0], strict=True))
    every = [Neighbour(row, found.name(row), -value, found.label(row), found.file(row)) for value, row in near]
    return [each for each in every if across or not same_file(image, each.file)][:top]


def query_view(source: ModelSource, image: Picture, found: Embeddings, view: str | None = None) -> str | None:
    """Returns the view of a query picture: the given one, its folder's name, or of two views the one not embedded.

    None where there is one encoder only.
    """
    views = list(source.encoders)
    if len(views) == 1:
        return None
    if view is not None:
        if view not in views:
            raise UserError("view", f"{source.name} has an encoder for {', '.join(views)}, got {view!r}")
        return view
    folder = Path(os.path.abspath(image)).parent if isinstance(image, str | Path) else Path()
    named = next((part for part in reversed(folder.parts) if part in views), None)
    others = [each for each in views if each != found.about.view]
    if named is None and len(others) != 1:
        raise UserError("view", f"of which is the picture? give one of {', '.join(views)}")
    return named or others[0]


def _preprocess(source: ModelSource, found: Embeddings) -> Preprocess:
    """Returns the preprocessing of the query's encoder."""
    known = next(iter(source.inputs.values()), None)
    if known is not None:
        return Preprocess(source.size, input=known)
    modality = replace(source.picture, mean=found.about.mean, std=found.about.std)
    seen = view_named(next(iter(source.encoders)) or "image", "image")
    return Preprocess(source.size, source.encoder.options["channels"] if seen.space is None else 3, modality, seen)


def picture(
    image: Picture, found: Sequence[Neighbour], embeddings: Embeddings, *, view: str | None = None
) -> Image.Image:
    """Draws a contact sheet: the query with the view it was read as, and its neighbours with names and similarities."""
    rgb = _shown(image) if isinstance(image, str | Path) else to_rgb(image) if isinstance(image, Tensor) else image
    name = printable(str(image)) if isinstance(image, str | Path) else "a picture"
    seen_by = printable(embeddings.about.encoder)
    first = Tile(rgb, (f"nearest to {name}{read_as(view)}", f"among {embeddings.described}", f"as {seen_by} sees them"))
    others = []
    for number, (each, seen) in enumerate(zip(found, _pictures(found, embeddings), strict=True), 1):
        lines = f"{number}   {each.similarity:.4f}{each.mark}", each.name
        others.append(Tile(seen, (*lines, each.label) if each.label else lines))
    return contact_sheet(first, others)


def save_picture(sheet: Image.Image, path: Path) -> None:
    """Writes a contact sheet as a PNG file that names its maker, in place of an older one."""
    check_picture(path)
    made_by = PngInfo()
    made_by.add_text("Software", MADE_BY)
    with naming_setting("picture", path), atomic_write(path) as draft, draft.open("wb") as stream:
        sheet.save(stream, format="PNG", pnginfo=made_by)


def check_picture(path: Path) -> None:
    """Refuses to overwrite a file that is no contact sheet of ours."""
    if os.path.lexists(path) and not _is_ours(path):
        raise UserError("picture", f"{printable(str(path))} is there and not from here; give another name, --picture")


def _is_ours(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with Image.open(path, formats=["PNG"]) as found:
            return bool(found.info.get("Software") == MADE_BY)
    except Exception:  # a file of any content raises almost anything
        return False


def read_as(view: str | None) -> str:
    """Names the view that a picture was read as, where there are several."""
    return "" if view is None else f", read as {view},"


def maker(model: OneModel, found: Embeddings, **options: Any) -> ModelSource:
    """Opens the encoder that made the embeddings, with those of the other views where it has some."""
    about = found.about
    if about.grid:
        raise UserError("embeddings", "hold a vector a place, of --patches; embed the images again without it")
    if isinstance(model, str) and not os.path.exists(model) and not options.get("size"):
        options = {**options, "size": about.size}  # a name does not say at which size it sees pictures
    source = open_model(model, **options)
    made = next((each for view, each in source.encoders.items() if about.view == view), source.encoder)
    weights = weights_checksum(made)
    if weights != about.weights or made.dim != found.vectors.shape[1]:
        maker = printable(f"{about.encoder} (weights {about.weights[:8]})")
        raise UserError(
            "embeddings",
            f"were made by {maker}, not by {source.name} (weights {weights[:8]}); search with the encoder that "
            "made them, or embed the images anew",
        )
    return source


def same_file(image: Picture, file: str | None) -> bool:
    """Tells whether a picture is that file, under any name."""
    if file is None or not isinstance(image, str | Path):
        return False
    return os.path.exists(image) and os.path.exists(file) and os.path.samefile(image, file)


def _pictures(found: Sequence[Neighbour], embeddings: Embeddings) -> list[Image.Image | None]:
    """Reads the pictures from their files, or from the data set that they are of; None where neither can be read."""
    about = embeddings.about
    if about.root is not None:
        return [None if each.file is None else _shown(each.file) for each in found]
    options = {name: about.options[name] for name in REOPEN if name in about.options}
    try:
        dataset = open_data(about.data, **options)
        modality = modality_of(about.view, dataset)
        return [_of_dataset(dataset, embeddings.ids[each.row], modality) for each in found]
    except (ValueError, OSError, ImportError, TypeError):
        return [None] * len(found)


def _of_dataset(dataset: Dataset, id: Tensor, modality: str) -> Image.Image | None:
    row = (dataset.ids == id).nonzero()[:, 0].tolist()
    try:
        return to_rgb(dataset[row[0]].modalities[modality]) if row else None
    except (Unreadable, KeyError):
        return None


def _shown(file: str | Path) -> Image.Image | None:
    if not os.path.isfile(file):  # nor a device, which may never end
        return None
    try:
        return to_rgb(decode_raster(file))
    except Unreadable:
        return None


class Tile(NamedTuple):
    """One picture of a contact sheet with a few short lines of text; the picture is None where it is missing."""

    picture: Image.Image | None
    lines: tuple[str, ...]


def contact_sheet(first: Tile, others: Sequence[Tile]) -> Image.Image:
    """Draws the first tile with its text beside it and a rule under it, then the others in rows with text below."""
    rows, step = -(-len(others) // COLUMNS), SIDE + GAP
    lines = max((len(tile.lines) for tile in others), default=0)
    height, head = SIDE + GAP // 2 + lines * LINE + GAP, SIDE + 2 * GAP
    width = GAP + max(3, min(COLUMNS, len(others))) * step
    sheet = Image.new("RGB", (width, head + GAP + rows * height), PAPER)
    draw = ImageDraw.Draw(sheet)
    _put_picture(sheet, draw, first.picture, GAP, GAP)
    _put_text(draw, first.lines, GAP + step, GAP + SIDE - len(first.lines) * LINE, width - step - 2 * GAP)
    draw.line([(GAP, head), (width - GAP - 1, head)], fill=FRAME, width=2)
    for number, tile in enumerate(others):
        row, column = divmod(number, COLUMNS)
        left, top = GAP + column * step, head + GAP + row * height
        _put_picture(sheet, draw, tile.picture, left, top)
        _put_text(draw, tile.lines, left, top + SIDE + GAP // 2, SIDE)
    return sheet


def _put_picture(
    sheet: Image.Image, draw: ImageDraw.ImageDraw, picture: Image.Image | None, left: int, top: int
) -> None:
    """Puts a picture at the bottom of its square, next to its text."""
    if picture is None:
        draw.rectangle([left, top, left + SIDE - 1, top + SIDE - 1], fill=FRAME)
        draw.text((left + SIDE // 2, top + SIDE // 2), "not found", fill=SOFT, font=_font(), anchor="mm")
        return
    scale = SIDE / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    sharp = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS  # pixels that grow stay sharp
    sheet.paste(picture.convert("RGB").resize(size, sharp), (left, top + SIDE - size[1]))


def _put_text(draw: ImageDraw.ImageDraw, lines: tuple[str, ...], left: int, top: int, room: int) -> None:
    for number, line in enumerate(lines):
        draw.text((left, top + number * LINE), shortened(line, room), fill=SOFT if number else INK, font=_font())


def shortened(text: str, room: int) -> str:
    """Cuts off the beginning of a text that is too wide, since names of files differ at their end."""
    if _font().getlength(text) <= room:
        return text
    ends = ("..." + text[start:] for start in range(1, len(text)))
    return next((end for end in ends if _font().getlength(end) <= room), "...")


def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(TEXT)
