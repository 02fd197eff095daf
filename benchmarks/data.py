"""How fast views are made, beside torchvision, kornia and lightly: views a second, as markdown tables.

    python benchmarks/data.py                      # both tables, some minutes
    python benchmarks/data.py --quick              # fewer pictures: does it all run?
    python benchmarks/data.py --photos DIR         # your own JPEG files instead of generated ones

Two views a picture, with the same crop, flip, jitter, greyscale and blur on all sides, up to normalised float batches.
The pipelines take turns in one process; each number is the median of several passes over the pictures, after one that
does not count and in which workers start. Only ratios from one run are worth comparing.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from measure import interleaved, machine_facts, version
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.transforms import v2

from manyview.core.sample import Sample
from manyview.data.folder import Folder
from manyview.data.loader import Loader
from manyview.data.scenes.dataset import Scenes
from manyview.views import IMAGENET, Augmentation, ViewPipeline

WORKERS = 2
BATCH = 256
SMALL = Augmentation(32, (0.2, 1.0), jitter=(0.4, 0.4, 0.4, 0.1), jitter_p=0.8, grey=0.2)
LARGE = Augmentation(224, (0.2, 1.0), jitter=(0.4, 0.4, 0.4, 0.1), jitter_p=0.8, grey=0.2, blur=0.5)
Pass = Callable[[], object]


class Twice(Dataset[list[Tensor]]):
    """What one writes with torchvision: open or take a picture, transform it twice."""

    def __init__(self, pictures: list[Any], transform: Callable[[Any], Any]) -> None:
        self.pictures, self.transform = pictures, transform

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> list[Tensor]:
        picture = self.pictures[index]
        if isinstance(picture, Path):
            picture = Image.open(picture).convert("RGB")
        return [self.transform(picture), self.transform(picture)]


class All(Twice):
    """A transform that gives both views itself, as lightly's do."""

    def __getitem__(self, index: int) -> list[Tensor]:
        views: list[Tensor] = self.transform(Image.open(self.pictures[index]).convert("RGB"))
        return views


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


def torchvision_v1(augmentation: Augmentation) -> transforms.Compose:
    blur = [
        transforms.RandomApply(
            [transforms.GaussianBlur(augmentation.blur_kernel, augmentation.sigma)], augmentation.blur
        )
    ]
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(augmentation.size, augmentation.scale),
            transforms.RandomHorizontalFlip(),
            transforms.RandomApply([transforms.ColorJitter(*augmentation.jitter)], augmentation.jitter_p),
            transforms.RandomGrayscale(augmentation.grey),
            *(blur if augmentation.blur else []),
            transforms.ToTensor(),
            transforms.Normalize(*IMAGENET),
        ]
    )


def torchvision_v2(augmentation: Augmentation) -> v2.Compose:
    blur = [v2.RandomApply([v2.GaussianBlur(augmentation.blur_kernel, augmentation.sigma)], augmentation.blur)]
    return v2.Compose(
        [
            v2.ToImage(),
            v2.RandomResizedCrop(augmentation.size, augmentation.scale, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(*augmentation.jitter)], augmentation.jitter_p),
            v2.RandomGrayscale(augmentation.grey),
            *(blur if augmentation.blur else []),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(*IMAGENET),
        ]
    )


def kornia_pipeline(augmentation: Augmentation) -> nn.Module:
    from kornia import augmentation as K

    mean, std = (torch.tensor(each) for each in IMAGENET)
    return nn.Sequential(
        K.RandomResizedCrop((augmentation.size, augmentation.size), augmentation.scale),
        K.RandomHorizontalFlip(),
        K.ColorJitter(*augmentation.jitter, p=augmentation.jitter_p),
        K.RandomGrayscale(p=augmentation.grey),
        K.Normalize(mean, std),
    )


def lightly_transform(augmentation: Augmentation) -> Callable[[Any], Any]:
    from lightly.transforms.simclr_transform import SimCLRTransform

    transform: Callable[[Any], Any] = SimCLRTransform(
        augmentation.size,
        cj_prob=augmentation.jitter_p,
        cj_strength=0.5,
        cj_hue=0.2,
        min_scale=0.2,
        gaussian_blur=augmentation.blur,
    )
    return transform


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


def photo_pipelines(files: list[Path]) -> dict[str, Pass]:
    folder = Folder(files[0].parent)
    runs = {
        f"manyview, {WORKERS} workers": ours(
            Loader(folder, ViewPipeline([LARGE] * 2), BATCH, workers=WORKERS, memory=0)
        ),
        f"torchvision v1 on Pillow, {WORKERS} workers": through(Twice(files, torchvision_v1(LARGE))),
        f"torchvision v2 on tensors, {WORKERS} workers": through(Twice(files, torchvision_v2(LARGE))),
    }
    if version("lightly"):
        runs[f"lightly SimCLRTransform, {WORKERS} workers"] = through(All(files, lightly_transform(LARGE)))
    return runs


def generated_photos(folder: Path, count: int) -> list[Path]:
    """JPEG files of 500 x 375 with structure at all scales, as photos have."""
    generator = torch.Generator().manual_seed(0)
    files = []
    for number in range(count):
        octaves = (
            F.interpolate(
                torch.randn(1, 3, 3 * 2**k, 4 * 2**k, generator=generator) / 1.6**k, (375, 500), mode="bicubic"
            )
            for k in range(8)
        )
        picture = torch.sigmoid(sum(octaves, torch.zeros(1, 3, 375, 500)))[0]
        files.append(folder / f"{number:05}.jpg")
        Image.fromarray(picture.mul(255).byte().permute(1, 2, 0).numpy()).save(files[-1], quality=90)
    return files


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
    parser.add_argument("--photos", type=Path, help="a folder of JPEG files")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    small, large = (2048, 256) if args.quick else (8192, 512)
    print(*machine_facts(), f"* torchvision {version('torchvision')}, kornia {version('kornia')}", sep="\n")
    bars = {"torchvision v1": 5.0, "kornia": 3.0}
    table("32 x 32, in memory: crop, flip, jitter, greyscale", small_pipelines(small), 2 * small, bars, args.rounds)
    with tempfile.TemporaryDirectory() as made:
        files = sorted(args.photos.rglob("*.jpg"))[:large] if args.photos else generated_photos(Path(made), large)
        files = files[: len(files) // BATCH * BATCH]
        bars = {"torchvision v1": 1.0, "lightly": 1.0}
        title = "224 x 224 with blur, from JPEG files"
        table(title, photo_pipelines(files), 2 * len(files), bars, args.rounds)
    report_scenes(small // 2, args.rounds)


if __name__ == "__main__":
    main()
