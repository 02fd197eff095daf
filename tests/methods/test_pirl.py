"""PIRL: a jigsaw beside the plain copy, against the same bank; and beside the terms of CMC."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from manyview import losses
from manyview.encoders import Slot, heads
from manyview.encoders.tower import Tower
from manyview.memories import BankMemory, bank
from manyview.methods import Method, cmc, cmc_moco, npid, pirl
from manyview.methods.terms import Contrast
from tests.losses import oracle
from tests.methods.small import DIM, IDS, SIDE, images, of_queue, plain, same_gradient
from tests.methods.test_cmc import INDEX, PRESENT, direction, embedded, made

HEAD = partial(heads.linear, dim_out=DIM)
TWO = ("L", "ab")


def patches(count: int = 6, seed: int = 9) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 9, 3, SIDE, SIDE, generator=generator, dtype=torch.float64)


def single(**options: Any) -> Method:
    return pirl(plain(), head=HEAD, memory=partial(bank, m=5), **options).start(10).double()


def against_bank(term: Any, query: Tensor, step: int, loss: str, temperature: float) -> Tensor:
    """The mean over images of the loss against the image's own vector and the drawn ones of the term's bank."""
    assert isinstance(term, Contrast)
    assert isinstance(term.memory, BankMemory)
    vectors, drawn = term.memory.bank.vectors, term.memory.negatives(IDS, INDEX, step=step).sources[0].index
    assert drawn is not None
    met: oracle.Met = [[(vectors[j], 1.0) for j in row] for row in drawn]
    positives = vectors[INDEX][:, None]
    if loss == "softmax":
        return oracle.mean(oracle.info_nce(query, positives, met, temperature=temperature))
    partition = float(term.memory.partition(lambda population: torch.tensor(0.0), term.name)["partition"])
    given = {"partition": partition, "population": 10, "temperature": temperature}
    return oracle.mean(oracle.nce(query, positives, met, **given))  # type: ignore[arg-type]


@pytest.mark.parametrize("loss", ["softmax", "nce"])
def test_the_objective_weighs_the_plain_copy_and_the_jigsaw_against_one_bank(loss: str) -> None:
    function = partial(losses.info_nce if loss == "softmax" else losses.nce, temperature=0.5)
    method = single(jigsaw=0.3, loss=function)
    raw, batch = embedded(method, step=2)
    found = method.objective(batch)  # which also estimates NCE's partition, one for each
    assert list(found.terms) == ["plain", "image jigsaw"]
    assert method.terms[0].memory is method.terms[1].memory  # type: ignore[attr-defined]
    by_copy = {slot.copy: each for slot, each in batch.outputs.items()}
    first, second = (
        against_bank(term, by_copy[copy], 2, loss, 0.5) for term, copy in zip(method.terms, (0, -1), strict=True)
    )
    same_gradient(found.loss, 0.7 * first + 0.3 * second, raw)


def test_the_bank_takes_in_the_plain_copy() -> None:
    method = single()
    _, batch = embedded(method)
    before = method.state_dict()["memories.image.bank.vectors"].clone()
    method.update(batch, 0, 1)
    (copy,) = (each for slot, each in batch.outputs.items() if slot.copy == 0)
    before[INDEX] = F.normalize(0.5 * before[INDEX] + 0.5 * copy.detach(), dim=1)
    torch.testing.assert_close(method.state_dict()["memories.image.bank.vectors"], before, rtol=1e-6, atol=1e-7)


def test_the_jigsaw_is_nine_patches_through_the_same_encoder_and_a_head_of_its_own() -> None:
    method, (copy,), jigsaw = single(), images(1), patches()
    outputs = method({"image": [copy, jigsaw]})
    assert [(slot.copy, slot.name) for slot in outputs] == [(0, "embedding"), (-1, "jigsaw")]
    tower = method.towers.query["shared"]
    assert isinstance(tower, Tower)
    head = tower.heads["jigsaw"]
    assert isinstance(head, heads.Jigsaw)
    for row in range(6):
        each = [head.patch(tower.encoder(jigsaw[row, k : k + 1]))[0] for k in range(9)]
        joined = head.joined(torch.cat(each))
        found = outputs[Slot("query", "image", -1, "jigsaw")][row]
        torch.testing.assert_close(found, joined / joined.norm(), rtol=1e-12, atol=1e-12)


def test_a_weight_of_0_is_the_method_without_it() -> None:
    without = npid(plain(), head=HEAD, memory=partial(bank, m=5)).start(10)
    assert list(single(jigsaw=0.0).state_dict()) == list(without.state_dict())
    for method in (single(jigsaw=0.0), made(cmc, TWO), made(cmc_moco, TWO)):
        assert not method.jigsaw
        assert all(term.weight == 1 for term in method.terms)


@pytest.mark.parametrize("missing", [False, True])
def test_beside_cmc_the_jigsaw_of_a_view_meets_the_same_view(missing: bool) -> None:
    method = made(cmc, TWO, jigsaw=0.25)
    raw, batch = embedded(method, present={view: PRESENT[view] for view in TWO} if missing else {})
    plain_of = {slot.view: each for slot, each in batch.outputs.items() if slot.copy == 0}
    jigsaw_of = {slot.view: each for slot, each in batch.outputs.items() if slot.copy == -1}
    found = method.objective(batch)
    assert list(found.terms) == ["L to ab", "ab to L", "L jigsaw", "ab jigsaw"]
    if missing:
        for view in TWO:
            rows = PRESENT[view]
            expected = direction(jigsaw_of[view][rows], plain_of[view][rows], 0.07)
            torch.testing.assert_close(found.terms[f"{view} jigsaw"].loss, expected, rtol=1e-10, atol=0)
        return
    across = direction(plain_of["L"], plain_of["ab"], 0.07) + direction(plain_of["ab"], plain_of["L"], 0.07)
    within = direction(jigsaw_of["L"], plain_of["L"], 0.07) + direction(jigsaw_of["ab"], plain_of["ab"], 0.07)
    same_gradient(found.loss, 0.75 * across + 0.25 * within, raw)


def test_beside_cmc_with_banks_the_jigsaw_of_view_2_is_scored_against_bank_2() -> None:
    method = made(cmc, TWO, jigsaw=0.5, memory=partial(bank, m=5))
    raw, batch = embedded(method, step=4)
    parts = []
    for term in method.terms:
        assert isinstance(term, Contrast)
        (query,) = term.queries
        other = {"L": "ab", "ab": "L"}[query.view] if query.copy == 0 else query.view
        assert term.memory is method.memories[other]
        parts.append(0.5 * against_bank(term, batch.outputs[query], 4, "softmax", 0.07))
    same_gradient(method.objective(batch).loss, torch.stack(parts).sum(), raw)


def test_beside_cmc_with_moco_the_jigsaw_meets_the_key_and_the_queue_of_its_view() -> None:
    method = made(cmc_moco, TWO, jigsaw=0.5, memory=of_queue("each", size=9))
    raw, batch = embedded(method)
    parts = []
    for query, key in (("L", "ab"), ("ab", "L"), ("L", "L"), ("ab", "ab")):
        copy, name = (-1, "jigsaw") if query == key else (0, "embedding")
        rows, positives = batch.outputs[Slot("query", query, copy, name)], batch.outputs[Slot("key", key, 0)]
        met: oracle.Met = [[(each, 1.0) for each in method.state_dict()[f"memories.{key}.queue.keys"]]] * 6
        parts.append(0.5 * oracle.mean(oracle.info_nce(rows, positives[:, None], met, temperature=0.2)))
    same_gradient(method.objective(batch).loss, torch.stack(parts).sum(), raw)


def test_it_comes_back_from_its_state() -> None:
    one, other = single(), single()
    _, batch = embedded(one)
    one.update(batch, 0, 1)
    with torch.no_grad():
        dict(one.named_parameters())["towers.query.shared.heads.jigsaw.joined.weight"].mul_(2)
    other.load_state_dict(one.state_dict())
    views = {"image": [*images(1), patches()]}
    for found, expected in zip(other(views).values(), one(views).values(), strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(other.objective(batch).loss, one.objective(batch).loss)


def test_without_a_bank_it_is_refused() -> None:
    with pytest.raises(ValueError, match="memory: an image's only positive is its own vector in a memory bank"):
        pirl(plain(), head=HEAD, memory=of_queue("each"))
