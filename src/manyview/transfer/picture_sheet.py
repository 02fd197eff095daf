"""Sheets of pictures: rows with a heading each, and below them what each colour stands for."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]

GAP = 4  # pixels between pictures
LINE = 20  # pixels of a line of text
TEXT = 12  # pixels of a letter
PAPER, INK = (255, 255, 255), (40, 40, 40)


def font(size: int = TEXT) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """The font that Pillow brings."""
    return ImageFont.load_default(size)


def sheet(rows: Sequence[tuple[str, Sequence[Image.Image]]], colours: Sequence[tuple[str, Colour]] = ()) -> Image.Image:
    """Joins rows of pictures, each with a heading above it, as high as its highest picture.

    colours  what each colour stands for, named below all rows
    """
    width = max(sum(each.width + GAP for each in pictures) - GAP for _, pictures in rows)
    places = _key_places([name for name, _ in colours], width)
    lines = places[-1][1] + 1 if places else 0
    heights = [LINE + max(each.height for each in pictures) + GAP for _, pictures in rows]
    made = Image.new("RGB", (width, sum(heights) + lines * LINE), PAPER)
    draw, top = ImageDraw.Draw(made), 0
    for (heading, pictures), height in zip(rows, heights, strict=True):
        draw.text((0, top + LINE // 2), heading, INK, font(), anchor="lm")
        left = 0
        for each in pictures:
            made.paste(each, (left, top + LINE))
            left += each.width + GAP
        top += height
    for (name, colour), (x, line) in zip(colours, places, strict=True):
        y = top + line * LINE
        draw.rectangle((x, y + 4, x + TEXT, y + 4 + TEXT), colour)
        draw.text((x + TEXT + GAP, y + LINE // 2), name, INK, font(), anchor="lm")
    return made


def _key_places(names: Sequence[str], width: int) -> list[tuple[int, int]]:
    """Where each name of a colour stands, as pixels from the left and the number of its line."""
    found, x, line = [], 0, 0
    for name in names:
        wide = TEXT + 4 * GAP + round(font().getlength(name))
        if x and x + wide > width:
            x, line = 0, line + 1
        found.append((x, line))
        x += wide
    return found
