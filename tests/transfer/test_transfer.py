"""`transfer`: scores beside baselines, nothing twice, each view by itself, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from manyview.cli.transfer import transfer as command
from manyview.config.keys import keys_of
from manyview.core.errors import UserError
from manyview.encoders import create
from manyview.evaluate.results import Result, read
from manyview.transfer.transfer import TASKS, schema, transfer
from tests.transfer.pictures import folder

FEW: dict[str, Any] = {"epochs": 1, "width": 8, "batch_size": 4}


def small() -> Any:
    return create("patchnet", size=32, widths=(8, 16), blocks=(1, 1))


def run(root: Path, out: Path, **more: Any) -> Result:
    return transfer(small(), "segment", root, **{"settings": FEW, "out": out, "workers": 0, "device": "cpu", **more})


def test_the_scores_stand_beside_those_of_the_untrained_and_of_the_supervised_network(tmp_path: Path) -> None:
    found = run(folder(tmp_path / "data"), tmp_path / "out")
    for scores in (found.scores, found.untrained, found.supervised):
        assert scores is not None
        assert set(scores) >= {"miou", "pixel accuracy"}
    assert read(tmp_path / "out") == [found]
    assert found.data["classes"] == ["0", "1", "2"]
    kinds = {path.name.split("-")[1] for path in (tmp_path / "out").glob("segment-*")}
    assert kinds == {"trained", "untrained", "supervised"}
    assert not list(tmp_path.rglob("step-*.pt"))  # of no use any more
    assert len(list(tmp_path.rglob("model.safetensors"))) == 3


def test_settings_of_a_task_have_no_name_that_the_command_has() -> None:
    flags = {name.partition(".")[2] for name in keys_of("", command)}
    for task in TASKS:
        assert not flags & set(schema(task)), task


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    root = folder(tmp_path / "data")
    with pytest.raises(UserError, match="task: there is none named 'segmnt'; did you mean 'segment'"):
        transfer(small(), "segmnt", root, out=tmp_path)
    with pytest.raises(UserError, match="epoch: segment has no such setting; did you mean 'epochs'"):
        transfer(small(), "segment", root, settings={"epoch": 3}, out=tmp_path)
    with pytest.raises(UserError, match="epochs: expected at least 1"):
        transfer(small(), "segment", root, settings={"epochs": 0}, out=tmp_path)
    with pytest.raises(UserError, match="data: is needed"):
        transfer(small(), "segment", out=tmp_path)
    with pytest.raises(UserError, match="out: is needed"):
        transfer(small(), "segment", root)


def test_many_unreadable_pictures_are_told_without_a_setting_that_no_task_has(tmp_path: Path) -> None:
    root = folder(tmp_path / "data")
    for number in (1, 2):
        (root / "train" / "images" / f"{number}.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"^data: 2 of 8 samples cannot be read, more than 5% of them") as raised:
        run(root, tmp_path / "out")
    assert "max_unreadable" not in str(raised.value)


def test_pictures_that_cannot_be_read_are_counted_and_told_once(tmp_path: Path) -> None:
    root, said = folder(tmp_path / "data", 24), list[str]()
    Image.new("L", (9, 9)).save(root / "train" / "masks" / "3.png")
    (root / "test" / "images" / "101.png").write_bytes(b"cut")
    run(root, tmp_path / "out", supervised=False, say=said.append)
    (training,) = [
        line for line in said if line.startswith("training pictures that cannot be read and are left out: 1;")
    ]
    assert "train/3 (its mask has 9 x 9 pixels, its images 32 x 32)" in training
    assert (
        len([line for line in said if line.startswith("test pictures that cannot be read and are left out: 1;")]) == 1
    )
