"""The section of the map: images as points in a plane, whose pictures and neighbours the page's script shows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor

from manyview.report.html import Child, Html, attempted, left_out, section, tag
from manyview.report.images import PageImages, commonest
from manyview.report.run_embeddings import EmbeddedRuns, RunEmbeddings

SIDE, EDGE = 480, 14  # pixels
COLOURED = 10  # classes with a colour of their own, the commonest
SHAPES = ("dot", "square", "triangle")  # so that colours that look alike to somebody differ in shape
SYMBOLS = (
    tag("circle", r=4, id="dot"),
    tag("rect", x=-3.5, y=-3.5, width=7, height=7, id="square"),
    tag("path", d="M0 -4.8L4.4 3.4H-4.4Z", id="triangle"),
)
PER_SHAPE = 4
KEYS = "Arrow keys go from image to image, Enter shows neighbours."
LEAD = (
    "Each point is an image, placed by t-SNE so that images with similar features lie together. Point at one to see "
    "it, click it to see its nearest neighbours; with the keyboard, focus the map, go with the arrow keys and choose "
    "with Enter. Distances between far groups mean little."
)


def maps(embedded: EmbeddedRuns) -> Html:
    """Draws a map per run, side by side; over the same images a selected point is selected in all maps."""
    shown = embedded.shown
    missing = [left_out(f"The map of {name}", why) for name, why in embedded.missing.items()]
    if not shown:
        return section("map", "Map of the images", None, missing)
    drawn = [
        attempted(f"The map of {each.record.name}", partial(_map, each, number, len(shown) > 1))
        for number, each in enumerate(shown)
    ]
    symbols = tag("svg", tag("defs", SYMBOLS), class_="symbols", aria_hidden="true")
    legends = [_legend(images, number) for number, images in embedded.sheets.items()]
    title = f"Map of {shown[0].images.description}"
    return section(
        "map",
        title,
        " ".join(filter(None, [LEAD + embedded.which_view, shown[0].images.why])),
        symbols,
        legends,
        tag("div", drawn, class_="maps"),
        missing,
    )


def script_data(embedded: EmbeddedRuns) -> dict[str, Any]:
    """Returns the data of the script: names and classes of the images by sheet, neighbours by map."""
    return {
        "sheets": [_sheet(images) for _, images in sorted(embedded.sheets.items())],
        "maps": [
            {
                "sheet": each.sheet,
                "near": each.neighbours.rows.tolist(),
                "similar": [[round(value, 2) for value in row] for row in each.neighbours.similarity.tolist()],
            }
            for each in embedded.shown
        ],
    }


def class_colours(images: PageImages) -> dict[int, int]:
    """Assigns colours to the commonest classes, in the order of the classes."""
    if images.labels is None:
        return {}
    return {label: number for number, label in enumerate(commonest(images.labels[images.labels >= 0], COLOURED))}


def _sheet(images: PageImages) -> dict[str, Any]:
    labels = images.label_list
    return {
        "columns": images.sheet.columns,
        "side": images.sheet.side,
        "names": images.names,
        "labels": labels,
        "classes": {str(label): images.class_name(label) for label in set(labels) if label >= 0},
    }


def _map(embedded: RunEmbeddings, number: int, named: bool) -> Html:
    record, colours, places = embedded.record, class_colours(embedded.images), to_pixels(embedded.positions)
    labels = embedded.images.label_list
    marks = [_mark(place, label, colours.get(label)) for place, label in zip(places.tolist(), labels, strict=True)]
    plane = tag(
        "svg", tag("g", class_="links"), tag("g", marks, class_="marks"), tag("g", class_="chosen"),
        viewBox=f"0 0 {SIDE} {float(places[:, 1].max()) + EDGE:.0f}", class_="map", data_map=number, tabindex=0,
        role="application", aria_label=f"Map of {len(labels)} images by {record.name}. {KEYS}",
    )  # fmt: skip
    name = tag("h3", record.name, class_=f"name {record.colour_class}") if named else None
    hint = tag("p", "Choose a point to see its nearest neighbours here.", class_="fine")
    near = tag("div", hint, class_="near", aria_live="polite", data_near=number)
    return tag("figure", name, plane, near, class_="panel")


def to_pixels(places: Tensor) -> Tensor:
    """Scales positions (n, 2) to pixels: as wide as the map, unless they would then be higher than wide."""
    low, extent = places.amin(0), (places.amax(0) - places.amin(0)).clamp_min(1e-9)
    width = SIDE - 2 * EDGE
    placed = (places - low) * width / extent.max()
    placed[:, 0] += (width - placed[:, 0].max()) / 2
    return EDGE + placed


def _mark(place: Sequence[float], label: int, colour: int | None) -> Html:
    x, y = (round(value, 1) for value in place)
    kind = "other" if colour is None else f"c{colour}"
    return tag("use", href=f"#{_shape(colour)}", x=f"{x:g}", y=f"{y:g}", class_=kind, data_k=label)


def _shape(colour: int | None) -> str:
    return SHAPES[0] if colour is None else SHAPES[colour // PER_SHAPE % len(SHAPES)]


def _legend(images: PageImages, sheet: int) -> Child:
    """Lists the classes, each a switch that shows it alone."""
    colours = class_colours(images)
    if not colours:
        return tag("p", "The images have no labels, so the points have no colours.", class_="fine")
    buttons = [_button(images.class_name(label), label, sheet, colour) for label, colour in colours.items()]
    rest = len({label for label in images.label_list if label >= 0}) - len(colours)
    more = tag("span", f"and {rest} more classes in grey", class_="fine") if rest > 0 else None
    return tag("div", buttons, more, class_="legend", role="group", aria_label="Classes: show one alone")


def _button(name: str, label: int, sheet: int, colour: int) -> Html:
    mark = tag("use", href=f"#{_shape(colour)}")
    key = tag("svg", mark, viewBox="-7 -7 14 14", class_=f"key c{colour}", aria_hidden="true")
    return tag("button", key, name, type="button", data_class=label, data_sheet=sheet, aria_pressed="false")
