from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import Tensor

from manyview.core.negatives import Negatives
from manyview.losses import nce, nce_partition
from tests.golden import Precision, assert_golden, assert_value, golden, in_both_precisions, parameter, two_views, unit
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

OPTIONS: Options = {"population": 40, "partition": 55.0, "temperature": 0.4}


@for_every_layout
@for_one_positive_or_three
def test_it_is_the_equation_with_its_gradients(layout: Layout, k: int) -> None:
    batch = make(layout, k)
    compute = partial(nce, batch.query, batch.positives, batch.negatives, **OPTIONS)
    expected = oracle.nce(batch.query, batch.positives, batch.met(), **OPTIONS)
    assert_follows(compute, oracle.mean(expected), batch.leaves)


@for_some_layouts
def test_noise_may_be_averaged_as_printed(layout: Layout) -> None:
    batch = make(layout)
    compute = partial(nce, batch.query, batch.positives, batch.negatives, noise="mean", **OPTIONS)
    expected = oracle.nce(batch.query, batch.positives, batch.met(), noise="mean", **OPTIONS)
    assert_follows(compute, oracle.mean(expected), batch.leaves)


@for_some_layouts
def test_it_gives_one_value_per_query_if_asked_to(layout: Layout) -> None:
    batch = make(layout)
    compute = partial(nce, batch.query, batch.positives, batch.negatives, reduction="none", **OPTIONS)
    assert_follows(compute, oracle.nce(batch.query, batch.positives, batch.met(), **OPTIONS), batch.leaves)


@for_some_layouts
@for_one_positive_or_three
def test_missing_positives_take_no_part(layout: Layout, k: int) -> None:
    batch = make(layout, k)
    present = some_missing(batch)
    compute = partial(nce, batch.query, batch.positives, batch.negatives, present=present, **OPTIONS)
    expected = oracle.nce(batch.query, batch.positives, batch.met(), present=present, **OPTIONS)
    assert_follows(compute, oracle.mean(expected), batch.leaves)


@for_some_layouts
def test_a_learnt_temperature_has_its_gradient(layout: Layout) -> None:
    batch = make(layout)
    temperature = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    options: Options = OPTIONS | {"temperature": temperature}
    compute = partial(nce, batch.query, batch.positives, batch.negatives, **options)
    expected = oracle.nce(batch.query, batch.positives, batch.met(), **options)
    assert_follows(compute, oracle.mean(expected), {**batch.leaves, "temperature": temperature})


@for_every_layout
def test_the_partition_is_the_population_times_the_mean_of_all_scores(layout: Layout) -> None:
    batch = make(layout, 3)
    options: Options = {"population": 40, "temperature": 0.4}
    found = nce_partition(batch.query, batch.positives, batch.negatives, **options)
    expected = oracle.nce_partition(batch.query, batch.positives, batch.met(), **options)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-9, atol=0)
    assert not found.requires_grad


def test_the_partition_leaves_out_missing_positives() -> None:
    batch = make(lambda query, g: Negatives(query.detach()[:4]), 3)
    options: Options = {"population": 40, "temperature": 0.4, "present": some_missing(batch)}
    found = nce_partition(batch.query, batch.positives, batch.negatives, **options)
    expected = oracle.nce_partition(batch.query, batch.positives, batch.met(), **options)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-9, atol=0)


def test_the_partition_is_a_number_that_float32_could_not_hold() -> None:
    query = torch.tensor([[1.0, 0.0]])
    found = nce_partition(query, query[:, None], Negatives(query.clone()), population=10, temperature=0.005)
    assert found.dtype == torch.float64
    assert float(found.log()) == pytest.approx(200 + torch.tensor(10.0).log().item(), rel=1e-6)
    loss = nce(query, query[:, None], Negatives(query.clone()), population=10, partition=found, temperature=0.005)
    assert float(loss) == pytest.approx(2 * torch.tensor(2.0).log().item(), rel=1e-4)


def banks(precision: Precision) -> tuple[list[Tensor], list[tuple[Tensor, Tensor, Negatives]]]:
    """The raw views, and each view with its positives and negatives in the other view's bank."""
    views, drawn = list(two_views(precision)), precision.given("idx")
    met = []
    for view, name in zip(views, ("memory_2", "memory_1"), strict=True):
        bank = precision.given(name)
        met.append((unit(view), bank[drawn[:, :1]], Negatives(bank, index=drawn[:, 1:])))
    return views, met


BANK = ["cmc_nce/tau0.07_m10_firstbatch_Z", "cmc_nce/tau0.07_m10_givenZ"]


@in_both_precisions
@pytest.mark.parametrize("entry", BANK)
def test_it_is_the_authors_loss_up_to_their_1e_7(entry: str, precision: Precision) -> None:
    near = precision._replace(absolute=5e-6)  # 22 terms, each off by at most 1e-7 in a denominator of 1/2 or more
    views, met = banks(precision)
    tau, population = parameter(entry, "tau"), int(parameter(entry, "n_data"))
    losses = [
        nce(*triple, population=population, partition=golden(f"{entry}/Z_{number}"), temperature=tau)
        for number, triple in enumerate(met, start=1)
    ]
    assert_value(entry, losses[0], near, "loss_1")
    assert_value(entry, losses[1], near, "loss_2")
    assert_golden(entry, losses[0] + losses[1], {"v1_raw": views[0], "v2_raw": views[1]}, near)


@in_both_precisions
@pytest.mark.parametrize("entry", BANK)
def test_with_their_1e_7_worked_into_the_partition_it_is_the_authors_loss(entry: str, precision: Precision) -> None:
    """p / (p + c + e) is p / (p + c'), and c / (p + c + e) is c' / (p + c') times the constant c / c'."""
    views, met = banks(precision)
    tau, population, m = parameter(entry, "tau"), int(parameter(entry, "n_data")), int(parameter(entry, "m"))
    more = 1 + parameter(entry, "eps") * population / m  # c' / c
    losses = [
        nce(*triple, population=population, partition=golden(f"{entry}/Z_{number}") * more, temperature=tau)
        + m * math.log(more)
        for number, triple in enumerate(met, start=1)
    ]
    assert_golden(entry, losses[0] + losses[1], {"v1_raw": views[0], "v2_raw": views[1]}, precision)


@in_both_precisions
def test_the_partition_of_the_first_batch_is_the_authors(precision: Precision) -> None:
    entry = "cmc_nce/tau0.07_m10_firstbatch_Z"
    _, met = banks(precision)
    for number, triple in enumerate(met, start=1):
        found = nce_partition(*triple, population=20, temperature=parameter(entry, "tau"))
        assert_value(entry, found, precision, f"Z_{number}")


@in_both_precisions
@pytest.mark.parametrize("noise", ["sum", "mean"])
def test_it_is_eq_11_with_given_negatives(noise: str, precision: Precision) -> None:
    entry = f"cmc_nce_eq11/tau0.07_m10_givenZ_noise{noise}"
    v1, v2 = two_views(precision)
    given = precision.leaf("negs_raw")
    loss = nce(
        unit(v1),
        unit(v2)[:, None],
        Negatives(unit(given)),
        population=int(parameter(entry, "n_data")),
        partition=parameter(entry, "Z_1"),
        temperature=parameter(entry, "tau"),
        noise=noise,  # type: ignore[arg-type]
    )
    assert_golden(entry, loss, {"v1_raw": v1, "v2_raw": v2, "negs_raw": given}, precision)
