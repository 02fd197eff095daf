from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from manyview import losses
from manyview.memories import memory as against
from manyview.methods import Seen, jcl, multikey
from tests.golden import DOUBLE, assert_golden, golden, unit
from tests.losses import oracle
from tests.methods.small import (
    IDS,
    Rows,
    doubled,
    golden_keys,
    images,
    met,
    objective,
    of_queue,
    plain,
    queue_of,
    same_gradient,
    triples,
    with_golden_queue,
)


def golden_seen() -> tuple[torch.Tensor, Seen]:
    q = DOUBLE.leaf("q_raw")
    return q, Seen([unit(q)], golden_keys(5), IDS)


def test_with_its_defaults_it_is_the_authors_loss_and_so_is_the_queue_afterwards() -> None:
    entry, (q, seen) = "jcl/lambda4.0_tau0.2_M5", golden_seen()
    method = with_golden_queue(doubled(jcl, memory=of_queue("mean")))
    assert_golden(entry, objective(method, seen), {"q_raw": q}, DOUBLE)
    method.update(seen, 0, 1)
    torch.testing.assert_close(queue_of(method).keys, golden(f"{entry}/queue_after"), rtol=1e-12, atol=1e-14)
    assert int(queue_of(method).pointer) == int(golden(f"{entry}/queue_ptr_after"))


def test_the_queue_takes_the_mean_of_the_keys_as_it_is() -> None:
    method, (_, seen) = with_golden_queue(doubled(jcl, memory=of_queue("mean"))), golden_seen()
    method.update(seen, 0, 1)
    taken = queue_of(method).keys[:6]
    torch.testing.assert_close(taken, golden("jcl/stats/mu"), rtol=1e-12, atol=1e-14)
    assert taken.norm(dim=1).max() < 0.999
    assert queue_of(method).ids[:6].tolist() == list(range(6))


def test_vanilla_many_keys_are_the_mean_of_infonce_over_them() -> None:
    q, seen = golden_seen()
    loss = objective(with_golden_queue(doubled(multikey, memory=of_queue("mean"))), seen)
    assert_golden("vanilla_multikey/tau0.2_M5", loss, {"q_raw": q}, DOUBLE)


@pytest.mark.parametrize("keys", [1, 2, 7])
def test_any_number_of_keys_goes_through_their_tower_together(keys: int) -> None:
    method = doubled(jcl, keys=keys, memory=of_queue("mean"))
    assert method.looks == 1 + keys
    assert method.towers.key is not None
    query, key = (Rows(tower["shared"]) for tower in (method.towers.query, method.towers.key))
    looks = images(1 + keys)
    _, found = method(looks, 0)
    assert (query.calls, key.calls) == ([6], [6 * keys])
    for look, each in zip(looks[1:], found, strict=True):  # though shuffled on the way, each in its place
        torch.testing.assert_close(each, method.towers.queries(look).detach(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("keys", [1, 3])
def test_in_the_batch_it_meets_all_keys_of_other_images(keys: int) -> None:
    method = doubled(jcl, keys=keys, memory=partial(against.batch))
    q, given = DOUBLE.leaf("q_raw"), golden_keys(keys)
    others: oracle.Met = [[(key[j], 1.0) for key in given for j in range(6) if j != i] for i in range(6)]
    expected = oracle.jcl(unit(q), torch.stack(given, 1), others, temperature=0.2, strength=4.0)
    same_gradient(objective(method, Seen([unit(q)], given, IDS)), oracle.mean(expected), [q])


@pytest.mark.parametrize("progress", [0.1, 0.5, 1.0])
def test_the_ramp_makes_the_strength_grow_with_the_epochs(progress: float) -> None:
    q, seen = golden_seen()
    for ramp in (False, True):
        method = with_golden_queue(doubled(jcl, ramp=ramp, memory=of_queue("mean")))
        queue: oracle.Met = [[(key, 1.0) for key in DOUBLE.given("queue")]] * 6
        strength = 4.0 * progress if ramp else 4.0
        expected = oracle.jcl(seen.queries[0], torch.stack(seen.keys, 1), queue, temperature=0.2, strength=strength)
        same_gradient(objective(method, seen, progress=progress), oracle.mean(expected), [q])


def test_the_ramp_is_of_the_strength_that_was_asked_for() -> None:
    method = doubled(jcl, ramp=True, loss=partial(losses.jcl, strength=2.0), memory=of_queue("mean"))
    (term,) = method.terms
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
    queries, keys = method(images(3), 0)
    assert rows.calls == [6, 12]
    assert all(each.requires_grad for each in (*queries, *keys))
    seen = Seen(queries, keys, IDS)
    (triple,) = triples(method, seen)
    expected = oracle.info_nce(triple.query, triple.positives, met(triple), temperature=0.2)
    same_gradient(objective(method, seen), oracle.mean(expected), [*queries, *keys])
    method.update(seen, 0, 1)
    assert not queue_of(method).keys.requires_grad
    torch.testing.assert_close(queue_of(method).keys[:6], (keys[0] + keys[1]).detach() / 2, rtol=1e-12, atol=1e-14)
