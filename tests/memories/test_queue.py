from __future__ import annotations

import io

import pytest
import torch
from torch import Tensor

from manyview.losses import info_nce
from manyview.memories import Queue, QueueMemory
from manyview.memories import queue as as_memory
from manyview.memories.queue import NO_ID, Enqueue

IDS = torch.tensor([3, 1, 4])


def rows(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)[:, None].expand(-1, 3)


def held(queue: Queue) -> list[int]:
    return [int(v) for v in queue.keys[:, 0]]


def test_it_starts_as_unit_noise() -> None:
    queue = Queue(50, 8)
    assert torch.allclose(queue.keys.norm(dim=1), torch.ones(50))
    assert queue.ready
    assert queue.keys.std(0).min() > 0.1


def test_the_same_generator_gives_the_same_start() -> None:
    a, b = (Queue(5, 3, generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(a.keys, b.keys)


def test_first_in_first_out_with_batches_that_do_not_divide_it() -> None:
    queue, expected = Queue(7, 3, start="empty"), [0] * 7
    value = pointer = 0
    for size in (3, 3, 5, 1, 7, 2, 4):
        batch = [value + i + 1 for i in range(size)]
        value += size
        for v in batch:
            expected[pointer] = v
            pointer = (pointer + 1) % 7
        queue.enqueue(rows(*batch))
        assert held(queue) == expected
        assert int(queue.pointer) == pointer
        assert sorted(v for v in held(queue) if v) == list(range(max(1, value - 6), value + 1))


def test_a_batch_larger_than_the_queue_leaves_its_newest_keys() -> None:
    queue = Queue(3, 3)
    queue.enqueue(rows(1, 2, 3, 4, 5, 6, 7, 8))
    assert sorted(held(queue)) == [6, 7, 8]
    queue.enqueue(rows(9))
    assert sorted(held(queue)) == [7, 8, 9]


def test_an_empty_queue_fills_first_and_gives_no_negatives_until_then() -> None:
    queue = Queue(4, 3, start="empty")
    queue.enqueue(rows(1, 2, 3))
    assert not queue.ready
    with pytest.raises(ValueError, match="holds 3 of 4 keys"):
        queue.negatives()
    queue.enqueue(rows(4))
    assert queue.ready
    assert queue.negatives().sources[0].keys is queue.keys


def test_keys_are_kept_as_they_are_and_carry_no_gradient() -> None:
    queue = Queue(2, 3)
    short = torch.full((2, 3), 0.1, requires_grad=True)
    queue.enqueue(short)
    assert torch.equal(queue.keys, short)
    assert not queue.keys.requires_grad


def test_a_key_of_the_same_image_is_not_a_negative() -> None:
    queue, query = Queue(3, 3), torch.randn(2, 3)
    queue.enqueue(torch.randn(3, 3), torch.tensor([10, 11, 12]))
    with_ids = info_nce(query, query[:, None], queue.negatives(torch.tensor([11, 99])), reduction="none")
    without_own = Queue(2, 3)
    without_own.enqueue(queue.keys[[0, 2]])
    assert torch.allclose(with_ids[0], info_nce(query[:1], query[:1, None], without_own.negatives()))
    assert torch.allclose(with_ids[1], info_nce(query[1:], query[1:, None], queue.negatives()))


def test_keys_without_ids_match_no_image() -> None:
    queue = Queue(3, 3)
    queue.enqueue(rows(1), torch.tensor([-1]))
    assert queue.ids.tolist().count(NO_ID) == 2
    assert queue.negatives(torch.tensor([-1])).sources[0].key_ids is queue.ids


def test_it_is_saved_and_restored_whole() -> None:
    queue = Queue(5, 3)
    queue.enqueue(rows(1, 2, 3), torch.tensor([7, 8, 9]))
    file = io.BytesIO()
    torch.save(queue.state_dict(), file)
    file.seek(0)
    other = Queue(5, 3, start="empty")
    other.load_state_dict(torch.load(file, weights_only=True))
    for q in (queue, other):
        q.enqueue(rows(4, 5, 6), torch.tensor([1, 2, 3]))
    assert all(torch.equal(a, b) for a, b in zip(queue.buffers(), other.buffers(), strict=True))
    assert other.ready


def test_backward_after_an_early_update_is_an_error_or_right_never_silently_wrong() -> None:
    queue, query = Queue(4, 3), torch.randn(2, 3, requires_grad=True)
    loss = info_nce(query, torch.randn(2, 1, 3), queue.negatives())
    (expected,) = torch.autograd.grad(loss, query, retain_graph=True)
    queue.enqueue(torch.randn(4, 3))
    (after,) = torch.autograd.grad(loss, query)
    assert torch.equal(after, expected)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Queue(0, 3), "size and dim"),
        (lambda: Queue(3, 3, start="full"), "start: .*'full'"),  # type: ignore[arg-type]
        (lambda: Queue(3, 3).enqueue(torch.randn(2, 4)), r"keys: expected \(B, 3\), got \(2, 4\)"),
        (lambda: Queue(3, 3).enqueue(torch.randn(2, 3), torch.arange(3)), r"ids: expected \(2,\).*\(3,\)"),
    ],
)
def test_bad_arguments_are_named(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]


def keys(copies: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(3, 2, generator=generator) for _ in range(copies)]


def made(enqueue: Enqueue, size: int = 8) -> QueueMemory:
    found = as_memory(2, size=size, enqueue=enqueue)
    assert isinstance(found, QueueMemory)
    return found


def test_as_a_memory_it_leaves_the_batch_out_unless_that_is_given_a_weight() -> None:
    assert as_memory(2, size=4).within_batch == 0.0
    assert as_memory(2, size=4, within_batch=0.5).within_batch == 0.5
    assert as_memory(2, size=4).size == 4


def test_its_negatives_are_all_keys_with_ids_on_both_sides() -> None:
    each = made("each")
    each.update(keys(1), IDS, IDS)
    (source,) = each.negatives(torch.tensor([1, 9]), torch.tensor([0, 1]), step=5).sources
    assert source.keys is each.queue.keys
    assert source.key_ids is each.queue.ids
    assert source.query_ids is not None
    assert source.query_ids.tolist() == [1, 9]
    assert source.weight == 1.0
    assert each.positives(IDS) is None


@pytest.mark.parametrize(
    ("enqueue", "expected", "ids"),
    [
        ("mean", lambda copies: torch.stack(copies).mean(0), [3, 1, 4]),
        ("last", lambda copies: copies[-1], [3, 1, 4]),
        ("each", torch.cat, [3, 1, 4, 3, 1, 4]),
    ],
)
def test_what_goes_in_of_several_keys(enqueue: Enqueue, expected: object, ids: list[int]) -> None:
    each, copies = made(enqueue), keys(2)
    before = each.queue.keys.clone()
    each.update(copies, IDS, IDS)
    wanted = expected(copies)  # type: ignore[operator]
    assert torch.equal(each.queue.keys[: len(ids)], wanted)
    assert each.queue.ids[: len(ids)].tolist() == ids
    assert torch.equal(each.queue.keys[len(ids) :], before[len(ids) :])


def test_one_key_is_the_same_in_all_three_ways() -> None:
    for enqueue in ("mean", "last", "each"):
        each = made(enqueue)
        each.update(keys(1), IDS, IDS)
        assert torch.equal(each.queue.keys[:3], keys(1)[0])


def test_a_memory_smaller_than_the_batch_holds_the_newest() -> None:
    each = made("each", size=2)
    each.update(keys(2), IDS, IDS)
    assert sorted(each.queue.ids.tolist()) == [1, 4]


def test_all_of_a_memory_is_in_the_state_dict() -> None:
    each, other = made("each"), made("each")
    each.update(keys(1), IDS, IDS)
    other.load_state_dict(each.state_dict())
    assert set(each.state_dict()) == {f"queue.{name}" for name in ("keys", "ids", "pointer", "filled")}
    for mine in (each, other):
        mine.update(keys(2), IDS, IDS)
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in each.state_dict().items())


def test_the_same_generator_makes_the_same_memory() -> None:
    first, second = (as_memory(2, size=5, generator=torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first.state_dict()["queue.keys"], second.state_dict()["queue.keys"])


def test_what_a_memory_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="enqueue: expected one of mean, last, each, got 'first'"):
        as_memory(2, enqueue="first")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="size and dim: expected at least 1 each, got size 0"):
        as_memory(2, size=0)
