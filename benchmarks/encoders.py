"""Speed and accuracy of manyview's small encoders on a CPU, beside torchvision's ResNet-18, as markdown tables.

    python benchmarks/encoders.py                               # images/s, forward + backward at 32x32
    python benchmarks/encoders.py --train DIR --minutes 3       # and supervised accuracy after the same wall-clock time

DIR holds train/CLASS/* and test/CLASS/* images of one size, such as CIFAR-10 as folders. Runs take turns in one
process, so that what else the machine does falls on all alike; only ratios from one run are worth comparing. The peer
is given its best: the faster memory format, and the best of the same learning rates.
"""

from __future__ import annotations

import argparse
import math
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from measure import Run, interleaved, machine_facts, version
from torch import Tensor, nn
from torchvision.datasets import ImageFolder
from torchvision.transforms.functional import pil_to_tensor

from manyview.encoders import Encoder, create

OURS, PEER = "patchnet", "torchvision/resnet18"
SPEED_BAR = 1.5
TURN = 5.0  # seconds of training at a stretch
PAD = 4
FORMATS = {"default": torch.contiguous_format, "channels_last": torch.channels_last}


class Case(NamedTuple):
    """A row of the table: a network, in a memory format and a precision."""

    name: str
    stem: str | None
    layout: str
    bf16: bool = False

    @property
    def label(self) -> str:
        stem = f", {self.stem} stem" if self.stem else ""
        return f"{self.name}{stem}, {self.layout}, {'bf16' if self.bf16 else 'fp32'}"


CASES = [
    *(Case(name, None, layout) for name in (OURS, PEER) for layout in FORMATS),
    *(Case(name, None, layout, bf16=True) for name in (OURS, PEER) for layout in FORMATS),
    Case("small_alexnet", None, "channels_last"),
    Case(PEER, "cifar", "channels_last"),
]


def step(encoder: Encoder, x: Tensor, bf16: bool) -> None:
    encoder.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        embedded = encoder(x)
    embedded.float().square().mean().backward()


def prepared(case: Case, batch: int) -> Run:
    layout = FORMATS[case.layout]
    encoder = create(case.name, size=32, stem=case.stem)  # type: ignore[arg-type]
    encoder.to(memory_format=layout)
    x = torch.randn(batch, 3, 32, 32).contiguous(memory_format=layout)
    step(encoder, x[: batch // 8], case.bf16)
    return partial(step, encoder, x, case.bf16)


def report_speed(batch: int, budget: float) -> bool:
    """Prints the table of images/s. Gives whether channels_last is the peer's faster format."""
    torch.manual_seed(0)
    cases = [case for case in CASES if not case.bf16 or has_bf16()]
    runs = {case.label: prepared(case, batch) for case in cases}
    slow = {case.label: 3 for case in cases if case.stem or case.name == "small_alexnet"}
    medians = interleaved(runs, budget=budget, rounds=(3, 31), at_most=slow)
    peers = {
        bf16: {c.layout: medians[c.label] for c in cases if c[:2] == (PEER, None) and c.bf16 == bf16} for bf16 in (0, 1)
    }
    print(f"\n## Speed: forward + backward, 32x32, batch {batch}\n")
    print(f"| network | M parameters | images/s | of {PEER} at its best, same precision | bar |")
    print("| --- | --- | --- | --- | --- |")
    for case in CASES:
        if case not in cases:
            print(f"| {case.label} | {millions(case):.2f} | this CPU emulates bf16: not measured | - | - |")
            continue
        ratio = min(peers[case.bf16].values()) / medians[case.label]
        bar = met(ratio >= SPEED_BAR, f"{SPEED_BAR}x") if case == Case(OURS, None, "channels_last") else "-"
        rate = batch / medians[case.label]
        print(f"| {case.label} | {millions(case):.2f} | {rate:,.0f} | {ratio:.2f}x | {bar} |", flush=True)
    return peers[False]["channels_last"] <= peers[False]["default"]


def has_bf16() -> bool:
    """Whether the CPU has instructions for it; else a step that takes a second in float32 takes minutes."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def millions(case: Case) -> float:
    with torch.device("meta"):
        encoder = create(case.name, size=32, stem=case.stem)  # type: ignore[arg-type]
    return sum(each.numel() for each in encoder.parameters()) / 1e6


def met(reached: bool, bar: str) -> str:
    return f"{bar}: {'met' if reached else 'not met'}"


class Labelled(NamedTuple):
    images: Tensor  # (N, 3, H, W) uint8
    labels: Tensor  # (N,)


def read(folder: Path) -> Labelled:
    if not folder.is_dir():
        raise SystemExit(f"--train: there is no folder {folder}; expected train/CLASS/* and test/CLASS/* in DIR")
    samples = ImageFolder(str(folder), transform=pil_to_tensor)
    images, labels = zip(*samples, strict=True)
    return Labelled(torch.stack(images), torch.tensor(labels))


class Learner:
    """A network that learns classes in turns, with crop, flip, SGD and a cosine over the seconds that it is given."""

    def __init__(self, name: str, data: Labelled, layout: torch.memory_format, lr: float, seconds: float) -> None:
        torch.manual_seed(0)
        encoder = create(name, size=data.images.shape[-1])
        self.name, self.data, self.layout, self.lr, self.seconds = name, data, layout, lr, seconds
        self.network = nn.Sequential(encoder, nn.Linear(encoder.dim, int(data.labels.max()) + 1))
        self.network.to(memory_format=layout)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr, momentum=0.9, weight_decay=5e-4, nesterov=True)
        self.used, self.seen = 0.0, 0
        self.padded = F.pad(data.images, (PAD,) * 4)
        self.mean, self.std = (f(data.images[:5000].float(), (0, 2, 3), keepdim=True) for f in (torch.mean, torch.std))

    def spend(self, seconds: float) -> None:
        end = min(self.used + seconds, self.seconds)
        while self.used < end:
            start = time.perf_counter()
            self.learn(torch.randint(len(self.data.labels), (128,)))
            self.used += time.perf_counter() - start

    def learn(self, rows: Tensor) -> None:
        done = min(1.0, self.used / self.seconds)
        warm = min(1.0, 0.01 + done / 0.05)
        self.optimizer.param_groups[0]["lr"] = self.lr * warm * (1 + math.cos(math.pi * done)) / 2
        loss = F.cross_entropy(self.network(self.augmented(rows)), self.data.labels[rows], label_smoothing=0.1)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.seen += len(rows)

    def augmented(self, rows: Tensor) -> Tensor:
        """Random crops of the padded images, half of them mirrored."""
        side = torch.arange(self.data.images.shape[-1])
        y, x = torch.randint(2 * PAD + 1, (2, len(rows), 1)) + side
        x = torch.where(torch.rand(len(rows), 1) < 0.5, x.flip(1), x)
        crops = self.padded[rows[:, None, None], :, y[:, :, None], x[:, None, :]].permute(0, 3, 1, 2)
        return self.ready(crops)

    def ready(self, images: Tensor) -> Tensor:
        return ((images.float() - self.mean) / self.std).contiguous(memory_format=self.layout)

    @torch.no_grad()
    def accuracy(self, test: Labelled) -> float:
        self.network.eval()
        scores = torch.cat([self.network(self.ready(images)) for images in test.images.split(500)])
        return float((scores.argmax(1) == test.labels).float().mean())


def report_training(folder: Path, minutes: float, rates: list[float], peer_layout: torch.memory_format) -> None:
    train, test = read(folder / "train"), read(folder / "test")
    layouts = {OURS: torch.channels_last, PEER: peer_layout}
    learners = [Learner(name, train, layout, lr, 60 * minutes) for name, layout in layouts.items() for lr in rates]
    for _ in range(math.ceil(60 * minutes / TURN) + 1):
        for learner in learners:
            learner.spend(TURN)
    print(f"\n## Learning: supervised, {len(train.labels):,} images, {minutes:g} minutes each, test accuracy\n")
    print("| network | learning rate | epochs | top-1 % |\n| --- | --- | --- | --- |")
    best = dict.fromkeys(layouts, 0.0)
    for learner in learners:
        top = learner.accuracy(test)
        best[learner.name] = max(best[learner.name], top)
        print(f"| {learner.name} | {learner.lr:g} | {learner.seen / len(train.labels):.1f} | {100 * top:.1f} |")
    print(f"\nBest of {OURS} {100 * best[OURS]:.1f}, of {PEER} {100 * best[PEER]:.1f}; ", end="")
    print(met(best[OURS] > best[PEER], "bar of a higher accuracy"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--budget", type=float, default=90, help="seconds for the table of speeds, about")
    parser.add_argument("--train", type=Path, metavar="DIR", help="also train both on these class folders")
    parser.add_argument("--minutes", type=float, default=3, help="of training, for each network and learning rate")
    parser.add_argument(
        "--lr", type=float, nargs="+", default=[0.02, 0.05, 0.1, 0.3], help="both networks get all of them"
    )
    asked = parser.parse_args()
    print("# Encoders: images/s and what is learnt\n")
    print("\n".join(machine_facts()))
    print(f"* torchvision {version('torchvision')}, timm {version('timm')}")
    last = report_speed(asked.batch, asked.budget)
    if asked.train is not None:
        report_training(asked.train, asked.minutes, asked.lr, FORMATS["channels_last" if last else "default"])


if __name__ == "__main__":
    main()
