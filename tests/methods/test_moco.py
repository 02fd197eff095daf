from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from manyview import losses, memories
from manyview.core.distributed import gather
from manyview.encoders import heads
from manyview.encoders.layers import SplitBatchNorm
from manyview.methods import BatchOutputs, cacr_moco, jcl, moco_v1, moco_v2, multikey
from manyview.methods.method import VIEW
from manyview.training.optimizers import sgd
from tests.golden import DOUBLE, assert_golden, golden, unit
from tests.losses import oracle
from tests.methods.small import (
    DIM,
    IDS,
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
from tests.two_processes import Found, in_two_processes

WITH_MOMENTUM = [moco_v1, moco_v2, jcl, multikey, cacr_moco]


def test_with_its_defaults_it_is_published_moco_v2_and_so_is_the_queue_afterwards() -> None:
    entry = "infonce_queue/tau0.2"
    method, q = with_golden_queue(doubled(moco_v2, memory=of_queue("each"))), DOUBLE.leaf("q_raw")
    embedded = Given([unit(q)], golden_keys(1))
    assert_golden(entry, objective(method, embedded), {"q_raw": q}, DOUBLE)
    update(method, embedded)
    torch.testing.assert_close(queue_of(method).keys, golden(f"{entry}/queue_after"), rtol=1e-12, atol=1e-14)
    assert int(queue_of(method).pointer) == int(golden(f"{entry}/queue_ptr_after"))


def test_the_first_version_has_a_linear_head_and_its_own_temperature() -> None:
    method = with_golden_queue(
        moco_v1(plain(), head=partial(heads.linear, dim_out=8), memory=of_queue("each")).double()
    )
    assert isinstance(method.towers.query["shared"].head, nn.Linear)
    q = DOUBLE.leaf("q_raw")
    queue: oracle.Met = [[(key, 1.0) for key in DOUBLE.given("queue")]] * 6
    expected = oracle.info_nce(unit(q), golden_keys(1)[0][:, None], queue, temperature=0.07)
    same_gradient(objective(method, Given([unit(q)], golden_keys(1))), oracle.mean(expected), [q])


def test_keys_of_the_same_image_in_the_queue_do_not_count() -> None:
    method = with_golden_queue(doubled(moco_v2, memory=of_queue("each")))
    _, views = golden_views(1)
    embedded = Given(views, golden_keys(1))
    before = triples(method, embedded)[0]
    assert [len(each) for each in met(before)] == [18] * 6
    update(method, embedded)
    assert [len(each) for each in met(triples(method, embedded)[0])] == [17] * 6
    assert [len(each) for each in met(triples(method, Given(views, golden_keys(1), IDS + 6))[0])] == [18] * 6


def test_the_queue_is_read_before_it_is_updated() -> None:
    """In a second step the first one's keys are the negatives, and never its own."""
    method = doubled(moco_v2, memory=of_queue("each", size=6))
    held = queue_of(method).keys.clone()
    for step in range(3):
        queries, keys, _ = embed(method, images(2, seed=step), step)
        embedded = Given(queries, keys, IDS + 6 * step)
        (triple,) = triples(method, embedded)
        assert torch.equal(triple.negatives.sources[0].keys, held)
        update(method, embedded, step, 3)
        held = keys[0].detach()
        assert torch.equal(queue_of(method).keys, held)
    assert queue_of(method).ids.tolist() == list(range(12, 18))


@pytest.mark.parametrize("make", WITH_MOMENTUM)
def test_keys_carry_no_gradient_and_their_tower_is_not_trained(make: Any) -> None:
    method = doubled(make, memory=of_queue("last"))
    queries, keys, _ = embed(method, images(method.views[VIEW]))
    assert all(each.requires_grad for each in queries)
    assert not any(each.requires_grad for each in keys)
    objective(method, Given(queries, keys)).backward()
    assert method.towers.key is not None
    copies = list(method.towers.key.parameters())
    assert copies
    assert all(each.grad is None and not each.requires_grad for each in copies)
    trained = {id(each) for group in sgd(method.towers).param_groups for each in group["params"]}
    assert trained == {id(each) for each in method.towers.query.parameters()}
    assert trained.isdisjoint(id(each) for each in copies)


def test_the_momentum_tower_follows_after_the_optimisers_step() -> None:
    method = doubled(moco_v2, momentum=0.9, memory=of_queue("each"))
    assert method.towers.key is not None
    before = [each.clone() for each in method.towers.key.parameters()]
    queries, keys, _ = embed(method, images(2))
    objective(method, Given(queries, keys)).backward()
    optimizer = sgd(method.towers, lr=0.5)
    optimizer.step()
    update(method, Given(queries, keys))
    moved = list(method.towers.query.parameters())
    for old, query, key in zip(before, moved, method.towers.key.parameters(), strict=True):
        torch.testing.assert_close(key, 0.9 * old + 0.1 * query, rtol=1e-12, atol=1e-14)
    assert any(not torch.equal(old, query) for old, query in zip(before, moved, strict=True))


def test_a_symmetric_loss_is_the_sum_of_both_directions_and_enqueues_both_keys_afterwards() -> None:
    method = with_golden_queue(doubled(moco_v2, symmetric=True, memory=of_queue("each")))
    raw, views = golden_views(2)
    keys = golden_keys(2)
    embedded = Given(views, keys)
    found = triples(method, embedded)
    for triple in found:  # neither sees a key of this step
        (source,) = triple.negatives.sources
        assert torch.equal(source.keys, DOUBLE.given("queue"))
        assert [len(each) for each in met(triple)] == [18] * 6
    queue: oracle.Met = [[(key, 1.0) for key in DOUBLE.given("queue")]] * 6
    directions = [
        oracle.mean(oracle.info_nce(views[a], keys[b][:, None], queue, temperature=0.2)) for a, b in ((0, 1), (1, 0))
    ]
    same_gradient(objective(method, embedded), directions[0] + directions[1], [raw])
    update(method, embedded)
    assert torch.equal(queue_of(method).keys[:12], torch.cat(keys))
    assert queue_of(method).ids[:12].tolist() == [*range(6), *range(6)]
    for triple in triples(method, embedded):  # nor, in a later epoch, of the same image
        assert [len(each) for each in met(triple)] == [16] * 6


@pytest.mark.parametrize("symmetric", [False, True])
def test_with_the_batch_it_meets_the_other_images_keys(symmetric: bool) -> None:
    method = doubled(moco_v2, symmetric=symmetric, memory=partial(memories.batch))
    raw, views = golden_views(2)
    keys = golden_keys(2)
    pairs = ((0, 1), (1, 0)) if symmetric else ((0, 0),)
    expected = []
    for a, b in pairs:
        others: oracle.Met = [[(keys[b][j], 1.0) for j in range(6) if j != i] for i in range(6)]
        expected.append(oracle.mean(oracle.info_nce(views[a], keys[b][:, None], others, temperature=0.2)))
    embedded = Given(views, keys) if symmetric else Given(views[:1], keys[:1])
    found = objective(method, embedded)
    (by, expected_by) = (
        torch.autograd.grad(each, raw, retain_graph=True)[0] for each in (found, oracle.total(expected))
    )
    torch.testing.assert_close(found, oracle.total(expected), rtol=1e-10, atol=0)
    torch.testing.assert_close(by, expected_by, rtol=1e-9, atol=1e-11)


def test_copies_go_through_their_towers_one_by_one() -> None:
    method = doubled(moco_v2, symmetric=True, memory=of_queue("each"))
    assert method.towers.key is not None
    queries, keys = (Rows(tower["shared"]) for tower in (method.towers.query, method.towers.key))
    embed(method, images(2))
    assert (queries.calls, keys.calls) == ([6, 6], [6, 6])


def norms(module: nn.Module) -> list[SplitBatchNorm]:
    return [each for each in module.modules() if isinstance(each, SplitBatchNorm)]


def test_the_key_towers_batch_norm_sees_other_groups_than_the_query_towers() -> None:
    method = doubled(moco_v2, plain(norm=True), bn_splits=2, memory=of_queue("each"))
    assert method.towers.key is not None
    groups: dict[str, Tensor] = {}

    def note(name: str, norm: nn.Module, given: tuple[Tensor, ...]) -> None:
        groups[name] = given[0].detach()

    for name, tower in (("query", method.towers.query), ("key", method.towers.key)):
        (norm,) = norms(tower)
        assert norm.splits == 2
        norm.register_forward_pre_hook(partial(note, name))
    (image,) = images(1, count=8)
    (query,), (key,), _ = embed(method, [image, image], 3)
    order = [(groups["query"] - row).abs().sum(1).argmin().item() for row in groups["key"]]
    assert sorted(order) == list(range(8))
    together = [
        {frozenset(order[:4]), frozenset(order[4:])},
        {frozenset(range(4)), frozenset(range(4, 8))},
    ]
    assert together[0] != together[1]
    assert not torch.allclose(query, key)  # the same image and the same weights, normalised among others


@pytest.mark.parametrize("norm", [True, False])
def test_keys_are_shuffled_where_there_is_a_batch_norm(norm: bool) -> None:
    method = doubled(moco_v2, plain(norm=norm), memory=of_queue("each"))
    assert method.towers.key is not None
    order: list[Tensor] = []
    method.towers.key["shared"].register_forward_pre_hook(lambda _, given: order.append(given[0]))
    (image,) = images(1, count=8)
    (query,), (key,), _ = embed(method, [image, image], 3)
    assert torch.equal(order[0], image) != norm
    torch.testing.assert_close(key, query.detach(), rtol=1e-12, atol=1e-14)  # one group: nothing has changed


def test_another_step_has_another_order_and_the_same_step_the_same() -> None:
    method = doubled(moco_v2, plain(norm=True), bn_splits=2, memory=of_queue("each"))
    copies = images(2, count=8)
    once, again, later = (embed(method, copies, step).keys[0] for step in (3, 3, 4))
    assert torch.equal(once, again)
    assert not torch.allclose(once, later)


def test_another_loss_takes_its_place() -> None:
    loss = partial(losses.cacr, t_pos=1.0, t_neg=0.5)
    method = with_golden_queue(doubled(moco_v2, loss=loss, memory=of_queue("each")))
    q, (key,) = DOUBLE.leaf("q_raw"), golden_keys(1)
    queue: oracle.Met = [[(each, 1.0) for each in DOUBLE.given("queue")]] * 6
    pulled = oracle.attraction(unit(q), key[:, None], t_pos=1.0)
    pushed = oracle.repulsion(unit(q), key[:, None], queue, t_neg=0.5)
    same_gradient(objective(method, Given([unit(q)], [key])), oracle.mean(pulled) + oracle.mean(pushed), [q])


# --- batch norm in groups: one process with eight, and two with four each

BATCH, SPLITS = 32, 8
IN_GROUPS: dict[str, Any] = {
    "moco_v2": partial(moco_v2, memory=of_queue("each")),
    "symmetric": partial(moco_v2, symmetric=True, memory=of_queue("each")),
    "jcl": partial(jcl, keys=3, memory=of_queue("mean")),  # whose keys go through the tower together
    "cacr_moco": partial(cacr_moco, positives=2, memory=of_queue("last", within_batch=1.0)),
    "keys with gradient": partial(multikey, keys=2, momentum=None, memory=of_queue("mean")),
}


def two_steps(name: str, rows: slice, shares: tuple[int, ...] = (), splits: int = SPLITS) -> Found:
    """The rows that each branch normalises, in their order, the loss with its gradient, and the state afterwards."""
    torch.manual_seed(1)
    method = doubled(IN_GROUPS[name], plain(norm=True), bn_splits=splits, head=partial(heads.simclr, dim_out=DIM))
    seen: dict[str, list[Tensor]] = {"query": [], "key": []}
    branches = {"query": method.towers.query, "key": method.towers.key or method.towers.query}
    for branch, towers in branches.items():
        note = seen[branch].append
        towers["shared"].register_forward_pre_hook(lambda _, given, note=note: note(given[0][:, 0, 0, 0]))
    found: Found = {}
    for step in range(2):
        copies = [copy[rows] for copy in images(method.views[VIEW], BATCH, seed=step)]
        ids = torch.arange(BATCH)[rows]
        given = BatchOutputs(method({VIEW: copies}, step), ids, ids, counts=shares, step=step)
        method.zero_grad()
        loss = method.objective(given).loss
        loss.backward()
        method.update(given, step, 2)
        gradients = [each.grad.flatten() for each in method.towers.trained() if each.grad is not None]
        both = torch.cat([loss.detach()[None], *gradients])
        found[f"gradient {step}"] = gather(both[None]).mean(0)
    for branch, passes in seen.items():
        found |= {f"{branch} {number}": gather(each.detach()) for number, each in enumerate(passes)}
    return found | {name: value.clone() for name, value in method.state_dict().items()}


def both_processes(rank: int) -> Found:
    half = slice(BATCH // 2 * rank, BATCH // 2 * (rank + 1))
    found: Found = {name: two_steps(name, half, (BATCH // 2,) * 2) for name in IN_GROUPS}
    found["one group each"] = two_steps("moco_v2", half, (BATCH // 2,) * 2, splits=1)
    for shares in ((20, 12), (31, 1), (32, 0), (0, 3)):
        start = sum(shares[:rank])
        found[str(shares)] = two_steps("jcl", slice(start, start + shares[rank]), shares)
    return found


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    return in_two_processes(both_processes, tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("name", [*IN_GROUPS, "one group each"])
def test_two_processes_have_the_groups_the_gradient_and_the_running_statistics_of_one(
    name: str, two: list[Found]
) -> None:
    alone = name == "one group each"  # as two groups in one process
    expected = two_steps("moco_v2" if alone else name, slice(0, BATCH), splits=2 if alone else SPLITS)
    assert expected["gradient 1"].abs().max() > 1e-3
    assert not torch.equal(expected["key 0"].sort().values, expected["key 0"])
    for found in two:
        assert found[name].keys() == expected.keys()
        for key, value in expected.items():
            if key.startswith(("query ", "key ")):
                assert torch.equal(found[name][key], value), key  # the same images in the same groups, to the bit
            torch.testing.assert_close(found[name][key], value, rtol=1e-9, atol=1e-9, msg=key)


@pytest.mark.parametrize("shares", [(20, 12), (31, 1), (32, 0), (0, 3)])
def test_processes_with_unequal_shares_of_the_images_have_equal_shares_of_the_keys(
    shares: tuple[int, int], two: list[Found]
) -> None:
    first, second = (each[str(shares)] for each in two)
    for key, value in first.items():
        assert value.isfinite().all(), key
        if not key.endswith("num_batches_tracked"):  # which a process with less than two images does not count
            assert torch.equal(second[key], value), key  # gradients are averaged, statistics too
    assert len(first["key 0"]) == 3 * sum(shares)


def test_a_group_of_keys_tells_nothing_of_the_group_of_their_queries(two: list[Found]) -> None:
    """Of eight groups of four images, keys meet about one in eight of those that are in the group of their query."""
    order = [int((two[0]["symmetric"]["query 0"] == value).nonzero()) for value in two[0]["symmetric"]["key 0"]]
    met = [place // 4 == image // 4 for place, image in enumerate(order)]
    assert sorted(order) == list(range(BATCH))
    assert sum(met) <= 8
