"""What a method is: towers that embed the views, and terms that contrast them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from manyview.core.distributed import Gather, no_gather
from manyview.core.negatives import Triple
from manyview.encoders.momentum import Schedule
from manyview.encoders.towers import Towers
from manyview.memories import Memory

Loss = Callable[..., Tensor]
Head = Callable[[int], nn.Module]
MakeMemory = Callable[..., Memory]
Momentum = Schedule


@dataclass(frozen=True, eq=False)
class Seen:
    """The embedded views of a batch: per look that is a query and per look that is a key, (N, d) each.

    Where no look is a key, the keys are the queries.
    """

    queries: list[Tensor]
    keys: list[Tensor]
    ids: Tensor
    gather: Gather = no_gather


Pairs = Callable[[Seen, Memory], list[Triple]]
"""Who meets whom: a topology of `methods.meetings`."""


@dataclass(frozen=True)
class Term:
    """One part of the objective: weight * loss over who meets whom.

    ramp  arguments of the loss that grow in proportion to the epochs, from a little to their full value in the last
    """

    pairs: Pairs
    loss: Loss
    negatives: Memory
    weight: float = 1.0
    ramp: tuple[str, ...] = ()

    def option(self, name: str) -> Any:
        """The value that the loss will use for an argument; None if it has no such argument."""
        known = inspect.signature(self.loss).parameters
        return known[name].default if name in known else None

    def loss_at(self, progress: float) -> Loss:
        """The loss in a run of which the share `progress` will be done after this epoch."""
        return partial(self.loss, **{name: progress * self.option(name) for name in self.ramp})


class Method(nn.Module):
    """A declaration that can be trained: how many looks, which of them are queries and which keys, and the terms.

    queries, keys  the numbers of the looks; keys of a momentum tower have no gradient
    together       looks of a branch go through its tower in one batch, those of one size at a time, so that batch norm
                   sees them together; else one look after the other

    The order of a step: forward, objective, backward, the optimiser's step, then `update`.
    """

    def __init__(
        self,
        towers: Towers,
        terms: Sequence[Term],
        *,
        queries: Iterable[int],
        keys: Iterable[int] = (),
        together: bool = True,
    ) -> None:
        super().__init__()
        self.towers, self.terms = towers, tuple(terms)
        self.negatives = nn.ModuleList(term.negatives for term in self.terms)  # so that they are saved and moved
        self.queries, self.keys, self.together = tuple(queries), tuple(keys), together

    @property
    def looks(self) -> int:
        """How many views of an image a step takes."""
        return max(self.queries + self.keys) + 1

    def forward(self, looks: Sequence[Tensor], step: int, *, keys: bool = True) -> tuple[list[Tensor], list[Tensor]]:
        """Looks (N, C, H, W) each to the queries' and the keys' vectors (N, d); without `keys` to the queries' alone.

        step: the number of the step, which the shuffling of keys draws its order from.
        """
        queries = self._through(self.towers.queries, [looks[look] for look in self.queries])
        if not keys or not self.keys:
            return queries, []
        return queries, self._through(partial(self.towers.keys, step=step), [looks[look] for look in self.keys])

    def triples(self, seen: Seen) -> list[tuple[Term, Triple]]:
        return [(term, triple) for term in self.terms for triple in term.pairs(seen, term.negatives)]

    def objective(
        self, triples: Iterable[tuple[Term, Triple]], *, gather: Gather = no_gather, progress: float = 1.0
    ) -> Tensor:
        """The sum of weight * loss over terms and triples."""
        parts = []
        for term, (query, positives, negatives, present, weight) in triples:
            more = {} if present is None else {"present": present}
            value = term.loss_at(progress)(query, positives, negatives, gather=gather, **more)
            parts.append(term.weight * weight * value)
        return torch.stack(parts).sum()

    @torch.no_grad()
    def update(self, seen: Seen, step: int, total: int) -> None:
        """After the optimiser's step: the keys go to whoever keeps them, the momentum towers follow."""
        vectors = [seen.gather(each.detach()) for each in seen.keys or seen.queries]
        ids = seen.gather(seen.ids)
        for term in self.terms:
            term.negatives.update(vectors, ids)
        self.towers.update(step, total)

    def _through(self, tower: Callable[[Tensor], Tensor], looks: list[Tensor]) -> list[Tensor]:
        if not self.together:
            return [tower(look) for look in looks]
        embedded: dict[int, Tensor] = {}
        for shape in dict.fromkeys(look.shape for look in looks):  # looks of one size at a time
            alike = [number for number, look in enumerate(looks) if look.shape == shape]
            made = tower(torch.cat([looks[number] for number in alike])) if len(alike) > 1 else tower(looks[alike[0]])
            embedded |= zip(alike, made.chunk(len(alike)), strict=True)
        return [embedded[number] for number in range(len(looks))]
