from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from manyview.core.errors import UserError
from manyview.data.dataset import label_sets
from manyview.data.elevater import FOLDERS
from manyview.evaluate.metrics import METRICS
from manyview.evaluate.suite import ELEVATER, evaluate_suite, open_set
from tests.data import fakes
from tests.data.awful import picture
from tests.data.test_elevater import kitti as elevaters_kitti
from tests.evaluate.pictures import encoder

QUICK: dict[str, Any] = {"shots": 2, "seeds": 1, "epochs": 2, "lrs": (0.01,)}


def eurosat(root: Path) -> None:
    for kind in ("Forest", "River"):
        for number in range(30):
            home = root / "eurosat/2750" / kind
            home.mkdir(parents=True, exist_ok=True)
            picture(seed=number).save(home / f"{kind}_{number}.png")


def test_it_has_the_twenty_sets_of_table_6_each_with_its_metric() -> None:
    assert [each.name for each in ELEVATER] == list(FOLDERS)
    assert all(each.metric in METRICS for each in ELEVATER)
    by_metric = {metric: [each.name for each in ELEVATER if each.metric == metric] for metric in METRICS}
    assert by_metric["mean-per-class"] == ["caltech101", "fgvc-aircraft", "flowers102", "pets"]
    assert by_metric["roc-auc"] == ["hateful-memes"]
    assert by_metric["11-point-map"] == ["voc2007"]


def test_sets_that_are_not_there_are_named_and_left_out(tmp_path: Path) -> None:
    eurosat(tmp_path)
    said: list[str] = []
    told: list[tuple[str, str]] = []
    found = evaluate_suite(
        {"one": encoder(), "two": encoder(1)}, root=tmp_path, settings=QUICK, say=said.append,
        done=lambda model, name, scores: told.append((model, name)),
    )  # fmt: skip
    assert [each.name for each in found.scored] == ["eurosat"]
    assert len(found.missing) == len(said) == 19
    assert all(name in " ".join(said) for name in found.missing)
    assert told == [("one", "eurosat"), ("two", "eurosat")]
    assert set(found.by_model["one"]["eurosat"]) == {
        "2-shot finetune", "2-shot finetune std", "2-shot linear", "2-shot linear std",
    }  # fmt: skip


def test_an_error_in_one_set_leaves_that_one_out_and_scores_the_others(tmp_path: Path) -> None:
    eurosat(tmp_path)
    fakes.hateful_memes(tmp_path)  # one image a class
    said: list[str] = []
    found = evaluate_suite({"one": encoder(), "two": encoder(1)}, root=tmp_path, settings=QUICK, say=said.append)
    assert [each.name for each in found.scored] == ["eurosat"]
    assert list(found.failed) == ["hateful-memes"]
    assert "the images of the smallest class, got 2" in found.failed["hateful-memes"]
    assert f"left out, hateful-memes: {found.failed['hateful-memes']}" in said


def test_a_bug_is_no_fault_of_a_set_and_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eurosat(tmp_path)
    monkeypatch.setattr("manyview.evaluate.shot_transfer.learn", None)
    with pytest.raises(TypeError):
        evaluate_suite({"one": encoder()}, root=tmp_path, settings=QUICK)


def test_what_is_in_the_results_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eurosat(tmp_path)
    models, outs = {"one": encoder()}, {"one": tmp_path / "out"}
    first = evaluate_suite(models, root=tmp_path, settings=QUICK, outs=outs)
    monkeypatch.setattr("manyview.evaluate.shot_transfer.learn", None)
    assert evaluate_suite(models, root=tmp_path, settings=QUICK, outs=outs).by_model == first.by_model


def test_elevaters_own_copy_is_preferred(tmp_path: Path) -> None:
    fakes.kitti(tmp_path)
    with pytest.raises(UserError, match="too few"):
        open_set("kitti-distance", tmp_path)
    elevaters_kitti(tmp_path)
    train, test = open_set("kitti-distance", tmp_path)
    assert train.classes == test.classes == ("near", "far")


def test_published_splits_are_used_where_there_are_some(tmp_path: Path) -> None:
    fakes.voc2007(tmp_path)
    fakes.hateful_memes(tmp_path)
    train, test = open_set("voc2007", tmp_path)
    assert label_sets(train) is not None
    assert not set(train.ids.tolist()) & set(test.ids.tolist())
    assert [len(each) for each in open_set("hateful-memes", tmp_path)] == [2, 2]


def test_a_suite_that_there_is_not_is_refused() -> None:
    with pytest.raises(UserError, match=r"^suite: expected one of elevater, got 'x'$"):
        evaluate_suite({}, "x")
