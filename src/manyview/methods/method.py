"""What a method is: views, towers that embed them, terms that are minimised, memories that keep keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

import torch
from torch import Tensor, nn

from manyview.core.bounds import MOST, AtLeast, AtMost
from manyview.core.errors import UserError
from manyview.core.sample import Views
from manyview.encoders.momentum import Schedule as Momentum
from manyview.encoders.tower import Head
from manyview.encoders.towers import JIGSAW, Outputs, Slot, Towers
from manyview.losses import Loss
from manyview.memories import Memory
from manyview.methods.batch_outputs import BatchOutputs
from manyview.methods.term import Term, TermOutput
from manyview.methods.terms import Contrast

MakeMemory = Callable[[int], Memory]
VIEW = "image"  # the view of a method that has only one
Small = Annotated[int, AtLeast(0), AtMost(MOST), "small crops of each image besides the large ones"]

__all__ = ["VIEW", "Head", "Loss", "MakeMemory", "Method", "Momentum", "Objective", "Small", "UnknownView"]


class UnknownView(UserError):
    """A setting names a view that there is not; other data may have it."""


class Objective(NamedTuple):
    """The loss of a batch, and what each term says of it, by the term's name."""

    loss: Tensor
    terms: dict[str, TermOutput]


class Method(nn.Module):
    """A declaration that can be trained; nothing that trains, evaluates or reports knows its name.

    views     which views a step takes, and how many augmented copies of each
    towers    which network sees which view
    terms     the objective, a weighted sum
    memories  what keeps keys between steps, by name, so that it is saved and moved with the rest
    geometry  "shared": all views of a copy have one crop and flip; "own": each view draws its own
    small     how many of the copies, the last ones, are small crops (multi-crop)

    The order of a step: forward, objective, backward, the optimiser's step, then `update`.
    """

    def __init__(
        self,
        *,
        views: Mapping[str, int],
        towers: Towers,
        terms: Sequence[Term],
        memories: Mapping[str, Memory] | None = None,
        geometry: Literal["shared", "own"] = "shared",
        small: int = 0,
    ) -> None:
        super().__init__()
        self.views, self.towers, self.terms, self.geometry = dict(views), towers, tuple(terms), geometry
        self.memories = nn.ModuleDict(dict(memories or {}))
        self.small = small
        _check(self.terms, self.memories, self.views)
        if not 0 <= small < max(self.views.values()):
            raise UserError("small", f"expected 0 or more small crops besides at least one large, got {small}")
        self.slots = tuple(dict.fromkeys(slot for term in self.terms for slot in term.asks))
        self.gathers = tuple(dict.fromkeys(slot for term in self.terms for slot in term.gathers))

    @property
    def jigsaw(self) -> bool:
        """Says whether a step takes one more copy of each view, the last, that is cut into nine patches."""
        return any(slot.copy == JIGSAW for slot in self.slots)

    @property
    def predicts(self) -> bool:
        """Says whether a view itself is asked for, to be predicted: it is then given with NaN where there is no
        data."""
        return any(slot.branch == "input" for slot in self.slots)

    @property
    def copies(self) -> int:
        """Says how many augmented copies of an image a step takes, of all views together, jigsaws among them."""
        return sum(self.views.values()) + (len(self.views) if self.jigsaw else 0)

    @property
    def positives(self) -> int:
        """K: with how many other copies of its image a query is compared, in all terms; the most that any query has.

        1 where there is none: the positive then comes from a memory.
        """
        found: dict[tuple[str, int], set[tuple[str, int]]] = {}
        for query, positive in (pair for term in self.terms for pair in term.positives):
            found.setdefault((query.view, query.copy), set()).add((positive.view, positive.copy))
        return max([1, *(len(others - {own}) for own, others in found.items())])

    @property
    def contrasted(self) -> list[str]:
        """The views whose embeddings some term contrasts with those of another view."""
        asked = [term.asks for term in self.terms if isinstance(term, Contrast)]
        by_term = [{slot.view for slot in asks} for asks in asked if all(slot.name == "embedding" for slot in asks)]
        found = {view for views in by_term if len(views) > 1 for view in views}
        return [view for view in self.views if view in found]

    def start(self, instances: int, present: Mapping[str, Tensor] | None = None) -> Method:
        """Makes room in the memories for the images of the data; once, before the first step.

        present  (instances,) by view: which images have it, as far as that is known; without, all
        """
        for memory in self.memories.values():
            assert isinstance(memory, Memory)
            terms = [term for term in self.terms if memory in term.memories]
            views = {slot.view for slot in terms[0].kept} if terms else set()
            there = torch.stack([present[view] for view in views]).all(0) if present and views else None
            memory.start(instances, present=there, terms=[term.name for term in terms])
        return self

    def forward(
        self,
        views: Views,
        step: int = 0,
        slots: Iterable[Slot] | None = None,
        present: Mapping[str, Tensor] | None = None,
    ) -> Outputs:
        """Views {name: [copy, ...]}, (N, C, H, W) each, to what the terms ask for; or to some of it.

        A jigsaw, which comes after the copies of each view, is (N, 9, C, h, w). `present`, masks (N,) by view, names
        the images that have it: only these are embedded.
        """
        asked = tuple(self.slots if slots is None else slots)
        if not self.predicts:
            return self.towers(views, asked, step=step, present=present)  # type: ignore[no-any-return]
        filled = {view: [copy.nan_to_num() for copy in copies] for view, copies in views.items()}  # 0 is the mean
        found: Outputs = self.towers(filled, asked, step=step, present=present)
        return found | {slot: views[slot.view][slot.copy] for slot in asked if slot.branch == "input"}

    def objective(self, batch: BatchOutputs) -> Objective:
        """The sum of weight * loss over the terms; in several processes this one's share of it."""
        batch.gathered(self.gathers)
        found = {term.name: term(batch) for term in self.terms}
        parts = [term.weight * found[term.name].loss for term in self.terms]
        return Objective(torch.stack(parts).sum(), found)

    @torch.no_grad()
    def update(self, batch: BatchOutputs, step: int, total: int) -> None:
        """After the optimiser's step: memories take in the keys, the momentum towers follow."""
        updated: set[Memory] = set()
        for term in self.terms:
            if not updated.issuperset(term.memories):
                updated.update(term.memories)
                term.remember(batch)
        self.towers.update(step, total)


def _check(terms: Sequence[Term], memories: nn.ModuleDict, views: Mapping[str, int]) -> None:
    names = [term.name for term in terms]
    if not names:
        raise UserError("terms", "expected one or more, got none")
    for slot in (slot for term in terms for slot in term.asks):
        if slot.copy >= views.get(slot.view, 0):
            raise UserError("views", f"copy {slot.copy} of {slot.view!r} is asked for, and not among {dict(views)}")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UserError("terms", f"two are named {twice[0]!r}; give each a name of its own")
    for term in terms:
        if any(type(each) is not Memory and each not in memories.values() for each in term.memories):
            raise UserError("memories", f"that of the term {term.name!r} is not among them, and would not be saved")
