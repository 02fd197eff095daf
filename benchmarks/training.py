"""A SimCLR step of manyview beside lightly's example and beside the encoder alone, as a markdown table.

    python benchmarks/training.py
    python benchmarks/training.py --encoders patchnet --steps 8 --rounds 5

Same encoder, batch, images and augmentation, two cores or whatever there are; the three take turns in one process, and
the medians of the turns are compared. Images are generated and in memory. manyview is `manyview.pretrain` itself, with
a report on the run's health every --steps steps.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from contenders import Alone, Contender, Lightly, Pretrain, network
from measure import machine_facts

from manyview.data import Scenes

BARS = {"torchvision/resnet18": 1.4, "patchnet": 1.9}
BARS_BF16 = {"torchvision/resnet18": 1.6}
SHARE_BAR = 0.92
SIMCLR = {
    "method": "simclr",
    "augmentation": {"name": "custom", "size": 32, "scale": (0.08, 1.0), "jitter": (0.8, 0.8, 0.8, 0.2)},
    "head": {"layers": 2},
    "loss": {"temperature": 0.5},
    "optimizer": {"name": "sgd", "lr": 0.06, "momentum": 0.0},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoders", nargs="+", default=["patchnet", "torchvision/resnet18"])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20, help="a turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bf16", action="store_true", help="also in bf16, where the CPU has it")
    given = parser.parse_args()
    print("\n".join(machine_facts()) + "\n")
    print("| encoder | precision | alone | manyview | lightly | of alone | of lightly |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for encoder in given.encoders:
        for bf16 in (False, True) if given.bf16 else (False,):
            print(row(encoder, given.batch, given.steps, given.rounds, bf16), flush=True)


def row(encoder: str, batch: int, steps: int, rounds: int, bf16: bool) -> str:
    data = Scenes(8 * batch, size=32)
    images = data.batch(torch.arange(len(data)))["image"]
    runs = contenders(encoder, data, images, batch, bf16)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(run.train(steps) / steps)
    alone, ours, theirs = (batch / statistics.median(times[name]) for name in ("alone", "manyview", "lightly"))
    bar = (BARS_BF16 if bf16 else BARS).get(encoder)
    wanted = f" (bar {bar})" if bar else ""
    rates = " | ".join(f"{rate:,.0f} images/s" for rate in (alone, ours, theirs))
    precision = "bf16" if bf16 else "fp32"
    return (
        f"| {encoder} | {precision} | {rates} | {ours / alone:.2f} (bar {SHARE_BAR}) | {ours / theirs:.2f}x{wanted} |"
    )


def contenders(encoder: str, data: Scenes, images: torch.Tensor, batch: int, bf16: bool) -> dict[str, Contender]:
    from lightly.loss import NTXentLoss

    return {
        "alone": Alone(network(encoder), torch.randn(2 * batch, 3, 32, 32), bf16=bf16),
        "manyview": Pretrain(data, bf16=bf16, batch_size=batch, encoder=encoder, **SIMCLR),
        "lightly": Lightly(images, network(encoder), NTXentLoss(temperature=0.5), batch=batch, bf16=bf16),
    }


if __name__ == "__main__":
    main()
