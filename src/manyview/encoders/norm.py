"""Batch norm on one device as on many: statistics per group of the batch, shuffled keys; and on many as on one."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from manyview.core.errors import UserError
from manyview.core.rng import key, order


class SplitBatchNorm(_BatchNorm):
    """Batch norm as `splits` devices would do it: sample n is in group n mod splits, each with its own statistics.

    As in MoCo's CIFAR-10 notebook (facebookresearch/moco, branch colab-notebook). Running statistics are the mean over
    groups of what each would have noted; in evaluation it is plain batch norm, with the same state dict.
    """

    def __init__(self, features: int, splits: int, then: nn.Module | None = None, **options: bool | float) -> None:
        super().__init__(features, **options)  # type: ignore[arg-type]
        self.splits = splits
        self.then = then  # what the replaced batch norm did besides

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, splits={self.splits}"

    def forward(self, input: Tensor) -> Tensor:
        if self.training or self.running_mean is None:
            normed = self._grouped(input)
        else:
            given = (self.running_mean, self.running_var, self.weight, self.bias)
            normed = F.batch_norm(input, *given, training=False, eps=self.eps)
        return normed if self.then is None else self.then(normed)

    def _grouped(self, x: Tensor) -> Tensor:
        if len(x) % self.splits:
            raise UserError(
                "splits",
                f"a batch of {len(x)} does not fall into {self.splits} equal groups; "
                f"use a multiple of {self.splits}, and leave out a last smaller batch",
            )
        wide = x.reshape(len(x) // self.splits, self.splits * x.shape[1], *x.shape[2:])  # a group is a set of channels
        mean, variance = self._repeated(self.running_mean), self._repeated(self.running_var)
        scale, shift = self._repeated(self.weight), self._repeated(self.bias)
        normed = F.batch_norm(wide, mean, variance, scale, shift, True, self._share(), self.eps)
        self._note(self.running_mean, mean)
        self._note(self.running_var, variance)
        return normed.reshape(x.shape)

    def _note(self, running: Tensor | None, grouped: Tensor | None) -> None:
        if running is not None and grouped is not None:
            running.copy_(grouped.view(self.splits, -1).mean(0))

    def _repeated(self, values: Tensor | None) -> Tensor | None:
        return None if values is None else values.repeat(self.splits)

    def _share(self) -> float:
        """The share of this batch in the running statistics; with momentum None all batches count alike."""
        if self.num_batches_tracked is None:
            return 0.0
        self.num_batches_tracked.add_(1)
        return 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum


def split_batch_norm(module: nn.Module, splits: int) -> nn.Module:
    """Gives every BatchNorm1d and 2d inside statistics per group; parameters and state dict stay what they are.

    Returns the module, which is another one only if it is a batch norm itself. In one process this, with `shuffled`
    keys, is MoCo's shuffled batch norm; without it shuffling changes nothing.
    """
    if splits < 1:
        raise UserError("splits", f"expected at least 1, got {splits}")
    if isinstance(module, _BatchNorm):
        return _split(module, splits)
    for name, child in module.named_children():
        setattr(module, name, split_batch_norm(child, splits))
    return module


def _split(norm: _BatchNorm, splits: int) -> SplitBatchNorm:
    then = norm.then if isinstance(norm, SplitBatchNorm) else None
    if type(norm) not in (nn.BatchNorm1d, nn.BatchNorm2d, SplitBatchNorm):
        if type(norm).__name__ != "BatchNormAct2d":
            raise UserError("split_batch_norm", f"cannot split {type(norm).__name__}, only BatchNorm1d and BatchNorm2d")
        then = nn.Sequential(norm.get_submodule("drop"), norm.get_submodule("act"))  # timm's, with the activation in it
    split = SplitBatchNorm(norm.num_features, splits, then, eps=norm.eps, momentum=norm.momentum)  # type: ignore[arg-type]
    split.affine, split.track_running_stats = norm.affine, norm.track_running_stats
    split.weight, split.bias = norm.weight, norm.bias
    split.running_mean, split.running_var = norm.running_mean, norm.running_var
    split.num_batches_tracked = norm.num_batches_tracked
    return split.train(norm.training)


def sync_batch_norm(module: nn.Module) -> nn.Module:
    """One batch norm over all processes: torch's SyncBatchNorm everywhere, for GPUs. Returns the module."""
    if any(isinstance(part, SplitBatchNorm) for part in module.modules()):
        raise UserError("sync_batch_norm", "the module has been through split_batch_norm; use one of the two, not both")
    if any(type(part).__name__ == "BatchNormAct2d" for part in module.modules()):
        from timm.layers.norm_act import convert_sync_batchnorm  # torch's would lose the activation inside

        converted: nn.Module = convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
    else:
        converted = nn.SyncBatchNorm.convert_sync_batchnorm(module)
    return converted


def shuffled(forward: Callable[[Tensor], dict[str, Tensor]], x: Tensor, *, seed: int, step: int) -> dict[str, Tensor]:
    """forward(x) with the rows in another order on the way: MoCo's shuffling of keys (Sec. 3.3).

    The order is a function of seed and step alone, so a resumed run draws the same. Row n of each result belongs to row
    n of x.
    """
    there = order(key(seed, step, torch.arange(len(x), device=x.device)))
    back = there.argsort()
    return {name: rows[back] for name, rows in forward(x[there]).items()}
