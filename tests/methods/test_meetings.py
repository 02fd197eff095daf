"""Who meets whom, one entry at a time: ids of the images that each query meets, and with which weight."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor

from manyview.core.negatives import Triple
from manyview.memories import Memory
from manyview.memories.memory import queue
from manyview.methods import Seen
from manyview.methods.meetings import (
    each_query_against_other_keys,
    each_view,
    each_view_against_keys,
    every_view,
    query_against_keys,
    query_against_keys_and_queries,
)
from manyview.methods.method import Pairs
from tests.losses import oracle

IDS = torch.tensor([10, 11, 12])
QUERY, KEY, HELD = 0.0, 100.0, 200.0  # what a vector is, in its first entry; then its view, then its image


def vectors(what: float, view: int) -> Tensor:
    return torch.stack([torch.tensor([what, float(view), float(image)]) for image in IDS])


def seen(queries: int, keys: int, **options: object) -> Seen:
    return Seen([vectors(QUERY, v) for v in range(queries)], [vectors(KEY, v) for v in range(keys)], IDS, **options)  # type: ignore[arg-type]


def held(within_batch: float) -> Memory:
    """A queue that holds one key of each image."""
    found = queue(3, size=3, enqueue="each", within_batch=within_batch)
    found.update([vectors(HELD, 0)], IDS)
    return found


def met(triple: Triple, query: int) -> Counter[tuple[float, ...]]:
    """What a query meets, each (what, view, image), with its weight as the count, in quarters."""
    listed = oracle.met(triple.query, triple.negatives)[query]
    return Counter({tuple(key.tolist()): round(4 * weight) for key, weight in listed})


def expected(*kinds: tuple[float, int, float], image: int) -> Counter[tuple[float, ...]]:
    others = [float(each) for each in IDS if each != image]
    return Counter({(what, float(view), each): round(4 * weight) for what, view, weight in kinds for each in others})


def positives(triple: Triple, query: int) -> list[tuple[float, ...]]:
    return [tuple(each.tolist()) for each in triple.positives[query]]


BATCH = Memory()


def test_every_view_meets_all_views_of_other_images() -> None:
    (triple,) = every_view(seen(2, 0), BATCH)
    assert met(triple, 1) == expected((QUERY, 0, 1.0), (QUERY, 1, 1.0), image=11)
    assert met(triple, 5) == expected((QUERY, 0, 1.0), (QUERY, 1, 1.0), image=12)
    assert positives(triple, 1) == [(QUERY, 1, 11)]


def test_each_view_meets_the_same_view_of_other_images() -> None:
    triples = each_view(seen(3, 0), BATCH)
    assert [triple.weight for triple in triples] == [1 / 3] * 3
    for view, triple in enumerate(triples):
        assert met(triple, 0) == expected((QUERY, view, 1.0), image=10)
        assert sorted(positives(triple, 0)) == [(QUERY, v, 10) for v in range(3) if v != view]


def test_a_query_meets_all_keys_of_other_images() -> None:
    (triple,) = query_against_keys(seen(1, 2), BATCH)
    assert met(triple, 2) == expected((KEY, 0, 1.0), (KEY, 1, 1.0), image=12)
    assert positives(triple, 2) == [(KEY, 0, 12), (KEY, 1, 12)]


def test_a_query_meets_other_queries_where_the_method_says_so() -> None:
    (triple,) = query_against_keys_and_queries(seen(1, 1), held(0.5))
    assert met(triple, 0) == expected((QUERY, 0, 0.5), (HELD, 0, 1.0), image=10)
    assert positives(triple, 0) == [(KEY, 0, 10)]


def test_each_query_meets_the_keys_of_the_other_views() -> None:
    triples = each_query_against_other_keys(seen(3, 3), BATCH)
    assert [triple.weight for triple in triples] == [1.0] * 3
    for view, triple in enumerate(triples):
        others = [v for v in range(3) if v != view]
        assert positives(triple, 1) == [(KEY, v, 11) for v in others]
        assert met(triple, 1) == expected(*((KEY, v, 1.0) for v in others), image=11)


def test_each_view_against_keys_meets_the_same_views_other_queries() -> None:
    for view, triple in enumerate(each_view_against_keys(seen(2, 2), held(1.0))):
        assert met(triple, 0) == expected((QUERY, view, 1.0), (HELD, 0, 1.0), image=10)
        assert positives(triple, 0) == [(KEY, 1 - view, 10)]


EVERY: dict[str, tuple[Pairs, Seen]] = {
    "every_view": (every_view, seen(2, 0)),
    "each_view": (each_view, seen(2, 0)),
    "query_against_keys": (query_against_keys, seen(1, 2)),
    "query_against_keys_and_queries": (query_against_keys_and_queries, seen(1, 2)),
    "each_query_against_other_keys": (each_query_against_other_keys, seen(2, 2)),
    "each_view_against_keys": (each_view_against_keys, seen(2, 2)),
}


@pytest.mark.parametrize(("pairs", "given"), EVERY.values(), ids=EVERY.keys())
def test_a_queue_takes_the_batchs_place_or_stands_beside_it(pairs: Pairs, given: Seen) -> None:
    for triple in pairs(given, held(0.0)):
        assert met(triple, 0) == expected((HELD, 0, 1.0), image=10)
    both = zip(pairs(given, held(0.5)), pairs(given, BATCH), strict=True)
    for beside, alone in both:
        batch = Counter({key: weight // 2 for key, weight in met(alone, 0).items()})
        assert met(beside, 0) == expected((HELD, 0, 1.0), image=10) + batch


@pytest.mark.parametrize(("pairs", "given"), EVERY.values(), ids=EVERY.keys())
def test_the_rows_of_other_processes_are_met_too(pairs: Pairs, given: Seen) -> None:
    """The gather of two processes, the other of which has the images 20 to 22."""

    def gather(rows: Tensor) -> Tensor:
        far = rows + 10 if rows.dim() == 1 else rows + torch.tensor([0.0, 0.0, 10.0])
        return torch.cat([rows, far])

    alone = pairs(given, BATCH)
    together = pairs(Seen(given.queries, given.keys, given.ids, gather), BATCH)
    for one, both in zip(alone, together, strict=True):
        assert len(one.query) == len(both.query)
        far = {key: weight for key, weight in met(both, 0).items() if key[2] >= 20}
        assert {key: weight for key, weight in met(both, 0).items() if key[2] < 20} == met(one, 0)
        assert {key[2] for key in far} == {20.0, 21.0, 22.0}
        assert {key[:2] for key in far} == {key[:2] for key in met(one, 0)}
