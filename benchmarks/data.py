"""How fast views are made, beside torchvision, kornia and lightly: views a second, as markdown tables.

    python benchmarks/data.py                      # all tables, some minutes
    python benchmarks/data.py --quick              # fewer pictures: does it all run?
    python benchmarks/data.py --photos DIR         # photos made of real ones, below DIR, instead of generated ones
    python benchmarks/data.py --photos DIR --only photos
    python benchmarks/data.py --photos DIR --only photos --cases 500,4000      # some of: 500, 4000, 96, 128, mixed,
                                                                               # six, step, breakdown

Views with the same crop, flip, jitter, greyscale and blur on all sides, up to normalised float batches: of small
pictures in memory here, of photos in files in `photos.py`.
The pipelines take turns in one process; each number is the median of several passes over the pictures, after one that
does not count and in which workers start. Only ratios from one run are worth comparing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from measure import interleaved, machine_facts, version
from peers import kornia_pipeline, torchvision_v1, torchvision_v2
from photos import CASES, report_photos
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from manyview.core.sample import Sample
from manyview.data.loader import Loader
from manyview.data.scenes.dataset import Scenes
from manyview.views import Augmentation, ViewPipeline

WORKERS = 2
BATCH = 256
SMALL = Augmentation(32, (0.2, 1.0), jitter=(0.4, 0.4, 0.4, 0.1), jitter_p=0.8, grey=0.2)
Pass = Callable[[], object]


class Twice(Dataset[list[Tensor]]):
    """What one writes with torchvision: take a picture, transform it twice."""

    def __init__(self, pictures: list[Any], transform: Callable[[Any], Any]) -> None:
        self.pictures, self.transform = pictures, transform

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> list[Tensor]:
        return [self.transform(self.pictures[index]) for _ in range(2)]


class Tensors:
    """Pictures in memory as manyview's data set."""

    labels, classes, modalities = None, (), ("image",)

    def __init__(self, images: Tensor) -> None:
        self.images, self.ids = images, torch.arange(len(images))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Sample:
        return Sample(index, index, {"image": self.images[index]})

    def name(self, index: int) -> str:
        return str(index)


def through(data: Dataset[list[Tensor]]) -> Pass:
    """A whole pass through torch's loader with workers that stay."""
    loader = DataLoader(data, BATCH, num_workers=WORKERS, persistent_workers=True, drop_last=True)
    return lambda: sum(len(batch) for batch in loader)


def ours(loader: Loader) -> Pass:
    epochs: Iterator[int] = iter(range(10**9))
    return lambda: sum(len(batch.views()["image"]) for batch in loader.epoch(next(epochs)))


def small_pipelines(count: int) -> dict[str, Pass]:
    images = torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8)
    pillow = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in images]
    runs = {
        "manyview": ours(Loader(Tensors(images), ViewPipeline([SMALL] * 2), BATCH)),
        f"torchvision v1 on Pillow, {WORKERS} workers": through(Twice(pillow, torchvision_v1(SMALL))),
        f"torchvision v2 on tensors, {WORKERS} workers": through(Twice(list(images), torchvision_v2(SMALL))),
    }
    if version("kornia"):
        pipeline = kornia_pipeline(SMALL)
        runs["kornia, batched"] = lambda: [pipeline(x.float() / 255) for x in images.split(BATCH) for _ in range(2)]
    return runs


def table(title: str, runs: dict[str, Pass], views: int, bars: dict[str, float], rounds: int) -> None:
    for run in runs.values():
        run()
    seconds = interleaved(runs, budget=1e9, rounds=(rounds, rounds), at_most={})
    best = seconds[next(iter(runs))]
    print(f"\n{title}\n\n| pipeline | views/s | manyview is faster by | bar |\n| --- | --- | --- | --- |")
    for name, took in seconds.items():
        bar = next((bar for peer, bar in bars.items() if name.startswith(peer)), None)
        met = "" if bar is None else f">= {bar}x: {'met' if took / best >= bar else 'NOT met'}"
        print(f"| {name} | {views / took:,.0f} | {took / best:.2f}x | {met} |", flush=True)


def report_scenes(count: int, rounds: int) -> None:
    """How fast the generated data set is made."""
    data = Scenes(count)
    data.batch(torch.arange(64))
    took = interleaved({"": lambda: data.batch(torch.arange(count))}, budget=1e9, rounds=(rounds, rounds), at_most={})
    print(f"\nScenes of 32 x 32: {count / took['']:,.0f} images/s rendered")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer pictures")
    parser.add_argument("--photos", type=Path, help="a folder of JPEG files, of which photos are cut and joined")
    parser.add_argument("--only", choices=("small", "photos"), help="some of the tables")
    parser.add_argument("--cases", default=",".join(CASES), help="of photos; all by default")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print(*machine_facts(), f"* torchvision {version('torchvision')}, kornia {version('kornia')}", sep="\n")
    if args.only != "photos":
        small = 2048 if args.quick else 8192
        bars = {"torchvision v1": 5.0, "kornia": 3.0}
        table("32 x 32, in memory: crop, flip, jitter, greyscale", small_pipelines(small), 2 * small, bars, args.rounds)
        report_scenes(small // 2, args.rounds)
    if args.only != "small":
        report_photos(args.photos, quick=args.quick, rounds=args.rounds, cases=args.cases.split(","))


if __name__ == "__main__":
    main()
