"""The feature maps of a network's stages, read while it computes its embedding."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from math import isqrt
from typing import NamedTuple, Protocol

from torch import Tensor, nn

Maps = dict[str, Tensor]
Layout = Callable[[Tensor], Tensor]


class MapReader(Protocol):
    """Runs a network once; gives its embedding and the feature maps of the named stages, or of all for None."""

    def __call__(self, network: nn.Module, x: Tensor, names: Collection[str] | None) -> tuple[Tensor, Maps]: ...


class Backbone(NamedTuple):
    """A network without its classifier, as the builders of a library's networks give it to `create`.

    network  images (B, C, H, W) to embeddings (B, dim)
    read     runs it and reads its stages' feature maps
    removed  prefixes of the classifier's names, which a state dict of the library still has
    """

    network: nn.Module
    read: MapReader
    removed: tuple[str, ...] = ()


def channels_first(output: Tensor) -> Tensor:
    """Turns (B, H, W, C) into (B, C, H, W)."""
    return output.permute(0, 3, 1, 2)


def grid_of_tokens(output: Tensor) -> Tensor:
    """Turns tokens (B, 1 + H W, C) with a class token in front into (B, C, H, W) without it."""
    patches = output[:, 1:].transpose(1, 2)
    return patches.reshape(*patches.shape[:2], isqrt(patches.shape[2]), -1)


def module_outputs(modules: Sequence[str], layout: Layout | None = None) -> MapReader:
    """A reader for stages that are submodules: their outputs, by the submodules' names, brought into a layout."""
    return partial(_with_hooks, tuple(modules), layout)


def _with_hooks(
    modules: tuple[str, ...], layout: Layout | None, network: nn.Module, x: Tensor, names: Collection[str] | None
) -> tuple[Tensor, Maps]:
    maps: Maps = {}

    def keep(name: str, module: nn.Module, given: object, output: Tensor) -> None:
        maps[name] = (output if layout is None else layout(output)).clone()  # what follows may work in place

    wanted = [name for name in modules if names is None or name in names]
    hooks = [network.get_submodule(name).register_forward_hook(partial(keep, name)) for name in wanted]
    try:
        return network(x), maps
    finally:
        for hook in hooks:
            hook.remove()
