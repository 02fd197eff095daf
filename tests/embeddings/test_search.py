"""Searching: what is nearest comes first, embeddings of another encoder are refused, and the picture shows it."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import TensorDataset

from manyview import encoders
from manyview.core.errors import UserError
from manyview.data import Scenes, TorchDataset
from manyview.data.image import decode
from manyview.embeddings import Embeddings, embed
from manyview.embeddings.open_model import open_model
from manyview.embeddings.search import GAP, SIDE, Tile, _font, contact_sheet, picture, save_picture, search, shortened
from manyview.encoders import Encoder
from manyview.views import Modality
from tests.tiny import pictures

IMAGES = 30


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A third of them are copies: 20.png is 0.png again."""
    folder = pictures(tmp_path / "data", 20)
    for number in range(20, IMAGES):
        shutil.copy(folder / f"{number - 20}.png", folder / f"{number}.png")
    return folder


@pytest.fixture
def found(encoder: Encoder, data: Path, tmp_path: Path) -> Embeddings:
    return embed(encoder, data, tmp_path / "e.npz", workers=0, device="cpu")


def names(near: Any) -> list[str]:
    return [each.name for each in near]


def test_the_nearest_by_cosine_come_first(encoder: Encoder, data: Path, found: Embeddings) -> None:
    near = search(encoder, data / "15.png", found, top=7)
    row = found.names.index("15.png")
    cosines = F.cosine_similarity(found.vectors[row][None], found.vectors)
    cosines[row] = -2
    expected = cosines.sort(descending=True)
    assert [each.similarity for each in near] == pytest.approx(expected.values[:7].tolist(), abs=1e-5)
    assert names(near)[0] == found.names[int(expected.indices[0])]
    assert not any(each.duplicate for each in near)


def test_the_file_itself_is_left_out_and_its_copy_is_called_a_duplicate(
    encoder: Encoder, data: Path, found: Embeddings, tmp_path: Path
) -> None:
    near = search(encoder, data / "3.png", found, top=IMAGES + 5)
    assert len(near) == IMAGES - 1
    assert "3.png" not in names(near)
    assert (near[0].name, near[0].duplicate) == ("23.png", True)
    assert [each.duplicate for each in near[1:]] == [False] * (IMAGES - 2)
    os.symlink(data / "3.png", tmp_path / "link.png")
    assert names(search(encoder, tmp_path / "link.png", found, top=1)) == ["23.png"]


def test_a_copy_elsewhere_finds_the_original(encoder: Encoder, data: Path, found: Embeddings, tmp_path: Path) -> None:
    shutil.copy(data / "15.png", tmp_path / "copy.png")
    (near,) = search(encoder, tmp_path / "copy.png", found, top=1)
    assert (near.name, near.duplicate, near.file) == ("15.png", True, str(data / "15.png"))


def test_a_query_may_be_a_pillow_image_or_a_tensor(encoder: Encoder, data: Path, found: Embeddings) -> None:
    with Image.open(data / "15.png") as image:
        assert names(search(encoder, image, found, top=1)) == ["15.png"]
    assert names(search(encoder, decode(data / "15.png"), found, top=1)) == ["15.png"]


def test_embeddings_of_another_encoder_are_refused(data: Path, found: Embeddings) -> None:
    torch.manual_seed(1)
    other = encoders.create("patchnet", size=32, widths=[8, 16], blocks=[1, 1])
    with pytest.raises(ValueError, match=r"were made by patchnet \(weights .*, not by patchnet .* the images anew$"):
        search(other, data / "1.png", found)


def test_a_query_is_normalised_as_the_embedded_images_were(encoder: Encoder, data: Path, tmp_path: Path) -> None:
    dark = replace(open_model(encoder), picture=Modality((0.9, 0.9, 0.9), (0.1, 0.1, 0.1), colour=True))
    found = embed(dark, data, tmp_path / "dark.npz", workers=0, device="cpu")
    (near,) = search(encoder, decode(data / "15.png"), found, top=1)
    assert (near.name, near.duplicate) == ("15.png", True)


def test_vectors_that_are_no_numbers_are_refused(encoder: Encoder, data: Path, found: Embeddings) -> None:
    found.vectors[4, 2] = torch.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        search(encoder, data / "1.png", found)


def test_the_search_leaves_the_encoder_and_the_file_as_they_were(encoder: Encoder, data: Path, tmp_path: Path) -> None:
    found = embed(encoder, data, tmp_path / "e.npz", workers=0, device="cpu")
    before = (tmp_path / "e.npz").read_bytes()
    encoder.train()
    search(encoder, data / "1.png", found)
    assert all(part.training for part in encoder.modules())
    encoder.eval()
    found.vectors.zero_()
    assert (tmp_path / "e.npz").read_bytes() == before


def test_the_picture_shows_the_query_and_what_was_found(encoder: Encoder, data: Path, found: Embeddings) -> None:
    image = Image.new("RGB", (100, 50), "#ff0000")
    near = search(encoder, image, found, top=7)
    sheet = np.array(picture(image, near, found))
    assert sheet.shape[1] > sheet.shape[0] / 2
    assert (sheet == (255, 0, 0)).all(-1).sum() == 200 * 100  # the query, fitted to a square
    first = np.array(Image.open(data / near[0].name).resize((200, 200), Image.Resampling.NEAREST))
    head = 200 + 2 * 16
    assert np.array_equal(sheet[head + 16 : head + 216, 16:216], first)


def test_a_picture_that_is_gone_or_broken_is_a_grey_square(encoder: Encoder, data: Path, found: Embeddings) -> None:
    near = search(encoder, data / "0.png", found, top=3)
    os.unlink(str(near[0].file))
    os.mkfifo(str(near[0].file))  # to read it would take for ever
    Path(str(near[1].file)).write_bytes(b"")
    sheet = np.array(picture(data / "0.png", near, found))
    grey = (sheet == (0xE4, 0xE4, 0xE4)).all(-1).sum()
    assert grey > 2 * 190 * 200


def test_data_that_are_no_files_are_searched_too(encoder: Encoder, tmp_path: Path) -> None:
    images = torch.randint(256, (5, 3, 32, 32), dtype=torch.uint8)
    found = embed(encoder, TorchDataset(TensorDataset(images)), tmp_path / "e.npz", workers=0, device="cpu")
    near = search(encoder, images[2], found, top=2)
    assert (near[0].name, near[0].file) == ("2", None)
    assert picture(images[2], near, found).size[0] > 400


def test_generated_scenes_are_pictured_from_their_data_set(encoder: Encoder, tmp_path: Path) -> None:
    scenes = Scenes(8)
    found = embed(encoder, scenes, tmp_path / "e.npz", workers=0, device="cpu")
    found = replace(found, about=replace(found.about, data="scenes"))
    query = scenes[5].modalities["image"]
    near = search(encoder, query, found, top=1)
    sheet = np.array(picture(query, near, found))
    assert near[0].name == scenes.name(5)
    assert np.array_equal(sheet[248:448, 16:216], sheet[16:216, 16:216])


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


def test_a_picture_takes_the_place_of_an_older_one_of_ours_and_of_nothing_else(tmp_path: Path) -> None:
    path, sheet = tmp_path / "nearest-1.png", Image.new("RGB", (4, 4))
    save_picture(sheet, path)
    save_picture(Image.new("RGB", (5, 5)), path)
    with Image.open(path) as found:
        assert (found.size, found.info["Software"]) == ((5, 5), "manyview")
    sheet.save(tmp_path / "holiday.png")
    (tmp_path / "text.png").write_text("manyview")
    (tmp_path / "link.png").symlink_to(path)
    (tmp_path / "dangling.png").symlink_to(tmp_path / "nothing.png")
    os.mkfifo(tmp_path / "pipe.png")
    for name in ("holiday", "text", "link", "dangling", "pipe"):
        theirs = tmp_path / f"{name}.png"
        with pytest.raises(UserError, match=rf"^picture: .*{name}\.png is there and not from here; give another name"):
            save_picture(sheet, theirs)
    assert (tmp_path / "text.png").read_text() == "manyview"
    assert not (tmp_path / "nothing.png").exists()
    with Image.open(path) as found:
        assert found.size == (5, 5)
