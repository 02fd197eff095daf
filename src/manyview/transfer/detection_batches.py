"""Batches of images with objects: read ahead, some mirrored, the same ones whenever they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from manyview.core.distributed import equal_shares, rank
from manyview.core.rng import key, order, uniform
from manyview.transfer.objects import ObjectImages

Targets = list[dict[str, Tensor]]
DetectionBatch = tuple[list[Tensor], Targets]
ORDER, MIRROR = 1, 2  # keep the draws of an epoch apart
AHEAD = 2  # batches that are read while one is learnt from
THREADS = 2  # that read images, where nobody says how many


@dataclass(frozen=True, eq=False)
class DetectionBatches:
    """The batches of a detector's training: an order and mirrored images drawn from (seed, epoch, id) alone.

    threads  that read images, at least one

    Of several processes each has its share of a batch.
    """

    data: ObjectImages
    batch_size: int
    seed: int
    threads: int = THREADS

    @property
    def per_epoch(self) -> int:
        """How many batches there are in an epoch; images that fill none are left out, other ones each time."""
        return max(1, len(self.data) // self.batch_size)

    def __call__(self, epoch: int, start: int = 0) -> Iterator[DetectionBatch]:
        """The batches of an epoch, from one of them on."""
        rows = order(key(self.seed, epoch, ORDER, self.data.ids)).tolist()
        parts = [_own(rows[at * self.batch_size : (at + 1) * self.batch_size]) for at in range(start, self.per_epoch)]
        with ThreadPoolExecutor(max(1, self.threads)) as pool:
            waiting = [[pool.submit(self._sample, epoch, row) for row in part] for part in parts[:AHEAD]]
            for number in range(len(parts)):
                samples = [each.result() for each in waiting.pop(0)]
                if number + AHEAD < len(parts):
                    waiting.append([pool.submit(self._sample, epoch, row) for row in parts[number + AHEAD]])
                yield [image for image, _ in samples], [target for _, target in samples]

    def _sample(self, epoch: int, row: int) -> tuple[Tensor, dict[str, Tensor]]:
        image, target = self.data.read(row), self.data.target(row)
        can_mirror = self.data.kind != "keypoints" or self.data.mirrored is not None
        draw = float(uniform(key(self.seed, epoch, MIRROR, self.data.ids[row]), 1))
        return mirror(image, target, self.data.mirrored) if can_mirror and draw < 0.5 else (image, target)


def _own(rows: list[int]) -> list[int]:
    """The rows of a batch that this process learns from."""
    shares = equal_shares(len(rows))
    before = sum(shares[: rank()])
    return rows[before : before + shares[rank()]]


def mirror(image: Tensor, target: dict[str, Tensor], points: list[int] | None) -> tuple[Tensor, dict[str, Tensor]]:
    """An image (3, H, W) and its objects from right to left; `points` are the keypoints that left and right become."""
    width = image.shape[2]
    left, top, right, bottom = target["boxes"].unbind(1)
    found = {**target, "boxes": torch.stack([width - right, top, width - left, bottom], 1)}
    if "masks" in target:
        found["masks"] = target["masks"].flip(2)
    if "keypoints" in target:
        moved = target["keypoints"][:, points].clone()
        moved[..., 0] = (width - moved[..., 0]) * (moved[..., 2] > 0)
        found["keypoints"] = moved
    return image.flip(2), found


def on_device(batch: DetectionBatch, device: torch.device) -> DetectionBatch:
    """A batch as torchvision's detectors want it: images as floats in [0, 1]."""
    images, targets = batch
    pixels = [image.to(device).float().div(255) for image in images]
    return pixels, [{name: each.to(device) for name, each in target.items()} for target in targets]
