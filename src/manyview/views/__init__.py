"""WHAT IS SEEN: modalities become views, a whole batch at once or one sample in a worker."""

from manyview.views.augmentation import Augmentation
from manyview.views.augmentation_recipes import AUGMENTATIONS
from manyview.views.colour_spaces import SPACES
from manyview.views.pipeline import ViewPipeline
from manyview.views.transform import TransformPipeline
from manyview.views.view import CIFAR, IMAGENET, PICTURE, VIEWS, Modality, View

__all__ = [
    "AUGMENTATIONS",
    "CIFAR",
    "IMAGENET",
    "PICTURE",
    "SPACES",
    "VIEWS",
    "Augmentation",
    "Modality",
    "TransformPipeline",
    "View",
    "ViewPipeline",
]
