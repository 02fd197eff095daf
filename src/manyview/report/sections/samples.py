"""The section of samples of runs with several views: each sample as all its views, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from PIL import Image

from manyview.report.html import Child, Html, attempted, section, tag, verbatim
from manyview.report.images import LARGE_SIDES, ThumbnailSheet, thumbnail_sheet
from manyview.report.run_embeddings import EmbeddedRuns, RunEmbeddings
from manyview.report.view_samples import Tile, ViewSamples

SHOWN = 8
FIRST_SHEET = 200  # sheets of thumbnails are numbered from here
SHEET_BYTES = 300_000
LEAD = (
    "Each sample in all views of the run. Values that are no colours are stretched over the pictures of a "
    "view: one channel as grey, two as red and green with yellow and blue, of more the first three. Where a sensor saw "
    "nothing, it is pink."
)


class Tiles:
    """Pictures of samples' views on one sheet of thumbnails, by sample and view."""

    def __init__(self, samples: ViewSamples, pictures: Mapping[Tile, Image.Image], number: int) -> None:
        self.samples, self.number = samples, number
        self.places = {tile: place for place, tile in enumerate(pictures)}
        self.sheet: ThumbnailSheet | None = None
        if pictures:
            self.sheet = thumbnail_sheet(list(pictures.values()), max_bytes=SHEET_BYTES, sides=LARGE_SIDES)

    @property
    def style(self) -> Child:
        return None if self.sheet is None else verbatim("style", self.sheet.style(self.number))

    def show(self, tile: Tile, kind: str = "", note: str = "") -> Html:
        """Shows a view of a sample, or says that it is missing."""
        caption = self.samples.caption(tile) + note
        if self.sheet is None or tile not in self.places:
            return tag("span", f"no {tile[1]}", class_=f"thumb missing {kind}".strip(), title=caption)
        return self.sheet.thumbnail(self.places[tile], self.number, caption, kind)


def samples(embedded: EmbeddedRuns) -> Html | None:
    """Shows some samples of each run that has several views."""
    several = [each for each in embedded.shown if len(each.views) > 1]
    if not several:
        return None
    alone = len(several) == 1
    parts = [
        attempted(f"Samples of {each.record.name}", partial(_of_run, each, FIRST_SHEET + number, not alone))
        for number, each in enumerate(several)
    ]
    return section("samples", "Samples in all their views", LEAD, parts)


def _of_run(embedded: RunEmbeddings, sheet: int, named: bool) -> Child:
    found = embedded.samples
    rows = found.spread(range(len(found.dataset)), 2 * SHOWN)
    pictures = found.tiles((row, view) for row in rows for view in found.views)
    readable = [row for row in rows if any((row, view) in pictures for view in found.views)][:SHOWN]
    kept = {tile: picture for tile, picture in pictures.items() if tile[0] in readable}
    tiles = Tiles(found, kept, sheet)
    name = tag("h3", embedded.record.name, class_=f"name {embedded.record.colour_class}") if named else None
    return [tiles.style, name, tag("div", [_sample(tiles, row) for row in readable], class_="samples")]


def _sample(tiles: Tiles, row: int) -> Html:
    cells = [tag("span", tiles.show((row, view)), tag("small", view), class_="weighed") for view in tiles.samples.views]
    return tag("div", cells, class_="sample thumbs")
