"""How fast views of photos are made, beside other libraries and beside decoding alone; called by `data.py`.

Photos of 500 px are cut out of real ones, and those of 4,000 px are mosaics of them, so that both have as many bytes a
pixel as photos have; without real ones they are generated. All pipelines run in two workers and take turns. manyview is
there twice: in a first epoch, which decodes every file, and in later ones, which take from memory what fits. No other
library holds photos by itself, but its users may: albumentations is there twice, too.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import cv2
import torch
import torch.nn.functional as F
from measure import interleaved
from peers import Make, holding_peers, peers
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models import resnet18

from manyview.core.sample import Sample
from manyview.data.cache import Cache
from manyview.data.folder import Folder
from manyview.data.loader import Loader
from manyview.data.reader import Batches, Reader
from manyview.data.slots import Job
from manyview.views import Augmentation, ViewPipeline

WORKERS = 2
PHOTO = Augmentation(224, (0.2, 1.0), jitter=(0.4, 0.4, 0.4, 0.1), jitter_p=0.8, grey=0.2, blur=0.5)
STREAMED, HELD = "manyview, first epoch", "manyview, later epochs"
FILLING = 4  # epochs until every photo is there at each scale that crops ask for, nearly
CASES = ("500", "4000", "96", "128", "mixed", "six", "step", "breakdown")
GPUS = (500, 1000, 2000)  # images a second
Run = Callable[[], object]


class Files(Dataset[list[Tensor]]):
    """What one makes of each file in a worker."""

    def __init__(self, files: Sequence[Path], make: Make) -> None:
        self.files, self.make = files, make

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> list[Tensor]:
        return self.make(self.files[index])


def through(files: Sequence[Path], make: Make, batch: int) -> Run:
    loader = DataLoader(Files(files, make), batch, num_workers=WORKERS, persistent_workers=True, drop_last=True)
    return lambda: sum(len(each) for each in loader)


def only_decode(path: Path) -> list[Tensor]:
    cv2.imread(str(path))
    return []


def only_decode_smaller(path: Path) -> list[Tensor]:
    cv2.imread(str(path), cv2.IMREAD_REDUCED_COLOR_4)
    return []


def ours(folder: Path, augmentation: Augmentation, views: int, batch: int, memory: int | None) -> Run:
    loader = Loader(Folder(folder), ViewPipeline([augmentation] * views), batch, workers=WORKERS, memory=memory)
    epochs = iter(range(10**9))
    return lambda: sum(len(each.views()["image"]) for each in loader.epoch(next(epochs)))


def both(folder: Path, augmentation: Augmentation, views: int, batch: int) -> dict[str, Run]:
    """A first epoch again and again, and later ones; of the latter, the first epochs fill the memory."""
    streamed, held = (ours(folder, augmentation, views, batch, memory) for memory in (0, None))
    for _ in range(FILLING):
        held()
    return {STREAMED: streamed, HELD: held}


def compare(
    title: str, folder: Path, augmentation: Augmentation, views: int, batch: int, bar: float, rounds: int
) -> None:
    """Prints views a second of all pipelines, and which share of the limit manyview reaches."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    files = files[: len(files) // batch * batch]
    others = {name: through(files, make, batch) for name, make in peers(augmentation, views).items()}
    holding = {name: through(files, make, batch) for name, make in holding_peers(augmentation, views, files).items()}
    limits = {
        "decoding alone, at full size (OpenCV)": through(files, only_decode, batch),
        "decoding alone, at a quarter": through(files, only_decode_smaller, batch),
    }
    runs = {**both(folder, augmentation, views, batch), **others, **holding, **limits}
    for run in runs.values():
        run()
    slow = {name: 1 for name in others if name.startswith("kornia")}
    took = interleaved(runs, budget=1e9, rounds=(rounds, rounds), at_most=slow)
    made = views * len(files)
    print(f"\n{title}\n\n| pipeline, {WORKERS} workers | views/s | first epoch | later epochs |\n|{' --- |' * 4}")
    for name, each in took.items():
        print(f"| {name} | {made / each:,.0f} | {each / took[STREAMED]:.2f}x | {each / took[HELD]:.2f}x |")
    print("\nThe last columns say how much faster manyview is in them.")
    best, full = min(took[name] for name in others), took["decoding alone, at full size (OpenCV)"]
    for name in (STREAMED, HELD):
        gain, share = best / took[name], full / took[name]
        print(f"{name}: {gain:.2f}x the fastest other one that decodes (bar {bar}x: {said(gain >= bar)}); ", end="")
        print(f"{share:.2f} of the views that decoding alone at full size would allow (bar 0.5: {said(share >= 0.5)})")
    for name in holding:
        print(f"{HELD}: {took[name] / took[HELD]:.2f}x {name}", flush=True)


def said(met: bool) -> str:
    return "met" if met else "NOT met"


def compare_many(folder: Path, batch: int, rounds: int) -> None:
    """What a view costs if there are six of a picture instead of two, in turns."""
    runs = {f"{k}: {name}": run for k in (2, 6) for name, run in both(folder, PHOTO, k, batch).items()}
    for run in runs.values():
        run()
    took = interleaved(runs, budget=1e9, rounds=(rounds, rounds), at_most={})
    print()
    for name in (STREAMED, HELD):
        share = took[f"6: {name}"] / 6 / (took[f"2: {STREAMED}"] / 2)
        print(f"{name}: a view of six costs {share:.2f} of a view of two in a first epoch (bar 0.6: ", end="")
        print(f"{said(share <= 0.6)})", flush=True)


def seconds_a_view(
    folder: Path, augmentation: Augmentation, count: int, *, colour: bool = True, held: bool = False
) -> tuple[float, float]:
    """CPU seconds of a worker and of the process that normalises its batch, for each of two views."""
    pipeline, data = ViewPipeline([augmentation] * 2), Folder(folder)
    batches = Batches(Reader(data, pipeline, 0, colour=colour, cache=Cache(len(data)) if held else None))
    job = Job([(0, row % len(data)) for row in range(count)], slot=0)
    made = batches.__getitems__(job)
    worker = min(_cpu(lambda: batches.__getitems__(job)) for _ in range(5))
    return worker / count / 2, min(_cpu(lambda: pipeline.finish(made.views, made.ids)) for _ in range(5)) / count / 2


def hold(samples: Sequence[Sample]) -> None:
    cache = Cache(len(samples))
    for row, sample in enumerate(samples):
        cache.put(row, sample)


def report_breakdown(folder: Path, count: int) -> None:
    """Where the time of a core goes, by leaving out one thing after another."""
    data = Folder(folder)
    torch.set_num_threads(1)
    plain = replace(PHOTO, jitter=(0.0,) * 4, grey=0.0, blur=0.0)
    read = min(_cpu(lambda: [data[row % len(data)] for row in range(count)]) for _ in range(5)) / count / 2
    crop, cropped = seconds_a_view(folder, plain, count)[0], seconds_a_view(folder, PHOTO, count, colour=False)[0]
    jitter, _ = seconds_a_view(folder, replace(PHOTO, blur=0.0), count)
    whole, handed = seconds_a_view(folder, PHOTO, count)
    samples = [data[row % len(data)] for row in range(count)]
    put = min(_cpu(lambda: hold(samples)) for _ in range(5))
    parts = {
        "decoding, half of it a view": read,
        "draws, crop and resize": crop - read,
        "jitter and greyscale": jitter - crop,
        "blur": whole - jitter,
        "hand-over and normalisation": handed,
        "in the first epoch alone, into memory for later ones, half of it a view": put / count / 2,
    }
    print("\n| a view of 224 px, microseconds of a core | |\n| --- | --- |")
    for name, part in parts.items():
        print(f"| {name} | {1e6 * part:.0f} |")
    later, handed_later = seconds_a_view(folder, PHOTO, count, held=True)
    cropped_later, _ = seconds_a_view(folder, PHOTO, count, colour=False, held=True)
    rates = {
        "first epoch, colours and normalisation on the CPU": 0.5 / (whole + handed),
        "first epoch, on the GPU": 0.5 / cropped,
        "later epochs, on the CPU": 0.5 / (later + handed_later),
        "later epochs, on the GPU": 0.5 / cropped_later,
    }
    print("\nCores that feed a GPU with two views of images of 500 px, computed of the rate of one core:\n")
    print(
        f"| | images/s of a core | {' | '.join(f'{rate:,} images/s' for rate in GPUS)} |\n|{' --- |' * (2 + len(GPUS))}"
    )
    for name, rate in rates.items():
        print(f"| {name} | {rate:,.0f} | {' | '.join(f'{gpu / rate:.1f}' for gpu in GPUS)} |")


def report_step(folder: Path, batch: int = 16, steps: int = 8) -> None:
    """Which share of a training step ResNet-18 waits for two views of 224 px, on as many cores as workers."""
    torch.set_num_threads(WORKERS)
    network = resnet18().to(memory_format=torch.channels_last)
    loader = Loader(Folder(folder), ViewPipeline([PHOTO] * 2), batch, workers=WORKERS, memory=0)
    waited, worked, batches = 0.0, 0.0, (each for epoch in count() for each in loader.epoch(epoch))
    for step in range(1 + steps):  # in the first one workers start
        begin = time.perf_counter()
        views = torch.cat(next(batches).views()["image"])
        there = time.perf_counter()
        train_step(network, views)
        waited, worked = (waited + there - begin, worked + time.perf_counter() - there) if step else (0.0, 0.0)
    print(
        f"\nResNet-18 at 224 px, {batch} images a step, fp32 on {WORKERS} cores that make the views as well: ", end=""
    )
    print(
        f"{100 * waited / (waited + worked):.1f}% of a step, {(waited + worked) / steps:.2f} s, waits for data",
        flush=True,
    )


def train_step(network: nn.Module, views: Tensor) -> None:
    """Forward and backward of all views; the loss is a stand-in, which costs nothing beside them."""
    network(views.contiguous(memory_format=torch.channels_last)).square().mean().backward()
    network.zero_grad()


def _cpu(run: Run) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def cut_photos(real: Sequence[Path], folder: Path, count: int) -> None:
    """Parts of 500 x 375 of real photos, at their own resolution."""
    drawn = random.Random(0)
    for number in range(count):
        image = Image.open(real[number % len(real)]).convert("RGB")
        width, height = (500, 375) if image.width >= image.height else (375, 500)
        if image.width < width or image.height < height:
            image = image.resize((max(width, image.width), max(height, image.height)))
        left, top = drawn.randint(0, image.width - width), drawn.randint(0, image.height - height)
        image.crop((left, top, left + width, top + height)).save(folder / f"{number:05}.jpg", quality=95)


def join_photos(folder: Path, into: Path, count: int) -> None:
    """Mosaics of 4,000 x 3,000 of 64 photos each."""
    drawn, files = random.Random(0), sorted(folder.glob("*.jpg"))
    for number in range(count):
        mosaic = Image.new("RGB", (4000, 3000))
        for place in range(64):
            mosaic.paste(Image.open(drawn.choice(files)).resize((500, 375)), (place % 8 * 500, place // 8 * 375))
        mosaic.save(into / f"{number:05}.jpg", quality=90)


def generate_photos(folder: Path, count: int) -> None:
    """JPEG files of 500 x 375 with structure at all scales, as photos have."""
    generator = torch.Generator().manual_seed(0)
    for number in range(count):
        octaves = (
            F.interpolate(
                torch.randn(1, 3, 3 * 2**k, 4 * 2**k, generator=generator) / 1.6**k, (375, 500), mode="bicubic"
            )
            for k in range(8)
        )
        picture = torch.sigmoid(sum(octaves, torch.zeros(1, 3, 375, 500)))[0]
        image = Image.fromarray(picture.mul(255).byte().permute(1, 2, 0).numpy())
        image.save(folder / f"{number:05}.jpg", quality=90)


def mix_photos(folder: Path, into: Path) -> None:
    """Photos of several sizes in folders of folders: plain and progressive JPEG files, and some PNG."""
    for number, file in enumerate(sorted(folder.glob("*.jpg"))):
        whole = Image.open(file)
        side = (1.0, 0.8, 1.6, 0.6)[number % 4]
        image = whole.resize((round(side * whole.width), round(side * whole.height)))
        home = into / f"{number % 3}" / f"{number % 5}"
        home.mkdir(parents=True, exist_ok=True)
        if number % 8 == 7:
            image.save(home / f"{number:05}.png")
        else:
            image.save(home / f"{number:05}.jpeg", quality=90, progressive=number % 3 == 0)


def report_photos(real: Path | None, *, quick: bool, rounds: int, cases: Sequence[str]) -> None:
    small, large = (128, 8) if quick else (512, 32)
    with tempfile.TemporaryDirectory() as made:
        usual, huge, mixed = (Path(made, name) for name in ("500", "4000", "mixed"))
        usual.mkdir()
        if real is None:
            generate_photos(usual, small)
        else:
            cut_photos(sorted(real.rglob("*.jpg")), usual, small)
        if "4000" in cases:
            huge.mkdir()
            join_photos(usual, huge, large)
        if "mixed" in cases:
            mix_photos(usual, mixed)
        for folder in filter(Path.exists, (usual, huge, mixed)):
            sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
            print(f"\n{len(sizes)} photos, {folder.name}: {sum(sizes) / len(sizes) / 1e3:,.0f} kB each")
        few = max(1, rounds // 2)
        run: dict[str, Run] = {
            "500": lambda: compare("Two views of 224 px of photos of 500 px", usual, PHOTO, 2, 64, 1.5, rounds),
            "4000": lambda: compare("The same of photos of 4,000 px", huge, PHOTO, 2, 4, 3.0, few),
            "96": lambda: compare("Two views of 96 px", usual, replace(PHOTO, size=96), 2, 64, 1.5, rounds),
            "128": lambda: compare("Two views of 128 px", usual, replace(PHOTO, size=128), 2, 64, 1.5, rounds),
            "mixed": lambda: compare("Two views of 224 px of mixed files and sizes", mixed, PHOTO, 2, 64, 1.5, rounds),
            "six": lambda: compare_many(usual, 64, rounds),
            "step": lambda: report_step(usual),
            "breakdown": lambda: report_breakdown(usual, 64),
        }  # fmt: skip
        for case in cases:
            run[case]()
