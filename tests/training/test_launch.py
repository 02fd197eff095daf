from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

import manyview
from manyview.core.errors import UserError
from manyview.data import TorchDataset
from manyview.training import launch
from manyview.training.launch import configured, resumed
from tests.patience import PATIENCE, wait_until
from tests.tiny import noise, pictures, pretrain

TINY: dict[str, Any] = {
    "report": False,
    "encoder": {"options": {"widths": [8, 16], "blocks": [1, 1]}}, "epochs": 1, "batch_size": 8, "quiet": True,
    "device": "cpu", "knn_bank": 32, "knn_queries": 32,
}  # fmt: skip


def images(count: int, channels: int = 3) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, channels, 28, 28), generator=draw, dtype=torch.uint8)


class Photos(Dataset[tuple[Image.Image, int]]):
    """As people write them: Pillow images and `targets`."""

    targets = [number % 2 for number in range(40)]  # noqa: RUF012

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.fromarray(images(40)[index].permute(1, 2, 0).numpy()), self.targets[index]


def test_a_folder_from_python_gives_a_run(tmp_path: Path) -> None:
    run = manyview.pretrain(data=noise(), method="jcl", memory={"size": 16}, out=str(tmp_path), **TINY)
    assert isinstance(run, manyview.Run)
    assert run.folder == tmp_path
    assert run.config.method["name"] == "jcl"
    assert [step for step, _ in run.knn] == [0, 6]
    assert run.metrics[-1]["step"] == 6


def test_out_may_be_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(launch, "start", lambda config, own: asked.append(config.out))
    manyview.pretrain("photos", out=tmp_path / "run")
    assert asked == [str(tmp_path / "run")]


def test_the_same_call_goes_on_with_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = manyview.pretrain(noise(), **TINY)
    assert first.folder.parent == Path("runs")
    assert manyview.pretrain(noise(), **TINY).folder == first.folder
    assert manyview.pretrain(noise(), seed=1, **TINY).folder != first.folder


def test_data_sets_of_ones_own_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one, other = TensorDataset(images(16)), TensorDataset(255 - images(16))  # as many, with the same ids
    first = manyview.pretrain(one, **TINY)
    assert manyview.pretrain(other, **TINY).folder != first.folder
    assert manyview.pretrain(TensorDataset(images(16)), **TINY).folder == first.folder
    with pytest.raises(ValueError, match="has changed: 16 images then, 16 others now"):
        manyview.pretrain(other, out=str(first.folder), **TINY)


def test_a_folder_is_the_same_however_it_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pictures(tmp_path / "small", 16).parent)
    run = manyview.pretrain("small", **TINY)
    assert run.config.data["name"] == str(tmp_path / "small")
    before = (run.folder / "train.log").read_bytes()
    assert manyview.pretrain("./small", **TINY) == run
    assert (run.folder / "train.log").read_bytes() == before
    pictures(tmp_path / "elsewhere" / "small", 16)
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert manyview.pretrain("small", **TINY).folder.name != run.folder.name


def test_a_run_goes_on_from_another_folder_and_with_data_that_has_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(pictures(tmp_path / "small", 16).parent)
    run = manyview.pretrain({"name": "small", "labels": False}, out="run", **TINY)
    (tmp_path / "run" / "encoder.safetensors").unlink()
    (tmp_path / "away").mkdir()
    monkeypatch.chdir(tmp_path / "away")
    manyview.pretrain(resume="../run")
    (tmp_path / "run" / "encoder.safetensors").unlink()
    (tmp_path / "small").rename(tmp_path / "moved")
    with pytest.raises(UserError, match="there is no folder"):
        manyview.pretrain(resume="../run")
    again = manyview.pretrain("../moved", resume="../run")
    assert again.config.data["name"] == str(tmp_path / "moved")
    assert again.config.data["labels"] is False
    assert (tmp_path / run.folder / "encoder.safetensors").exists()


def test_a_data_set_of_torchs_has_its_labels_used(tmp_path: Path) -> None:
    run = manyview.pretrain(data=Photos(), out=str(tmp_path), **TINY)
    assert run.config.data["name"] == "(own)"
    assert len(run.knn) == 2
    assert "40 images" not in (tmp_path / "train.log").read_text()  # some were held out
    assert "36 images of your own data, scored on 4 held-out images" in (tmp_path / "train.log").read_text()


def test_a_data_set_of_manyviews_own_is_taken_as_it_is(tmp_path: Path) -> None:
    run = manyview.pretrain(data=TorchDataset(TensorDataset(images(16))), out=str(tmp_path), **TINY)
    assert run.knn == []
    assert manyview.load(run)(torch.zeros(1, 3, 32, 32)).shape == (1, 16)


def test_grey_pictures_of_one_channel_train_an_encoder_of_one_channel(tmp_path: Path) -> None:
    data = TensorDataset(images(40, channels=1), torch.arange(40) % 2)
    run = manyview.pretrain(data=data, out=str(tmp_path), **TINY)
    assert len(run.knn) == 2
    encoder = manyview.load(run)
    assert encoder.options["channels"] == 1
    assert encoder.preprocess is not None
    assert encoder(encoder.preprocess(images(1, 1)[0])).shape == (1, 16)


def test_of_paired_views_the_pictures_are_learnt_from(tmp_path: Path) -> None:
    pictures(tmp_path / "data" / "rgb", 24)
    pictures(tmp_path / "data" / "depth", 24, mode="L")
    run = manyview.pretrain(data=tmp_path / "data", out=str(tmp_path / "run"), **TINY)
    assert manyview.load(run).options["channels"] == 3
    assert "22 images" in (run.folder / "train.log").read_text()


def test_a_run_on_ones_own_data_is_resumed_with_that_data(tmp_path: Path) -> None:
    settings = {**TINY, "max_steps": 2}
    run = manyview.pretrain(data=Photos(), out=str(tmp_path), **settings)
    (tmp_path / "encoder.safetensors").unlink()
    with pytest.raises(ValueError, match="a data set of your own; give it"):
        manyview.pretrain(resume=tmp_path)
    assert manyview.pretrain(data=Photos(), resume=tmp_path) == run
    assert (tmp_path / "encoder.safetensors").exists()


def test_resume_takes_the_same_settings_again_and_refuses_others(tmp_path: Path) -> None:
    assert pretrain(tmp_path, "--quiet", max_steps=1) == 0
    assert resumed(tmp_path, {"epochs": "2", "lr": "0.02", "workers": "3"}).workers == 3
    with pytest.raises(ValueError, match=r"optimizer\.lr: 0\.02 -> 0\.3: a run that was begun keeps its settings"):
        resumed(tmp_path, {"lr": "0.3"})
    with pytest.raises(ValueError, match=r"data\.split: train -> test"):
        resumed(tmp_path, {"data.split": "test"})


def test_resume_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"resume: .* is no run's folder, it has no config\.yaml"):
        manyview.pretrain(resume=tmp_path)


def test_no_data_is_said_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"data\.name: is needed; give --data"):
        manyview.pretrain()
    assert configured(None, {"data.name": "scenes"}).data["name"] == "scenes"


def test_a_signal_for_all_processes_of_a_job_loses_nothing(tmp_path: Path) -> None:
    """As `timeout`, a cluster or Ctrl-C send it: workers that decode get it too, and must not spoil the step."""
    folder = pictures(tmp_path / "data", 64, sides=(40, 48))  # of different sizes: decoded by workers
    words = ["--data", str(folder), "--out", str(tmp_path / "run"), "--batch-size", "8", "--epochs", "500"]
    job = subprocess.Popen(
        [sys.executable, "-m", "manyview", "pretrain", *words, "--workers", "2", "--quiet", "--checkpoint-steps", "1"],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    wait_until(lambda: any((tmp_path / "run").glob("checkpoints/step-*.pt")), job)
    os.killpg(job.pid, signal.SIGTERM)
    _, said = job.communicate(timeout=PATIENCE)
    assert said.startswith("warning: stopped after step ")
    assert said.count("\n") == 1
    assert job.returncode == 143
