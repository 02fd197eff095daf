from __future__ import annotations

from manyview.core.digest import digest


def test_it_stands_for_a_value_whatever_the_order_of_its_keys() -> None:
    assert digest({"a": 1, "b": [2, "ü"]}) == digest({"b": [2, "ü"], "a": 1}) != digest({"a": 1, "b": [3, "ü"]})
    assert len(digest(None)) == 32
