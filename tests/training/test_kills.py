"""Nothing is lost: see kills.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny import noise
from tests.training import kills

SHORT = {
    "data": str(noise()), "batch_size": "8", "epochs": "4", "checkpoint_steps": "3", "snapshots": "1",
    "evaluate_every": "1",
}  # fmt: skip


def test_a_run_that_is_killed_in_a_step_and_in_a_write_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    kills.DRAW.seed(0)
    found, unlike = kills.disturbed_and_not("moco_v2", 2, tmp_path, SHORT | {"memory.size": "32"})
    assert [each.when for each in found] == ["in a step", "in a write"]
    assert all(each.step > each.began for each in found)
    assert unlike == []


@pytest.mark.slow
@pytest.mark.parametrize("method", ["simclr", "moco_v2"])
def test_twenty_kills_lose_nothing(method: str, tmp_path: Path) -> None:
    kills.DRAW.seed(1)
    found, unlike = kills.disturbed_and_not(method, 20, tmp_path, kills.QUEUE if method == "moco_v2" else {})
    assert len(found) == 20
    assert sum(each.step > each.began for each in found) >= 15
    assert sum(bool(each.write) for each in found) >= 3
    assert unlike == []


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_twenty_kills_with_workers_lose_nothing(
    processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kills, "PROCESSES", [processes])
    kills.DRAW.seed(2)
    found, unlike = kills.disturbed_and_not(
        "moco_v2", 20, tmp_path, {**kills.QUEUE, **kills.with_workers(tmp_path / "data", 2)}
    )
    assert len(found) == 20
    assert sum(each.step > each.began for each in found) >= 15
    assert unlike == []


def test_what_differs_is_found() -> None:
    one = {"step": 3, "seconds": 1.0, "queue": [1.0, {"place": 2}]}
    assert list(kills.unlike(one, {**one, "seconds": 2.0})) == []
    assert list(kills.unlike(one, {**one, "queue": [1.0, {"place": 3}]})) == ["queue[1].place"]
    assert list(kills.unlike(one, {"seconds": 1.0, "queue": one["queue"]})) == ["step"]
