"""Peak memory of a training step, each in a process of its own, as markdown tables.

    python benchmarks/memory.py

SimCLR with ResNet-18 at 32 px, plain and in micro-batches of 64, against the batch size; and JCL against the vanilla
many keys with gradient through all of them (JCL, appendix B), against the number of keys. With --checkpoint only large
encoders at 224 px, plain and with gradient checkpointing: peak memory, and processor time of the same step.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

import torch
from measure import MB, available_bytes, machine_facts, peak_extra_bytes

from manyview.config.resolve import resolve
from manyview.config.sections import flat
from manyview.core.sample import Views
from manyview.methods import BatchOutputs
from manyview.training import build
from manyview.training.step import Engine, micro_batches, whole_batch

BATCHES = (64, 256, 1024, 4096)
KEYS = (1, 2, 5, 9)
MICRO = 64
LARGE = ("torchvision/resnet50", "timm/vit_small_patch16_224")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--encoder", default="torchvision/resnet18")
    parser.add_argument("--checkpoint", action="store_true")
    given = parser.parse_args()
    if given.case:
        print(*peak(**json.loads(given.case)))
        return
    print("\n".join(machine_facts()) + "\n")
    if given.checkpoint:
        checkpointed()
        return
    print(f"| SimCLR, {given.encoder}, batch | plain | micro-batches of {MICRO} |\n| --- | --- | --- |")
    an_image = 0.0  # MB, as the last batch that fitted took it
    for batch in given.batches:
        case = {"encoder": given.encoder, "batch": batch, "settings": {"method": "simclr"}}
        small, _ = measured({**case, "micro": MICRO})
        if (available_bytes() or 1 << 62) > 1.2 * an_image * batch * MB:
            plain, _ = measured(case)
            an_image, shown = plain / batch, f"{plain:,.0f} MB"
        else:
            shown = f"more than there is (about {an_image * batch:,.0f} MB)"
        print(f"| {batch} | {shown} | {small:,.0f} MB |", flush=True)
    print("\n| keys an image, batch 64 | JCL | multikey, gradient through all keys |\n| --- | --- | --- |")
    for keys in KEYS:
        cells = []
        for method, momentum in (("jcl", {"start": 0.999}), ("multikey", None)):
            settings = {"method": {"name": method, "keys": keys}, "momentum": momentum, "memory": {"size": 4096}}
            cells.append(f"{measured({'encoder': given.encoder, 'batch': 64, 'settings': settings})[0]:,.0f} MB")
        print(f"| {keys} | {' | '.join(cells)} |", flush=True)


def checkpointed() -> None:
    print("| SimCLR at 224 px, batch 16 | plain | --grad-checkpoint | processor time |\n| --- | --- | --- | --- |")
    for encoder in LARGE:
        case = {"encoder": encoder, "batch": 16, "size": 224, "settings": {"method": "simclr"}}
        (plain, first), (small, second) = measured(case), measured({**case, "checkpoint": True})
        print(f"| {encoder} | {plain:,.0f} MB | {small:,.0f} MB | {second / first:.2f}x |", flush=True)


def measured(case: dict[str, Any]) -> tuple[float, float]:
    """Peak memory in MB, and processor seconds."""
    command = [sys.executable, __file__, "--case", json.dumps(case)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(said[-2]) / MB, float(said[-1])


def peak(
    encoder: str,
    batch: int,
    settings: dict[str, Any],
    micro: int | None = None,
    size: int = 32,
    checkpoint: bool = False,
) -> tuple[int, float]:
    """The bytes that a first step adds to the process at its peak, gradients included, and its processor seconds."""
    augmentation = {"name": "simclr-cifar", "size": size}
    config = resolve({}, flat({"data": "scenes", "encoder": encoder, "augmentation": augmentation, **settings}))
    method = build.method(config, {"image": 3}, batch).to(memory_format=torch.channels_last)
    if checkpoint:
        build.checkpoint_blocks(method)
    engine = Engine(method, method)
    made = torch.Generator().manual_seed(0)

    def views(rows: slice) -> Views:
        shape = len(range(batch)[rows]), 3, size, size
        return {name: [torch.randn(shape, generator=made) for _ in range(n)] for name, n in method.views.items()}

    def step() -> None:
        given = BatchOutputs({}, torch.arange(batch), torch.arange(batch))
        if micro:
            micro_batches(engine, views, given, size=micro)
        else:
            whole_batch(engine, views, given)

    start = time.process_time()
    return peak_extra_bytes(step), time.process_time() - start


if __name__ == "__main__":
    main()
