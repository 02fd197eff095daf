"""Samples of a run with several views, with each view as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from manyview.config.config import Config
from manyview.core.rng import key, order
from manyview.core.sample import Sample
from manyview.data import Dataset
from manyview.data.dataset import read
from manyview.data.selection import subset
from manyview.data.visible import Kind, visible
from manyview.report.images import DRAWN, LARGE_SIDES, centre, shorten, source_of
from manyview.training import pipelines, run_data
from manyview.views import ViewPipeline
from manyview.views.view import View

Tile = tuple[int, str]
"""A row of the samples, and a view."""


@dataclass(frozen=True, eq=False)
class ViewSamples:
    """Some samples of a run with several views.

    dataset      these samples alone
    views        which modality each view is derived from, and what is taken of it
    pipeline     that makes the towers' views of them
    description  of the selection: "512 of the 1,500 test samples"
    """

    dataset: Dataset
    views: Mapping[str, View]
    pipeline: ViewPipeline
    description: str

    def caption(self, tile: Tile) -> str:
        """Writes a sample's name and which view of it is shown."""
        row, view = tile
        return f"{shorten(self.dataset.name(row))}, {view}"

    def spread(self, rows: Iterable[int], count: int) -> list[int]:
        """Chooses rows of as many classes as possible, in their order; any where there are no labels."""
        rows, labels = list(rows), self.dataset.labels
        firsts: dict[int, int] = {}
        for row in rows if labels is not None else ():
            firsts.setdefault(int(labels[row]), row)  # type: ignore[index]
        chosen = [row for label, row in sorted(firsts.items()) if label >= 0][:count]
        return chosen + [row for row in rows if row not in chosen][: count - len(chosen)]

    def tiles(self, wanted: Iterable[Tile]) -> dict[Tile, Image.Image]:
        """Makes pictures of some samples' views, each view in one range; missing and broken ones are left out."""
        ordered = list(dict.fromkeys(wanted))
        samples = {row: read(self.dataset, row) for row in dict.fromkeys(row for row, _ in ordered)}
        made: dict[Tile, Image.Image] = {}
        for view, seen in self.views.items():
            there = {
                (row, view): sample
                for row, each in ordered
                if each == view and isinstance(sample := samples[row], Sample) and seen.modality in sample.modalities
            }
            if there:
                seen_, holes = zip(*(self._seen(sample, view) for sample in there.values()), strict=True)
                shown = visible(seen_, self._kind(there, view), holes)
                made |= {tile: centre(picture, LARGE_SIDES[0]) for tile, picture in zip(there, shown, strict=True)}
        return made

    def _seen(self, sample: Sample, view: str) -> tuple[Tensor, Tensor | None]:
        """Returns a modality in its own unit with its holes, or what the tower sees of a derived view."""
        seen = self.views[view]
        raw = sample.modalities[seen.modality]
        if seen.space is None and seen.channels is None:
            return raw, self.pipeline.modality(seen.modality, raw).holes(raw)
        alone = self.pipeline.of({view: 1}, views=self.views)
        return alone({seen.modality: raw[None]}, torch.tensor([sample.id]))[view][0][0], None

    def _kind(self, there: Mapping[Tile, Sample], view: str) -> Kind:
        seen, sample = self.views[view], next(iter(there.values()))
        if seen.space is not None:
            return "values"
        about = self.pipeline.modality(seen.modality, sample.modalities[seen.modality])
        return "mask" if about.nearest else "directions" if about.vectors == "directions" else "values"


def choose_samples(config: Config, data: run_data.RunData, count: int) -> ViewSamples:
    """Chooses at most `count` samples, held-out ones where there are any, by their ids alone."""
    source, kind = source_of(data)
    dataset = subset(source, order(key(DRAWN, source.ids))[:count])
    description = f"{len(dataset):,} of the {len(source):,} {kind} samples"
    return ViewSamples(dataset, data.views, pipelines.evaluation(config, data.views), description)
