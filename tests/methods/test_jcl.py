from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from manyview import losses, memories
from manyview.methods import jcl, multikey
from manyview.methods.method import VIEW
from tests.golden import DOUBLE, assert_golden, golden, unit
from tests.losses import oracle
from tests.methods.small import (
    Given,
    Rows,
    doubled,
    embed,
    golden_keys,
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


def golden_embedded() -> tuple[torch.Tensor, Given]:
    q = DOUBLE.leaf("q_raw")
    return q, Given([unit(q)], golden_keys(5))


def test_with_its_defaults_it_is_the_authors_loss_and_so_is_the_queue_afterwards() -> None:
    entry, (q, embedded) = "jcl/lambda4.0_tau0.2_M5", golden_embedded()
    method = with_golden_queue(doubled(jcl, memory=of_queue("mean")))
    assert_golden(entry, objective(method, embedded), {"q_raw": q}, DOUBLE)
    update(method, embedded)
    torch.testing.assert_close(queue_of(method).keys, golden(f"{entry}/queue_after"), rtol=1e-12, atol=1e-14)
    assert int(queue_of(method).pointer) == int(golden(f"{entry}/queue_ptr_after"))


def test_the_queue_takes_the_mean_of_the_keys_as_it_is() -> None:
    method, (_, embedded) = with_golden_queue(doubled(jcl, memory=of_queue("mean"))), golden_embedded()
    update(method, embedded)
    taken = queue_of(method).keys[:6]
    torch.testing.assert_close(taken, golden("jcl/stats/mu"), rtol=1e-12, atol=1e-14)
    assert taken.norm(dim=1).max() < 0.999
    assert queue_of(method).ids[:6].tolist() == list(range(6))


def test_vanilla_many_keys_are_the_mean_of_infonce_over_them() -> None:
    q, embedded = golden_embedded()
    loss = objective(with_golden_queue(doubled(multikey, memory=of_queue("mean"))), embedded)
    assert_golden("vanilla_multikey/tau0.2_M5", loss, {"q_raw": q}, DOUBLE)


@pytest.mark.parametrize("keys", [1, 2, 7])
def test_any_number_of_keys_goes_through_their_tower_together(keys: int) -> None:
    method = doubled(jcl, keys=keys, memory=of_queue("mean"))
    assert method.views[VIEW] == 1 + keys
    assert method.towers.key is not None
    query, key = (Rows(tower["shared"]) for tower in (method.towers.query, method.towers.key))
    copies = images(1 + keys)
    _, found, _ = embed(method, copies)
    assert (query.calls, key.calls) == ([6], [6 * keys])
    for copy, each in zip(copies[1:], found, strict=True):  # though shuffled on the way, each in its place
        torch.testing.assert_close(each, method.towers.queries(copy).detach(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("keys", [1, 3])
def test_in_the_batch_it_meets_all_keys_of_other_images(keys: int) -> None:
    method = doubled(jcl, keys=keys, memory=partial(memories.batch))
    q, given = DOUBLE.leaf("q_raw"), golden_keys(keys)
    others: oracle.Met = [[(key[j], 1.0) for key in given for j in range(6) if j != i] for i in range(6)]
    expected = oracle.jcl(unit(q), torch.stack(given, 1), others, temperature=0.2, strength=4.0)
    same_gradient(objective(method, Given([unit(q)], given)), oracle.mean(expected), [q])


@pytest.mark.parametrize("progress", [0.1, 0.5, 1.0])
def test_the_ramp_makes_the_strength_grow_with_the_epochs(progress: float) -> None:
    q, embedded = golden_embedded()
    for ramp in (False, True):
        method = with_golden_queue(doubled(jcl, ramp=ramp, memory=of_queue("mean")))
        queue: oracle.Met = [[(key, 1.0) for key in DOUBLE.given("queue")]] * 6
        strength = 4.0 * progress if ramp else 4.0
        positives = torch.stack(list(embedded.keys), 1)
        expected = oracle.jcl(embedded.queries[0], positives, queue, temperature=0.2, strength=strength)
        same_gradient(objective(method, embedded, progress=progress), oracle.mean(expected), [q])


def test_the_ramp_is_of_the_strength_that_was_asked_for() -> None:
    method = doubled(jcl, ramp=True, loss=partial(losses.jcl, strength=2.0), memory=of_queue("mean"))
    term = term_of(method)
    assert term.loss_at(0.25).keywords["strength"] == 0.5  # type: ignore[attr-defined]
    assert term.option("strength") == 2.0


def test_a_ramp_of_a_loss_without_strength_is_refused() -> None:
    with pytest.raises(ValueError, match="ramp: is the growth of jcl's strength, which this loss has not"):
        jcl(plain(), ramp=True, loss=partial(losses.dcl, temperature=0.1))


@pytest.mark.parametrize("make", [jcl, multikey])
def test_no_key_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="keys: expected at least 1 positive an image, got 0"):
        make(plain(), keys=0)


def test_without_momentum_keys_come_from_the_query_encoder_and_carry_gradient() -> None:
    encoder = plain()
    method = doubled(multikey, encoder, keys=2, momentum=None, memory=of_queue("mean"))
    assert method.towers.key is None
    rows = Rows(encoder)
    queries, keys, _ = embed(method, images(3))
    assert rows.calls == [6, 12]
    assert all(each.requires_grad for each in (*queries, *keys))
    embedded = Given(queries, keys)
    (triple,) = triples(method, embedded)
    expected = oracle.info_nce(triple.query, triple.positives, met(triple), temperature=0.2)
    same_gradient(objective(method, embedded), oracle.mean(expected), [*queries, *keys])
    update(method, embedded)
    assert not queue_of(method).keys.requires_grad
    torch.testing.assert_close(queue_of(method).keys[:6], (keys[0] + keys[1]).detach() / 2, rtol=1e-12, atol=1e-14)
