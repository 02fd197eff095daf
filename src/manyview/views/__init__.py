"""WHAT IS SEEN: raw pictures become views, whole batch at once or one sample in a worker."""

from manyview.core.contract import Views
from manyview.views.augmentation import Look
from manyview.views.augmentations import STACKS
from manyview.views.pipeline import CIFAR, IMAGENET, PICTURE, Sensor, Stack
from manyview.views.transform import TransformStack

__all__ = ["CIFAR", "IMAGENET", "PICTURE", "STACKS", "Look", "Sensor", "Stack", "TransformStack", "Views"]
