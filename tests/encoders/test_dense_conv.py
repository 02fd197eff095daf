from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.encoders import create, dense_convolutions
from manyview.encoders.dense_conv import DenseConv2d


def refuse(*_: object) -> Tensor:
    raise AssertionError("a convolution, where a dense layer was expected")


COVERED = [
    # kernel, stride, padding, map
    (3, 1, 1, (1, 1)),
    (3, 1, 1, (2, 2)),
    (3, 2, 1, (2, 2)),
    (3, 1, 1, (1, 2)),
    (5, 1, 2, (3, 2)),
    (7, 2, 3, (4, 3)),
    (2, 1, 0, (2, 2)),
    ((3, 5), (1, 2), (1, 2), (2, 3)),
]


@pytest.mark.parametrize(("kernel", "stride", "pad", "size"), COVERED)
@pytest.mark.parametrize("bias", [False, True])
def test_where_a_kernel_covers_the_map_a_dense_layer_gives_the_same_numbers_and_gradients(
    kernel: int, stride: int, pad: int, size: tuple[int, int], bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 4, kernel, stride, pad, bias=bias).double()
    dense = copy.deepcopy(conv)
    dense_convolutions(dense)
    x = torch.randn(5, 3, *size, dtype=torch.float64, requires_grad=True)
    expected = conv(x)
    upstream = torch.randn_like(expected)
    gradients = torch.autograd.grad(expected, [x, *conv.parameters()], upstream)
    monkeypatch.setattr(F, "conv2d", refuse)
    found = dense(x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for mine, plain in zip(torch.autograd.grad(found, [x, *dense.parameters()], upstream), gradients, strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "size"), [(3, 1, 1, (3, 3)), (3, 1, 1, (2, 3)), (3, 1, 0, (4, 4)), (2, 2, 0, (4, 4))]
)
def test_elsewhere_it_is_the_convolution_to_the_bit(kernel: int, stride: int, pad: int, size: tuple[int, int]) -> None:
    conv = nn.Conv2d(3, 4, kernel, stride, pad)
    dense = copy.deepcopy(conv)
    dense_convolutions(dense)
    x = torch.randn(5, 3, *size)
    assert torch.equal(dense(x), conv(x))


def test_a_kernel_larger_than_the_padded_map_is_refused_as_torch_does() -> None:
    conv = nn.Conv2d(3, 4, 5)
    dense_convolutions(conv)
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        conv(torch.randn(1, 3, 2, 2))


def test_only_plain_convolutions_are_touched() -> None:
    kinds = [
        nn.Conv2d(4, 4, 3, padding=1, groups=2),
        nn.Conv2d(4, 4, 3, padding=2, dilation=2),
        nn.Conv2d(4, 4, 3, padding="same"),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(4, 4, 1),
        nn.ConvTranspose2d(4, 4, 3),
    ]
    network = nn.Sequential(*kinds, nn.Conv2d(4, 4, 3, padding=1))
    names = list(network.state_dict())
    dense_convolutions(network)
    assert [isinstance(part, DenseConv2d) for part in network] == [False] * len(kinds) + [True]
    assert list(network.state_dict()) == names


@pytest.mark.parametrize(("name", "size"), [("patchnet", 16), ("torchvision/resnet18", 32)])
def test_a_whole_network_has_the_same_gradient(name: str, size: int) -> None:
    torch.manual_seed(0)
    plain = create(name, size=32).double()
    quick = copy.deepcopy(plain)
    dense_convolutions(quick)
    x = torch.randn(4, 3, size, size, dtype=torch.float64)
    for network in (plain, quick):
        network(x).square().sum().backward()
    for one, other in zip(plain.parameters(), quick.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-7, atol=1e-9)
