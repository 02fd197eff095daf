"""Normalisation of modalities that are no pictures: what is measured, kept in the settings, and used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from manyview.config.config import Config
from manyview.core.errors import UserError
from manyview.data.paired import Paired
from manyview.training import build, normalisation, pipelines, run_data, settle
from manyview.views import PICTURE, View
from tests.config.small import flags


@pytest.fixture
def street(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for number in range(6):
        depth = rng.integers(1000, 9000, (32, 40)).astype(np.uint16)
        depth[:8] = 0
        for name, values in {"rgb": rng.integers(0, 255, (32, 40, 3), np.uint8), "depth": depth}.items():
            (tmp_path / name).mkdir(exist_ok=True)
            Image.fromarray(values).save(tmp_path / name / f"{number}.png")
    return tmp_path


def begun(street: Path, *more: str) -> tuple[Config, run_data.RunData]:
    config = flags(f"--data {street} --method cmc {' '.join(more)}")
    data = run_data.open_data(config)
    return settle.settled(config, data), data


def test_the_settings_of_a_run_keep_what_was_measured(street: Path) -> None:
    config, data = begun(street, "--data.nodata 0")
    assert list(config.data["statistics"]) == ["depth"]  # rgb is a picture
    depths = torch.stack([sample.modalities["depth"] for sample in map(Paired(street).__getitem__, range(6))])
    held = depths[depths > 0]
    assert config.data["statistics"]["depth"]["mean"] == pytest.approx([float(held.double().mean())], rel=1e-5)
    again = replace(config, data={**config.data, "name": str(street)})
    assert run_data.open_data(again).statistics == data.statistics  # given, and not measured again
    assert run_data.open_data(again).statistics["depth"].samples == 0


def test_training_and_evaluation_see_mean_0_and_std_1(street: Path) -> None:
    config, data = begun(street, "--data.nodata 0 --augmentation.size 32")
    samples = [data.train[row].modalities for row in range(6)]
    raw = {name: torch.stack([each[name] for each in samples]) for name in data.train.modalities}
    seen = pipelines.evaluation(config, data.views)(raw, data.train.ids)["depth"][0]
    assert seen[:, :, :4].abs().max() < 1e-6  # no data
    assert seen[:, :, 10:].mean().abs() < 0.1
    method = build.method(config, data.channels, len(data.train))
    trained = pipelines.training(config, data.views, method).modality("depth", raw["depth"])
    assert trained == pipelines.evaluation(config, data.views).modality("depth", raw["depth"])
    assert (trained.mean, trained.nodata) == (data.statistics["depth"].mean, 0.0)
    assert pipelines.training(config, data.views, method).modality("rgb", raw["rgb"]) == PICTURE


def test_what_somebody_gives_is_taken(street: Path) -> None:
    config = flags(f"--data {street} --method cmc")
    config = replace(config, data={**config.data, "statistics": {"depth": {"mean": [5], "std": [2]}}})
    assert run_data.open_data(config).statistics["depth"].mean == (5.0,)
    assert normalisation.modalities(config, {"depth": View("depth")})["depth"].std == (2.0,)


@pytest.mark.parametrize("wrong", [{"mean": [1]}, {"mean": [1], "std": [0]}, {"mean": ["x"], "std": [1]}, 3, None])
def test_statistics_that_make_no_sense_are_refused(street: Path, wrong: object) -> None:
    config = flags(f"--data {street} --method cmc")
    config = replace(config, data={**config.data, "statistics": {"depth": wrong}})
    with pytest.raises(UserError, match=r"data.statistics: of 'depth': expected \{mean"):
        run_data.open_data(config)


def test_modalities_that_there_are_not_are_named(street: Path) -> None:
    config = flags(f"--data {street} --method cmc")
    config = replace(config, data={**config.data, "nodata": {"dept": 0.0}})
    with pytest.raises(UserError, match=r"data.nodata: the data has no 'dept'; it has rgb, depth"):
        run_data.open_data(config)


def test_no_value_of_a_picture_is_no_data(street: Path) -> None:
    config, _ = begun(street)
    config = replace(config, data={**config.data, "nodata": {"rgb": 0.0}})
    with pytest.raises(UserError, match=r"data.nodata: rgb is a picture, .* leave it out, and name depth alone"):
        run_data.open_data(config)


def test_nan_as_a_setting_equals_itself() -> None:
    assert normalisation.as_settings({}, float("nan"))["nodata"] is None
    assert normalisation.as_settings({}, "nan")["nodata"] is None
    assert normalisation.as_settings({}, {"a": float("nan"), "b": 0.0})["nodata"] == {"b": 0.0}


@pytest.mark.parametrize(("method", "predicts"), [("prediction", True), ("cmc", False)])
def test_no_data_stays_unknown_for_who_predicts_it_and_is_the_mean_for_others(
    street: Path, method: str, predicts: bool
) -> None:
    config = flags(f"--data {street} --method {method} --views rgb,depth --data.nodata 0 --augmentation.size 32")
    data = run_data.open_data(config)
    config = settle.settled(config, data)
    declared = build.method(config, data.channels, len(data.train))
    raw = {name: data.train[0].modalities[name][None] for name in data.train.modalities}
    seen = pipelines.training(config, data.views, declared)(raw, data.train.ids[:1], seed=1)
    assert bool(seen["depth"][0].isnan().any()) == predicts
    assert bool(declared(seen)[declared.slots[0]].isfinite().all())


@pytest.mark.parametrize(
    ("target", "channels", "why"),
    [("seg", 1, None), ("thermal", 1, "none by its name"), ("seg", 3, "in RGB")],
)
def test_classes_are_predicted_of_label_maps_alone(tmp_path: Path, target: str, channels: int, why: str | None) -> None:
    rng = np.random.default_rng(0)
    shapes = {"rgb": (32, 32, 3), target: (32, 32, 3) if channels == 3 else (32, 32)}
    for name, shape in shapes.items():
        (tmp_path / name).mkdir()
        for number in range(4):
            Image.fromarray(rng.integers(0, 4, shape, np.uint8)).save(tmp_path / name / f"{number}.png")
    chosen = f"--data {tmp_path} --views rgb,{target} --data.modalities rgb,{target} --augmentation.size 32"
    config = flags(f"{chosen} --method prediction --distance labels --distance.classes 4")
    data = run_data.open_data(config)
    config = settle.settled(config, data)
    if why is None:
        build.method(config, data.channels, len(data.train))
    else:
        with pytest.raises(UserError, match=f"distance: labels: .* and '{target}' is {why}; give l1, l2 or bins"):
            build.method(config, data.channels, len(data.train))
