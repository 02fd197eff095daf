"""Tensors that say they are on a GPU, where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from manyview.core.negatives import Negatives, Source

Module = TypeVar("Module", bound=nn.Module)


class FakeCuda:
    """Moves tensors, negatives and modules to a GPU of which torch computes no more than shapes and types.

    Forward passes work; backward passes want a driver. Tensors on two devices raise, and so does `.item()` or an `if`
    about a value, for which the host would wait for the GPU: DataDependentOutputException. What was one tensor stays
    one.
    """

    def __init__(self) -> None:
        self._moved: dict[int, tuple[Tensor, Tensor]] = {}  # with the original, or else its id might be given again

    def tensor(self, x: Tensor) -> Tensor:
        if id(x) not in self._moved:
            empty = torch.empty(x.shape, dtype=x.dtype, device="cuda", requires_grad=x.requires_grad)
            self._moved[id(x)] = x, nn.Parameter(empty, x.requires_grad) if isinstance(x, nn.Parameter) else empty
        return self._moved[id(x)][1]

    def negatives(self, negatives: Negatives) -> Negatives:
        moved = Negatives.__new__(Negatives)
        moved.sources = tuple(self._source(source) for source in negatives.sources)
        return moved

    def module(self, module: Module) -> Module:
        """Moves parameters and buffers, in place."""
        for part in module.modules():
            for name, each in [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]:
                setattr(part, name, self.tensor(each))
        return module

    def _source(self, source: Source) -> Source:
        given = {each.name: getattr(source, each.name) for each in fields(source)}
        moved: dict[str, Any] = {name: self.tensor(x) for name, x in given.items() if isinstance(x, Tensor)}
        return replace(source, **moved)


@contextmanager
def fake_cuda() -> Iterator[FakeCuda]:
    """Tensors that are made or moved inside are fake; what is moved must have been made outside."""
    with FakeTensorMode():
        yield FakeCuda()
