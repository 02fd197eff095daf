from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import manyview
from manyview.core.errors import UserError
from manyview.data import Loader, open_data
from manyview.training import build
from manyview.training.run import Run, load
from manyview.views import View
from tests.tiny import noise, pretrain


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert pretrain(folder, "--quiet", max_steps=3) == 0
    return Run(folder)


def test_a_run_tells_its_settings_metrics_and_scores(run: Run) -> None:
    assert run.config.batch_size == 8
    assert [line["step"] for line in run.metrics] == [0, 1, 3, 3]
    assert [step for step, _ in run.knn] == [0, 3]
    assert all(0 <= score <= 1 for _, score in run.knn)


def test_a_folder_without_metrics_has_none(tmp_path: Path) -> None:
    assert Run(tmp_path).metrics == []
    assert Run(tmp_path).knn == []


def test_the_encoder_comes_in_eval_mode_from_a_run_or_its_path(run: Run) -> None:
    x = torch.randn(2, 3, 32, 32)
    encoders = [load(run), load(run.folder), load(str(run.folder))]
    assert not any(part.training for part in encoders[0].modules())
    assert len({encoder(x).detach().numpy().tobytes() for encoder in encoders}) == 1


def test_its_preprocessing_gives_what_the_training_time_knn_sees(run: Run) -> None:
    dataset = open_data(str(noise()))
    pipeline = build.test_pipeline(run.config, {"image": View("image")})
    loader = Loader(dataset, pipeline, 4, shuffle=False)
    batch = next(loader.epoch(0))
    preprocess = load(run).preprocess
    assert preprocess is not None
    made = torch.cat([preprocess(dataset[int(row)].modalities["image"]) for row in batch.index])
    assert torch.equal(made, batch.views()["image"][0])
    files = torch.cat([preprocess(noise() / dataset.name(int(row))) for row in batch.index])
    assert torch.equal(files, made)


def test_of_an_unfinished_run_it_is_the_last_checkpoints_encoder(run: Run, tmp_path: Path) -> None:
    x = torch.randn(2, 3, 32, 32)
    expected = load(run)(x)
    path = run.folder / "encoder.safetensors"
    path.rename(tmp_path / "aside")
    try:
        encoder = load(run)
        assert torch.equal(encoder(x), expected)
        assert encoder.preprocess is not None
        assert encoder.preprocess(next(noise().rglob("*.png"))).shape == (1, 3, 32, 32)
    finally:
        (tmp_path / "aside").rename(path)


def test_loading_leaves_the_callers_random_numbers_alone(run: Run, tmp_path: Path) -> None:
    path = run.folder / "encoder.safetensors"
    path.rename(tmp_path / "aside")
    torch.manual_seed(123)
    before = torch.get_rng_state()
    try:
        load(run)
    finally:
        (tmp_path / "aside").rename(path)
    assert torch.equal(torch.get_rng_state(), before)


def test_what_is_no_run_or_has_nothing_yet_is_one_line(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"run: .* is no run's folder, it has no config\.yaml"):
        manyview.load(tmp_path)
    (tmp_path / "config.yaml").write_bytes((run.folder / "config.yaml").read_bytes())
    with pytest.raises(ValueError, match="has no encoder and no checkpoint yet; train it first"):
        manyview.load(tmp_path)


def test_of_a_run_with_an_encoder_a_view_each_can_be_loaded(two_views: Run) -> None:
    channels = {view: load(two_views, view=view).options["channels"] for view in ("image", "depth")}
    assert channels == {"image": 3, "depth": 1}
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(load(two_views)(x), load(two_views, "image")(x))  # the first
    with pytest.raises(UserError, match=r"^view: expected one of image, depth, got 'flow'$"):
        load(two_views, view="flow")


def test_encoders_a_view_need_no_checkpoint_once_a_view_is_named(two_views: Run, tmp_path: Path) -> None:
    for file in (two_views.folder / "config.yaml", *two_views.folder.glob("encoder*.safetensors")):
        shutil.copy(file, tmp_path)
    x = torch.randn(2, 1, 32, 32)
    assert torch.equal(load(tmp_path, "depth")(x), load(two_views, "depth")(x))
    for view in (None, "flow"):
        with pytest.raises(
            UserError, match=rf"^view: .* has an encoder a view; give one of depth, image, got {view!r}$"
        ):
            load(tmp_path, view)


def test_an_encoder_that_all_views_share_is_that_of_any(run: Run, tmp_path: Path) -> None:
    for name in ("config.yaml", "encoder.safetensors"):
        shutil.copy(run.folder / name, tmp_path)
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(load(tmp_path, "image")(x), load(run)(x))


def test_the_encoder_of_a_derived_view_is_given_that_view_of_a_picture(tmp_path: Path) -> None:
    assert pretrain(tmp_path, "--quiet", method="simclr", views="L", max_steps=1) == 0
    config = Run(tmp_path).config
    data = build.data(config)
    batch = next(Loader(data.train, build.test_pipeline(config, data.views), 4, shuffle=False).epoch(0))
    preprocess = load(tmp_path).preprocess
    assert preprocess is not None
    made = torch.cat([preprocess(data.train[int(row)].modalities["image"]) for row in batch.index])
    assert made.shape == (4, 1, 32, 32)
    assert torch.equal(made, batch.views()["image"][0])
    assert "channels (0,) of lab" in repr(preprocess)
