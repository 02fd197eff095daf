"""A term is one weighted part of the objective, a function of what the towers answered for a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import permutations
from typing import Any, NamedTuple

import torch
from torch import Tensor

from manyview.core.negatives import Triple
from manyview.encoders.towers import Slot
from manyview.memories import Memory
from manyview.methods.batch_outputs import BatchOutputs


class Watched(NamedTuple):
    """Vectors that a term without negatives compares: where a collapse shows.

    query, positive  (N, d) two embeddings of each image, of any length
    ids              (N,) which images these are
    assigned         (N, P) the shares of P prototypes that each image is given, where there are prototypes
    present          (N,) which images have both embeddings; None: all
    std              (d,) of each dimension, before any change of length, where the loss holds it at 1
    """

    query: Tensor
    positive: Tensor
    ids: Tensor
    assigned: Tensor | None = None
    present: Tensor | None = None
    std: Tensor | None = None

    def rows(self) -> Watched:
        """The images that have both embeddings. A GPU is waited for where one can lack any."""
        if self.present is None:
            return self
        query, positive, ids = (each[self.present] for each in (self.query, self.positive, self.ids))
        assigned = None if self.assigned is None else self.assigned[self.present]
        return Watched(query, positive, ids, assigned, std=self.std)


class TermOutput(NamedTuple):
    """A term's loss, and for the health figures what it contrasted or else compared: nothing for a prediction.

    skipped  no image of the batch had what the term compares, so that the loss, 0, says nothing
    """

    loss: Tensor
    triples: list[Triple]
    skipped: bool = False
    watched: Watched | None = None


class Term(ABC):
    """One weighted part of the objective. `term(batch)` gives its loss.

    name     under which its loss is logged
    asks     the outputs that it needs
    gathers  those of them that it needs of all processes

    What it is asked about itself has an answer here for terms to which it does not apply.
    """

    coupled = False  # whether its gradient is scaled by q_B, the positive in its denominator (DCL, Eq. 3)
    bounds_information = False  # whether log k - L bounds the mutual information of query and key (CMC Eq. 6)
    takes_labels = False  # whether it goes by the images' classes

    def __init__(self, name: str, asks: Iterable[Slot], gathers: Iterable[Slot] = (), *, weight: float = 1.0) -> None:
        self.name, self.weight = name, weight
        self.asks, self.gathers = tuple(asks), tuple(gathers)

    @property
    def positives(self) -> list[tuple[Slot, Slot]]:
        """The pairs of a query and its positive, by slot: all outputs that are asked for, unless a term knows more."""
        return list(permutations(self.asks, 2))

    @abstractmethod
    def __call__(self, batch: BatchOutputs) -> TermOutput: ...

    @property
    def memories(self) -> tuple[Memory, ...]:
        """Gives what it keeps between steps."""
        return ()

    @property
    def kept(self) -> tuple[Slot, ...]:
        """Gives what its memories take in of each image."""
        return ()

    def remember(self, batch: BatchOutputs) -> None:  # noqa: B027  most terms keep nothing
        """Gives its memories what they keep of a batch, after the optimiser's step."""

    def option(self, name: str) -> Any:
        """The value that its loss will use for an argument; None if it has no such argument."""
        return None


def watched(batch: BatchOutputs, query: Slot, positive: Slot, assigned: Tensor | None = None) -> Watched:
    """Two embeddings of each image, to be watched."""
    here = batch.present[query.view] & batch.present[positive.view] if batch.present else None
    return Watched(batch.outputs[query].detach(), batch.outputs[positive].detach(), batch.ids, assigned, here)


def nothing(batch: BatchOutputs, slots: Iterable[Slot]) -> Tensor:
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
