"""Terms contrast embeddings, predict a view from another, or draw two embeddings together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from manyview.core.errors import UserError
from manyview.core.negatives import Negatives, Triple
from manyview.encoders.towers import Slot
from manyview.losses import Loss, nce_partition
from manyview.losses.prediction import takes_classes
from manyview.losses.siamese import squared_distance
from manyview.losses.traits import bounds_information, is_coupled, is_pooled, needs_partition, option
from manyview.memories import BankMemory, Memory
from manyview.methods.batch_outputs import BatchOutputs
from manyview.methods.term import Term, TermOutput, mean_of_present, nothing, watched
from manyview.methods.topologies import Topology


class Contrast(Term):
    """A contrastive loss of queries, keys and what a memory keeps, as a topology pairs them.

    keys    none: the queries are each other's keys
    memory  what is contrasted with besides; the batch alone if not given. It takes in the keys after each step
    ramp    arguments of the loss that grow in proportion to the epochs, from a little to their full value in the last
    takes_labels  the topology goes by the images' classes
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
        takes_labels: bool = False,
    ) -> None:
        slots = dict.fromkeys([*queries, *keys])
        super().__init__(name, slots, slots, weight=weight)
        self.topology, self.loss, self.ramp = topology, loss, ramp
        self.queries, self.keys = tuple(queries), tuple(keys)
        self.memory = Memory() if memory is None else memory
        self.takes_labels = takes_labels
        self.coupled, self.bounds_information = is_coupled(loss), bounds_information(loss)
        self._noise_bank: BankMemory | None = None  # holds NCE's partition, where the loss needs it
        if needs_partition(loss):
            if not isinstance(self.memory, BankMemory):
                raise UserError("memory", "nce contrasts with images drawn from a memory bank; give --memory bank")
            self._noise_bank = self.memory

    def __call__(self, batch: BatchOutputs) -> TermOutput:
        triples = self.topology(batch.embeddings(self.queries, self.keys), self.memory)
        if not triples:
            return TermOutput(nothing(batch, self.queries), triples, skipped=True)
        parts = [triple.weight * self._share(batch, triple) for triple in triples]
        return TermOutput(torch.stack(parts).sum(), triples)

    @property
    def positives(self) -> list[tuple[Slot, Slot]]:
        """Each query with each key of its image."""
        return list(product(self.queries, self.keys or self.queries))

    @property
    def memories(self) -> tuple[Memory, ...]:
        return (self.memory,)

    @property
    def kept(self) -> tuple[Slot, ...]:
        """The keys, or the queries where these are each other's keys."""
        return self.keys or self.queries

    def remember(self, batch: BatchOutputs) -> None:
        """Gives the memory what it keeps, of the images that have all of it."""
        kept = [batch.gather(batch.outputs[slot]).detach() for slot in self.kept]
        ids, index = batch.gather(batch.ids), batch.gather(batch.index)
        if batch.present:
            here = torch.stack([batch.gather(batch.present[slot.view]) for slot in self.kept]).all(0)
            kept, ids, index = [each[here] for each in kept], ids[here], index[here]
        self.memory.update(kept, ids, index)

    def option(self, name: str) -> Any:
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
        """Returns the arguments of the loss that a memory bank keeps: NCE's population and partition."""
        if self._noise_bank is None:
            return {}

        def estimate(population: int) -> Tensor:
            known = {"population": population, "temperature": self.option("temperature"), "gather": batch.gather}
            return triple.loss(nce_partition, **known)

        return self._noise_bank.partition(estimate, self.name)


def try_loss(loss: Loss) -> None:
    """Calls a loss with two vectors, so that it says at once what it refuses of its arguments."""
    two, ids = torch.eye(2), torch.arange(2)
    noise = {"population": 2, "partition": 1.0} if needs_partition(loss) else {}
    loss(two, two[:, None], Negatives(two, ids, ids), **noise)


class Prediction(Term):
    """Says how far what a head predicts is from another view of the same copy (CMC section 3.1): no negatives at all.

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
        """Says whether the target's values must be classes, which are neither mixed nor normalised."""
        return takes_classes(self.distance)

    def __call__(self, batch: BatchOutputs) -> TermOutput:
        predicted, target = batch.outputs[self.predicted], batch.outputs[self.target].detach()
        values = self.distance(predicted, target, reduction="none").flatten(1)
        known = ~(values.isnan() & predicted.flatten(1).isfinite().all(1, keepdim=True))  # a diverged loss stays NaN
        means = values.masked_fill(~known, 0).sum(1) / known.sum(1).clamp_min(1)
        return TermOutput(mean_of_present(batch, means, self.asks), [])


class Alignment(Term):
    """Says how far queries are from their keys, without negatives (BYOL, SimSiam): the mean over images and pairs.

    Each query is compared with the key of the same place; both have unit length.

    distance       a value for each image, of two vectors
    stop_gradient  keys are taken as they are; else gradient reaches them where their tower has one
    """

    def __init__(
        self,
        queries: Sequence[Slot],
        keys: Sequence[Slot],
        distance: Callable[[Tensor, Tensor], Tensor] = squared_distance,
        *,
        stop_gradient: bool = False,
        name: str = "alignment",
        weight: float = 1.0,
    ) -> None:
        super().__init__(name, dict.fromkeys([*queries, *keys]), weight=weight)
        self.pairs, self.distance, self.stop_gradient = list(zip(queries, keys, strict=True)), distance, stop_gradient

    @property
    def positives(self) -> list[tuple[Slot, Slot]]:
        """Each query with the key of the same place."""
        return self.pairs

    def __call__(self, batch: BatchOutputs) -> TermOutput:
        parts = [mean_of_present(batch, self._values(batch, *pair), pair) for pair in self.pairs]
        (query, key), (_, other) = self.pairs[0], self.pairs[-1]
        seen = watched(batch, key, query if other == key else other)  # two keys, which one network has made
        return TermOutput(torch.stack(parts).mean(), [], watched=seen)

    def _values(self, batch: BatchOutputs, query: Slot, key: Slot) -> Tensor:
        keys = batch.outputs[key].detach() if self.stop_gradient else batch.outputs[key]
        return self.distance(batch.outputs[query], keys)


def queries(view: str, copies: int | Iterable[int], name: str = "embedding") -> tuple[Slot, ...]:
    """The slots of some copies of a view in the query branch."""
    return tuple(Slot("query", view, copy, name) for copy in ([copies] if isinstance(copies, int) else copies))


def keys(view: str, copies: int | Iterable[int], name: str = "embedding") -> tuple[Slot, ...]:
    """The slots of some copies of a view in the key branch."""
    return tuple(Slot("key", view, copy, name) for copy in ([copies] if isinstance(copies, int) else copies))
