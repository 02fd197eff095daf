from __future__ import annotations

from functools import partial

import pytest
import torch

from manyview.core.negatives import Negatives
from manyview.losses import dcl
from manyview.losses.streaming import Stream
from manyview.memories import Memory
from manyview.methods.contrast import total
from manyview.methods.embeddings import Embeddings
from manyview.methods.topologies import every_copy
from tests.golden import (
    DOUBLE,
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
    some_missing,
)


@for_every_layout
@for_one_positive_or_three
def test_it_is_the_equation_with_its_gradients(layout: Layout, k: int) -> None:
    batch = make(layout, k)
    compute = partial(dcl, batch.query, batch.positives, batch.negatives, temperature=0.3)
    expected = oracle.dcl(batch.query, batch.positives, batch.met(), temperature=0.3)
    assert_follows(compute, oracle.mean(expected), batch.leaves)


@for_some_layouts
@pytest.mark.parametrize("detach", [False, True], ids=["weights with gradient", "weights without"])
def test_with_sigma_it_weighs_positives_against_the_whole_batch(layout: Layout, detach: bool) -> None:
    batch = make(layout, 3)
    options: Options = {"temperature": 0.3, "sigma": 0.7, "detach_weights": detach}
    compute = partial(dcl, batch.query, batch.positives, batch.negatives, **options)
    expected = oracle.dcl(batch.query, batch.positives, batch.met(), **options)
    assert_follows(compute, oracle.mean(expected), batch.leaves)


@for_some_layouts
def test_it_gives_one_value_per_query_if_asked_to(layout: Layout) -> None:
    batch = make(layout)
    compute = partial(dcl, batch.query, batch.positives, batch.negatives, temperature=0.3, reduction="none")
    assert_follows(compute, oracle.dcl(batch.query, batch.positives, batch.met(), temperature=0.3), batch.leaves)


@for_some_layouts
@for_one_positive_or_three
@pytest.mark.parametrize("sigma", [None, 0.7])
def test_missing_positives_take_no_part(layout: Layout, k: int, sigma: float | None) -> None:
    batch = make(layout, k)
    options: Options = {"temperature": 0.3, "sigma": sigma, "present": some_missing(batch)}
    compute = partial(dcl, batch.query, batch.positives, batch.negatives, **options)
    expected = oracle.dcl(batch.query, batch.positives, batch.met(), **options)
    assert_follows(compute, oracle.mean(expected), batch.leaves)


@for_some_layouts
@pytest.mark.parametrize("sigma", [None, 0.7])
def test_a_learnt_temperature_has_its_gradient(layout: Layout, sigma: float | None) -> None:
    batch = make(layout)
    temperature = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    compute = partial(dcl, batch.query, batch.positives, batch.negatives, temperature=temperature, sigma=sigma)
    expected = oracle.dcl(batch.query, batch.positives, batch.met(), temperature=temperature, sigma=sigma)
    assert_follows(compute, oracle.mean(expected), {**batch.leaves, "temperature": temperature})


@in_both_precisions
def test_it_is_published_dcl_in_a_batch_of_two_views(precision: Precision) -> None:
    entry = "dcl/tau0.1"
    v1, v2 = two_views(precision)
    (triple,) = every_copy(Embeddings([unit(v1), unit(v2)]), Memory())
    each = dcl(*triple[:3], temperature=parameter(entry, "tau"), reduction="none")
    assert_value(entry, each, precision, "per_anchor")
    assert_value(entry, each[:6].mean(), precision, "loss_12")
    assert_value(entry, each[6:].mean(), precision, "loss_21")
    loss = dcl(*triple[:3], temperature=parameter(entry, "tau"))
    assert_value(entry, 2 * loss, precision, "loss_sum_of_directions")
    assert_golden(entry, loss, {"v1_raw": v1, "v2_raw": v2}, precision)


def test_it_takes_one_logarithm_over_both_views() -> None:
    v1, v2 = two_views(DOUBLE)
    loss = total(every_copy(Embeddings([unit(v1), unit(v2)]), Memory()), dcl, temperature=0.1)
    assert abs(loss.item() - float(golden("dcl/tau0.1/WRONG_lightly_before_pr1827"))) > 1


def test_the_coupling_that_it_removes_is_the_published_one() -> None:
    v1, v2 = two_views(DOUBLE)
    (triple,) = every_copy(Embeddings([unit(v1), unit(v2)]), Memory())
    negatives = Stream(triple.query, triple.negatives).softmax(10.0).log_sum_exp
    positive = (triple.query * triple.positives[:, 0]).sum(-1) / 0.1
    assert_value("dcl/tau0.1", (negatives - positive).sigmoid(), DOUBLE, "npc_multiplier")


@in_both_precisions
@pytest.mark.parametrize("way", ["grad_through_weight", "weight_detached"])
def test_with_sigma_it_is_published_dclw(way: str, precision: Precision) -> None:
    entry = f"dclw/tau0.1_sigma0.5/{way}"
    v1, v2 = two_views(precision)
    options: Options = {"temperature": parameter(entry, "tau"), "sigma": parameter(entry, "sigma")}
    loss = total(
        every_copy(Embeddings([unit(v1), unit(v2)]), Memory()), dcl, detach_weights=way == "weight_detached", **options
    )
    assert_golden(entry, loss, {"v1_raw": v1, "v2_raw": v2}, precision)


def test_the_weights_of_dclw_are_the_published_ones() -> None:
    """Read off the derivative by each pair's own temperature-free score, at a constant denominator."""
    v1, v2 = (unit(v).detach() for v in two_views(DOUBLE))
    query = v1.clone().requires_grad_()
    queue = Negatives(torch.zeros(3, 8, dtype=torch.float64))
    loss = dcl(query, v2[:, None], queue, temperature=1.0, sigma=0.5, detach_weights=True)
    (gradient,) = torch.autograd.grad(loss, query)
    weights = -6 * (gradient * v2).sum(-1)
    torch.testing.assert_close(weights, golden("dclw/tau0.1_sigma0.5/grad_through_weight/weights"), rtol=1e-9, atol=0)


@in_both_precisions
def test_it_is_moco_without_the_positive_in_the_denominator(precision: Precision) -> None:
    entry = "dcl_queue/tau0.2"
    q, keys = precision.leaf("q_raw"), unit(precision.given("keys_raw"))
    loss = dcl(unit(q), keys[0][:, None], Negatives(precision.given("queue")), temperature=parameter(entry, "tau"))
    assert_golden(entry, loss, {"q_raw": q}, precision)


@in_both_precisions
def test_it_stays_right_where_a_plain_exponential_overflows(precision: Precision) -> None:
    entry = "stability/dcl_tau0.01"
    v1, v2 = two_views(precision)
    loss = total(every_copy(Embeddings([unit(v1), unit(v2)]), Memory()), dcl, temperature=parameter(entry, "tau"))
    assert_golden(entry, loss, {"v1_raw": v1, "v2_raw": v2}, precision)
