import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from manyview import encoders
from manyview.core.errors import UserError
from manyview.embeddings.open_model import open_model
from manyview.transfer.detect import LOADING, PREDICTIONS, detect, instances, keypoints, optimizer_of, rate
from manyview.transfer.detection_batches import DetectionBatches
from manyview.transfer.detection_recipes import RECIPES
from manyview.transfer.fit import MODEL, Training, fit
from manyview.transfer.prepared import DataSource, Start
from manyview.transfer.records import PICTURES
from manyview.transfer.transfer import transfer
from tests.transfer.made_objects import coco, write_coco
from tests.transfer.test_rcnn import QUICK, tiny
from tests.transfer.test_voc import write_voc

SETTINGS: dict[str, Any] = {"steps": 3, "side": 32, "batch_size": 2}
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _few_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Detectors of tests look at few boxes, which is quicker."""
    monkeypatch.setitem(RECIPES, "small", QUICK)


def made(folder: Path, **settings: Any) -> Training:
    data = DataSource(str(write_coco(folder, coco(5), coco(1))), {})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = tiny()
    return detect(data, **{**SETTINGS, **settings}).training(Start(open_model(encoder), 0, CPU))


def test_a_killed_training_ends_with_the_same_weights_to_the_bit(tmp_path: Path) -> None:
    whole = made(tmp_path / "data")
    fit(whole, tmp_path / "whole")
    cut = made(tmp_path / "data")
    losses, calls = cut.losses, []

    def killed(batch: Any) -> Any:
        calls.append(batch)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return losses(batch)

    object.__setattr__(cut, "losses", killed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("manyview.transfer.fit.SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            fit(cut, tmp_path / "cut")
    again = made(tmp_path / "data")
    fit(again, tmp_path / "cut")
    for name, each in whole.model.state_dict().items():
        assert torch.equal(each, again.model.state_dict()[name]), name


def test_transfer_scores_boxes_and_leaves_predictions_pictures_and_code(tmp_path: Path) -> None:
    data = write_coco(tmp_path / "data", coco(4), coco(2))
    encoder = encoders.create("torchvision/resnet18", size=32)
    told: list[str] = []
    result = transfer(
        encoder, "detect", data, settings=SETTINGS, out=tmp_path / "out", untrained=False, supervised=False,
        say=told.append,
    )  # fmt: skip
    assert list(result.scores) == ["box AP", "box AP50", "box AP75"]
    (home,) = (each for each in (tmp_path / "out").iterdir() if each.is_dir())
    assert isinstance(json.loads((home / PREDICTIONS).read_text()), list)
    assert (home / PICTURES).is_file()
    assert MODEL in (home / LOADING).read_text()
    assert "backbone.body.conv1.weight" in load_file(home / MODEL)


def test_voc_is_also_scored_by_its_own_rule(tmp_path: Path) -> None:
    data = write_voc(tmp_path, {"train": ["a", "b"], "val": ["c"]})
    scores = detect(DataSource(str(data), {}), **SETTINGS).training(Start(open_model(tiny()), 0, CPU)).score()
    own = ["box VOC AP50, 11 points", "box VOC AP50, area"]
    assert list(scores) == ["box AP", "box AP50", "box AP75", *own]


@pytest.mark.parametrize(("task", "first"), [(instances, "mask AP"), (keypoints, "keypoint AP")])
def test_masks_and_keypoints_are_scored_before_boxes(tmp_path: Path, task: Any, first: str) -> None:
    data = DataSource(str(write_coco(tmp_path, coco(2), coco(1))), {})
    training = task(data, **SETTINGS).training(Start(open_model(tiny()), 0, CPU))
    training.model.roi_heads.detections_per_img = 2
    scores = training.score()
    assert [name.rpartition(" ")[0] for name in scores] == [first.split()[0]] * 3 + ["box"] * 3


def test_the_supervised_baseline_is_the_published_weights_and_told_of_where_there_are_none(tmp_path: Path) -> None:
    data = write_coco(tmp_path / "data", coco(2), coco(1))
    told: list[str] = []
    settings = {**SETTINGS, "steps": 1}
    result = transfer(tiny(), "detect", data, settings=settings, out=tmp_path / "out", untrained=False, say=told.append)
    assert result.supervised is None
    assert any("no supervised score: pretrained: there are no published weights of patchnet" in line for line in told)


def test_options_that_images_with_objects_do_not_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.labels: of images with objects"):
        detect(DataSource("scenes", {"labels": True}))


def test_options_of_the_run_that_images_with_objects_do_not_have_are_passed_over() -> None:
    options = {"labels": True, "split": "train", "count": 3, "size": 32}
    assert len(detect(DataSource("scenes", options, inherited=frozenset(options))).train) == 3


def test_as_many_threads_read_images_as_workers_are_asked_for(tmp_path: Path) -> None:
    task = detect(DataSource(str(write_coco(tmp_path, coco(2), coco(1))), {}), **SETTINGS)
    training = task.training(Start(open_model(tiny()), 0, CPU, workers=3))
    assert isinstance(training.batches, DetectionBatches)
    assert training.batches.threads == 3


def test_processes_count_by_their_images(tmp_path: Path) -> None:
    training = made(tmp_path)
    assert training.weight(next(iter(training.batches(0, 0)))) == 2


def test_an_encoder_that_does_not_see_pictures_is_refused(tmp_path: Path) -> None:
    data = DataSource(str(write_coco(tmp_path, coco(2), coco(1))), {})
    grey = encoders.create("patchnet", size=32, channels=1)
    with pytest.raises(UserError, match="does not see RGB pictures"):
        detect(data, **SETTINGS).training(Start(open_model(grey), 0, CPU))


def test_the_learning_rate_starts_small_and_falls_at_milestones() -> None:
    recipe = RECIPES["coco-fpn-1x"]
    assert rate(recipe, 0) == pytest.approx(0.001)
    assert rate(recipe, 500) == pytest.approx(0.5005)
    assert [rate(recipe, step) for step in (1000, 59_999, 60_000, 80_000)] == pytest.approx([1, 1, 0.1, 0.01])


def test_batch_norms_are_not_decayed(tmp_path: Path) -> None:
    model = made(tmp_path).model
    decayed, norms = optimizer_of(model, RECIPES["small"]).param_groups
    assert (decayed["weight_decay"], norms["weight_decay"]) == (1e-4, 0)
    assert len(decayed["params"]) + len(norms["params"]) == len(list(model.parameters()))
