"""Float32 against float64, half precision, autocast and bfloat16 multiplies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from manyview.core.negatives import Negatives
from manyview.losses import (
    align_uniform,
    alignment,
    attraction,
    bfloat16_matmul,
    cacr,
    dcl,
    hard_negative,
    info_nce,
    jcl,
    nce,
    repulsion,
    uniformity,
)
from tests.losses.every_loss import EVERY_LOSS, Loss, for_every_loss

N, K, D = 24, 3, 16
IDS = torch.arange(N) % 13
TWICE = torch.arange(12).repeat(2)
DRAWN = torch.randint(40, (N, 9), generator=torch.Generator().manual_seed(1))

Build = Callable[[Tensor, Tensor], Negatives]  # from the query (N, D) and a bank (400, D)

PATHS: dict[str, Build] = {
    "queue": lambda query, bank: Negatives(bank[:60].detach()),
    "learning keys": lambda query, bank: Negatives(bank[:60]),
    "batch": lambda query, bank: Negatives(query, IDS, IDS),
    "halves": lambda query, bank: Negatives(query, TWICE, TWICE, split=(12, 12)),
    "own keys": lambda query, bank: Negatives(bank[: N * 9].view(N, 9, D)),
    "small bank": lambda query, bank: Negatives(bank[:60], index=DRAWN),
    "large bank": lambda query, bank: Negatives(bank, index=DRAWN),
    "batch and queue": lambda query, bank: Negatives(query, IDS, IDS, weight=0.5) + Negatives(bank[:60].detach()),
}  # fmt: skip
for_every_path = pytest.mark.parametrize("build", PATHS.values(), ids=PATHS.keys())


def unit_vectors() -> tuple[Tensor, Tensor, Tensor]:
    """Query, positives near it and a bank, unit vectors as float32 rounds them."""
    g = torch.Generator().manual_seed(4)
    query = F.normalize(torch.randn(N, D, generator=g), dim=-1)
    positives = F.normalize(query[:, None] + 0.15 * torch.randn(N, K, D, generator=g), dim=-1)
    bank = F.normalize(torch.randn(400, D, generator=g), dim=-1)
    bank[:6] = positives[:6, 0]  # as near as any can be
    return query, positives, bank


def run(loss: Loss, build: Build, dtype: torch.dtype, to: torch.dtype | None = None) -> tuple[Tensor, list[Tensor]]:
    """The loss and its gradients by query, positives and bank."""
    leaves = [x.to(dtype).to(to or dtype).requires_grad_() for x in unit_vectors()]
    query, positives, bank = leaves
    value = loss(query, positives, build(query, bank))
    found = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
    return value.detach(), list(found)


def assert_near(found: tuple[Tensor, list[Tensor]], wanted: tuple[Tensor, list[Tensor]], rtol: float) -> None:
    """Gradients as vectors: relative to the length of the wanted one."""
    value, gradients = found
    assert bool(value.isfinite())
    assert float((value.double() - wanted[0].double()).abs()) <= rtol * max(float(wanted[0].abs()), 1.0)
    for gradient, expected in zip(gradients, wanted[1], strict=True):
        assert bool(gradient.isfinite().all())
        error, length = (float(x.double().norm()) for x in (gradient.double() - expected.double(), expected))
        assert error <= rtol * length + 1e-7


COLD: dict[str, Callable[..., Tensor]] = {
    "info_nce": info_nce,
    "dcl": dcl,
    "dclw": partial(dcl, sigma=0.5),
    "jcl": jcl,
    "hard_negative": partial(hard_negative, tau_plus=0.0),
    "hard_negative, debiased": partial(hard_negative, tau_plus=1e-6),
    "nce": partial(nce, population=1000, partition=1e6),
}


@pytest.mark.parametrize("loss", COLD.values(), ids=COLD.keys())
@pytest.mark.parametrize("temperature", [0.005, 0.01, 0.05])
@for_every_path
def test_float32_is_right_at_low_temperatures(loss: Callable[..., Tensor], temperature: float, build: Build) -> None:
    cold: Loss = partial(loss, temperature=temperature)
    wanted = run(cold, build, torch.float32, to=torch.float64)
    assert_near(run(cold, build, torch.float32), wanted, rtol=3e-4)


@pytest.mark.parametrize("temperature", [0.005, 0.01, 0.05])
@for_every_path
def test_float32_is_right_at_a_low_learnt_temperature(temperature: float, build: Build) -> None:
    def learnt(query: Tensor, positives: Tensor, negatives: Negatives) -> Tensor:
        return info_nce(query, positives, negatives, temperature=torch.tensor(temperature))

    wanted = run(partial(info_nce, temperature=temperature), build, torch.float32, to=torch.float64)
    assert_near(run(learnt, build, torch.float32), wanted, rtol=3e-4)


SHARP: dict[str, Callable[[float], Loss]] = {
    "cacr": lambda t: partial(cacr, t_pos=t, t_neg=t),
    "cacr, weights detached": lambda t: partial(cacr, t_pos=t, t_neg=t, detach_weights=True),
    "cacr, inner cost": lambda t: partial(cacr, t_pos=t, t_neg=t, cost="inner"),
    "cacr, rbf cost": lambda t: partial(cacr, t_pos=t, t_neg=t, t_rbf=t, cost="rbf"),
    "cacr, rbf cost, weights detached": lambda t: partial(cacr, t_neg=t, t_rbf=t, cost="rbf", detach_weights=True),
    "repulsion of the far": lambda t: partial(repulsion, t_neg=t, repel="far"),
    "align_uniform": lambda t: partial(align_uniform, t=t),
}


@pytest.mark.parametrize("loss", SHARP.values(), ids=SHARP.keys())
@pytest.mark.parametrize("t", [2.0, 30.0, 100.0])
@for_every_path
def test_float32_is_right_for_sharp_weights(loss: Callable[[float], Loss], t: float, build: Build) -> None:
    sharp = loss(t)
    wanted = run(sharp, build, torch.float32, to=torch.float64)
    assert_near(run(sharp, build, torch.float32), wanted, rtol=1e-3)


@pytest.mark.parametrize("t", [2.0, 30.0, 100.0])
def test_uniformity_is_right_in_float32(t: float) -> None:
    x, _, _ = unit_vectors()
    single, double = x.clone().requires_grad_(), x.double().requires_grad_()
    found, wanted = uniformity(single, t=t), uniformity(double, t=t)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-5)
    found_gradient, wanted_gradient = torch.autograd.grad(found, single)[0], torch.autograd.grad(wanted, double)[0]
    assert float((found_gradient - wanted_gradient).norm()) <= 1e-3 * float(wanted_gradient.norm())


@for_every_loss
@for_every_path
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(loss: Loss, build: Build, dtype: torch.dtype) -> None:
    value, gradients = run(loss, build, dtype)
    wanted, exact = run(loss, build, dtype, to=torch.float32)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, wanted, rtol=1e-6, atol=1e-6)
    for gradient, expected in zip(gradients, exact, strict=True):
        assert gradient.dtype == dtype
        assert float((gradient - expected).norm()) <= 2 * torch.finfo(dtype).eps * float(expected.norm()) + 1e-5


def test_alignment_and_uniformity_in_half_precision_are_computed_in_float32() -> None:
    x, positives, _ = unit_vectors()
    x, y = x.half(), positives[:, 0].half()
    assert torch.equal(alignment(x, y), alignment(x.float(), y.float()))
    assert torch.equal(uniformity(x), uniformity(x.float()))
    assert torch.equal(attraction(x, y[:, None]), attraction(x.float(), y.float()[:, None]))
    assert uniformity(x).dtype == alignment(x, y).dtype == torch.float32


@for_every_loss
@for_every_path
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_autocast_changes_nothing(loss: Loss, build: Build, dtype: torch.dtype) -> None:
    wanted = run(loss, build, dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):  # forward and backward
        found = run(loss, build, dtype)
    assert_near(found, wanted, rtol=1e-6)
    assert found[0].dtype == torch.float32


def test_backward_may_be_inside_or_outside_autocast() -> None:
    query, positives, bank = unit_vectors()
    query.requires_grad_()
    gradients: list[Tensor] = []
    for forward, backward in ((False, False), (True, False), (False, True), (True, True)):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=forward):
            loss = cacr(query, positives, Negatives(query, IDS, IDS) + Negatives(bank))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=backward):
            gradients += torch.autograd.grad(loss, query)
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0], rtol=1e-6, atol=1e-8)


IN_BFLOAT16 = {name: PATHS[name] for name in ("queue", "learning keys", "batch", "halves", "small bank")}


@for_every_loss
@pytest.mark.parametrize("build", IN_BFLOAT16.values(), ids=IN_BFLOAT16.keys())
def test_bfloat16_multiplies_are_good_to_two_digits(loss: Loss, build: Build) -> None:
    wanted = run(loss, build, torch.float32)
    with bfloat16_matmul():
        found = run(loss, build, torch.float32)
    assert_near(found, wanted, rtol=2e-2)
    assert not all(torch.equal(a, b) for a, b in zip(found[1], wanted[1], strict=True))


def test_outside_its_context_nothing_is_multiplied_in_bfloat16() -> None:
    loss, build = EVERY_LOSS["info_nce"], PATHS["queue"]
    wanted, _ = run(loss, build, torch.float32)
    with pytest.raises(KeyError), bfloat16_matmul():
        raise KeyError
    assert torch.equal(run(loss, build, torch.float32)[0], wanted)
    with bfloat16_matmul():
        assert not torch.equal(run(loss, build, torch.float32)[0], wanted)


COLD_CALLS: dict[str, Callable[..., Tensor]] = {
    "info_nce": info_nce, "dcl": dcl, "jcl": jcl, "hard_negative": partial(hard_negative, beta=0.0),
    "nce": partial(nce, population=10, partition=10.0),
}  # fmt: skip


@pytest.mark.parametrize("loss", COLD_CALLS.values(), ids=COLD_CALLS.keys())
@pytest.mark.parametrize("temperature", [0.049, torch.tensor(0.049)], ids=["number", "tensor"])
@pytest.mark.parametrize("path", ["queue", "batch"])
def test_bfloat16_multiplies_are_refused_below_a_temperature_of_a_twentieth(
    loss: Callable[..., Tensor], temperature: float | Tensor, path: str
) -> None:
    query, positives, bank = unit_vectors()
    negatives = PATHS[path](query, bank)
    with bfloat16_matmul():
        with pytest.raises(ValueError, match=r"bfloat16_matmul: too coarse .*temperature = 0\.05"):
            loss(query, positives, negatives, temperature=temperature)
        assert loss(query, positives, negatives, temperature=0.05).isfinite()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("path", ["queue", "learning keys", "own keys", "small bank", "large bank"])
@for_every_loss
def test_keys_may_be_stored_in_half_precision(loss: Loss, path: str, dtype: torch.dtype) -> None:
    query, positives, bank = unit_vectors()
    half = bank.to(dtype).requires_grad_()
    wide = half.detach().float().requires_grad_()
    results: list[Any] = []
    for keys in (half, wide):
        leaf = query.clone().requires_grad_()
        value = loss(leaf, positives, PATHS[path](leaf, keys))
        by_query, by_keys = torch.autograd.grad(value, [leaf, keys], allow_unused=True, materialize_grads=True)
        assert by_keys.dtype == keys.dtype
        results.append((value, by_query, by_keys.float()))
    (found, by_query, by_keys), (wanted, by_query_wanted, by_keys_wanted) = results
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(by_query, by_query_wanted, rtol=1e-5, atol=1e-6)
    error = float((by_keys - by_keys_wanted).norm())
    assert error <= 2 * torch.finfo(dtype).eps * float(by_keys_wanted.norm()) + 1e-5


def test_a_query_in_float64_meets_keys_in_float32() -> None:
    query, positives, bank = unit_vectors()
    found = info_nce(query.double(), positives.double(), Negatives(bank))
    wanted = info_nce(query.double(), positives.double(), Negatives(bank.double()))
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=0)
