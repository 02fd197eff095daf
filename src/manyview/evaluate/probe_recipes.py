"""Recipes of probes by name: how the classifier is trained, and what it sees of the images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from manyview.evaluate.classifier import ClassifierRecipe
from manyview.training.optimizers import adam, lars


@dataclass(frozen=True)
class ProbeRecipe(ClassifierRecipe):
    """Says how a classifier on frozen features is trained, and what it sees.

    train_views  the augmentation of the training images, a name of `manyview list augmentations` and its options
    margin       the short side of a test image over the side of the middle of it that is seen; None: 256 / 224 from 96
                 px upwards, and 1 below
    initial      the first weights of a linear classifier: "normal", N(0, 0.01^2) and biases 0, as MoCo has them;
                 "torch", as torch.nn.Linear draws them
    train_mode   whether the encoder, whose weights are frozen, is in training mode: its batch norm then sees the
                 statistics of each batch and keeps moving the ones that it is tested with, which are part of the probe
    """

    train_views: Mapping[str, Any] = field(default_factory=lambda: {"name": "probe-train"})
    margin: float | None = None
    initial: Literal["normal", "torch"] = "normal"
    train_mode: bool = False


CACR_SMALL = ProbeRecipe(
    "CACR, appendix C.1, evaluation: fc7 of the small AlexNet, the embedding of other encoders. It names neither crops "
    "nor first weights, which here are MoCo's; the released code's are cacr-small-cifar and cacr-small-stl",
    lr=0.001, batch_size=128, epochs=100, milestones=(60, 80), factor=0.2,
    optimizer=partial(adam, betas=(0.5, 0.999)), layer="fc7",
)  # fmt: skip
HCL = ProbeRecipe(
    "HN-CL (Robinson et al., ICLR 2021), the numbers of joshr17/HCL: trained with the augmentation of its pre-training "
    "(SimCLR's at half strength), at a constant learning rate. The encoder is in eval mode, as in all other probes, so "
    "that the score is of the encoder alone; the code's own way is hcl-code. Our sources name no weight decay and no "
    "first weights: none, and torch's own",
    lr=0.001, batch_size=512, epochs=100, milestones=(100,), optimizer=adam, initial="torch",
    train_views={"name": "simclr", "strength": 0.5},
)  # fmt: skip

RECIPES: dict[str, ProbeRecipe] = {
    "moco": ProbeRecipe(
        "MoCo (He et al., CVPR 2020), section 4.1; batch and steps from its code, main_lincls.py",
        lr=30.0, batch_size=256, epochs=100, milestones=(60, 80),
    ),
    "jcl": ProbeRecipe(
        "JCL (Cai et al., NeurIPS 2020), section 4.2", lr=30.0, batch_size=256, epochs=100, milestones=(60, 80)
    ),
    "jcl-ablation": ProbeRecipe(
        "JCL, appendix D, ImageNet-100", lr=10.0, batch_size=256, epochs=100, milestones=(60, 80)
    ),
    "cacr": ProbeRecipe(
        "CACR (Zheng et al.), appendix C.2, linear classification evaluation; weight decay as in MoCo",
        lr=30.0, batch_size=256, epochs=100, milestones=(60, 80),
    ),
    "cacr-small": CACR_SMALL,
    "cacr-small-cifar": replace(
        CACR_SMALL,
        source="CACR's released code for CIFAR: crops of 20 to 100%, torch's own first weights of the classifier",
        train_views={"name": "probe-train", "smallest": 0.2}, initial="torch",
    ),
    "cacr-small-stl": replace(
        CACR_SMALL,
        source="CACR's released code for STL-10, after Wang & Isola's: crops of 8 to 100%, the middle 64 px of test "
        "images that are resized to 70, torch's own first weights of the classifier",
        margin=70 / 64, initial="torch",
    ),
    "dcl-openselfsup": ProbeRecipe(
        "DCL (Yeh et al., ECCV 2022), appendix A.4, the first", lr=30.0, batch_size=256, epochs=100, milestones=(60, 80)
    ),
    "dcl-lars": ProbeRecipe(
        "DCL, appendix A.4, the second, SimSiam's; its base lr 1.2 is taken as it is printed, not times 4096 / 256",
        lr=1.2, batch_size=4096, epochs=90, optimizer=lars,
    ),
    "cmc": ProbeRecipe(
        "CMC (Tian et al., ECCV 2020), appendix E.2, ResNet-50 and ResNet-101; batch from its code",
        lr=30.0, batch_size=256, epochs=100, milestones=(60, 75, 90), factor=0.2,
    ),
    "cmc-wide": ProbeRecipe(
        "CMC, appendix E.2, ResNet-50 x2", lr=50.0, batch_size=256, epochs=100, milestones=(60, 75, 90), factor=0.2
    ),
    "cmc-alexnet": ProbeRecipe(
        "CMC, appendix E.2, AlexNet", lr=0.1, batch_size=256, epochs=100, milestones=(60, 75, 90), factor=0.2
    ),
    "cmc-code": ProbeRecipe(
        "HobbitLong/CMC as published, which is not as in the paper: 60 epochs",
        lr=30.0, batch_size=256, epochs=60, milestones=(30, 40, 50), factor=0.2,
    ),
    "hcl": HCL,
    "hcl-code": replace(
        HCL,
        source="joshr17/HCL as published: the same, and the frozen encoder is in training mode, so that its batch norm "
        "sees each batch's own statistics, which move the ones that it is tested with",
        train_mode=True,
    ),
    "moco-v3": ProbeRecipe(
        "facebookresearch/moco-v3, main_lincls.py, ResNet-50: 0.1 x 1024 / 256", lr=0.4, batch_size=1024, epochs=90
    ),
    "moco-v3-vit": ProbeRecipe(
        "facebookresearch/moco-v3, CONFIG.md, ViTs: 3 x 1024 / 256", lr=12.0, batch_size=1024, epochs=90
    ),
}  # fmt: skip

MLP = ProbeRecipe(
    "CMC (Tian et al., ECCV 2020), appendix D.1: 100 epochs; E.1: Adam, x 0.2 after 120 and 160 of 200 epochs, here "
    "after as large a share; the batch, which it does not state, is CACR's, whose probe has the same numbers",
    lr=0.001, batch_size=128, epochs=100, milestones=(60, 80), factor=0.2,
    optimizer=partial(adam, betas=(0.5, 0.999)),
)  # fmt: skip
