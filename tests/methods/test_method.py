from __future__ import annotations

import copy
import io
from functools import partial
from inspect import Parameter, signature
from typing import Any

import pytest
import torch
from torch import Tensor

from manyview import losses
from manyview.encoders import Towers, create, heads
from manyview.memories import Memory
from manyview.memories.memory import QueueMemory
from manyview.methods import METHODS, Method, Seen, Term
from manyview.methods.meetings import each_view, every_view
from tests.losses import oracle
from tests.methods.small import (
    DIM,
    IDS,
    Rows,
    doubled,
    golden_views,
    images,
    objective,
    of_queue,
    plain,
    same_gradient,
)


def small(name: str, **options: Any) -> Method:
    """A method by name, with a queue of 18 where it has one."""
    default = signature(METHODS[name]).parameters["memory"].default
    if "size" in default.keywords:
        options.setdefault("memory", partial(default, size=18))
    return doubled(METHODS[name], **options)


def towers() -> Towers:
    return Towers(plain(), partial(heads.mlp, dim_out=DIM)).double()


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_a_step_and_its_loss_falls(name: str) -> None:
    method = small(name)
    optimizer = torch.optim.SGD(method.towers.trained(), lr=0.02)
    looks, values = images(method.looks), []
    for _ in range(8):
        queries, keys = method(looks, 0)
        loss = objective(method, Seen(queries, keys, IDS))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(float(loss.detach()))  # the queue stays as it is, so that losses can be compared
    assert values[-1] < values[0]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_works_on_a_network_with_batch_norm_and_its_own_head(name: str) -> None:
    default = signature(METHODS[name]).parameters["memory"].default
    options = {"memory": partial(default, size=16)} if "size" in default.keywords else {}
    method = METHODS[name](create("patchnet", size=16, widths=(8, 16), blocks=(1, 1)), **options)
    looks = [torch.randn(4, 3, 16, 16) for _ in range(method.looks)]
    queries, keys = method(looks, 0)
    assert {each.shape for each in (*queries, *keys)} == {(4, 128)}
    loss = objective(method, Seen(queries, keys, torch.arange(4)))
    loss.backward()
    method.update(Seen(queries, keys, torch.arange(4)), 0, 1)
    assert torch.isfinite(loss)


@pytest.mark.parametrize("name", METHODS)
def test_vectors_have_unit_length(name: str) -> None:
    method = small(name)
    for each in (vector for vectors in method(images(method.looks), 0) for vector in vectors):
        torch.testing.assert_close(each.norm(dim=1), torch.ones(6, dtype=torch.float64))


@pytest.mark.parametrize("name", METHODS)
def test_a_declaration_is_a_schema_keywords_with_defaults_and_the_three_parts(name: str) -> None:
    _, *parameters = signature(METHODS[name]).parameters.values()
    assert all(each.kind is Parameter.KEYWORD_ONLY and each.default is not Parameter.empty for each in parameters)
    assert {"loss", "memory", "head"} <= {each.name for each in parameters}
    assert METHODS[name].__doc__


@pytest.mark.parametrize("name", METHODS)
def test_the_state_dict_holds_towers_and_queue_and_brings_both_back(name: str) -> None:
    method = small(name)
    queries, keys = method(images(method.looks), 0)
    method.update(Seen(queries, keys, IDS), 0, 1)
    file = io.BytesIO()
    torch.save(method.state_dict(), file)
    file.seek(0)
    other = small(name, encoder=plain(seed=5))
    assert any(not torch.equal(value, other.state_dict()[key]) for key, value in method.state_dict().items())
    other.load_state_dict(torch.load(file, weights_only=True))
    for each in (method, other):
        each.update(Seen(queries, keys, IDS + 6), 1, 2)
    state = other.state_dict()
    assert list(state) == list(method.state_dict())
    assert all(torch.equal(value, state[key]) for key, value in method.state_dict().items())
    queues = [term.negatives for term in method.terms if isinstance(term.negatives, QueueMemory)]
    assert len([key for key in state if key.endswith("queue.keys")]) == len(queues)
    assert all(torch.equal(state["negatives.0.queue.keys"], each.queue.keys) for each in queues)


def test_a_copy_has_a_queue_of_its_own_in_its_terms() -> None:
    method = small("moco_v2")
    copied = copy.deepcopy(method)
    queries, keys = copied(images(2), 0)
    copied.update(Seen(queries, keys, IDS), 0, 1)
    assert not torch.equal(copied.state_dict()["negatives.0.queue.keys"], method.state_dict()["negatives.0.queue.keys"])
    assert copied.terms[0].negatives is copied.negatives[0]


@pytest.mark.parametrize("together", [True, False])
def test_views_go_through_the_tower_together_or_one_by_one(together: bool) -> None:
    each = towers()
    rows = Rows(each.query["shared"])
    method = Method(each, [Term(every_view, losses.info_nce, Memory())], queries=range(3), together=together)
    method(images(3), 0)
    assert rows.calls == ([18] if together else [6, 6, 6])


def test_views_of_different_sizes_go_those_of_one_size_at_a_time() -> None:
    each = Towers(create("patchnet", size=16, widths=(8, 16), blocks=(1, 1)), partial(heads.mlp, dim_out=DIM))
    rows = Rows(each.query["shared"])
    method = Method(each, [Term(every_view, losses.info_nce, Memory())], queries=range(3)).eval()
    looks = [torch.randn(4, 3, side, side) for side in (16, 8, 16)]
    queries, _ = method(looks, 0)
    assert rows.calls == [8, 4]
    for query, look in zip(queries, looks, strict=True):  # each in its place
        assert torch.allclose(query, each.queries(look), atol=1e-6)


def test_without_keys_only_the_queries_are_embedded() -> None:
    method = small("jcl")
    assert method.towers.key is not None
    rows = Rows(method.towers.key["shared"])
    queries, keys = method(images(method.looks), 0, keys=False)
    assert (len(queries), keys, rows.calls) == (1, [], [])


def test_the_objective_is_the_sum_of_weighted_terms() -> None:
    terms = [
        Term(every_view, partial(losses.info_nce, temperature=0.3), Memory(), weight=0.25),
        Term(each_view, partial(losses.cacr, t_neg=0.5), Memory(), weight=2.0),
    ]
    method = Method(towers(), terms, queries=range(2))
    raw, views = golden_views(2)
    seen = Seen(views, [], IDS)
    alone = [objective(Method(towers(), [term], queries=range(2)), seen) for term in terms]
    first = oracle.mean(
        [
            each
            for _, triple in method.triples(seen)[:1]
            for each in oracle.info_nce(
                triple.query, triple.positives, oracle.met(triple.query, triple.negatives), temperature=0.3
            )
        ]
    )
    torch.testing.assert_close(alone[0], 0.25 * first, rtol=1e-10, atol=0)
    same_gradient(objective(method, seen), alone[0] + alone[1], [raw])


def test_two_terms_keep_a_queue_each() -> None:
    made = [Term(every_view, losses.info_nce, of_queue(how, size=12)(DIM)) for how in ("each", "mean")]
    method = Method(towers(), made, queries=range(2)).double()
    _, views = golden_views(2)
    method.update(Seen(views, [], IDS), 0, 1)
    first, second = (method.state_dict()[f"negatives.{term}.queue.keys"] for term in range(2))
    assert torch.equal(first, torch.cat(views))
    torch.testing.assert_close(second[:6], torch.stack(views).mean(0), rtol=1e-12, atol=0)


def test_a_term_knows_what_its_loss_will_use() -> None:
    term = Term(every_view, partial(losses.jcl, temperature=0.7), Memory(), ramp=("strength",))
    assert (term.option("temperature"), term.option("strength"), term.option("sigma")) == (0.7, 4.0, None)
    assert term.loss_at(0.5).keywords == {"temperature": 0.7, "strength": 2.0}  # type: ignore[attr-defined]


def test_missing_positives_are_passed_on_to_the_loss() -> None:
    given: list[Tensor | None] = []

    def loss(
        query: Tensor, positives: Tensor, negatives: object, *, gather: object, present: Tensor | None = None
    ) -> Tensor:
        given.append(present)
        return query.sum()

    method = Method(towers(), [Term(every_view, loss, Memory())], queries=range(2))
    _, views = golden_views(2)
    ((term, triple),) = method.triples(Seen(views, [], IDS))
    present = torch.ones(12, 1, dtype=torch.bool)
    method.objective([(term, triple), (term, triple._replace(present=present))])
    assert given[0] is None
    assert given[1] is present
