"""Legends: files of numbers and of colours, names that are none, and what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from manyview.core.errors import UserError
from manyview.transfer.iou import IGNORED
from manyview.transfer.legend import NAMED, Legend, codes, find_legend, read_legend


def written(folder: Path, text: str, name: str = "legend.txt") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_numbers_and_names_may_stand_in_either_order_and_names_may_have_spaces(tmp_path: Path) -> None:
    found = read_legend(written(tmp_path, "0 road\n2, traffic light  # red\n\n255 void\n"))
    assert found.classes == ("road", "traffic light")
    assert dict(found.values) == {0: 0, 2: 1, 255: IGNORED}
    turned = read_legend(written(tmp_path, "name,r,g,b\nroad,0,0,1\ntraffic light,1,0,0\n", "class_dict.csv"))
    assert turned.colours
    assert dict(turned.values) == {1: 0, 1 << 16: 1}


def test_values_of_one_name_are_one_class(tmp_path: Path) -> None:
    found = read_legend(written(tmp_path, "1 tree\n2 car\n3 tree\n"))
    assert found.classes == ("tree", "car")
    assert found.applied(torch.tensor([[1, 2], [3, 9]])).tolist() == [[0, 1], [0, IGNORED]]


def test_colours_become_classes() -> None:
    legend = Legend(("red", "blue"), {255 << 16: 0, 255: 1}, colours=True)
    mask = torch.tensor([[[255, 0, 7]], [[0, 0, 7]], [[0, 255, 7]]], dtype=torch.uint8)
    assert legend.applied(codes(mask)).tolist() == [[0, 1, IGNORED]]


@pytest.mark.parametrize("name", NAMED)
def test_a_legend_by_name_has_as_many_classes_as_its_set(name: str) -> None:
    found = find_legend(name, "nowhere")
    assert found is not None
    assert len(found.classes) == {"voc": 21, "nyu13": 13, "nyu40": 40, "msrs": 9}[name]
    assert len(set(found.classes)) == len(found.classes)


def test_what_nyu_leaves_unlabelled_is_in_its_legends_and_no_class() -> None:
    for name in ("nyu13", "nyu40"):
        found = find_legend(name, "nowhere")
        assert found is not None
        assert found.values[0] == IGNORED


def test_the_legends_of_nyu_join_the_labels_of_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "nyu_depth_v2_labeled.mat").touch()
    names = {}
    for legend in ("nyu13", "nyu40"):
        found = find_legend(legend, str(tmp_path / "nyu_depth_v2_labeled.mat"))
        assert found is not None
        assert set(found.values) == set(range(895))
        # unlabelled, wall, chair, person, wardrobe
        known = found.applied(torch.tensor([[0, 21, 5, 331, 772]]))[0].tolist()
        names[legend] = [None if place == IGNORED else found.classes[place] for place in known]
    assert names["nyu40"] == [None, "wall", "chair", "person", "otherfurniture"]
    assert names["nyu13"] == [None, "wall", "chair", "objects", "furniture"]


def test_one_that_lies_beside_the_data_is_found(tmp_path: Path) -> None:
    assert find_legend(None, str(tmp_path)) is None
    written(tmp_path, "64 128 64\tAnimal\n192 0 128\tArchway\n0 0 0\tVoid\n", "label_colors.txt")
    found = find_legend(None, str(tmp_path))
    assert found is not None
    assert found.classes == ("Animal", "Archway")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected lines"),
        ("1 a\n1 2 3 b\n", "in all of them"),
        ("1 a\nnothing\n", "line 2"),
        ("1 a\n1 b\n", "1 stands for two classes"),
        ("1 a\n", "expected 2 to 255 classes"),
    ],
)
def test_a_file_that_is_no_legend_is_refused_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UserError, match=told) as error:
        read_legend(written(tmp_path, text))
    assert error.value.setting == "legend"
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_text_and_a_name_that_there_is_not_are_refused(tmp_path: Path) -> None:
    (tmp_path / "l").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read"):
        read_legend(tmp_path / "l")
    with pytest.raises(UserError, match="did you mean 'nyu13'"):
        find_legend("nyu-13", ".")
