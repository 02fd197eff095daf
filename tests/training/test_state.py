"""Where a run is: steps and epochs, losses that are known or pending, scores, and all of it over a checkpoint."""

from __future__ import annotations

import math

import pytest
import torch

from manyview.config.component import component
from manyview.config.resolve import resolve
from manyview.diagnose.health import Health
from manyview.features.gain import Share
from manyview.training import state
from manyview.training.state import RunState


def begun(step: int = 0) -> RunState:
    return RunState(resolve({"data.name": "photos"}, {}), 12, 12, 5, Health(coupled=True), step)


def losses(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("step", "epochs", "epoch", "over", "done"),
    [
        (0, 0.0, 0, True, False),
        (1, 0.2, 1, False, False),
        (5, 1.0, 1, True, False),
        (6, 1.2, 2, False, False),
        (12, 2.4, 3, False, True),
    ],
)
def test_epochs_are_counted_from_the_steps(step: int, epochs: float, epoch: int, over: bool, done: bool) -> None:
    run = begun(step=step)
    assert (run.epochs, run.epoch, run.epoch_over, run.done) == (epochs, epoch, over, done)


def test_a_step_counts_and_its_own_loss_is_known_at_once_on_a_cpu() -> None:
    run = begun()
    run.stepped(losses(3.0, 1.0, 2.0))
    assert (run.step, run.loss, run.losses) == (1, 3.0, [])


def test_pending_losses_become_means_over_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    run, sent = begun(), []

    def exchange(word: list[float]) -> list[list[float]]:
        sent.append(word)
        return [word, [value + 1 for value in word]]

    monkeypatch.setattr(state, "exchange", exchange)
    for value in (3.0, 5.0):
        run.stepped(losses(value, value / 2))
    run.settle_losses()
    run.settle_losses()  # nothing is left to exchange
    assert sent == [[3.0, 1.5, 5.0, 2.5]]
    assert run.losses == [[3.5, 2.0], [5.5, 3.0]]
    assert (run.loss, run.pending) == (5.5, [])
    assert run.mean_losses() == [4.5, 2.5]
    assert run.losses == []  # the next mean begins anew


def test_a_term_is_averaged_over_the_steps_in_which_it_had_a_pair() -> None:
    run, none = begun(), float("nan")
    for told in (losses(4.0, 4.0, none, 1.0, none), None, losses(9.0, 6.0, 3.0, 2.0, none)):
        run.stepped(told)
    assert (run.step, run.loss) == (3, 9.0)
    run.settle_losses()
    *found, last = run.mean_losses()
    assert found == [6.5, 5.0, 3.0, 1.5]
    assert last != last  # a bound that no step had
    run.stepped(None)
    run.settle_losses()
    assert (run.mean_losses(), run.loss, run.diverged) == ([], 9.0, None)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_is_known_before_and_after_it_is_settled(bad: float) -> None:
    run = begun()
    run.stepped(losses(1.0))
    assert run.diverged is None
    run.stepped(losses(bad))
    assert str(run.diverged) == str(bad)
    run.stepped(losses(1.0))
    run.settle_losses()
    assert str(run.diverged) == str(bad)


def test_the_first_scores_are_those_of_the_untrained_encoder() -> None:
    run = begun()
    run.scored({"knn": 0.25})
    run.stepped(losses(1.0))
    run.scored({"knn": 0.5})
    assert (run.untrained_scores, run.scores, run.fresh_scores) == ({"knn": 0.25}, {"knn": 0.5}, {"knn": 0.5})


def test_a_checkpoint_brings_everything_back() -> None:
    run = begun()
    run.scored({"knn": 0.25, "knn/depth": 0.1})
    run.stepped(losses(2.0, 3.0))
    run.settle_losses()
    run.seconds = 1.5
    run.health.update(1, {}, loss=2.0, gradient=1.0, unreadable=0.0, flat=0.0)
    again = begun()
    again.load_state_dict(run.state_dict())
    assert again.state_dict() == run.state_dict()
    assert (again.step, again.seconds, again.losses, again.loss) == (1, 1.5, [[2.0, 3.0]], 2.0)
    assert again.untrained_scores == {"knn": 0.25, "knn/depth": 0.1}


def test_epochs_of_a_schedule_count_from_0_or_from_1() -> None:
    """MoCo's CIFAR-10 notebook: lr 0.5 (1 + cos(pi epoch / epochs)) for epoch = 1 .. epochs."""
    rates = {}
    for first in (0, 1):
        given = {"epochs": 4, "lr": 2.0, "schedule.per": "epoch", "schedule.first_epoch": first}
        config = resolve({"data.name": "photos", **given}, {})
        steps = [RunState(config, 8, 8, 2, Health(coupled=True), step) for step in range(8)]
        rates[first] = [each.lr(component(config, "schedule")) for each in steps]
    expected = [1 + math.cos(math.pi * epoch / 4) for epoch in range(5)]
    assert rates[0] == pytest.approx([expected[step // 2] for step in range(8)])
    assert rates[1] == pytest.approx([expected[step // 2 + 1] for step in range(8)])


def test_in_part_of_an_epoch_no_schedule_goes_beyond_its_end() -> None:
    given = {"epochs": 2.5, "schedule.per": "epoch", "schedule.first_epoch": 1}
    config = resolve({"data.name": "photos", **given}, {})
    assert RunState(config, 5, 5, 2, Health(coupled=True), 4).lr(component(config, "schedule")) == pytest.approx(0)


def test_which_answers_were_right_survives_a_checkpoint_and_its_lack_does_not_matter() -> None:
    run, again, older = begun(), begun(), begun()
    run.scored({"knn": Share.of(torch.arange(4) < 1)})
    run.step = 5
    run.scored({"knn": Share.of(torch.arange(4) < 3), "pairs": 4.0})
    assert run.gain_error("knn") == pytest.approx((3 - 2**2 / 6) ** 0.5 / 6)  # two of four, and half of each kind
    kept = run.state_dict()
    assert type(kept["scores"]["knn"]) is float  # a checkpoint holds plain numbers alone
    again.load_state_dict(kept)
    assert again.gain_error("knn") == run.gain_error("knn")
    assert again.gain_error("pairs") is None
    older.load_state_dict({name: value for name, value in kept.items() if name not in state.ANSWERS})
    assert older.gain_error("knn") is None
