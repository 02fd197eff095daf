"""How detectors are trained, by name, each with its source."""

from __future__ import annotations

from dataclasses import dataclass, replace

from manyview.core.errors import UserError, hint
from manyview.transfer.objects import Kind

COCO_SIDES = (640, 672, 704, 736, 768, 800)
VOC_SIDES = (480, 512, 544, 576, 608, *COCO_SIDES)


@dataclass(frozen=True)
class DetectionRecipe:
    """The numbers of a detector's training. The learning rate is for its batch size, and is not scaled to another.

    source      who trains so
    neck        "fpn": all stages, through a feature pyramid; "c4": the last stage but one, and the last for each box
    steps       of batch_size images
    milestones  steps after which the learning rate is a tenth of what it was
    warmup      steps in which it grows linearly, from a thousandth
    sides       of an image's shorter side in pixels, one drawn for each image; the last one for scores
    longest     pixels of the longer side, at which the image becomes smaller instead
    anchor      the side of an anchor as a multiple of its map's stride; "c4" has anchors of its own
    regions     boxes of an image that the second stage learns from
    proposed    of a map, in training and for scores, before any is suppressed
    proposals   that are kept of an image in training
    width       channels of the pyramid
    box_width   of the two layers that boxes are classified with; "c4" has the last stage instead
    mask_layers, keypoint_layers   channels of each convolution that masks and keypoints are found with
    precise     batches over which the statistics of batch norms are averaged anew before scores; 0 for running ones
    clip        the longest gradient; None for any
    """

    source: str
    neck: str
    steps: int
    milestones: tuple[int, ...]
    batch_size: int = 16
    lr: float = 0.02
    warmup: int = 1000
    momentum: float = 0.9
    weight_decay: float = 1e-4
    sides: tuple[int, ...] = COCO_SIDES
    longest: int = 1333
    anchor: float = 8.0
    regions: int = 512
    proposed: tuple[int, int] = (2000, 1000)
    proposals: int = 2000
    width: int = 256
    box_width: int = 1024
    mask_layers: tuple[int, ...] = (256,) * 4
    keypoint_layers: tuple[int, ...] = (512,) * 8
    precise: int = 200
    clip: float | None = None


FPN_1X = DetectionRecipe(
    "JCL (Cai et al., NeurIPS 2020), section 4.3: batch norm trained and on the pyramid's layers, shorter side 640 to "
    "800, 90k steps of 16. Learning rate, milestones, warm-up and decay are of facebookresearch/detectron2, "
    "configs/Base-RCNN-FPN.yaml, whose settings MoCo (He et al., CVPR 2020), appendix, takes",
    "fpn", 90_000, (60_000, 80_000), proposals=1000,
)  # fmt: skip
C4_1X = DetectionRecipe(
    "CACR (Zheng et al., 2021), C.2, Mask R-CNN with C4 on COCO, 1x: facebookresearch/moco, detection/configs/"
    "Base-RCNN-C4-BN.yaml, in the steps of facebookresearch/detectron2, configs/Base-RCNN-C4.yaml",
    "c4", 90_000, (60_000, 80_000), proposed=(12000, 6000),
)  # fmt: skip
SMALL = DetectionRecipe(
    "nobody's: a short one for small machines, images of about 160 pixels and anchors of half the size. By hand",
    "fpn", 600, (450, 550), batch_size=4, lr=0.02, warmup=50, sides=(128, 144, 160), longest=256, anchor=4.0,
    regions=64, proposed=(300, 300), proposals=200, precise=0, clip=10.0, width=64, box_width=256,
    mask_layers=(64,) * 3, keypoint_layers=(96,) * 4,
)  # fmt: skip
RECIPES = {
    "small": SMALL,
    "coco-fpn-1x": FPN_1X,
    "coco-fpn-2x": replace(
        FPN_1X,
        source="MoCo, Table 5 (b): as coco-fpn-1x for twice as long",
        steps=180_000,
        milestones=(120_000, 160_000),
    ),
    "coco-c4-1x": C4_1X,
    "coco-c4-2x": replace(
        C4_1X,
        source="facebookresearch/moco, detection/configs/coco_R_50_C4_2x_moco.yaml",
        steps=180_000,
        milestones=(120_000, 160_000),
    ),
    "voc-c4-24k": replace(
        C4_1X,
        source="CACR, C.2, and MoCo, Table 2, on VOC 07+12: facebookresearch/moco, detection/configs/"
        "pascal_voc_R_50_C4_24k_moco.yaml",
        steps=24_000,
        milestones=(18_000, 22_000),
        warmup=100,
        sides=VOC_SIDES,
    ),
}


KEYPOINTS_PROPOSALS = 1500
"""facebookresearch/detectron2, configs/COCO-Keypoints/Base-Keypoint-RCNN-FPN.yaml; `small` has its own."""


def chosen_recipe(
    name: str, kind: Kind = "boxes", *, steps: int | None, lr: float | None, batch_size: int | None, side: int | None
) -> DetectionRecipe:
    """A recipe by its name for a kind of objects, with some of its numbers replaced.

    With other steps all of the schedule is as much shorter, and the statistics of batch norms are of no more batches.
    With another side that is the only one, and the longer side keeps its ratio to it.
    """
    if name not in RECIPES:
        raise UserError("recipe", f"there is none named {name!r}; {hint(name, RECIPES)}")
    recipe = RECIPES[name]
    if kind == "keypoints" and recipe is not SMALL:
        recipe = replace(recipe, proposals=KEYPOINTS_PROPOSALS)
    if steps is not None:
        share = steps / recipe.steps
        milestones = tuple(round(each * share) for each in recipe.milestones)
        warmup, precise = round(recipe.warmup * min(1.0, share)), min(recipe.precise, steps)
        recipe = replace(recipe, steps=steps, milestones=milestones, warmup=warmup, precise=precise)
    if side is not None:
        longest = round(side * recipe.longest / recipe.sides[-1])
        recipe = replace(recipe, sides=(side,), longest=longest)
    return replace(recipe, lr=lr or recipe.lr, batch_size=batch_size or recipe.batch_size)
