"""The feature maps of a network's stages, read while it computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import isqrt
from typing import NamedTuple

from torch import Tensor, nn

Maps = dict[str, Tensor]
Reader = Callable[[nn.Module, Tensor], Maps]


class Backbone(NamedTuple):
    """What a family of networks hands to `create`.

    network  images (B, C, H, W) to vectors (B, dim)
    read     its stages' feature maps
    removed  names that a plain state dict may have more: the classifier that was taken off
    """

    network: nn.Module
    read: Reader
    removed: tuple[str, ...] = ()


def as_it_is(output: Tensor) -> Tensor:
    return output


def channels_first(output: Tensor) -> Tensor:
    """(B, H, W, C) to (B, C, H, W)."""
    return output.permute(0, 3, 1, 2)


def grid_of_tokens(output: Tensor) -> Tensor:
    """(B, 1 + H W, C) with a class token in front to (B, C, H, W) without it."""
    patches = output[:, 1:].transpose(1, 2)
    return patches.reshape(*patches.shape[:2], isqrt(patches.shape[2]), -1)


def hooked(modules: Sequence[str], layout: Callable[[Tensor], Tensor] = as_it_is) -> Reader:
    """Reads the outputs of named submodules."""
    return partial(_read_hooked, tuple(modules), layout)


def _read_hooked(modules: tuple[str, ...], layout: Callable[[Tensor], Tensor], network: nn.Module, x: Tensor) -> Maps:
    maps: Maps = {}

    def keep(name: str, module: nn.Module, given: object, output: Tensor) -> None:
        maps[name] = layout(output).clone()  # what follows may work in place

    hooks = [network.get_submodule(name).register_forward_hook(partial(keep, name)) for name in modules]
    try:
        network(x)
    finally:
        for hook in hooks:
            hook.remove()
    return maps
