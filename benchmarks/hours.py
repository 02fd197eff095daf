"""How long pre-training takes on this machine, by encoder and size of the views, as a markdown table of hours.

    python benchmarks/hours.py PHOTOS
    python benchmarks/hours.py PHOTOS --setups timm/resnet50:224 --batch 16

A few steps of `manyview.pretrain` itself (DCL, two copies) on a folder of photos: files are read, decoded and augmented
as in training. Hours are computed of the images a second between the reports of the run's middle and of its end.
"""

from __future__ import annotations

import argparse
import tempfile

from measure import machine_facts

import manyview

SETUPS = ["patchnet:32", "patchnet:64", "timm/resnet18:64", "timm/resnet18:96", "timm/resnet18:128",
          "timm/resnet18:224", "timm/resnet50:224", "timm/vit_small_patch16_224:224"]  # fmt: skip
IMAGES, EPOCHS = (2_000, 10_000, 50_000, 1_000_000), 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos")
    parser.add_argument("--setups", nargs="+", default=SETUPS, help="ENCODER:SIZE")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=4, help="that are measured, after half as many that are not")
    given = parser.parse_args()
    print("\n".join(machine_facts()) + "\n")
    columns = [f"{images:,} images" for images in IMAGES]
    print(f"| encoder | views | images/s | hours for {EPOCHS} epochs of {' | '.join(columns)} |")
    print("| --- " * (3 + len(IMAGES)) + "|")
    for setup in given.setups:
        encoder, _, size = setup.partition(":")
        rate = images_per_second(given.photos, encoder, int(size), given.batch, given.steps)
        hours = " | ".join(f"{images * EPOCHS / rate / 3600:,.1f}" for images in IMAGES)
        print(f"| `{encoder}` | {size} px | {rate:.1f} | {hours} |", flush=True)


def images_per_second(photos: str, encoder: str, size: int, batch: int, steps: int) -> float:
    before = max(1, steps // 2)
    run = manyview.pretrain(
        photos,
        method="dcl",
        encoder=encoder,
        augmentation={"name": "custom", "size": size},
        batch_size=batch,
        max_steps=before + steps,
        health_every=before,
        evaluators=(),
        report=False,
        quiet=True,
        out=tempfile.mkdtemp(),
    )
    seconds = {line["step"]: line["seconds"] for line in run.metrics}
    return batch * steps / float(seconds[before + steps] - seconds[before])


if __name__ == "__main__":
    main()
