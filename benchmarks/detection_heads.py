"""What the heads of a detector cost on a small encoder: seconds of a core for a step, a markdown table.

    python benchmarks/detection_heads.py

A step of the recipe `small` on four generated scenes of 128 pixels with patchnet, once with its own pyramid and heads,
and once with those of the papers (recipe coco-fpn-1x); the same boxes are learnt from in both. Time is the processor's,
of one thread, the median of some steps after two that warm up.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from statistics import median

import torch
from measure import machine_facts

from manyview import encoders
from manyview.embeddings.open_model import open_model
from manyview.transfer import fit
from manyview.transfer.detect import DetectionTask
from manyview.transfer.detection_recipes import RECIPES, DetectionRecipe
from manyview.transfer.object_data import open_objects
from manyview.transfer.objects import Kind
from manyview.transfer.prepared import Start

KINDS: tuple[Kind, ...] = ("boxes", "masks", "keypoints")
HEADS = ("width", "box_width", "mask_layers", "keypoint_layers")
SMALL, PAPERS = RECIPES["small"], RECIPES["coco-fpn-1x"]
WITH = {"small": SMALL, "the papers'": replace(SMALL, **{name: getattr(PAPERS, name) for name in HEADS})}
WARM = 2


def step_seconds(kind: Kind, recipe: DetectionRecipe, steps: int) -> tuple[float, float]:
    """Seconds of a step, and the millions of weights of the detector."""
    train, test = open_objects("scenes", kind, count=32, test=8, seed=7)
    task = DetectionTask(kind, recipe, train.subset(train.rows_with_objects()), test)
    training = task.training(Start(open_model(encoders.create("patchnet", size=128)), 0, torch.device("cpu")))
    training.model.train()
    times = []
    for number, batch in fit._batches(training, 0):
        if number == WARM + steps:
            break
        begun = time.process_time()
        fit._step(training, batch, number, [recipe.lr, recipe.lr])
        times.append(time.process_time() - begun)
    return median(times[WARM:]), sum(each.numel() for each in training.model.parameters()) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("\n".join(machine_facts()) + "\n", flush=True)
    print("| what is found | heads | million weights | seconds a step |\n| --- | --- | --- | --- |")
    for kind in KINDS:
        for name, recipe in WITH.items():
            seconds, weights = step_seconds(kind, recipe, given.steps)
            print(f"| {kind} | {name} | {weights:.1f} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
