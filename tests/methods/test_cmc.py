"""CMC: which views are contrasted with which, and against what."""

from __future__ import annotations

from functools import partial
from itertools import combinations, permutations
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from manyview import losses
from manyview.encoders import heads
from manyview.memories import BankMemory, bank
from manyview.methods import BatchOutputs, Method, cmc, cmc_moco, npid
from manyview.methods.terms import Contrast
from tests.losses import oracle
from tests.methods.small import DIM, IDS, images, of_queue, plain, same_gradient

VIEWS = ("L", "ab", "depth")
INDEX = torch.tensor([5, 1, 2, 9, 4, 7])
HEAD = partial(heads.linear, dim_out=DIM)
PRESENT = {
    "L": torch.tensor([1, 1, 1, 0, 1, 1]).bool(),
    "ab": torch.tensor([1, 1, 0, 1, 1, 1]).bool(),
    "depth": torch.tensor([0, 1, 0, 1, 1, 0]).bool(),
}


def made(make: Any = cmc, views: tuple[str, ...] = VIEWS, **options: Any) -> Method:
    encoders = {view: plain(seed=number) for number, view in enumerate(views)}
    declared: Method = make(encoders, head=HEAD, **options)
    return declared.start(10).double()


def embedded(method: Method, **options: Any) -> tuple[list[Tensor], BatchOutputs]:
    """Raw vectors that want a gradient, and what towers would answer."""
    raw = [torch.randn(6, DIM, dtype=torch.float64, requires_grad=True) for _ in method.slots]
    outputs = {slot: F.normalize(each, dim=1) for slot, each in zip(method.slots, raw, strict=True)}
    return raw, BatchOutputs(outputs, IDS, INDEX, **options)


def direction(query: Tensor, key: Tensor, temperature: float) -> Tensor:
    """The mean over images of Eq. 2, a view's embeddings against another's of the same batch."""
    others = [[(key[j], 1.0) for j in range(len(key)) if j != i] for i in range(len(query))]
    return oracle.mean(oracle.info_nce(query, key[:, None], others, temperature=temperature))


@pytest.mark.parametrize(
    ("options", "edges"),
    [
        ({}, [("L", "ab"), ("L", "depth"), ("ab", "depth")]),
        ({"graph": "core"}, [("L", "ab"), ("L", "depth")]),
        ({"graph": "core", "core": "depth"}, [("L", "depth"), ("ab", "depth")]),
    ],
)
def test_the_objective_is_the_sum_over_edges_and_directions(options: Any, edges: list[tuple[str, str]]) -> None:
    method = made(**options)
    raw, batch = embedded(method)
    by_view = {slot.view: each for slot, each in batch.outputs.items()}
    found = method.objective(batch)
    assert list(found.terms) == [f"{i} to {j}" for edge in edges for i, j in (edge, edge[::-1])]
    expected = sum(direction(by_view[i], by_view[j], 0.07) for edge in edges for i, j in (edge, edge[::-1]))
    assert isinstance(expected, Tensor)
    same_gradient(found.loss, expected, raw)


def test_an_image_without_a_view_takes_no_part_in_its_edges() -> None:
    method = made()
    raw, batch = embedded(method, present=PRESENT)
    by_view = {slot.view: each for slot, each in batch.outputs.items()}
    parts = []
    for i, j in permutations(VIEWS, 2):
        both, rows = (PRESENT[i] & PRESENT[j]).nonzero()[:, 0].tolist(), PRESENT[j].nonzero()[:, 0].tolist()
        met = [[(by_view[j][k], 1.0) for k in rows if k != row] for row in both]
        given = oracle.info_nce(by_view[i][both], by_view[j][both][:, None], met, temperature=0.07)
        parts.append(oracle.mean(given))
    same_gradient(method.objective(batch).loss, torch.stack(parts).sum(), raw)


def test_copies_of_one_view_are_the_cmc_that_cacr_compares_with() -> None:
    method = made(views=("image",), copies=4)
    assert method.views == {"image": 4}
    raw, batch = embedded(method)
    copies = list(batch.outputs.values())
    expected = sum(direction(copies[i], copies[j], 0.07) for i, j in permutations(range(4), 2))
    found = method.objective(batch)
    assert list(found.terms)[:2] == ["image 0 to image 1", "image 1 to image 0"]
    assert isinstance(expected, Tensor)
    same_gradient(found.loss, expected, raw)


def test_copies_of_several_views_are_all_nodes_of_the_graph() -> None:
    assert len(made(copies=2).terms) == 2 * len(list(combinations(range(6), 2)))
    core = made(copies=2, graph="core", core="ab").terms
    assert len(core) == 2 * 2 * 4
    assert all(term.name.count("ab") == 1 for term in core)


def test_the_positives_of_a_node_are_its_neighbours_in_the_graph() -> None:
    assert (made().copies, made().positives) == (3, 2)
    assert made(views=("image",), copies=4).positives == 3  # of which CACR's Table 1 counts 4 x 3 / 2 pairs
    assert made(graph="core").positives == 2  # of the core; the others have one
    assert made(jigsaw=0.5).copies == 6


def test_towers_see_their_own_view() -> None:
    method = made()
    outputs = method({view: images(1, seed=number) for number, view in enumerate(VIEWS)})
    assert {slot.view: each.shape for slot, each in outputs.items()} == dict.fromkeys(VIEWS, (6, DIM))
    assert {view: each.options["channels"] for view, each in method.towers.encoders.items()} == dict.fromkeys(VIEWS, 3)


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("loss", ["softmax", "nce"])
def test_with_banks_a_query_meets_the_bank_of_the_other_view(loss: str, stored: bool) -> None:
    """Section 3.4; with `stored` the positive is the bank's too, and only the query has a gradient (CMC issue 13)."""
    function = partial(losses.info_nce if loss == "softmax" else losses.nce, temperature=0.5)
    method = made(views=("L", "ab"), loss=function, memory=partial(bank, m=5, stored=stored))
    raw, batch = embedded(method, step=3)
    parts = []
    for term in method.terms:
        assert isinstance(term, Contrast)
        assert isinstance(term.memory, BankMemory)
        (query,), (key,), vectors = term.queries, term.keys, term.memory.bank.vectors
        assert term.memory is method.memories[key.view]
        drawn = term.memory.negatives(IDS, INDEX, step=3).sources[0].index
        assert drawn is not None
        met: oracle.Met = [[(vectors[j], 1.0) for j in row] for row in drawn]
        positives = (vectors[INDEX] if stored else batch.outputs[key])[:, None]
        if loss == "softmax":
            given = oracle.info_nce(batch.outputs[query], positives, met, temperature=0.5)
        else:
            known: dict[str, Any] = {"population": 10, "temperature": 0.5}
            z = oracle.nce_partition(batch.outputs[query], positives, met, **known).detach()
            given = oracle.nce(batch.outputs[query], positives, met, partition=float(z), **known)
        parts.append(oracle.mean(given))
    same_gradient(method.objective(batch).loss, torch.stack(parts).sum(), raw)


def _vectors(method: Method, view: str) -> Tensor:
    memory = method.memories[view]
    assert isinstance(memory, BankMemory)
    return memory.bank.vectors


def test_after_the_step_each_bank_moves_towards_its_own_view() -> None:
    method = made(views=("L", "ab"), memory=partial(bank, m=5))
    _, batch = embedded(method)
    before = {view: _vectors(method, view).clone() for view in method.memories}
    method.update(batch, 0, 1)
    for slot, vectors in batch.outputs.items():
        expected = before[slot.view].clone()
        expected[INDEX] = F.normalize(0.5 * expected[INDEX] + 0.5 * vectors.detach(), dim=1)
        torch.testing.assert_close(_vectors(method, slot.view), expected, rtol=1e-6, atol=1e-7)


def test_with_moco_a_query_meets_the_key_and_the_queue_of_the_other_view() -> None:
    method = made(cmc_moco, views=("L", "ab"), memory=of_queue("each", size=9))
    raw, batch = embedded(method)
    parts = []
    for i, j in (("L", "ab"), ("ab", "L")):
        query, key = (
            next(s for s in batch.outputs if s.branch == b and s.view == v) for b, v in (("query", i), ("key", j))
        )
        queue = method.state_dict()[f"memories.{j}.queue.keys"]
        met: oracle.Met = [[(each, 1.0) for each in queue]] * 6
        parts.append(
            oracle.mean(oracle.info_nce(batch.outputs[query], batch.outputs[key][:, None], met, temperature=0.2))
        )
    same_gradient(method.objective(batch).loss, torch.stack(parts).sum(), raw)
    method.update(batch, 0, 1)
    for view in ("L", "ab"):
        key = next(slot for slot in batch.outputs if slot.branch == "key" and slot.view == view)
        assert torch.equal(method.state_dict()[f"memories.{view}.queue.keys"][:6], batch.outputs[key].detach())


def test_npid_tells_an_image_by_its_own_vector_in_the_bank() -> None:
    method = npid(plain(), head=HEAD, memory=partial(bank, m=5)).start(10).double()
    raw, batch = embedded(method, step=1)
    (term,) = method.terms
    assert isinstance(term, Contrast)
    assert isinstance(term.memory, BankMemory)
    vectors, drawn = term.memory.bank.vectors, term.memory.negatives(IDS, INDEX, step=1).sources[0].index
    assert drawn is not None
    met: oracle.Met = [[(vectors[j], 1.0) for j in row] for row in drawn]
    (query,) = batch.outputs.values()
    expected = oracle.info_nce(query, vectors[INDEX][:, None], met, temperature=0.07)
    same_gradient(method.objective(batch).loss, oracle.mean(expected), raw)


@pytest.mark.parametrize(
    ("views", "options", "reason"),
    [
        (("L",), {}, "views: expected two or more to contrast, got L alone"),
        (VIEWS, {"graph": "core", "core": "deep"}, "core: there is no view 'deep'; did you mean 'depth'"),
        (VIEWS, {"core": "L"}, "core: a full graph has none; give --method.graph core"),
    ],
)
def test_a_graph_that_cannot_be_is_one_line(views: tuple[str, ...], options: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        made(views=views, **options)


def test_npid_without_a_bank_is_refused() -> None:
    with pytest.raises(ValueError, match="memory: an image's only positive is its own vector in a memory bank"):
        npid(plain(), head=HEAD, memory=of_queue("each"))


def test_a_bank_of_a_view_is_of_the_images_that_have_it_and_has_a_z_for_each_term_that_reads_it() -> None:
    encoders = {view: plain(seed=number) for number, view in enumerate(VIEWS)}
    method = cmc(encoders, head=HEAD, memory=partial(bank, m=5), loss=losses.nce).start(
        10, {view: mask[[0] * 4 + [0, 1, 2, 3, 4, 5]] for view, mask in PRESENT.items()}
    )
    kept = {view: each for view, each in method.memories.items() if isinstance(each, BankMemory)}
    assert {view: int(each.population) for view, each in kept.items()} == {"L": 9, "ab": 9, "depth": 3}
    assert {view: len(each.bank.log_partition) for view, each in kept.items()} == dict.fromkeys(VIEWS, 2)
    method.double().objective(embedded(method, present=PRESENT)[1])
    for each in kept.values():
        first, second = each.bank.log_partition.exp().tolist()
        assert 0 < first != second > 0
