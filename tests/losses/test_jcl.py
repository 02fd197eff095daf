from __future__ import annotations

from functools import partial

import pytest
import torch

from manyview.core.negatives import Negatives
from manyview.losses import info_nce, jcl
from manyview.losses.streaming import Stream
from tests.golden import DOUBLE, Precision, assert_golden, assert_value, golden, in_both_precisions, parameter, unit
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

OPTIONS: Options = {"temperature": 0.4, "strength": 1.7}


@for_every_layout
@for_one_positive_or_three
def test_it_is_the_equation_with_its_gradients(layout: Layout, k: int) -> None:
    batch = make(layout, k)
    compute = partial(jcl, batch.query, batch.positives, batch.negatives, **OPTIONS)
    expected = oracle.jcl(batch.query, batch.positives, batch.met(), **OPTIONS)
    assert_follows(compute, oracle.mean(expected), batch.leaves)


@for_some_layouts
def test_it_gives_one_value_per_query_if_asked_to(layout: Layout) -> None:
    batch = make(layout)
    compute = partial(jcl, batch.query, batch.positives, batch.negatives, reduction="none", **OPTIONS)
    assert_follows(compute, oracle.jcl(batch.query, batch.positives, batch.met(), **OPTIONS), batch.leaves)


@for_some_layouts
@for_one_positive_or_three
def test_missing_positives_take_no_part(layout: Layout, k: int) -> None:
    batch = make(layout, k)
    present = some_missing(batch)
    compute = partial(jcl, batch.query, batch.positives, batch.negatives, present=present, **OPTIONS)
    expected = oracle.jcl(batch.query, batch.positives, batch.met(), present=present, **OPTIONS)
    assert_follows(compute, oracle.mean(expected), batch.leaves)


@for_some_layouts
def test_a_learnt_temperature_has_its_gradient(layout: Layout) -> None:
    batch = make(layout, 3)
    temperature = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    options: Options = {"temperature": temperature, "strength": 1.7}
    compute = partial(jcl, batch.query, batch.positives, batch.negatives, **options)
    expected = oracle.jcl(batch.query, batch.positives, batch.met(), **options)
    assert_follows(compute, oracle.mean(expected), {**batch.leaves, "temperature": temperature})


@in_both_precisions
@pytest.mark.parametrize("entry", ["jcl/lambda4.0_tau0.2_M5", "stability/jcl_lambda4_tau0.02"])
def test_it_is_the_authors_loss(entry: str, precision: Precision) -> None:
    q, keys = precision.leaf("q_raw"), unit(precision.given("keys_raw")).transpose(0, 1)
    queue = Negatives(precision.given("queue"))
    options: Options = {"temperature": parameter(entry, "tau"), "strength": parameter(entry, "lambda")}
    assert_golden(entry, jcl(unit(q), keys, queue, **options), {"q_raw": q}, precision)


@in_both_precisions
def test_it_is_the_authors_loss_query_by_query(precision: Precision) -> None:
    q, keys = unit(precision.given("q_raw")), unit(precision.given("keys_raw")).transpose(0, 1)
    each = jcl(q, keys, Negatives(precision.given("queue")), temperature=0.2, strength=4.0, reduction="none")
    assert_value("jcl/lambda4.0_tau0.2_M5", each, precision, "per_sample")


def test_the_covariance_that_it_never_forms_is_that_of_the_normalised_keys() -> None:
    q, keys = unit(DOUBLE.given("q_raw")), unit(DOUBLE.given("keys_raw")).transpose(0, 1)
    queue = Negatives(DOUBLE.given("queue"))
    mean = (q * golden("jcl/stats/mu")).sum(-1) / 0.2
    spread = torch.einsum("ia,iab,ib->i", q, golden("jcl/stats/cov"), q)
    bound = torch.logaddexp(mean + 4 / (2 * 0.2**2) * spread, Stream(q, queue).softmax(5.0).log_sum_exp) - mean
    each = jcl(q, keys, queue, temperature=0.2, strength=4.0, reduction="none")
    torch.testing.assert_close(each, bound, rtol=1e-9, atol=0)


def test_without_strength_it_is_info_nce_against_the_mean() -> None:
    batch = make(lambda query, g: Negatives(query.detach()[:4]), 3)
    actual = jcl(batch.query, batch.positives, batch.negatives, temperature=0.4, strength=0.0)
    mean = batch.positives.mean(1, keepdim=True)
    torch.testing.assert_close(actual, info_nce(batch.query, mean, batch.negatives, temperature=0.4))
    vanilla = info_nce(batch.query, batch.positives, batch.negatives, temperature=0.4)
    assert actual.item() != pytest.approx(vanilla.item(), rel=1e-3)
