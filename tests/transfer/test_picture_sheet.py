import numpy as np
from PIL import Image

from manyview.transfer.picture_sheet import GAP, LINE, PAPER, sheet


def test_rows_stand_below_their_headings_as_high_as_their_highest_picture() -> None:
    red, blue = Image.new("RGB", (30, 10), "red"), Image.new("RGB", (40, 20), "blue")
    made = sheet([("first", [red, blue]), ("second", [red])])
    assert made.size == (70 + GAP, 2 * LINE + 30 + 2 * GAP)
    assert made.getpixel((0, LINE)) == (255, 0, 0)
    assert made.getpixel((30 + GAP, LINE + 19)) == (0, 0, 255)
    assert made.getpixel((0, 2 * LINE + 20 + GAP)) == (255, 0, 0)
    heading = np.asarray(made)[:LINE]
    assert (heading != PAPER).any()


def test_colours_are_named_below_in_as_many_lines_as_it_takes() -> None:
    picture = Image.new("RGB", (120, 10), "white")
    plain = sheet([("", [picture])])
    made = sheet([("", [picture])], [(f"class {n}", (0, 10 * n, 0)) for n in range(1, 6)])
    assert made.height > plain.height + LINE
    there = {tuple(each) for each in np.asarray(made).reshape(-1, 3).tolist()}
    assert {(0, 10 * n, 0) for n in range(1, 6)} <= there
