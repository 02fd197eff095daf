"""Epochs, scores and sizes for the time one has, from made-up speeds."""

from __future__ import annotations

from typing import Any

import pytest

from manyview.config.config import Config
from manyview.config.resolve import resolve
from manyview.training.time_budget import (
    AIM,
    SCORING,
    Costs,
    embedding_seconds,
    fitted,
    page_seconds,
    size_for,
)

STEPS = 50  # an epoch


def config(minutes: float = 10.0, recipe: dict[str, Any] | None = None, **given: Any) -> Config:
    flags = {key.replace("__", "."): value for key, value in given.items()}
    return resolve(recipe or {}, {"data.name": "scenes", "minutes": minutes, **flags})


def seconds(costs: Costs, epochs: float, every: int) -> float:
    """What a run takes as the loop goes: a checkpoint an epoch, scores at the beginning, between and at the end."""
    steps = round(epochs * STEPS)
    between = sum(step % (every * STEPS) == 0 for step in range(1, steps)) if every else 0
    saves = steps // STEPS + bool(steps % STEPS)
    return costs.besides + steps * costs.step + (2 + between) * costs.score + saves * costs.save


@pytest.mark.parametrize("minutes", [1.0, 10.0, 120.0])
@pytest.mark.parametrize("step", [0.005, 0.1, 2.0])
@pytest.mark.parametrize("score", [0.0, 0.5, 4.0])
@pytest.mark.parametrize("save", [0.0, 0.1])
def test_a_run_ends_on_time_whatever_its_parts_cost(minutes: float, step: float, score: float, save: float) -> None:
    costs = Costs(step, score, save, besides=15.0)
    found = fitted(config(minutes), costs, STEPS)
    taken = seconds(costs, found["epochs"], found["evaluate_every"])
    assert 0.9 * AIM * 60 * minutes <= taken <= 60 * minutes


def test_scores_during_training_take_a_small_share_of_the_time() -> None:
    costs = Costs(step=0.01, score=5.0)
    found = fitted(config(), costs, STEPS)
    between = -(-found["epochs"] // found["evaluate_every"]) - 1
    assert found["evaluate_every"] > 1
    assert 0 < between * costs.score <= SCORING * 600


def test_what_the_schedule_counts_in_epochs_keeps_its_share_of_the_run() -> None:
    recipe = {"epochs": 200, "schedule.name": "steps", "schedule.milestones": [120, 160], "schedule.warmup": 10}
    found = fitted(config(recipe=recipe), Costs(step=0.1), STEPS)
    epochs = found["epochs"]
    assert found["schedule.warmup"] == pytest.approx(epochs / 20, rel=1e-3)
    assert found["schedule.milestones"] == pytest.approx((0.6 * epochs, 0.8 * epochs), rel=1e-3)


def test_what_a_person_gives_stays() -> None:
    found = fitted(config(schedule__warmup=0.5, evaluate_every=3), Costs(step=0.1, score=1.0), STEPS)
    assert list(found) == ["epochs"]


def test_too_little_time_is_one_step() -> None:
    assert fitted(config(0.1), Costs(step=9.0, besides=60.0), STEPS)["epochs"] == 1 / STEPS


@pytest.mark.parametrize("score", [0.1, 0.5, 1.0, 5.0])
def test_a_run_whose_time_is_over_before_its_first_step_is_one_step_all_the_same(score: float) -> None:
    found = fitted(config(0.1), Costs(step=0.1, score=score, besides=14.0), STEPS)
    assert (found["epochs"], found["evaluate_every"]) == (1 / STEPS, 1)


def test_views_are_as_large_as_leaves_time_for_a_few_passes() -> None:
    quick = Costs(step=0.1)  # at 64 px: 5 s an epoch
    assert [size_for(500, minutes, quick, 64, STEPS) for minutes in (0.2, 1.0, 2.0, 5.0)] == [64, 64, 96, 128]


def test_views_are_not_larger_than_the_pictures() -> None:
    assert size_for(96, 1000.0, Costs(step=0.1), 64, STEPS) == 96


def test_the_page_takes_the_time_that_is_left_within_bounds() -> None:
    given = config(2.0)
    reserved = page_seconds(given)
    assert 0 < reserved < 20
    late, on_time, early = (embedding_seconds(given, gone) for gone in (130.0, 120.0 - reserved, 30.0))
    assert 0 < late < on_time < reserved <= early + 3
    assert page_seconds(config(2.0, report=False)) == 0
