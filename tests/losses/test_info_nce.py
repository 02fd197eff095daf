from __future__ import annotations

from functools import partial

import pytest
import torch

from manyview.core.negatives import Negatives
from manyview.losses import info_nce
from manyview.memories import Memory
from manyview.methods.contrast import total
from manyview.methods.embeddings import Embeddings
from manyview.methods.topologies import core_view, each_key_against_other_queries, every_copy, full_graph, view_pairs
from tests.golden import (
    DOUBLE,
    Precision,
    assert_golden,
    assert_gradients,
    assert_value,
    entries,
    golden,
    in_both_precisions,
    parameter,
    two_views,
    unit,
)
from tests.losses import oracle
from tests.losses.layouts import (
    Layout,
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
    compute = partial(info_nce, batch.query, batch.positives, batch.negatives, temperature=0.3)
    expected = oracle.info_nce(batch.query, batch.positives, batch.met(), temperature=0.3)
    assert_follows(compute, oracle.mean(expected), batch.leaves)


@for_some_layouts
def test_it_gives_one_value_per_query_if_asked_to(layout: Layout) -> None:
    batch = make(layout)
    compute = partial(info_nce, batch.query, batch.positives, batch.negatives, temperature=0.3, reduction="none")
    assert_follows(compute, oracle.info_nce(batch.query, batch.positives, batch.met(), temperature=0.3), batch.leaves)


@for_some_layouts
@for_one_positive_or_three
def test_missing_positives_take_no_part(layout: Layout, k: int) -> None:
    batch = make(layout, k)
    present = some_missing(batch)
    compute = partial(info_nce, batch.query, batch.positives, batch.negatives, temperature=0.3, present=present)
    expected = oracle.info_nce(batch.query, batch.positives, batch.met(), temperature=0.3, present=present)
    assert_follows(compute, oracle.mean(expected), batch.leaves)


@for_every_layout
def test_a_learnt_temperature_has_its_gradient(layout: Layout) -> None:
    batch = make(layout)
    temperature = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    compute = partial(info_nce, batch.query, batch.positives, batch.negatives, temperature=temperature)
    expected = oracle.info_nce(batch.query, batch.positives, batch.met(), temperature=temperature)
    assert_follows(compute, oracle.mean(expected), {**batch.leaves, "temperature": temperature})


def test_a_positive_never_competes_with_another_positive() -> None:
    near, far = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    queue = Negatives(torch.tensor([[-1.0, 0.0]]))
    both = info_nce(near, torch.stack([near, far], 1), queue)
    torch.testing.assert_close(both, (info_nce(near, near[:, None], queue) + info_nce(near, far[:, None], queue)) / 2)


@in_both_precisions
@pytest.mark.parametrize("entry", ["infonce_queue/tau0.2", "stability/infonce_queue_tau0.01"])
def test_it_is_moco_with_a_queue(entry: str, precision: Precision) -> None:
    q = precision.leaf("q_raw")
    positives = unit(precision.given("keys_raw")[0])[:, None]
    queue, tau = Negatives(precision.given("queue")), parameter(entry, "tau")
    each = info_nce(unit(q), positives, queue, temperature=tau, reduction="none")
    assert_value(entry, each, precision, "per_sample")
    assert_golden(entry, info_nce(unit(q), positives, queue, temperature=tau), {"q_raw": q}, precision)


@in_both_precisions
def test_it_is_nt_xent_in_a_batch_of_two_views(precision: Precision) -> None:
    entry = "ntxent/tau0.1"
    v1, v2 = two_views(precision)
    (triple,) = every_copy(Embeddings([unit(v1), unit(v2)]), Memory())
    each = info_nce(*triple[:3], temperature=parameter(entry, "tau"), reduction="none")
    assert_value(entry, each, precision, "per_anchor")
    loss = info_nce(*triple[:3], temperature=parameter(entry, "tau"))
    assert_golden(entry, loss, {"v1_raw": v1, "v2_raw": v2}, precision)


@in_both_precisions
def test_it_is_the_mean_of_moco_over_many_keys(precision: Precision) -> None:
    entry = "vanilla_multikey/tau0.2_M5"
    q = precision.leaf("q_raw")
    keys, queue = unit(precision.given("keys_raw")), Negatives(precision.given("queue"))
    for m, key in enumerate(keys):
        each = info_nce(unit(q), key[:, None], queue, temperature=0.2, reduction="none")
        expected = golden(f"{entry}/per_pair")[m]
        torch.testing.assert_close(each.detach().double(), expected, rtol=precision.loss, atol=precision.absolute)
    assert_golden(entry, info_nce(unit(q), keys.transpose(0, 1), queue, temperature=0.2), {"q_raw": q}, precision)


@in_both_precisions
def test_it_is_moco_v3_times_two_tau_in_both_directions(precision: Precision) -> None:
    entry = "mocov3/T0.2"
    tau = parameter(entry, "T")
    views = precision.given("views_raw")[:2].clone().requires_grad_()
    embedded = Embeddings(list(unit(views)), keys=list(unit(precision.given("kviews_raw")[:2])))
    triples = each_key_against_other_queries(embedded, Memory())
    for triple, name in zip(triples, ("loss_21", "loss_12"), strict=True):
        assert_value(entry, 2 * tau * info_nce(*triple[:3], temperature=tau), precision, name)
    assert_golden(entry, 2 * tau * total(triples, info_nce, temperature=tau), {"views_raw": views}, precision)


@in_both_precisions
def test_it_is_cmc_between_two_views(precision: Precision) -> None:
    entry = "cmc_pair_inbatch/tau0.07"
    v1, v2 = two_views(precision)
    loss = total(view_pairs(Embeddings([unit(v1), unit(v2)]), Memory()), info_nce, temperature=parameter(entry, "tau"))
    assert_golden(entry, loss, {"v1_raw": v1, "v2_raw": v2}, precision)


@in_both_precisions
@pytest.mark.parametrize("entry", entries("cmc_core/") + entries("cmc_full/"))
def test_it_is_cmc_on_a_graph_of_views(entry: str, precision: Precision) -> None:
    count = int(parameter(entry, "views"))
    views = precision.given("views_raw")[:count].clone().requires_grad_()
    edges = core_view(count) if entry.startswith("cmc_core") else full_graph(count)
    loss = total(
        view_pairs(Embeddings(list(unit(views))), Memory(), edges=edges), info_nce, temperature=parameter(entry, "tau")
    )
    assert_golden(entry, loss, {"views_raw": views}, precision)


@in_both_precisions
def test_it_is_cmc_with_given_negatives(precision: Precision) -> None:
    entry = "cmc_softmax_given/tau0.07_m10"
    v1, v2 = two_views(precision)
    given = precision.leaf("negs_raw")
    loss = info_nce(unit(v1), unit(v2)[:, None], Negatives(unit(given)), temperature=parameter(entry, "tau"))
    assert_golden(entry, loss, {"v1_raw": v1, "v2_raw": v2, "negs_raw": given}, precision)


@in_both_precisions
def test_it_is_cmc_with_a_memory_bank(precision: Precision) -> None:
    entry = "cmc_bank_softmax/tau0.07_m10"
    v1, v2 = two_views(precision)
    drawn = precision.given("idx")
    losses = []
    for view, bank in ((v1, precision.given("memory_2")), (v2, precision.given("memory_1"))):
        positives, negatives = bank[drawn[:, :1]], Negatives(bank, index=drawn[:, 1:])
        losses.append(info_nce(unit(view), positives, negatives, temperature=parameter(entry, "tau")))
    assert_value(entry, losses[0], precision, "loss_1")
    assert_value(entry, losses[1], precision, "loss_2")
    assert_golden(entry, losses[0] + losses[1], {"v1_raw": v1, "v2_raw": v2}, precision)


def test_it_is_hn_cl_without_hardness_and_bias() -> None:
    entry = "hcl/tau0.5_easy"
    v1, v2 = two_views(DOUBLE)
    loss = total(every_copy(Embeddings([unit(v1), unit(v2)]), Memory()), info_nce, temperature=parameter(entry, "tau"))
    assert_golden(entry, loss, {"v1_raw": v1, "v2_raw": v2}, DOUBLE)


def test_with_many_views_it_is_not_the_logarithm_of_the_summed_positives() -> None:
    """solo-learn's convention, another loss: see the docstring."""
    entry = "ntxent_multiview/solo_V5_tau0.2"
    views = DOUBLE.leaf("views_raw")
    loss = total(every_copy(Embeddings(list(unit(views))), Memory()), info_nce, temperature=parameter(entry, "tau"))
    assert abs(loss.item() - float(golden(f"{entry}/loss"))) > 0.1
    with pytest.raises(AssertionError):
        assert_gradients(entry, loss, {"views_raw": views}, DOUBLE)
