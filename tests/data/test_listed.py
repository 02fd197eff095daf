from __future__ import annotations

import os
from pathlib import Path
from zipfile import ZipFile

import pytest

from manyview.core.errors import UserError
from manyview.data.dataset import Unreadable
from manyview.data.listed import Listed, distance_class, hateful_memes, voc2007
from manyview.data.named import open_named
from tests.data import fakes


@pytest.mark.parametrize(
    ("metres", "expected"), [([3.0], 0), ([8.0], 0), ([8.1, 30.0], 1), ([20.0], 1), ([20.1], 2), ([99.0, 60.0], 2)]
)
def test_the_nearest_vehicle_decides(metres: list[float], expected: int) -> None:
    assert distance_class([fakes.KITTI_LABEL.format("Truck", each) for each in metres]) == expected


def test_people_and_what_is_not_to_be_cared_for_are_no_vehicles() -> None:
    others = [fakes.KITTI_LABEL.format(kind, 2.0) for kind in ("Pedestrian", "Cyclist", "Tram", "DontCare")]
    assert distance_class(others) == distance_class([]) == 3


def test_a_list_that_is_missing_is_named(tmp_path: Path) -> None:
    fakes.voc2007(tmp_path)
    os.unlink(tmp_path / "VOCdevkit/VOC2007/ImageSets/Main/cow_val.txt")
    with pytest.raises(UserError, match=r"cow_val\.txt: cannot be read"):
        voc2007(tmp_path, "voc2007", None, {"split": "val"})
    assert voc2007(tmp_path, "voc2007", None, {"split": "test"}) is not None
    (tmp_path / "hateful_memes").mkdir()
    with pytest.raises(UserError, match=r"train\.jsonl: cannot be read"):
        hateful_memes(tmp_path, "hateful-memes", None, {"split": "train"})


def test_images_are_read_out_of_archives(tmp_path: Path) -> None:
    fakes.draw(tmp_path / "1.png")
    with ZipFile(tmp_path / "train.zip", "w") as archive:
        archive.write(tmp_path / "1.png", "images/1.png")
    listed = Listed([f"{tmp_path}/train.zip@images/1.png", f"{tmp_path}/1.png"], [1, 0], ("a", "b"))
    (packed, label), (plain, _) = listed[0], listed[1]
    assert label == 1
    assert packed.tobytes() == plain.tobytes()


def test_a_picture_that_is_gone_is_unreadable(tmp_path: Path) -> None:
    fakes.hateful_memes(tmp_path)
    os.unlink(tmp_path / "hateful_memes/img/train0.png")
    data = open_named("hateful-memes", root=tmp_path)
    assert data[0].targets == {"label": 1}
    with pytest.raises(Unreadable):
        data[1]
