"""The map of the images: points in a plane whose pictures and neighbours the page's script shows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor

from manyview.report.html import Child, Html, tag
from manyview.report.parts import attempted, left_out, section
from manyview.report.run_embeddings import Seen

SIDE, EDGE = 480, 14
COLOURED = 10  # classes with a colour of their own, the commonest
SHAPES = ("dot", "square", "triangle")  # so that colours that look alike to somebody differ in shape
PER_SHAPE = 4
KEYS = "Arrow keys go from image to image, Enter shows neighbours."


LEAD = (
    "Each point is an image, placed by t-SNE so that images with similar features lie together. Point at one to see "
    "it, click it to see its nearest neighbours; with the keyboard, focus the map, go with the arrow keys and choose "
    "with Enter. Distances between far groups mean little."
)


def maps(seen: dict[str, Seen | str]) -> Html:
    """One map a run, side by side; over the same images a point that is chosen in one is chosen in all."""
    shown = [each for each in seen.values() if isinstance(each, Seen)]
    missing = [left_out(f"The map of {name}", why) for name, why in seen.items() if isinstance(why, str)]
    if not shown:
        return section("map", "Map of the images", None, missing)
    drawn = [
        attempted(f"The map of {each.told.name}", partial(_map, each, number, len(shown) > 1))
        for number, each in enumerate(shown)
    ]
    title = f"Map of {shown[0].pictures.said}"
    symbols = tag("svg", _symbols(), class_="symbols", aria_hidden="true")
    return section("map", title, LEAD, symbols, _legends(shown), tag("div", drawn, class_="maps"), missing)


def for_script(seen: dict[str, Seen | str]) -> dict[str, Any]:
    """What the script needs: names and classes of the images by sheet, neighbours by map."""
    shown = [each for each in seen.values() if isinstance(each, Seen)]
    sheets = {each.sheet: each for each in shown}
    return {
        "sheets": [_sheet(sheets[number]) for number in sorted(sheets)],
        "maps": [
            {
                "sheet": each.sheet,
                "near": each.near.rows.tolist(),
                "similar": [[round(value, 2) for value in row] for row in each.near.similarity.tolist()],
            }
            for each in shown
        ],
    }


def colours(seen: Seen) -> dict[int, int]:
    """Class to colour: the commonest classes have one, in the order of the classes."""
    labels = seen.pictures.labels
    if labels is None:
        return {}
    counts = labels[labels >= 0].bincount()
    common = sorted(counts.argsort(descending=True, stable=True)[:COLOURED].tolist())
    return {label: number for number, label in enumerate(label for label in common if counts[label])}


def class_name(seen: Seen, label: int) -> str:
    classes = seen.pictures.classes
    return classes[label] if 0 <= label < len(classes) else "no label" if label < 0 else str(label)


def labels_of(seen: Seen) -> list[int]:
    labels = seen.pictures.labels
    return [-1] * len(seen.pictures.names) if labels is None else labels.tolist()


def _sheet(seen: Seen) -> dict[str, Any]:
    pictures = seen.pictures
    classes = {label: class_name(seen, label) for label in set(labels_of(seen)) if label >= 0}
    return {
        "columns": pictures.sheet.columns,
        "side": pictures.sheet.side,
        "names": pictures.names,
        "labels": labels_of(seen),
        "classes": {str(label): name for label, name in classes.items()},
    }


def _map(seen: Seen, number: int, named: bool) -> Html:
    colour, labels, places = colours(seen), labels_of(seen), _placed(seen.places)
    marks = [_mark(place, label, colour.get(label)) for place, label in zip(places.tolist(), labels, strict=True)]
    plane = tag(
        "svg", tag("g", class_="links"), tag("g", marks, class_="marks"), tag("g", class_="chosen"),
        viewBox=f"0 0 {SIDE} {float(places[:, 1].max()) + EDGE:.0f}", class_="map", data_map=number, tabindex=0,
        role="application", aria_label=f"Map of {len(labels)} images by {seen.told.name}. {KEYS}",
    )  # fmt: skip
    name = tag("h3", seen.told.name, class_=f"name {seen.told.tint}") if named else None
    hint = tag("p", "Choose a point to see its nearest neighbours here.", class_="fine")
    near = tag("div", hint, class_="near", aria_live="polite", data_near=number)
    return tag("figure", name, plane, near, class_="panel")


def _placed(places: Tensor) -> Tensor:
    """(n, 2) in pixels: as wide as the map and as high as they then are, unless that is higher than wide."""
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


def _symbols() -> Html:
    shapes = (
        tag("circle", r=4, id="dot"),
        tag("rect", x=-3.5, y=-3.5, width=7, height=7, id="square"),
        tag("path", d="M0 -4.8L4.4 3.4H-4.4Z", id="triangle"),
    )
    return tag("defs", shapes)


def _legends(shown: Sequence[Seen]) -> Child:
    sheets = {each.sheet: each for each in shown}
    return [_legend(each) for each in sheets.values()]


def _legend(seen: Seen) -> Child:
    """The classes, each a switch that shows it alone."""
    colour = colours(seen)
    if not colour:
        return tag("p", "The images have no labels, so the points have no colours.", class_="fine")
    buttons = [_button(seen, label, number) for label, number in colour.items()]
    rest = len({label for label in labels_of(seen) if label >= 0}) - len(colour)
    more = tag("span", f"and {rest} more classes in grey", class_="fine") if rest > 0 else None
    return tag("div", buttons, more, class_="legend", role="group", aria_label="Classes: show one alone")


def _button(seen: Seen, label: int, number: int) -> Html:
    mark = tag("use", href=f"#{_shape(number)}")
    key = tag("svg", mark, viewBox="-7 -7 14 14", class_=f"key c{number}", aria_hidden="true")
    where = {"data_class": label, "data_sheet": seen.sheet, "aria_pressed": "false"}
    return tag("button", key, class_name(seen, label), type="button", **where)
