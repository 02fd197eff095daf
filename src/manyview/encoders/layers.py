"""Layers that take the place of a network's own, with the same state dict: batch norm in groups, dense convolutions."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from manyview.core.distributed import world_size
from manyview.core.errors import UserError


class SplitBatchNorm(_BatchNorm):
    """Batch norm as `splits` devices would do it: the batch is cut into so many parts, each with its own statistics.

    It is the batch of all processes together, so that each has its share of the groups, and the groups are the same
    for any number of processes. In MoCo's CIFAR-10 notebook (facebookresearch/moco, branch colab-notebook) sample n is
    in group n mod splits; here groups are neighbours, as the processes' shares of a batch are.

    A batch that cannot be divided equally has groups that differ by one row, a small one fewer groups of two rows.
    Running statistics are the mean over groups of what each would have noted; in evaluation it is plain batch norm,
    with the same state dict.
    """

    splits: int

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, splits={self.splits}"  # type: ignore[no-untyped-call]

    def forward(self, input: Tensor) -> Tensor:
        if self.training or self.running_mean is None:
            normed = self._grouped(input)
        else:
            given = (self.running_mean, self.running_var, self.weight, self.bias)
            normed = F.batch_norm(input, *given, training=False, eps=self.eps)
        if hasattr(self, "act"):  # timm's BatchNormAct2d
            return self.act(self.drop(normed))  # type: ignore[no-any-return, operator]
        return normed

    def _grouped(self, x: Tensor) -> Tensor:
        groups = min(groups_here(self.splits), max(1, len(x) // 2))
        running, share, normed = (self.running_mean, self.running_var), self._share(), []
        noted = [[None if each is None else each.clone() for each in running] for _ in range(groups)]
        for rows, (mean, variance) in zip(x.tensor_split(groups), noted, strict=True):
            normed.append(F.batch_norm(rows, mean, variance, self.weight, self.bias, True, share, self.eps))
        for each, values in zip(running, zip(*noted, strict=True), strict=True):
            if each is not None:
                each.copy_(torch.stack([value for value in values if value is not None]).mean(0))
        return torch.cat(normed)

    def _share(self) -> float:
        """The share of this batch in the running statistics; with momentum None all batches count alike."""
        if self.num_batches_tracked is None:
            return 0.0
        self.num_batches_tracked.add_(1)
        return 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum


def groups_here(splits: int, world: int | None = None) -> int:
    """Says how many of the groups of the whole batch each process has; one, where the batch is not split.

    world  how many processes there are; those that are running unless given
    """
    world = world_size() if world is None else world
    if splits > 1 and splits % world:
        raise UserError("bn_splits", f"{world} processes cannot share {splits} groups; give a multiple of {world}")
    return max(1, splits // world)


def split_batch_norm(module: nn.Module, splits: int) -> nn.Module:
    """Makes every BatchNorm1d and 2d inside a SplitBatchNorm; parameters and state dict stay what they are.

    splits  groups of the batch of all processes together

    Returns the module. With `shuffled` keys this is MoCo's shuffled batch norm; in one process shuffling alone changes
    nothing.
    """
    if splits < 1:
        raise UserError("splits", f"expected at least 1, got {splits}")
    for part in module.modules():
        if not isinstance(part, _BatchNorm):
            continue
        kind = type(part).__name__
        if kind not in ("BatchNorm1d", "BatchNorm2d", "BatchNormAct2d", "SplitBatchNorm"):
            raise UserError("split_batch_norm", f"cannot split {kind}, only BatchNorm1d and BatchNorm2d")
        part.__class__ = SplitBatchNorm
        vars(part)["splits"] = splits
    return module


def batch_norms(module: nn.Module) -> list[_BatchNorm]:
    """All batch norms inside, of any kind."""
    return [part for part in module.modules() if isinstance(part, _BatchNorm)]


def running_statistics(module: nn.Module) -> list[Tensor]:
    """Running means and variances of the batch norms inside that know one process's images alone."""
    own = [norm for norm in batch_norms(module) if not isinstance(norm, nn.SyncBatchNorm)]
    return [each for norm in own for each in (norm.running_mean, norm.running_var) if each is not None]


def copied_statistics(norm: nn.Module) -> dict[str, Tensor | None]:
    """Gives what can take the place of a batch norm's buffers for a while, so that nothing changes them."""
    return {name: None if value is None else value.clone() for name, value in norm._buffers.items()}


def sync_batch_norm(module: nn.Module) -> nn.Module:
    """One batch norm over all processes: torch's SyncBatchNorm everywhere, for GPUs. Returns the module."""
    if any(isinstance(part, SplitBatchNorm) for part in module.modules()):
        raise UserError("sync_batch_norm", "the module has been through split_batch_norm; use one of the two, not both")
    if any(type(part).__name__ == "BatchNormAct2d" for part in module.modules()):
        from timm.layers.norm_act import convert_sync_batchnorm  # torch's would lose the activation inside

        return convert_sync_batchnorm(module)  # type: ignore[no-any-return, no-untyped-call]
    return nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-any-return]


class DenseConv2d(nn.Conv2d):
    """A convolution that on a CPU is a dense layer wherever each of its outputs sees the whole map.

    That is so for 3x3 kernels, padded by 1, on maps of 1x1 and 2x2: the last stages of a ResNet on images of 32 px. The
    numbers are the same up to rounding. A convolution also multiplies the padding there, 36 products for every 16 that
    count on 2x2 and 9 for each on 1x1, and CPU libraries compute its weights' gradient tens of times slower.
    """

    def forward(self, input: Tensor) -> Tensor:
        assert not isinstance(self.padding, str)
        axes = zip(input.shape[2:], self.kernel_size, self.stride, self.padding, strict=True)
        starts = [_starts(*axis) for axis in axes]
        if input.device.type != "cpu" or not all(starts):
            return super().forward(input)
        return _dense(input, self.weight, self.bias, *starts)


def dense_convolutions(module: nn.Module) -> None:
    """Makes every plain Conv2d inside a DenseConv2d; parameters and state dict stay what they are."""
    for part in module.modules():
        if type(part) is nn.Conv2d and _plain(part):
            part.__class__ = DenseConv2d


def _plain(conv: nn.Conv2d) -> bool:
    whole = conv.groups == 1 and set(conv.dilation) == {1} and max(conv.kernel_size) > 1
    return whole and conv.padding_mode == "zeros" and not isinstance(conv.padding, str)


def _starts(size: int, kernel: int, stride: int, pad: int) -> list[int]:
    """The places in the kernel where the map begins, an output each; none where some output does not see all of it."""
    outputs = (size + 2 * pad - kernel) // stride + 1
    starts = [pad - stride * output for output in range(outputs)]
    return starts if pad + size <= kernel and starts and starts[-1] >= 0 else []


def _dense(x: Tensor, weight: Tensor, bias: Tensor | None, down: list[int], across: list[int]) -> Tensor:
    """(B, C, H, W) to (B, K, H', W') in channels_last, where rows and columns of the result begin in the kernel."""
    height, width = x.shape[2:]
    taps = weight.permute(0, 2, 3, 1)
    windows = [taps[:, top : top + height, left : left + width].flatten(1) for top in down for left in across]
    biases = None if bias is None else bias.repeat(len(windows))
    output = F.linear(x.permute(0, 2, 3, 1).flatten(1), torch.cat(windows), biases)
    return output.view(len(x), len(down), len(across), -1).permute(0, 3, 1, 2)
