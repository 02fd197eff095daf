from __future__ import annotations

from functools import partial

import pytest
import torch

from manyview.core.negatives import Negatives
from manyview.losses import hard_negative, info_nce
from manyview.memories import Memory
from manyview.methods.contrast import total
from manyview.methods.embeddings import Embeddings
from manyview.methods.topologies import every_copy
from tests.golden import Precision, assert_golden, golden, in_both_precisions, parameter, two_views, unit
from tests.losses import oracle
from tests.losses.layouts import (
    Layout,
    Options,
    assert_follows,
    for_every_layout,
    for_one_positive_or_three,
    for_some_layouts,
    make,
    shared_keys,
    some_missing,
)

OPTIONS: Options = {"temperature": 0.6, "beta": 0.8, "tau_plus": 0.15}


@for_every_layout
@for_one_positive_or_three
def test_it_is_the_equation_with_its_gradients(layout: Layout, k: int) -> None:
    batch = make(layout, k)
    compute = partial(hard_negative, batch.query, batch.positives, batch.negatives, **OPTIONS)
    expected = oracle.hard_negative(batch.query, batch.positives, batch.met(), **OPTIONS)
    assert_follows(compute, oracle.mean(expected), batch.leaves)


@for_some_layouts
@pytest.mark.parametrize(
    ("beta", "tau_plus"), [(0.0, 0.0), (0.0, 0.1), (1.0, 0.0), (2.5, 0.4)], ids=lambda value: str(value)
)
def test_it_is_the_equation_for_any_hardness_and_share(layout: Layout, beta: float, tau_plus: float) -> None:
    batch = make(layout)
    options: Options = {"temperature": 0.6, "beta": beta, "tau_plus": tau_plus}
    compute = partial(hard_negative, batch.query, batch.positives, batch.negatives, **options)
    expected = oracle.hard_negative(batch.query, batch.positives, batch.met(), **options)
    assert_follows(compute, oracle.mean(expected), batch.leaves)


@for_some_layouts
def test_it_gives_one_value_per_query_if_asked_to(layout: Layout) -> None:
    batch = make(layout)
    compute = partial(hard_negative, batch.query, batch.positives, batch.negatives, reduction="none", **OPTIONS)
    assert_follows(compute, oracle.hard_negative(batch.query, batch.positives, batch.met(), **OPTIONS), batch.leaves)


@for_some_layouts
@for_one_positive_or_three
def test_missing_positives_take_no_part(layout: Layout, k: int) -> None:
    batch = make(layout, k)
    present = some_missing(batch)
    compute = partial(hard_negative, batch.query, batch.positives, batch.negatives, present=present, **OPTIONS)
    expected = oracle.hard_negative(batch.query, batch.positives, batch.met(), present=present, **OPTIONS)
    assert_follows(compute, oracle.mean(expected), batch.leaves)


@for_some_layouts
def test_a_learnt_temperature_has_its_gradient(layout: Layout) -> None:
    batch = make(layout)
    temperature = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    options: Options = {"temperature": temperature, "beta": 0.8, "tau_plus": 0.15}
    compute = partial(hard_negative, batch.query, batch.positives, batch.negatives, **options)
    expected = oracle.hard_negative(batch.query, batch.positives, batch.met(), **options)
    assert_follows(compute, oracle.mean(expected), {**batch.leaves, "temperature": temperature})


def test_a_query_at_the_lower_bound_has_no_gradient_by_its_negatives() -> None:
    """Its positives are nearer than any negative by so much that the debiased sum would be below zero."""
    query = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    keys = torch.tensor([[-1.0, 0.0], [-0.8, 0.6]], dtype=torch.float64, requires_grad=True)
    each = hard_negative(query, query[:, None], Negatives(keys), tau_plus=0.1, reduction="none")
    bounded, free = (torch.autograd.grad(loss, keys, retain_graph=True)[0] for loss in each)
    assert torch.equal(bounded, torch.zeros_like(keys))
    assert bool((free != 0).any())
    lowest = 2 * torch.tensor(-1 / 0.5, dtype=torch.float64).exp()
    torch.testing.assert_close(each[0], (1 + lowest / torch.tensor(2.0, dtype=torch.float64).exp()).log())


def test_random_batches_have_queries_on_both_sides_of_the_bound() -> None:
    """So that the comparisons with the equation above cover both."""
    batch = make(shared_keys, 1)
    each = hard_negative(batch.query, batch.positives, batch.negatives, reduction="none", **OPTIONS)
    keys = batch.negatives.sources[0].keys
    bounded = [not torch.autograd.grad(loss, keys, retain_graph=True)[0].any() for loss in each]
    assert 0 < sum(bounded) < len(bounded)


@in_both_precisions
def test_it_is_the_authors_loss(precision: Precision) -> None:
    entry = "hcl/tau0.5_tauplus0.1_beta1.0"
    assert not golden(f"{entry}/clamp_active").any()
    v1, v2 = two_views(precision)
    options: Options = {name: parameter(entry, name) for name in ("beta", "tau_plus")}
    loss = total(
        every_copy(Embeddings([unit(v1), unit(v2)]), Memory()),
        hard_negative,
        temperature=parameter(entry, "tau"),
        **options,
    )
    assert_golden(entry, loss, {"v1_raw": v1, "v2_raw": v2}, precision)


@in_both_precisions
def test_without_hardness_and_bias_it_is_the_authors_easy_loss(precision: Precision) -> None:
    entry = "hcl/tau0.5_easy"
    v1, v2 = two_views(precision)
    (triple,) = every_copy(Embeddings([unit(v1), unit(v2)]), Memory())
    loss = hard_negative(*triple[:3], temperature=parameter(entry, "tau"), beta=0.0, tau_plus=0.0)
    assert_golden(entry, loss, {"v1_raw": v1, "v2_raw": v2}, precision)
    torch.testing.assert_close(loss, info_nce(*triple[:3], temperature=0.5), rtol=precision.loss, atol=0)
