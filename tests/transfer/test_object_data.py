from pathlib import Path

import pytest

from manyview.core.errors import UserError
from manyview.transfer.object_data import open_objects
from tests.transfer.made_objects import coco, write_coco
from tests.transfer.test_voc import write_voc


def test_coco_voc_and_scenes_are_told_apart(tmp_path: Path) -> None:
    assert open_objects(write_coco(tmp_path / "coco", coco(2), coco(1)), "boxes")[0].classes == ("cat", "dog")
    voc = write_voc(tmp_path / "voc", {"train": ["a"], "val": ["b"]})
    assert len(open_objects(voc, "boxes")[1]) == 1
    assert len(open_objects("scenes", "boxes", count=2, size=32)[0]) == 2


def test_what_is_neither_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no"):
        open_objects(tmp_path / "none", "boxes")
    with pytest.raises(UserError, match="has neither"):
        open_objects(tmp_path, "boxes")
    with pytest.raises(UserError, match="option of scenes alone"):
        open_objects(tmp_path, "boxes", size=32)
