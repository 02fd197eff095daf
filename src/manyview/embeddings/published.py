"""The normalisation and size of pictures for the published weights of timm and torchvision."""

from __future__ import annotations

from typing import NamedTuple

from manyview.encoders import Encoder
from manyview.encoders.weights import normalisation
from manyview.views import PICTURE, Modality
from manyview.views.augmentation_recipes import usual_size


class Published(NamedTuple):
    """What a library documents of a network's published weights: normalisation, size, and whether that is fixed."""

    picture: Modality = PICTURE
    size: int = 224
    fixed_size: bool = False


def usual_picture(encoder: Encoder) -> Modality:
    """Returns the normalisation that a network was trained with, where known, or else its library's."""
    known = normalisation(encoder)
    return published(encoder.name).picture if known is None else Modality(*known, colour=True)


def published(name: str) -> Published:
    """Returns what the library of a network documents; nothing is published of our own networks."""
    family, _, model = name.partition("/")
    if family == "timm":
        import timm

        config = timm.get_pretrained_cfg(model)
        if config is None:
            return Published()
        modality = Modality(tuple(config.mean), tuple(config.std), True)
        return Published(modality, config.input_size[-1], config.fixed_input_size)
    if family == "torchvision":
        import torchvision.models as zoo

        preset = zoo.get_model_weights(model).DEFAULT.transforms()
        modality = Modality(tuple(preset.mean), tuple(preset.std), True)
        return Published(modality, preset.crop_size[0], model[:4] == "vit_")
    return Published()


def usual_side(published: Published, side: int | None, *, pretrained: bool, from_file: bool) -> int:
    """Returns the published size of such weights, and without data; else the size that a run on the data has."""
    if side is None or pretrained or (from_file and published.fixed_size):
        return published.size
    return usual_size(side, published.size) if from_file else usual_size(side)
