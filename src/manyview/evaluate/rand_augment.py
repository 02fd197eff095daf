"""RandAugment and random erasing of training pictures, by timm."""

from __future__ import annotations

from timm.data.transforms_factory import create_transform

from manyview.core.errors import UserError
from manyview.data.reader import Pipeline
from manyview.evaluate.classifier import ClassifierRecipe
from manyview.evaluate.task import Task
from manyview.views.transform import TransformPipeline

RGB = 3


def training_pipeline(task: Task, recipe: ClassifierRecipe) -> Pipeline | None:
    """Says how a recipe augments training images besides crop and flip, as timm does it; None where it does not."""
    if recipe.rand_augment is None and not recipe.erase:
        return None
    model = task.model
    if len(model.encoders) > 1 or model.inputs or model.encoder.options["channels"] != RGB:
        raise UserError("recipe", f"augments RGB pictures, and {model.name} sees something else; give another one")
    mean, std = model.picture.mean, model.picture.std
    transform = create_transform(
        model.size, is_training=True, auto_augment=recipe.rand_augment, interpolation="bicubic", mean=mean, std=std,
        re_prob=recipe.erase, re_mode="pixel", color_jitter=0.0,
    )  # fmt: skip
    return TransformPipeline(transform, copies=1)
