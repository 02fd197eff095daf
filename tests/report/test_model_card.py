from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from manyview.cli import main as cli
from manyview.evaluate.results import put, read
from manyview.report.model_card import model_card
from tests.tiny import many_views, noise, pretrain, sensors


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secret-customer") / "run"
    assert pretrain(folder, "--quiet", encoder="timm/test_resnet", encoder__options="{}", max_steps=2) == 0
    assert cli.main(["evaluate", str(folder), "--protocols", "knn", "--no-cache"]) == 0
    return folder


def test_it_has_the_stamped_scores_beside_the_untrained_ones(run: Path) -> None:
    text = model_card(run)
    (result,) = read(run)
    name, score = next(iter(result.scores.items()))
    assert result.untrained is not None
    assert f"| knn {name} | {100 * score:.1f} | {100 * result.untrained[name]:.1f} | images of our own: 5 of 2" in text
    assert "k 20, temperature" in text
    assert "| kNN, 20 neighbours, last epoch | " in text


def test_it_says_what_the_encoder_is_and_how_pictures_are_given_to_it(run: Path) -> None:
    text = model_card(run)
    assert text.startswith("---\nlibrary_name: timm\n")
    assert "* method: dcl\n" in text
    assert "* training: 2 steps of 8 images\n" in text
    assert "Preprocessing: short side to 32 px" in text
    assert "began with other weights" not in text


def test_it_names_no_folder(run: Path) -> None:
    text = model_card(run)
    assert "secret" not in text
    assert str(noise()) not in text
    assert noise().name not in text


def test_scores_of_other_weights_are_left_out(run: Path) -> None:
    (result,) = read(run)
    put(run, replace(result, seed=77, model={**result.model, "checksum": "of others"}))
    assert "seed 77" not in model_card(run)
    assert "seed 0" in model_card(run)


def test_what_a_file_says_is_shown_and_never_read_as_markup(run: Path) -> None:
    (result, *_) = read(run)
    evil = "<script>alert(1)</script>](javascript:x) | *b*\n# title"
    put(run, replace(result, seed=5, scores={evil: 0.5}, untrained=None))
    text = model_card(run)
    assert "<script" not in text
    assert r"&lt;script&gt;alert(1)&lt;/script&gt;\](javascript:x) \| \*b\* # title | 50.0 |" in text


def test_an_encoder_that_began_with_weights_says_so(run: Path, tmp_path: Path) -> None:
    begun = {"encoder.pretrained": str(run / "encoder.safetensors"), "encoder.options": "{}"}
    words = [word for key, value in begun.items() for word in (f"--{key}", value)]
    again = tmp_path / "again"
    assert cli.main(["pretrain", "--data", str(noise()), "--encoder", "timm/test_resnet", *words, "--max-steps", "1",
                     "--batch-size", "8", "--report", "false", "--quiet", "--out", str(again)]) == 0  # fmt: skip
    text = model_card(again)
    assert "their licence holds for these too" in text
    assert "secret" not in text


def test_of_a_view_it_has_what_is_known_of_that_view(tmp_path: Path) -> None:
    folder = many_views(tmp_path / "run", sensors(tmp_path / "data", 8, classes=2), max_steps=1)
    text = model_card(folder, "depth")
    assert "* view: depth\n" in text
    assert "timm's transforms do not do this" in text
    assert "in the unit of the files" in text
    assert text.count("| kNN, 20 neighbours") == 1


def test_without_scores_it_says_how_to_get_some(tmp_path: Path) -> None:
    assert pretrain(tmp_path, "--quiet", data__labels=False, max_steps=1) == 0
    assert "It has not been scored: `manyview evaluate RUN` does" in model_card(tmp_path)
