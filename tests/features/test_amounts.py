from __future__ import annotations

import pytest

from manyview.core.errors import UserError
from manyview.features.amounts import check_amounts


def test_numbers_that_make_sense_pass() -> None:
    check_amounts(batch_size=1)
    check_amounts(batch_size=256, workers=0, seed=(1 << 63) - 1)


@pytest.mark.parametrize(
    ("amounts", "setting"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 1, "workers": -1}, "workers"),
        ({"batch_size": 1, "seed": -1}, "seed"),
        ({"batch_size": 1, "seed": 1 << 63}, "seed"),
    ],
)
def test_others_are_refused_by_their_name(amounts: dict[str, int], setting: str) -> None:
    with pytest.raises(UserError, match=f"^{setting}: expected") as refused:
        check_amounts(**amounts)
    assert refused.value.setting == setting
