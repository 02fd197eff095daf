"""Two real processes with a part of the batch each have the gradient of one process with the whole batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from manyview import losses
from manyview.core import distributed
from manyview.core.distributed import (
    Agreement,
    Gather,
    RemoteError,
    average_over_processes_,
    equal_shares,
    exchange,
    fail_together,
    gather,
    gather_all,
    join_lists,
    join_processes,
    no_gather,
    permute_rows,
    rank,
    sum_over_processes,
    world_size,
)
from manyview.core.errors import UserError
from manyview.core.negatives import Negatives, Triple
from manyview.memories import BankMemory, Memory, MemoryBank, Queue, QueueMemory
from manyview.methods.contrast import contrast, total
from manyview.methods.embeddings import Embeddings
from manyview.methods.topologies import (
    core_view,
    each_copy,
    each_copy_against_keys,
    each_key_against_other_queries,
    every_copy,
    full_graph,
    query_against_keys,
    query_against_keys_and_queries,
    view_pairs,
)
from tests.two_processes import Found, in_two_processes

VIEWS, IMAGES, INPUTS, DIM = 3, 8, 6, 4
SHARES = {"even": (4, 4), "uneven": (5, 3), "one empty": (8, 0)}


class Batch:
    """The rows of one process: raw views, ids, present views; a queue and a bank that all processes have alike."""

    def __init__(self, rows: slice) -> None:
        generator = torch.Generator().manual_seed(0)
        draw = functools.partial(torch.randn, generator=generator, dtype=torch.float64)
        self.raw = draw(VIEWS, IMAGES, INPUTS)[:, rows]
        self.weights = [draw(INPUTS, DIM) for _ in range(2)]  # of the encoder and of the key encoder
        self.queue = F.normalize(draw(10, DIM), dim=1)
        self.queue_ids = torch.tensor([3, 100, 101, 5, 102, 103, 104, 105, 106, 107])
        self.bank = F.normalize(draw(20, DIM), dim=1)
        self.ids = torch.tensor([0, 1, 2, 3, 4, 5, 1, 7])[rows]  # image 1 is there twice
        self.present = (torch.rand(VIEWS, IMAGES, generator=generator) > 0.3)[:, rows]

    def in_queue(self, within_batch: float = 0.0) -> Memory:
        held = Queue(10, DIM).double()
        held.enqueue(self.queue, self.queue_ids)
        return QueueMemory(held, within_batch=within_batch)

    def in_bank(self, *, stored: bool) -> Memory:
        memory = BankMemory(DIM, m=7, stored=stored, generator=torch.Generator().manual_seed(2))
        memory.start(20)
        memory.bank.vectors = self.bank
        return memory

    def embedded(
        self, join: Gather, queries: list[Tensor], keys: list[Tensor] | None = None, **more: Any
    ) -> Embeddings:
        return Embeddings(queries, self.ids, keys or [], gather=join, **more)

    def torn(self, views: list[Tensor]) -> list[Tensor]:
        """What a missing view holds must never be read: NaN."""
        return [view.masked_fill(~here[:, None], torch.nan) for view, here in zip(views, self.present, strict=True)]


Arranged = Callable[[Batch, list[Tensor], list[Tensor], Gather], list[Triple]]
ALONE = Memory()

TOPOLOGIES: dict[str, Arranged] = {
    "every_copy": lambda b, z, k, g: every_copy(b.embedded(g, z), ALONE),
    "each_copy": lambda b, z, k, g: each_copy(b.embedded(g, z), ALONE),
    "query_against_keys": lambda b, z, k, g: query_against_keys(b.embedded(g, z[:1], k[1:]), b.in_queue()),
    "keys with gradient": lambda b, z, k, g: query_against_keys(b.embedded(g, z[:1], z[1:]), ALONE),
    "keys and queries": lambda b, z, k, g: query_against_keys_and_queries(
        b.embedded(g, z[:1], k[1:]), b.in_queue(within_batch=0.5)
    ),
    "each key against other queries": lambda b, z, k, g: each_key_against_other_queries(b.embedded(g, z, k), ALONE),
    "queue": lambda b, z, k, g: each_copy_against_keys(b.embedded(g, z, k), b.in_queue()),
    "queue and batch": lambda b, z, k, g: each_copy_against_keys(b.embedded(g, z, k), b.in_queue(within_batch=0.5)),
    "core_view": lambda b, z, k, g: view_pairs(b.embedded(g, z), ALONE, edges=core_view(range(VIEWS), [0])),
    "full_graph": lambda b, z, k, g: view_pairs(b.embedded(g, z), ALONE, edges=full_graph(range(VIEWS))),
    "missing views": lambda b, z, k, g: view_pairs(b.embedded(g, b.torn(z), present=list(b.present)), ALONE),
    "bank": lambda b, z, k, g: query_against_keys(b.embedded(g, z[:1], z[1:2]), b.in_bank(stored=False)),
    "positives of a bank": lambda b, z, k, g: query_against_keys(b.embedded(g, z[:1], z[1:]), b.in_bank(stored=True)),
    "missing positives": lambda b, z, k, g: query_against_keys(
        b.embedded(g, z[:1], z[1:], keys_present=list(b.present[1:])), b.in_queue()
    ),
    "missing queries and keys": lambda b, z, k, g: query_against_keys(
        b.embedded(g, b.torn(z)[:1], b.torn(z)[1:], present=list(b.present[:1]), keys_present=list(b.present[1:])),
        ALONE,
    ),
}
LOSSES: dict[str, Callable[..., Tensor]] = {
    "info_nce": losses.info_nce,
    "dcl": losses.dcl,
    "dclw": functools.partial(losses.dcl, sigma=0.5),
    "dclw detached": functools.partial(losses.dcl, sigma=0.5, detach_weights=True),
    "jcl": losses.jcl,
    "cacr": losses.cacr,
    "cacr rbf": functools.partial(losses.cacr, cost="rbf"),
    "cacr inner": functools.partial(losses.cacr, cost="inner", detach_weights=True),
    "cacr triplet": functools.partial(losses.cacr, margin=0.5),
    "attraction": losses.attraction,
    "repulsion": losses.repulsion,
    "hard_negative": losses.hard_negative,
    "nce": functools.partial(losses.nce, population=20, partition=300.0),
    "align_uniform": losses.align_uniform,
}


def gradients(rows: slice, join: Gather) -> dict[str, Tensor]:
    """Loss and encoder gradient for every topology and loss, averaged over the processes as DDP does."""
    batch, found = Batch(rows), {}
    for where, topology in TOPOLOGIES.items():
        for name, loss in LOSSES.items():
            weight = batch.weights[0].clone().requires_grad_()
            z = [F.normalize(raw @ weight, dim=1) for raw in batch.raw]
            k = [F.normalize(raw @ batch.weights[1], dim=1) for raw in batch.raw]
            value = total(topology(batch, z, k, join), loss, gather=join)
            torch.autograd.backward(value)
            assert weight.grad is not None
            if world_size() > 1:
                dist.all_reduce(weight.grad)
            found[f"{where}: {name}"] = torch.cat([value.detach()[None], weight.grad.flatten() / world_size()])
    return found


def parts(rows: slice, join: Gather) -> dict[str, Tensor]:
    """What is not a loss: gathering itself, a queue and a bank fed with gathered rows, NCE's Z."""
    batch = Batch(rows)
    queue, bank = Queue(5, INPUTS, start="empty"), MemoryBank(8, INPUTS, generator=torch.Generator().manual_seed(1))
    queue.enqueue(join(batch.raw[0]), join(batch.ids))
    bank.update(join(batch.ids), join(batch.raw[1]))
    z = F.normalize(batch.raw[0] @ batch.weights[0], dim=1)
    partition = losses.nce_partition(z, z[:, None], Negatives(batch.queue), population=20, gather=join)
    return {
        "rows": join(batch.raw[2]),
        "ids": join(batch.ids),
        "flags": join(batch.present.T),
        "queue": queue.keys,
        "queue ids": queue.ids,
        "bank": bank.vectors,
        "partition": partition[None],
    }


def mixed(rows: slice) -> list[Tensor]:
    """Tensors of several types and shapes with a row each: what one collective is to carry."""
    generator = torch.Generator().manual_seed(3)
    draw = functools.partial(torch.randn, generator=generator)
    made = [
        draw(IMAGES, 3).requires_grad_(),
        draw(IMAGES, 2, 5, dtype=torch.float64).requires_grad_(),
        torch.arange(IMAGES) - 2**40,
        draw(IMAGES) > 0,
        draw(IMAGES, 1).bfloat16(),
        draw(IMAGES, dtype=torch.float16).requires_grad_(),
        draw(IMAGES, 4),  # keys, of a momentum tower
        torch.randint(256, (IMAGES, 3), generator=generator, dtype=torch.uint8),
    ]
    return [each[rows].detach().requires_grad_(each.requires_grad) for each in made]


def gathered_together(shares: tuple[int, ...], rows: slice) -> Found:
    """`gather_all` of them, its gradient, and how many collectives both took."""
    tensors = mixed(rows)
    with Counted() as forward:
        found = gather_all(tensors, shares)
    value = sum((each.double() * torch.arange(1.0, 1 + each.numel()).view_as(each)).sum() for each in found)
    assert isinstance(value, Tensor)
    with Counted() as backward:
        value.backward()
    result: Found = {f"mixed {number}": each.detach() for number, each in enumerate(found)}
    result |= {
        f"gradient {n}": gather(each.grad / world_size()) for n, each in enumerate(tensors) if each.grad is not None
    }
    result["fixed"] = [each.requires_grad for each in found]
    if world_size() > 1:
        assert (forward.calls, backward.calls) == (["all_gather"], ["all_reduce"])
    return result


class Counted:
    """The collectives that are called inside, in their order."""

    NAMES = ("all_gather", "all_reduce", "broadcast", "reduce", "gather", "scatter", "barrier", "all_to_all", "send")

    def __enter__(self) -> Counted:
        self.calls: list[str] = []
        self._real = {name: getattr(dist, name) for name in dir(dist) if name.startswith(self.NAMES)}
        for name, real in self._real.items():
            if callable(real):
                setattr(dist, name, functools.partial(self._note, name, real))
        return self

    def _note(self, name: str, real: Callable[..., Any], *given: Any, **options: Any) -> Any:
        self.calls.append(name)
        return real(*given, **options)

    def __exit__(self, *_: object) -> None:
        for name, real in self._real.items():
            setattr(dist, name, real)


def failures() -> Found:
    """Each case: who fails with what, by process."""
    found: Found = {}
    for case, who in {"nobody": (), "the first": (0,), "the second": (1,), "both": (0, 1)}.items():
        for way in ("fail_together", "agreement"):
            try:
                _fail(way, rank() in who)
                found[f"{way}: {case}"] = "nothing"
            except (RemoteError, OSError) as error:
                found[f"{way}: {case}"] = f"{type(error).__name__}: {error}"
    return found


def _fail(way: str, fails: bool) -> None:
    def attempt() -> None:
        if fails:
            raise OSError(f"disc {rank()} is full")

    if way == "fail_together":
        with fail_together():
            attempt()
        return
    agreement = Agreement()
    with agreement.attempt():
        attempt()
    with agreement.attempt():  # the first error counts
        if fails:
            raise ValueError("a second")
    agreement.settle()


ORDER = torch.tensor([6, 0, 3, 7, 1, 5, 4, 2])  # of the rows of all processes


def permuted(shares: tuple[int, ...], rows: slice) -> Found:
    """Rows in another order and back again, each way of weighing them with its gradient."""
    given, after = Batch(rows).raw[0].requires_grad_(), equal_shares(IMAGES)
    with Counted() as forward:
        moved = permute_rows(given, ORDER, shares, after)
    back = permute_rows(moved, ORDER.argsort(), after, shares)
    weigh = torch.arange(1.0, 1 + IMAGES)[:, None].split(after)[rank()]
    with Counted() as backward:
        (weigh * moved.square()).sum().backward()
    if world_size() > 1:
        assert (forward.calls, backward.calls) == (["all_to_all_single"], ["all_to_all_single"])
    assert torch.equal(back, given)
    assert given.grad is not None
    flags = permute_rows(torch.arange(IMAGES)[rows] % 2 == 0, ORDER, shares, after)  # one byte a row
    return {"permuted": gather(moved.detach()), "permuted gradient": gather(given.grad), "flags": gather(flags)}


def work(rank: int) -> Found:
    found: Found = {}
    means = [torch.full((2,), rank + 1.0), torch.tensor(2.0 - rank, dtype=torch.float32)]
    average_over_processes_(means)
    found["means"] = means
    for name, shares in SHARES.items():
        start = sum(shares[:rank])
        rows = slice(start, start + shares[rank])
        made = {**gradients(rows, gather), **parts(rows, gather), **gathered_together(shares, rows)}
        made |= permuted(shares, rows)
        found |= {f"{name}, {key}": value for key, value in made.items()}
    with pytest.raises(ValueError, match="ids: needed with several processes"):
        contrast([torch.randn(2, 3)] * 2, gather=gather)
    single = [torch.tensor([True]), torch.tensor([[1.5, 2.5]], dtype=torch.float64)]
    one, other = gather_all([each[: 1 - rank] for each in single], (1, 0))  # a row that is not where bytes are aligned
    found["single"] = [one, other]
    found["words"] = exchange([rank, 2.5, -1.0])
    row = torch.tensor([1.0 + rank, 2.0], requires_grad=True)
    total = sum_over_processes(row)
    (total * torch.tensor([3.0, 5.0 + rank])).sum().backward()
    assert row.grad is not None
    found["sum"] = [total.detach(), row.grad, sum_over_processes(torch.tensor([[rank + 1]]))]
    found["lists"] = join_lists([f"of {rank}"] * (1 + rank))
    agreement = Agreement()
    found["agreed"] = [
        list(agreement.settle(stop=rank == 1, rows=3 + rank)),
        list(agreement.settle(save=rank == 0, rows=7)),
        list(agreement.settle()),
    ]
    return found | failures()


@functools.cache
def whole() -> dict[str, Any]:
    everything = slice(0, IMAGES)
    return {
        **gradients(everything, no_gather),
        **parts(everything, no_gather),
        **gathered_together((IMAGES,), everything),
        **permuted((IMAGES,), everything),
    }


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    return in_two_processes(work, tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("share", SHARES)
def test_two_processes_have_the_gradient_of_one(share: str, two: list[Found]) -> None:
    for found in two:
        for name, expected in whole().items():
            if isinstance(expected, Tensor):
                got = found[f"{share}, {name}"]
                assert got.dtype == expected.dtype
                torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9, msg=f"{name}, {share}")


def test_every_case_has_a_gradient_to_compare() -> None:
    for name, found in whole().items():
        if ":" in name:
            assert found.isfinite().all(), name
            assert found[1:].abs().max() > 1e-6, name


def test_what_had_no_gradient_has_none_when_it_is_gathered(two: list[Found]) -> None:
    """A loss does much less for keys that need none."""
    expected = [each.requires_grad for each in mixed(slice(None))]
    assert expected == [True, True, False, False, False, True, False, False]
    for found in two:
        assert all(found[f"{share}, fixed"] == expected for share in SHARES)


def test_rows_of_all_processes_change_places() -> None:
    expected = Batch(slice(0, IMAGES)).raw[0]
    assert torch.equal(whole()["permuted"], expected[ORDER])
    gradient = 2 * expected * (1 + ORDER.argsort())[:, None]
    torch.testing.assert_close(whole()["permuted gradient"], gradient)


def test_shares_of_one_process_are_all() -> None:
    assert equal_shares(7) == [7]
    rows = [torch.ones(2)]
    average_over_processes_(rows)
    assert rows[0].tolist() == [1, 1]


def test_the_mean_over_processes_is_in_place(two: list[Found]) -> None:
    for found in two:
        assert [each.tolist() for each in found["means"]] == [[1.5, 1.5], 1.5]


def test_a_sum_over_processes_has_the_gradient_of_what_all_make_of_it(two: list[Found]) -> None:
    for found in two:
        assert [each.tolist() for each in found["sum"]] == [[3, 4], [6, 11], [[3]]]


def test_lists_of_all_processes_are_joined_in_their_order(two: list[Found]) -> None:
    for found in two:
        assert found["lists"] == ["of 0", "of 1", "of 1"]
    assert join_lists([3]) == [3]


def test_processes_that_torchrun_has_not_started_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert join_processes(cpu) == cpu
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    with pytest.raises(UserError, match="WORLD_SIZE: is 2, and torchrun has not started"):
        join_processes(cpu)


def test_one_row_of_two_processes_is_gathered(two: list[Found]) -> None:
    for found in two:
        flag, numbers = found["single"]
        assert flag.tolist() == [True]
        assert numbers.tolist() == [[1.5, 2.5]]


def test_a_status_word_says_what_every_process_says(two: list[Found]) -> None:
    for found in two:
        assert found["words"] == [[0.0, 2.5, -1.0], [1.0, 2.5, -1.0]]
        assert found["agreed"] == [[True, False, [3, 4]], [False, True, [7, 7]], [False, False, [0, 0]]]


@pytest.mark.parametrize("way", ["fail_together", "agreement"])
def test_what_fails_in_one_process_ends_all_and_is_told_once(way: str, two: list[Found]) -> None:
    cases = ("nobody", "the first", "the second", "both")
    first, second = ([found[f"{way}: {case}"] for case in cases] for found in two)
    assert first == [
        "nothing",
        "OSError: disc 0 is full",
        "RemoteError: process 1 has failed and says why",
        "OSError: disc 0 is full",
    ]
    assert second == [
        "nothing",
        "RemoteError: process 0 has failed and says why",
        "OSError: disc 1 is full",
        "RemoteError: process 0 has failed and says why",
    ]


def test_in_one_process_gathering_gives_the_tensor_itself() -> None:
    rows, ids = torch.randn(3, 2), torch.arange(3)
    assert gather(rows) is rows
    assert [each is given for each, given in zip(gather_all([rows, ids], ()), (rows, ids), strict=True)] == [True, True]
    assert gather_all([], (3,)) == []
    assert (world_size(), rank()) == (1, 0)


@pytest.mark.parametrize("time", [None, timedelta(minutes=90)])
def test_status_words_beside_gpus_are_waited_for_as_long_as_was_said(
    time: timedelta | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their group is one of CPUs, whose own patience is half an hour."""
    monkeypatch.setattr(distributed, "_control", [])
    monkeypatch.setattr(distributed, "_wait", [])
    monkeypatch.setattr(dist, "get_backend", lambda: "nccl")
    monkeypatch.setattr(dist, "new_group", lambda **given: given)
    if time is not None:
        distributed.wait_at_most(time)
    assert distributed._control_group() == {"backend": "gloo", "timeout": time}


def test_in_one_process_errors_pass_as_they_come() -> None:
    agreement = Agreement()
    with pytest.raises(OSError, match="full"), agreement.attempt():
        raise OSError("full")
    with pytest.raises(OSError, match="full"), fail_together():
        raise OSError("full")
    assert tuple(agreement.settle(stop=True, rows=4)) == (True, False, [4])
    assert exchange([1, 2]) == [[1, 2]]
