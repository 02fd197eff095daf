"""Writes contact sheets of what the data sets and the augmented views look like, and pictures of a report.

python docs/pictures.py                    # all sheets, into build/pictures: `make pictures`
python docs/pictures.py scenes classes     # these
python docs/pictures.py --report runs/demo/report.html                     # report.png, the top of the page
python docs/pictures.py --report runs/msrs/report.html --section across --jpeg    # across.jpg, a section of it
"""

from __future__ import annotations

import argparse
import io
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import Tensor

from manyview.data.scenes.dataset import Scenes
from manyview.views import AUGMENTATIONS, IMAGENET, ViewPipeline

GAP = 4  # white pixels between pictures
WIDTH, HEIGHT = 1160, 1650  # of what is shown of a report, in pixels
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def sheet(rows: list[list[Tensor]]) -> Image.Image:
    """Pictures (3, H, W) uint8 of one size in rows."""
    height, width = rows[0][0].shape[1:]
    columns = max(len(row) for row in rows)
    whole = torch.full((3, len(rows) * (height + GAP) + GAP, columns * (width + GAP) + GAP), 255, dtype=torch.uint8)
    for i, row in enumerate(rows):
        for j, picture in enumerate(row):
            top, left = i * (height + GAP) + GAP, j * (width + GAP) + GAP
            whole[:, top : top + height, left : left + width] = picture
    return Image.fromarray(whole.permute(1, 2, 0).numpy())


def enlarged(picture: Tensor, times: int) -> Tensor:
    return picture.repeat_interleave(times, -1).repeat_interleave(times, -2)


def scenes() -> Image.Image:
    """Draws one row a scene: both frames, depth, normals, shapes, objects, flow."""
    names = tuple(AS_RGB)
    batch = Scenes(8, size=160, modalities=names).batch(torch.arange(8))
    return sheet([[AS_RGB[name](batch[name][row]) for name in names] for row in range(8)])


def classes() -> Image.Image:
    """Draws one row a class, ten examples each, at the size that a network sees."""
    data = Scenes(1000)
    rows = [(data.labels == label).nonzero()[:10, 0] for label in range(len(data.classes))]
    return sheet([[enlarged(picture, 2) for picture in data.batch(row)["image"]] for row in rows])


def large() -> Image.Image:
    pictures = Scenes(24, size=256).batch(torch.arange(12, 24))["image"]
    return sheet([list(pictures[row : row + 4]) for row in range(0, 12, 4)])


def augmentations() -> Image.Image:
    """Draws one row an augmentation recipe: the picture, then eight augmented copies of it."""
    picture = Scenes(20, size=192).batch(torch.tensor([4]))["image"]
    return named_rows(
        {name: [fitted(picture[0], 96), *copies(AUGMENTATIONS[name](96), picture)] for name in AUGMENTATIONS}
    )


def modalities() -> Image.Image:
    """Draws one row a scene: its modalities, then two augmented copies of each, which share the crop and the flip."""
    names = ("rgb", "depth", "semantic")
    raw = Scenes(6, size=192, modalities=names).batch(torch.arange(6))
    made = AUGMENTATIONS["moco-v2"](96)(raw, torch.arange(6))
    rows = []
    for row in range(6):
        shown = [fitted(AS_RGB[name](raw[name][row]), 96) for name in names]
        for copy in range(2):
            shown.append(denormalised(made["rgb"][copy][row]))
            shown += [AS_RGB[name](made[name][copy][row]) for name in names[1:]]
        rows.append(shown)
    return sheet(rows)


def copies(pipeline: ViewPipeline, picture: Tensor) -> list[Tensor]:
    """Makes eight augmented copies of a picture (1, 3, H, W)."""
    plain = ViewPipeline(pipeline.augmentations)  # with ImageNet's mean and std for all, so that they can be undone
    made = (plain({"image": picture}, torch.tensor([0]), epoch=epoch)["image"] for epoch in range(8))
    return [fitted(denormalised(copy[0]), 96) for step in made for copy in step][:8]


def named_rows(rows: dict[str, list[Tensor]]) -> Image.Image:
    """Draws a sheet with the name of each row before it."""
    pictures = sheet(list(rows.values()))
    whole = Image.new("RGB", (pictures.width + 90, pictures.height), "white")
    whole.paste(pictures, (90, 0))
    for number, name in enumerate(rows):
        ImageDraw.Draw(whole).text((6, pictures.height * (2 * number + 1) // (2 * len(rows)) - 6), name, "black")
    return whole


def denormalised(view: Tensor) -> Tensor:
    """Turns what the network sees into a picture again."""
    mean, std = (torch.tensor(each)[:, None, None] for each in IMAGENET)
    return ((view * std + mean).clamp(0, 1) * 255).to(torch.uint8)


def fitted(picture: Tensor, side: int) -> Tensor:
    return F.interpolate(picture[None], (side, side), mode="bilinear", antialias=True)[0]


def grey(values: Tensor) -> Tensor:
    """Shows values (1, H, W) in [0, 1] as a grey picture."""
    return (values.clamp(0, 1) * 255).to(torch.uint8).expand(3, -1, -1)


def near_is_bright(depth: Tensor) -> Tensor:
    return grey(depth.min() / depth)


def direction_as_colour(normals: Tensor) -> Tensor:
    return ((normals * torch.tensor([1.0, -1.0, -1.0])[:, None, None] + 1) * 127.5).to(torch.uint8)


def number_as_colour(mask: Tensor) -> Tensor:
    return hue(mask[0] * 0.381966, (mask[0] > 0).float(), 0.35 + 0.6 * (mask[0] > 0).float())


def motion_as_colour(flow: Tensor) -> Tensor:
    """Shows the direction as hue and the distance as strength."""
    distance = flow.square().sum(0).sqrt()
    return hue(torch.atan2(flow[1], flow[0]) / (2 * torch.pi), distance / distance.max(), torch.ones_like(distance))


def hue(angle: Tensor, strength: Tensor, value: Tensor) -> Tensor:
    """Shows angles in turns (H, W) as colours."""
    shifted = torch.stack([angle, angle - 1 / 3, angle + 1 / 3])
    pure = ((6 * (shifted - shifted.round())).abs() * -1 + 2).clamp(0, 1)
    return ((1 + (pure - 1) * strength) * value * 255).to(torch.uint8)


AS_RGB: dict[str, Callable[[Tensor], Tensor]] = {
    "rgb": lambda picture: picture,
    "rgb2": lambda picture: picture,
    "depth": near_is_bright,
    "normals": direction_as_colour,
    "semantic": number_as_colour,
    "instance": number_as_colour,
    "flow": motion_as_colour,
}
PICTURES: dict[str, Callable[[], Image.Image]] = {
    "scenes": scenes,
    "classes": classes,
    "large": large,
    "augmentations": augmentations,
    "modalities": modalities,
}


def of_report(report: Path, section: str | None, file: Path) -> None:
    """Writes the top of a page, or one section of it, as a browser shows it; [dev] has playwright, Debian Chromium."""
    from playwright.sync_api import sync_playwright

    path = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(report.resolve().as_uri())
        if section is None:
            taken = page.screenshot()
        else:
            page.add_style_tag(content="nav { display: none !important } section { padding: 1rem }")
            taken = page.locator(f"section#{section}").screenshot()
        browser.close()
    whole = Image.open(io.BytesIO(taken)).convert("RGB")
    (whole.quantize(256) if file.suffix == ".png" else whole).save(file, quality=88)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write contact sheets, or a picture of a report.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"all without one: {' '.join(PICTURES)}")
    parser.add_argument("--folder", type=Path, default=Path("build/pictures"))
    parser.add_argument("--jpeg", action="store_true", help="smaller files: docs/img has these")
    parser.add_argument("--report", type=Path, help="a page that manyview has written, to take a picture of")
    parser.add_argument("--section", help="of the report: across, samples, map, ...; without, its top")
    chosen = parser.parse_args()
    unknown = set(chosen.names) - set(PICTURES)
    if unknown:
        parser.error(f"name: expected some of {', '.join(PICTURES)}, got {', '.join(sorted(unknown))}")
    chosen.folder.mkdir(parents=True, exist_ok=True)
    if chosen.report is not None:
        file = chosen.folder / f"{chosen.section or 'report'}.{'jpg' if chosen.jpeg else 'png'}"
        of_report(chosen.report, chosen.section, file)
        print(file)
        return
    for name in chosen.names or PICTURES:
        file = chosen.folder / f"{name}.{'jpg' if chosen.jpeg else 'png'}"
        PICTURES[name]().save(file, quality=88)
        print(file)


if __name__ == "__main__":
    main()
