"""The gain of computing convolutions on small maps as dense layers, as a markdown table.

    python benchmarks/dense_conv.py

Forward and backward of the same network, with and without `dense_convolutions`, in turns in one process.
"""

from __future__ import annotations

import copy
from functools import partial

import torch
from measure import Run, interleaved, machine_facts
from torch import Tensor, nn

from manyview.encoders import create, dense_convolutions

CASES = [("patchnet", 16), ("patchnet", 32), ("torchvision/resnet18", 32)]
IMAGES = 512


def main() -> None:
    print("\n".join(machine_facts()) + "\n")
    print("| encoder | views of | convolutions | dense on small maps | faster by |\n| --- | --- | --- | --- | --- |")
    for name, size in CASES:
        plain = create(name, size=size).to(memory_format=torch.channels_last)
        dense = copy.deepcopy(plain)
        dense_convolutions(dense)
        x = torch.randn(IMAGES, 3, size, size).contiguous(memory_format=torch.channels_last)
        runs: dict[str, Run] = {"plain": partial(step, plain, x), "dense": partial(step, dense, x)}
        seconds = interleaved(runs, budget=20.0, rounds=(3, 9), at_most={})
        rates = " | ".join(f"{IMAGES / seconds[run]:,.0f} images/s" for run in runs)
        print(f"| {name} | {size} px | {rates} | {seconds['plain'] / seconds['dense']:.1f}x |", flush=True)


def step(encoder: nn.Module, x: Tensor) -> None:
    encoder.zero_grad()
    encoder(x).square().mean().backward()


if __name__ == "__main__":
    main()
