"""What timm and torchvision say of their published weights: the normalisation of pictures, and their size."""

from __future__ import annotations

from typing import NamedTuple

from manyview.encoders import Encoder
from manyview.encoders.weights import normalisation
from manyview.views import PICTURE, Modality
from manyview.views.augmentation_recipes import usual_size


class Published(NamedTuple):
    """What a library says of a network's published weights: normalisation, size, and whether no other size will do."""

    picture: Modality = PICTURE
    size: int = 224
    fixed_size: bool = False


def usual_picture(encoder: Encoder) -> Modality:
    """The normalisation that it was trained with, where that is known, or else its library's."""
    known = normalisation(encoder)
    return published(encoder.name).picture if known is None else Modality(*known, colour=True)


def published(name: str) -> Published:
    """What the library of a network says; of our own networks nothing is published."""
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
    """The published size for weights that were trained at it, and for want of data; else the data's, as a run would
    have it, though weights of a file may have been trained at more than runs take by default."""
    if side is None or pretrained or (from_file and published.fixed_size):
        return published.size
    return usual_size(side, published.size) if from_file else usual_size(side)
