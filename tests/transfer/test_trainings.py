"""Trainings of a transfer: nothing twice, what was done before a kill stays, ONNX of what was trained before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from manyview.evaluate.results import read
from manyview.transfer import fit as loop
from manyview.transfer import records
from manyview.transfer import trainings as module
from manyview.transfer.transfer import transfer
from tests import tiny
from tests.transfer.pictures import folder, pair
from tests.transfer.test_transfer import FEW, small


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
    assert [each.about.loss[:8] for each in records.trainings(tmp_path / "out", first.key)] == ["the loss"] * 2
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


def test_a_model_that_was_trained_before_is_written_as_onnx_without_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxscript")
    root, model = folder(tmp_path / "data"), small()
    given: dict[str, Any] = {"settings": FEW, "out": tmp_path / "out", "workers": 0}
    first = transfer(model, "segment", root, untrained=False, supervised=False, **given)
    monkeypatch.setattr(module, "fit", lambda *given, **more: pytest.fail("trained again"))
    again = transfer(model, "segment", root, untrained=False, supervised=False, onnx=True, **given)
    assert again == first  # with the seconds that it took to train
    assert len(list((tmp_path / "out").rglob("model.onnx"))) == 1
