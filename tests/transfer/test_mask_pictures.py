from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from manyview.transfer import mask_pictures
from manyview.transfer.iou import IGNORED
from manyview.transfer.mask_pictures import SIDE, Segmented, save_mask_pictures
from manyview.transfer.picture_sheet import GAP, LINE, Colour, sheet

Rows = Sequence[tuple[str, Sequence[Image.Image]]]


def sample() -> Segmented:
    right = torch.zeros(8, 8, dtype=torch.long)
    right[:, 4:], right[0] = 1, IGNORED
    return Segmented(torch.rand(1, 8, 8), right, right.flip(1).clamp_max(1))


def test_a_class_has_one_colour_in_the_mask_and_in_the_prediction(tmp_path: Path) -> None:
    save_mask_pictures([sample()] * 2, ("sky", "road", "car"), tmp_path / "p.png")
    with Image.open(tmp_path / "p.png") as image:
        pixels = np.asarray(image)
    step = LINE + SIDE + GAP
    assert pixels.shape == (3 * step + LINE, 2 * SIDE + GAP, 3)
    mask, found = (pixels[top + LINE : top + LINE + SIDE, :SIDE] for top in (step, 2 * step))
    assert (mask[-1, 0] == found[-1, -1]).all()
    assert (mask[-1, -1] == found[-1, 0]).all()
    assert (mask[-1, 0] != mask[-1, -1]).any()
    assert len({tuple(each) for each in mask.reshape(-1, 3).tolist()}) == 3  # two classes and what is ignored


def test_the_colour_of_each_class_that_is_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str] = []

    def noted(rows: Rows, colours: Sequence[tuple[str, Colour]]) -> Image.Image:
        named.extend(name for name, _ in colours)
        return sheet(rows, colours)

    monkeypatch.setattr(mask_pictures, "sheet", noted)
    save_mask_pictures([sample()], ("sky", "road", "car"), tmp_path / "p.png")
    assert named == ["sky", "road", "no class"]
