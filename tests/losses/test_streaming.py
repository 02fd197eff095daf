from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from manyview.core.negatives import Negatives
from manyview.losses.streaming import SoftmaxResult, Stream
from tests.losses import oracle
from tests.losses.layouts import (
    Batch,
    Layout,
    assert_follows,
    for_every_layout,
    for_some_layouts,
    gradients,
    joined,
    long_queue,
    make,
    many_tiles,
    normal,
    queue,
    shared_keys,
)

Value = tuple[float, float] | None

# alpha, beta, value
FORMS: dict[str, tuple[float, float, Value]] = {
    "similarity": (2.5, 0.0, None),
    "similarity, its mean": (2.5, 0.0, (1.0, 0.0)),
    "distance": (2.4, -1.2, None),
    "distance, its mean": (2.4, -1.2, (-2.0, 1.0)),
    "farness, mean distance": (-1.4, 0.7, (-2.0, 1.0)),
    "distance, mean similarity": (2.4, -1.2, (-1.0, 0.0)),
    "nothing, mean distance": (0.0, 0.0, (-2.0, 1.0)),
    "any numbers": (1.1, 0.4, (0.3, -0.8)),
}
for_every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())


def both(sums: SoftmaxResult) -> Tensor:
    return torch.stack([sums.log_sum_exp, sums.mean])


def expected(batch: Batch, form: tuple[float, float, Value], detach: bool = False) -> Tensor:
    """(2, N)"""
    alpha, beta, value = form
    a, b = value or (0.0, 0.0)
    sums, means = [], []
    for q, keys in zip(batch.query, batch.met(), strict=True):
        norms = [oracle.dot(q, q) + oracle.dot(n, n) for n, _ in keys]
        dots = [oracle.dot(q, n) for n, _ in keys]
        mass = [w * (alpha * g + beta * s).exp() for g, s, (_, w) in zip(dots, norms, keys, strict=True)]
        sums.append(oracle.total(mass).log())
        mass = [m.detach() for m in mass] if detach else mass
        means.append(
            oracle.total([m * (a * g + b * s) for m, g, s in zip(mass, dots, norms, strict=True)]) / oracle.total(mass)
        )
    return torch.stack([torch.stack(sums), torch.stack(means)])


@for_every_layout
@for_every_form
def test_it_sums_over_the_negatives(layout: Layout, form: tuple[float, float, Value]) -> None:
    batch = make(layout)
    alpha, beta, value = form

    def compute() -> Tensor:
        return both(Stream(batch.query, batch.negatives).softmax(alpha, beta, value=value))

    assert_follows(compute, expected(batch, form), batch.leaves)


@for_some_layouts
def test_a_detached_mean_has_no_gradient_through_its_weights(layout: Layout) -> None:
    batch = make(layout)

    def compute() -> Tensor:
        return both(Stream(batch.query, batch.negatives).softmax(2.4, -1.2, value=(-2.0, 1.0), detach=True))

    assert_follows(compute, expected(batch, (2.4, -1.2, (-2.0, 1.0)), detach=True), batch.leaves)


@for_every_layout
def test_it_sums_softplus_over_the_negatives(layout: Layout) -> None:
    batch = make(layout)
    shift = torch.linspace(-4, 16, len(batch.query), dtype=torch.float64)
    wanted = [
        oracle.total([w * (1 + (1.7 * oracle.dot(q, n) + c).exp()).log() for n, w in keys])
        for q, keys, c in zip(batch.query, batch.met(), shift, strict=True)
    ]
    assert_follows(lambda: Stream(batch.query, batch.negatives).softplus(1.7, shift), wanted, batch.leaves)


@for_every_layout
def test_it_counts_the_negatives_by_weight(layout: Layout) -> None:
    batch = make(layout)
    wanted = torch.tensor([sum(w for _, w in keys) for keys in batch.met()], dtype=torch.float64)
    count = Stream(batch.query, batch.negatives).count
    assert count.dtype == torch.float64
    torch.testing.assert_close(count, wanted, rtol=1e-15, atol=0)


@for_some_layouts
def test_a_learnt_scale_has_its_gradient(layout: Layout) -> None:
    batch = make(layout)
    alpha = torch.tensor(2.5, dtype=torch.float64, requires_grad=True)
    leaves = {**batch.leaves, "alpha": alpha}
    wanted = [
        oracle.total([w * (alpha * oracle.dot(q, n)).exp() for n, w in keys]).log()
        for q, keys in zip(batch.query, batch.met(), strict=True)
    ]
    assert_follows(lambda: Stream(batch.query, batch.negatives).softmax(alpha).log_sum_exp, wanted, leaves)


def test_a_long_queue_takes_several_tiles() -> None:
    batch = make(long_queue)
    form = FORMS["distance, its mean"]

    def compute() -> Tensor:
        return both(Stream(batch.query, batch.negatives).softmax(form[0], form[1], value=form[2]))

    assert_follows(compute, expected(batch, form), batch.leaves)


@for_every_form
def test_the_gradient_is_the_slope_where_keys_learn(form: tuple[float, float, Value]) -> None:
    g = torch.Generator().manual_seed(5)
    alpha, beta, value = form

    def compute(query: Tensor, keys: Tensor) -> Tensor:
        ids = torch.tensor([0, 1, 1, 0])
        negatives = Negatives(query, ids, ids) + Negatives(keys, weight=0.4)
        return both(Stream(query, negatives).softmax(alpha, beta, value=value))

    with many_tiles():
        assert gradcheck(compute, (normal(g, 4, 2, grad=True), normal(g, 3, 2, grad=True)))


@for_every_form
def test_the_gradient_is_the_slope_where_only_queries_learn(form: tuple[float, float, Value]) -> None:
    g = torch.Generator().manual_seed(5)
    alpha, beta, value = form
    queue = Negatives(normal(g, 5, 2)) + Negatives(normal(g, 3, 4, 2))
    assert gradcheck(
        lambda query: both(Stream(query, queue).softmax(alpha, beta, value=value)), (normal(g, 3, 2, grad=True),)
    )


def test_the_gradient_of_softplus_is_the_slope() -> None:
    g = torch.Generator().manual_seed(5)
    shift = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)
    query, keys = normal(g, 3, 2, grad=True), normal(g, 4, 2, grad=True)
    assert gradcheck(lambda query, keys: Stream(query, Negatives(keys)).softplus(1.7, shift), (query, keys))
    frozen = Negatives(keys.detach())
    assert gradcheck(lambda query: Stream(query, frozen).softplus(1.7, shift), (query,))
    assert gradcheck(lambda query: Stream(query, Negatives(query, split=(2, 2))).softplus(1.7, shift), (query,))


def test_a_source_without_keys_adds_nothing() -> None:
    batch = make(queue)
    empty = Negatives(torch.zeros(0, 3, dtype=torch.float64)) + Negatives(torch.zeros(9, 0, 3, dtype=torch.float64))
    alone = Stream(batch.query, batch.negatives).softmax(2.4, -1.2, value=(-2.0, 1.0))
    joined = Stream(batch.query, batch.negatives + empty).softmax(2.4, -1.2, value=(-2.0, 1.0))
    torch.testing.assert_close(both(joined), both(alone))
    wanted, found = (gradients(both(sums).sum(), batch.leaves) for sums in (alone, joined))
    torch.testing.assert_close(found["query"], wanted["query"])


def test_a_query_may_find_nothing_in_one_source_if_it_finds_something_in_another() -> None:
    batch = make(joined)
    own = batch.negatives.sources[1]
    assert own.query_ids is not None
    assert bool((own.query_ids == 4).any())  # whose whole second source shows its own image
    sums = Stream(batch.query, batch.negatives).softmax(2.4, -1.2, value=(-2.0, 1.0))
    assert bool(both(sums).isfinite().all())
    assert all(bool(gradient.isfinite().all()) for gradient in gradients(both(sums).sum(), batch.leaves).values())


def test_a_query_without_any_negative_is_refused() -> None:
    query = torch.ones(3, 2)
    with pytest.raises(ValueError, match=r"negatives: none is left for query 1 of query \(3, 2\)"):
        Stream(query, Negatives(query, torch.tensor([7, 7]).repeat(2)[:3], torch.tensor([0, 7, 0])))


def test_a_learnt_scale_goes_with_plain_similarities_only() -> None:
    batch = make(queue)
    stream = Stream(batch.query, batch.negatives)
    for options in ({"beta": 1.0}, {"value": (1.0, 0.0)}):
        with pytest.raises(ValueError, match="alpha: a tensor"):
            stream.softmax(torch.tensor(2.0), **options)


def test_keys_without_gradient_get_none() -> None:
    batch = make(queue)
    torch.autograd.backward(Stream(batch.query, batch.negatives).softmax(2.0).log_sum_exp.sum())
    assert batch.query.grad is not None
    assert batch.negatives.sources[0].keys.grad is None


def test_keys_may_learn_from_a_query_that_does_not() -> None:
    batch = make(shared_keys)
    keys = batch.negatives.sources[0].keys
    whole = gradients(Stream(batch.query, batch.negatives).softmax(2.0).log_sum_exp.sum(), {"keys": keys})
    part = gradients(Stream(batch.query.detach(), batch.negatives).softmax(2.0).log_sum_exp.sum(), {"keys": keys})
    torch.testing.assert_close(part["keys"], whole["keys"], rtol=0, atol=0)


def test_memory_may_lie_in_any_order() -> None:
    g = torch.Generator().manual_seed(6)
    query, keys = normal(g, 3, 9).T, normal(g, 3, 14)[:, ::2].T
    found = Stream(query, Negatives(keys)).softmax(2.4, -1.2, value=(-2.0, 1.0))
    wanted = Stream(query.contiguous(), Negatives(keys.contiguous())).softmax(2.4, -1.2, value=(-2.0, 1.0))
    torch.testing.assert_close(both(found), both(wanted))
