"""WHAT IS SEEN: raw pictures become views, whole batch at once or one sample in a worker."""

from manyview.core.sample import Views
from manyview.views.augmentation import Augmentation
from manyview.views.augmentations import AUGMENTATIONS
from manyview.views.pipeline import CIFAR, IMAGENET, PICTURE, Modality, ViewPipeline
from manyview.views.transform import TransformPipeline

__all__ = [
    "AUGMENTATIONS",
    "CIFAR",
    "IMAGENET",
    "PICTURE",
    "Augmentation",
    "Modality",
    "TransformPipeline",
    "ViewPipeline",
    "Views",
]
