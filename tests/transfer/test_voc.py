from pathlib import Path

import pytest

from manyview.core.errors import UserError
from manyview.transfer.voc import is_voc, objects_of, open_voc
from tests.transfer.made_objects import picture

OBJECT = """<object><name>{name}</name><difficult>{difficult}</difficult>
<bndbox><xmin>3</xmin><ymin>5</ymin><xmax>12</xmax><ymax>20</ymax></bndbox></object>"""


def write_voc(folder: Path, splits: dict[str, list[str]]) -> Path:
    for split, names in splits.items():
        (folder / "ImageSets" / "Main").mkdir(parents=True, exist_ok=True)
        (folder / "Annotations").mkdir(exist_ok=True)
        (folder / "ImageSets" / "Main" / f"{split}.txt").write_text("\n".join(f"{name}  1" for name in names))
        for name in names:
            picture(folder / "JPEGImages" / f"{name}.png")
            found = OBJECT.format(name="dog", difficult=0) + OBJECT.format(name="cat", difficult=1)
            (folder / "Annotations" / f"{name}.xml").write_text(f"<annotation>{found}</annotation>")
    return folder


def test_boxes_are_read_with_their_first_pixel_counted_from_1(tmp_path: Path) -> None:
    train, test = open_voc(write_voc(tmp_path, {"train": ["a", "b"], "val": ["c"]}), "boxes")
    assert (len(train), len(test), train.classes) == (2, 1, ("cat", "dog"))
    assert train.annotations[0]["bbox"] == [2, 4, 10, 16]
    assert train.target(0)["boxes"].tolist() == [[2, 4, 12, 20]]
    assert train.target(0)["labels"].tolist() == [2]


def test_difficult_objects_count_as_crowds(tmp_path: Path) -> None:
    train, _ = open_voc(write_voc(tmp_path, {"train": ["a"], "val": ["c"]}), "boxes")
    assert [each["iscrowd"] for each in train.annotations] == [0, 1]


def test_years_are_joined_as_07_and_12_are(tmp_path: Path) -> None:
    write_voc(tmp_path / "VOCdevkit" / "VOC2007", {"trainval": ["a"], "test": ["c"], "train": ["a"], "val": ["a"]})
    write_voc(tmp_path / "VOCdevkit" / "VOC2012", {"trainval": ["a", "b"], "train": ["a"], "val": ["b"]})
    assert is_voc(tmp_path)
    train, test = open_voc(tmp_path, "boxes")
    assert (len(train), len(test)) == (3, 1)


def test_without_lists_images_are_held_out(tmp_path: Path) -> None:
    write_voc(tmp_path, {"train": [str(number) for number in range(10)]})
    (tmp_path / "ImageSets" / "Main" / "train.txt").unlink()
    train, test = open_voc(tmp_path, "boxes")
    assert (len(train), len(test)) == (9, 1)


def test_missing_files_are_counted(tmp_path: Path) -> None:
    write_voc(tmp_path, {"train": ["a", "b", "c"], "val": ["d"]})
    (tmp_path / "JPEGImages" / "a.png").unlink()
    (tmp_path / "Annotations" / "b.xml").unlink()
    train, _ = open_voc(tmp_path, "boxes")
    assert len(train) == 1
    assert "whose XML is not there" in " ".join(train.told)
    assert "whose file is not there" in " ".join(train.told)


@pytest.mark.parametrize("text", ["<annotation>", "<a><object><name>x</name></object></a>", "<a><object/></a>"])
def test_what_is_no_voc_xml_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.xml").write_text(text)
    with pytest.raises(UserError, match="cannot be read as VOC's XML"):
        objects_of(tmp_path / "a.xml")


def test_masks_of_voc_and_empty_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="boxes alone"):
        open_voc(tmp_path, "masks")
    (tmp_path / "Annotations").mkdir()
    (tmp_path / "JPEGImages").mkdir()
    with pytest.raises(UserError, match="no XML file"):
        open_voc(tmp_path, "boxes")
