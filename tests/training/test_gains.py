from __future__ import annotations

import pytest
import torch

from manyview.config.resolve import resolve
from manyview.features.gain import Share
from manyview.methods import Method
from manyview.training import build
from manyview.training.gains import gain_lines, live_gain, start_line
from manyview.training.state import RunState


def right(*answers: int) -> dict[str, float]:
    return {"knn": Share.of(torch.tensor(answers, dtype=torch.bool))}


def state() -> RunState:
    config = resolve({}, {"data.name": "scenes"})
    method: Method = build.small_method(config, ("image",))
    return RunState.begun(config, method, 10)


def trained(end: dict[str, float], start: dict[str, float], random: dict[str, float] | None = None) -> RunState:
    made = state()
    if random is not None:
        made.scored_random(random)
    made.scored(start)
    made.step = 50
    made.scored(end)
    return made


def test_the_gain_over_weights_and_over_an_untrained_encoder_has_the_paired_error_of_each() -> None:
    made = trained(right(1, 1, 1, 1, 1, 1, 1, 0), right(1, 1, 1, 1, 0, 0, 0, 0), right(1, 0, 0, 0, 0, 0, 0, 1))
    (line,) = gain_lines("knn", "kNN", made)
    over_start = ((3 + 0 + 1) / 10 - (3 / 10) ** 2) ** 0.5 / 10**0.5  # of ten: half an image more of each kind
    over_random = ((6 + 1 + 1) / 10 - (5 / 10) ** 2) ** 0.5 / 10**0.5
    assert line == (
        f"kNN 87.5%: +37.5 ± {100 * over_start:.1f} points over the weights that it started from, 50.0%; "
        f"+62.5 ± {100 * over_random:.1f} over an untrained encoder, 25.0% "
        "(standard error over the same 8 held-out images)"
    )


@pytest.mark.parametrize("end", [right(1, 0, 0, 0), right(1, 1, 0, 0)])
def test_a_run_from_weights_that_gained_nothing_says_so(end: dict[str, float]) -> None:
    said = gain_lines("knn", "kNN", trained(end, right(1, 1, 0, 0), right(0, 0, 0, 0)))
    assert said[1].startswith("no gain in kNN: the weights that it started from are as good")


def test_weights_that_a_run_made_worse_beyond_doubt_are_called_better() -> None:
    said = gain_lines("knn", "kNN", trained(right(0, 0, 0, 0, 1), right(1, 1, 1, 1, 1), right(0, 0, 0, 0, 0)))
    assert said[1].startswith("no gain in kNN: the weights that it started from are better. Use those")


@pytest.mark.parametrize(
    ("name", "title", "words"),
    [
        ("knn", "kNN", "kNN is no better than before training: train"),
        (
            "instance",
            "own image first",
            "augmented views find their own image no more often than before training: train",
        ),
    ],
)
def test_no_gain_is_said_in_words_that_fit_the_score(name: str, title: str, words: str) -> None:
    none, half = ({name: right(*answers)["knn"]} for answers in ((0, 0), (0, 1)))
    assert gain_lines(name, title, trained(none, half))[1].startswith(words)


def test_a_gain_of_less_than_two_standard_errors_may_be_chance() -> None:
    said = gain_lines("knn", "kNN", trained(right(1, 1, 0, 1), right(0, 0, 0, 0)))
    assert len(said) == 1  # three of four images is more than two errors
    said = gain_lines("knn", "kNN", trained(right(1, 1, 0, 1, 0), right(1, 0, 1, 0, 0)))
    assert "may be chance" in said[1]


def test_without_weights_the_start_is_the_untrained_encoder() -> None:
    made = trained(right(1, 1, 1, 1), right(1, 0, 0, 0))
    assert gain_lines("knn", "kNN", made)[0].startswith("kNN 100.0%, untrained 25.0%: +75.0 ±")
    assert start_line("knn", "kNN", made) == "kNN of the untrained encoder 25.0%"


def test_progress_tells_the_gain_once_something_was_scored_after_the_start() -> None:
    made = state()
    made.scored_random(right(0, 0))
    made.scored(right(1, 0))
    assert live_gain("knn", "kNN", made) == "kNN 50.0% (before training)"
    made.step = 10  # an epoch, after which it is scored
    made.scored(right(1, 1))
    assert live_gain("knn", "kNN", made) == "kNN 100.0% (+50.0 ± 33.1 over its start, +100.0 over untrained)"


def test_a_resumed_run_knows_its_start() -> None:
    made = trained(right(1, 1, 1), right(1, 0, 0), right(0, 0, 0))
    again = state()
    again.load_state_dict(made.state_dict())
    assert gain_lines("knn", "kNN", again) == gain_lines("knn", "kNN", made)


def test_a_handful_of_steps_is_no_ground_for_a_verdict() -> None:
    for steps, said in (
        (1, "1 step is too few to tell a gain in kNN"),
        (19, "19 steps are too few to tell a gain in kNN"),
    ):
        made = trained(right(1, 0, 0, 0), right(1, 1, 0, 0), right(0, 0, 0, 0))
        made.step = steps
        assert gain_lines("knn", "kNN", made)[1:] == [said]


def test_a_score_from_before_training_is_marked_until_there_is_a_newer_one() -> None:
    made = state()
    made.scored(right(1, 0))
    made.step = 5
    assert live_gain("knn", "kNN", made) == "kNN 50.0% (before training)"
    made.step = 10  # an epoch, after which it is scored
    made.scored(right(1, 0))
    assert live_gain("knn", "kNN", made).startswith("kNN 50.0% (+0.0 ")
