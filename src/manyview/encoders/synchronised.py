"""Batch norm whose statistics are those of all processes' images together, on CPUs as well."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from manyview.core.distributed import sum_over_processes, world_size


class Synchronised(nn.modules.batchnorm._BatchNorm):
    """Batch norm over the rows of all processes, with its gradient; torch's `SyncBatchNorm` is for GPUs alone.

    mean and variance (biased) are over all rows and places of all processes, in two passes; processes may hold
    different numbers of rows, and none at all. Running statistics take the unbiased variance, as torch's do. All
    processes must run it as often and in the same order.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        return

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or world_size() == 1:
            return super().forward(input)
        dims = [dim for dim in range(input.dim()) if dim != 1]
        shape = [1, -1, *[1] * (input.dim() - 2)]
        rows = input.new_tensor([input.numel() / input.shape[1]])
        sums = sum_over_processes(torch.cat([input.sum(dims), rows]))
        count = sums[-1].detach()
        mean = sums[:-1] / count
        centred = input - mean.view(shape)
        variance = sum_over_processes(centred.square().sum(dims)) / count
        self._remember(mean.detach(), variance.detach() * count / (count - 1).clamp_min(1))
        normed = centred * (variance + self.eps).rsqrt().view(shape)
        return normed if self.weight is None else normed * self.weight.view(shape) + self.bias.view(shape)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        """Lets the running statistics follow."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked += 1
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean), share)
        self.running_var.lerp_(variance.to(self.running_var), share)


KINDS: dict[type[nn.Module], type[nn.Module]] = {
    kind: type(kind.__name__, (Synchronised, kind), {}) for kind in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
}
"""A batch norm of torch's -> the same with the statistics of all processes; weights keep their names."""


def synchronise(module: nn.Module) -> nn.Module:
    """Lets all of torch's own batch norms inside see the rows of all processes, in place; returns the module."""
    for part in module.modules():
        part.__class__ = KINDS.get(type(part), type(part))
    return module
