"""The crops that a method's copies are, large, small (multi-crop) or patches, and which networks take them."""

from __future__ import annotations

from collections.abc import Iterable

from manyview.config.component import component
from manyview.config.config import Config
from manyview.core.errors import UserError
from manyview.encoders import Encoder
from manyview.methods import Method
from manyview.views import Augmentation, ViewPipeline
from manyview.views.jigsaw import jigsaw_of
from manyview.views.multicrop import SMALL_SCALE, usual_small_size, with_small

VIT = (
    "the encoder must take crops of two sizes (a ViT of timm does so with --encoder.options '{dynamic_img_size: true}')"
)


def augmentations(config: Config, method: Method, size: int) -> ViewPipeline:
    """Makes an augmentation for each copy that a method takes: the large ones, then the small ones."""
    made: ViewPipeline = component(config, "augmentation")(size, max(method.views.values()) - method.small)
    if not method.small:
        return made
    scale, blur = config.augmentation.get("small_scale", SMALL_SCALE), config.augmentation.get("small_blur")
    try:
        return with_small(made, method.small, small_size(config, size), scale, blur)
    except UserError as error:
        raise UserError(f"augmentation.small_{error.setting}", error.message) from None


def settled(config: Config, size: int) -> dict[str, int]:
    """Settles the size of small crops, which depends on that of large ones, for a method that takes some."""
    return {"small_size": small_size(config, size)} if config.method.get("small") else {}


def check_sizes(config: Config, method: Method, encoders: Iterable[Encoder]) -> None:
    """Refuses networks of a fixed input size for small crops and for a jigsaw's patches."""
    size = config.augmentation["size"]
    for each in encoders:
        if method.jigsaw:
            _check(each, jigsaw_of(Augmentation(size)).patch or 1, "encoder", "a jigsaw has patches")
        if method.small:
            _check(each, small_size(config, size), "method.small", VIT)


def _check(encoder: Encoder, size: int, setting: str, why: str) -> None:
    try:
        dim = encoder.dim_for(size)
    except UserError as error:
        raise UserError(setting, f"{why}: {error.message}") from None
    if dim != encoder.dim:
        raise UserError(
            setting, f"{why}: {encoder.name} has {dim} features of {size} px, not {encoder.dim}; take another"
        )


def small_size(config: Config, size: int) -> int:
    """Computes the size of small crops beside large ones of `size` pixels, for a method that takes some."""
    return int(config.augmentation.get("small_size") or usual_small_size(size))
