"""Gradient checkpointing (Chen et al., 2016): only the input of a block is kept, its activations are computed again."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any

from torch import is_grad_enabled, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from manyview.core.errors import UserError
from manyview.encoders.encoder import Encoder
from manyview.encoders.layers import batch_norms, copied_statistics

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def checkpoint_blocks(encoder: Encoder) -> list[nn.Module]:
    """Makes every block of an encoder compute its activations again for its gradient, instead of keeping them.

    Blocks are found by their form, in the networks of any library: see `blocks`. The gradient stays what it was:
    dropout draws the same again, and batch norm keeps its running statistics. Without a gradient, as in evaluation,
    nothing is computed twice. Parameters and state dict stay what they are. Returns the blocks.
    """
    found = blocks(encoder.network)
    if not found:
        raise UserError("grad_checkpoint", f"{encoder.name} has no blocks that repeat; leave it out")
    for block in found:
        block.__class__ = _checkpointed(type(block))  # type: ignore[arg-type]  # says that it has no hash
    return found


def blocks(network: nn.Module) -> list[nn.Module]:
    """The blocks that a network's stages are made of: residual blocks, or a transformer's layers.

    A block is in a list of modules and has parts of its own, but holds no list of equal blocks, as a stage does.
    """
    return _blocks(network, listed=False)


def _blocks(module: nn.Module, *, listed: bool) -> list[nn.Module]:
    container = isinstance(module, CONTAINERS)
    if listed and not container and not _single(module) and not any(map(_repeats, module.modules())):
        return [module]
    return [block for part in module.children() for block in _blocks(part, listed=container)]


def _repeats(module: nn.Module) -> bool:
    """Says whether it is a list of two or more blocks of one kind."""
    parts = list(module.children())
    listed = isinstance(module, CONTAINERS) and len(parts) > 1 and len({type(part) for part in parts}) == 1
    return listed and not _single(parts[0]) and not isinstance(parts[0], CONTAINERS)


def _single(module: nn.Module) -> bool:
    """Says whether it is one layer; timm's batch norms have an activation inside."""
    return isinstance(module, _BatchNorm) or next(module.children(), None) is None


class _Checkpointed(nn.Module):
    """A class that comes in front of a block's own."""

    def forward(self, *given: Any, **named: Any) -> Any:
        if not is_grad_enabled():
            return super().forward(*given, **named)
        contexts = partial(_contexts, self)
        given = tuple(list(each) if isinstance(each, list) else each for each in given)  # DenseNet's grow
        return checkpoint(super().forward, *given, use_reentrant=False, context_fn=contexts, **named)


@cache
def _checkpointed(block: type[nn.Module]) -> type[nn.Module]:
    return block if issubclass(block, _Checkpointed) else type(block.__name__, (_Checkpointed, block), {})


def _contexts(block: nn.Module) -> tuple[AbstractContextManager[object], AbstractContextManager[object]]:
    """The contexts of the first computation and of the second."""
    return nullcontext(), _NormsAsNow(block)


class _NormsAsNow:
    """Within it, batch norms are in the mode in which they were when it was made; what they note there is forgotten.

    Where they used their running statistics, these are as they were as well.
    """

    def __init__(self, block: nn.Module) -> None:
        self._norms = batch_norms(block)
        self._then = [(norm.training, None if norm.training else copied_statistics(norm)) for norm in self._norms]

    def __enter__(self) -> None:
        self._now = [(norm.training, norm._buffers) for norm in self._norms]
        for norm, (training, statistics) in zip(self._norms, self._then, strict=True):
            norm.training, norm._buffers = training, copied_statistics(norm) if statistics is None else statistics

    def __exit__(self, *_: object) -> None:
        for norm, (training, buffers) in zip(self._norms, self._now, strict=True):
            norm.training, norm._buffers = training, buffers
