"""What the first process measures, judges, logs and saves beside training."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from math import log
from pathlib import Path

import pytest
import torch

from manyview.config.config import Config
from manyview.data import Loader
from manyview.diagnose import validation
from manyview.training import build, monitor, pipelines, run_data
from manyview.training.checkpoint import Checkpoints
from manyview.training.run import Run
from tests.config.small import flags
from tests.tiny import noise, pictures, pretrain
from tests.training.kills import metrics
from tests.training.whole_runs import at_step, stop_with


def test_snapshots_stay(tmp_path: Path) -> None:
    assert pretrain(tmp_path, snapshots="1,3", epochs=4, batch_size=24, checkpoint_steps=1) == 0
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["epoch-0001.pt", "epoch-0003.pt", "step-000000007.pt", "step-000000008.pt"]
    state = torch.load(tmp_path / "checkpoints" / "epoch-0001.pt", weights_only=True)
    assert state["state"]["step"] == 2


def test_images_that_cannot_be_read_are_remembered_over_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = pictures(tmp_path / "data", 48, sides=(32, 40))  # of different sizes: read as they are needed
    (folder / "3.png").write_text("no picture")
    settings = {"data": folder, "workers": 0, "health_every": 1, "evaluators": "[]"}
    assert pretrain(tmp_path / "whole", **settings) == 0
    with monkeypatch.context() as patch:
        at_step(patch, 10, stop_with(signal.SIGTERM))
        assert pretrain(tmp_path / "run", **settings) == 143
    assert pretrain(tmp_path / "run", **settings) == 0
    states = [
        torch.load(tmp_path / name / "checkpoints" / "step-000000012.pt", weights_only=True)
        for name in ("whole", "run")
    ]
    assert states[0]["unreadable"]
    assert states[0]["unreadable"] == states[1]["unreadable"]
    assert states[0]["state"]["health"] == states[1]["state"]["health"]


def test_loggers_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert pretrain(tmp_path / "run", loggers="csv,tensorboard", health_every=4) == 0
    told = {line["step"]: line["loss"] for line in metrics(tmp_path / "run") if "loss" in line}
    assert list(told) == [1, 4, 8, 12]
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert {each.step: each.value for each in events.Scalars("loss")} == pytest.approx(told, rel=1e-6)
    rows = [line.split(",") for line in (tmp_path / "run" / "metrics.csv").read_text().splitlines()]
    assert {int(step): float(value) for step, name, value in rows[1:] if name == "loss"} == told
    assert pretrain(tmp_path / "other", loggers="wandb") == 2
    assert "wandb is not installed; pip install wandb, or leave it out" in capsys.readouterr().err


def health(out: Path) -> list[str]:
    return [line["health"] for line in metrics(out) if "health" in line]


def test_a_healthy_run_is_called_healthy(tmp_path: Path) -> None:
    assert (
        pretrain(
            tmp_path,
            data="scenes",
            data__count=64,
            method="simclr",
            epochs=20,
            health_every=5,
            batch_size=32,
            evaluate_every=0,
        )
        == 0
    )
    assert health(tmp_path)[-1] == "healthy"
    assert " healthy: not collapsed (similarity " in (tmp_path / "train.log").read_text()


def test_a_run_of_alignment_alone_is_called_collapsing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = {"loss": "align_uniform", "loss__uniform_weight": 0, "head": "mlp"}
    assert pretrain(tmp_path, epochs=5, health_every=3, lr=0.2, evaluate_every=0, **alone) == 0
    assert health(tmp_path)[-1] == "collapsing"
    assert ": collapsing since step " in capsys.readouterr().err
    assert "warning: step " in (tmp_path / "train.log").read_text()


def test_pictures_of_one_colour_are_called_broken_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pretrain(tmp_path / "run", data=pictures(tmp_path / "data", 32, flat=True), health_every=1) == 0
    assert "broken data" in health(tmp_path / "run")
    assert "of the pictures have one single colour" in capsys.readouterr().err


def test_info_nce_on_an_easy_batch_of_four_is_called_saturated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = {
        "augmentation__name": "custom",
        "augmentation__scale": "1,1",
        "augmentation__jitter_p": 0,
        "augmentation__grey": 0,
        "augmentation__flip": 0,
    }
    easy = {"method": "simclr", "loss__temperature": 0.1, **same}  # both views are the same
    assert pretrain(tmp_path, batch_size=4, health_every=3, evaluate_every=0, **easy) == 0
    assert health(tmp_path)[-1] == "saturated"
    assert "with dcl, more negatives" in capsys.readouterr().err


def test_metrics_are_lines_of_json_with_what_was_measured(whole: Path) -> None:
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["step"] == 0
    assert "knn" in lines[0]
    last = next(line for line in reversed(lines) if "loss" in line)
    assert {"alignment", "uniformity", "rank", "gap", "entropy", "entropy_limit", "coupling", "gradient_norm"} <= set(
        last
    )


def test_an_encoder_a_view_is_scored_by_view_and_side_by_side_and_terms_are_logged_by_name(two_views: Run) -> None:
    scored = [line for line in two_views.metrics if "knn" in line]
    assert [line["step"] for line in scored] == [0, 4]
    assert all(0 <= line[name] <= 1 for line in scored for name in ("knn", "knn/image", "knn/depth"))
    said = (two_views.folder / "train.log").read_text()
    assert all(f"{name} of the untrained encoder " in said for name in ("kNN", "kNN/image", "kNN/depth"))
    reported = [line for line in two_views.metrics if "loss" in line]
    assert [line["step"] for line in reported] == [1, 2, 4]
    for line in reported:
        assert line["loss"] == pytest.approx(line["loss/image to depth"] + line["loss/depth to image"])


def test_a_checkpoint_says_which_encoders_the_run_has(two_views: Run) -> None:
    found = Checkpoints(two_views.folder / "checkpoints").latest()
    assert found is not None
    assert found[0]["format"] == 4
    assert found[0]["channels"] == {"image": 3, "depth": 1}
    assert found[0]["encoders"] == ["encoder-image.safetensors", "encoder-depth.safetensors"]


SCENES = "--data scenes --data.count 300 --augmentation.size 16 --augmentation custom --batch-size 32 --workers 0"


def asked(config: Config) -> tuple[dict[str, float], list[dict[str, float]]]:
    """What the monitor says of the held-out images, and what each of their batches says by itself."""
    data = run_data.open_data(config)
    assert data.test is not None
    method = build.method(config, data.channels, len(data.train))
    pipeline = pipelines.training(config, data.views, method)
    loader = Loader(data.train, pipeline, config.batch_size, workers=0)
    size = min(config.batch_size, 256)
    batches = Loader(data.test, pipeline, size, seed=config.seed, workers=0).epoch(0)
    found = monitor.validation_of(data, config, method, loader)(progress=1.0)
    return found, [validation(method, batch.views(), batch) for batch in batches]


@pytest.mark.parametrize("method", ["cacr", "moco_v2"])
def test_the_loss_is_asked_about_every_batch_of_held_out_images(method: str) -> None:
    config = flags(f"--method {method} {SCENES}")
    found, batches = asked(config)
    assert len(batches) > 2
    assert found.keys() == batches[0].keys()
    for name, value in found.items():
        assert value == pytest.approx(sum(each[name] for each in batches) / len(batches)), name
    assert found["validation_batch_entropy"] != batches[0]["validation_batch_entropy"]


def test_of_fewer_images_on_request() -> None:
    config = flags(
        "--data scenes --data.count 300 --augmentation.size 16 --augmentation custom --batch-size 32 --workers 0"
    )
    assert asked(replace(config, validation_images=32))[0] != asked(config)[0]
    assert asked(replace(config, validation_images=10))[0]["validation_batch_entropy_limit"] == pytest.approx(log(9))


def test_nothing_is_said_where_a_bank_knows_the_training_images_alone() -> None:
    config = flags(f"--method npid {SCENES}")
    assert asked(config)[0] == {}


def test_a_linear_probe_comes_every_so_many_epochs_and_stays_in_the_line_of_progress(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, object] = {"data": noise(), "epochs": 5, "batch_size": 24, "probe_every": 2, "quiet": False}
    assert pretrain(tmp_path / "run", **settings) == 0
    lines = [line for line in metrics(tmp_path / "run") if "knn" in line]
    assert [line["epoch"] for line in lines] == [0, 1, 2, 3, 4, 5]
    assert [line["epoch"] for line in lines if "linear" in line] == [0, 2, 4, 5]
    said = capsys.readouterr().out
    assert "linear of the untrained encoder " in said
    assert f"linear {lines[-1]['linear']:.1%}, untrained {lines[0]['linear']:.1%}: " in said
    (third,) = (line for line in said.splitlines() if "epoch 3 " in line)
    assert f"linear {lines[2]['linear']:.1%}" in third
