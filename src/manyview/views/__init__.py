"""WHAT IS SEEN: raw pictures become views, whole batch at once or one sample in a worker."""

from manyview.contract import Views
from manyview.views.look import Look
from manyview.views.stack import CIFAR, IMAGENET, PICTURE, Sensor, Stack
from manyview.views.stacks import STACKS
from manyview.views.transform import TransformStack

__all__ = ["CIFAR", "IMAGENET", "PICTURE", "STACKS", "Look", "Sensor", "Stack", "TransformStack", "Views"]
