from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from manyview.core.negatives import Negatives
from manyview.losses import dcl, info_nce
from manyview.losses import tiles as tiles_module
from manyview.losses.streaming import Stream
from tests.losses.layouts import assert_close, gradients, many_tiles, normal

Value = tuple[float, float] | None

FORMS: dict[str, tuple[float, float, Value, bool]] = {
    "similarity": (3.0, 0.0, None, False),
    "distance": (2.4, -1.2, None, False),
    "mean distance": (2.4, -1.2, (-2.0, 1.0), False),
    "mean distance, weights detached": (2.4, -1.2, (-2.0, 1.0), True),
    "mean distance of the far": (-2.4, 1.2, (-2.0, 1.0), False),
    "mean similarity": (0.0, 0.0, (1.0, 0.0), False),
}
for_every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
IDS = torch.arange(20) % 13  # some ids twice, in tiles on and off the diagonal
HALVES = torch.arange(10).repeat(2)


@contextmanager
def a_running_maximum() -> Iterator[None]:
    """Scores in no band are narrow enough for one shift."""
    with patch.dict("manyview.losses.symmetric._SAFE", {torch.float32: -1.0, torch.float64: -1.0}):
        yield


def batch(x: Tensor, keys: Tensor) -> Negatives:
    return Negatives(keys, IDS, IDS)


def halves(x: Tensor, keys: Tensor) -> Negatives:
    return Negatives(keys, HALVES, HALVES, split=(10, 10))


def uneven_halves(x: Tensor, keys: Tensor) -> Negatives:
    return Negatives(keys, split=(3, 3))


@pytest.mark.parametrize("maximum", ["one shift", "running maximum"])
@pytest.mark.parametrize("tiles", ["one tile", "many tiles"])
@pytest.mark.parametrize("build", [batch, halves, uneven_halves], ids=lambda build: build.__name__)
@for_every_form
def test_the_short_cut_changes_nothing(
    form: tuple[float, float, Value, bool], build: Callable[[Tensor, Tensor], Negatives], tiles: str, maximum: str
) -> None:
    alpha, beta, value, detach = form
    x = normal(torch.Generator().manual_seed(7), 20, 3, grad=True)

    def run(keys: Tensor) -> Tensor:
        sums = Stream(x, build(x, keys)).softmax(alpha, beta, value=value, detach=detach)
        return torch.stack([sums.log_sum_exp, sums.mean]) * torch.arange(1, 41).view(2, 20)

    wanted = run(x * 1.0)
    with (
        many_tiles() if tiles == "many tiles" else nullcontext(),
        a_running_maximum() if maximum == "running maximum" else nullcontext(),
    ):
        found = run(x)
        gradient = gradients(found.sum(), {"x": x})
    assert_close(found, wanted, 1e-11, "value")
    assert_close(gradient["x"], gradients(wanted.sum(), {"x": x})["x"], 1e-11, "gradient")


@contextmanager
def counted_products() -> Iterator[list[int]]:
    """The sizes of the tiles of inner products that are multiplied."""
    sizes: list[int] = []
    multiply = tiles_module.multiply

    def counting(a: Tensor, b: Tensor, out: Tensor, dtype: torch.dtype | None) -> Tensor:
        sizes.append(out.numel())
        return multiply(a, b, out, dtype)

    with patch("manyview.losses.symmetric.multiply", counting), patch("manyview.losses.tiles.multiply", counting):
        yield sizes


def test_a_batch_against_itself_multiplies_each_pair_once() -> None:
    x, ids = torch.randn(64, 3), torch.arange(64)
    with many_tiles(), counted_products() as sizes:
        info_nce(x, x[:, None], Negatives(x, ids, ids))
        assert sum(sizes) == 8 * 9 // 2 * 64  # tiles of 8 x 8 on and above the diagonal
        sizes.clear()
        info_nce(x, x[:, None], Negatives(x.clone(), ids, ids))
        assert sum(sizes) == 64 * 64


def test_two_halves_against_one_another_multiply_each_pair_once() -> None:
    x, ids = torch.randn(64, 3), torch.arange(32).repeat(2)
    with many_tiles(), counted_products() as sizes:
        info_nce(x, x[:, None], Negatives(x, ids, ids, split=(32, 32)))
        assert sum(sizes) == 32 * 32
        sizes.clear()
        info_nce(x, x[:, None], Negatives(x.clone(), ids, ids, split=(32, 32)))
        assert sum(sizes) == 2 * 32 * 32


def test_equal_ids_in_two_tensors_are_as_good_as_one() -> None:
    x, ids = torch.randn(16, 3), torch.arange(16)
    with many_tiles(), counted_products() as sizes:
        info_nce(x, x[:, None], Negatives(x, ids, ids.clone()))
    assert sum(sizes) == 3 * 64


def test_keys_that_are_the_queries_under_other_ids_take_no_short_cut() -> None:
    x = normal(torch.Generator().manual_seed(8), 6, 3)
    ids = torch.arange(6)
    found = info_nce(x, x[:, None], Negatives(x, ids, ids + 1), reduction="none")
    wanted = info_nce(x, x[:, None], Negatives(x.clone(), ids, ids + 1), reduction="none")
    torch.testing.assert_close(found, wanted)


def test_rows_drawn_from_the_queries_take_no_short_cut() -> None:
    x = normal(torch.Generator().manual_seed(8), 6, 3)
    index = torch.tensor([[1, 2], [2, 3], [3, 4], [4, 5], [5, 0], [0, 1]])
    found = info_nce(x, x[:, None], Negatives(x, index=index), reduction="none")
    wanted = info_nce(x, x[:, None], Negatives(x.clone(), index=index), reduction="none")
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("temperature", [0.0251, 0.05, 0.2, 1.0])
def test_a_gradient_stays_finite_under_the_loss_scale_of_mixed_precision(temperature: float) -> None:
    """Opposite points: as far below the largest possible score as a score can be."""
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], requires_grad=True)
    ids = torch.arange(2)
    loss = dcl(x, x.detach()[:, None], Negatives(x, ids, ids), temperature=temperature)
    plain, scaled = (torch.autograd.grad(loss * scale, x, retain_graph=True)[0] for scale in (1.0, 65536.0))
    torch.testing.assert_close(scaled, plain * 65536)
    assert bool(plain.any())


def test_a_learnt_temperature_is_halved_between_both_ends() -> None:
    x = normal(torch.Generator().manual_seed(9), 20, 3, grad=True)
    scale = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    leaves = {"x": x, "scale": scale}
    found = Stream(x, batch(x, x)).softmax(scale).log_sum_exp.sum()
    wanted = Stream(x, batch(x, x * 1.0)).softmax(scale).log_sum_exp.sum()
    for name, gradient in gradients(found, leaves).items():
        assert_close(gradient, gradients(wanted, leaves)[name], 1e-11, name)
