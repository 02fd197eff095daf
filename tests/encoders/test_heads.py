from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from manyview.encoders import HEADS
from manyview.encoders.heads import Jigsaw


def parameters(module: nn.Module) -> int:
    return sum(each.numel() for each in module.parameters() if each.requires_grad)


def kinds(module: nn.Module) -> list[str]:
    return [type(part).__name__ for part in module.modules() if not isinstance(part, nn.Sequential)]


@pytest.mark.parametrize("name", HEADS)
def test_a_head_makes_vectors_of_the_length_asked_for(name: str) -> None:
    assert HEADS[name](12, 7)(torch.randn(4, 12)).shape == (4, 7)


COUNTS = [
    ("linear", 512, 128, {}, 512 * 128 + 128),
    ("mlp", 2048, 128, {}, 2048 * 2048 + 2048 + 2048 * 128 + 128),
    ("mlp", 512, 64, {"hidden": 32}, 512 * 32 + 32 + 32 * 64 + 64),
    ("simclr", 64, 16, {}, 2 * (64 * 64 + 128) + 64 * 16 + 16),
    ("simclr", 64, 16, {"layers": 2}, 64 * 64 + 128 + 64 * 16 + 16),
    ("projector", 2048, 256, {}, 2048 * 4096 + 2 * 4096 + 4096 * 256),
    ("projector", 384, 256, {"layers": 3}, 384 * 4096 + 4096 * 4096 + 4 * 4096 + 4096 * 256),
    ("predictor", 256, 256, {}, 256 * 4096 + 2 * 4096 + 4096 * 256),
    ("predictor", 2048, 128, {"hidden": 512}, 2048 * 512 + 2 * 512 + 512 * 128),
    ("predictor", 2048, 128, {"hidden": 512, "last_bias": True}, 2048 * 512 + 2 * 512 + 512 * 128 + 128),  # HN-CL
]


@pytest.mark.parametrize(("name", "dim_in", "dim_out", "options", "count"), COUNTS)
def test_a_head_has_the_parameters_of_its_source(
    name: str, dim_in: int, dim_out: int, options: dict[str, int], count: int
) -> None:
    with torch.device("meta"):
        assert parameters(HEADS[name](dim_in, dim_out, **options)) == count


def test_a_linear_head_is_drawn_as_torch_draws_it_or_with_the_deviation_asked_for() -> None:
    torch.manual_seed(0)
    usual, drawn = (dict(HEADS["linear"](4096, 128, std=std).named_parameters()) for std in (None, 0.02))
    torch.testing.assert_close(float(usual["weight"].detach().std()), 1 / (3 * 4096) ** 0.5, rtol=0.02, atol=0)
    assert usual["bias"].any()
    torch.testing.assert_close(float(drawn["weight"].detach().std()), 0.02, rtol=0.02, atol=0)  # fc8 of SmallAlexNet
    assert float(drawn["weight"].detach().abs().max()) > 0.08  # four deviations: a Gaussian, not torch's uniform
    assert not drawn["bias"].any()
    for wrong in (0.0, -0.02, float("nan")):
        with pytest.raises(ValueError, match=f"^std: expected a number above 0, got {wrong}; without it"):
            HEADS["linear"](8, 4, std=wrong)


def test_moco_has_no_batch_norm_and_simclr_has_one_per_layer() -> None:
    assert kinds(HEADS["mlp"](8, 4)) == ["Linear", "ReLU", "Linear"]
    layer = ["Linear", "BatchNorm1d", "ReLU"]
    assert kinds(HEADS["simclr"](8, 4)) == [*layer, *layer, "Linear", "BatchNorm1d"]


def test_the_last_batch_norm_of_simclr_has_a_scale_and_no_shift() -> None:
    last = list(HEADS["simclr"](8, 4).modules())[-1]
    assert isinstance(last, nn.BatchNorm1d)
    assert last.weight.requires_grad
    assert not last.bias.requires_grad
    assert not last.bias.any()


def test_mocov3_ends_in_a_plain_batch_norm_but_the_predictor_of_a_resnet_does_not() -> None:
    last = list(HEADS["projector"](8, 4).modules())[-1]
    assert isinstance(last, nn.BatchNorm1d)
    assert not last.affine
    assert kinds(HEADS["predictor"](8, 4))[-1] == "Linear"
    assert kinds(HEADS["predictor"](8, 4, last_norm=True))[-1] == "BatchNorm1d"


def test_a_number_of_layers_that_no_source_has_is_refused() -> None:
    with pytest.raises(ValueError, match="layers: SimCLR's head has 2 or 3, got 4"):
        HEADS["simclr"](8, 4, layers=4)


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_a_jigsaw_head_joins_nine_patches_in_their_order(kind: str) -> None:
    head = Jigsaw(6, partial(HEADS[kind], dim_out=4)).double()
    features = torch.randn(5, 9, 6, dtype=torch.float64)
    found = head(features)
    assert found.shape == (5, 4)
    for row in range(5):
        joined = head.joined(torch.cat([head.patch(features[row, k]) for k in range(9)]))
        torch.testing.assert_close(found[row], joined / joined.norm())
    assert not torch.allclose(head(features.flip(1)), found)
    assert all(part.training for part in head.modules())
