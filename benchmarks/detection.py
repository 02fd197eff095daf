"""How fast a detector's training step is, beside the loop of torchvision's references: a markdown table.

    python benchmarks/detection.py COCO_FOLDER               # a minute or two
    python benchmarks/detection.py COCO_FOLDER --rounds 1    # does it all run?

Faster R-CNN on a ResNet-18 with a pyramid, batch norm trained, images of 256 pixels on their shorter side, the same
weights and the same numbers of boxes for both. Ours is the step of `manyview transfer --task detect`: images are read
ahead in threads. Theirs is written as references/detection of torchvision is: CocoDetection in a DataLoader, images and
targets converted and mirrored in its workers, losses summed, SGD. The two take turns in one process, with the same
images in the same order; a step's time is the median, and includes the wait for its images.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from measure import machine_facts
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision.datasets import CocoDetection
from torchvision.models import resnet18
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.rpn import AnchorGenerator
from torchvision.ops import MultiScaleRoIAlign
from torchvision.transforms.functional import hflip, pil_to_tensor

from manyview import encoders
from manyview.core.rng import key, order
from manyview.embeddings.open_model import open_model
from manyview.transfer import fit
from manyview.transfer.coco import annotation_files, image_folders
from manyview.transfer.detect import DetectionTask, optimizer_of
from manyview.transfer.detection_batches import ORDER
from manyview.transfer.detection_recipes import RECIPES
from manyview.transfer.object_data import open_objects
from manyview.transfer.prepared import Start
from manyview.transfer.rcnn import RATIOS, fpn_anchors, pyramid_levels

RECIPE = replace(
    RECIPES["coco-fpn-1x"], steps=600, milestones=(450, 550), warmup=50, sides=(256,), longest=512, precise=0
)
LEVELS = {f"layer{number + 1}": str(number) for number in range(4)}


class Converted:
    """COCO's annotations of an image as a detector's target, and the image as a tensor, mirrored half of the time."""

    def __init__(self, categories: list[int]) -> None:
        self.classes = {category: number for number, category in enumerate(sorted(categories), start=1)}

    def __call__(self, image: Any, objects: list[dict[str, Any]]) -> tuple[Tensor, dict[str, Tensor]]:
        kept = [each for each in objects if not each["iscrowd"] and min(each["bbox"][2:]) > 0]
        boxes = torch.tensor([each["bbox"] for each in kept]).view(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        if torch.rand(1) < 0.5:
            image = hflip(image)
            boxes[:, [0, 2]] = image.width - boxes[:, [2, 0]]
        labels = torch.tensor([self.classes[each["category_id"]] for each in kept], dtype=torch.long)
        return pil_to_tensor(image.convert("RGB")).float() / 255, {"boxes": boxes, "labels": labels}


def their_steps(folder: Path, model: nn.Module, task: DetectionTask) -> Iterator[None]:
    """Takes a step of the reference's loop each time that it is asked."""
    file = annotation_files(folder, "boxes")["train"]
    data = CocoDetection(str(image_folders(file)[0]), str(file))
    data.transforms = Converted(data.coco.getCatIds())
    numbers = {image: row for row, image in enumerate(data.ids)}
    drawn = order(key(0, 0, ORDER, task.train.ids)).tolist()
    rows = [numbers[task.train.images[row]["id"]] for row in drawn]
    optimizer = optimizer_of(model, RECIPE)
    loader = DataLoader(torch.utils.data.Subset(data, rows), task.recipe.batch_size, drop_last=True, num_workers=1,
                        collate_fn=lambda samples: tuple(zip(*samples, strict=True)))  # fmt: skip
    model.train()
    while True:
        for images, targets in loader:
            losses = model(list(images), list(targets))
            loss = sum(losses.values())
            assert torch.isfinite(loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield


def our_steps(task: DetectionTask, model: Any) -> Iterator[None]:
    """Takes a step of the loop of `manyview transfer` each time that it is asked."""
    training = task.training(Start(model, 0, torch.device("cpu")))
    training.model.train()
    for step, batch in fit._batches(training, 0):
        fit._step(training, batch, step, [RECIPE.lr, RECIPE.lr])
        yield


def their_model(model: nn.Module, task: DetectionTask, levels: Any) -> nn.Module:
    """The same detector as torchvision makes it, with the same weights."""
    backbone = BackboneWithFPN(resnet18(), LEVELS, [64, 128, 256, 512], 256, norm_layer=nn.BatchNorm2d)
    sizes = fpn_anchors(levels, RECIPE)
    made: nn.Module = FasterRCNN(
        backbone, len(task.train.classes) + 1,
        rpn_anchor_generator=AnchorGenerator(sizes, (RATIOS,) * len(sizes)),
        box_roi_pool=MultiScaleRoIAlign(list(LEVELS.values()), 7, 2),
        min_size=RECIPE.sides, max_size=RECIPE.longest, rpn_post_nms_top_n_train=RECIPE.proposals,
    )  # fmt: skip
    made.load_state_dict(model.state_dict())
    return made


def timed(step: Callable[[], None]) -> float:
    begun = time.perf_counter()
    step()
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=2)
    given = parser.parse_args()
    train, test = open_objects(given.folder, "boxes")
    recipe = replace(RECIPE, batch_size=given.batch_size)
    task = DetectionTask("boxes", recipe, train.subset(train.rows_with_objects()), test)
    encoder = encoders.create("torchvision/resnet18", size=256)
    source = open_model(encoder)
    theirs = their_model(task.training(Start(source, 0, torch.device("cpu"))).model, task, pyramid_levels(encoder))
    runs = {"manyview": our_steps(task, source), "torchvision": their_steps(given.folder, theirs, task)}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(given.rounds + 1):  # the first warms up
        for name, steps in runs.items():
            taken = timed(lambda steps=steps: next(steps))  # type: ignore[misc]
            times[name] += [taken] * (number > 0)
    print("\n".join(machine_facts()))
    print(f"\n| loop | seconds a step of {given.batch_size} images | images a second | of torchvision's |")
    print("| --- | --- | --- | --- |")
    reference = median(times["torchvision"])
    for name, each in times.items():
        middle = median(each)
        print(f"| {name} | {middle:.3f} | {given.batch_size / middle:.2f} | {reference / middle:.2f} |")


if __name__ == "__main__":
    main()
