from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from manyview.encoders import create, dense_convolutions, shuffled, split_batch_norm, sync_batch_norm
from manyview.encoders.layers import DenseConv2d, groups_here
from tests.golden import golden


def test_split_batch_norm_gives_the_published_numbers() -> None:
    """In the notebook every second row is in a group, here each half."""
    norm = nn.BatchNorm2d(4).double()
    norm.weight.data, norm.bias.data = golden("split_batchnorm/weight"), golden("split_batchnorm/bias")
    split = split_batch_norm(norm, 2)
    x, output = (golden(f"split_batchnorm/{name}") for name in ("input", "output_train"))
    exact = partial(torch.testing.assert_close, rtol=1e-10, atol=1e-12)
    exact(split(torch.cat([x[::2], x[1::2]])), torch.cat([output[::2], output[1::2]]))
    exact(split.running_mean, golden("split_batchnorm/running_mean"))
    exact(split.running_var, golden("split_batchnorm/running_var"))
    exact(split.eval()(x), golden("split_batchnorm/output_eval"))


def one_by_one(norm: nn.Module, x: Tensor, splits: int) -> Tensor:
    """Every group through plain batch norm, by a loop."""
    size = len(x) // splits
    return torch.cat([norm(x[start : start + size]) for start in range(0, len(x), size)])


@pytest.mark.parametrize("splits", [1, 2, 4])
@pytest.mark.parametrize("shape", [(8, 3), (8, 3, 5), (8, 3, 5, 4)])
def test_a_group_is_normed_by_itself_with_the_same_gradient(splits: int, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    plain = (nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d)(3).double()
    nn.init.normal_(plain.weight)
    split = split_batch_norm(nn.BatchNorm1d(3), splits).double()
    split.load_state_dict(plain.state_dict())
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    weigh = torch.randn(shape, dtype=torch.float64)
    theirs, ours = one_by_one(plain, x, splits), split(x)
    torch.testing.assert_close(ours, theirs)
    for mine, expected in zip(
        torch.autograd.grad((ours * weigh).sum(), [x, *split.parameters()]),
        torch.autograd.grad((theirs * weigh).sum(), [x, plain.weight, plain.bias]),
        strict=True,
    ):
        torch.testing.assert_close(mine, expected)


def test_channels_last_gives_the_same() -> None:
    split = split_batch_norm(nn.BatchNorm1d(3), 2)
    x = torch.randn(4, 3, 5, 5)
    torch.testing.assert_close(split(x.contiguous(memory_format=torch.channels_last)), split(x))


def test_without_momentum_all_batches_count_alike() -> None:
    split = split_batch_norm(nn.BatchNorm1d(3, momentum=None), 2)
    batches = [torch.randn(4, 3) for _ in range(3)]
    for batch in batches:
        split(batch)
    torch.testing.assert_close(split.running_mean, torch.cat(batches).mean(0))


def test_without_running_statistics_evaluation_is_split_too() -> None:
    split = split_batch_norm(nn.BatchNorm1d(3, track_running_stats=False), 2)
    x = torch.randn(6, 3)
    assert torch.equal(split(x), split.eval()(x))


@pytest.mark.parametrize("name", ["patchnet", "torchvision/resnet18", "timm/efficientnet_b0"])
def test_a_network_keeps_its_parameters_and_its_evaluation(name: str) -> None:
    torch.manual_seed(0)
    encoder = create(name, size=32)
    x = torch.randn(8, 3, 32, 32)
    encoder(x)
    before, state = encoder.eval()(x), list(encoder.state_dict())
    ids = [id(each) for each in encoder.parameters()]
    assert split_batch_norm(encoder, 4) is encoder
    assert list(encoder.state_dict()) == state
    assert [id(each) for each in encoder.parameters()] == ids
    assert torch.equal(encoder(x), before)
    assert not any(type(part) is nn.BatchNorm2d for part in encoder.modules())


def test_in_training_a_network_sees_its_groups() -> None:
    torch.manual_seed(0)
    encoder = split_batch_norm(create("patchnet", size=32), 2)
    x = torch.randn(8, 3, 32, 32)
    whole = encoder(x)
    torch.testing.assert_close(whole[:4], split_batch_norm(encoder, 1)(x[:4]))


@pytest.mark.parametrize(("rows", "sizes"), [(11, (4, 4, 3)), (7, (3, 2, 2)), (5, (3, 2)), (3, (3,))])
def test_a_batch_that_does_not_divide_has_groups_of_almost_the_same_size_and_at_least_two_rows(
    rows: int, sizes: tuple[int, ...]
) -> None:
    split, plain, x = split_batch_norm(nn.BatchNorm1d(3), 3), nn.BatchNorm1d(3), torch.randn(rows, 3)
    torch.testing.assert_close(split(x), torch.cat([plain(group) for group in x.split(sizes)]))


@pytest.mark.parametrize(("splits", "world", "here"), [(8, 1, 8), (8, 2, 4), (8, 8, 1), (1, 1, 1), (1, 4, 1)])
def test_each_process_has_its_share_of_the_groups(splits: int, world: int, here: int) -> None:
    assert groups_here(splits, world) == here


def test_what_cannot_be_split_is_refused() -> None:
    with pytest.raises(ValueError, match="bn_splits: 3 processes cannot share 8 groups; give a multiple of 3"):
        groups_here(8, 3)
    with pytest.raises(ValueError, match="bn_splits: 16 processes cannot share 8 groups"):
        groups_here(8, 16)
    with pytest.raises(ValueError, match="splits: expected at least 1, got 0"):
        split_batch_norm(nn.BatchNorm1d(3), 0)
    with pytest.raises(ValueError, match="cannot split BatchNorm3d"):
        split_batch_norm(nn.Sequential(nn.BatchNorm3d(3)), 2)


def test_shuffling_undoes_itself() -> None:
    x = torch.randn(33, 4)
    found = shuffled(lambda rows: {"twice": 2 * rows, "first": rows[:, 0]}, x, seed=1, step=5)
    assert list(found) == ["twice", "first"]
    assert torch.equal(found["twice"], 2 * x)
    assert torch.equal(found["first"], x[:, 0])


def test_the_order_depends_on_seed_and_step_alone() -> None:
    x = torch.arange(64.0)[:, None]

    def seen(seed: int, step: int) -> list[float]:
        orders: list[Tensor] = []

        def note(rows: Tensor) -> dict[str, Tensor]:
            orders.append(rows)
            return {"rows": rows}

        torch.rand(1)
        shuffled(note, x, seed=seed, step=step)
        return orders[0].flatten().tolist()

    assert seen(1, 5) == seen(1, 5)
    assert len({tuple(seen(*each)) for each in ((1, 5), (1, 6), (2, 5))}) == 3
    assert sorted(seen(1, 5)) == x.flatten().tolist() != seen(1, 5)


def test_shuffling_means_something_once_batch_norm_is_split() -> None:
    x = torch.randn(16, 3)
    plain, split = nn.BatchNorm1d(3), split_batch_norm(nn.BatchNorm1d(3), 4)
    of_plain, of_split = (
        shuffled(lambda rows, norm=norm: {"normed": norm(rows)}, x, seed=0, step=0)["normed"]  # type: ignore[misc]
        for norm in (plain, split)
    )
    torch.testing.assert_close(of_plain, plain(x))
    assert not torch.allclose(of_split, split(x))


@pytest.mark.parametrize("name", ["torchvision/resnet18", "timm/efficientnet_b0"])
def test_sync_batch_norm_converts_all_and_evaluates_alike(name: str) -> None:
    encoder = create(name, size=32).eval()
    x = torch.randn(2, 3, 32, 32)
    before = encoder(x)
    synced = sync_batch_norm(encoder)
    assert any(isinstance(part, nn.SyncBatchNorm) for part in synced.modules())
    assert not any(isinstance(part, nn.BatchNorm2d) for part in synced.modules())
    torch.testing.assert_close(synced(x), before)


def test_a_split_of_one_is_plain_batch_norm() -> None:
    x = torch.randn(6, 3)
    plain, split = nn.BatchNorm1d(3), split_batch_norm(nn.BatchNorm1d(3), 1)
    torch.testing.assert_close(split(x), plain(x))
    torch.testing.assert_close(split.running_var, plain.running_var)
    assert F.mse_loss(split.eval()(x), plain.eval()(x)) == 0


@pytest.mark.parametrize("name", ["patchnet", "timm/efficientnet_b0"])
def test_batch_norm_is_split_or_synchronised_not_both(name: str) -> None:
    with pytest.raises(ValueError, match="been through split_batch_norm; use one of the two"):
        sync_batch_norm(split_batch_norm(create(name, size=32), 2))


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
