"""The loop of a task: killed anywhere it ends with the same weights; what it logs; what it refuses."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from manyview.core.errors import UserError
from manyview.training.failures import Interrupted
from manyview.transfer import fit as loop
from manyview.transfer.fit import Training, fit

STEPS, PER_EPOCH = 7, 3


class Killed(Exception):
    """Stands for a kill: nothing is saved."""


def training(*, killed_at: int | None = None, lr: float = 0.1, **more: Any) -> Training:
    """Batch norm, dropout, momentum: all that a checkpoint must hold."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
    seen: list[int] = []

    def batches(epoch: int, start: int) -> Iterator[Tensor]:
        for number in range(start, PER_EPOCH):
            yield torch.randn(8, 3, generator=torch.Generator().manual_seed(10 * epoch + number))

    def losses(x: Tensor) -> dict[str, Tensor]:
        if len(seen) == killed_at:
            raise Killed
        seen.append(1)
        out = model(x)
        return {"first": out[:, 0].square().mean(), "second": (out[:, 1] - 1).square().mean()}

    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    given: dict[str, Any] = {"factor": lambda epochs: 1 / (1 + epochs), **more}
    return Training(model, optimizer, STEPS, PER_EPOCH, batches, losses, dict, **given)


def weights(each: Training) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in each.model.state_dict().items()}


@pytest.mark.parametrize("step", range(1, STEPS))
def test_a_training_killed_at_any_step_ends_with_the_same_weights(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "SECONDS", 0.0)
    whole = training()
    fit(whole, tmp_path / "whole", seed=3)
    with pytest.raises(Killed):
        fit(training(killed_at=step), tmp_path / "killed", seed=3)
    torch.manual_seed(99)  # the state of others' random numbers is no matter
    again = training()
    fit(again, tmp_path / "killed", seed=3)
    expected = weights(whole)
    assert all(torch.equal(expected[name], each) for name, each in weights(again).items())
    logs = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "killed")]
    assert logs[0] == logs[1]


def test_a_training_without_a_checkpoint_begins_anew(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        fit(training(killed_at=2), tmp_path)
    assert not list(tmp_path.glob("step-*"))
    again, whole = training(), training()
    fit(again, tmp_path)
    fit(whole, tmp_path / "whole")
    assert torch.equal(again.model[0].weight, whole.model[0].weight)  # type: ignore[index]


def test_a_signal_saves_and_the_next_call_goes_on(tmp_path: Path) -> None:
    stopped = training()
    inner = stopped.losses

    def signalled(batch: Tensor) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return inner(batch)

    object.__setattr__(stopped, "losses", signalled)
    with pytest.raises(Interrupted):
        fit(stopped, tmp_path)
    assert [file.name for file in tmp_path.glob("step-*")] == ["step-000000001.pt"]
    again, whole = training(), training()
    fit(again, tmp_path)
    fit(whole, tmp_path / "whole")
    assert torch.equal(again.model[0].weight, whole.model[0].weight)  # type: ignore[index]


def test_the_log_holds_the_sum_and_its_parts(tmp_path: Path) -> None:
    fit(training(), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, STEPS]
    assert lines[0]["loss"] == pytest.approx(lines[0]["first"] + lines[0]["second"])
    assert lines[-1]["epoch"] == 3


def test_the_learning_rate_follows_the_epochs_done(tmp_path: Path) -> None:
    each = training()
    fit(each, tmp_path)
    assert each.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 / (1 + (STEPS - 1) / PER_EPOCH))


def test_a_long_gradient_is_cut(tmp_path: Path) -> None:
    lengths = []
    for clip in (None, 1e-3):
        each = training(clip=clip)
        fit(each, tmp_path / str(clip))
        grads = [part.grad for part in each.model.parameters() if part.grad is not None]
        lengths.append(float(torch.stack([grad.norm() for grad in grads]).norm()))
    assert lengths[0] > 1e-2
    assert lengths[1] == pytest.approx(1e-3, rel=1e-2)


def test_a_process_without_anything_to_learn_from_has_a_loss_of_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_share", lambda training, batch: 0.0)
    fit(training(), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines] == [0, 0]


def test_a_loss_that_is_no_number_is_one_line_about_the_learning_rate(tmp_path: Path) -> None:
    each = training()
    object.__setattr__(each, "losses", lambda batch: {"loss": torch.tensor(float("nan"))})
    with pytest.raises(UserError, match=r"lr: with 0.1 the loss is nan after 0 steps"):
        fit(each, tmp_path)
