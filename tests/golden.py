"""Numbers that published implementations gave on small fixed inputs; see GOLDEN.md."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

Leaves = dict[str, Tensor]


@cache
def _numbers() -> dict[str, Tensor]:
    numbers: dict[str, Tensor] = torch.load(Path(__file__).with_name("golden.pt"), weights_only=True)
    return numbers


def golden(name: str) -> Tensor:
    return _numbers()[name]


def entries(prefix: str) -> list[str]:
    """Names of the entries below a prefix: what stands before `/loss`."""
    ends = "/loss"
    return sorted(name.removesuffix(ends) for name in _numbers() if name.startswith(prefix) and name.endswith(ends))


def parameter(entry: str, name: str) -> float:
    return float(golden(f"{entry}/param/{name}"))


class Precision(NamedTuple):
    """A floating-point type, and how near a loss and its gradients must come in it."""

    dtype: torch.dtype
    loss: float
    grad: float
    absolute: float

    def leaf(self, name: str) -> Tensor:
        """A shared input as a leaf that wants a gradient."""
        return golden(f"inputs/{name}").to(self.dtype).detach().clone().requires_grad_()

    def given(self, name: str) -> Tensor:
        """A shared input that wants none."""
        tensor = golden(f"inputs/{name}")
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor


DOUBLE = Precision(torch.float64, 1e-9, 1e-8, 1e-12)
SINGLE = Precision(torch.float32, 1e-5, 1e-4, 1e-6)

in_both_precisions = pytest.mark.parametrize("precision", [DOUBLE, SINGLE], ids=["float64", "float32"])


def unit(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)


def two_views(precision: Precision) -> tuple[Tensor, Tensor]:
    """v1_raw and v2_raw."""
    first, second = precision.given("views_raw")[:2]
    return first.clone().requires_grad_(), second.clone().requires_grad_()


def assert_value(entry: str, actual: Tensor, precision: Precision, name: str = "loss") -> None:
    expected = golden(f"{entry}/{name}")
    torch.testing.assert_close(actual.detach().double(), expected, rtol=precision.loss, atol=precision.absolute)


def assert_gradients(entry: str, loss: Tensor, leaves: Leaves, precision: Precision) -> None:
    """leaves: by the name of the raw input, such as q_raw for the entry's grad_q_raw."""
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    for name, gradient in zip(leaves, gradients, strict=True):
        expected = golden(f"{entry}/grad_{name}")
        difference = partial("gradient by {}: {}".format, name)
        torch.testing.assert_close(
            gradient.double(), expected, rtol=precision.grad, atol=precision.absolute, msg=difference
        )


def assert_golden(entry: str, loss: Tensor, leaves: Leaves, precision: Precision) -> None:
    assert_value(entry, loss, precision)
    assert_gradients(entry, loss, leaves, precision)
