from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from manyview.transfer.iou import IGNORED
from manyview.transfer.mask_pictures import GAP, SIDE, Segmented, save_mask_pictures


def test_a_class_has_one_colour_in_the_mask_and_in_the_prediction(tmp_path: Path) -> None:
    right = torch.zeros(8, 8, dtype=torch.long)
    right[:, 4:], right[0] = 1, IGNORED
    predicted = right.flip(1)
    save_mask_pictures([Segmented(torch.rand(1, 8, 8), right, predicted)] * 2, tmp_path / "p.png")
    with Image.open(tmp_path / "p.png") as image:
        pixels = np.asarray(image)
    assert pixels.shape == (3 * SIDE + 2 * GAP, 2 * SIDE + GAP, 3)
    mask, found = pixels[SIDE + GAP : 2 * SIDE + GAP, :SIDE], pixels[2 * (SIDE + GAP) :, :SIDE]
    assert (mask[-1, 0] == found[-1, -1]).all()
    assert (mask[-1, -1] == found[-1, 0]).all()
    assert (mask[-1, 0] != mask[-1, -1]).any()
    assert len({tuple(each) for each in mask.reshape(-1, 3).tolist()}) == 3  # two classes and what is ignored
