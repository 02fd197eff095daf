"""Small things to try methods with: networks without batch norm, embeddings of the golden inputs, calls counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from manyview import memories
from manyview.core.negatives import Triple
from manyview.encoders import Encoder, heads
from manyview.encoders.backbone import Backbone, module_outputs
from manyview.memories import Queue, QueueMemory
from manyview.memories.queue import Enqueue
from manyview.methods import METHODS, BatchOutputs, Contrast, Method
from manyview.methods.method import VIEW
from tests.golden import DOUBLE, unit
from tests.losses import oracle

SIDE, DIM = 4, 8  # of the images, and of the vectors
INSTANCES = 50  # images that a memory bank has a vector of
IDS = torch.arange(6)  # of the golden inputs' images
TESTED_APART = ("cmc", "cmc_moco", "cmc_patch", "deep_infomax", "prediction", "split_brain", "pirl")
"""Methods of several views, of feature maps or of jigsaws, with tests of their own."""
ONE_VIEW = [name for name in METHODS if name not in TESTED_APART]
PREDICTED = {"predictor": partial(heads.mlp, dim_out=DIM)}
SMALL_PARTS: dict[str, dict[str, Any]] = {  # besides the head, where the usual ones are large or have batch norm
    "moco_v3": PREDICTED,
    "cacr_moco_v3": PREDICTED,
    "cacr_moco_v3_code": {**PREDICTED, "small": 2},
}


class Given(NamedTuple):
    """What the one term of a method is given: its queries and its keys in their order, (N, d) each."""

    queries: Sequence[Tensor]
    keys: Sequence[Tensor] = ()
    ids: Tensor = IDS


def plain(*, norm: bool = False, dropout: float = 0.0, seed: int = 0, channels: int = 3) -> Encoder:
    """An encoder for images (channels, 4, 4), with batch norm only if asked for."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(channels * SIDE**2, 10)]
    layers += [nn.BatchNorm1d(10)] if norm else []
    layers += [nn.Dropout(dropout)] if dropout else []
    network = nn.Sequential(*layers, nn.Tanh(), nn.Linear(10, 9))
    return Encoder("plain", {"channels": channels, "size": SIDE}, Backbone(network, module_outputs([])))


def mapped(*, seed: int = 0, channels: int = 3) -> Encoder:
    """An encoder for images (channels, 4, 4), whose layer "0" is a feature map (5, 3, 3)."""
    torch.manual_seed(seed)
    layers = [nn.Conv2d(channels, 5, 2), nn.Tanh(), nn.Flatten(), nn.Linear(45, 9)]
    options = {"channels": channels, "size": SIDE}
    return Encoder("mapped", options, Backbone(nn.Sequential(*layers), module_outputs(["0"])))


def images(copies: int, count: int = 6, seed: int = 1, channels: int = 3) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(count, channels, SIDE, SIDE, generator=generator, dtype=torch.float64) for _ in range(copies)]


def doubled(make: Any, encoder: Encoder | None = None, **options: Any) -> Method:
    """A method of `manyview.methods` in float64, with a head of `DIM` and no batch norm unless it is given."""
    options = SMALL_PARTS.get(getattr(make, "__name__", ""), {}) | options
    options.setdefault("head", partial(heads.mlp, dim_out=DIM))
    made: Method = make(plain() if encoder is None else encoder, **options)
    return made.start(INSTANCES).double()


def of_queue(enqueue: Enqueue, size: int = 18, within_batch: float = 0.0) -> Any:
    return partial(memories.queue, size=size, enqueue=enqueue, within_batch=within_batch)


def term_of(method: Method) -> Contrast:
    (term,) = method.terms
    assert isinstance(term, Contrast)
    return term


def queue_of(method: Method) -> Queue:
    memory = term_of(method).memory
    assert isinstance(memory, QueueMemory)
    return memory.queue


def with_golden_queue(method: Method) -> Method:
    queue_of(method).keys.copy_(DOUBLE.given("queue"))
    return method


def embed(method: Method, copies: list[Tensor], step: int = 0, ids: Tensor = IDS) -> Given:
    """What the towers answer for copies of images."""
    outputs, term = method({VIEW: copies}, step), term_of(method)
    return Given([outputs[slot] for slot in term.queries], [outputs[slot] for slot in term.keys], ids)


def batch(method: Method, given: Given, **options: Any) -> BatchOutputs:
    """The given vectors in the places in which the method's term looks for them."""
    term = term_of(method)
    outputs = dict(zip(term.queries, given.queries, strict=True)) | dict(zip(term.keys, given.keys, strict=True))
    return BatchOutputs(outputs, given.ids, given.ids, **options)


def objective(method: Method, given: Given, **options: Any) -> Tensor:
    return method.objective(batch(method, given, **options)).loss


def triples(method: Method, given: Given) -> list[Triple]:
    found = method.objective(batch(method, given))
    return [triple for term in found.terms.values() for triple in term.triples]


def update(method: Method, given: Given, step: int = 0, total: int = 1) -> None:
    method.update(batch(method, given), step, total)


def golden_views(count: int) -> tuple[Tensor, list[Tensor]]:
    """The raw views, which want a gradient, and their unit vectors."""
    raw = DOUBLE.given("views_raw")[:count].clone().requires_grad_()
    return raw, list(unit(raw))


def golden_keys(count: int) -> list[Tensor]:
    return list(unit(DOUBLE.given("keys_raw"))[:count])


def met(triple: Triple) -> oracle.Met:
    return oracle.met(triple.query, triple.negatives)


def same_gradient(found: Tensor, expected: Tensor, leaves: Iterable[Tensor]) -> None:
    """The value and the gradient of a loss, by whatever it was computed of."""
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    leaves = list(leaves)
    by = [torch.autograd.grad(each, leaves, retain_graph=True) for each in (found, expected)]
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
