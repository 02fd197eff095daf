"""A step on fake CUDA tensors: a tensor made on the CPU, or a hidden wait for the device, fails without any GPU.

Forward only: the backward pass needs a driver. Where an image can lack a view, rows are dropped, which has to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode, unset_fake_temporarily

from manyview import losses
from manyview.encoders import Slot, Towers, create, heads, split_batch_norm
from manyview.encoders.map_heads import MapHead
from manyview.losses.prediction import bins
from manyview.memories import BankMemory, Memory, Queue, QueueMemory, bank, queue
from manyview.methods import METHODS, Alignment, BatchOutputs, Contrast, Method, Prediction, cmc_patch, split_brain
from manyview.methods.contrast import total
from manyview.methods.embeddings import Embeddings
from manyview.methods.method import VIEW
from manyview.methods.terms import keys, queries
from manyview.methods.topologies import (
    Topology,
    each_copy,
    each_copy_against_keys,
    each_key_against_other_queries,
    each_query_against_other_keys,
    every_copy,
    query_against_keys,
    query_against_keys_and_queries,
    view_pairs,
)
from tests.methods.small import ONE_VIEW, SMALL_PARTS

N, DIM, SIDE = 6, 8, 16
QUEUED = ("moco_v1", "moco_v2", "multikey", "cacr_moco", "align_uniform_moco")
Made = TypeVar("Made", bound=nn.Module)


@pytest.fixture(autouse=True)
def fake() -> Iterator[None]:
    with FakeTensorMode():
        yield


def cuda(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda")


def ids() -> Tensor:
    return torch.arange(N, device="cuda")


def images(copies: int, channels: int = 3) -> list[Tensor]:
    return [cuda(N, channels, SIDE, SIDE) for _ in range(copies)]


def encoder(channels: int = 3) -> Any:
    return create("patchnet", channels=channels, size=SIDE, widths=(8, 12), blocks=(1, 1))


def built(make: Callable[[], Made]) -> Made:
    """A module made of real tensors, which a copy needs, and then moved to the device that is not there."""
    with unset_fake_temporarily():
        made = make()
    for part in made.modules():
        for name, given in part._parameters.items():
            if given is not None:
                part._parameters[name] = nn.Parameter(_moved(given), given.requires_grad)
        for name, buffer in part._buffers.items():
            part._buffers[name] = None if buffer is None else _moved(buffer)
    return made


def _moved(real: Tensor) -> Tensor:
    return torch.empty(real.shape, dtype=real.dtype, device="cuda")


def towers(**options: Any) -> Towers:
    return built(lambda: Towers(encoder(), partial(heads.mlp, dim_out=DIM), **options))


def on_cuda(found: Tensor) -> None:
    assert found.device.type == "cuda"


def test_a_hidden_wait_and_a_tensor_elsewhere_would_fail() -> None:
    """That the rest of this file can fail at all."""
    with pytest.raises(DataDependentOutputException):
        bool(cuda(3).sum() > 0)
    with pytest.raises(RuntimeError, match="device"):
        cuda(3) + torch.ones(3)


def decoder(dim: int) -> nn.Module:
    return nn.Sequential(nn.Linear(dim, 3 * 4), nn.Unflatten(1, (3, 2, 2)))


PREDICTOR = partial(heads.mlp, dim_out=DIM)
TOWERS: dict[str, dict[str, Any]] = {
    "joint": {},
    "one by one": {"joint": False},
    "momentum": {"momentum": 0.9},
    "shuffled": {"momentum": 0.9, "shuffle": 3},
    "shuffled, without momentum": {"shuffle": 3},
    "predictor": {"predictor": PREDICTOR, "momentum": 0.9, "normalize": False},
    "heads": {"heads": {"decoded": decoder}},
    "a head for maps": {"heads": {"positions": MapHead("stage1", partial(heads.linear, dim_out=DIM))}},
}


@pytest.mark.parametrize("options", TOWERS.values(), ids=TOWERS.keys())
def test_towers(options: dict[str, Any]) -> None:
    made = towers(**options)
    names = ["embedding", "projection", "features", "maps.stage1", *options.get("heads", {})]
    slots = [Slot(branch, VIEW, copy, name) for branch in ("query", "key") for copy in range(2) for name in names]
    for output in made({VIEW: images(2)}, slots, step=3).values():
        on_cuda(output)
        assert len(output) == N
    made.update(1, 10)


def test_split_batch_norm() -> None:
    made = built(
        lambda: split_batch_norm(Towers(encoder(), partial(heads.mlp, dim_out=DIM), momentum=0.9, shuffle=1), 2)
    )
    assert isinstance(made, Towers)
    on_cuda(made.keys(images(1)[0], step=2))


def test_a_tower_for_each_view() -> None:
    made = built(lambda: Towers({"a": encoder(1), "b": encoder(2)}, None))
    found = made({"a": images(1, 1), "b": images(1, 2)}, [Slot("query", "a", 0), Slot("key", "b", 0)])
    assert [output.device.type for output in found.values()] == ["cuda"] * 2


def of_queue(within_batch: float = 0.0) -> Memory:
    return built(lambda: queue(DIM, size=20, enqueue="each", within_batch=within_batch))


def of_bank(**options: Any) -> Memory:
    def make() -> Memory:
        memory = bank(DIM, m=5, **options)
        memory.start(50)
        return memory

    return built(make)


MEMORIES: dict[str, Callable[[], Memory]] = {
    "batch": Memory,
    "queue": of_queue,
    "queue and batch": partial(of_queue, 0.5),
    "bank": of_bank,
    "bank of negatives": partial(of_bank, stored=False),
}
TOPOLOGIES: dict[str, tuple[Topology, int, int]] = {
    "every_copy": (every_copy, 3, 0),
    "each_copy": (each_copy, 3, 0),
    "query_against_keys": (query_against_keys, 1, 2),
    "query_against_keys_and_queries": (query_against_keys_and_queries, 1, 2),
    "each_key_against_other_queries": (each_key_against_other_queries, 2, 2),
    "each_query_against_other_keys": (each_query_against_other_keys, 3, 2),
    "each_copy_against_keys": (each_copy_against_keys, 3, 3),
}
BATCH_ALONE: dict[str, tuple[Topology, int, int]] = {
    "view_pairs": (view_pairs, 3, 0),
}
ARRANGED = [
    *((name, *each, memory) for name, each in TOPOLOGIES.items() for memory in MEMORIES),
    *((name, *each, "batch") for name, each in BATCH_ALONE.items()),
]


@pytest.mark.parametrize(
    ("topology", "count", "key_count", "memory"),
    [each[1:] for each in ARRANGED],
    ids=[f"{each[0]}, {each[-1]}" for each in ARRANGED],
)
def test_topologies(topology: Topology, count: int, key_count: int, memory: str) -> None:
    made = [nn.functional.normalize(cuda(N, DIM), dim=1).requires_grad_() for _ in range(count + key_count)]
    triples = topology(Embeddings(made[:count], ids(), made[count:], ids() + 20, step=4), MEMORIES[memory]())
    for triple in triples:
        on_cuda(triple.positives)
        for source in triple.negatives.sources:
            on_cuda(source.keys)
    on_cuda(total(triples, losses.info_nce))


@pytest.mark.parametrize("name", ONE_VIEW)
def test_methods(name: str) -> None:
    small = partial(heads.mlp, dim_out=DIM)
    options = {"memory": partial(queue, size=20, enqueue="each", within_batch=1.0)} if name in QUEUED else {}
    method = built(lambda: METHODS[name](encoder(), head=small, **options, **SMALL_PARTS.get(name, {})).start(50))
    outputs = method({VIEW: images(method.views[VIEW])}, 1)
    batch = BatchOutputs(outputs, ids(), ids() + 20, step=1)
    on_cuda(method.objective(batch).loss)
    method.update(batch, 1, 10)


@pytest.mark.parametrize("make", [cmc_patch, split_brain, partial(split_brain, distance=partial(bins, classes=3))])
def test_patches_and_predictions(make: Callable[..., Method]) -> None:
    method = built(lambda: make({"a": encoder(1), "b": encoder(2)}))
    batch = BatchOutputs(method({"a": images(1, 1), "b": images(1, 2)}, 0), ids(), ids() + 20)
    on_cuda(method.objective(batch).loss)
    method.update(batch, 0, 1)


def test_terms_of_two_views_with_a_bank_each() -> None:
    def make() -> Method:
        kept = {view: bank(DIM, m=5) for view in "ab"}
        terms = [
            Contrast(query_against_keys, losses.info_nce, queries(i, 0), keys(j, 0), memory=kept[j], name=i + j)
            for i, j in ("ab", "ba")
        ]
        towers = Towers({"a": encoder(1), "b": encoder(2)}, partial(heads.mlp, dim_out=DIM))
        return Method(views={"a": 1, "b": 1}, towers=towers, terms=terms, memories=kept).start(50)

    method = built(make)
    batch = BatchOutputs(method({"a": images(1, 1), "b": images(1, 2)}, 0), ids(), ids() + 20)
    on_cuda(method.objective(batch).loss)
    method.update(batch, 0, 1)


def test_nce_once_its_partition_is_known() -> None:
    """The first batch waits: nobody knows yet whether Z has been estimated."""
    memory = of_bank()
    assert isinstance(memory, BankMemory)
    memory.bank._estimated = {0}
    query, key = Slot("query", "a", 0), Slot("key", "b", 0)
    term = Contrast(query_against_keys, losses.nce, [query], [key], memory=memory)
    on_cuda(term(BatchOutputs({query: cuda(N, DIM), key: cuda(N, DIM)}, ids(), ids() + 20)).loss)


@pytest.mark.parametrize("missing", [False, True])
def test_prediction_and_alignment(missing: bool) -> None:
    predicted, target = Slot("query", "a", 0, "decoded"), Slot("input", "b", 0, "view")
    query, key = Slot("query", "a", 0), Slot("key", "b", 0)
    outputs = {predicted: cuda(N, 3, 2, 2), target: cuda(N, 3, 2, 2), query: cuda(N, DIM), key: cuda(N, DIM)}
    present = {view: torch.ones(N, dtype=torch.bool, device="cuda") for view in "ab"} if missing else {}
    batch = BatchOutputs(outputs, ids(), ids(), present)
    for term in (Prediction(predicted, target), Alignment([query], [key])):
        on_cuda(term(batch).loss)


def test_a_queue_of_any_start() -> None:
    memory = built(lambda: QueueMemory(Queue(20, DIM), "mean"))
    memory.update([cuda(N, DIM)] * 3, ids(), ids())
    on_cuda(memory.negatives(ids(), ids(), step=0).sources[0].keys)
