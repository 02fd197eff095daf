"""The parts that settings name, as functions with their arguments."""

from __future__ import annotations

import pytest

from manyview.config.component import component
from manyview.core.errors import UserError
from manyview.losses import dcl, info_nce
from manyview.methods.terms import try_loss
from tests.config.small import flags


def test_a_method_s_own_numbers_win_over_the_function_s_defaults_but_only_for_its_own_part() -> None:
    assert flags("--method simclr").flat()["loss.temperature"] == 0.1
    assert flags("--method moco_v1").flat()["loss.temperature"] == 0.07
    assert flags("--method moco_v1 --loss dcl").flat()["loss.temperature"] == 0.1
    assert component(flags("--method moco_v1"), "loss").func is info_nce
    assert component(flags("--method moco_v1 --loss dcl"), "loss").func is dcl


def test_a_momentum_schedule_is_a_part_like_any_other() -> None:
    config = flags("--method jcl --momentum cosine --momentum.start 0.9")
    assert config.parts["momentum"] == {"name": "cosine", "start": 0.9}
    assert component(config, "momentum")(5, 5) == 1.0
    assert flags("--method jcl").parts["momentum"] == {"name": "constant", "start": 0.999}


def test_what_a_part_refuses_is_named_by_its_key() -> None:
    with pytest.raises(UserError, match=r"^loss\.temperature: expected a positive number, got 0"):
        try_loss(component(flags("--loss dcl --temperature 0"), "loss"))
