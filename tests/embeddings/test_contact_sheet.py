"""The sheet of pictures: nothing runs out of its place."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from manyview.embeddings.contact_sheet import GAP, SIDE, Tile, _font, contact_sheet, shortened


def test_a_long_name_keeps_its_end_and_fits() -> None:
    text = shortened("/photos/" + "deep/" * 40 + "cat_0001.png", SIDE)
    assert text.startswith("...")
    assert text.endswith("cat_0001.png")
    assert _font().getlength(text) <= SIDE
    assert shortened("cat.png", SIDE) == "cat.png"


@pytest.mark.parametrize("count", [0, 1, 5, 6, 23])
def test_any_number_of_pictures_fits(count: int) -> None:
    tile = Tile(Image.new("L", (30, 900), 0), ("1   0.9", "名前 <b>ä</b>.png" * 9, "a class"))
    sheet = np.array(contact_sheet(tile, [tile] * count))
    assert (sheet[-GAP // 2 :] == 255).all()  # a margin is left
    assert (sheet[:, -GAP // 2 :] == 255).all()


@pytest.mark.parametrize("size", [(1, 5000), (5000, 1), (1, 1)])
def test_a_picture_of_any_shape_fits(size: tuple[int, int]) -> None:
    assert contact_sheet(Tile(Image.new("RGB", size), ("",)), []).height < 2 * SIDE
