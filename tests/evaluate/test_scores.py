"""Scores by part, and the share of right answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.evaluate.scores import by_part, on_features, tops
from manyview.evaluate.task import Score
from tests.data.fakes import Memory
from tests.evaluate.pictures import pair, task


def test_a_part_goes_in_front_of_a_scores_name_where_there_are_several() -> None:
    assert list(by_part(pair(), lambda part: [("top1", 0.5)])) == [
        ("rgb top1", 0.5),
        ("depth top1", 0.5),
        ("all top1", 0.5),
    ]
    assert list(by_part(task(), lambda part: [("top1", 0.5)])) == [("top1", 0.5)]


def test_data_is_refused_at_once_and_scores_are_computed_when_they_are_read() -> None:
    with pytest.raises(UserError, match=r"^data: .* no labels"):
        by_part(replace(task(), train=Memory(30, 3, labelled=False)), lambda part: [])
    by_part(task(), lambda part: pytest.fail("nobody has read a score"))


def test_features_are_those_of_the_training_and_the_test_images() -> None:
    made = task()

    def score(x: Tensor, labels: Tensor, test: Tensor, right: Tensor) -> list[Score]:
        assert torch.equal(x, made.features("train")[0])
        assert torch.equal(right, made.features("test")[1])
        return [("images", float(len(x) + len(test)))]

    assert list(on_features(made, score)) == [("images", 180.0)]


def test_the_first_five_guesses_count_where_there_are_more_classes() -> None:
    logits = torch.arange(6.0).flip(0).expand(6, 6)  # guesses 0, 1, 2, ...
    assert tops(logits, torch.arange(6), 6) == [("top1", 1 / 6), ("top5", 5 / 6)]
    assert tops(logits[:, :5], torch.arange(6), 5) == [("top1", 1 / 6)]


def test_a_class_at_minus_infinity_is_never_guessed() -> None:
    logits = torch.full((2, 6), -torch.inf)
    logits[:, 0] = 1.0
    assert tops(logits, torch.tensor([0, 1]), 6) == [("top1", 0.5), ("top5", 0.5)]
