"""Retrieval between the views of some samples: their embeddings by view, and what one view finds in another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations

from torch import Tensor

from manyview.core.parallel import resolve_device
from manyview.data import Loader
from manyview.methods import Method
from manyview.report.view_samples import ViewSamples
from manyview.training.retrieval import project

BATCH = 64


@dataclass(frozen=True, eq=False)
class Found:
    """The samples that a query finds in another view.

    rows   of the nearest samples, the nearest first
    place  the rank of its own sample among all, from 1
    """

    rows: list[int]
    place: int


@dataclass(frozen=True, eq=False)
class CrossView:
    """The embeddings of samples in several views.

    vectors  (n, d) by view, the heads' outputs of unit length
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
        """Returns the rows (m,) of the samples that have both views."""
        return (self.present[query] & self.present[searched]).nonzero()[:, 0]

    def search(self, row: int, query: str, searched: str, count: int) -> Found:
        """Searches another view with a sample's own, among the samples that have both.

        A sample as near as its own comes before it, and so does NaN, as in recall@k.
        """
        among = self.with_both(query, searched)
        similarity = self.vectors[searched][among] @ self.vectors[query][row]
        own = similarity[among == row]
        place = int((~(similarity < own)).sum())
        return Found(among[similarity.argsort(descending=True, stable=True)[:count]].tolist(), place)


def embed_samples(method: Method, samples: ViewSamples) -> CrossView:
    """Embeds samples in the views that the method contrasts with one another."""
    views, device = method.contrasted, resolve_device()
    if not views:
        return CrossView(samples, {}, {})
    dataset = samples.dataset
    loader = Loader(
        dataset, samples.pipeline, min(BATCH, len(dataset)), shuffle=False, drop_last=False, device=device, workers=0,
        max_unreadable=1.0,
    )  # fmt: skip
    return CrossView(samples, *project(method.towers.to(device), loader, views))
