from __future__ import annotations

import copy
import io
from functools import partial
from inspect import Parameter, signature
from typing import Any

import pytest
import torch

from manyview import losses
from manyview.encoders import Slot, Towers, create, heads
from manyview.memories import QueueMemory
from manyview.methods import METHODS, BatchOutputs, Contrast, Method, Prediction, Term
from manyview.methods.method import VIEW, Loss
from manyview.methods.terms import keys, queries
from manyview.methods.topologies import Topology, each_copy, every_copy, query_against_keys
from tests.losses import oracle
from tests.methods.small import (
    DIM,
    IDS,
    ONE_VIEW,
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
    update,
)


def small(name: str, **options: Any) -> Method:
    """A method by name, with a queue of 18 where it has one."""
    memory = signature(METHODS[name]).parameters.get("memory")
    if memory is not None and "size" in memory.default.keywords:
        options.setdefault("memory", partial(memory.default, size=18))
    return doubled(METHODS[name], **options)


def towers() -> Towers:
    return Towers(plain(), partial(heads.mlp, dim_out=DIM)).double()


@pytest.mark.parametrize("name", ONE_VIEW)
def test_every_method_trains_a_step_and_its_loss_falls(name: str) -> None:
    method = small(name)
    optimizer = torch.optim.SGD(method.towers.trained(), lr=0.02)
    copies, values = images(method.views[VIEW]), []
    for _ in range(8):
        loss = objective(method, embed(method, copies))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(float(loss.detach()))  # the queue stays as it is, so that losses can be compared
    assert values[-1] < values[0]


@pytest.mark.parametrize("name", ONE_VIEW)
def test_every_method_works_on_a_network_with_batch_norm_and_its_own_head(name: str) -> None:
    memory = signature(METHODS[name]).parameters.get("memory")
    queued = memory is not None and "size" in memory.default.keywords
    options = {"memory": partial(memory.default, size=16)} if memory is not None and queued else {}
    method = METHODS[name](create("patchnet", size=16, widths=(8, 16), blocks=(1, 1)), **options).start(50)
    given = embed(method, [torch.randn(4, 3, 16, 16) for _ in range(method.views[VIEW])], ids=torch.arange(4))
    assert {each.shape for each in (*given.queries, *given.keys)} == {(4, method.towers.dim)}
    loss = objective(method, given)
    loss.backward()
    update(method, given)
    assert torch.isfinite(loss)


@pytest.mark.parametrize("name", ONE_VIEW)
def test_vectors_have_unit_length(name: str) -> None:
    method = small(name)
    given = embed(method, images(method.views[VIEW]))
    for each in (*given.queries, *given.keys):
        torch.testing.assert_close(each.norm(dim=1), torch.ones(6, dtype=torch.float64))


@pytest.mark.parametrize("name", METHODS)
def test_a_declaration_is_a_schema_keywords_with_defaults(name: str) -> None:
    _, *parameters = signature(METHODS[name]).parameters.values()
    assert all(each.kind is Parameter.KEYWORD_ONLY and each.default is not Parameter.empty for each in parameters)
    assert "distance" in {each.name for each in parameters} or {"loss", "head"} <= {each.name for each in parameters}
    assert METHODS[name].__doc__


@pytest.mark.parametrize("name", ONE_VIEW)
def test_the_state_dict_holds_towers_and_queue_and_brings_both_back(name: str) -> None:
    method = small(name)
    given = embed(method, images(method.views[VIEW]))
    update(method, given)
    file = io.BytesIO()
    torch.save(method.state_dict(), file)
    file.seek(0)
    other = small(name, encoder=plain(seed=5))
    assert any(not torch.equal(value, other.state_dict()[key]) for key, value in method.state_dict().items())
    other.load_state_dict(torch.load(file, weights_only=True))
    for each in (method, other):
        update(each, given._replace(ids=IDS + 6), 1, 2)
    state = other.state_dict()
    assert list(state) == list(method.state_dict())
    assert all(torch.equal(value, state[key]) for key, value in method.state_dict().items())
    queues = [each for each in method.memories.values() if isinstance(each, QueueMemory)]
    assert len([key for key in state if key.endswith("queue.keys")]) == len(queues)
    assert all(torch.equal(state[f"memories.{VIEW}.queue.keys"], each.queue.keys) for each in queues)


def test_a_copy_has_a_queue_of_its_own_in_its_terms() -> None:
    method = small("moco_v2")
    copied = copy.deepcopy(method)
    update(copied, embed(copied, images(2)))
    assert not torch.equal(queue_of(copied).keys, queue_of(method).keys)
    assert term_of(copied).memory is copied.memories[VIEW]


def two_copies(topology: Topology, loss: Loss, **options: Any) -> Contrast:
    return Contrast(topology, loss, queries(VIEW, range(2)), **options)


def declared(*terms: Term, **options: Any) -> Method:
    memories = {term.name: term.memory for term in terms if isinstance(term, Contrast)}
    return Method(views={VIEW: 2}, towers=towers(), terms=terms, memories=memories, **options).double()


def test_only_some_outputs_are_made_if_only_these_are_asked_for() -> None:
    method = small("jcl")
    assert method.towers.key is not None
    rows = Rows(method.towers.key["shared"])
    asked = term_of(method).queries
    found = method({VIEW: images(method.views[VIEW])}, 0, asked)
    assert (list(found), rows.calls) == (list(asked), [])


def test_the_objective_is_the_sum_of_weighted_terms() -> None:
    terms = [
        two_copies(every_copy, partial(losses.info_nce, temperature=0.3), name="first", weight=0.25),
        two_copies(each_copy, partial(losses.cacr, t_neg=0.5), name="second", weight=2.0),
    ]
    raw, views = golden_views(2)
    given = BatchOutputs(dict(zip(queries(VIEW, range(2)), views, strict=True)), IDS, IDS)
    found = declared(*terms).objective(given)
    (triple,) = found.terms["first"].triples
    first = oracle.mean(oracle.info_nce(triple.query, triple.positives, met(triple), temperature=0.3))
    parts = []
    for triple in found.terms["second"].triples:
        pulled = oracle.mean(oracle.attraction(triple.query, triple.positives, t_pos=1.0))
        pushed = oracle.mean(oracle.repulsion(triple.query, triple.positives, met(triple), t_neg=0.5))
        parts.append(pulled + pushed)
    same_gradient(found.terms["first"].loss, first, [raw])
    same_gradient(found.terms["second"].loss, oracle.mean(parts), [raw])
    same_gradient(found.loss, 0.25 * first + 2.0 * oracle.mean(parts), [raw])


def test_two_terms_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="terms: two are named 'contrast'; give each a name of its own"):
        declared(two_copies(every_copy, losses.info_nce), two_copies(each_copy, losses.info_nce))


def test_a_copy_that_the_views_do_not_have_is_refused() -> None:
    term = two_copies(every_copy, losses.info_nce)
    for views in ({VIEW: 1}, {"other": 2}):
        with pytest.raises(ValueError, match=r"views: copy [01] of 'image' is asked for, and not among \{"):
            Method(views=views, towers=towers(), terms=[term])


def test_a_memory_that_is_not_declared_is_refused() -> None:
    """It would not be saved, nor moved to the GPU."""
    term = two_copies(every_copy, losses.info_nce, memory=of_queue("each")(DIM))
    with pytest.raises(ValueError, match="memories: that of the term 'contrast' is not among them"):
        Method(views={VIEW: 2}, towers=towers(), terms=[term])
    Method(views={VIEW: 2}, towers=towers(), terms=[two_copies(every_copy, losses.info_nce)])  # keeps nothing


def test_two_terms_keep_a_queue_each() -> None:
    made = [
        two_copies(every_copy, losses.info_nce, name=how, memory=of_queue(how, size=12)(DIM))
        for how in ("each", "mean")
    ]
    method, (_, views) = declared(*made), golden_views(2)
    method.update(BatchOutputs(dict(zip(queries(VIEW, range(2)), views, strict=True)), IDS, IDS), 0, 1)
    first, second = (method.state_dict()[f"memories.{how}.queue.keys"] for how in ("each", "mean"))
    assert torch.equal(first, torch.cat(views))
    torch.testing.assert_close(second[:6], torch.stack(views).mean(0), rtol=1e-12, atol=0)


def test_two_terms_that_share_a_memory_update_it_once() -> None:
    kept = of_queue("each", size=20)(DIM)
    terms = [two_copies(every_copy, losses.info_nce, name=name, memory=kept) for name in ("one", "other")]
    method = Method(views={VIEW: 2}, towers=towers(), terms=terms, memories={"queue": kept}).double()
    _, views = golden_views(2)
    method.update(BatchOutputs(dict(zip(queries(VIEW, range(2)), views, strict=True)), IDS, IDS), 0, 1)
    assert int(method.state_dict()["memories.queue.queue.pointer"]) == 12


def test_an_image_that_lacks_a_view_is_not_remembered() -> None:
    slots = [*queries("a", 0), *keys("b", 0)]
    kept = of_queue("each", size=8)(DIM).double()
    term = Contrast(query_against_keys, losses.info_nce, slots[:1], slots[1:], memory=kept)
    method = Method(views={"a": 1, "b": 1}, towers=towers(), terms=[term], memories={"b": kept})
    _, views = golden_views(2)
    present = {"a": torch.tensor([0, 1, 1, 1, 1, 1]).bool(), "b": torch.tensor([1, 1, 0, 1, 0, 1]).bool()}
    method.update(BatchOutputs(dict(zip(slots, views, strict=True)), IDS, IDS, present), 0, 1)
    assert isinstance(kept, QueueMemory)
    assert kept.queue.ids[:4].tolist() == [0, 1, 3, 5]  # the key is there, whether or not the query is
    assert torch.equal(kept.queue.keys[:4], views[1].detach()[[0, 1, 3, 5]])
    assert int(kept.queue.pointer) == 4


def test_what_is_asked_for_and_gathered_is_what_the_terms_name() -> None:
    contrast = two_copies(every_copy, losses.info_nce)
    predicted, target = Slot("query", VIEW, 0, "decoded"), Slot("input", VIEW, 1, "view")
    method = declared(contrast, Prediction(predicted, target))
    assert method.slots == (*queries(VIEW, range(2)), predicted, target)
    assert method.gathers == queries(VIEW, range(2))
