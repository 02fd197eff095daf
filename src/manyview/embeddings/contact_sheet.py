"""A contact sheet: the picture of a query, and others under it with a name and a number each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

COLUMNS = 5
SIDE = 200  # of a picture, in pixels
GAP, LINE = 16, 20
TEXT = 15  # height of letters
INK, SOFT, PAPER, FRAME = "#1a1a1a", "#5f5f5f", "#ffffff", "#e4e4e4"


@dataclass(frozen=True)
class Tile:
    """One picture of a contact sheet with a few short lines of text; None where the picture is missing."""

    picture: Image.Image | None
    lines: tuple[str, ...]


def contact_sheet(first: Tile, others: Sequence[Tile]) -> Image.Image:
    """Draws the first tile with its text beside it and a rule under it, then the others in rows, text under them."""
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
    else:
        fitted = _fitted(picture)
        sheet.paste(fitted, (left, top + SIDE - fitted.height))


def _put_text(draw: ImageDraw.ImageDraw, lines: tuple[str, ...], left: int, top: int, room: int) -> None:
    for number, line in enumerate(lines):
        draw.text((left, top + number * LINE), shortened(line, room), fill=SOFT if number else INK, font=_font())


def _fitted(picture: Image.Image) -> Image.Image:
    """Scales a picture to the size of a square; pixels that grow stay sharp."""
    scale = SIDE / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    grown = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS
    return picture.convert("RGB").resize(size, grown)


def shortened(text: str, room: int) -> str:
    """Cuts off the beginning of a text that is too wide: names of files differ at their end."""
    if _font().getlength(text) <= room:
        return text
    ends = ("..." + text[start:] for start in range(1, len(text)))
    return next((end for end in ends if _font().getlength(end) <= room), "...")


def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(TEXT)
