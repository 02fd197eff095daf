from __future__ import annotations

import pytest
import torch

from manyview.data.scenes.captions import relation, with_article
from manyview.data.scenes.dataset import Scenes


def test_a_caption_tells_the_main_shape_first_and_the_floor_last() -> None:
    scenes = Scenes(60)
    for row, text in enumerate(scenes.captions(torch.arange(60))):
        nouns = [word for word in text.split() if word in scenes.classes]
        assert nouns[0] == scenes.classes[int(scenes.labels[row])]
        assert text.endswith(" floor")
        assert text.startswith(("a ", "an "))
        assert not any(f" a {vowel}" in f" {text}" for vowel in "aeiou")
    assert scenes.describe(4).caption == scenes.captions(torch.tensor([4]))[0]


@pytest.mark.parametrize(("column", "expected"), [(0, "right of"), (8, "in front of"), (15, "left of")])
def test_where_the_main_object_is_depends_on_the_picture(column: int, expected: str) -> None:
    mask = torch.zeros(16, 16, dtype=torch.uint8)
    mask[8:12, 7:10] = 1
    mask[4, column] = 2
    assert relation(mask, 1) == expected


def test_vowels_take_an() -> None:
    assert with_article("orange cone") == "an orange cone"
    assert with_article("red cone") == "a red cone"


def test_a_caption_names_only_what_is_visible() -> None:
    scenes = Scenes(40, modalities=("instance",))
    for row, text in enumerate(scenes.captions(torch.arange(40))):
        nouns = [word for word in text.split() if word in scenes.classes]
        assert len(nouns) <= len(scenes.describe(row).shapes)
