"""`transfer`: scores beside baselines, nothing twice, each view by itself, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from manyview.cli.transfer import transfer as command
from manyview.config.keys import keys_of
from manyview.core.errors import UserError
from manyview.encoders import create
from manyview.evaluate.results import Result, read
from manyview.transfer import fit as loop
from manyview.transfer import transfer as module
from manyview.transfer.transfer import TASKS, schema, transfer
from tests import tiny
from tests.transfer.pictures import folder, pair

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


def test_nothing_is_trained_twice_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, model, count = folder(tmp_path / "data"), small(), []

    def counted(*given: Any, **more: Any) -> None:
        count.append(1)
        loop.fit(*given, **more)

    monkeypatch.setattr(module, "fit", counted)
    given: dict[str, Any] = {"settings": FEW, "out": tmp_path / "out", "workers": 0}
    first = transfer(model, "segment", root, supervised=False, untrained=False, **given)
    again = transfer(model, "segment", root, supervised=False, **given)
    assert (len(count), again.scores) == (2, first.scores)  # the untrained network alone
    transfer(model, "segment", root, supervised=False, untrained=False, recompute=True, **given)
    assert len(count) == 3
    transfer(model, "segment", root, supervised=False, untrained=False, seed=1, **given)
    assert len(count) == 4


def test_a_part_that_was_done_before_a_kill_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tiny.sensors(tmp_path / "data", 8)
    for split in ("train", "test"):
        pair(tmp_path / "unused", data / split / "labels", 8)
    source = tiny.many_views(tmp_path / "run", data, views="rgb,thermal", epochs=1)
    trained: list[str] = []

    def counted(*given: Any, **more: Any) -> None:
        if len(trained) == 1 and "again" not in trained:
            raise KeyboardInterrupt
        trained.append(more["text"])
        loop.fit(*given, **more)

    monkeypatch.setattr(module, "fit", counted)
    given: dict[str, Any] = {"settings": FEW, "workers": 0, "untrained": False, "supervised": False}
    with pytest.raises(KeyboardInterrupt):
        transfer(str(source), "segment", **given)
    trained.append("again")
    found = transfer(str(source), "segment", **given)
    assert trained == ["rgb trained", "again", "thermal trained", "all trained"]
    assert {"rgb miou", "thermal miou", "all miou"} <= set(found.scores)
    assert read(source / "transfer") == [found]


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
