from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from manyview.data import Folder
from manyview.data.visible import to_rgb
from manyview.report.images import CachedImages, ThumbnailSheet, choose_images, open_images, thumbnail_sheet
from manyview.training import run_data
from manyview.training.run import Run
from manyview.views.view import view_named
from tests.report.conftest import thumbnails
from tests.tiny import pictures


def of_folder(folder: Folder) -> run_data.RunData:
    """The data of a run on a folder without labels."""
    views = {"image": view_named("image", "image")}
    return run_data.RunData(folder, None, views, {"image": 3}, 32, (len(folder), 0, 0, 0), ("image",))


def test_a_sheet_holds_each_picture_where_it_says() -> None:
    flat = [Image.new("RGB", (32, 32), (10 * number,) * 3) for number in range(20)]
    made = thumbnail_sheet(flat)
    picture = thumbnails(made.uri).convert("RGB")
    assert (made.count, made.side, made.columns) == (20, 32, 5)
    for number in range(20):
        row, column = divmod(number, made.columns)
        pixel = picture.getpixel((column * made.side + 16, row * made.side + 16))
        assert isinstance(pixel, tuple)
        assert abs(pixel[0] - 10 * number) <= 3


def test_a_sheet_is_never_larger_than_its_room_however_hard_the_pictures() -> None:
    noise = [to_rgb(torch.randint(0, 256, (3, 64, 64), dtype=torch.uint8)) for _ in range(400)]
    made = thumbnail_sheet(noise, max_bytes=200_000)
    assert len(made.uri) < 200_000 * 4 / 3 + 100
    assert made.side < 64


def test_large_pictures_are_made_small_and_small_ones_stay() -> None:
    assert thumbnail_sheet([Image.new("RGB", (300, 500))] * 2).side == 64
    assert thumbnail_sheet([Image.new("RGB", (32, 32))] * 2).side == 32
    assert thumbnail_sheet([Image.new("RGB", (8, 8))] * 2).side == 16


def test_a_thumbnail_is_placed_by_column_and_row_and_its_caption_is_text() -> None:
    made = ThumbnailSheet("data:", 5, 12, 32).thumbnail(7, 2, '<b>"x', "query")
    assert 'class="thumb sheet2 query" style="--x:2;--y:1"' in made
    assert "<b>" not in made
    assert "&lt;b&gt;&quot;x" in made


def test_small_thumbnails_stay_sharp() -> None:
    assert "pixelated" in ThumbnailSheet("data:", 5, 12, 32).style(0)
    assert "pixelated" not in ThumbnailSheet("data:", 5, 12, 64).style(0)


def test_test_images_are_shown_rather_than_training_images(run: Run) -> None:
    found = choose_images(open_images(run.config), 16)
    assert found.description == "16 of the 40 test images"
    assert choose_images(open_images(run.config), 16, scored=40).description == "16 of the 40 test images"
    fewer = choose_images(open_images(run.config), 16, scored=25).description
    assert fewer == "16 of the 40 test images, 25 of which are scored"
    assert len(found.names) == len(found.dataset) == found.sheet.count == 16
    assert all(name.startswith("test/") for name in found.names)


def test_images_that_were_held_out_of_the_training_data_are_called_so(run: Run) -> None:
    data = open_images(run.config)
    found = choose_images(replace(data, held_out=True), 16)
    assert found.description == "16 of the 40 held-out images"
    assert choose_images(data, 16).description == "16 of the 40 test images"


def test_it_is_said_why_not_all_images_are_shown(run: Run) -> None:
    data = open_images(run.config)
    assert choose_images(data, 40).why == ""
    assert choose_images(data, 16).why == "They are drawn at random: so many fit on a page."
    timely = choose_images(data, 40, timely=16)
    assert len(timely.names) == 16
    assert timely.why.startswith("They are as many as there was time for; a larger --seconds")


def test_the_same_images_are_chosen_again_and_fewer_are_among_them(run: Run) -> None:
    data = open_images(run.config)
    once, again, fewer = (choose_images(data, count).dataset.ids.tolist() for count in (20, 20, 5))
    assert once == again
    assert set(fewer) <= set(once)


def test_what_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    folder = pictures(tmp_path, 30)
    for number in range(10):
        (folder / f"{number}.png").write_bytes(b"no picture")
    images = of_folder(Folder(folder))
    found = choose_images(images, 30)
    assert len(found.names) == 20
    assert found.description == "20 of the 30 training images"
    assert found.labels is None


def test_where_nothing_can_be_read_it_is_one_line(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(b"no picture")
    images = of_folder(Folder(tmp_path))
    with pytest.raises(ValueError, match="of 3 images 0 can be read"):
        choose_images(images, 3)


def test_without_time_few_are_read(run: Run) -> None:
    data = open_images(run.config)
    with pytest.raises(ValueError, match="of 40 images 1 can be read"):
        choose_images(data, 40, seconds=0.0)


def test_pictures_of_one_size_are_read_once(run: Run) -> None:
    data = open_images(run.config)
    kept = choose_images(data, 10).dataset
    assert isinstance(kept, CachedImages)
    sample = kept[3]
    assert torch.equal(sample.modalities["image"], kept.batch(torch.tensor([3]))["image"][0])
    assert sample.targets["label"] == int(kept.labels[3])  # type: ignore[index]
    assert kept.name(3) == kept.dataset.name(3)


def test_a_page_never_downloads(run: Run) -> None:
    config = run.config
    named = replace(config, data={"name": "cifar10", "split": "train", "root": "nowhere", "download": True})
    with pytest.raises((ValueError, OSError), match=r"nowhere|cifar10"):
        open_images(named)


def test_classes_are_named_also_without_names(run: Run) -> None:
    found = choose_images(open_images(run.config), 10)
    assert found.caption(0) == f"{found.names[0]}, {found.classes[found.label_list[0]]}"
    nameless = replace(found, classes=(), labels=torch.arange(-1, 9))
    assert (nameless.class_name(7), nameless.class_name(-1)) == ("7", "no label")
    assert nameless.caption(0) == found.names[0]
    assert replace(found, labels=None).label_list == [-1] * 10
