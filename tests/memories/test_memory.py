from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from manyview.memories import MEMORIES, Memory
from manyview.memories.memory import Enqueue, QueueMemory, batch, queue

IDS = torch.tensor([3, 1, 4])


def keys(views: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(3, 2, generator=generator) for _ in range(views)]


def made(enqueue: Enqueue, size: int = 8) -> QueueMemory:
    found = queue(2, size=size, enqueue=enqueue)
    assert isinstance(found, QueueMemory)
    return found


def test_the_batch_has_nobody_outside_and_keeps_nothing() -> None:
    each = batch(2)
    each.update(keys(2), IDS)
    assert each.outside(IDS) is None
    assert each.within_batch == 1.0
    assert not each.state_dict()


def test_a_queue_leaves_the_batch_out_unless_it_is_given_a_weight() -> None:
    assert queue(2, size=4).within_batch == 0.0
    assert queue(2, size=4, within_batch=0.5).within_batch == 0.5


def test_outside_is_the_whole_queue_with_ids_on_both_sides() -> None:
    each = made("each")
    each.update(keys(1), IDS)
    found = each.outside(torch.tensor([1, 9]))
    (source,) = found.sources
    assert source.keys is each.queue.keys
    assert source.key_ids is each.queue.ids
    assert source.query_ids is not None
    assert source.query_ids.tolist() == [1, 9]
    assert source.weight == 1.0


@pytest.mark.parametrize(
    ("enqueue", "expected", "ids"),
    [
        ("mean", lambda views: torch.stack(views).mean(0), [3, 1, 4]),
        ("last", lambda views: views[-1], [3, 1, 4]),
        ("each", torch.cat, [3, 1, 4, 3, 1, 4]),
    ],
)
def test_what_goes_in_of_several_keys(enqueue: Enqueue, expected: object, ids: list[int]) -> None:
    each, views = made(enqueue), keys(2)
    before = each.queue.keys.clone()
    each.update(views, IDS)
    wanted = expected(views)  # type: ignore[operator]
    assert torch.equal(each.queue.keys[: len(ids)], wanted)
    assert each.queue.ids[: len(ids)].tolist() == ids
    assert torch.equal(each.queue.keys[len(ids) :], before[len(ids) :])


def test_one_key_is_the_same_in_all_three_ways() -> None:
    for enqueue in ("mean", "last", "each"):
        each = made(enqueue)
        each.update(keys(1), IDS)
        assert torch.equal(each.queue.keys[:3], keys(1)[0])


def test_a_queue_smaller_than_the_batch_holds_the_newest() -> None:
    each = made("each", size=2)
    each.update(keys(2), IDS)
    assert sorted(each.queue.ids.tolist()) == [1, 4]


def test_all_of_a_queue_is_in_the_state_dict() -> None:
    each, other = made("each"), made("each")
    each.update(keys(1), IDS)
    other.load_state_dict(each.state_dict())
    assert set(each.state_dict()) == {f"queue.{name}" for name in ("keys", "ids", "pointer", "filled")}
    for mine in (each, other):
        mine.update(keys(2), IDS)
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in each.state_dict().items())


def test_the_same_generator_makes_the_same_queue() -> None:
    first, second = (queue(2, size=5, generator=torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first.state_dict()["queue.keys"], second.state_dict()["queue.keys"])


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_a_weight_that_is_none_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="within_batch: expected a weight of at least 0, got"):
        Memory(weight)
    with pytest.raises(ValueError, match="within_batch: expected a weight of at least 0, got"):
        queue(2, size=4, within_batch=weight)


def test_what_a_queue_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="enqueue: expected one of mean, last, each, got 'first'"):
        queue(2, enqueue="first")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="size and dim: expected at least 1 each, got size 0"):
        queue(2, size=0)


def test_the_table_names_them() -> None:
    assert {"batch": batch, "queue": queue} == MEMORIES
