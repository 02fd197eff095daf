"""Samples of a run through the towers of its views, and what one view of a sample finds in another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.parallel import resolve_device
from manyview.core.sample import Views
from manyview.data import Loader
from manyview.encoders import Slot
from manyview.features.embedding_pass import forward
from manyview.methods import Contrast, Method
from manyview.report.view_samples import ViewSamples

BATCH = 64


@dataclass(frozen=True, eq=False)
class Found:
    """What a query finds in another view.

    rows   of the nearest samples, the nearest first
    place  of its own sample among all, from 1
    """

    rows: list[int]
    place: int


@dataclass(frozen=True, eq=False)
class CrossView:
    """Samples as the towers of several views embed them.

    vectors  (n, d) by view, of unit length, as they leave the head
    present  (n,) by view: which samples have it and can be read
    """

    samples: ViewSamples
    vectors: Mapping[str, Tensor]
    present: Mapping[str, Tensor]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The ordered pairs of views that some samples have both of: the query's, and the one that is searched."""
        return [pair for pair in permutations(self.vectors, 2) if len(self.with_both(*pair))]

    def with_both(self, query: str, searched: str) -> Tensor:
        """The rows (m,) of the samples that have two views."""
        return (self.present[query] & self.present[searched]).nonzero()[:, 0]

    def search(self, row: int, query: str, searched: str, count: int) -> Found:
        """Finds what is nearest in another view to a sample's own, among the samples that have both.

        One that is as near as the sample's own comes before it, and so does NaN, as in recall@k.
        """
        among = self.with_both(query, searched)
        similarity = self.vectors[searched][among] @ self.vectors[query][row]
        own = similarity[among == row]
        place = int((~(similarity < own)).sum())
        return Found(among[similarity.argsort(descending=True, stable=True)[:count]].tolist(), place)


def embed_samples(method: Method, samples: ViewSamples) -> CrossView:
    """Embeds samples in the views that the method contrasts with one another."""
    views, device = contrasted_views(method), resolve_device()
    if not views:
        return CrossView(samples, {}, {})
    network, dataset = method.to(device), samples.dataset
    loader = Loader(
        dataset, samples.pipeline, min(BATCH, len(dataset)), shuffle=False, drop_last=False, device=device, workers=0,
        max_unreadable=1.0,
    )  # fmt: skip
    vectors: dict[str, list[Tensor]] = {view: [] for view in views}
    present: dict[str, list[Tensor]] = {view: [] for view in views}
    start = 0
    for batch in loader.epoch(0):
        itself = batch.index.cpu() == torch.arange(start, start + len(batch))  # else another stands in for it
        start += len(batch)
        for view, embedded in forward(network, batch.views(), read=_projections(views)).items():
            vectors[view].append(F.normalize(embedded.float().cpu(), dim=1))
            present[view].append(itself & batch.present[view].cpu() if batch.present else itself)
    return CrossView(
        samples, *({view: torch.cat(parts) for view, parts in each.items()} for each in (vectors, present))
    )


def contrasted_views(method: Method) -> list[str]:
    """The views whose embeddings some term contrasts with those of another view."""
    found: set[str] = set()
    for term in method.terms:
        views = {slot.view for slot in term.asks} if isinstance(term, Contrast) else set()
        found |= views if len(views) > 1 and all(slot.name == "embedding" for slot in term.asks) else set()
    return [view for view in method.views if view in found]


def _projections(views: Sequence[str]) -> Callable[[Method, Views], dict[str, Tensor]]:
    slots = {view: Slot("query", view, 0, "projection") for view in views}

    def read(method: Method, seen: Views) -> dict[str, Tensor]:
        outputs = method.towers(seen, slots.values())
        return {view: outputs[slot] for view, slot in slots.items()}

    return read
