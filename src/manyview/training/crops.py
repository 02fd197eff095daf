"""The crops that a method's copies are: large ones, small ones (multi-crop), patches; and which networks take them."""

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
    """An augmentation for each copy that a method takes: the large ones, then the small ones."""
    made: ViewPipeline = component(config, "augmentation")(size, max(method.views.values()) - method.small)
    if not method.small:
        return made
    scale, blur = config.augmentation.get("small_scale", SMALL_SCALE), config.augmentation.get("small_blur")
    try:
        return with_small(made, method.small, small_size(config, size), scale, blur)
    except UserError as error:
        raise UserError(f"augmentation.small_{error.setting}", error.message) from None


def settled(config: Config, size: int) -> dict[str, int]:
    """The setting that depends on the large crops' size: that of small ones, of a method that takes some."""
    return {"small_size": small_size(config, size)} if config.method.get("small") else {}


def check_sizes(config: Config, method: Method, encoders: Iterable[Encoder]) -> None:
    """Refuses networks that take images of one size alone: small crops and a jigsaw's patches are smaller."""
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
    """The size of small crops beside large ones of `size` pixels; they are a setting where their number is one."""
    return int(config.augmentation.get("small_size") or usual_small_size(size))
