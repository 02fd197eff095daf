from __future__ import annotations

import pytest

from manyview.training.schedules import SCHEDULES, constant, cosine, steps
from tests.golden import golden


def test_schedules_are_mocos() -> None:
    for name, schedule in (("moco_cosine", cosine), ("moco_step", lambda e, t: steps(e, t, milestones=(120, 160)))):
        for epoch, lr in zip(golden(f"schedules/{name}/epochs"), golden(f"schedules/{name}/lr"), strict=True):
            assert 0.03 * schedule(epoch.item(), 200) == pytest.approx(lr.item(), abs=1e-15)
    for epoch, lr in zip(golden("schedules/mocov3/epochs"), golden("schedules/mocov3/lr"), strict=True):
        assert 0.6 * cosine(epoch.item(), 100, warmup=10) == pytest.approx(lr.item(), abs=1e-15)


def test_warm_up_rises_in_a_line_and_meets_the_rest() -> None:
    assert [steps(step, 100, milestones=(50,), warmup=10) for step in (0, 5, 10, 49, 50)] == [0, 0.5, 1, 1, 0.1]
    assert cosine(10, 100, warmup=10) == 1
    assert cosine(100, 100, warmup=10) == pytest.approx(0)
    assert [constant(step, 7, warmup=2) for step in (0, 1, 2, 3)] == [0, 0.5, 1, 1]
    assert set(SCHEDULES) == {"constant", "cosine", "steps"}
