"""The section on positions within images: their features as colours, and matching positions of neighbours."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor

from manyview.core.parallel import resolve_device
from manyview.data import Loader
from manyview.data.selection import subset
from manyview.data.visible import visible
from manyview.diagnose.places import Correspondence, correspondence, principal_colours
from manyview.embeddings.embed import fine_map
from manyview.features.embedding_pass import forward
from manyview.report.html import Child, Html, attempted, figure, section, tag
from manyview.report.jpeg import jpeg_uri
from manyview.report.run_embeddings import EmbeddedRuns, RunEmbeddings
from manyview.report.sections.neighbours import choose_queries

QUERIES = 4
PAIRS = 6  # of places that are joined
SIDE, GAP = 128, 8  # pixels of a picture, and between two
LEAD = (
    "The encoder's features at every place of an image, as colours: the first three principal components over all "
    "places shown here. Places of one colour have features alike; an encoder that tells objects from what is behind "
    "them colours them apart. Lines join places of an image and of its nearest neighbour that are nearest to one "
    "another, the {pairs} most alike."
)


class Places(NamedTuple):
    """Some images as an encoder sees them, and its feature maps (n, d, h, w) of the named layer."""

    pictures: list[Image.Image]
    maps: Tensor
    layer: str


def places(embedded: EmbeddedRuns) -> Html | None:
    """Shows some images of each run with their nearest neighbours, position by position; None without embeddings."""
    if not embedded.shown:
        return None
    named = len(embedded.shown) > 1
    parts = [attempted(f"Places of {each.record.name}", partial(_of_run, each, named)) for each in embedded.shown]
    return section("places", "Features by place", LEAD.format(pairs=PAIRS) + embedded.which_view, parts)


def read_places(embedded: RunEmbeddings, rows: list[int]) -> Places:
    """Reads inputs and feature maps of some of the images, each as often as its row is given."""
    once = list(dict.fromkeys(rows))
    source, view, device = embedded.source, next(iter(embedded.source.encoders)), resolve_device()
    encoder, dataset = source.encoder.to(device), subset(embedded.images.dataset, torch.tensor(once))
    name, layer = dataset.modalities[0], fine_map(encoder)
    pipeline = source.pipeline(name, view=view, of={view: source.modality(view, dataset)})
    loader = Loader(
        dataset, pipeline, len(dataset), shuffle=False, drop_last=False, device=device, workers=0, max_unreadable=1.0
    )
    seen = next(iter(next(iter(loader.epoch(0))).views().values()))[0]
    maps = forward(encoder, seen, read=lambda network, x: network.embed_with_maps(x, [layer])[1][layer])
    pictures, chosen = visible(list(seen.float().cpu())), [once.index(row) for row in rows]
    return Places([pictures[place] for place in chosen], maps.float().cpu()[chosen], layer)


def _of_run(embedded: RunEmbeddings, named: bool) -> Child:
    queries = choose_queries(embedded.images)[:QUERIES]
    rows = [row for query in queries for row in (query, int(embedded.neighbours.rows[query, 0]))]
    found = read_places(embedded, rows)
    colours = [_picture(each) for each in principal_colours(found.maps)]
    drawn = []
    for number in range(0, len(rows), 2):
        pairs = correspondence(found.maps[number], found.maps[number + 1], PAIRS)
        names = [embedded.images.caption(row) for row in rows[number : number + 2]]
        drawn.append(_drawn(found.pictures[number : number + 2], colours[number : number + 2], pairs, found, names))
    grid = f"{found.maps.shape[2]} x {found.maps.shape[3]} places of {found.layer}"
    caption = f"Above, images and their nearest neighbours, {grid}; below, the features of each."
    title = "Features by place" + (f": {embedded.record.name}" if named else "")
    return figure(title, tag("div", drawn, class_="place-pairs"), caption)


def _drawn(
    pictures: list[Image.Image], colours: list[Image.Image], pairs: Correspondence, found: Places, names: list[str]
) -> Html:
    """Draws two images side by side with their colours below, and lines between matching positions."""
    step, (rows, columns) = SIDE + GAP, found.maps.shape[2:]
    tiles = [
        tag("image", href=jpeg_uri(tile.resize((SIDE, SIDE), kind), widest=SIDE), x=x * step, y=y * step, width=SIDE,
            height=SIDE)
        for y, (row, kind) in enumerate([(pictures, Image.Resampling.BICUBIC), (colours, Image.Resampling.NEAREST)])
        for x, tile in enumerate(row)
    ]  # fmt: skip
    lines = []
    for number, (start, end) in enumerate(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)):
        (y1, x1), (y2, x2) = (
            ((row + 0.5) * SIDE / rows, (column + 0.5) * SIDE / columns) for row, column in (start, end)
        )
        lines.append(tag("path", d=f"M{x1:.1f} {y1:.1f}L{x2 + step:.1f} {y2:.1f}", class_=f"pair c{number}"))
    size = f"0 0 {step + SIDE} {step + SIDE}"
    text = f"{names[0]} and its nearest neighbour {names[1]}: {len(lines)} places joined"
    return tag("svg", tiles, lines, viewBox=size, role="img", aria_label=text)


def _picture(colours: Tensor) -> Image.Image:
    return Image.fromarray((colours * 255).round().to(torch.uint8).permute(1, 2, 0).contiguous().numpy())
