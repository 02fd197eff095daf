from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from manyview.diagnose import couplings, measure
from manyview.diagnose.vectors import draw_batches
from manyview.losses import info_nce
from manyview.memories import Memory
from manyview.methods.embeddings import Embeddings
from manyview.methods.topologies import every_copy
from tests.golden import unit


def two_copies(images: int = 12, dim: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(images, dim, generator=generator, dtype=torch.float64)
    return first, first + 0.5 * torch.randn(images, dim, generator=generator, dtype=torch.float64)


def looped(first: Tensor, second: Tensor, i: int, temperature: float) -> float:
    """1 - exp(positive) / Y of the proof of Proposition 1."""
    x, y = unit(first), unit(second)

    def similar(a: Tensor, b: Tensor) -> float:
        return math.exp(float(a @ b) / temperature)

    others = sum(similar(x[i], x[j]) + similar(x[i], y[j]) for j in range(len(x)) if j != i)
    return 1 - similar(x[i], y[i]) / (similar(x[i], y[i]) + others)


def test_the_coupling_of_each_image_is_dcls_proposition_1() -> None:
    first, second = two_copies()
    found = couplings(first, second, [4, 12], temperature=0.3)
    for size in (4, 12):
        expected = [
            looped(first[rows], second[rows], i, 0.3) for rows in draw_batches(12, size, 0) for i in range(size)
        ]  # fmt: skip
        torch.testing.assert_close(found[size], torch.tensor(expected, dtype=torch.float64))


def test_it_is_the_factor_of_the_positives_gradient_in_info_nce() -> None:
    first, second = (unit(each) for each in two_copies())
    second.requires_grad_()
    query, positives, negatives, *_ = every_copy(Embeddings([first, second]), Memory())[0]
    losses = info_nce(query, positives, negatives, temperature=0.3, reduction="none")
    order = next(draw_batches(12, 12, 0))
    found = couplings(first, second.detach(), [12], temperature=0.3)[12]
    for place, image in enumerate(order.tolist()):
        (gradient,) = torch.autograd.grad(losses[image], second, retain_graph=True)
        assert float(gradient[image].norm()) * 0.3 == pytest.approx(float(found[place]), abs=1e-9)


def test_its_mean_in_a_whole_batch_is_what_a_step_measures() -> None:
    first, second = (unit(each) for each in two_copies())
    triple = every_copy(Embeddings([first, second]), Memory())[0]
    measured = measure(triple.query, triple.positives, triple.negatives, temperature=0.2, t_neg=1.0)
    both = [couplings(a, b, [12], temperature=0.2)[12] for a, b in ((first, second), (second, first))]
    assert measured["coupling"] == pytest.approx(float(torch.cat(both).mean()), abs=1e-6)


def test_larger_batches_have_a_larger_coupling() -> None:
    means = [float(each.mean()) for each in couplings(*two_copies(64), [2, 8, 64]).values()]
    assert means == sorted(means)
    assert means[0] < means[-1]


def test_images_that_do_not_fill_a_batch_are_left_out() -> None:
    assert {size: len(each) for size, each in couplings(*two_copies(10), [4, 10]).items()} == {4: 8, 10: 10}


def test_the_seed_draws_the_batches_and_nothing_else_is_draw_batches() -> None:
    before = torch.get_rng_state()
    first, again, other = (couplings(*two_copies(), [4], seed=seed)[4] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("size", [1, 13])
def test_a_size_that_no_batch_can_have_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"size: a batch is of 2 to the 12 images that there are, got {size}"):
        couplings(*two_copies(), [size])


def test_copies_of_different_numbers_of_images_are_refused() -> None:
    with pytest.raises(ValueError, match=r"second: expected \(12, 6\) as the first, got \(11, 6\)"):
        couplings(two_copies()[0], two_copies()[1][:11], [4])
