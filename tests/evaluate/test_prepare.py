from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

from manyview.data import TorchDataset
from manyview.data.factory import divided
from manyview.evaluate import prepare
from manyview.training import run_data
from tests import tiny
from tests.data.fakes import Memory
from tests.evaluate import runs
from tests.evaluate.pictures import encoder, scenes

VIEWS = (("L", 1), ("ab", 2))  # and their channels


def test_a_runs_own_data_is_divided_as_in_training(tmp_path: Path) -> None:
    runs.made(tmp_path / "run")
    made = prepare(tmp_path / "run")
    found = run_data.open_data(made.model.run.config)  # type: ignore[union-attr]
    assert found.test is not None
    assert torch.equal(made.train.ids, found.train.ids)
    assert torch.equal(made.test.ids, found.test.ids)
    assert made.held_out
    assert prepare(tmp_path / "run", {"name": "scenes", "count": 30, "size": 16}).data == "scenes"


def test_data_may_be_named_given_in_two_or_held_out_of_one() -> None:
    named = prepare(encoder(), {"name": "scenes", "count": 30, "size": 16})
    assert (len(named.train), len(named.test), named.held_out) == (30, 30, False)
    two = prepare(encoder(), (scenes(120, "train"), scenes(60, "test")))
    assert (len(two.train), len(two.test), two.held_out) == (120, 60, False)
    one = prepare(encoder(), scenes(120, "train"))
    assert torch.equal(one.test.ids, divided(scenes(120, "train")).test.ids)  # type: ignore[union-attr]
    assert (len(one.train), len(one.test), one.held_out) == (108, 12, True)


def test_two_data_sets_of_ones_own_are_not_the_same_images_for_being_numbered_alike() -> None:
    train, test = (
        TensorDataset(torch.randint(256, (count, 3, 8, 8), dtype=torch.uint8), torch.arange(count) % 2)
        for count in (20, 10)
    )
    for data in ((train, test), (TorchDataset(train), TorchDataset(test))):
        made = prepare(encoder(), data)  # type: ignore[arg-type]
        made.check()
        assert (len(made.train), len(made.test)) == (20, 10)
    known = TorchDataset(train, ids=torch.arange(20)), TorchDataset(test, ids=torch.arange(10))
    with pytest.raises(ValueError, match="10 of the 10 test images"):
        prepare(encoder(), known).check()


def test_why_a_test_split_is_not_used_is_known(tmp_path: Path) -> None:
    tiny.pictures(tmp_path / "train", 20, classes=2)
    tiny.pictures(tmp_path / "test", 4)
    made = prepare(encoder(), tmp_path)
    assert (made.held_out, made.why) == (True, "it has no labels, or one only")


def test_images_without_a_label_are_left_out() -> None:
    data = scenes(60, "train")
    assert data.labels is not None
    some = TorchDataset(data._dataset, ids=data.ids, labels=data.labels.where(torch.arange(60) % 3 > 0, -1))
    made = prepare(encoder(), (some, scenes(60, "test")))
    assert len(made.train) == 40
    assert made.train.labels is not None
    assert int(made.train.labels.min()) >= 0


@pytest.mark.parametrize(
    ("what", "data", "message"),
    [
        ("patchnet", None, "data: is needed; give --data"),
        ("runs/demoo", None, "encoder: there is no run, file or encoder named 'runs/demoo'"),
        (
            "rgb=patchnet,depth=patchnit",
            None,
            "encoder: there is no run, file or encoder named 'patchnit'; nearest: patchnet",
        ),
        ("patchnet", Memory(8, 2), "data: (own) has too few labelled images to hold out a tenth"),
        ("patchnet", Memory(30, 2, labelled=False), "data: (own) has no labels to evaluate with"),
        ("thermal=patchnet", scenes(60, "train"), "data: there is no view 'thermal' in it; it has only the view image"),
        ({"thermal": encoder()}, scenes(60, "train"), "data: (own) has no view 'thermal'; it has image"),
    ],
)
def test_what_cannot_be_prepared_is_refused_in_one_line(what: object, data: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        prepare(what, data)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


def test_after_an_imbalanced_run_classifiers_learn_from_all_training_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenes = {"data": "scenes", "data__count": 600, "data__size": 16}
    assert tiny.pretrain(tmp_path, **scenes, data__imbalance="exponential", epochs=1, knn_bank=5000) == 0
    whole = divided("scenes", count=600, size=16)
    found = prepare(tmp_path)
    assert torch.equal(found.train.ids, whole.train.ids)
    assert found.test.ids.tolist() == whole.test.ids.tolist()  # type: ignore[union-attr]
    assert found.imbalance == "exponential"
    rare = divided("scenes", count=600, size=16, imbalance="exponential").train
    assert f"pre-training sees {len(rare)} of 600 training images" in capsys.readouterr().out
    assert prepare(tmp_path, {"name": "scenes", "count": 600, "size": 16, "imbalance": "linear"}).imbalance is None
