"""What a run has learnt, loaded from its files or its last checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import manyview
from manyview import encoders
from manyview.core.errors import UserError
from manyview.data import Loader
from manyview.data.factory import open_data
from manyview.embeddings.open_model import open_model
from manyview.training import pipelines, run_data
from manyview.training.load import has_ended, load, load_projector, run_views
from manyview.training.run import Run
from manyview.views.view import View
from tests.tiny import many_views, noise, pictures, pretrain, sensors


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert pretrain(folder, "--quiet", max_steps=3) == 0
    return Run(folder)


def test_the_encoder_comes_in_eval_mode_from_a_run_or_its_path(run: Run) -> None:
    x = torch.randn(2, 3, 32, 32)
    encoders = [load(run), load(run.folder), load(str(run.folder))]
    assert not any(part.training for part in encoders[0].modules())
    assert len({encoder(x).detach().numpy().tobytes() for encoder in encoders}) == 1


def test_its_preprocessing_gives_what_the_training_time_knn_sees(run: Run) -> None:
    dataset = open_data(str(noise()))
    pipeline = pipelines.evaluation(run.config, {"image": View("image")})
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
    with pytest.raises(UserError, match=r"^view: .* give one of image, depth, got 'flow'$"):
        load(two_views, view="flow")


def test_encoders_a_view_need_no_checkpoint(two_views: Run, tmp_path: Path) -> None:
    for file in (two_views.folder / "config.yaml", *two_views.folder.glob("encoder*.safetensors")):
        shutil.copy(file, tmp_path)
    x = torch.randn(2, 1, 32, 32)
    assert torch.equal(load(tmp_path, "depth")(x), load(two_views, "depth")(x))
    assert load(tmp_path).options["channels"] == 3  # the first
    with pytest.raises(UserError, match=r"^view: .* has an encoder a view; give one of image, depth, got 'flow'$"):
        load(tmp_path, "flow")


def test_an_encoder_that_all_views_share_is_that_of_any(run: Run, tmp_path: Path) -> None:
    for name in ("config.yaml", "encoder.safetensors"):
        shutil.copy(run.folder / name, tmp_path)
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(load(tmp_path, "image")(x), load(run)(x))


def test_the_encoder_of_a_derived_view_is_given_that_view_of_a_picture(tmp_path: Path) -> None:
    assert pretrain(tmp_path, "--quiet", method="simclr", views="L", max_steps=1) == 0
    config = Run(tmp_path).config
    data = run_data.open_data(config)
    batch = next(Loader(data.train, pipelines.evaluation(config, data.views), 4, shuffle=False).epoch(0))
    preprocess = load(tmp_path).preprocess
    assert preprocess is not None
    made = torch.cat([preprocess(data.train[int(row)].modalities["image"]) for row in batch.index])
    assert made.shape == (4, 1, 32, 32)
    assert torch.equal(made, batch.views()["image"][0])
    assert "channels (0,) of lab" in repr(preprocess)
    moved = open_model(shutil.copy(tmp_path / "encoder.safetensors", tmp_path / "moved.safetensors"))
    assert list(moved.inputs.values()) == [preprocess.input]  # type: ignore[attr-defined]


def test_directions_of_8_bits_are_no_picture(tmp_path: Path) -> None:
    data = pictures(tmp_path / "data" / "normals", 16).parent
    shutil.copytree(data / "normals", data / "rgb")
    assert pretrain(tmp_path / "run", "--quiet", data=data, method="simclr", views="normals", max_steps=1) == 0
    preprocess = load(tmp_path / "run").preprocess
    assert preprocess is not None
    modality = preprocess.input.modality  # type: ignore[attr-defined]
    assert modality.vectors == "directions"
    measured = Run(tmp_path / "run").config.data["statistics"]["normals"]
    assert list(modality.mean) == measured["mean"]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an encoder a view, of 8-bit and 16-bit pictures."""
    home = tmp_path_factory.mktemp("many")
    return many_views(home / "run", sensors(home / "data"), max_steps=2)


def of_files(run: Path, to: Path) -> Path:
    """A copy of what is needed of a run once it has ended: its settings and its encoders."""
    to.mkdir()
    for file in (run / "config.yaml", *run.glob("encoder*.safetensors")):
        shutil.copy(file, to)
    return to


def test_files_alone_say_how_each_view_is_normalised(many: Path, tmp_path: Path) -> None:
    copied, config = of_files(many, tmp_path / "run"), Run(many).config
    data = run_data.open_data(config)
    batch = next(Loader(data.train, pipelines.evaluation(config, data.views), 4, shuffle=False).epoch(0))
    for view, (copy,) in batch.views().items():
        preprocess = load(copied, view).preprocess
        assert preprocess is not None
        files = [data.train.paths(int(row))[view] for row in batch.index]  # type: ignore[attr-defined]
        assert torch.equal(preprocess(files), copy), view


def test_files_alone_hold_the_heads_that_were_trained(many: Path, tmp_path: Path) -> None:
    copied, config = of_files(many, tmp_path / "run"), Run(many).config
    state = torch.load(max(many.glob("checkpoints/*.pt")), weights_only=True)["method"]
    for view in ("rgb", "thermal", "depth"):
        head = load_projector(copied, view)
        assert head is not None
        for name, value in head.state_dict().items():
            assert torch.equal(value, state[f"towers.query.{view}.head.{name}"])
    assert run_views(copied) == config.views == ("rgb", "thermal", "depth")
    assert encoders.load(copied / "encoder-depth.safetensors").options["channels"] == 1  # the head is no part of it


def test_heads_of_an_older_or_unfinished_run_come_from_its_checkpoint(many: Path, tmp_path: Path) -> None:
    shutil.copytree(many, tmp_path / "run")
    file = tmp_path / "run" / "encoder-rgb.safetensors"
    expected, mine = load_projector(many, "rgb"), load(many, "rgb")
    encoders.save(encoders.load(file), file)  # as it was written before heads were
    older = load_projector(tmp_path / "run", "rgb")
    file.unlink()
    unfinished = load_projector(tmp_path / "run", "rgb")
    assert expected is not None
    for head in (older, unfinished):
        assert head is not None
        assert torch.equal(head.weight, expected.weight)  # type: ignore[arg-type]
    assert not has_ended(tmp_path / "run")
    assert has_ended(many)
    assert repr(load(tmp_path / "run", "rgb").preprocess) == repr(mine.preprocess)


def test_a_damaged_account_of_the_input_is_one_line(many: Path, tmp_path: Path) -> None:
    copied = of_files(many, tmp_path / "run")
    file = copied / "encoder-depth.safetensors"
    encoders.save(encoders.load(file), file, metadata={"input": '{"channels": 0, "dtype": "uint8"}'})
    with pytest.raises(UserError, match=r"encoder-depth.safetensors: what it says of its encoder's input is damaged"):
        load(copied, "depth")


def test_a_run_of_one_view_of_pictures_keeps_its_file_as_it_was(run: Run) -> None:
    with safe_open(run.folder / "encoder.safetensors", "pt") as file:
        assert sorted(file.metadata()) == ["manyview_encoder", "name", "options", "picture"]
        assert not [key for key in file.keys() if "manyview" in key]  # noqa: SIM118


@pytest.mark.parametrize("method", ["prediction", "split_brain", "cmc_patch"])
def test_other_methods_of_several_views_can_be_used_as_well(method: str, tmp_path: Path) -> None:
    data, out = sensors(tmp_path / "data", 8), tmp_path / "run"
    assert pretrain(out, "--quiet", data=data, method=method, views="rgb,depth", max_steps=1) == 0
    for folder in (out, of_files(out, tmp_path / "copy")):
        views = run_views(folder)
        assert has_ended(folder)
        assert set(views) <= {"rgb", "depth"}
        for view in views:
            x = torch.zeros(1, load(folder, view).options["channels"], 32, 32)
            assert load(folder, view)(x).shape == (1, 16)
            assert load_projector(folder, view) is None  # no view's head was trained against another's
            with safe_open(folder / f"encoder-{view}.safetensors", "pt") as file:
                assert not [key for key in file.keys() if "head" in key]  # noqa: SIM118
