"""Small things to try methods with: networks without batch norm, embeddings of the golden inputs, calls counted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from manyview.core.negatives import Triple
from manyview.encoders import Encoder, heads
from manyview.encoders.feature_maps import Backbone, module_outputs
from manyview.memories import Queue
from manyview.memories import memory as against
from manyview.memories.memory import Enqueue, QueueMemory
from manyview.methods import Method, Seen
from tests.golden import DOUBLE, unit
from tests.losses import oracle

SIDE, DIM = 4, 8  # of the images, and of the vectors
IDS = torch.arange(6)  # of the golden inputs' images


def plain(*, norm: bool = False, dropout: float = 0.0, seed: int = 0) -> Encoder:
    """An encoder for images (3, 4, 4), with batch norm only if asked for."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(3 * SIDE**2, 10)]
    layers += [nn.BatchNorm1d(10)] if norm else []
    layers += [nn.Dropout(dropout)] if dropout else []
    network = nn.Sequential(*layers, nn.Tanh(), nn.Linear(10, 9))
    return Encoder("plain", {"channels": 3, "size": SIDE}, Backbone(network, module_outputs([])))


def images(looks: int, count: int = 6, seed: int = 1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(count, 3, SIDE, SIDE, generator=generator, dtype=torch.float64) for _ in range(looks)]


def doubled(make: Any, encoder: Encoder | None = None, **options: Any) -> Method:
    """A method of `manyview.methods` in float64, with a head of `DIM` and no batch norm unless it is given."""
    options.setdefault("head", partial(heads.mlp, dim_out=DIM))
    made: Method = make(plain() if encoder is None else encoder, **options)
    return made.double()


def of_queue(enqueue: Enqueue, size: int = 18, within_batch: float = 0.0) -> Any:
    return partial(against.queue, size=size, enqueue=enqueue, within_batch=within_batch)


def queue_of(method: Method) -> Queue:
    (term,) = method.terms
    assert isinstance(term.negatives, QueueMemory)
    return term.negatives.queue


def with_golden_queue(method: Method) -> Method:
    queue_of(method).keys.copy_(DOUBLE.given("queue"))
    return method


def objective(method: Method, seen: Seen, **options: Any) -> Tensor:
    return method.objective(method.triples(seen), **options)


def triples(method: Method, seen: Seen) -> list[Triple]:
    return [triple for _, triple in method.triples(seen)]


def golden_views(count: int) -> tuple[Tensor, list[Tensor]]:
    """The raw views, which want a gradient, and their unit vectors."""
    raw = DOUBLE.given("views_raw")[:count].clone().requires_grad_()
    return raw, list(unit(raw))


def golden_keys(count: int) -> list[Tensor]:
    return list(unit(DOUBLE.given("keys_raw"))[:count])


def met(triple: Triple) -> oracle.Met:
    return oracle.met(triple.query, triple.negatives)


def same_gradient(found: Tensor, expected: Tensor, leaves: Sequence[Tensor]) -> None:
    """The value and the gradient of a loss, by whatever it was computed of."""
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    by = [torch.autograd.grad(each, list(leaves), retain_graph=True) for each in (found, expected)]
    for one, other in zip(*by, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
        assert one.abs().max() > 1e-6


class Rows:
    """How many rows each call of a network was given."""

    def __init__(self, network: nn.Module) -> None:
        self.calls: list[int] = []
        network.register_forward_pre_hook(self._note)

    def _note(self, network: nn.Module, given: tuple[Tensor, ...]) -> None:
        self.calls.append(len(given[0]))
