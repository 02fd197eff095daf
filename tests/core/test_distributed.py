"""Two real processes with a part of the batch each have the gradient of one process with the whole batch."""

from __future__ import annotations

import datetime
import functools
import multiprocessing
import os
import time
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from manyview import losses
from manyview.core.distributed import Gather, gather, no_gather, world_size
from manyview.core.negatives import Negatives, Triple
from manyview.memories import MemoryBank, Queue
from manyview.methods.topologies import (
    contrast,
    core_view,
    each_view,
    each_view_against_keys,
    every_view,
    full_graph,
    query_against_keys,
    total,
    view_pairs,
    views_against_keys,
)
from tests.patience import PATIENCE

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
        self.drawn = torch.randint(20, (IMAGES, 7), generator=generator)[rows]
        self.ids = torch.tensor([0, 1, 2, 3, 4, 5, 1, 7])[rows]  # image 1 is there twice
        self.present = (torch.rand(VIEWS, IMAGES, generator=generator) > 0.3)[:, rows]

    def in_queue(self) -> Negatives:
        return Negatives(self.queue, self.queue_ids, self.ids)


Topology = Callable[[Batch, list[Tensor], list[Tensor], Gather], list[Triple]]

TOPOLOGIES: dict[str, Topology] = {
    "every_view": lambda b, z, k, g: every_view(z, b.ids, gather=g),
    "each_view": lambda b, z, k, g: each_view(z, b.ids, gather=g),
    "query_against_keys": lambda b, z, k, g: query_against_keys(z[0], k[1:], b.in_queue()),
    "queue": lambda b, z, k, g: each_view_against_keys(z, k, b.in_queue(), b.ids, gather=g),
    "queue and batch": lambda b, z, k, g: each_view_against_keys(z, k, b.in_queue(), b.ids, within_batch=0.5, gather=g),
    "core_view": lambda b, z, k, g: view_pairs(z, b.ids, edges=core_view(VIEWS), gather=g),
    "full_graph": lambda b, z, k, g: view_pairs(z, b.ids, edges=full_graph(VIEWS), gather=g),
    "missing views": lambda b, z, k, g: view_pairs(_torn(z, b), b.ids, present=b.present, gather=g),
    "views_against_keys": lambda b, z, k, g: views_against_keys(z, k, b.ids, edges=[(0, 1), (1, 0)], gather=g),
    "bank": lambda b, z, k, g: query_against_keys(z[0], [z[1]], Negatives(b.bank, index=b.drawn)),
    "missing positives": lambda b, z, k, g: query_against_keys(z[0], z[1:], b.in_queue(), present=b.present[1:]),
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


def _torn(views: list[Tensor], batch: Batch) -> list[Tensor]:
    """What a missing view holds must never be read: NaN."""
    return [view.masked_fill(~here[:, None], torch.nan) for view, here in zip(views, batch.present, strict=True)]


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


def work(rank: int, folder: str) -> None:
    """One of two processes: leaves what it found for each way to share the images."""
    torch.set_num_threads(1)
    wait = datetime.timedelta(seconds=PATIENCE)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2, timeout=wait)
    found = {}
    for name, shares in SHARES.items():
        start = sum(shares[:rank])
        rows = slice(start, start + shares[rank])
        found[name] = {**gradients(rows, gather), **parts(rows, gather)}
    with pytest.raises(ValueError, match="ids: needed with several processes"):
        contrast([torch.randn(2, 3)] * 2, gather=gather)
    torch.save(found, f"{folder}/{rank}.part")
    os.replace(f"{folder}/{rank}.part", f"{folder}/{rank}.pt")
    while not os.path.exists(f"{folder}/{1 - rank}.pt"):
        time.sleep(0.05)
    os._exit(0)  # destroying the group can deadlock in PyTorch 2.4, and leaving it to the interpreter can abort


@functools.cache
def whole() -> dict[str, Tensor]:
    return {**gradients(slice(0, IMAGES), no_gather), **parts(slice(0, IMAGES), no_gather)}


@pytest.fixture(scope="module")
def in_two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Tensor]]]:
    """What each of two processes found."""
    folder, spawn = tmp_path_factory.mktemp("two"), multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=work, args=(rank, str(folder))) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=PATIENCE)
        assert process.exitcode == 0
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("shares", SHARES)
def test_two_processes_have_the_gradient_of_one(shares: str, in_two: list[dict[str, dict[str, Tensor]]]) -> None:
    for rank in range(2):
        found = in_two[rank][shares]
        assert found.keys() == whole().keys()
        for name, expected in whole().items():
            torch.testing.assert_close(found[name], expected, rtol=1e-9, atol=1e-9, msg=f"{name}, rank {rank}")


def test_every_case_has_a_gradient_to_compare() -> None:
    for name, found in whole().items():
        assert found.isfinite().all() if found.is_floating_point() else True, name
        if ":" in name:
            assert found[1:].abs().max() > 1e-6, name


def test_in_one_process_gathering_gives_the_tensor_itself() -> None:
    rows = torch.randn(3, 2)
    assert gather(rows) is rows
    assert world_size() == 1
