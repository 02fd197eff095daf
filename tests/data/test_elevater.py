from __future__ import annotations

import json
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch

from manyview.core.errors import UserError
from manyview.data.dataset import Dataset
from manyview.data.elevater import FOLDERS, open_elevater
from manyview.data.named import NAMED
from tests.data import fakes


def packed(home: Path, archive: str, names: list[str]) -> None:
    home.mkdir(parents=True, exist_ok=True)
    with ZipFile(home / archive, "w") as file:
        for number, name in enumerate(names):
            fakes.draw(home / f"{number}.png")
            file.write(home / f"{number}.png", name)
            (home / f"{number}.png").unlink()


def voc(root: Path) -> None:
    home = root / "classification" / FOLDERS["voc2007"]
    for split in ("train", "test"):
        packed(home, f"{split}.zip", ["a b.png", "c.png"])
        fakes.write(home / f"{split}_ic.txt", f"{split}.zip@a b.png 0,2\n{split}.zip@c.png 1\n")
    fakes.write(home / "labels.txt", "aeroplane\nbicycle\nbird\n")


def kitti(root: Path, *, named: bool = False) -> None:
    home = root / FOLDERS["kitti-distance"]
    for split in ("train", "test"):
        packed(home, f"{split}_images.zip", ["0.png", "1.png"])
        archive = f"{split}_images.zip"
        where = [{"file_name": f"{n}.png", "zip_file": archive} if named else {"file_name": f"{archive}@{n}.png"}
                 for n in range(2)]  # fmt: skip
        images = [{"id": number + 7, **each} for number, each in enumerate(where)]
        labels = [{"id": 1, "image_id": 8, "category_id": 1}, {"id": 2, "image_id": 7, "category_id": 2}]
        classes = [{"id": 2, "name": "far"}, {"id": 1, "name": "near"}]
        fakes.write(home / f"{split}_meta.json", json.dumps({"images": images, "annotations": labels,
                                                            "categories": classes}))  # fmt: skip


def test_lists_of_files_with_several_labels(tmp_path: Path) -> None:
    voc(tmp_path)
    data = open_elevater(tmp_path, "voc2007", "train")
    assert isinstance(data, Dataset)
    assert data.classes == ("aeroplane", "bicycle", "bird")
    assert data.labels is None
    assert data.label_sets is not None
    assert data.label_sets.tolist() == [[1, 0, 1], [0, 1, 0]]
    assert data[0].targets == {"labels": (0, 2)}
    assert data[1].modalities["image"].shape[0] == 3


@pytest.mark.parametrize("named", [False, True])
def test_cocos_format_with_one_label_each(tmp_path: Path, named: bool) -> None:
    kitti(tmp_path, named=named)
    train, test = (open_elevater(tmp_path, "kitti-distance", split) for split in ("train", "test"))
    assert train.classes == test.classes == ("near", "far")
    assert train.labels is not None
    assert train.labels.tolist() == [1, 0]
    assert train[0].modalities["image"].dtype == torch.uint8
    assert not set(train.ids.tolist()) & set(test.ids.tolist())


def test_all_twenty_have_a_name_of_ours() -> None:
    assert len(FOLDERS) == 20
    assert set(FOLDERS) <= set(NAMED)


def test_what_is_missing_or_damaged_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^mnist: there is no mnist_20211008/ in"):
        open_elevater(tmp_path, "mnist", "train")
    voc(tmp_path)
    home = tmp_path / "classification" / FOLDERS["voc2007"]
    (home / "test_ic.txt").unlink()
    with pytest.raises(UserError, match="there is no list of its test images"):
        open_elevater(tmp_path, "voc2007", "test")
    (home / "train_ic.txt").write_text("nothing\n")
    with pytest.raises(UserError, match="is not as ELEVATER writes it"):
        open_elevater(tmp_path, "voc2007", "train")
