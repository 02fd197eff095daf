"""What makes two runs differ."""

from __future__ import annotations

from manyview.config.config import RUNTIME_KEYS, differences
from manyview.config.resolve import resolve, schema
from tests.config.small import flags


def test_differences_name_what_makes_two_runs_other_runs() -> None:
    old, new = flags("--lr 0.1 --out a --workers 1"), flags("--lr 0.2 --out b --workers 3 --device cpu --epochs 5")
    assert differences(old, new) == ["optimizer.lr: 0.1 -> 0.2", "epochs: 100 -> 5"]
    assert differences(flags("--loss dcl"), flags("--loss info_nce"))[0] == "loss.name: dcl -> info_nce"


def test_what_is_said_of_the_machine_are_settings_and_makes_no_other_run() -> None:
    keys = schema({})
    assert set(RUNTIME_KEYS) <= set(keys)
    changed = flags(
        "--out a --device cpu --workers 0 --loggers [] --quiet --data cifar10 --data.root /x --data.download"
    )
    assert differences(flags("--data cifar10"), changed) == []


def test_a_list_and_a_tuple_of_the_same_are_no_difference() -> None:
    steps = flags("--schedule steps")
    assert differences(steps, resolve(steps.flat(), {})) == []
    assert differences(steps, resolve({**steps.flat(), "schedule.milestones": []}, {})) == []
