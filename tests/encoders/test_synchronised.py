"""Batch norm over two processes is batch norm over all of their rows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from manyview.core.distributed import equal_shares
from manyview.encoders.synchronised import Synchronised, synchronise
from tests.two_processes import Found, in_two_processes

ROWS = 5


def network(momentum: float | None) -> nn.Module:
    torch.manual_seed(0)
    norms = nn.BatchNorm2d(4, momentum=momentum), nn.BatchNorm2d(3, affine=False)
    return nn.Sequential(nn.Conv2d(2, 4, 3), norms[0], nn.ReLU(), nn.Conv2d(4, 3, 1), norms[1]).double()


def found(model: nn.Module, x: Tensor, *, scale: float = 1.0) -> Found:
    """Outputs, gradients and running statistics of a sum over rows."""
    x = x.clone().requires_grad_(True)
    out = model(x)
    weights = torch.arange(math.prod(out.shape[1:]), dtype=out.dtype).cos()
    (out * weights.view(1, *out.shape[1:])).sum().backward()
    grads = {f"gradient of {name}": scale * each.grad for name, each in model.named_parameters()}  # type: ignore[operator]
    return {"out": out.detach(), "x": x.grad, **grads, **dict(model.named_buffers())}


def images() -> Tensor:
    return torch.randn(ROWS, 2, 6, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 3 + 10


def share(rank: int) -> Found:
    x, (first, _) = images(), equal_shares(ROWS)
    return {
        f"{momentum}/{name}": each
        for momentum in (0.3, None)
        for name, each in found(synchronise(network(momentum)), x[:first] if rank == 0 else x[first:]).items()
    }


def none_in_the_second(rank: int) -> Found:
    x = images()
    return found(synchronise(network(0.3)), x if rank == 0 else x[:0])


def check(both: list[Found], whole: Found, prefix: str = "") -> None:
    for name, each in whole.items():
        parts: list[Any] = [one[prefix + name] for one in both]
        if name in ("out", "x"):
            torch.testing.assert_close(torch.cat(parts), each, rtol=1e-9, atol=1e-9)
        elif name.startswith("gradient"):
            torch.testing.assert_close(parts[0] + parts[1], each, rtol=1e-8, atol=1e-8)
        else:
            assert torch.equal(parts[0], parts[1])
            torch.testing.assert_close(parts[0], each, rtol=1e-9, atol=1e-9)


def test_unequal_shares_of_two_processes_are_the_whole_batch(tmp_path: Path) -> None:
    both = in_two_processes(share, tmp_path)
    for momentum in (0.3, None):
        check(both, found(network(momentum), images()), f"{momentum}/")


def test_a_process_without_rows_takes_part(tmp_path: Path) -> None:
    check(in_two_processes(none_in_the_second, tmp_path), found(network(0.3), images()))


@pytest.mark.parametrize("training", [True, False])
def test_in_one_process_it_is_torchs_own(training: bool) -> None:
    ours, theirs = synchronise(network(0.3)).train(training), network(0.3).train(training)
    assert sum(isinstance(each, Synchronised) for each in ours.modules()) == 2
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert torch.equal(ours(images()), theirs(images()))
