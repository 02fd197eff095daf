"""Who is whose positive and negative: each topology against loops over single pairs, and entry by entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from manyview import contrast, losses
from manyview.core.negatives import Negatives, Triple
from manyview.memories import BankMemory, Memory, Queue, QueueMemory, queue
from manyview.methods.contrast import total
from manyview.methods.embeddings import Embeddings
from manyview.methods.topologies import (
    Topology,
    core_view,
    each_copy,
    each_copy_against_keys,
    each_key_against_other_queries,
    each_query_against_other_keys,
    every_copy,
    full_graph,
    query_against_keys,
    query_against_keys_and_queries,
    view_pairs,
)
from tests.losses import oracle

N, D = 5, 4
BATCH = Memory()


def views(count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(count)
    return [F.normalize(torch.randn(N, D, generator=generator, dtype=torch.float64), dim=1) for _ in range(count)]


def leaves(count: int) -> list[Tensor]:
    return [view.clone().requires_grad_() for view in views(count)]


def arranged(topology: Topology, queries: Sequence[Tensor], *given: Any, memory: Memory = BATCH, **more: Any) -> Any:
    return topology(Embeddings(queries, *given, **more), memory)


def of_queue(keys: Tensor, within_batch: float = 0.0) -> QueueMemory:
    """A queue that holds these keys, of no image in the batch."""
    held = Queue(len(keys), keys.shape[1]).to(keys.dtype)
    held.enqueue(keys, 1000 + torch.arange(len(keys)))
    return QueueMemory(held, within_batch=within_batch)


def mask(*rows: Sequence[int]) -> Tensor:
    return torch.tensor(rows, dtype=torch.bool)


def torn(given: Sequence[Tensor], present: Tensor) -> list[Tensor]:
    """What a missing view holds must never be read: NaN."""
    return [view.masked_fill(~here[:, None], torch.nan) for view, here in zip(given, present, strict=True)]


def same_gradients(found: Tensor, expected: Tensor, by: Sequence[Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    gradients = [torch.autograd.grad(each, by, allow_unused=True, materialize_grads=True) for each in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def softmax_loss(query: Tensor, positive: Tensor, negatives: list[Tensor], temperature: float) -> Tensor:
    scores = torch.stack([query @ positive, *(query @ k for k in negatives)]) / temperature
    return scores.logsumexp(0) - scores[0]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_copy_meets_all_copies_of_other_images(count: int) -> None:
    z = leaves(count)
    expected = []
    for v in range(count):
        for i in range(N):
            others = [z[u][j] for u in range(count) for j in range(N) if j != i]
            expected += [softmax_loss(z[v][i], z[u][i], others, 0.2) for u in range(count) if u != v]
    actual = total(arranged(every_copy, z), losses.info_nce, temperature=0.2)
    same_gradients(actual, torch.stack(expected).mean(), z)


def test_each_copy_meets_the_same_copy_of_other_images() -> None:
    z = leaves(3)
    expected = []
    for v in range(3):
        for i in range(N):
            others = [z[v][j] for j in range(N) if j != i]
            expected += [softmax_loss(z[v][i], z[u][i], others, 0.2) for u in range(3) if u != v]
    actual = total(arranged(each_copy, z), losses.info_nce, temperature=0.2)
    same_gradients(actual, torch.stack(expected).mean(), z)


def test_one_query_meets_its_keys_and_what_is_kept() -> None:
    query, first, second, held = views(4)
    memory = of_queue(held)
    (triple,) = arranged(query_against_keys, [query], None, [first, second], memory=memory)
    assert torch.equal(triple.positives, torch.stack([first, second], 1))
    assert triple.negatives.sources[0].keys is memory.queue.keys
    assert (triple.present, triple.weight, triple.total) == (None, 1.0, N)


@pytest.mark.parametrize("count", [1, 2])
def test_one_query_meets_the_keys_of_other_images(count: int) -> None:
    query, *keys = leaves(1 + count)
    expected = []
    for i in range(N):
        others = [key[j] for key in keys for j in range(N) if j != i]
        expected += [softmax_loss(query[i], key[i], others, 0.2) for key in keys]
    actual = total(arranged(query_against_keys, [query], None, keys), losses.info_nce, temperature=0.2)
    same_gradients(actual, torch.stack(expected).mean(), [query, *keys])


QUERY_THERE, KEYS_THERE = mask([1, 1, 1, 0, 1]), mask([1, 1, 0, 1, 0], [1, 0, 0, 1, 1])


def query_with_missing_keys(query: Tensor, keys: list[Tensor], kept: list[Tensor]) -> Tensor:
    """By loops: an image counts that has the query and a key; it is met as often as it has keys."""
    expected = []
    for i in range(N):
        own = [key[i] for key, there in zip(keys, KEYS_THERE, strict=True) if there[i]]
        others = [key[j] for key, there in zip(keys, KEYS_THERE, strict=True) for j in range(N) if there[j] and j != i]
        if QUERY_THERE[0, i] and own:
            losses_of = [softmax_loss(query[i], key, kept if kept else others, 0.2) for key in own]
            expected.append(torch.stack(losses_of).mean())
    assert len(expected) == 3  # of 5
    return torch.stack(expected).mean()


@pytest.mark.parametrize("held", [True, False], ids=["queue", "batch"])
def test_an_image_without_query_or_keys_drops_out_and_its_place_is_never_read(held: bool) -> None:
    query, *keys = leaves(3)
    rows = views(4)[0]
    memory = of_queue(rows) if held else BATCH
    present: dict[str, Any] = {"present": list(QUERY_THERE), "keys_present": list(KEYS_THERE)}
    given, given_keys = torn([query], QUERY_THERE), torn(keys, KEYS_THERE)
    triples = arranged(query_against_keys, given, None, given_keys, memory=memory, **present)
    assert [triple.total for triple in triples] == [3]
    found = total(triples, losses.info_nce, temperature=0.2)
    same_gradients(found, query_with_missing_keys(query, keys, list(rows) if held else []), [query, *keys])


@pytest.mark.parametrize("given", ["present", "keys_present"])
def test_where_only_one_side_can_be_missing_the_other_is_all_there(given: str) -> None:
    query, *keys = views(3)
    there = mask([1, 1, 0, 1, 0])
    present: dict[str, Any] = {given: [there[0]] if given == "present" else [there[0]] * 2}
    (triple,) = arranged(query_against_keys, [query], None, keys, **present)
    assert torch.equal(triple.query, query[there[0]])
    assert [len(each) for each in oracle.met(triple.query, triple.negatives)] == [8 if given == "present" else 4] * 3


def test_fewer_than_two_images_with_keys_are_no_triple() -> None:
    query, key = views(2)
    present: dict[str, Any] = {"present": mask([1, 1, 1, 1, 1]), "keys_present": mask([0, 1, 0, 0, 0])}
    assert arranged(query_against_keys, [query], None, [key], **present) == []
    (triple,) = arranged(query_against_keys, [query], None, [key], memory=of_queue(views(3)[0]), **present)
    assert torch.equal(triple.query, query[1:2])
    nobody: dict[str, Any] = {"present": mask([1, 1, 1, 1, 0]), "keys_present": mask([0, 0, 0, 0, 1])}
    assert arranged(query_against_keys, [query], None, [key], memory=of_queue(views(3)[0]), **nobody) == []


def of_bank(instances: int, m: int, **options: Any) -> BankMemory:
    memory = BankMemory(D, m=m, generator=torch.Generator().manual_seed(1), **options)
    memory.start(instances)
    return memory.double()


INDEX = torch.tensor([7, 2, 0, 9, 4])


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("stored", [True, False])
def test_a_bank_gives_the_positive_and_the_negatives(stored: bool, missing: bool) -> None:
    """CMC Eq. 2 with the positive from the bank, as in its code, or with the step's key, as it is printed."""
    query, key = leaves(2)
    memory = of_bank(10, 6, stored=stored)
    vectors, drawn = memory.bank.vectors, memory.negatives(INDEX, INDEX, step=3).sources[0].index
    assert drawn is not None
    there = mask([1, 0, 1, 1, 1], [1, 1, 1, 1, 0]) if missing else mask([1] * N, [1] * N)
    expected = [
        softmax_loss(query[i], vectors[INDEX[i]] if stored else key[i], [vectors[j] for j in drawn[i]], 0.07)
        for i in range(N)
        if there[:, i].all()
    ]
    present: dict[str, Any] = {"present": there[:1], "keys_present": there[1:]} if missing else {}
    given = Embeddings(torn([query], there[:1]), INDEX + 100, torn([key], there[1:]), INDEX, step=3, **present)
    (triple,) = query_against_keys(given, memory)
    assert (len(triple.query), triple.total, triple.present) == (len(expected), len(expected), None)
    found = total([triple], losses.info_nce, temperature=0.07)
    same_gradients(found, torch.stack(expected).mean(), [query, key])


def test_kept_positives_have_no_gradient_and_the_key_gets_none() -> None:
    query, key = leaves(2)
    (triple,) = arranged(query_against_keys, [query], INDEX, [key], memory=of_bank(10, 4))
    assert not triple.positives.requires_grad
    (by_query, by_key) = torch.autograd.grad(total([triple], losses.info_nce), [query, key], materialize_grads=True)
    assert by_query.abs().max() > 1e-3
    assert by_key.abs().max() == 0


def test_one_query_meets_the_other_queries() -> None:
    query, *keys = leaves(3)
    expected = [
        softmax_loss(query[i], key[i], [query[j] for j in range(N) if j != i], 0.2) for i in range(N) for key in keys
    ]
    found = total(arranged(query_against_keys_and_queries, [query], None, keys), losses.info_nce, temperature=0.2)
    same_gradients(found, torch.stack(expected).mean(), [query, *keys])


@pytest.mark.parametrize(("queries", "count"), [(2, 2), (3, 3), (5, 2)])  # the last: two large and three small crops
def test_each_key_meets_the_queries_of_the_other_copies(queries: int, count: int) -> None:
    z, keys = leaves(queries), [key.clone().requires_grad_() for key in views(4)[:count]]
    expected = []
    for u, key in enumerate(keys):
        each = [
            softmax_loss(z[v][i], key[i], [key[j] for j in range(N) if j != i], 0.2)
            for v in range(queries)
            for i in range(N)
            if v != u
        ]
        expected.append(torch.stack(each).mean())
    found = total(arranged(each_key_against_other_queries, z, None, keys), losses.info_nce, temperature=0.2)
    same_gradients(found, torch.stack(expected).sum(), [*z, *keys])


@pytest.mark.parametrize(("queries", "count"), [(2, 2), (3, 3), (5, 2)])
def test_each_query_meets_the_keys_of_the_other_copies(queries: int, count: int) -> None:
    z, keys = leaves(queries), [key.clone().requires_grad_() for key in views(4)[:count]]
    expected = []
    for v, query in enumerate(z):
        own = [key for u, key in enumerate(keys) if u != v]
        each = [
            softmax_loss(query[i], key[i], [other[j] for other in own for j in range(N) if j != i], 0.2)
            for i in range(N)
            for key in own
        ]
        expected.append(torch.stack(each).mean())
    found = total(arranged(each_query_against_other_keys, z, None, keys), losses.info_nce, temperature=0.2)
    same_gradients(found, torch.stack(expected).mean(), [*z, *keys])


@pytest.mark.parametrize("within_batch", [0.0, 1.0, 0.5])
def test_each_copy_in_turn_meets_the_other_copies_keys_a_queue_and_the_batch(within_batch: float) -> None:
    z, keys, held = leaves(3), views(4)[:3], views(5)[0]
    memory = of_queue(held, within_batch)
    triples = arranged(each_copy_against_keys, z, None, keys, memory=memory)
    assert [t.weight for t in triples] == [1 / 3] * 3
    expected = []
    for v, triple in enumerate(triples):
        assert triple.query is z[v]
        own = torch.stack([keys[u] for u in range(3) if u != v], 1)
        assert torch.equal(triple.positives, own)
        sources = triple.negatives.sources
        assert sources[0].keys is memory.queue.keys
        assert len(sources) == (2 if within_batch else 1)
        if within_batch:
            assert sources[1].keys is z[v]
            assert sources[1].weight == within_batch
        met: oracle.Met = [
            [(key, 1.0) for key in held] + [(z[v][j], within_batch) for j in range(N) if j != i] for i in range(N)
        ]
        expected.append(oracle.mean(oracle.info_nce(z[v], own, met, temperature=0.2)))
    same_gradients(total(triples, losses.info_nce, temperature=0.2), oracle.mean(expected), z)


def test_the_graphs_have_the_papers_edges() -> None:
    assert core_view(4) == [(0, 1), (0, 2), (0, 3)]
    assert core_view(3, core=1) == [(1, 0), (1, 2)]
    assert full_graph(4) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def two_view_loss(a: Tensor, b: Tensor, temperature: float) -> Tensor:
    """CMC Eq. 2-4 by loops: both directions, each a mean over images."""
    result = torch.zeros((), dtype=a.dtype)
    for x, y in ((a, b), (b, a)):
        for i in range(len(x)):
            others = [y[j] for j in range(len(y)) if j != i]
            result = result + softmax_loss(x[i], y[i], others, temperature) / len(x)
    return result


@pytest.mark.parametrize("edges", [core_view(4), full_graph(4), [(2, 3)]])
def test_view_pairs_sum_over_edges_and_directions(edges: list[tuple[int, int]]) -> None:
    z = leaves(4)
    expected = torch.stack([two_view_loss(z[i], z[j], 0.1) for i, j in edges]).sum()
    found = total(arranged(partial(view_pairs, edges=edges), z), losses.info_nce, temperature=0.1)
    same_gradients(found, expected, z)


def test_an_image_that_lacks_a_view_drops_out_of_that_views_edges() -> None:
    z = leaves(3)
    present = mask([1, 1, 1, 1, 0], [1, 1, 0, 1, 1], [0, 0, 1, 0, 1])
    actual = total(arranged(view_pairs, torn(z, present), present=present), losses.info_nce, temperature=0.1)
    both = present[0] & present[1]  # edges (0, 2) and (1, 2) have one image each: they contribute 0
    assert [(present[i] & present[2]).sum().item() for i in (0, 1)] == [1, 1]
    torch.testing.assert_close(actual, two_view_loss(z[0][both], z[1][both], 0.1))
    grads = torch.autograd.grad(actual, z, allow_unused=True, materialize_grads=True)
    assert all(grad.isfinite().all() for grad in grads)
    assert grads[0][~both].abs().max() == 0
    assert grads[2].abs().max() == 0


def test_with_missing_views_too_both_directions_of_an_edge_cost_one_pass() -> None:
    present = mask([1, 1, 1, 1, 0], [1, 1, 0, 1, 1])
    (triple,) = arranged(view_pairs, views(2), present=present)
    (source,) = triple.negatives.sources
    assert source.keys is triple.query
    assert source.key_ids is source.query_ids


def test_where_no_edge_has_two_images_the_objective_is_zero_and_can_be_differentiated() -> None:
    none = torch.zeros(2, N, dtype=torch.bool)
    value = total(arranged(view_pairs, views(2), present=none), losses.info_nce)
    torch.autograd.backward(value)
    assert value == 0


def test_queries_meet_another_towers_keys() -> None:
    z, keys = leaves(2), views(3)[:2]
    expected = []
    for i, j in ((0, 1), (1, 0)):
        each = [softmax_loss(z[i][n], keys[j][n], [keys[j][m] for m in range(N) if m != n], 0.2) for n in range(N)]
        expected.append(torch.stack(each).mean())
    found = arranged(each_key_against_other_queries, z, None, keys)
    same_gradients(total(found, losses.info_nce, temperature=0.2), torch.stack(expected).sum(), z)


def test_the_same_image_twice_in_a_batch_is_no_negative_of_itself() -> None:
    z, ids = views(2), torch.tensor([0, 1, 2, 3, 0])
    expected = []
    for v in range(2):
        for i in range(N):
            others = [z[u][j] for u in range(2) for j in range(N) if ids[j] != ids[i]]
            expected.append(softmax_loss(z[v][i], z[1 - v][i], others, 0.2))
    torch.testing.assert_close(contrast(z, ids=ids), torch.stack(expected).mean())


ONE_VIEW, PAIR = views(1), views(2)
BAD: list[tuple[Any, str]] = [
    (lambda: contrast(ONE_VIEW), r"views: expected 2 or more .*got 1"),
    (lambda: contrast([*ONE_VIEW, ONE_VIEW[0][:3]]), r"views: .*\(5, 4\), \(3, 4\)"),
    (lambda: contrast(torch.randn(3, 4)), "views: "),
    (lambda: arranged(each_copy, ONE_VIEW), r"queries: expected 2 or more of one shape \(N, d\), got 1"),
    (lambda: contrast([]), "views: "),
    (lambda: contrast(PAIR, ids=torch.arange(4)), r"ids: expected \(5,\)"),
    (lambda: contrast(PAIR, loss="infonce"), "loss: expected one of info_nce, .*'infonce'"),
    (lambda: contrast([v[:1] for v in PAIR]), "negatives: none is left for query 0"),
    (lambda: arranged(each_copy_against_keys, PAIR, None, views(3)), r"keys: expected 2 of one shape \(5, 4\), got 3"),
    (
        lambda: arranged(query_against_keys, ONE_VIEW, None, [PAIR[0][:3]]),
        r"keys: expected 1 or more of .*\(5, 4\), got 1 .*\(3, 4\)",
    ),
    (lambda: arranged(query_against_keys, ONE_VIEW), "keys: expected one or more keys an image, got none"),
    (lambda: arranged(view_pairs, PAIR, present=torch.ones(2, N)), r"present: expected 2 masks of bool \(5,\)"),
    (lambda: arranged(view_pairs, PAIR, present=torch.ones(N, 2).bool()), r"present: expected 2 masks of bool \(5,\)"),
    (lambda: arranged(query_against_keys, ONE_VIEW, None, PAIR, keys_present=[]), "keys_present: expected 2 masks"),
    (lambda: contrast(PAIR, reduction="none"), "reduction: .*'none'"),
    (lambda: contrast([v.numpy() for v in PAIR]), "views: expected tensors, got ndarray"),  # type: ignore[misc]
    (lambda: contrast(PAIR, ids=[1, 2, 3, 4, 5]), "ids: expected tensors, got list"),  # type: ignore[arg-type]
    (lambda: contrast(PAIR, temperature="0.1"), "temperature: expected a number, got '0.1'"),
    (lambda: contrast(PAIR, present=torch.ones(2, N).bool()), "present: .*give topology=view_pairs"),
    (
        lambda: arranged(partial(view_pairs, edges=[(0, 2)]), PAIR),
        r"edges: expected two of the 2 views, 0 to 1, got \(0, 2\)",
    ),
    (lambda: arranged(view_pairs, PAIR, memory=of_queue(PAIR[0])), "memory: several views do not share one"),
    (lambda: arranged(every_copy, PAIR, memory=Memory(0.0)), "within_batch: is 0 and nothing is kept"),
    (lambda: losses.info_nce(PAIR[0], PAIR[0][:, None], None), "negatives: .*got NoneType"),  # type: ignore[arg-type]
    (lambda: losses.info_nce(PAIR[0], PAIR[0], Negatives(PAIR[1])), r"positives\[:, None\]"),
    (lambda: losses.info_nce(PAIR[0], PAIR[0][:, None], Queue(4, D)), r"negatives: .*\.negatives"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_arguments_are_named(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_two_rows_of_one_image_are_one_image() -> None:
    present, ids = mask([1, 1, 0, 0, 1], [1, 1, 1, 1, 0]), torch.tensor([4, 4, 1, 2, 3])
    assert arranged(view_pairs, views(2), ids, present=present) == []
    only = mask([1, 1, 0, 0, 0])
    assert arranged(query_against_keys, views(1), ids, views(2)[:1], keys_present=only) == []


def test_a_pooled_loss_pools_both_directions_of_an_edge() -> None:
    a, b = views(2)
    values = [losses.cacr(x, y[:, None], Negatives(y, torch.arange(N), torch.arange(N))) for x, y in ((a, b), (b, a))]
    torch.testing.assert_close(total(arranged(view_pairs, [a, b]), losses.cacr), values[0] + values[1])
    logs = [
        losses.repulsion(x, y[:, None], Negatives(y, torch.arange(N), torch.arange(N)), cost="rbf")
        for x, y in ((a, b), (b, a))
    ]
    pooled = 2 * (torch.stack(logs).exp().mean()).log()
    torch.testing.assert_close(total(arranged(view_pairs, [a, b]), losses.repulsion, cost="rbf"), pooled)


# One entry at a time: which images, of which branch and copy, each query meets, and with which weight.

IDS = torch.tensor([10, 11, 12])
QUERY, KEY, HELD = 0.0, 100.0, 200.0  # what a vector is, in its first entry; then its copy, then its image


def vectors(what: float, copy: int) -> Tensor:
    return torch.stack([torch.tensor([what, float(copy), float(image)]) for image in IDS])


def labelled(queries: int, keys: int, **options: Any) -> Embeddings:
    return Embeddings(
        [vectors(QUERY, v) for v in range(queries)], IDS, [vectors(KEY, v) for v in range(keys)], **options
    )


def held(within_batch: float) -> Memory:
    """A queue that holds one key of each image."""
    found = queue(3, size=3, enqueue="each", within_batch=within_batch)
    found.update([vectors(HELD, 0)], IDS, IDS)
    return found


def met(triple: Triple, query: int) -> Counter[tuple[float, ...]]:
    """What a query meets, each (what, copy, image), with its weight as the count, in quarters."""
    listed = oracle.met(triple.query, triple.negatives)[query]
    return Counter({tuple(key.tolist()): round(4 * weight) for key, weight in listed})


def expected(*kinds: tuple[float, int, float], image: int) -> Counter[tuple[float, ...]]:
    others = [float(each) for each in IDS if each != image]
    return Counter({(what, float(copy), each): round(4 * weight) for what, copy, weight in kinds for each in others})


def positives(triple: Triple, query: int) -> list[tuple[float, ...]]:
    return [tuple(each.tolist()) for each in triple.positives[query]]


def test_entries_of_every_copy() -> None:
    (triple,) = every_copy(labelled(2, 0), BATCH)
    assert met(triple, 1) == expected((QUERY, 0, 1.0), (QUERY, 1, 1.0), image=11)
    assert met(triple, 5) == expected((QUERY, 0, 1.0), (QUERY, 1, 1.0), image=12)
    assert positives(triple, 1) == [(QUERY, 1, 11)]


def test_entries_of_each_copy() -> None:
    triples = each_copy(labelled(3, 0), BATCH)
    assert [triple.weight for triple in triples] == [1 / 3] * 3
    for copy, triple in enumerate(triples):
        assert met(triple, 0) == expected((QUERY, copy, 1.0), image=10)
        assert sorted(positives(triple, 0)) == [(QUERY, v, 10) for v in range(3) if v != copy]


def test_entries_of_a_query_against_keys() -> None:
    (triple,) = query_against_keys(labelled(1, 2), BATCH)
    assert met(triple, 2) == expected((KEY, 0, 1.0), (KEY, 1, 1.0), image=12)
    assert positives(triple, 2) == [(KEY, 0, 12), (KEY, 1, 12)]


def test_entries_of_a_query_against_keys_and_queries() -> None:
    (triple,) = query_against_keys_and_queries(labelled(1, 1), held(0.5))
    assert met(triple, 0) == expected((QUERY, 0, 0.5), (HELD, 0, 1.0), image=10)
    assert positives(triple, 0) == [(KEY, 0, 10)]


def test_entries_of_each_key_against_other_queries() -> None:
    triples = each_key_against_other_queries(labelled(3, 2), BATCH)
    assert [(triple.weight, triple.total) for triple in triples] == [(1.0, 2 * len(IDS))] * 2
    for copy, triple in enumerate(triples):
        for row in (1, 1 + len(IDS)):  # the same image in the first and the second of the other copies
            assert positives(triple, row) == [(KEY, copy, 11)]
            assert met(triple, row) == expected((KEY, copy, 1.0), image=11)


def test_entries_of_each_query_against_other_keys() -> None:
    triples = each_query_against_other_keys(labelled(3, 2), BATCH)
    assert [(triple.weight, triple.total) for triple in triples] == [(1 / 3, len(IDS))] * 3
    for copy, triple in enumerate(triples):
        others = [v for v in range(2) if v != copy]
        assert positives(triple, 1) == [(KEY, v, 11) for v in others]
        assert met(triple, 1) == expected(*((KEY, v, 1.0) for v in others), image=11)


def test_entries_of_each_copy_against_keys() -> None:
    for copy, triple in enumerate(each_copy_against_keys(labelled(2, 2), held(1.0))):
        assert met(triple, 0) == expected((QUERY, copy, 1.0), (HELD, 0, 1.0), image=10)
        assert positives(triple, 0) == [(KEY, 1 - copy, 10)]


EVERY: dict[str, tuple[Topology, Embeddings]] = {
    "every_copy": (every_copy, labelled(2, 0)),
    "each_copy": (each_copy, labelled(2, 0)),
    "query_against_keys": (query_against_keys, labelled(1, 2)),
    "query_against_keys_and_queries": (query_against_keys_and_queries, labelled(1, 2)),
    "each_key_against_other_queries": (each_key_against_other_queries, labelled(2, 2)),
    "each_query_against_other_keys": (each_query_against_other_keys, labelled(2, 2)),
    "each_copy_against_keys": (each_copy_against_keys, labelled(2, 2)),
}
BATCH_ALONE: dict[str, tuple[Topology, Embeddings]] = {
    "view_pairs": (view_pairs, labelled(2, 0)),
}


@pytest.mark.parametrize(("topology", "given"), EVERY.values(), ids=EVERY.keys())
def test_a_queue_takes_the_batchs_place_or_stands_beside_it(topology: Topology, given: Embeddings) -> None:
    for triple in topology(given, held(0.0)):
        assert met(triple, 0) == expected((HELD, 0, 1.0), image=10)
    both = zip(topology(given, held(0.5)), topology(given, BATCH), strict=True)
    for beside, alone in both:
        batch = Counter({key: weight // 2 for key, weight in met(alone, 0).items()})
        assert met(beside, 0) == expected((HELD, 0, 1.0), image=10) + batch


@pytest.mark.parametrize(("topology", "given"), (EVERY | BATCH_ALONE).values(), ids=(EVERY | BATCH_ALONE).keys())
def test_the_rows_of_other_processes_are_met_too(topology: Topology, given: Embeddings) -> None:
    """The gather of two processes, the other of which has the images 20 to 22."""

    def gather(rows: Tensor) -> Tensor:
        far = rows + 10 if rows.dim() == 1 else rows + torch.tensor([0.0, 0.0, 10.0])
        return torch.cat([rows, far])

    alone = topology(given, BATCH)
    together = topology(Embeddings(given.queries, given.ids, given.keys, gather=gather), BATCH)
    for one, both in zip(alone, together, strict=True):
        assert len(one.query) == len(both.query)
        assert both.total == 2 * len(one.query)
        far = {key: weight for key, weight in met(both, 0).items() if key[2] >= 20}
        assert {key: weight for key, weight in met(both, 0).items() if key[2] < 20} == met(one, 0)
        assert {key[2] for key in far} == {20.0, 21.0, 22.0}
        assert {key[:2] for key in far} == {key[:2] for key in met(one, 0)}


NEEDS_ALL = {name: each for name, each in EVERY.items() if name != "query_against_keys"}


@pytest.mark.parametrize(("topology", "given"), NEEDS_ALL.values(), ids=NEEDS_ALL.keys())
def test_a_topology_that_needs_all_copies_refuses_missing_ones(topology: Topology, given: Embeddings) -> None:
    there = [torch.ones(3, dtype=torch.bool)] * len(given.queries)
    with pytest.raises(ValueError, match="present: needs all copies of all images"):
        topology(Embeddings(given.queries, given.ids, given.keys, present=there), BATCH)
