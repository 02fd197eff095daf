from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from manyview.encoders import Slot
from manyview.encoders.prototypes import Prototypes
from manyview.losses.assignment import sinkhorn
from manyview.memories import Centre, Queue, QueueMemory
from manyview.methods import Assignment, BatchOutputs, Method, dino, swav
from manyview.methods.assignment import CentredCodes, Codes, SinkhornCodes
from manyview.methods.terms import keys, queries
from tests.golden import unit
from tests.losses.oracle import mean, total
from tests.methods.small import IDS, doubled, same_gradient

SCORES, FIRST_TWO = queries("image", range(4), "scores"), queries("image", range(2), "projection")
TEACHER = keys("image", range(2), "scores")


class Given(Codes):
    """Codes that are given."""

    def __init__(self, codes: list[Tensor]) -> None:
        super().__init__([])
        self.codes = codes

    def __call__(self, batch: BatchOutputs) -> list[Tensor]:
        return self.codes

    def remember(self, batch: BatchOutputs) -> None: ...


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def batch(outputs: dict[Slot, Tensor], **options: Any) -> BatchOutputs:
    there = {slot: unit(random(6, 3, seed=slot.copy)) for slot in FIRST_TWO}
    return BatchOutputs(there | outputs, IDS, IDS, **options)


def test_every_copy_predicts_the_codes_of_all_other_assigned_ones() -> None:
    raw = random(4, 6, 5).requires_grad_()
    codes = [random(6, 5, seed=1).softmax(1), random(6, 5, seed=2).softmax(1)]
    first, second = FIRST_TWO
    term = Assignment(SCORES, Given(codes), (first, second), temperature=0.3)
    found = term(batch(dict(zip(SCORES, raw, strict=True))))
    pairs = []
    for t in range(2):
        for v in (v for v in range(4) if v != t):
            p = (raw[v] / 0.3).exp() / (raw[v] / 0.3).exp().sum(1, keepdim=True)
            pairs.append(mean([-total([codes[t][i, k] * p[i, k].log() for k in range(5)]) for i in range(6)]))
    same_gradient(found.loss, mean(pairs), [raw])
    assert found.watched is not None
    torch.testing.assert_close(found.watched.assigned, (raw[0] / 0.3).softmax(1))
    assert (term.option("temperature"), term.option("t_neg")) == (0.3, None)


def sinkhorn_codes(queue: int = 0, **options: Any) -> SinkhornCodes:
    torch.manual_seed(0)
    queues = [QueueMemory(Queue(queue, 3, start="empty"), "each").double() for _ in range(2)] if queue else []
    return SinkhornCodes(FIRST_TWO, Prototypes(3, 5).double(), queues, epsilon=0.2, **options)


def test_codes_are_sinkhorns_of_the_scores_by_the_prototypes() -> None:
    codes = sinkhorn_codes()
    given = batch({})
    for found, slot in zip(codes(given), FIRST_TWO, strict=True):
        scores = given.outputs[slot] @ codes.prototypes.weight.detach().T
        torch.testing.assert_close(found, sinkhorn(scores, epsilon=0.2))
        assert not found.requires_grad
    assert codes.gathers == FIRST_TWO


def test_a_queue_is_filled_from_its_start_on_and_used_once_it_is_full() -> None:
    codes = sinkhorn_codes(queue=9, start=1)
    alone = sinkhorn_codes()
    for step, ready in enumerate([False, False, False, True]):  # after step 0 nothing, then 6 and 12 of 9
        given = batch({}, step=step)
        assert [each.queue.ready for each in codes.queues] == [ready] * 2
        same = [torch.equal(one, other) for one, other in zip(codes(given), alone(given), strict=True)]
        assert same == [not ready] * 2
        codes.remember(given)
    kept = codes.queues[0].queue.keys
    scores = torch.cat([kept, given.outputs[FIRST_TWO[0]]]) @ codes.prototypes.weight.detach().T
    torch.testing.assert_close(codes(given)[0], sinkhorn(scores, epsilon=0.2)[-6:])


def test_the_teachers_temperature_warms_up_over_a_share_of_the_run() -> None:
    codes = CentredCodes(TEACHER, Centre(5), temperature=0.08, start=0.04, warmup=0.2)
    assert [codes.temperature_at(done) for done in (0.05, 0.1, 0.2, 1.0)] == pytest.approx([0.05, 0.06, 0.08, 0.08])
    at_once = CentredCodes(TEACHER, Centre(5), temperature=0.07, start=0.04, warmup=0.0)
    assert at_once.temperature_at(0.01) == pytest.approx(0.07)


def test_the_centre_is_read_before_it_follows_the_mean_of_both_copies() -> None:
    centre = Centre(5, 0.75).double()
    codes = CentredCodes(TEACHER, centre, temperature=0.5, start=0.5, warmup=0.0)
    scores = [random(6, 5, seed=3), random(6, 5, seed=4)]
    given = batch(dict(zip(TEACHER, scores, strict=True)))
    torch.testing.assert_close(codes(given)[0], (scores[0] / 0.5).softmax(1))
    codes.remember(given)
    torch.testing.assert_close(centre.vector, 0.25 * torch.cat(scores).mean(0))
    torch.testing.assert_close(codes(given)[1], ((scores[1] - centre.vector) / 0.5).softmax(1))
    assert codes.memories == (centre,)


@pytest.mark.parametrize("make", [swav, dino])
def test_a_small_crop_predicts_two_others_and_a_large_one_one(make: Callable[..., Method]) -> None:
    few = partial(Prototypes, count=4)
    assert doubled(make, small=3, prototypes=few).positives == 2
    assert doubled(make, small=0, prototypes=few).positives == 1
