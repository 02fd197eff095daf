"""Terms: the weighted parts of an objective, each a function of what the towers answered for a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations, product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyview.core.distributed import gather, gather_all
from manyview.core.errors import UserError
from manyview.core.negatives import Negatives, Triple
from manyview.encoders.towers import Outputs, Slot
from manyview.losses import Loss, nce_partition
from manyview.losses.prediction import takes_classes
from manyview.losses.traits import bounds_information, is_coupled, is_pooled, needs_partition, option
from manyview.memories import Memory
from manyview.methods.embeddings import Embeddings
from manyview.methods.topologies import Topology


@dataclass(frozen=True, eq=False)
class BatchOutputs:
    """What the towers answered for a batch, and which images these are: all that terms and memories are given.

    outputs   by slot, a row for each of the N images of this process; none yet before the towers have seen it
    ids       (N,) what the images are
    index     (N,) their rows in the data
    present   masks (N,) by view: which images have it; of all views, or empty where no image can lack any
    counts    how many images each process has; empty where the batch is of this process alone
    step      the number of the training step
    progress  the share of the run that is done after this epoch, which a loss may depend on
    """

    outputs: Outputs
    ids: Tensor
    index: Tensor
    present: Mapping[str, Tensor] = field(default_factory=dict)
    counts: Sequence[int] = ()
    step: int = 0
    progress: float = 1.0
    everywhere: dict[int, Tensor] = field(default_factory=dict)

    @property
    def processes(self) -> int:
        """How many processes the batch is spread over."""
        return max(1, len(self.counts))

    def gathered(self, slots: Iterable[Slot]) -> BatchOutputs:
        """Joins the named outputs, ids, index and presence of all processes, in one collective."""
        if self.processes == 1:
            return self
        here = [self.ids, self.index, *self.present.values(), *(self.outputs[slot] for slot in slots)]
        everywhere = gather_all(here, self.counts)
        self.everywhere.update((id(rows), far) for rows, far in zip(here, everywhere, strict=True))
        return self

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all processes: those of `gathered` are known, others, of any number, cost a collective."""
        if self.processes == 1:
            return rows
        known = self.everywhere.get(id(rows))
        return gather(rows) if known is None else known

    def embeddings(self, queries: Sequence[Slot], keys: Sequence[Slot] = ()) -> Embeddings:
        return Embeddings(
            [self.outputs[slot] for slot in queries],
            self.ids,
            [self.outputs[slot] for slot in keys],
            self.index,
            self._present(queries),
            self._present(keys),
            self.gather,
            self.step,
        )

    def _present(self, slots: Sequence[Slot]) -> list[Tensor] | None:
        return [self.present[slot.view] for slot in slots] if self.present else None


class TermOutput(NamedTuple):
    """A term's loss, and what it contrasted, for the health figures: nothing for a prediction.

    skipped  no image of the batch had what the term compares, so that the loss, 0, says nothing
    """

    loss: Tensor
    triples: list[Triple]
    skipped: bool = False


class Term(ABC):
    """One weighted part of the objective. `term(batch)` gives its loss.

    name     under which its loss is logged
    asks     the outputs that it needs
    gathers  those of them that it needs of all processes
    """

    def __init__(self, name: str, asks: Iterable[Slot], gathers: Iterable[Slot] = (), *, weight: float = 1.0) -> None:
        self.name, self.weight = name, weight
        self.asks, self.gathers = tuple(asks), tuple(gathers)

    @property
    def positives(self) -> list[tuple[Slot, Slot]]:
        """The pairs of a query and its positive, by slot: all outputs that are asked for, unless a term knows more."""
        return list(permutations(self.asks, 2))

    @abstractmethod
    def __call__(self, batch: BatchOutputs) -> TermOutput: ...


class Contrast(Term):
    """A contrastive loss of queries, keys and what a memory keeps, as a topology pairs them.

    keys    none: the queries are each other's keys
    memory  what is contrasted with besides; the batch alone if not given. It takes in the keys after each step
    ramp    arguments of the loss that grow in proportion to the epochs, from a little to their full value in the last
    """

    def __init__(
        self,
        topology: Topology,
        loss: Loss,
        queries: Sequence[Slot],
        keys: Sequence[Slot] = (),
        *,
        memory: Memory | None = None,
        name: str = "contrast",
        weight: float = 1.0,
        ramp: tuple[str, ...] = (),
    ) -> None:
        slots = dict.fromkeys([*queries, *keys])
        super().__init__(name, slots, slots, weight=weight)
        self.topology, self.loss, self.ramp = topology, loss, ramp
        self.queries, self.keys = tuple(queries), tuple(keys)
        self.memory = Memory() if memory is None else memory
        if needs_partition(loss) and not self.memory.per_image:
            raise UserError("memory", "nce contrasts with images drawn from a memory bank; give --memory bank")

    def __call__(self, batch: BatchOutputs) -> TermOutput:
        triples = self.topology(batch.embeddings(self.queries, self.keys), self.memory)
        if not triples:
            return TermOutput(_nothing(batch, self.queries), triples, skipped=True)
        parts = [triple.weight * self._share(batch, triple) for triple in triples]
        return TermOutput(torch.stack(parts).sum(), triples)

    @property
    def positives(self) -> list[tuple[Slot, Slot]]:
        """Each query with each key of its image."""
        return list(product(self.queries, self.keys or self.queries))

    @property
    def coupled(self) -> bool:
        """Whether the loss's gradient is scaled by q_B, the positive in its denominator (DCL, Eq. 3)."""
        return is_coupled(self.loss)

    @property
    def bounds_information(self) -> bool:
        """Whether log k - L bounds the mutual information of query and key from below (CMC Eq. 6)."""
        return bounds_information(self.loss)

    def option(self, name: str) -> Any:
        """The value that the loss will use for an argument; None if it has no such argument."""
        return option(self.loss, name)

    def loss_at(self, progress: float) -> Loss:
        """The loss in a run of which the share `progress` will be done after this epoch."""
        return partial(self.loss, **{name: progress * self.option(name) for name in self.ramp})

    def _share(self, batch: BatchOutputs, triple: Triple) -> Tensor:
        """The loss of a triple; in several processes this one's share, whose mean over them is the whole batch's.

        DistributedDataParallel takes that mean of the gradients, so that nothing need be communicated here, unless a
        loss pools all queries, or some of their positives are missing.
        """
        loss = partial(self.loss_at(batch.progress), **self._kept_options(batch, triple))
        if batch.processes == 1 or is_pooled(loss) or triple.present is not None:
            return triple.loss(loss, gather=batch.gather)
        assert triple.total is not None
        values = triple.loss(loss, reduction="none", gather=batch.gather)
        return values.sum() * (batch.processes / triple.total)

    def _kept_options(self, batch: BatchOutputs, triple: Triple) -> dict[str, Any]:
        """Arguments that the loss needs and the memory keeps: NCE's partition."""
        if not needs_partition(self.loss):
            return {}

        def estimate(population: int) -> Tensor:
            known = {"population": population, "temperature": self.option("temperature"), "gather": batch.gather}
            return triple.loss(nce_partition, **known)

        return self.memory.partition(estimate, self.name)


def try_loss(loss: Loss) -> None:
    """Calls a loss with two vectors, so that it says at once what it refuses of its arguments."""
    two, ids = torch.eye(2), torch.arange(2)
    noise = {"population": 2, "partition": 1.0} if needs_partition(loss) else {}
    loss(two, two[:, None], Negatives(two, ids, ids), **noise)


class Prediction(Term):
    """How far what a head predicts is from another view of the same copy (CMC section 3.1): no negatives at all.

    predicted  the slot of a head's output
    target     the slot of what it should be, such as Slot("input", "depth", 0, "view"); it has no gradient
    distance   a function of both that gives a value for each element, such as F.mse_loss with reduction="none", and
               NaN where the target is not known

    Of each image the mean over the known places counts, 0 where there is none.
    """

    def __init__(
        self,
        predicted: Slot,
        target: Slot,
        distance: Callable[..., Tensor] = torch.nn.functional.mse_loss,
        *,
        name: str = "prediction",
        weight: float = 1.0,
    ) -> None:
        super().__init__(name, (predicted, target), weight=weight)
        self.predicted, self.target, self.distance = predicted, target, distance

    @property
    def takes_classes(self) -> bool:
        """Whether the target's values must be classes, which are neither mixed nor normalised."""
        return takes_classes(self.distance)

    def __call__(self, batch: BatchOutputs) -> TermOutput:
        predicted, target = batch.outputs[self.predicted], batch.outputs[self.target].detach()
        values = self.distance(predicted, target, reduction="none").flatten(1)
        known = ~(values.isnan() & predicted.flatten(1).isfinite().all(1, keepdim=True))  # a diverged loss stays NaN
        means = values.masked_fill(~known, 0).sum(1) / known.sum(1).clamp_min(1)
        return TermOutput(mean_of_present(batch, means, self.asks), [])


class Alignment(Term):
    """How far queries are from their keys, without negatives (BYOL): the mean of |q - k|^2 = 2 - 2 q.k.

    Each query is compared with the key of the same place; both have unit length. Gradient reaches the keys only where
    their tower has one.
    """

    def __init__(
        self, queries: Sequence[Slot], keys: Sequence[Slot], *, name: str = "alignment", weight: float = 1.0
    ) -> None:
        super().__init__(name, dict.fromkeys([*queries, *keys]), weight=weight)
        self.pairs = list(zip(queries, keys, strict=True))

    @property
    def positives(self) -> list[tuple[Slot, Slot]]:
        """Each query with the key of the same place."""
        return self.pairs

    def __call__(self, batch: BatchOutputs) -> TermOutput:
        values = [(batch.outputs[q] - batch.outputs[k]).square().sum(1) for q, k in self.pairs]
        parts = [mean_of_present(batch, each, pair) for each, pair in zip(values, self.pairs, strict=True)]
        return TermOutput(torch.stack(parts).mean(), [])


def _nothing(batch: BatchOutputs, slots: Iterable[Slot]) -> Tensor:
    """Zero, with a gradient of zero for all that was embedded, so that every process has one to average."""
    return torch.stack([batch.outputs[slot][:0].sum() for slot in slots]).sum()


def mean_of_present(batch: BatchOutputs, values: Tensor, slots: Iterable[Slot]) -> Tensor:
    """The mean of values (N,) over the images that have all views of the slots; in several processes a share of it."""
    masks = [batch.present[slot.view] for slot in slots] if batch.present else []
    if not masks and batch.processes == 1:
        return values.mean()
    if not masks:
        return values.sum() * (batch.processes / sum(batch.counts))
    here, everywhere = (torch.stack(each).all(0) for each in (masks, [batch.gather(mask) for mask in masks]))
    return values.masked_fill(~here, 0).sum() * batch.processes / everywhere.sum().clamp_min(1)


def queries(view: str, copies: int | Iterable[int], name: str = "embedding") -> tuple[Slot, ...]:
    """The slots of some copies of a view in the query branch."""
    return tuple(Slot("query", view, copy, name) for copy in ([copies] if isinstance(copies, int) else copies))


def keys(view: str, copies: int | Iterable[int], name: str = "embedding") -> tuple[Slot, ...]:
    """The slots of some copies of a view in the key branch."""
    return tuple(Slot("key", view, copy, name) for copy in ([copies] if isinstance(copies, int) else copies))
