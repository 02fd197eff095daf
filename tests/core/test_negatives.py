from __future__ import annotations

import pytest
import torch

from manyview.core.negatives import Negatives
from manyview.losses import info_nce

KEYS = torch.randn(5, 3)
IDS = torch.arange(5)


def test_negatives_are_one_type_under_three_names() -> None:
    import manyview.memories

    assert manyview.Negatives is Negatives is manyview.memories.Negatives


def test_one_call_builds_one_source() -> None:
    (source,) = Negatives(KEYS, IDS, IDS[:2]).sources
    assert source.keys is KEYS
    assert source.key_ids is IDS
    assert source.weight == 1


def test_joining_copies_nothing_and_keeps_the_order() -> None:
    a, b = Negatives(KEYS), Negatives(torch.randn(2, 4, 3))
    joined = a + b
    assert [s.keys.data_ptr() for s in joined.sources] == [s.keys.data_ptr() for s in a.sources + b.sources]
    assert len(a.sources) == len(b.sources) == 1
    with pytest.raises(TypeError):
        a + KEYS  # type: ignore[operator]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keys": KEYS[0]}, r"keys: .*\(3,\)"),
        ({"keys": IDS[:, None]}, "keys: expected floats.*int64"),
        ({"keys": KEYS, "key_ids": IDS}, "key_ids and query_ids: give both"),
        ({"keys": KEYS, "query_ids": IDS}, "key_ids and query_ids: give both"),
        ({"keys": KEYS, "key_ids": IDS[:4], "query_ids": IDS}, r"key_ids: expected shape \(5,\).*\(4,\)"),
        ({"keys": KEYS, "key_ids": IDS, "query_ids": IDS[:, None]}, r"query_ids: expected shape \(N,\)"),
        ({"keys": KEYS, "key_ids": IDS.float(), "query_ids": IDS}, "key_ids: expected integers, got torch.float32"),
        ({"keys": KEYS[None], "key_ids": IDS[None], "query_ids": IDS}, r"query_ids: .*\(1, 5, 3\).*\(5,\)"),
        ({"keys": KEYS, "index": IDS}, "index: expected int64"),
        ({"keys": KEYS, "index": IDS[None].int()}, "index: expected int64"),
        ({"keys": KEYS[None], "index": IDS[None]}, "index: expected int64"),
        ({"keys": KEYS, "index": IDS[None] + 1}, "index: expected rows 0 to 4 of the keys, got 1 to 5"),
        ({"keys": KEYS, "weight": 0.0}, "weight: expected a positive number, got 0.0"),
        ({"keys": KEYS[None], "split": (1, 1)}, "split: needs shared keys"),
        ({"keys": KEYS, "split": (1, 6)}, "split: .*6"),
        ({"keys": KEYS.to("meta"), "key_ids": IDS, "query_ids": IDS}, "key_ids: is on cpu, the keys are on meta"),
        ({"keys": KEYS.to("meta"), "index": IDS[None]}, "index: is on cpu, the keys are on meta"),
    ],
)
def test_what_cannot_be_negatives_is_refused_when_built(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Negatives(**arguments)  # type: ignore[arg-type]


def test_keys_on_another_device_are_refused() -> None:
    with pytest.raises(ValueError, match="negatives: keys are on meta, the query is on cpu"):
        info_nce(KEYS, KEYS[:, None], Negatives(KEYS.to("meta")))


def test_a_split_is_for_the_queries_it_names() -> None:
    with pytest.raises(ValueError, match="split: 9 is beyond the 5 queries"):
        info_nce(KEYS, KEYS[:, None], Negatives(KEYS, split=(9, 2)))


def test_keys_that_are_the_queries_need_ids() -> None:
    with pytest.raises(ValueError, match="negatives: the keys are the queries; give ids"):
        info_nce(KEYS, KEYS[:, None], Negatives(KEYS))
