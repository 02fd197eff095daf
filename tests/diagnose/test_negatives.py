from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from manyview.core.negatives import Negatives
from manyview.diagnose import contrast_weights, couplings, entropies, measure
from manyview.diagnose.vectors import draw_batches
from manyview.losses import cacr, info_nce
from manyview.memories import Memory
from manyview.methods.embeddings import Embeddings
from manyview.methods.topologies import every_copy
from tests.golden import DOUBLE, assert_value, entries, parameter, unit


def vectors(count: int, dim: int = 5, seed: int = 0) -> Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def looped(query: Tensor, ids: Tensor, i: int, t_neg: float) -> float:
    """Eq. 8 for one query of a batch."""
    q = unit(query)
    scores = [math.exp(-t_neg * float((q[i] - q[j]) @ (q[i] - q[j]))) for j in range(len(q)) if ids[i] != ids[j]]
    return -sum(s / sum(scores) * math.log(s / sum(scores)) for s in scores)


@pytest.mark.parametrize("entry", [entry for entry in entries("cacr_eq/") if "none" not in entry])
def test_it_is_the_published_entropy(entry: str) -> None:
    view = DOUBLE.given("views_raw")[0]
    found = entropies(view, batch=len(view), t_neg=parameter(entry, "t_neg"))
    assert_value(entry, torch.tensor(found.mean, dtype=torch.float64), DOUBLE, "cond_entropy")
    assert found.limit == pytest.approx(math.log(5))


def test_each_query_has_the_entropy_of_eq_8_in_its_batch() -> None:
    query, ids = vectors(13), torch.arange(13)
    found = entropies(query, batch=4, t_neg=1.5, seed=3)
    expected = [looped(query[rows], ids[rows], i, 1.5) for rows in draw_batches(13, 4, 3) for i in range(4)]
    torch.testing.assert_close(found.each, torch.tensor(expected, dtype=torch.float64))
    assert found.mean == pytest.approx(sum(expected) / 12)
    assert found.limit == pytest.approx(math.log(3))


def test_another_copy_of_the_same_image_is_no_negative() -> None:
    query, ids = vectors(8), torch.tensor([0, 0, 1, 2, 3, 4, 5, 6])
    found = entropies(query, ids, batch=8, t_neg=2.0)
    (rows,) = draw_batches(8, 8, 0)
    expected = [looped(query[rows], ids[rows], i, 2.0) for i in range(8)]
    torch.testing.assert_close(found.each, torch.tensor(expected, dtype=torch.float64))
    assert found.limit == pytest.approx((2 * math.log(6) + 6 * math.log(7)) / 8)


def test_it_is_largest_where_all_distances_are_equal() -> None:
    corners = entropies(torch.eye(6), batch=6)
    alike = entropies(torch.ones(6, 3), batch=6)
    scattered = entropies(vectors(6), batch=6)
    assert corners.mean == pytest.approx(corners.limit)
    assert alike.mean == pytest.approx(alike.limit)
    assert scattered.mean < scattered.limit - 0.01


def test_ids_of_another_number_of_queries_are_refused() -> None:
    with pytest.raises(ValueError, match=r"ids: expected \(6,\) for query \(6, 5\), got \(5,\)"):
        entropies(vectors(6), torch.arange(5), batch=3)


def test_a_batch_that_shows_one_image_is_refused() -> None:
    with pytest.raises(ValueError, match="negatives: none is left"):
        entropies(vectors(4), torch.zeros(4, dtype=torch.long), batch=4)


def given(positives: int = 4, negatives: int = 9) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    both = torch.randn(1 + positives + negatives, 6, generator=draw, dtype=torch.float64)
    return both[0], both[1 : 1 + positives], both[1 + positives :]


def distances(query: Tensor, keys: Tensor) -> list[float]:
    return [float((unit(query) - key) @ (unit(query) - key)) for key in unit(keys)]


def test_the_weights_are_those_of_eq_3_and_eq_4() -> None:
    query, positives, negatives = given()
    found = contrast_weights(query, positives, negatives, t_pos=1.5, t_neg=0.9)
    far = [math.exp(1.5 * each) for each in distances(query, positives)]
    near = [math.exp(-0.9 * each) for each in distances(query, negatives)]
    torch.testing.assert_close(found.positives, torch.tensor(far).double() / sum(far), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(found.negatives, torch.tensor(near).double() / sum(near), atol=1e-6, rtol=1e-6)


def test_weighing_the_costs_with_them_gives_the_loss() -> None:
    query, positives, negatives = (unit(each) for each in given())
    found = contrast_weights(query, positives, negatives, t_pos=1.0, t_neg=2.0)
    pulled = sum(w * d for w, d in zip(found.positives.tolist(), distances(query, positives), strict=True))
    pushed = sum(w * d for w, d in zip(found.negatives.tolist(), distances(query, negatives), strict=True))
    loss = cacr(query[None], positives[None], Negatives(negatives), t_pos=1.0, t_neg=2.0)
    assert float(loss) == pytest.approx(pulled - pushed)


def test_the_nearest_negatives_are_the_strongest_and_the_farthest_the_weakest() -> None:
    query, positives, negatives = given()
    far = distances(query, negatives)
    ordered = sorted(range(9), key=lambda row: far[row])
    found = contrast_weights(query, positives, negatives, most=3)
    assert found.strongest.tolist() == ordered[:3]
    assert found.weakest.tolist() == ordered[::-1][:3]


def test_fewer_negatives_than_are_asked_for_are_all_named() -> None:
    found = contrast_weights(*given(negatives=2), most=4)
    assert sorted(found.strongest.tolist()) == sorted(found.weakest.tolist()) == [0, 1]


def test_vectors_of_another_length_are_refused() -> None:
    query, positives, negatives = given()
    with pytest.raises(ValueError, match=r"negatives: expected vectors of length 6, got \(9, 5\)"):
        contrast_weights(query, positives, negatives[:, :5])
    with pytest.raises(ValueError, match="t_neg: expected a positive number, got 0"):
        contrast_weights(query, positives, negatives, t_neg=0)


def two_copies(images: int = 12, dim: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(images, dim, generator=generator, dtype=torch.float64)
    return first, first + 0.5 * torch.randn(images, dim, generator=generator, dtype=torch.float64)


def looped_coupling(first: Tensor, second: Tensor, i: int, temperature: float) -> float:
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
        batches = [(first[rows], second[rows]) for rows in draw_batches(12, size, 0)]
        expected = [looped_coupling(x, y, i, 0.3) for x, y in batches for i in range(size)]
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
