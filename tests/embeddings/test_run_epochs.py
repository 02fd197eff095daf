"""The epochs of a run, and its method at each."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from manyview.embeddings import run_epochs, view_embeddings
from manyview.training import build
from manyview.training.load import load
from manyview.training.run import Run


def state_of(run: Run, epoch: int) -> dict[str, torch.Tensor]:
    state = torch.load(run.folder / "checkpoints" / f"epoch-{epoch:04d}.pt", weights_only=True)
    found: dict[str, torch.Tensor] = state["method"]
    return found


def test_the_epochs_are_the_beginning_the_snapshots_and_the_end(run: Run) -> None:
    assert run_epochs.epochs(run) == [0, 1, 2, 3]


@pytest.mark.parametrize("epoch", [1, 2])
def test_the_method_of_a_snapshot_has_its_weights_and_its_queue(run: Run, epoch: int) -> None:
    method, expected = run_epochs.method_of(run, epoch), state_of(run, epoch)
    assert all(torch.equal(value, expected[key]) for key, value in method.state_dict().items())
    assert not method.training


def test_the_last_method_has_the_encoder_that_was_written(run: Run) -> None:
    x = torch.randn(2, 3, 32, 32)
    for method in (run_epochs.method_of(run), run_epochs.method_of(run, 3)):
        torch.testing.assert_close(method.towers.encoder()(x), load(run)(x))


def test_before_the_first_epoch_the_method_is_as_its_seed_draws_it(run: Run) -> None:
    random = torch.get_rng_state()
    method = run_epochs.method_of(run, 0)
    assert torch.equal(random, torch.get_rng_state())
    with torch.random.fork_rng():
        fresh = build.method(run.config, {"image": 3}, 49)
    assert all(torch.equal(value, fresh.state_dict()[key]) for key, value in method.state_dict().items())


def test_an_epoch_that_was_not_kept_is_refused(run: Run) -> None:
    with pytest.raises(ValueError, match=r"epoch: .* has 0, 1, 2, 3, not 7; a run keeps those of --snapshots"):
        view_embeddings.embed_run(run, epoch=7)


def test_a_run_without_checkpoints_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text((run.folder / "config.yaml").read_text())
    for ask in (run_epochs.epochs, run_epochs.method_of):
        with pytest.raises(ValueError, match=r"has no checkpoint; its encoder alone can still embed"):
            ask(Run(tmp_path))


def test_a_damaged_snapshot_is_one_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    for file in (run.folder / "checkpoints").iterdir():
        (tmp_path / "checkpoints" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.yaml").write_text((run.folder / "config.yaml").read_text())
    (tmp_path / "checkpoints" / "epoch-0001.pt").write_bytes(b"not one")
    with pytest.raises(ValueError, match=r"epoch-0001.pt: is damaged"):
        run_epochs.method_of(Run(tmp_path), 1)
