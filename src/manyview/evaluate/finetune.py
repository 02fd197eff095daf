"""Training the whole network with labels: fine-tuning the encoder, and the supervised baseline from scratch."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from manyview.core.bounds import OptionalCount, OptionalPositive
from manyview.core.sample import Views
from manyview.evaluate.backbone import ViewBackbone, augmented_batches, plain_test_batches, trainable_backbone
from manyview.evaluate.classifier import ClassifierRecipe, choose_recipe, fit, linear_head, seeded
from manyview.evaluate.mixing import mixed
from manyview.evaluate.rand_augment import training_pipeline
from manyview.evaluate.scores import by_part
from manyview.evaluate.task import Score, Scores, Task
from manyview.training.optimizers import adamw, lars

DEIT = ClassifierRecipe(
    "MoCo v3 (Chen et al., ICCV 2021) fine-tunes ViTs with DeiT's code, its README says, for 150 epochs, and so does "
    "CACR's Table 18 (\"we follow their experiment settings\"). The other numbers are the defaults of facebookresearch/"
    "deit, main.py: lr 5e-4 x 1024 / 512 (README: 4 x 256 images), floor 1e-5, RandAugment, no layer decay. Of DeiT's "
    "repeated augmentation (an image three times an epoch, a third of the images in each) there is none here",
    lr=1e-3, batch_size=1024, epochs=150, warmup=5, floor=0.01, weight_decay=0.05, optimizer=adamw, layer_decay=1.0,
    drop_path=0.1, smoothing=0.1, mixup=0.8, cutmix=1.0, rand_augment="rand-m9-mstd0.5-inc1", erase=0.25,
)  # fmt: skip
_TRANSFER = replace(
    DEIT,
    source="facebookresearch/moco-v3, transfer/README.md, ViT-B/16 on CIFAR-10: lr 3e-4 x 1024 / 512, for its command "
    "has 128 images on each of 8 GPUs; its text says a batch of 128. Pictures of 224 px",
    lr=6e-4, epochs=100, warmup=3, floor=1e-5 / 6e-4, weight_decay=0.1, erase=0.0,
)  # fmt: skip
RECIPES = {
    "swav-1": ClassifierRecipe(
        "SwAV (Caron et al., NeurIPS 2020), its code for 1% of ImageNet's labels, eval_semisup.py, "
        "on 8 GPUs with 32 images each",
        lr=0.02, lr_head=5.0, batch_size=256, epochs=20, milestones=(12, 16), factor=0.2,
    ),
    "swav-10": ClassifierRecipe(
        "SwAV, the same for 10% of the labels",
        lr=0.01, lr_head=0.2, batch_size=256, epochs=20, milestones=(12, 16), factor=0.2,
    ),
    "simclr-1": ClassifierRecipe(
        "google-research/simclr, README, ResNets with 1% of ImageNet's labels: LARS, lr 0.005 x sqrt(1024). Theirs "
        "fine-tunes from a layer of the head, this from the encoder, whose classifier begins near 0 and not at 0",
        lr=0.16, batch_size=1024, epochs=60, optimizer=lars,
    ),
    "moco-v3-vit": DEIT,
    "moco-v3-cifar10": _TRANSFER,
    "moco-v3-cifar100": replace(_TRANSFER, source="the same on CIFAR-100", mixup=0.5),
    "moco-v3-flowers": replace(
        _TRANSFER, source="the same on Flowers", weight_decay=0.3, erase=0.25, mixup=0.0, cutmix=0.0
    ),
    "moco-v3-pets": replace(_TRANSFER, source="the same on Pets", drop_path=0.0, cutmix=0.0),
    "mae-vit": replace(
        DEIT,
        source="facebookresearch/mae, FINETUNE.md, ViT-B/16: lr 5e-4 x 1024 / 256, layer decay 0.65, floor 1e-6. It "
        "averages the patches; here the encoder's own embedding is classified",
        lr=2e-3, epochs=100, floor=5e-4, layer_decay=0.65,
    ),
    "small": ClassifierRecipe(
        "nobody's: a short one for small data sets, with few images a step. Chosen by hand",
        lr=1e-3, lr_head=1e-2, batch_size=64, epochs=30, warmup=2, weight_decay=0.05, optimizer=adamw, layer_decay=0.75,
        smoothing=0.1,
    ),
}  # fmt: skip
"""How encoders are fine-tuned, by name.

Of the ResNet-50 in CACR's Table 18 nobody states how it was fine-tuned: not CACR, nor MoCo v3, which fine-tunes ViTs
alone. SwAV's numbers are what is published of the whole ResNet-50.
"""
FROM_SCRATCH = {
    "cifar": ClassifierRecipe(
        "kuangliu/pytorch-cifar, main.py", lr=0.1, batch_size=128, epochs=200, weight_decay=5e-4
    ),
    "imagenet": ClassifierRecipe(
        "ResNet (He et al., CVPR 2016), section 3.4, in the epochs of pytorch/examples, imagenet/main.py",
        lr=0.1, batch_size=256, epochs=90, milestones=(30, 60), weight_decay=1e-4,
    ),
}  # fmt: skip


def finetune(
    task: Task,
    *,
    recipe: str = "swav-10",
    epochs: OptionalCount = None,
    lr: OptionalPositive = None,
    lr_head: OptionalPositive = None,
    batch_size: OptionalCount = None,
) -> Scores:
    """Top-1 and top-5 of an encoder that is trained on, with a linear classifier on top, as `linear` gives them.

    A copy of the encoder is trained: the model stays as it is. Crop and flip, and whatever else the recipe augments
    with, are drawn anew each epoch. A recipe's learning rate is for its batch size and is not scaled to another.

    recipe                           a name of `RECIPES`
    epochs, lr, lr_head, batch_size  instead of the recipe's; lr_head is the classifier's
    """
    numbers = choose_recipe(RECIPES, recipe, epochs=epochs, lr=lr, lr_head=lr_head, batch_size=batch_size)
    return train_whole(task, numbers, text="finetune")


def supervised(
    task: Task,
    *,
    recipe: str = "cifar",
    epochs: OptionalCount = None,
    lr: OptionalPositive = None,
    batch_size: OptionalCount = None,
) -> Scores:
    """The baseline: top-1 and top-5 of the model's network trained from its first weights, with all labels.

    Crop and flip are drawn anew each epoch. The arguments are `finetune`'s, the recipes `FROM_SCRATCH`.
    """
    numbers = choose_recipe(FROM_SCRATCH, recipe, epochs=epochs, lr=lr, batch_size=batch_size)

    def scores() -> Scores:
        yield from train_whole(task.for_model(task.model.untrained()), numbers, text="supervised")

    return scores()


def train_whole(task: Task, recipe: ClassifierRecipe, *, text: str) -> Scores:
    """The scores of the model's network after training all of it, for every part of the model."""
    pipeline = training_pipeline(task, recipe)

    def score(part: str) -> list[Score]:
        backbone = trainable_backbone(task, part, drop_path=recipe.drop_path)
        network = seeded(lambda: Network(backbone, len(task.classes)), task.seed).to(task.device)
        train = augmented_batches(
            task, recipe.batch_size, lambda views: views, drop_last=True, part=part, pipeline=pipeline
        )
        train = mixed(train, len(task.classes), mixup=recipe.mixup, cutmix=recipe.cutmix)
        learning = [(network.backbone, recipe.lr), (network.head, recipe.lr_head or recipe.lr)]
        return fit(network, learning, recipe, train, plain_test_batches(task, part), task, [text, part])

    return by_part(task, score)


class Network(nn.Module):
    """Views to logits (n, classes)."""

    def __init__(self, backbone: ViewBackbone, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = linear_head(backbone.dim, classes)

    def forward(self, views: Views) -> Tensor:
        logits: Tensor = self.head(self.backbone(views))
        return logits
