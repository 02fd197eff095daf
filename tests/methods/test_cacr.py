from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from manyview import losses
from manyview.methods import cacr, cacr_moco, uaur
from manyview.methods.method import VIEW
from tests.golden import DOUBLE, assert_golden, entries, golden, parameter, unit
from tests.losses import oracle
from tests.methods.small import (
    Given,
    Rows,
    doubled,
    embed,
    golden_views,
    images,
    met,
    objective,
    of_queue,
    plain,
    queue_of,
    same_gradient,
    term_of,
    triples,
    update,
    with_golden_queue,
)

WEIGHINGS = {"full": ("far", "near"), "none": ("uniform", "uniform")}


def in_the_middle(views: list[Tensor], query: int) -> list[Tensor]:
    """The copies in another order, in which the first is the query."""
    return [views[query], *views[:query], *views[query + 1 :]]


@pytest.mark.parametrize("entry", entries("cacr_eq/"))
def test_each_copy_in_turn_has_section_3_2_s_loss(entry: str) -> None:
    """The paper makes one copy the query: its triple alone is the golden number."""
    detached = entry.endswith("_weights_detached")
    cost, _, weighing = entry.split("tneg0.9_")[1].removesuffix("_weights_detached").partition("_")
    attract, repel = WEIGHINGS.get(weighing, ("far", "near"))
    if weighing not in WEIGHINGS:
        attract, repel = ("uniform", "near") if weighing == "without_w1" else ("far", "uniform")
    options: dict[str, Any] = {name: parameter(entry, name) for name in ("t_pos", "t_neg", "t_rbf")}
    options |= {"cost": cost, "attract": attract, "repel": repel, "detach_weights": detached}
    method = doubled(cacr, positives=4, loss=partial(losses.cacr, **options))
    views = DOUBLE.leaf("views_raw")
    first, *_ = triples(method, Given(list(unit(views))))
    assert first.weight == 1 / 5
    assert_golden(entry, first.loss(term_of(method).loss), {"views_raw": views}, DOUBLE)


@pytest.mark.parametrize("positives", [1, 2, 4])
def test_the_objective_is_the_mean_over_the_choice_of_the_query(positives: int) -> None:
    method, (raw, views) = doubled(cacr, positives=positives), golden_views(1 + positives)
    assert method.views[VIEW] == 1 + positives
    parts = []
    for v in range(1 + positives):
        query, *others = in_the_middle(views, v)
        own = torch.stack(others, 1)
        repelled: oracle.Met = [[(query[j], 1.0) for j in range(6) if j != i] for i in range(6)]
        parts.append(oracle.mean(oracle.attraction(query, own, t_pos=1.0)))
        parts.append(oracle.mean(oracle.repulsion(query, own, repelled, t_neg=2.0)))
    same_gradient(objective(method, Given(views)), 2 * oracle.mean(parts), [raw])


def test_uaur_is_the_mean_positive_cost_minus_the_mean_negative_cost() -> None:
    method, (raw, views) = doubled(uaur), golden_views(2)
    near = [oracle.distance(views[0][i], views[1][i]) for i in range(6)]
    far = [oracle.distance(view[i], view[j]) for view in views for i in range(6) for j in range(6) if i != j]
    same_gradient(objective(method, Given(views)), oracle.mean(near) - oracle.mean(far), [raw])


def test_with_a_queue_and_its_defaults_it_is_algorithm_3() -> None:
    entry = "cacr_alg3/K4_tpos1.0_tneg2.0_intra"
    method = with_golden_queue(doubled(cacr_moco, memory=of_queue("last", within_batch=1.0)))
    views, keys = DOUBLE.leaf("views_raw"), list(unit(DOUBLE.given("kviews_raw")))
    embedded = Given(list(unit(views)), keys)
    assert_golden(entry, objective(method, embedded), {"views_raw": views}, DOUBLE)
    update(method, embedded)
    assert torch.equal(queue_of(method).keys[:6], keys[-1])
    assert torch.equal(queue_of(method).keys[6:], golden("inputs/queue")[6:])


def test_algorithm_3_s_defaults_are_the_method_s() -> None:
    from inspect import signature

    parameters = signature(cacr_moco).parameters
    assert parameters["loss"].default.keywords == {"t_pos": 1.0, "t_neg": 2.0, "detach_weights": "positives"}
    assert parameters["memory"].default.keywords == {"size": 65536, "enqueue": "last", "within_batch": 1.0}


def test_small_crops_are_queries_of_all_keys_and_have_none() -> None:
    method = with_golden_queue(doubled(cacr_moco, memory=of_queue("last", within_batch=1.0), positives=1, small=2))
    assert (method.views[VIEW], method.small) == (4, 2)
    raw, views = golden_views(4)
    keys = list(unit(DOUBLE.given("kviews_raw")))[:2]
    found, parts = triples(method, Given(views, keys)), []
    for v, triple in enumerate(found):
        own = torch.stack([key for k, key in enumerate(keys) if k != v], 1)
        assert torch.equal(triple.positives, own)
        pulled = oracle.attraction(views[v], own, t_pos=1.0, detach=True)
        parts.append(oracle.mean(pulled) + oracle.mean(oracle.repulsion(views[v], own, met(triple), t_neg=2.0)))
    same_gradient(objective(method, Given(views, keys)), oracle.mean(parts), [raw])


def test_without_momentum_small_crops_are_copies_like_all() -> None:
    (_, views), many = golden_views(5), doubled(cacr, positives=4)
    few = doubled(cacr, positives=2, small=2)
    assert (few.views, few.small, few.positives) == (many.views, 2, 4)
    torch.testing.assert_close(objective(few, Given(views)), objective(many, Given(views)))


@pytest.mark.parametrize("within", [0.0, 1.0])
def test_each_copy_meets_the_queue_by_its_own_similarities(within: float) -> None:
    """Not by the first copy's, as the authors' code has it."""
    method = with_golden_queue(doubled(cacr_moco, memory=of_queue("last", within_batch=within), positives=2))
    raw, views = golden_views(3)
    keys = list(unit(DOUBLE.given("kviews_raw")))[:3]
    found = triples(method, Given(views, keys))
    assert [len(each) for triple in found for each in met(triple)] == [18 + 5 * bool(within)] * 18
    parts = []
    for v, triple in enumerate(found):
        own = torch.stack(keys[:v] + keys[v + 1 :], 1)
        assert torch.equal(triple.positives, own)
        pulled = oracle.attraction(views[v], own, t_pos=1.0, detach=True)
        pushed = oracle.repulsion(views[v], own, met(triple), t_neg=2.0)
        parts.append(oracle.mean(pulled) + oracle.mean(pushed))
    same_gradient(objective(method, Given(views, keys)), oracle.mean(parts), [raw])


def test_each_copy_goes_through_the_encoder_alone() -> None:
    encoder = plain()
    method = doubled(cacr, encoder, positives=2)
    rows = Rows(encoder)
    embed(method, images(3))
    assert rows.calls == [6, 6, 6]
    method = doubled(cacr_moco, positives=2, memory=of_queue("last"))
    assert method.towers.key is not None
    queries, keys = (Rows(tower["shared"]) for tower in (method.towers.query, method.towers.key))
    embed(method, images(3))
    assert (queries.calls, keys.calls) == ([6] * 3, [6] * 3)


@pytest.mark.parametrize("make", [cacr, uaur, cacr_moco])
def test_no_positive_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r"positives: expected at least 1 \(K\), got 0"):
        make(plain(), positives=0)
