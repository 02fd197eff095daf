from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor

from manyview.core.negatives import Negatives
from manyview.losses import attraction, cacr, repulsion, uniformity
from manyview.losses.streaming import Stream
from manyview.memories import Queue, QueueMemory
from manyview.methods.contrast import total
from manyview.methods.embeddings import Embeddings
from manyview.methods.topologies import each_copy_against_keys
from tests.golden import (
    DOUBLE,
    SINGLE,
    Precision,
    assert_golden,
    assert_value,
    entries,
    golden,
    in_both_precisions,
    parameter,
    unit,
)
from tests.losses import oracle
from tests.losses.layouts import (
    Batch,
    Layout,
    Options,
    assert_follows,
    batch,
    for_every_layout,
    for_one_positive_or_three,
    for_some_layouts,
    joined,
    make,
    own_keys,
    shared_keys,
    small_bank_with_ids,
    some_missing,
)

T_POS, T_NEG, T_RBF = 0.7, 1.3, 0.9

for_every_cost = pytest.mark.parametrize("cost", ["euclidean", "inner", "rbf"])
for_each_detachment = pytest.mark.parametrize("detach", [False, True, "positives"], ids=lambda d: f"detach={d}")


def expected_cacr(
    given: Batch,
    *,
    cost: str = "euclidean",
    attract: str = "far",
    repel: str = "near",
    detach: bool | str = False,
    margin: float | None = None,
    present: Tensor | None = None,
) -> list[Tensor]:
    """One value per query, or with the RBF cost a single one."""
    pulled = oracle.attraction(
        given.query, given.positives, t_pos=T_POS, cost=cost, attract=attract, detach=bool(detach), present=present
    )
    options: Options = {"t_neg": T_NEG, "repel": repel, "detach": detach is True, "present": present}
    if cost == "rbf":
        pushed = oracle.rbf_repulsion(given.query, given.positives, given.met(), t_rbf=T_RBF, **options)
        return [oracle.mean(pulled) + pushed]
    away = oracle.repulsion(given.query, given.positives, given.met(), cost=cost, **options)
    both = [a + b for a, b in zip(pulled, away, strict=True)]
    return both if margin is None else [(loss + margin).clamp_min(0) for loss in both]


def computed(given: Batch, detach: bool | str = False, **options: Any) -> partial[Tensor]:
    options |= {"t_pos": T_POS, "t_neg": T_NEG, "t_rbf": T_RBF, "detach_weights": detach}
    return partial(cacr, given.query, given.positives, given.negatives, **options)


@for_every_layout
@for_every_cost
def test_it_is_the_equation_with_its_gradients(layout: Layout, cost: str) -> None:
    given = make(layout, 3)
    assert_follows(computed(given, cost=cost), oracle.mean(expected_cacr(given, cost=cost)), given.leaves)


@for_some_layouts
@for_every_cost
def test_it_is_the_equation_with_one_positive(layout: Layout, cost: str) -> None:
    given = make(layout, 1)
    assert_follows(computed(given, cost=cost), oracle.mean(expected_cacr(given, cost=cost)), given.leaves)


@pytest.mark.parametrize("layout", [shared_keys, batch, joined], ids=lambda layout: layout.__name__)
@for_every_cost
@pytest.mark.parametrize("attract", ["far", "near", "uniform"])
@pytest.mark.parametrize("repel", ["near", "far", "uniform"])
def test_weights_go_by_any_sign_of_the_distance(layout: Layout, cost: str, attract: str, repel: str) -> None:
    given = make(layout)
    choice: Options = {"cost": cost, "attract": attract, "repel": repel}
    assert_follows(computed(given, **choice), oracle.mean(expected_cacr(given, **choice)), given.leaves)


@for_some_layouts
@for_every_cost
@for_each_detachment
def test_detached_weights_pass_no_gradient(layout: Layout, cost: str, detach: bool | str) -> None:
    given = make(layout)
    expected = expected_cacr(given, cost=cost, detach=detach)
    assert_follows(computed(given, cost=cost, detach=detach), oracle.mean(expected), given.leaves)


@for_some_layouts
@pytest.mark.parametrize("repel", ["far", "uniform"])
def test_detached_weights_pass_no_gradient_whatever_their_sign(layout: Layout, repel: str) -> None:
    given = make(layout)
    for cost in ("euclidean", "rbf"):
        expected = expected_cacr(given, cost=cost, detach=True, repel=repel)
        assert_follows(computed(given, cost=cost, detach=True, repel=repel), oracle.mean(expected), given.leaves)


@for_some_layouts
@pytest.mark.parametrize("cost", ["euclidean", "inner"])
def test_it_gives_one_value_per_query_if_asked_to(layout: Layout, cost: str) -> None:
    given = make(layout)
    assert_follows(computed(given, cost=cost, reduction="none"), expected_cacr(given, cost=cost), given.leaves)


@for_some_layouts
@for_every_cost
@for_one_positive_or_three
def test_missing_positives_take_no_part(layout: Layout, cost: str, k: int) -> None:
    given = make(layout, k)
    present = some_missing(given)
    expected = expected_cacr(given, cost=cost, present=present)
    assert_follows(computed(given, cost=cost, present=present), oracle.mean(expected), given.leaves)


@for_some_layouts
def test_a_margin_makes_it_a_triplet_loss(layout: Layout) -> None:
    given = make(layout)
    margin = -float(expected_cacr(given)[0].detach()) + 0.01  # so that some queries are on each side of the hinge
    expected = expected_cacr(given, margin=margin)
    assert 0 < sum(bool(loss > 0) for loss in expected) < len(expected)
    assert_follows(computed(given, margin=margin, reduction="none"), expected, given.leaves)
    assert_follows(computed(given, margin=margin), oracle.mean(expected), given.leaves)


@pytest.mark.parametrize("layout", [batch, own_keys, small_bank_with_ids, joined], ids=lambda layout: layout.__name__)
@for_every_cost
def test_it_is_attraction_plus_repulsion(layout: Layout, cost: str) -> None:
    given = make(layout, 3)
    pull = attraction(given.query, given.positives, given.negatives, t_pos=T_POS, cost=cost)  # type: ignore[arg-type]
    push = repulsion(given.query, given.positives, given.negatives, t_neg=T_NEG, cost=cost, t_rbf=T_RBF)  # type: ignore[arg-type]
    torch.testing.assert_close(computed(given, cost=cost)(), pull + push)
    if cost != "rbf":
        wanted = oracle.repulsion(given.query, given.positives, given.met(), t_neg=T_NEG, cost=cost)
        torch.testing.assert_close(push, oracle.mean(wanted), rtol=1e-9, atol=0)


def test_attraction_needs_no_negatives() -> None:
    given = make(batch, 3)
    with_them = attraction(given.query, given.positives, given.negatives)
    torch.testing.assert_close(attraction(given.query, given.positives), with_them, rtol=0, atol=0)


def test_coinciding_points_cost_nothing_and_have_a_finite_gradient() -> None:
    query = torch.eye(3, requires_grad=True)
    loss = cacr(query, query.detach()[:, None].repeat(1, 2, 1), Negatives(torch.eye(3)), t_neg=50.0)
    (gradient,) = torch.autograd.grad(loss, query)
    assert loss.item() == pytest.approx(0, abs=1e-6)
    assert bool(gradient.isfinite().all())


WEIGHINGS = {
    "full": ("far", "near"),
    "without_w1": ("uniform", "near"),
    "without_w2": ("far", "uniform"),
    "none": ("uniform", "uniform"),
}


def choices(entry: str) -> Options:
    """Cost, weighing and detachment from a name such as K4_tpos1.0_tneg0.9_rbf_without_w1_weights_detached."""
    name = entry.split("tneg0.9_")[1]
    detach = name.endswith("_weights_detached")
    cost, _, weighing = name.removesuffix("_weights_detached").partition("_")
    attract, repel = WEIGHINGS[weighing]
    return {"cost": cost, "attract": attract, "repel": repel, "detach_weights": detach}


def in_batch(query: Tensor, keys: Tensor) -> Negatives:
    ids = torch.arange(len(query))
    return Negatives(keys, ids, ids)


@in_both_precisions
@pytest.mark.parametrize("entry", entries("cacr_eq/"))
def test_it_is_section_3_2(entry: str, precision: Precision) -> None:
    views = precision.leaf("views_raw")
    query, *others = unit(views)
    positives, negatives = torch.stack(others, 1), in_batch(query, query)
    options: Options = choices(entry) | {name: parameter(entry, name) for name in ("t_pos", "t_neg", "t_rbf")}
    loss = cacr(query, positives, negatives, **options)
    assert_golden(entry, loss, {"views_raw": views}, precision)
    pull: Options = {name: options[name] for name in ("t_pos", "cost", "attract")}
    push: Options = {name: options[name] for name in ("t_neg", "t_rbf", "cost", "repel")}
    assert_value(entry, attraction(query, positives, **pull), precision, "loss_ca")
    assert_value(entry, repulsion(query, positives, negatives, **push), precision, "loss_cr")


@pytest.mark.parametrize("entry", entries("cacr_eq/"))
def test_the_engine_gives_the_conditional_entropy_of_the_negatives(entry: str) -> None:
    query = unit(DOUBLE.given("views_raw")[0])
    precisions = {"near": parameter(entry, "t_neg"), "uniform": 0.0}
    t = precisions[choices(entry)["repel"]]
    sums = Stream(query, in_batch(query, query)).softmax(2 * t, -t, value=(2 * t, -t))
    assert_value(entry, (sums.log_sum_exp - sums.mean).mean(), DOUBLE, "cond_entropy")


@in_both_precisions
@pytest.mark.parametrize("entry", entries("cacr_eq_table10/"))
def test_it_is_table_10(entry: str, precision: Precision) -> None:
    sign = {1: "far", -1: "near"}
    views = precision.leaf("views_raw")
    query, *others = unit(views)
    options: Options = {name: parameter(entry, name) for name in ("t_pos", "t_neg")}
    options |= {"attract": sign[int(parameter(entry, "sign_pos"))], "repel": sign[int(parameter(entry, "sign_neg"))]}
    loss = cacr(query, torch.stack(others, 1), in_batch(query, query), **options)
    assert_golden(entry, loss, {"views_raw": views}, precision)


@in_both_precisions
def test_it_is_algorithm_3(precision: Precision) -> None:
    entry = "cacr_alg3/K4_tpos1.0_tneg2.0_intra"
    views, keys = precision.leaf("views_raw"), unit(precision.given("kviews_raw"))
    held = Queue(18, 8).to(precision.dtype)
    held.enqueue(precision.given("queue"))
    memory = QueueMemory(held, within_batch=float(parameter(entry, "intra")))
    triples = each_copy_against_keys(Embeddings(list(unit(views)), keys=list(keys)), memory)
    t_pos, t_neg = parameter(entry, "t_pos"), parameter(entry, "t_neg")
    assert_value(entry, total(triples, attraction, t_pos=t_pos), precision, "loss_ca")
    assert_value(entry, total(triples, repulsion, t_neg=t_neg), precision, "loss_cr")
    loss = total(triples, cacr, t_pos=t_pos, t_neg=t_neg, detach_weights="positives")
    assert_golden(entry, loss, {"views_raw": views}, precision)


def small_scale(views: Tensor, pull: Options, push: Options) -> tuple[Tensor, Tensor]:
    """The authors' organisation for small images: attraction averaged over the choice of the query, repulsion over all
    pairs x < y of views, from view x to view y of other images."""
    attractions, repulsions = [], []
    for v in range(len(views)):
        others = torch.cat([views[:v], views[v + 1 :]]).transpose(0, 1)
        attractions.append(attraction(views[v], others, **pull))
    for x, y in combinations(range(len(views)), 2):
        repulsions.append(repulsion(views[x], views[y][:, None], in_batch(views[x], views[y]), **push))
    return torch.stack(attractions).mean(), torch.stack(repulsions).mean()


# The authors' option of a debiased repulsion is in their code and not in the paper, and so not here.
IN_BATCH = [entry for entry in entries("cacr_inbatch/") if "debiased" not in entry]


@in_both_precisions
@pytest.mark.parametrize("entry", IN_BATCH)
def test_it_gives_the_authors_small_scale_loss(entry: str, precision: Precision) -> None:
    options: Options = choices(entry)
    weights: Options = {"cost": options["cost"], "detach_weights": options["detach_weights"]}
    pull: Options = weights | {"t_pos": parameter(entry, "t_pos"), "attract": options["attract"]}
    push: Options = weights | {"t_neg": parameter(entry, "t_neg"), "repel": options["repel"]}
    if options["cost"] == "rbf":
        push["t_rbf"] = parameter(entry, "t_rbf")
    views = precision.leaf("views_raw")
    pulled, pushed = small_scale(unit(views), pull, push)
    assert_value(entry, pulled, precision, "loss_ca")
    assert_value(entry, pushed, precision, "loss_cr")
    assert_golden(entry, pulled + pushed, {"views_raw": views}, precision)


def test_gradient_through_the_weights_matters() -> None:
    """The value is the same with and without, so only the gradient can tell."""
    for kind in ("cacr_eq", "cacr_inbatch"):
        full, detached = (
            golden(f"{kind}/K4_tpos1.0_tneg0.9_euclidean_full{end}/grad_views_raw") for end in ("", "_weights_detached")
        )
        assert float((full - detached).abs().max()) > 1e-3


def test_without_weights_the_rbf_repulsion_is_uniformity() -> None:
    query = unit(SINGLE.given("views_raw")[0])
    loss = repulsion(query, query[:, None], in_batch(query, query), cost="rbf", t_rbf=2.0, repel="uniform")
    torch.testing.assert_close(loss, uniformity(query, t=2))
