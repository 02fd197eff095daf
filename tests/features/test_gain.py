"""Gains and their standard error, by the loop, and as they are printed."""

from __future__ import annotations

import pytest
import torch

from manyview.features.gain import Share, answers, gain_error, gain_errors, gain_in_points


def test_the_error_of_a_gain_is_that_of_answers_to_the_same_images() -> None:
    draw = torch.Generator().manual_seed(0)
    before = torch.rand(200, generator=draw) < 0.4
    after = before | (torch.rand(200, generator=draw) < 0.3)  # nothing is unlearnt
    change = [float(a) - float(b) for a, b in zip(after, before, strict=True)] + [0, 0.5**0.5, -(0.5**0.5), 0]
    mean = sum(change) / 202  # half an image more of each kind
    expected = (sum(each**2 for each in change) / 202 - mean**2) ** 0.5 / 202**0.5
    found = gain_errors({"top1": Share.of(after), "chosen C": 1.0}, {"top1": Share.of(before), "chosen C": 0.1})
    assert found == {"top1": pytest.approx(expected)}
    apart = (float(before.double().var() + after.double().var()) / 200) ** 0.5
    assert found["top1"] < apart  # than if each had been asked about images of its own


def test_answers_about_other_images_have_no_error() -> None:
    one, other = Share.of(torch.ones(3, dtype=torch.bool)), Share.of(torch.ones(4, dtype=torch.bool))
    assert gain_errors({"top1": one}, {"top1": other}) == {}
    assert gain_errors({"top1": one}, {}) == {}
    assert gain_errors({"top1": 0.5}, {"top1": one}) == {}


def test_answers_that_are_not_known_or_of_other_images_have_no_error() -> None:
    some = torch.ones(3, dtype=torch.bool)
    assert gain_error(some, None) is None
    assert gain_error(None, some) is None
    assert gain_error(some, some[:2]) is None


@pytest.mark.parametrize("count", [1, 4, 20])
def test_a_handful_of_images_is_not_sure_where_all_answers_change_alike(count: int) -> None:
    right, wrong = torch.ones(count, dtype=torch.bool), torch.zeros(count, dtype=torch.bool)
    same, learnt = gain_error(right, right), gain_error(right, wrong)
    assert same is not None
    assert learnt is not None
    assert same == pytest.approx(1 / (count + 2))  # half an image each way
    assert learnt > 0.03


def test_what_a_checkpoint_keeps_of_a_score_are_its_answers() -> None:
    right = torch.tensor([True, False])
    assert list(answers({"top1": Share.of(right), "chosen C": 1.0})) == ["top1"]
    assert torch.equal(answers({"top1": Share.of(right)})["top1"], right)


@pytest.mark.parametrize("after", [k / 160 for k in range(0, 161, 7)])
def test_a_gain_is_the_difference_of_the_scores_as_they_are_printed(after: float) -> None:
    before = 0.2052
    printed = round(float(f"{after:.1%}"[:-1]) - float(f"{before:.1%}"[:-1]), 1)
    assert float(gain_in_points(after, before)) == pytest.approx(printed)
    assert gain_in_points(0.5, 0.25, 0.0123) == "+25.0 \N{PLUS-MINUS SIGN} 1.2"
