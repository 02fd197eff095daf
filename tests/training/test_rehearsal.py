"""Steps that are timed before a run, and what the run then is."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from manyview.cli import main as cli
from manyview.config.config import Config
from manyview.config.keys import Flat
from manyview.training import rehearsal
from manyview.training.rehearsal import FEW, FIRST, MOST, seconds_a_save, seconds_a_step
from manyview.training.run import ENCODER, Run
from manyview.training.signals import Signals
from manyview.training.time_budget import Costs, fitted
from tests import tiny
from tests.tiny import STEPS


class Clock:
    """Seconds that pass by a tenth a step."""

    def __init__(self) -> None:
        self.now = 0.0
        self.trained: list[int] = []

    def monotonic(self) -> float:
        return self.now

    def train(self, steps: int) -> None:
        self.trained.append(steps)
        self.now += 0.1 * steps + (5.0 if len(self.trained) == 1 else 0.0)  # the first steps allocate and plan


@pytest.mark.parametrize(("seconds", "count"), [(2.05, 20), (0.01, FEW), (1e6, MOST)])
def test_the_first_steps_do_not_count(monkeypatch: pytest.MonkeyPatch, seconds: float, count: int) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock.monotonic)
    assert seconds_a_step(clock.train, seconds) == pytest.approx(0.1)
    assert clock.trained == [FIRST, FEW, count]


def test_a_checkpoint_is_timed_and_not_kept(tmp_path: Path) -> None:
    assert seconds_a_save({"weights": [1.0]}, tmp_path) > 0
    assert not list(tmp_path.iterdir())


def flags(out: Path) -> list[str]:
    """Of a run for a minute, without epochs."""
    given = tiny.flags(out=out, minutes=1)
    place = given.index("--epochs")
    return [*given[:place], *given[place + 2 :]]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute has some twenty steps, whatever the machine."""

    def step(train: rehearsal.Train, seconds: float) -> float:
        train(2)
        return 2.0

    monkeypatch.setattr(rehearsal, "seconds_a_step", step)
    monkeypatch.setattr(rehearsal, "slowest", lambda seconds: 1.0)


@pytest.mark.usefixtures("short")
def test_a_run_for_some_minutes_goes_on_as_it_was_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, left = Run(tmp_path / "whole"), Run(tmp_path / "left")

    def interrupt(signals: Signals) -> None:
        if any(line["step"] for line in left.metrics):
            signals.came.append(signal.SIGINT)

    assert cli.main(["pretrain", *flags(whole.folder)]) == 0
    assert 10 < whole.config.epochs * STEPS / 2 < 30
    with monkeypatch.context() as stopped:
        stopped.setattr(Signals, "moved", interrupt)
        assert cli.main(["pretrain", *flags(left.folder)]) == 130
    monkeypatch.setattr(rehearsal, "chosen", None)  # nothing is chosen again
    assert cli.main(["pretrain", *flags(left.folder)]) == 0
    assert (left.config.minutes, left.config.epochs) == (1, whole.config.epochs)
    assert (left.folder / ENCODER).read_bytes() == (whole.folder / ENCODER).read_bytes()


@pytest.mark.usefixtures("short")
def test_a_run_from_weights_sets_time_aside_for_the_score_of_an_untrained_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    besides = []

    def kept(config: Config, costs: Costs, steps_an_epoch: int) -> Flat:
        besides.append((costs.besides, costs.score))
        return fitted(config, costs, steps_an_epoch)

    monkeypatch.setattr(rehearsal, "fitted", kept)
    drawn = tmp_path / "drawn"
    assert cli.main(["pretrain", *flags(drawn)]) == 0
    assert cli.main(["pretrain", *flags(tmp_path / "weights"), "--encoder.pretrained", str(drawn / ENCODER)]) == 0
    (without, score), (with_weights, _) = besides
    assert with_weights == without + score


@pytest.mark.usefixtures("short")
def test_other_minutes_are_another_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pretrain", *flags(tmp_path)]) == 0
    given = flags(tmp_path)
    given[given.index("--minutes") + 1] = "2"
    assert cli.main(["pretrain", *given]) == 2
    assert "holds a run with other settings (minutes: 1.0 -> 2.0)" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--epochs", "--max-steps"])
def test_minutes_beside_another_length_are_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pretrain", "--data", "scenes", "--minutes", "3", flag, "2"]) == 2
    name = flag.removeprefix("--").replace("-", "_")
    assert capsys.readouterr().err == f"manyview pretrain: minutes: 3 and {name} 2 are both given; leave one out\n"
