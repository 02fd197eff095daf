from __future__ import annotations

from functools import partial

import pytest
import torch

from manyview.core.negatives import Negatives
from manyview.losses import align_uniform, alignment, uniformity
from manyview.memories import Memory, Queue, QueueMemory
from manyview.methods.contrast import total
from manyview.methods.embeddings import Embeddings
from manyview.methods.topologies import each_copy, each_copy_against_keys
from tests.golden import (
    Precision,
    assert_golden,
    assert_value,
    golden,
    in_both_precisions,
    parameter,
    two_views,
    unit,
)
from tests.losses import oracle
from tests.losses.layouts import (
    Layout,
    Options,
    assert_follows,
    for_every_layout,
    for_one_positive_or_three,
    for_some_layouts,
    make,
    normal,
    some_missing,
)

OPTIONS: Options = {"alpha": 1.5, "t": 1.2, "align_weight": 0.8, "uniform_weight": 1.9}


@for_every_layout
@for_one_positive_or_three
def test_it_is_the_equation_with_its_gradients(layout: Layout, k: int) -> None:
    batch = make(layout, k)
    compute = partial(align_uniform, batch.query, batch.positives, batch.negatives, **OPTIONS)
    expected = oracle.align_uniform(batch.query, batch.positives, batch.met(), **OPTIONS)
    assert_follows(compute, expected, batch.leaves)


@for_some_layouts
@for_one_positive_or_three
def test_missing_positives_take_no_part(layout: Layout, k: int) -> None:
    batch = make(layout, k)
    options: Options = OPTIONS | {"present": some_missing(batch)}
    compute = partial(align_uniform, batch.query, batch.positives, batch.negatives, **options)
    expected = oracle.align_uniform(batch.query, batch.positives, batch.met(), **options)
    assert_follows(compute, expected, batch.leaves)


@pytest.mark.parametrize("t", [0.5, 2, 20])
def test_uniformity_is_the_logarithm_of_the_mean_over_pairs(t: float) -> None:
    x = normal(torch.Generator().manual_seed(1), 9, 3, grad=True)
    pairs = [(-t * oracle.distance(x[i], x[j])).exp() for i in range(9) for j in range(i + 1, 9)]
    assert_follows(partial(uniformity, x, t=t), oracle.mean(pairs).log(), {"x": x})


@pytest.mark.parametrize("alpha", [1, 2, 3.5])
def test_alignment_is_the_mean_power_of_the_distance(alpha: float) -> None:
    g = torch.Generator().manual_seed(1)
    x, y = normal(g, 9, 3, grad=True), normal(g, 9, 3, grad=True)
    expected = oracle.mean([oracle.distance(a, b).sqrt() ** alpha for a, b in zip(x, y, strict=True)])
    assert_follows(partial(alignment, x, y, alpha=alpha), expected, {"x": x, "y": y})


@pytest.mark.parametrize("alpha", [1, 2])
def test_coinciding_views_are_aligned_and_have_no_gradient(alpha: float) -> None:
    x = torch.eye(4, requires_grad=True)
    loss = alignment(x, torch.eye(4), alpha=alpha)
    (gradient,) = torch.autograd.grad(loss, x)
    assert loss.item() == 0
    assert torch.equal(gradient, torch.zeros(4, 4))


def test_a_collapsed_batch_has_uniformity_zero_and_a_spread_one_less() -> None:
    assert float(uniformity(torch.ones(5, 2))) == pytest.approx(0, abs=1e-5)
    simplex = torch.eye(40) - 1 / 40  # as far from one another as forty points can be: 2 * 40/39 squared
    assert float(uniformity(unit(simplex), t=2)) == pytest.approx(-4 * 40 / 39, rel=1e-5)


@in_both_precisions
@pytest.mark.parametrize("entry", ["align/alpha2", "align/alpha1"])
def test_alignment_is_the_authors(entry: str, precision: Precision) -> None:
    v1, v2 = two_views(precision)
    loss = alignment(unit(v1), unit(v2), alpha=parameter(entry, "alpha"))
    assert_golden(entry, loss, {"v1_raw": v1, "v2_raw": v2}, precision)


@in_both_precisions
def test_uniformity_is_the_authors(precision: Precision) -> None:
    v1, _ = two_views(precision)
    loss = uniformity(unit(v1), t=parameter("uniform/t2", "t"))
    assert_golden("uniform/t2", loss, {"v1_raw": v1}, precision)


@in_both_precisions
def test_it_is_the_authors_loss_in_a_batch(precision: Precision) -> None:
    entry = "align_uniform/stl10_default"
    v1, v2 = two_views(precision)
    options: Options = {"alpha": parameter(entry, "alpha"), "t": parameter(entry, "t")}
    weights: Options = {"align_weight": parameter(entry, "align_w"), "uniform_weight": parameter(entry, "unif_w")}
    loss = total(each_copy(Embeddings([unit(v1), unit(v2)]), Memory()), align_uniform, **options, **weights)
    assert_golden(entry, loss, {"v1_raw": v1, "v2_raw": v2}, precision)
    assert_value(
        entry, total(each_copy(Embeddings([unit(v1), unit(v2)]), Memory()), align_uniform), precision
    )  # the defaults


@in_both_precisions
def test_it_is_the_authors_loss_with_a_queue(precision: Precision) -> None:
    entry = "align_uniform_queue/alpha2_t3_intra"
    q = precision.leaf("q_raw")
    query, key = unit(q), unit(precision.given("keys_raw")[0])
    ids = torch.arange(len(query))
    negatives = Negatives(precision.given("queue")) + Negatives(query, ids, ids, weight=0.5)
    options: Options = {"alpha": parameter(entry, "alpha"), "t": parameter(entry, "t")}
    weights: Options = {"align_weight": parameter(entry, "align_w"), "uniform_weight": parameter(entry, "unif_w")}
    loss = align_uniform(query, key[:, None], negatives, **options, **weights)
    assert_golden(entry, loss, {"q_raw": q}, precision)
    pushed = align_uniform(query, key[:, None], negatives, align_weight=0, **options)
    assert_value(entry, pushed, precision, "loss_unif")
    assert_value(entry, alignment(query, key), precision, "loss_align")


def test_the_topology_with_half_weight_gives_the_authors_pairs() -> None:
    """Every pair of the batch once, beside every pair of query and queue once."""
    g = torch.Generator().manual_seed(2)
    views, queue = [normal(g, 4, 3), normal(g, 4, 3)], normal(g, 5, 3)
    held = Queue(5, 3).double()
    held.enqueue(queue)
    first, _ = each_copy_against_keys(Embeddings(views, keys=views), QueueMemory(held, within_batch=0.5))
    kernels = [(-3 * oracle.distance(views[0][i], n)).exp() for i in range(4) for n in queue]
    kernels += [(-3 * oracle.distance(views[0][i], views[0][j])).exp() for i in range(4) for j in range(i + 1, 4)]
    found = align_uniform(*first[:3], t=3, align_weight=0)
    torch.testing.assert_close(found, oracle.mean(kernels).log(), rtol=1e-9, atol=0)
    assert golden("align_uniform_queue/alpha2_t3_intra/param/intra")
