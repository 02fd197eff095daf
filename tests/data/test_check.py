"""What a data set holds: its splits, and the same facts as text and as JSON."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from manyview.data.check import as_json, as_text, open_splits
from manyview.data.survey import survey
from tests.data import fakes


def test_a_split_with_two_names_is_looked_at_once(tmp_path: Path) -> None:
    fakes.imagenet(tmp_path)
    assert list(open_splits("imagenet", root=str(tmp_path))[0]) == ["train", "val"]


def test_text_and_json_say_the_same(tmp_path: Path) -> None:
    for number, name in enumerate(("train/cat/1.png", "train/dog/1.png", "test/dog/1.png")):
        fakes.draw(tmp_path / name, seed=number)
    splits, missing = open_splits(str(tmp_path))
    result = survey(splits)
    text, plain = as_text("pets", result, missing), as_json("pets", result, missing)
    assert "images      3: train 2, test 1" in text
    assert (plain["splits"], plain["unreadable_share"], missing) == ({"train": 2, "test": 1}, 0.0, {})


def test_a_split_that_is_not_there_says_why(tmp_path: Path) -> None:
    fakes.draw(tmp_path / "train/1.png")
    (tmp_path / "test").mkdir()
    splits, missing = open_splits(str(tmp_path))
    assert list(splits) == ["train"]
    assert "no images below" in missing["test"]


def test_few_images_of_ones_own_point_to_weights_that_exist(tmp_path: Path) -> None:
    fakes.draw(tmp_path / "1.png")
    fakes.draw(tmp_path / "2.png", seed=1)
    result = survey(open_splits(str(tmp_path))[0])
    few = "\n  few         under 2,000 images: try weights that exist first (docs/own-photos.md)\n"
    assert few in as_text(str(tmp_path), result, {}) + "\n"
    assert few not in as_text("cifar10", result, {})
    assert few not in as_text(str(tmp_path), replace(result, samples=2000), {})
