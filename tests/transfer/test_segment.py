"""Segmentation as a task: it learns what can be learnt, masks are cut as pictures are, settings are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from manyview.core.errors import UserError
from manyview.data import Loader
from manyview.data.nyu import NyuDepth
from manyview.embeddings.open_model import open_model
from manyview.encoders import create
from manyview.transfer.fit import fit
from manyview.transfer.iou import IGNORED
from manyview.transfer.masks import MASK
from manyview.transfer.nyu_classes import class_of_13, class_of_40
from manyview.transfer.prepared import DataSource, Prepared, Start
from manyview.transfer.segment import RECIPES, classes_of, pipeline, pixel_loss, segment
from tests.data.test_nyu import write
from tests.transfer.pictures import COLOURS, folder

SMALL: dict[str, Any] = {"widths": (8, 16), "blocks": (1, 1)}


def prepared(root: Path, **settings: Any) -> Prepared:
    width = {} if settings.get("decoder") == "linear" else {"width": 8}
    return segment(DataSource(str(root), {}), **{**width, "epochs": 2, "batch_size": 4, **settings})


def start(data: Prepared, **more: Any) -> Start:
    torch.manual_seed(0)
    model = open_model(create("patchnet", size=32, **SMALL))
    return Start(model, 0, torch.device("cpu"), workers=0, **more)


@pytest.mark.parametrize("decoder", ["unet", "linear"])
def test_classes_that_colours_tell_are_learnt_on_a_frozen_encoder(decoder: str, tmp_path: Path) -> None:
    task = prepared(folder(tmp_path / "data", 16), epochs=30, lr=0.02, decoder=decoder)
    training = task.training(start(task))
    before = training.score()
    fit(training, tmp_path / "out")
    after = training.score()
    assert after["pixel accuracy"] > max(0.6, before["pixel accuracy"])
    assert list(after)[:2] == ["miou", "pixel accuracy"]
    assert list(after)[2:] == ["iou 0", "iou 1", "iou 2"]


@pytest.mark.parametrize("augmentation", ["probe-train", "probe-test"])
def test_a_mask_is_cropped_and_flipped_with_its_picture(augmentation: str, tmp_path: Path) -> None:
    task = prepared(folder(tmp_path))
    views = pipeline(start(task).model, task.train, augmentation)
    loader = Loader(task.train, views, 8, seed=1, memory=0, workers=0)
    (batch,) = loader.epoch(3)
    made = batch.views()
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    pictures = (made["images"][0] * std + mean) * 255
    near = (pictures[:, None] - torch.tensor(COLOURS).view(1, 3, 3, 1, 1)).square().sum(2).argmin(1)
    classes = classes_of({MASK: made[MASK]})
    assert set(classes.unique().tolist()) <= {0, 1, 2}
    assert (near == classes).double().mean() > 0.9  # but where interpolation mixes colours at the edges


def test_the_loss_is_the_mean_over_pixels_that_are_not_ignored() -> None:
    scores, right = torch.randn(2, 3, 4, 4), torch.randint(0, 3, (2, 4, 4))
    right[0] = IGNORED
    expected = sum(F.cross_entropy(scores[1:, :, y, x], right[1:, y, x]) for y in range(4) for x in range(4)) / 16
    assert torch.allclose(pixel_loss(scores, right), torch.as_tensor(expected))
    assert float(pixel_loss(scores, torch.full((2, 4, 4), IGNORED))) == 0


def test_baselines_train_as_long_as_the_paper_trains_them(tmp_path: Path) -> None:
    task = segment(DataSource(str(folder(tmp_path)), {}), recipe="cmc-nyu", batch_size=8, width=8)
    trained, baseline = (task.training(start(task, baseline=each)) for each in (False, True))
    assert (trained.steps, baseline.steps) == (200, 1000)
    assert trained.optimizer.param_groups[0]["betas"] == (0.5, 0.999)
    assert [trained.factor(epoch) for epoch in (0, 134, 161, 190)] == pytest.approx([1, 0.2, 0.04, 0.008])
    assert RECIPES["cmc-nyu"].lr == 1e-3


def test_what_is_frozen_has_a_supervised_baseline_and_what_is_not_has_none(tmp_path: Path) -> None:
    root = folder(tmp_path)
    assert prepared(root, frozen=False).supervised is None
    whole = prepared(root).supervised
    assert whole is not None
    model = whole(start(prepared(root))).model
    assert all(each.requires_grad for each in model.parameters())


def test_pictures_without_a_mask_are_told_and_a_fifth_is_held_out_where_there_is_no_test(tmp_path: Path) -> None:
    root = folder(tmp_path, 10) / "train"
    (root / "masks" / "3.png").unlink()
    task = prepared(root)
    assert (len(task.train), len(task.test), task.held_out) == (8, 1, True)
    assert task.notes == ("training pictures without a mask, left out: 1",)


def test_many_masks_that_do_not_fit_are_one_line(tmp_path: Path) -> None:
    from PIL import Image

    root = folder(tmp_path)
    for number in (1, 2):
        Image.new("L", (3, 3)).save(root / "train" / "masks" / f"{number}.png")
    task = prepared(root)
    with pytest.raises(UserError, match=r"2 of 8 samples cannot be read.*its mask has 3 x 3 pixels"):
        task.training(start(task))


def test_a_setting_that_would_do_nothing_is_refused(tmp_path: Path) -> None:
    root = folder(tmp_path / "colours", colours=True)
    (root / "legend.txt").write_text("200 30 30 a\n30 200 30 b\n30 30 200 c\n")
    with pytest.raises(UserError, match=r"ignore: .*legend\.txt is of colours; name a colour void in it instead"):
        prepared(root, ignore=(3,))
    with pytest.raises(UserError, match="width: the linear decoder has none"):
        prepared(root, decoder="linear", width=8)


def test_classes_of_scenes_can_be_ignored() -> None:
    task = segment(DataSource("scenes", {"count": 5, "size": 16}), ignore=(0,))
    masks = torch.stack([task.train[row].modalities[MASK] for row in range(5)])
    assert IGNORED in masks
    assert 0 not in masks


def test_nyus_published_file_is_segmented_into_its_13_and_40_classes(tmp_path: Path) -> None:
    file = write(tmp_path)
    raw = NyuDepth(file, modalities=["labels"], split="test")[0].modalities["labels"][0].long()
    for name, class_of in (("nyu13", class_of_13), ("nyu40", class_of_40)):
        task = segment(DataSource(str(file), {}), legend=name)
        assert (len(task.train), len(task.test), len(task.classes)) == (4, 2, int(name[3:]))
        assert task.notes == ()
        expected = [[class_of(int(value)) - 1 if value else IGNORED for value in row] for row in raw]
        assert task.test[0].modalities["mask"][0].tolist() == expected
