from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from manyview import losses
from manyview.methods import dcl, dclw, hard_negative, moco_v2, simclr
from manyview.methods.method import VIEW
from tests.golden import DOUBLE, assert_golden, two_views, unit
from tests.losses import oracle
from tests.methods.small import (
    DIM,
    Given,
    Rows,
    doubled,
    embed,
    golden_keys,
    golden_views,
    images,
    met,
    objective,
    of_queue,
    plain,
    queue_of,
    same_gradient,
    triples,
    update,
    with_golden_queue,
)


def test_with_its_defaults_it_is_published_nt_xent() -> None:
    v1, v2 = two_views(DOUBLE)
    loss = objective(doubled(simclr), Given([unit(v1), unit(v2)]))
    assert_golden("ntxent/tau0.1", loss, {"v1_raw": v1, "v2_raw": v2}, DOUBLE)


@pytest.mark.parametrize("copies", [2, 3, 5])
def test_every_copy_has_all_others_as_positives(copies: int) -> None:
    method, (raw, embedded) = doubled(simclr, copies=copies), golden_views(copies)
    assert method.views[VIEW] == copies
    expected = []
    for v, i in ((v, i) for v in range(copies) for i in range(6)):
        others = [unit(raw[w, j]) for w in range(copies) for j in range(6) if j != i]
        own = torch.stack([unit(raw[w, i]) for w in range(copies) if w != v])[None]
        expected += oracle.info_nce(unit(raw[v, i])[None], own, [[(key, 1.0) for key in others]], temperature=0.1)
    same_gradient(objective(method, Given(embedded)), oracle.mean(expected), [raw])


def test_two_rows_of_the_same_image_never_repel_each_other() -> None:
    _, views = golden_views(2)
    (triple,) = triples(doubled(simclr), Given(views, [], torch.tensor([0, 1, 2, 3, 4, 0])))
    assert [len(each) for each in met(triple)] == [8, 10, 10, 10, 10, 8] * 2


def test_all_copies_go_through_the_encoder_together() -> None:
    encoder = plain()
    method, rows = doubled(simclr, encoder, copies=3), Rows(encoder)
    queries, keys, _ = embed(method, images(3))
    assert rows.calls == [18]
    assert ([each.shape for each in queries], keys) == ([(6, DIM)] * 3, [])
    for copy, query in zip(images(3), queries, strict=True):
        torch.testing.assert_close(method.towers.queries(copy), query, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("within", [0.0, 0.5, 1.0])
def test_with_a_queue_it_meets_what_earlier_copies_were_and_the_batch_by_its_weight(within: float) -> None:
    method = with_golden_queue(doubled(simclr, memory=of_queue("each", within_batch=within)))
    raw, views = golden_views(2)
    queue = [(key, 1.0) for key in DOUBLE.given("queue")]
    expected = []
    for v, i in ((v, i) for v in range(2) for i in range(6)):
        batch = [(unit(raw[w, j]), within) for w in range(2) for j in range(6) if j != i]
        positive = unit(raw[1 - v, i])[None, None]
        expected += oracle.info_nce(unit(raw[v, i])[None], positive, [queue + batch], temperature=0.1)
    embedded = Given(views)
    same_gradient(objective(method, embedded), oracle.mean(expected), [raw])
    update(method, embedded)
    assert torch.equal(queue_of(method).keys[:12], torch.cat(views))
    assert queue_of(method).ids[:12].tolist() == [*range(6), *range(6)]


@pytest.mark.parametrize(
    ("loss", "oracle_of"),
    [
        (partial(losses.dcl, temperature=0.3), partial(oracle.dcl, temperature=0.3)),
        (partial(losses.jcl, temperature=0.3, strength=2.0), partial(oracle.jcl, temperature=0.3, strength=2.0)),
        (partial(losses.repulsion, t_neg=1.5), partial(oracle.repulsion, t_neg=1.5)),
    ],
    ids=["dcl", "jcl", "repulsion"],
)
def test_another_loss_takes_its_place(loss: Any, oracle_of: Any) -> None:
    method, (raw, views) = doubled(simclr, loss=loss, copies=3), golden_views(3)
    embedded = Given(views)
    (triple,) = triples(method, embedded)
    same_gradient(
        objective(method, embedded), oracle.mean(oracle_of(triple.query, triple.positives, met(triple))), [raw]
    )


@pytest.mark.parametrize("copies", [1, 0, -3])
def test_one_copy_is_refused(copies: int) -> None:
    with pytest.raises(ValueError, match=f"copies: expected 2 or more.* got {copies}$"):
        simclr(plain(), copies=copies)


def test_gradients_reach_every_parameter_of_the_encoder() -> None:
    method = doubled(simclr)
    queries, *_ = embed(method, images(2))
    objective(method, Given(queries)).backward()
    assert all(each.grad is not None and each.grad.abs().max() > 0 for each in method.towers.trained())


def test_dcl_with_its_defaults_it_is_published_dcl() -> None:
    v1, v2 = two_views(DOUBLE)
    loss = objective(doubled(dcl), Given([unit(v1), unit(v2)]))
    assert_golden("dcl/tau0.1", loss, {"v1_raw": v1, "v2_raw": v2}, DOUBLE)


@pytest.mark.parametrize("detached", [False, True])
def test_dcl_dclw_has_gradient_through_its_weights_unless_told_otherwise(detached: bool) -> None:
    v1, v2 = two_views(DOUBLE)
    told: dict[str, Any] = (
        {"loss": partial(losses.dcl, temperature=0.1, sigma=0.5, detach_weights=True)} if detached else {}
    )
    loss = objective(doubled(dclw, **told), Given([unit(v1), unit(v2)]))
    entry = f"dclw/tau0.1_sigma0.5/{'weight_detached' if detached else 'grad_through_weight'}"
    assert_golden(entry, loss, {"v1_raw": v1, "v2_raw": v2}, DOUBLE)


@pytest.mark.parametrize("sigma", [None, 0.5])
@pytest.mark.parametrize("copies", [3, 4])
def test_dcl_with_more_copies_it_is_the_equation(copies: int, sigma: float | None) -> None:
    method = doubled(dcl if sigma is None else dclw, copies=copies)
    raw, given = golden_views(copies)
    embedded = Given(given)
    (triple,) = triples(method, embedded)
    assert triple.positives.shape == (6 * copies, copies - 1, 8)
    assert {len(each) for each in met(triple)} == {5 * copies}
    expected = oracle.dcl(triple.query, triple.positives, met(triple), temperature=0.1, sigma=sigma)
    same_gradient(objective(method, embedded), oracle.mean(expected), [raw])


def test_dcl_its_loss_in_moco_is_moco_without_the_positive_in_the_denominator() -> None:
    method = doubled(moco_v2, loss=partial(losses.dcl, temperature=0.2), memory=of_queue("each"))
    q = DOUBLE.leaf("q_raw")
    loss = objective(with_golden_queue(method), Given([unit(q)], golden_keys(1)))
    assert_golden("dcl_queue/tau0.2", loss, {"q_raw": q}, DOUBLE)


def test_hn_cl_with_its_defaults_it_is_the_authors_loss() -> None:
    v1, v2 = two_views(DOUBLE)
    loss = objective(doubled(hard_negative), Given([unit(v1), unit(v2)]))
    assert_golden("hcl/tau0.5_tauplus0.1_beta1.0", loss, {"v1_raw": v1, "v2_raw": v2}, DOUBLE)


@pytest.mark.parametrize("copies", [3, 5])
def test_hn_cl_with_more_copies_it_is_the_equation(copies: int) -> None:
    method, (raw, given) = doubled(hard_negative, copies=copies), golden_views(copies)
    embedded = Given(given)
    (triple,) = triples(method, embedded)
    expected = oracle.hard_negative(
        triple.query, triple.positives, met(triple), temperature=0.5, beta=1.0, tau_plus=0.1
    )
    same_gradient(objective(method, embedded), oracle.mean(expected), [raw])
